"""An environment before packages are installed into it: wheels that a lock or a requirement names, as a host.

Of each wheel only the ranges that are needed are read, and nothing is installed, imported or built.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec

from mlbackends.base.errors import BadInput, counted, joined
from mlbackends.base.quantities import dotted_numbers
from mlbackends.host.host import Host
from mlbackends.host.python.packages import distribution, normalised
from mlbackends.loading.assumed import DRIVER, PYTHON, SYSTEM, Assumed, of_system
from mlbackends.loading.chips import gpus
from mlbackends.loading.imports import shared_objects
from mlbackends.loading.linker import cached_paths
from mlbackends.loading.planned import PlannedHost
from mlbackends.loading.plans import glibc_floor, if_installed, locked
from mlbackends.loading.web import Web
from mlbackends.model.loading import PackageLoading, TargetMachine


class Before(NamedTuple):
    """What is inspected. packages: those to answer for, None for all. lacking: those without a wheel.

    notes: returns what to know about the answer, once it is there.
    """

    host: Host
    packages: Sequence[str] | None
    lacking: Sequence[PackageLoading] = ()
    notes: Callable[[], tuple[str, ...]] = tuple


@contextmanager
def before(
    host: Host,
    subjects: Sequence[str] = (),
    wanted: Sequence[str] = (),
    index: str = "",
    lock: str = "",
    targets: Sequence[TargetMachine] = (),
    progress: Callable[[int, int, str], None] | None = None,
) -> Iterator[Before]:
    """Yield a host as it would be once packages are installed, or as it is where none are named.

    subjects: of these packages only. wanted: requirements; what they bring joins or replaces what the
    environment has. index: where it comes from, else what uv or pip are configured for. lock: a lock file,
    whose packages are then the whole environment. targets: machines to judge for. Of one of another
    architecture or C library no file is known: its system is assumed, as NVIDIA's driver is for a GPU.
    Raises BadInput and Incomplete.
    """
    if not wanted and not lock:
        yield Before(host, subjects or None)
        return
    if wanted and lock:
        raise BadInput("--lock and --if-installed cannot be combined", "leave one of them out")
    if not host.is_live or host.pid is not None or host.platform != "linux":
        raise BadInput("wheels that are not installed can only be judged for this machine, with Linux")
    machines = {"aarch64" if target.chip in _ARM_CHIPS else target.machine for target in targets} - {""}
    if len(machines) > 1:
        raise BadInput(
            f"wheels are chosen for one machine, not for {joined(sorted(machines))}", "name one --for"
        )
    with Web() as web, ExitStack() as stack:
        folder, root = (stack.enter_context(TemporaryDirectory(prefix="backends-")) for _ in range(2))
        machine, notes, assumed = host.machine, [], {}
        floor = min((target.glibc for target in targets if target.glibc), key=dotted_numbers, default="")
        if is_other := bool(floor) or not machines <= {machine}:
            machine = next(iter(machines), machine)
            here, host = host, _bare(host, machine, floor or _NEWEST_GLIBC, root)
            assumed = {f"/usr/lib64/{name}": of_system(here, name, machine) for name in SYSTEM}
            assumed[_PYTHON] = Assumed(_PYTHON, PYTHON, machine)
        plan = locked(host, lock) if lock else if_installed(host, wanted, index, alone=is_other)
        if is_other:
            needed = max((glibc_floor(name) for name, _ in plan.files), default=0)
            glibc = f"glibc {floor or f'2.{needed} or newer'}, " if floor or needed else ""
            notes.append(
                f"assumed to be on {machine}: {glibc}GCC's and the other libraries that manylinux allows"
            )
        if any(target.chip and target.vendor == "nvidia" for target in targets):
            lacking = {name: own for name, own in DRIVER.items() if not cached_paths(host, machine).get(name)}
            for base in ("/usr/lib", "/usr/lib64"):
                assumed |= {f"{base}/{name}": Assumed(name, own, machine) for name, own in lacking.items()}
            notes += ["assumed to be there: NVIDIA's driver"] * bool(lacking)
        planned = PlannedHost(
            host,
            plan.wheels(web, progress),
            folder,
            replaces=bool(lock) or is_other,
            reads_code=any(target.chip for target in targets or gpus(host)),
            assumed=assumed,
            root=root if is_other else "/",
        )
        named = {name for name in plan.lacking if name.partition(" ")[0] in set(map(normalised, subjects))}
        answers = plan.answers(lock or "requirements", named if subjects else set(plan.lacking))
        dists = [distribution(planned, name) for name in planned.new]
        compiled = [dist.name for dist in dists if dist and shared_objects(planned, dist)]
        lacking_names = {name.partition(" ")[0] for name in named}
        packages = [subject for subject in subjects if normalised(subject) not in lacking_names]
        packages = packages if subjects else compiled or planned.new
        if not packages and not answers:  # it is installed already
            packages = [re.split(r"[^\w.-]", text)[0] for text in wanted if not text.endswith(".whl")]
        if not packages and not answers:
            raise BadInput("nothing would be installed", "leave --lock and --if-installed out")

        def read() -> str:
            size, count = sum(wheel.file.size for wheel in planned.wheels), len(planned.wheels)
            return f"read {web.read / 1e6:,.1f} MB of {size / 1e6:,.1f} MB in {counted(count, 'wheel')}"

        yield Before(planned, packages, answers, lambda: (*plan.notes, *notes, read()))


def _bare(host: Host, machine: str, glibc: str, root: str) -> Host:
    """Return a machine of another kind, with nothing on it that is known, and an interpreter as here."""
    described = {"uname": {"sysname": "Linux", "machine": machine}, "system": {"libc": f"glibc {glibc}"}}
    with open(f"{root}/host.json", "wb") as file:
        file.write(msgspec.json.encode(described))
    version = str(host.python.get("version", ""))
    site = f"/venv/lib/python{'.'.join(version.split('.')[:2])}/site-packages"
    kept = {"version": version, "implementation": host.python.get("implementation", "")}
    python = {**kept, "executable": _PYTHON, "prefix": "/venv", "base_prefix": "/usr", "path": [site]}
    return Host(root, python=python, environment={})


#: Chips of systems that have an ARM processor: Orin, Thor and GB10.
_ARM_CHIPS = ("8.7", "11.0", "12.1")
_PYTHON = "/venv/bin/python"
_NEWEST_GLIBC = "2.39"
