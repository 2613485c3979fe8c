"""Whether installed packages and single files load: the verdict for each, with the loader's own words.

Each shared object that a package opens itself is opened in a process of its own. What fails there is judged
by what the package's code imports: a failing extension module that importing the package surely imports makes
the package fail, one behind a `try` or inside a function costs a part of it. Nothing is opened or imported.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import filterfalse, takewhile

from mlbackends.base.errors import BadInput, Incomplete, NotALibrary, UnknownName, joined
from mlbackends.base.patterns import pattern
from mlbackends.base.version import __version__
from mlbackends.host.host import Host
from mlbackends.host.python.packages import (
    Distribution,
    contents,
    distribution,
    distributions,
    normalised,
    python_folders,
    record_bytes,
    version_of,
)
from mlbackends.host.python.requirements import required
from mlbackends.host.python.wheel_files import is_altered
from mlbackends.libraries.cuda.driver import driver_release
from mlbackends.loading.chips import code_for
from mlbackends.loading.environment import (
    Environment,
    Failure,
    extension_modules,
    modules_of,
    named_modules,
    no_function,
    no_module,
    providers,
    refused_by_numpy,
)
from mlbackends.loading.fit import driver_faults, explained, glibc_faults
from mlbackends.loading.imports import (
    LIBRARY,
    Guard,
    Import,
    imports_of,
    is_shared_object,
    lost_files,
    lost_modules,
    module_file,
    module_name,
    opens_libraries,
    shared_objects,
    sources,
)
from mlbackends.loading.later import is_known_later, later, opens_later, without_driver
from mlbackends.loading.linker import Opening, Process, object_file
from mlbackends.loading.preloads import preload_of, rows
from mlbackends.loading.remedies import remedied
from mlbackends.loading.torch_builds import stable_notes
from mlbackends.model.loading import (
    SCHEMA,
    Fault,
    LoadedFile,
    PackageLoading,
    Resolution,
    TargetMachine,
    Verdict,
)

#: So many libraries are named in a note.
_NAMED = 3
#: A folder of tests, in a path or the name of a module.
_IN_TESTS = pattern(r"[/.](?:self)?tests?[/.]", re.IGNORECASE)


def resolve(
    host: Host,
    subjects: Sequence[str] | None = None,
    *,
    targets: Sequence[TargetMachine] = (),
    with_files: bool = False,
    is_quick: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> Resolution:
    """Return whether packages, files, or the files of folders load in a host's environment.

    subjects: all packages with shared objects for None. targets: the machines whose chips the
    packages are judged for instead of this one's. with_files: whether the answer lists
    every file that is mapped. is_quick: whether Python code is followed only for packages where something
    that they installed or require is missing or does not load. progress: called before each subject with how
    many are done, of how many.
    Raises UnknownName for a package that is not installed, BadInput for a file that does not exist,
    Incomplete if a folder of packages may not be read.
    """
    distributions(host)
    _refuse_closed(host, python_folders(host))
    environment = Environment(host)
    packages = _Packages(environment, with_files, tuple(targets), is_quick)
    answers: list[PackageLoading] = []
    # A package without compiled files may open a library of the system.
    opening = {name for row in rows() if row.platform == host.platform for name in row.distributions}
    compiled = (
        name
        for name, dists in distributions(host).items()
        if name in opening or shared_objects(host, dists[0]) or _is_closed(host, dists[0])
    )
    chosen = [*compiled] if subjects is None else subjects
    for i, subject in enumerate(chosen):
        if progress:
            progress(i, len(chosen), subject)
        if "/" in subject:
            paths = _files_of(host, subject)
            answers += [_file(environment, path, with_files, tuple(targets)) for path in paths]
        else:
            dist = installed_as(host, subject)
            has_main = normalised("".join(modules_of(host, dist)[:1])) == dist.name
            is_part = normalised(subject) != dist.name and ("." in subject or has_main)
            answers.append(packages.answer(dist, subject if is_part else ""))
    python = host.python
    return Resolution(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        python=f"{python.get('executable', '')} ({python.get('version', '')})",
        machine=host.machine,
        target=joined([target.title or target.name for target in targets]) if targets else "",
        packages=tuple(answers),
    )


def installed_as(host: Host, name: str) -> Distribution:
    """Return a distribution by its name or by the name of a module that it installs. Raises UnknownName."""
    installed = distributions(host)
    if normalised(name) in installed:
        return installed[normalised(name)][0]
    is_module = all(map(str.isidentifier, name.split(".")))
    path = (module_file(host, name) or lost_modules(host).get(name, "")) if is_module else ""
    for dists in installed.values():
        folder, record = contents(host, dists[0])
        line = b"\n%s," % path.removeprefix(f"{folder}/").encode()
        if name in modules_of(host, dists[0]) or (path and line in b"\n" + record):
            return dists[0]
    raise UnknownName("package", name, tuple(installed), "pip list")


def _refuse_closed(host: Host, folders: Iterable[str]) -> None:
    """Raise Incomplete for a folder that was listed and may not be read."""
    if closed := [folder for folder in folders if folder in host.denied]:
        raise Incomplete(f"{closed[0]} cannot be read: Permission denied", "run this as its owner")


def _is_closed(host: Host, dist: Distribution) -> bool:
    """Return whether the list of a distribution's files may not be read."""
    record_bytes(host, dist)
    return f"{dist.info}/RECORD" in host.denied


def _files_of(host: Host, path: str) -> list[str]:
    """Return a file, or the shared objects in a folder and those below it."""
    if host.is_dir(path):
        if not path.strip("/"):
            raise BadInput(f"{path} is a whole file system", "name a folder in it")
        found = []
        folders = [path.rstrip("/")]
        for folder in folders:  # grows as it is walked
            for name in host.listdir(folder):
                at = f"{folder}/{name}"
                if host.is_dir(at) and not host.is_link(at):
                    folders.append(at)
                elif is_shared_object(host, name):
                    found.append(at)
        _refuse_closed(host, folders)
        if not found:
            raise BadInput(f"{path} has no shared object in it")
        return found
    if not host.exists(path):
        raise BadInput(f"{path} does not exist")
    return [path]


# ---- one file -------------------------------------------------------------------------------------


def _file(
    environment: Environment, path: str, with_files: bool, targets: tuple[TargetMachine, ...]
) -> PackageLoading:
    absolute = path if path.startswith("/") or path[1:2] == ":" else posixpath.abspath(path)
    after: tuple[str, ...] = ()
    opening = _started(environment.host, absolute)
    if opening is None:
        opening, after = opened(environment, absolute, ())
    faults = explained(environment.host, opening.faults)
    dist = Distribution(absolute, "", "", posixpath.dirname(absolute))
    of_machines, fallbacks, notes = (
        _on_machines(environment.host, dist, opening.files(), targets) if targets else ((), (), ())
    )
    faults = (*of_machines, *faults)
    return PackageLoading(
        name=path,
        verdict=verdict_of(faults, fallbacks),
        faults=remedied(environment.host, faults),
        fallbacks=fallbacks,
        after=after,
        notes=(*stable_notes(environment.host, [absolute]), *notes),
        files=opening.files() if with_files else (),
    )


def _on_machines(
    host: Host, dist: Distribution, files: Iterable[LoadedFile], targets: tuple[TargetMachine, ...]
) -> tuple[tuple[Fault, ...], tuple[Fault, ...], tuple[str, ...]]:
    """Return the faults, the fallbacks and notes of a distribution on other machines, else on this one.

    files: those that were mapped for it, with what they need.
    """
    by_path = {file.path: file for file in files}
    own = [by_path[path] for path in shared_objects(host, dist) if path in by_path]
    of_chip, notes = code_for(host, dist, targets)
    of_system = [fault for target in targets for fault in glibc_faults(own, target.glibc, host)]
    drivers = [target.driver for target in targets] or [driver_release(host)]
    of_driver = [fault for driver in drivers for fault in driver_faults(dist, own, driver)]
    return (*of_chip, *of_system), tuple(of_driver), notes


def _started(host: Host, path: str) -> Opening | None:
    """Return what starting a program comes to, None for what is not a program."""
    try:
        file = object_file(host, host.realpath(path))
    except (NotALibrary, OSError):
        return None
    if not file.interpreter or file.soname:
        return None
    process = Process(host, path)
    return Opening(process.faults, tuple(process.mapped))


def opened(environment: Environment, path: str, modules: tuple[str, ...]) -> tuple[Opening, tuple[str, ...]]:
    """Open a file in a new process, or else after importing the packages that have what it lacks.

    modules: what is imported first in any case. Returns also what has to be imported beyond that.
    """
    opening = environment.after(modules).open(path)
    if not opening.faults:
        return opening, ()
    for module in _having(environment, opening):
        if module not in modules:
            second = environment.after((*modules, module)).open(path)
            if not second.faults:
                return second, (module,)
            if len(second.faults) < len(opening.faults):
                opening = second  # what is left is what is really wrong
    return opening, ()


def _having(environment: Environment, opening: Opening) -> Iterable[str]:
    """Return the modules of installed packages that have a library which an object does not find."""
    having: dict[str, None] = {}
    for fault in opening.faults:
        name = providers(environment.host).get(fault.name, ("", ""))[0]
        dist = distributions(environment.host).get(name, [None])[0]
        for module in modules_of(environment.host, dist)[:1] if dist else ():
            having[module] = None
    return having


def verdict_of(faults: tuple[Fault, ...], fallbacks: tuple[Fault, ...]) -> Verdict:
    """Return the verdict that faults and fallbacks mean."""
    codes = {fault.code for fault in faults} - {"not-read"}
    if codes:
        return Verdict.BREAKS if codes == {"no-code-for-chip"} else Verdict.FAILS
    if faults:
        return Verdict.UNKNOWN
    return Verdict.FALLS_BACK if fallbacks else Verdict.LOADS


# ---- a package ------------------------------------------------------------------------------------


class _Packages:
    """The answers for the packages of one environment, each made once."""

    def __init__(
        self, environment: Environment, with_files: bool, targets: tuple[TargetMachine, ...], is_quick: bool
    ) -> None:
        self.environment, self.host = environment, environment.host
        self._with_files, self._targets, self._is_quick = with_files, targets, is_quick
        self._answers: dict[str, PackageLoading] = {}

    def answer(self, dist: Distribution, module: str = "") -> PackageLoading:
        """Return whether a package loads, or one module of it."""
        name = module or dist.name
        if name not in self._answers:
            self._answers[name] = PackageLoading(name)  # for requirements that lead back here
            self._answers[name] = self._answer(dist, module)
        return self._answers[name]

    def _answer(self, dist: Distribution, module: str) -> PackageLoading:
        host = self.host
        if _is_closed(host, dist) or not contents(host, dist)[1]:
            path = f"{dist.info}/RECORD"
            why = "Permission denied" if _is_closed(host, dist) else "No such file or directory"
            fault = Fault("not-read", path, f"{path}: {why}", (path,))
            faults = remedied(host, (fault,))
            return PackageLoading(module or dist.name, dist.version, Verdict.UNKNOWN, faults)
        preloading = next(filter(None, (preload_of(host, name) for name in modules_of(host, dist))), None)
        roots = extension_modules(host, dist) or ({} if preloading else _bound_libraries(host, dist))
        before = (*preloading.imports, preloading.module) if preloading else ()
        before = before or (_imported_first(host, dist) if roots else ())
        failing: dict[str, Opening] = {}
        helped: dict[str, tuple[str, ...]] = {}
        mapped = self.environment.after(before).mapped if preloading else ()
        files = {it.path: LoadedFile(it.path, tuple(it.needs)) for it in mapped}
        for name, path in roots.items():
            if name in lost_modules(host):
                is_library = posixpath.basename(path).startswith("lib")
                words = f"{path}: cannot open shared object file: No such file or directory" * is_library
                failing[path] = no_module(host, name, path, words)
                continue
            opening, modules = opened(self.environment, path, before)
            helped |= {path: modules} if modules else {}
            files |= {file.path: file for file in opening.files()}
            refused = None if opening.faults else refused_by_numpy(host, opening, name)
            if refused and refused[0] is Guard.NOTHING:
                opening = refused[1]
            if opening.faults:
                failing[path] = opening
        own = shared_objects(host, dist)
        is_due = not (self._is_quick or helped) or bool(module or failing or preloading)
        is_due = is_due or self._is_held_back(dist)
        faults, fallbacks, parts = self._judged(dist, failing, roots, module) if is_due else ((),) * 3
        if not faults:
            fallbacks = (*later(self.environment, dist), *fallbacks)
        faults, fallbacks, parts = (explained(host, each) for each in (faults, fallbacks, parts))
        of_machines, of_drivers, notes = _on_machines(host, dist, files.values(), self._targets)
        # Of another machine the chip is what was asked about.
        faults = (*of_machines, *faults) if self._targets else (*faults, *of_machines)
        fallbacks += of_drivers
        if own and not (roots or preloading or is_known_later(dist)) and opens_libraries(host, dist):
            names = sorted(set(map(posixpath.basename, own)))
            more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
            named = joined([*names[:_NAMED], *more])
            notes = (f"It has shared libraries that nothing here was seen to open: {named}.", *notes)
        without, of_driver = ((), ()) if self._targets or faults else without_driver(host, dist)
        notes, fallbacks = (*notes, *of_driver), (*without, *fallbacks)
        return PackageLoading(
            name=module or dist.name,
            version=version_of(host, dist),
            verdict=verdict_of(faults, fallbacks),
            faults=remedied(host, faults),
            fallbacks=remedied(host, fallbacks),
            parts=remedied(host, parts),
            after=() if faults else self._after(dist, helped),
            notes=(*stable_notes(host, own), *notes),
            files=tuple(files.values()) if self._with_files else (),
        )

    def _is_held_back(self, dist: Distribution) -> bool:
        """Return whether files are gone or of another kind, or what the package requires is or has faults."""
        host = self.host
        lost = lost_files(host, dist) or {*shared_objects(host, dist)} & {*lost_modules(host).values()}
        if self.environment.broken_modules or lost or _others(host, dist):
            return True
        for need in required(host, dist):
            other = distribution(host, need.name)
            answer = self.answer(other) if other else None
            if answer is None or answer.faults or answer.fallbacks or answer.parts:
                return True
        return False

    def _after(self, dist: Distribution, helped: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
        """Return what has to be imported before a package. helped: that of its extension modules, by path."""
        steps = self._steps(dist) if helped else ()
        reached = {step.path: step.is_certain for step in steps}
        needed = (helped[path] for path in helped if reached.get(path, not reached))
        return tuple(dict.fromkeys(module for modules in needed for module in modules))

    def _steps(self, dist: Distribution) -> Iterator[Import]:
        """Yield the compiled modules of its own that importing a package imports."""
        for module in modules_of(self.host, dist):
            steps = imports_of(self.host, module)
            yield from (step for step in steps if step.path in _compiled(self.host, dist))

    def _judged(
        self, dist: Distribution, failing: dict[str, Opening], roots: dict[str, str], only: str
    ) -> tuple[tuple[Fault, ...], ...]:
        """Return the faults that importing a package meets, those that cost it a part, and others.

        Where importing it reaches none of its extension modules, its users import its modules themselves: it
        fails if none works. Beside a module with the package's name, other Python modules are parts. A
        compiled file that is gone or damaged costs at least a part.
        failing: those that do not open, by path. roots: all of them, or the libraries that it opens, by name.
        only: the one module that is imported, "" for all of the package.
        """
        own = (only,) if only else modules_of(self.host, dist)
        tops = {module.partition(".")[0] for module in own}
        named = [module for module in own if normalised(module) == dist.name]
        gone = lost_modules(self.host)
        paths = {module: module_file(self.host, module) or gone.get(module, "") for module in own}
        python = [module for module, path in paths.items() if path.endswith(".py")]
        parts = set(python).difference(named) if named else set()
        failed: list[Failure] = []
        beside: list[Failure] = []
        for module in own:
            if not (module.startswith("_") and failed):
                inner = self.environment.import_module(self.environment.start.copy(), module)
                (beside if module in parts else failed).extend(inner)
        certain, caught = dict[Fault, None](), dict[Fault, None]()
        for step, opening in failed:
            if step.is_certain or step.module.partition(".")[0] in tops:
                (certain if step.is_certain else caught).update(dict.fromkeys(opening.faults))
        met = {step.path for step, _ in (*failed, *beside)}
        lost = () if only else lost_files(self.host, dist)
        broken = {*failing, *lost, *_others(self.host, dist)}
        if broken and not (failed or only or any(self._steps(dist))):
            bound = set(roots.values()) - _compiled(self.host, dist)
            faults, works = self._used(dist, broken)
            faults += [fault for path in bound.intersection(failing) for fault in failing[path].faults]
            works |= bool(bound.difference(failing))
            (caught if works else certain).update(dict.fromkeys(faults))
            met.update(fault.path[0] for fault in faults if fault.path)
        rest = [fault for step, opening in beside if step.is_certain for fault in opening.faults]
        for path in [path for path in failing if not (path in met or only)]:
            # Whether importing the package right around it surely imports it.
            package = module_name(self.host, dist, f"{posixpath.dirname(path)}/__init__.py")
            if any(step.path == path and step.is_certain for step in imports_of(self.host, package)):
                caught |= dict.fromkeys(failing[path].faults)
            else:
                rest += failing[path].faults
        caught |= dict.fromkeys(fault for fault in rest if self._is_damage(fault))
        known = {posixpath.basename(path) for fault in (*certain, *caught, *rest) for path in fault.path}
        for path in () if only else shared_objects(self.host, dist):
            if not (posixpath.basename(path) in known or _IN_TESTS.search(path)):
                caught |= dict.fromkeys(self._damage(dist, path))
        return _once(certain, caught, rest)

    def _used(self, dist: Distribution, broken: set[str]) -> tuple[list[Fault], bool]:
        """Return what fails of the modules that a package's users import, and whether one works.

        Of modules of Python only those count that import a compiled one, or one that is gone. broken: files
        that are gone, do not open, or are others.
        """
        host, faults, works = self.host, list[Fault](), False
        compiled = _compiled(host, dist)
        # A library with the name of a module counts where a module imports it, not by itself.
        roots = (*sources(host, dist), *compiled.difference(_others(host, dist)))
        names = (module_name(host, dist, path) for path in roots)
        for module in dict.fromkeys(names):
            is_public = module and "._" not in f".{module}" and not _IN_TESTS.search(f".{module}.")
            steps = imports_of(host, module) if is_public else ()
            if any(step.is_certain and step.path in broken | compiled for step in steps):
                inner = self.environment.import_module(self.environment.start.copy(), module)
                ended = [failing for failing in inner if failing[0].is_certain]
                works |= not ended
                faults += [
                    fault for step, opening in ended if step.path in broken for fault in opening.faults
                ]
        return faults, works

    def _damage(self, dist: Distribution, path: str) -> Iterator[Fault]:
        """Yield what is wrong with a shared object that nothing here opens: it is gone, or another file."""
        host, name, module = self.host, posixpath.basename(path), module_name(self.host, dist, path)
        if path in lost_files(host, dist):
            if not (host.closed_above(path) or module_file(host, module)):
                words = f"{path}: cannot open shared object file: No such file or directory"
                yield Fault("missing-file", name, words, (path,))
            return
        fault = None
        try:
            object_file(host, host.realpath(path))
        except NotALibrary as error:
            fault = Fault("not-a-library", name, f"{path}: {error}", (path,))
        except OSError:
            return
        if path in _others(host, dist):
            fault = fault or no_function(module, path)
        if fault and is_altered(host, dist, path):
            yield fault

    def _is_damage(self, fault: Fault) -> bool:
        """Return whether a file that a package installed is gone or damaged, other than one of its tests."""
        path = providers(self.host).get(fault.name, ("", ""))[1] if fault.code == "missing-library" else ""
        is_lost = path and not self.host.exists(path) and not self.host.closed_above(path)
        is_test = any(map(_IN_TESTS.search, fault.path))
        return (is_lost or fault.code in ("missing-file", "not-a-library")) and not is_test


def _once(*kinds: Iterable[Fault]) -> tuple[tuple[Fault, ...], ...]:
    """Return the faults of each kind that no kind before has. A file that is gone is one fault."""
    known: dict[object, tuple[int, Fault]] = {}
    for kind, faults in enumerate(kinds):
        for fault in faults:
            known.setdefault(fault.path if fault.code == "missing-file" else fault, (kind, fault))
    return tuple(tuple(fault for its, fault in known.values() if its == kind) for kind in range(len(kinds)))


def _compiled(host: Host, dist: Distribution) -> set[str]:
    """Return the paths of what a distribution installed as extension modules."""
    return {*extension_modules(host, dist).values(), *_others(host, dist)}


def _others(host: Host, dist: Distribution) -> set[str]:
    """Return the paths of what has the name of an extension module and is none."""
    named = {*named_modules(host, dist).values()}.difference(extension_modules(host, dist).values())
    return {path for path in filterfalse(LIBRARY.search, named) if not opens_later(dist, path)}


def _imported_first(host: Host, dist: Distribution) -> tuple[str, ...]:
    """Return the modules of other packages with shared objects that a package imports before its own ones."""
    first: dict[str, None] = {}
    for module in modules_of(host, dist)[:1]:
        for step in takewhile(lambda step: not step.is_extension, imports_of(host, module)):
            top = step.module.partition(".")[0]
            owner = distribution(host, top) if step.guard is Guard.NOTHING else None
            has_row = step.guard <= Guard.CONDITION and preload_of(host, top)
            if top != module and (has_row or (owner and shared_objects(host, owner))):
                first[top] = None
    return tuple(first)


def _bound_libraries(host: Host, dist: Distribution) -> dict[str, str]:
    """Return by name the libraries of a package without extension modules that its modules name in full.

    It opens them by ctypes or cffi.
    """
    own, folder = modules_of(host, dist), contents(host, dist)[0]
    inside = (path for path in shared_objects(host, dist) if path[len(folder) + 1 :].split("/")[0] in own)
    paths = {posixpath.basename(path): path for path in inside if not opens_later(dist, path)}
    steps = [step for module in own for step in imports_of(host, module)] if paths else []
    sources = dict.fromkeys(step.path for step in steps if step.is_certain and step.path.endswith(".py"))
    text = "\n".join(map(host.read, sources))
    return {name: path for name, path in paths.items() if f'"{name}"' in text or f"'{name}'" in text}
