"""The packages of an environment, and the process that importing a module leaves behind."""

import posixpath
import sys
from collections.abc import Iterable, Iterator
from functools import cached_property

from mlbackends.base.errors import NotALibrary
from mlbackends.base.patterns import bytes_pattern
from mlbackends.base.specifiers import satisfies
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.installing import manager_of, package_command
from mlbackends.host.python.packages import (
    Distribution,
    contents,
    distribution,
    distributions,
    editable_location,
    normalised,
    python_folders,
    version_of,
)
from mlbackends.host.python.requirements import required, unmet
from mlbackends.libraries.symbols import extract_symbols
from mlbackends.loading.dynamic_symbols import symbol
from mlbackends.loading.imports import (
    LIBRARY,
    Guard,
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

_COMPILED_BYTES = 64 << 20
_OLDEST_NUMPY = bytes_pattern(rb"compiled against NumPy C-API version 0x%x \(NumPy (\d+\.\d+)")
#: What the code that cffi and mypyc generate imports, by distribution.
_GENERATED = {"cffi": "_cffi_backend", "librt": "librt.internal"}
#: An import that fails, and how opening its file ended.
Failure = tuple[Import, Opening]


@once_per_host
def modules_of(host: Host, dist: Distribution) -> tuple[str, ...]:
    """Return the importable names at the top of a distribution, its own first, private ones last.

    One that has its packages in folders of a namespace, as google and zope are, has the names of those.
    """
    names: dict[str, None] = {}
    inner: dict[str, None] = {}
    for line in contents(host, dist)[1].decode(errors="replace").splitlines():
        path = line.rsplit(",", 2)[0].strip('"')
        top, slash, rest = path.partition("/")
        if slash and rest == "__init__.py" and "." not in top:
            names[top] = None
        elif not slash and any(top.endswith(suffix) for suffix in suffixes(host)):
            names[top.partition(".")[0]] = None
        elif rest.endswith("/__init__.py"):
            folder = path.removesuffix("/__init__.py")
            if folder.replace("/", "").isidentifier():
                inner[folder.replace("/", ".")] = None
    outer = (
        name for name in inner if not any(name[:i] in inner for i, sign in enumerate(name) if sign == ".")
    )
    names = names or dict.fromkeys(outer)
    own = dist.name.replace("-", "_")
    return tuple(sorted(names, key=lambda name: (name.startswith("_"), name.lower() != own)))


@once_per_host
def named_modules(host: Host, dist: Distribution) -> dict[str, str]:
    """Return the shared objects of a distribution that Python looks at for a module, by the module's name."""
    named = ((module_name(host, dist, path), path) for path in shared_objects(host, dist))
    return {name: path for name, path in named if name and module_file(host, name) in ("", path)}


@once_per_host
def extension_modules(host: Host, dist: Distribution) -> dict[str, str]:
    """Return the paths of the extension modules that a distribution installed, by the name of the module."""
    return {name: path for name, path in named_modules(host, dist).items() if initialises(host, path, name)}


def initialises(host: Host, path: str, module: str) -> bool:
    """Return whether a file has the function that Python calls; where it cannot be read, by its name."""
    name = module.rpartition(".")[2]
    try:
        if host.platform in ("win32", "darwin"):
            return bool(extract_symbols(host, host.realpath(path), (f"PyInit_{name}",)))
        symbols = object_file(host, host.realpath(path)).symbols
    except (NotALibrary, OSError):
        return not LIBRARY.search(path)
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
        kind = Process
        if host.platform == "win32":
            from mlbackends.loading.windows import WindowsProcess as kind  # noqa: N813
        elif host.platform == "darwin":
            from mlbackends.loading.macos import MacProcess as kind  # noqa: N813
        self.start = kind(host, str(host.python.get("executable", "")))
        self.start.adopt(path for path, is_there in host.mapped_files().items() if is_there)
        self._after: dict[tuple[str, ...], Process] = {}

    def after(self, modules: Iterable[str]) -> Process:
        """Return a process in which some modules were imported, one after the other."""
        *before, last = ("", *modules)
        if not before:
            return self.start.copy()
        key = (*before[1:], last)
        if key not in self._after:
            self._after[key] = self.after(key[:-1])
            self.import_module(self._after[key], last)
        return self._after[key].copy()

    def import_module(self, process: Process, module: str) -> list[Failure]:
        """Do to a process what `import module` does, and return what could not be opened.

        Ends at the first module that surely is imported and cannot be.
        """
        if module in process.imported:
            return [*process.imported[module]]  # it fails each time
        process.imported[module] = []
        failed: list[Failure] = []
        if self._is_nowhere(module):
            failed = [(Import(module), no_module(self.host, module, lost_modules(self.host).get(module, "")))]
        top = module.partition(".")[0]
        row = preload_of(self.host, module) or preload_of(self.host, top)
        for other in () if not row else row.imports if row.module == module else (top,):
            failed += self.import_module(process, other)
        if row and row.module == module and not any(step.is_certain for step, _ in failed):
            failed += preloaded(self.host, process, row)
        dists = filter(None, (distribution(self.host, name) for name in (row.distributions if row else ())))
        lacks = any(need.is_met is False for dist in dists for need in required(self.host, dist))
        is_done = row and not row.follows and not lacks
        ended = [failing for failing in failed if failing[0].is_certain]
        gone: set[str] = set()
        for step in () if ended or is_done else imports_of(self.host, module, process.met, gone):
            inner = [*self._failures(process, step, top)]
            gone.update(failing.module for failing, _ in inner)
            failed += inner
            ended = [failing for failing in inner if failing[0].is_certain]
            if ended:  # what it has imported is imported again at the next attempt
                for name in [name for name in process.met if name.partition(".")[0] == top]:
                    del process.met[name]
                break
        process.imported[module] = ended
        return failed

    def _failures(self, process: Process, step: Import, top: str) -> Iterator[Failure]:
        """Yield what fails in a process at one step of an import. top: the package that is imported."""
        if lost := lost_modules(self.host).get(step.module, ""):
            # A folder without __init__.py can be imported, with nothing in it. A condition may choose another
            # module; what a handler expects is a ModuleNotFoundError.
            is_empty = lost.endswith("/__init__.py") and "(unknown" not in step.words
            words = f"{lost}: No such file or directory" if is_empty else step.words
            opening = no_module(self.host, step.module, lost, words)
            is_gone = opening.faults[0].code == "missing-file"
            is_expected = step.guard in (Guard.ABSENCE, Guard.CONDITION) and not step.words
            passes = is_expected or step.guard is Guard.CHOICE
            guard = Guard.FAILURE if passes or (is_empty and is_gone) else step.guard
            yield step._replace(guard=guard), opening
        elif step.words:
            name = step.words.split("'")[1]
            yield step, Opening((Fault("unmet-requirement", name, step.words, (step.path,)),))
        elif step.is_extension:
            opening = process.open(step.path)
            if not (opening.faults or step.by_function or initialises(self.host, step.path, step.module)):
                opening = Opening((no_function(step.module, step.path),))
            if opening.faults:
                yield step._replace(guard=Guard.NOTHING if opening.kills else step.guard), opening
            elif absent := self._lacks(step.path):
                yield step, no_module(self.host, absent)
            elif refused := refused_by_numpy(self.host, opening, step.module):
                yield step._replace(guard=max(step.guard, refused[0])), refused[1]
        elif step.module in self.broken_modules:
            yield step, self.broken_modules[step.module]
        elif not step.path and (
            self._is_followed(step.module)
            or (step.guard is Guard.NOTHING and self._is_nowhere(step.module, top))
        ):
            for below, opening in self.import_module(process, step.module):
                is_absent = opening.faults[0].message.startswith("No module named")
                passes = step.guard >= (Guard.ABSENCE if is_absent else Guard.CONDITION)
                guard = Guard.FAILURE if passes else max(below.guard, step.guard)
                yield below._replace(guard=Guard.NOTHING if opening.kills else guard), opening

    def _lacks(self, path: str) -> str:
        """Return which module that generated code imports at its start is missing, "" for none."""
        absent = {row["needs"] for row in unmet(self.host) if "installed" not in row}.intersection(_GENERATED)
        data = self.host.read_bytes(path, _COMPILED_BYTES) if absent else b""
        found = [_GENERATED[name] for name in absent if _GENERATED[name].encode() in data]
        return found[0].partition(".")[0] if found else ""

    @cached_property
    def broken_modules(self) -> dict[str, Opening]:
        """The extension modules of the standard library that cannot be opened, by name."""
        broken = {}
        for folder in python_folders(self.host):
            for name in self.host.listdir(folder) if folder.endswith("/lib-dynload") else ():
                opening = self.start.copy().open(f"{folder}/{name}")
                if opening.faults:
                    broken[name.partition(".")[0]] = opening
        return broken

    def _is_followed(self, module: str) -> bool:
        """Return whether what a module imports matters: of the standard library only if a part is broken."""
        is_standard = module.partition(".")[0] in sys.stdlib_module_names and not self.broken_modules
        return bool(module_file(self.host, module)) and not is_standard

    def _is_nowhere(self, module: str, top: str = "") -> bool:
        """Return whether no import folder has a module, as a file, a folder or by an editable install.

        Nor has a folder of the package that asks, as ray/thirdparty_files, which that adds to the path.
        """
        is_standard = module == "__main__" or module in sys.stdlib_module_names
        if "." in module or is_standard or module_file(self.host, module):
            return False
        is_folder = any(module in self.host.listdir(folder) for folder in python_folders(self.host))
        own = module_file(self.host, top).removesuffix("/__init__.py") if top else ""
        bundled = map(posixpath.dirname, self.host.glob(f"{own}/*/{module}") if own else ())
        is_folder |= any(not self.host.exists(f"{folder}/__init__.py") for folder in bundled)
        return not is_folder and not editable_location(self.host, module)


def refused_by_numpy(host: Host, opening: Opening, module: str) -> tuple[Guard, Opening] | None:
    """Return how importing an opened module ends whose compiled code needs NumPy, or another release of it.

    What is made with pybind11 may go on without arrays. Source: NumPy, numpy/_core/code_generators.
    """
    numpy, top = distribution(host, "numpy"), module.partition(".")[0]
    version = version_of(host, numpy) if numpy else ""
    own = None if numpy else distribution(host, normalised(top))
    is_needed = numpy or (own is not None and any(need.name == "numpy" for need in required(host, own)))
    for mapped in opening.mapped if is_needed else ():
        made, wanted = _made_for_numpy(host, mapped.path) if f"/{top}" in mapped.path else ("", "")
        if not made or (version and satisfies(version, wanted) is not False):
            continue
        guard = Guard.FAILURE if made == "pybind11" else Guard.NOTHING
        if not version:
            return guard, no_module(host, "numpy")
        cause = f"{top} is compiled for NumPy {wanted}; numpy {version} is installed."
        hint = f"install numpy{wanted}, or a release of {top} that is compiled for numpy {version}"
        words = f"numpy.{'core' if '<' in wanted else '_core'}.multiarray failed to import"
        asked, command = f"numpy{wanted}", install(host, f"numpy{wanted}")
        return guard, Opening((Fault("unmet-requirement", asked, words, (), cause, hint, command),))
    return None


@once_per_host
def _made_for_numpy(host: Host, path: str) -> tuple[str, str]:
    """Return "pybind11" or "C" for a file made with NumPy's C header by that, else "", and its releases."""
    if host.platform == "linux":
        symbols = object_file(host, host.realpath(path)).symbols
        if symbol("PyCapsule_GetPointer").hash not in symbols.lacking_by_hash:
            return "", ""
    data = host.read_bytes(path, _COMPILED_BYTES)
    is_of_1, is_of_2 = (f"numpy.{core}._multiarray_umath\0".encode() in data for core in ("core", "_core"))
    made = "" if not (is_of_1 or is_of_2) else "pybind11" if b"pybind11" in data else "C"
    oldest = _OLDEST_NUMPY.search(data) if is_of_2 else None
    return made, f">={oldest[1].decode()}" if oldest else "" if is_of_2 else "<2"


def install(host: Host, *arguments: str) -> str:
    """Return the command that installs packages into a host's environment."""
    python = str(host.python.get("executable", "") or "python")
    return package_command(python, manager_of(host), "install", *arguments)


def no_function(module: str, path: str) -> Fault:
    """Return what importing a module from a file comes to that is no extension module of its name."""
    function = f"PyInit_{module.rpartition('.')[2]}"
    words = f"dynamic module does not define module export function ({function})"
    return Fault("missing-symbol", function, words, (path,))


def no_module(host: Host, name: str, path: str = "", words: str = "") -> Opening:
    """Return what importing a module comes to that is not there. path: the file that it had."""
    if path and host.closed_above(path):
        return Opening((Fault("not-read", name, f"{path}: Permission denied", (path,)),))
    code = "missing-file" if path else "unmet-requirement"
    words = words or f"No module named '{name}'"
    return Opening((Fault(code, name, words, (path,) * bool(path)),))
