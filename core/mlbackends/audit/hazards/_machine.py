"""Hazards of processors, threads and disks; and warnings that are no other hazard's."""

from typing import Any

from mlbackends.audit.environment import setting, settings
from mlbackends.audit.hazard import DoesNotApply, ReportView, Severity, Symptom, Symptoms, from_warning
from mlbackends.audit.threads import bound, listed, thread_pools
from mlbackends.base.quantities import parse_cpu_list
from mlbackends.base.specifiers import satisfies
from mlbackends.base.tables import table
from mlbackends.host.python.installing import quoted
from mlbackends.host.system.cgroups import CPU_LIMITS
from mlbackends.model.records import FactValue

_BINDING = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PROC_BIND", "OMP_PLACES")


def affinity_one_cpu(report: ReportView) -> Symptoms:
    """Yield one where the mask has one CPU, with what may have set it."""
    report.only_on("linux")
    online = int(report.need("limits.online_cpus"))
    if online < 2:
        raise DoesNotApply("the machine has one CPU")
    if int(report.need("limits.affinity_cpus")) != 1:
        return
    variables = settings(report)
    binding = [name for name in _BINDING if name in variables]
    scheduler = str(report.fact("limits.scheduler", ""))
    if variables.get("SLURM_CPUS_PER_TASK") == "1":
        return
    message = f"this process may use only CPU {report.fact('limits.affinity', '')} of {online}"
    cpuset = str(report.fact("limits.cpuset", "")) or f"0-{online - 1}"
    hint, command = "", ""
    if len(parse_cpu_list(cpuset)) > 1:
        command = f"taskset -acp {cpuset} $$"
        if binding:
            hint = f"the parent may have been bound by {' and '.join(binding)}: unset it there"
    else:
        hint = "its cpuset has no other CPU: request more from the batch system or the container"
    if scheduler == "slurm":
        hint, command = "Slurm gave the task one CPU: request more", "srun --cpus-per-task=N ..."
    yield Symptom(
        message,
        hint=hint,
        command=command,
        evidence={
            "limits.affinity": str(report.fact("limits.affinity", "")),
            "limits.online_cpus": online,
            **({"limits.scheduler": scheduler} if scheduler else {}),
        },
    )


_PYTHON = (3, 13)


def cpu_count_too_high(report: ReportView) -> Symptoms:
    """Yield one where only Python's count is too high."""
    found = thread_pools(report)
    if found.pools or not found.counted:
        return
    cpus = f"{found.cpus} CPU" if found.cpus == 1 else f"{found.cpus} CPUs"
    parts = report.version("python").split(".")[:2]
    heeds = len(parts) == 2 and tuple(int(part) for part in parts if part.isdecimal()) >= _PYTHON
    yield Symptom(
        f"{listed(found.counted, 'report')} more than the {cpus} that "
        f"{CPU_LIMITS.get(found.because, 'the limit')} leaves",
        command=f"export PYTHON_CPU_COUNT={found.cpus}" if heeds else "",
        evidence=found.evidence,
    )


def cpu_quota_below_threads(report: ReportView) -> Symptoms:
    """Yield one where a quota is what limits, and a thread pool does not keep to it."""
    found = thread_pools(report)
    if found.because != "quota" or not found.pools:
        return
    yield Symptom(
        f"{listed(found.pools, 'start')} more threads than the CPU quota of {found.exact:g} allows",
        command=found.command,
        evidence=found.evidence | {"limits.cpu_quota": found.exact},
    )


def threads_exceed_cpus(report: ReportView) -> Symptoms:
    """Yield one where a thread pool takes more than the machine, affinity mask or cpuset leaves."""
    found = thread_pools(report)
    threads = report.fact("limits.process_threads")
    running = report.fact("limits.process_running_threads", 0)
    if found.because == "quota" or not (found.pools or running > found.cpus):
        return
    evidence, what = found.evidence, f"{listed(found.pools, 'start')} more threads"
    if threads:
        wanting = f"{running} of them running or waiting for a CPU"
        what = f"the process has {threads} threads, {wanting}: more"
        evidence |= {"limits.process_threads": threads, "limits.process_running_threads": running}
    cpus = f"{found.cpus} CPU" if found.cpus == 1 else f"{found.cpus} CPUs"
    limit = CPU_LIMITS.get(found.because, "the limit")
    verb = "has" if found.because == "online" else "leaves"
    yield Symptom(f"{what} than the {cpus} that {limit} {verb}", command=found.command, evidence=evidence)


_UNBOUND = ("false", "none", "disabled", "no", "0")
_VARIABLES = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PROC_BIND")


def thread_binding(report: ReportView) -> Symptoms:
    """Yield each variable that binds threads to too few CPUs, or those of several processes alike."""
    variables = settings(report)
    # Of the OpenMP runtimes, Intel's and LLVM's read KMP_ variables.
    makers = {library.facts.get("runtime") for library in report.libraries("openmp")}
    if makers and makers.isdisjoint(("intel", "llvm")):
        variables.pop("KMP_AFFINITY", None)
    allowed = frozenset(parse_cpu_list(str(report.fact("limits.affinity", ""))))
    for binding in bound(variables):
        expected = {row["runtime"]: int(row["cpus"]) for row in report.need("limits.threads_expected")}
        threads = expected.get("OpenMP", 0)
        cpus = binding.within(allowed)
        # More threads than CPUs in all is another hazard's matter.
        if not 0 < cpus < min(threads, len(allowed) or threads):
            continue
        places = f"{cpus} CPUs" if cpus > 1 else "one CPU"
        yield Symptom(
            f"{setting(binding.variable, binding.value)} binds to {places}, but OpenMP starts"
            f" {threads} threads",
            command=f"unset {binding.variable}",
            evidence={
                f"environment.variables.{binding.variable}": binding.value,
                "limits.threads_expected.OpenMP.cpus": threads,
                "limits.affinity": str(report.fact("limits.affinity", "")),
            },
        )
    ranks = variables.get("LOCAL_WORLD_SIZE", "")
    if not ranks or ranks == "1":
        return
    mask, online = report.fact("limits.affinity_cpus"), report.fact("limits.online_cpus")
    is_number = ranks.isascii() and ranks.isdecimal() and len(ranks) < 7
    if is_number and mask and online and mask * int(ranks) <= online:
        return  # the mask has no more CPUs than this process's share of the machine
    for name in _VARIABLES:
        value = variables.get(name, "")
        if value and value.lower().split(",")[0] not in _UNBOUND:
            yield Symptom(
                f"{setting(name, value)}, and {ranks[:10]} processes on this machine read it: each"
                " binds its threads to the same CPUs",
                command=f"unset {name}",
                evidence={
                    f"environment.variables.{name}": value,
                    "environment.variables.LOCAL_WORLD_SIZE": ranks,
                },
            )


_POOLS = 8


def thread_limit_low(report: ReportView) -> Symptoms:
    """Yield each limit that is low for the pools that would be started here."""
    expected = report.need("limits.threads_expected")
    most = max((int(row["cpus"]) for row in expected if row["runtime"] in _STARTING), default=0)
    limits = (
        ("limits.process_limit", "the control group's pids.max", "raise pids.max"),
        ("limits.user_processes_limit", "ulimit -u", "raise ulimit -u, or nproc in limits.conf"),
    )
    for name, origin, hint in limits:
        limit = report.fact(name)
        if limit is not None and limit < most * _POOLS:
            yield Symptom(
                f"{origin} allows {limit} threads in total, and one thread pool has {most} on this machine",
                hint=f"{hint}, or set OMP_NUM_THREADS to a smaller number",
                evidence={
                    name: limit,
                    "limits.effective_cpus": report.fact("limits.effective_cpus"),
                },
            )


_STARTING = ("OpenMP", "OpenBLAS", "MKL", "torch")


def omp_one_thread(report: ReportView) -> Symptoms:
    """Yield one where each process could have two threads or more."""
    variables = settings(report)
    if variables.get("OMP_NUM_THREADS", "").split(",")[0].strip() != "1":
        raise DoesNotApply("OMP_NUM_THREADS is not 1")
    cpus = int(report.need("limits.effective_cpus"))
    size = variables.get("LOCAL_WORLD_SIZE", "")
    is_number = size.isascii() and size.isdecimal() and len(size) < 7
    processes = max(1, int(size)) if is_number else 1
    share = cpus // processes
    if share < 2:
        return
    launched = "LOCAL_RANK" in variables or bool(size)
    ours = f", {share} for each of {processes} processes" if processes > 1 else ""
    by = " (set by a launcher such as torchrun)" if launched else ""
    yield Symptom(
        f"OMP_NUM_THREADS is 1{by}; {cpus} CPUs are available{ours}",
        command=f"export OMP_NUM_THREADS={share}",
        evidence={
            "environment.variables.OMP_NUM_THREADS": "1",
            "limits.effective_cpus": cpus,
            **({"environment.variables.LOCAL_WORLD_SIZE": size} if size else {}),
        },
    )


_LIBRARIES = {
    "ONEDNN_MAX_CPU_ISA": "oneDNN",
    "DNNL_MAX_CPU_ISA": "oneDNN",
    "MKL_ENABLE_INSTRUCTIONS": "MKL",
    "OPENBLAS_CORETYPE": "OpenBLAS",
}
_NUMPY = ("NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES")


def isa_capped(report: ReportView) -> Symptoms:
    """Yield each variable that disables instructions, with those instructions."""
    variables = settings(report)
    features = frozenset(report.fact("cpu.features", ()))
    vendor = str(report.fact("cpu.vendor", ""))
    for name, value in variables.items():
        if name in _NUMPY:
            unused = lost_to_numpy(name, value, features, report.version("numpy"))
        else:
            unused = lost(name, value, features, vendor)
        if unused:
            library = _LIBRARIES.get(name, "NumPy")
            message = f"{setting(name, value)} keeps {library} from using this CPU's {', '.join(unused)}"
            yield _symptom(name, value, message, {"cpu.features": list(unused)})
    used, has = report.fact("cpu.capability", ""), report.fact("cpu.hardware_capability", "")
    words = ("DEFAULT", "AVX2", "AVX512")
    below = used == "DEFAULT" != has
    if used in words and has in words:
        below = words.index(used) < words.index(has)
    override = variables.get("ATEN_CPU_CAPABILITY", "")
    if below and override == used.lower().replace(" ", ""):
        message = (
            f"ATEN_CPU_CAPABILITY={override}: torch uses its {used} kernels, although the CPU supports {has}"
        )
        evidence: dict[str, FactValue] = {"cpu.capability": used, "cpu.hardware_capability": has}
        yield _symptom("ATEN_CPU_CAPABILITY", override, message, evidence)


def lost(name: str, value: str, features: frozenset[str], vendor: str) -> tuple[str, ...]:
    """Return which of the CPU's features a value disables, by Linux's names; () for none.

    vendor: as the cpu probe spells it.
    """
    data = table("audit/hazards/isa_capped.toml")
    steps = data["steps"]
    for library in data["libraries"]:
        if name not in library["variables"]:
            continue
        if library.get("vendor", vendor) != vendor:
            return ()
        used = steps[: steps.index(library.get("widest", steps[-1])) + 1]
        for first, values in library["first_lost"].items():
            if value.upper() in values:
                return tuple(step for step in used[steps.index(first) :] if step in features)
    return ()


def lost_to_numpy(name: str, value: str, features: frozenset[str], version: str) -> tuple[str, ...]:
    """Return the same for NumPy's variables. version: of NumPy, "" without one, which loses nothing."""
    words = value.replace(",", " ").split()
    names = {
        word: feature
        for row in table("audit/hazards/isa_capped.toml")["numpy"]
        if version and satisfies(version, row["releases"])
        for word, feature in row["names"].items()
        if feature in features
    }
    is_list_of_lost = name == "NPY_DISABLE_CPU_FEATURES"
    if not is_list_of_lost and names.keys().isdisjoint(words):
        return ()  # it refuses to start where a name is unknown or is not here
    return tuple(
        dict.fromkeys(feature for word, feature in names.items() if (word in words) is is_list_of_lost)
    )


def _symptom(name: str, value: str, message: str, evidence: dict[str, FactValue]) -> Symptom:
    return Symptom(
        message,
        command=f"unset {name}",
        evidence={f"environment.variables.{name}": value, **evidence},
    )


_LITTLE, _ALMOST_NOTHING = 1 << 30, 64 << 20


def disk_full(report: ReportView) -> Symptoms:
    """Yield one that names each disk."""
    free = {row["path"]: row["free_bytes"] for row in report.need("disks.free")}
    full = {
        row["path"]: row["used_for"]
        for row in report.need("disks.file_systems")
        if row["used_for"] != "root"
        and free.get(row["path"], _LITTLE) < min(_LITTLE, row["total_bytes"] / 10)
    }
    if not full:
        return
    folder = quoted(next(iter(full)))
    is_linux = report.fact("host.platform") == "linux"
    yield Symptom(
        "; ".join(f"{path} has {free[path] >> 20} MiB left for {use}" for path, use in full.items()),
        command=f"du -xh --max-depth=2 {folder} | sort -h | tail" if is_linux else "",
        evidence={"disks.free": [{"path": path, "free_bytes": free[path]} for path in full]},
        severity=Severity.ERROR if any(free[path] < _ALMOST_NOTHING for path in full) else None,
    )


def other_warning(report: ReportView) -> Symptoms:
    """Yield each warning that is left, once where several probes have it, as of a folder that all read."""
    found: dict[Any, list[str]] = {}
    for name, probe in report.record.probes.items():
        for warning in probe.warnings:
            if (name, warning.code) not in report.claimed:
                found.setdefault(warning, []).append(name)
    for warning, names in found.items():
        evidence = {f"{name}.warnings.code": [warning.code] for name in names}
        yield from_warning(warning, evidence=evidence)


#: The GPUs that the kernel sees, by vendor.
_GPUS = {"nvidia": "pci_gpu_count", "rocm": "gpu_count", "xpu": "gpu_count"}


def slurm_node_differs(report: ReportView) -> Symptoms:
    """Yield one for each thing that Slurm expects and the node lacks."""
    if not report.fact("slurm.configuration"):
        raise DoesNotApply("the machine has no slurm.conf")
    for row in report.fact("slurm.gres_files", []):
        if missing := row.get("missing"):
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            message = f"gres.conf names {missing[0]}{more} for {row['name']}: not found"
            yield Symptom(message, evidence={"slurm.gres_files": [row]})
    seen = {f"{probe}.{fact}": report.fact(f"{probe}.{fact}", 0) for probe, fact in _GPUS.items()}
    # The parts of a GPU count as GPUs for Slurm.
    has_parts = report.fact("nvidia.mig_instances") or any(
        gpu.kind == "mig" or gpu.facts.get("mig") for gpu in report.devices("nvidia")
    )
    is_known = all(map(report.probe, _GPUS)) and not has_parts
    for promise, unit, size, has, evidence in (
        ("slurm.gpus", "GPUs", 1, sum(seen.values()) if is_known else None, seen),
        ("slurm.real_memory_bytes", "MiB of memory", 1 << 20, report.fact("memory.total_bytes"), {}),
        ("slurm.cpus", "CPUs", 1, report.fact("limits.online_cpus"), {}),
    ):
        if has is not None and (promised := report.fact(promise, 0)) // size > has // size:
            message = f"slurm.conf promises {promised // size:,} {unit}; the node has {has // size:,}"
            yield Symptom(message, evidence={promise: promised, **evidence})
