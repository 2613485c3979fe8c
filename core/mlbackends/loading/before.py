"""An environment before packages are installed into it: wheels that a lock or a requirement names, as a host.

Of each wheel only the ranges that are needed are read, and nothing is installed, imported or built.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mlbackends.base.errors import BadInput, counted
from mlbackends.host.host import Host
from mlbackends.host.python.packages import distribution
from mlbackends.loading.imports import shared_objects
from mlbackends.loading.planned import PlannedHost
from mlbackends.loading.plans import if_installed, locked
from mlbackends.loading.web import Web
from mlbackends.model.loading import PackageLoading, TargetMachine, Verdict


class Before:
    """What is inspected. packages: those that would be new, [] for all. lacking: those without a wheel."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.packages: list[str] = []
        self.lacking: list[PackageLoading] = []

    def notes(self) -> tuple[str, ...]:
        """Return what to know about the answer."""
        return ()


class _Planned(Before):
    def __init__(self, host: PlannedHost, web: Web, notes: tuple[str, ...]) -> None:
        super().__init__(host)
        self._web, self._notes, self._size = web, notes, sum(wheel.file.size for wheel in host.wheels)
        dists = [distribution(host, name) for name in host.new]
        compiled = [dist.name for dist in dists if dist and shared_objects(host, dist)]
        self.packages = compiled or host.new

    def notes(self) -> tuple[str, ...]:
        count = counted(len(self.host.new), "wheel")  # type: ignore[attr-defined]
        return (*self._notes, f"read {self._web.read / 1e6:,.1f} MB of {self._size / 1e6:,.1f} MB in {count}")


@contextmanager
def before(
    host: Host,
    wanted: Sequence[str] = (),
    index: str = "",
    lock: str = "",
    targets: Sequence[TargetMachine] = (),
    progress: Callable[[int, int, str], None] | None = None,
) -> Iterator[Before]:
    """Yield a host as it would be once packages are installed, or as it is where none are named.

    wanted: requirements; what they bring joins or replaces what the environment has. index: where it comes
    from, else what uv or pip are configured for. lock: a lock file, whose packages are then the whole
    environment. targets: of those with a GPU, the code for it is read. Raises BadInput and Incomplete.
    """
    if not wanted and not lock:
        yield Before(host)
        return
    if wanted and lock:
        raise BadInput("--lock and --if-installed cannot be combined", "leave one of them out")
    if not host.is_live or host.pid is not None or host.platform != "linux":
        raise BadInput("wheels that are not installed can only be judged for this machine, with Linux")
    plan = locked(host, lock) if lock else if_installed(host, wanted, index)
    with Web() as web, tempfile.TemporaryDirectory(prefix="backends-") as folder:
        wheels = plan.wheels(web, progress)
        reads_code = any(target.chip for target in targets)
        planned = PlannedHost(host, wheels, folder, replaces=bool(lock), reads_code=reads_code)
        result = _Planned(planned, web, plan.notes)
        for name, fault in plan.lacking.items():
            verdict = Verdict.UNKNOWN if fault.code == "not-read" else Verdict.FAILS
            package, _, version = name.partition(" ")
            result.lacking.append(PackageLoading(package, version, verdict, faults=(fault,)))
        if not planned.new and not result.lacking:
            raise BadInput("nothing would be installed", "leave --lock and --if-installed out")
        yield result
