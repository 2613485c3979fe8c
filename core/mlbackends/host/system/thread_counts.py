"""How many threads each runtime would start, by its documented rule; nothing is run or imported.

If there is no affinity mask (macOS) the online CPUs replace it, except for OpenBLAS on macOS, which counts
the physical cores. On Windows Python ignores the mask, and OpenBLAS counts the CPUs of one processor group.
None of these rules considers a CPU quota, which is why they are compared with it.

Source: Python documentation, os.cpu_count; coreutils, nproc(1) and NEWS 9.8; OpenMP 5.2, 21.2;
OpenBLAS USAGE.md and driver/others/memory.c; oneMKL developer guide, MKL_NUM_THREADS and
MKL_DYNAMIC; ATen/ParallelOpenMP.cpp, init_num_threads.
"""

from msgspec import Struct

from mlbackends.host.host import Host

_MOST = 1 << 20
_MKL_VARIABLES = ("MKL_NUM_THREADS", "OMP_NUM_THREADS")
_OFF = ("false", "0", "f", "no", "off", ".false.")


#: A count of CPUs, and the rule that gives it.
Rule = tuple[int, str]


class Machine(Struct, frozen=True):
    """The counts that the rules start from; 0 if unknown.

    affinity: CPUs in the affinity mask, or the online CPUs without one. cores: physical cores of these CPUs.
    python: version of the inspected interpreter, () if unknown. group: on Windows the CPUs of the processor
    group in which the process starts.
    """

    online: int
    affinity: int
    cores: int
    is_x86: bool
    python: tuple[int, ...] = ()
    platform: str = "linux"
    has_mask: bool = True
    group: int = 0


def thread_counts(text: str) -> tuple[int, ...]:
    """Return the numbers of a list such as "4" or "4,2"; () if one of them is not a thread count."""
    parts = [part.strip().removeprefix("+") for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        return ()
    numbers = tuple(int(part) for part in parts)
    return numbers if all(0 < number <= _MOST for number in numbers) else ()


def expected_threads(host: Host, machine: Machine) -> list[tuple[str, int, str]]:
    """Return each runtime, its number of threads on this machine, and why; unknown ones are left out."""
    has_mask = machine.has_mask
    allowed = machine.affinity, "the affinity mask" if has_mask else "the CPUs that are online"
    cores = machine.cores, "the cores in the affinity mask" if has_mask else "the physical cores"
    # PYTHON_CPU_COUNT goes first from Python 3.13 on; there, too, os.process_cpu_count is new.
    is_new_python = machine.python >= (3, 13)
    by_python = _by_variable(host, "PYTHON_CPU_COUNT") if is_new_python else None
    # A v2 quota, which coreutils count from 9.8 on, is left out.
    openmp = _by_variable(host, "OMP_NUM_THREADS") or allowed
    limit = _by_variable(host, "OMP_THREAD_LIMIT")
    if limit and limit[0] < openmp[0]:
        openmp = limit
    mkl = _mkl(host, *cores) if machine.is_x86 else None
    torch = mkl and (mkl[0], f"it uses as many as MKL: {mkl[1]}")
    if not machine.is_x86:  # only the two variables are certain
        torch = next(filter(None, (_by_variable(host, name) for name in _MKL_VARIABLES)), None)
    online = machine.online, "the CPUs that are online"
    # Windows' Python knows no mask, and its OpenBLAS asks for the CPUs of one group.
    of_process = online if machine.platform == "win32" else allowed
    of_openblas = cores if machine.platform == "darwin" else allowed
    if machine.group:
        of_openblas = machine.group, "the CPUs of its processor group"
    rules = {
        "os.cpu_count": by_python or online,
        "os.process_cpu_count": (by_python or of_process) if is_new_python else None,
        "nproc": None if machine.platform == "win32" else openmp,
        "OpenMP": openmp,
        "OpenBLAS": _openblas(host, *of_openblas),
        "MKL": mkl,
        "torch": torch,
    }
    return [(name, *rule) for name, rule in rules.items() if rule and rule[0] > 0]


def _openblas(host: Host, most: int, allowed: str) -> Rule:
    """Apply the rule of builds without OpenMP, as in wheels: the allowed CPUs cap the variables."""
    for name in ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"):
        # It reads with atoi, for which "4x" is 4, and goes on to the next name at 0.
        text = host.env(name).strip().removeprefix("+")
        digits = text[: len(text) - len(text.lstrip("0123456789"))]
        if count := int(digits[:9] or 0):
            is_capped = count > most
            return min(count, most), _set(name, host) + f", capped by {allowed}" * is_capped
    return most, allowed


def _mkl(host: Host, cores: int, allowed: str) -> Rule | None:
    """Apply the rule of MKL: the cores in the affinity mask cap the variables unless MKL_DYNAMIC is off."""
    name = next((name for name in _MKL_VARIABLES if host.env(name).strip()), "")
    rule = _by_variable(host, name)
    if name == "MKL_NUM_THREADS" and not rule:
        return None  # how MKL reads a value that is not a number is not documented
    if not rule:
        return cores, allowed
    if host.env("MKL_DYNAMIC").strip().lower() in _OFF or not 0 < cores < rule[0]:
        return rule
    return cores, f"{rule[1]}, and MKL_DYNAMIC keeps it to {allowed}"


def _by_variable(host: Host, name: str) -> Rule | None:
    counts = thread_counts(host.env(name))
    return (counts[0], _set(name, host)) if counts else None


def _set(name: str, host: Host) -> str:
    return f"{name} is {host.env(name).strip()[:40]}"
