"""The packages of an environment, and the process that importing a module leaves behind."""

import posixpath
from collections.abc import Iterable

from mlbackends.base.errors import NotALibrary
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import Distribution, distributions, record_bytes
from mlbackends.loading.dynamic_symbols import symbol
from mlbackends.loading.imports import (
    Import,
    imports_of,
    lost_modules,
    module_file,
    module_name,
    shared_objects,
    suffixes,
)
from mlbackends.loading.linker import Opening, Process, object_file
from mlbackends.loading.preloads import preload_of, preloaded
from mlbackends.model.loading import Fault

#: An import that fails, and how opening its file ended.
Failure = tuple[Import, Opening]


@once_per_host
def modules_of(host: Host, dist: Distribution) -> tuple[str, ...]:
    """Return the importable names at the top of a distribution, its own first, private ones last."""
    names: dict[str, None] = {}
    for line in record_bytes(host, dist).decode(errors="replace").splitlines():
        top, slash, rest = line.rsplit(",", 2)[0].strip('"').partition("/")
        if slash and rest == "__init__.py" and "." not in top:
            names[top] = None
        elif not slash and any(top.endswith(suffix) for suffix in suffixes(host)):
            names[top.partition(".")[0]] = None
    own = dist.name.replace("-", "_")
    return tuple(sorted(names, key=lambda name: (name.startswith("_"), name.lower() != own)))


@once_per_host
def extension_modules(host: Host, dist: Distribution) -> dict[str, str]:
    """Return the paths of the extension modules that a distribution installed, by the name of the module."""
    named = ((module_name(host, dist, path), path) for path in shared_objects(host, dist))
    return {name: path for name, path in named if name and _initialises(host, path, name.rpartition(".")[2])}


def _initialises(host: Host, path: str, name: str) -> bool:
    """Return whether a file has the function that Python calls; True where it cannot be read."""
    try:
        symbols = object_file(host, host.realpath(path)).symbols
    except (NotALibrary, OSError):
        return True
    return symbols.defines(symbol(f"PyInit_{name}"))


@once_per_host
def providers(host: Host) -> dict[str, tuple[str, str]]:
    """Return by file name the distribution and the path of each shared object of an installed package."""
    owners: dict[str, tuple[str, str]] = {}
    for dists in distributions(host).values():
        for path in shared_objects(host, dists[0]):
            owners.setdefault(posixpath.basename(path), (dists[0].name, path))
    return owners


class Environment:
    """An interpreter with its packages, and the processes in which their modules were imported."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.start = Process(host, str(host.python.get("executable", "")))
        self.start.adopt(path for path, is_there in host.mapped_files().items() if is_there)
        self._after: dict[str, Process] = {}

    def after(self, modules: Iterable[str]) -> Process:
        """Return a process in which some modules were imported, one after the other."""
        process = self.start.copy()
        for i, module in enumerate(modules):
            if i == 0 and module in self._after:
                process = self._after[module].copy()
                continue
            self.import_module(process, module)
            if i == 0:
                self._after[module] = process.copy()
        return process

    def import_module(self, process: Process, module: str) -> list[Failure]:
        """Do to a process what `import module` does, and return what could not be opened.

        Ends at the first extension module that surely is imported and does not open.
        """
        if module in process.imported:
            return []
        process.imported.add(module)
        failed: list[Failure] = []
        row = preload_of(self.host, module)
        if row:
            for other in row.imports:
                failed += self.import_module(process, other)
            if not any(step.is_certain for step, _ in failed):
                failed += preloaded(self.host, process, row)
        if row and (not row.follows or any(step.is_certain for step, _ in failed)):
            return failed
        for step in imports_of(self.host, module):
            inner: list[Failure] = []
            if step.module in lost_modules(self.host):
                words = f"No module named '{step.module}'"
                fault = Fault("missing-file", step.module, words, (step.path,))
                inner = [(step, Opening(None, (fault,)))]
            elif step.is_extension:
                opening = process.open(step.path)
                inner = [(step, opening)] if opening.faults else []
            elif not step.path and self._is_installed(step.module):
                inner = [
                    (other._replace(is_certain=other.is_certain and step.is_certain), opening)
                    for other, opening in self.import_module(process, step.module)
                ]
            failed += inner
            if any(failing.is_certain for failing, _ in inner):
                break
        return failed

    def _is_installed(self, module: str) -> bool:
        """Return whether a module is from an installed package, not from the standard library."""
        path = module_file(self.host, module)
        return "/site-packages/" in path or "/dist-packages/" in path
