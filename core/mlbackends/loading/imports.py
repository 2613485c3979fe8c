"""What `import NAME` imports, in its order, from the text of the modules; no module is run.

Only what surely runs at import counts as certain: statements of a module and of its classes, and the branches
of conditions on the platform and on Python's version. What a `try` that catches the failure or another
condition guards is reported as uncertain; what is inside functions is left out.
"""

import ast
import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from mlbackends.base.patterns import bytes_pattern, pattern
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import (
    Distribution,
    distributions,
    listed_files,
    python_folders,
    python_release,
    record_bytes,
)

#: The most modules of one package that are read; the largest packages import fewer.
_MOST_MODULES = 2000
#: What catches the failure of an extension module, and also that of a module that is not installed.
_CATCHING = frozenset(["ImportError", "Exception", "BaseException", ""])
_MODULE_BYTES = 4 << 20
_OF_A_PYTHON = pattern(r"\.cpython-\d+t?-[\w-]+\.so$")
_SHARED = bytes_pattern(rb'\.(?:so|dylib|dll|pyd|DLL)(?=[.,"\s]|\Z)[^\n]*')
#: How the names of shared objects end, by platform; on Linux a version may follow.
_ENDINGS = {"win32": (".pyd", ".dll"), "darwin": (".so", ".dylib")}
_SOURCE = bytes_pattern(rb'\.py(?=[,"\s]|\Z)[^\n]*')
#: A function: its first line, then lines that are indented deeper, are empty, or close its parameters.
_FUNCTION = bytes_pattern(
    rb"^([ \t]*)(?:async[ \t]+)?def[ \t].*(?:\n(?:\1[ \t]+\S.*|[ \t]*(?:#.*)?$|[ \t]*[)\]}].*))*",
    re.MULTILINE,
)


class Import(NamedTuple):
    """A module that another one imports. path: its file, "" if there is none.

    is_certain: whether importing the package surely imports it, and fails where it cannot be opened. line:
    where that is written, "torch/__init__.py:443". if_missing: "conditional" if a condition decides whether
    it is imported, "chosen" whether it or another one is, "handled" if the code expects that it is not there.
    words: what Python says where it is not.
    """

    module: str
    path: str
    is_certain: bool
    line: str = ""
    if_missing: str = ""
    words: str = ""

    @property
    def is_extension(self) -> bool:
        """Whether it is compiled."""
        return self.path.endswith((".so", ".pyd"))


@once_per_host
def imports_of(host: Host, module: str) -> tuple[Import, ...]:
    """Return what importing a module imports, itself first; of other packages only the modules that it names.

    A module whose file is gone, which its package's RECORD lists, is included with the path that it had.
    """
    walk = _Walk(host, module.partition(".")[0])
    with suppress(RecursionError):  # modules of which each imports the next; Python's own import gives up too
        walk.follow(Import(module, "", True))
    return tuple(walk.found.values())


@once_per_host
def module_file(host: Host, module: str) -> str:
    """Return the file that a module is imported from, as Python's finders choose it; "" for none."""
    parent, _, name = module.rpartition(".")
    above = module_file(host, parent) if parent else ""
    bases = [posixpath.dirname(above)] * above.endswith("/__init__.py")  # one package hides all others
    for folder in bases or [f"{base}/{parent.replace('.', '/')}" for base in python_folders(host)]:
        folder = folder.rstrip("/")
        names = _names(host, folder)
        if name in names:
            inside = _names(host, f"{folder}/{name}")
            if file := _module_in(host, f"{folder}/{name}", inside, "__init__"):
                return f"{folder}/{name}/{file}"
        if file := _module_in(host, folder, names, name):
            return f"{folder}/{file}"
    return ""


def _module_in(host: Host, folder: str, names: frozenset[str], stem: str) -> str:
    for suffix in suffixes(host):
        if stem + suffix in names and (suffix == ".py" or host.is_file(f"{folder}/{stem}{suffix}")):
            return stem + suffix
    return ""


@once_per_host
def suffixes(host: Host) -> tuple[str, ...]:
    """Return how the names of modules end, in the order of Python's finders: EXTENSION_SUFFIXES, then .py.

    Source: CPython, Python/dynload_shlib.c; the tag of the platform is that of the machine.
    """
    major, _, minor = python_release(host).partition(".")
    if host.platform == "win32":
        tag = "win_arm64" if host.machine.upper() == "ARM64" else "win_amd64"
        return (f".cp{major}{minor}-{tag}.pyd", ".pyd", ".py")
    if host.platform == "darwin":
        return (f".cpython-{major}{minor}-darwin.so", f".abi{major}.so", ".so", ".py")
    libc = "musl" if "musl" in str(host.system("libc") or "") else "gnu"
    tag = f"cpython-{major}{minor}"
    return (f".{tag}-{host.machine}-linux-{libc}.so", f".{tag}.so", f".abi{major}.so", ".so", ".py")


@once_per_host
def _names(host: Host, folder: str) -> frozenset[str]:
    return frozenset(host.listdir(folder))


@once_per_host
def shared_objects(host: Host, dist: Distribution) -> tuple[str, ...]:
    """Return the paths of the shared objects that a distribution installed, as its RECORD lists them."""
    paths = (
        posixpath.normpath(f"{dist.folder}/{name}")
        for name in listed_files(record_bytes(host, dist), _SHARED)
        if is_shared_object(host, name)
    )
    return tuple(dict.fromkeys(paths))


def is_shared_object(host: Host, path: str) -> bool:
    """Return whether a file's name is one of a shared object on a host's platform."""
    endings = _ENDINGS.get(host.platform)
    if endings:
        return path.lower().endswith(endings)
    return path.endswith(".so") or ".so." in posixpath.basename(path)


def module_name(host: Host, dist: Distribution, path: str) -> str:
    """Return the name under which Python can import a file of a distribution, "" if it can under none."""
    for suffix in suffixes(host):
        if path.endswith(suffix) and path.startswith(f"{dist.folder}/"):
            parts = path[len(dist.folder) + 1 : -len(suffix)].removesuffix("/__init__").split("/")
            return ".".join(parts) if all(part.isidentifier() for part in parts) else ""
    return ""


@once_per_host
def lost_modules(host: Host) -> dict[str, str]:
    """Return the path of each module that a distribution installed and that is gone, by its name.

    A file whose name is for another Python is none for this one.
    """
    lost: dict[str, str] = {}
    own = suffixes(host)[0]
    for dists in distributions(host).values():
        tagged = filter(_OF_A_PYTHON.search, shared_objects(host, dists[0]))
        for path in (*lost_files(host, dists[0]), *(path for path in tagged if not path.endswith(own))):
            lost.setdefault(module_name(host, dists[0], _OF_A_PYTHON.sub(own, path)), path)
    lost.pop("", None)
    return {module: path for module, path in lost.items() if not module_file(host, module)}


@once_per_host
def lost_files(host: Host, dist: Distribution) -> tuple[str, ...]:
    """Return the modules and shared objects that a distribution's RECORD lists and that are gone."""
    sources = (f"{dist.folder}/{name}" for name in listed_files(record_bytes(host, dist), _SOURCE))
    return tuple(
        path
        for path in (*sources, *shared_objects(host, dist))
        if (
            posixpath.basename(path) not in _names(host, posixpath.dirname(path))
            or not (path.endswith(".py") or host.is_file(path))
        )
        and not host.closed_above(path)
    )


class _Walk:
    """One walk through the modules of a package. found: the imports by module, in their order."""

    def __init__(self, host: Host, top: str) -> None:
        self.host, self.top = host, top
        self.found: dict[str, Import] = {}
        self._certain: set[str] = set()

    def follow(self, step: Import) -> None:
        """Add a module, the packages above it, and what they import."""
        parts = step.module.split(".")
        for count in range(1, len(parts)):
            self._add(step._replace(module=".".join(parts[:count]), words=""))
        self._add(step)

    def _add(self, step: Import) -> None:
        module = step.module
        known = self.found.get(module)
        if known and known.is_certain - bool(known.if_missing) >= step.is_certain - bool(step.if_missing):
            return
        if module.partition(".")[0] != self.top:
            self.found[module] = step
            return
        path = module_file(self.host, module) or lost_modules(self.host).get(module, "")
        if not path and known is None and "." in module:
            return  # a name of the package above it, or a module of another system
        if known is None and len(self.found) >= _MOST_MODULES:
            return
        self.found[module] = step._replace(path=path)
        if not path.endswith(".py"):
            return
        is_package = path.endswith("/__init__.py")
        place = path[path.rindex(f"/{self.top}/") + 1 :] if f"/{self.top}/" in path else path
        tree = parsed(self.host, path)
        for statement, is_sure, if_missing in _statements(tree.body if tree else [], True, "", self.host):
            at = f"{place}:{statement.lineno}"
            for name in _imported(statement, module, is_package):
                parent, _, leaf = name.rpartition(".")
                words = ""
                if parent and not (module_file(self.host, name) or name in lost_modules(self.host)):
                    name = parent  # `from .module import function`
                elif isinstance(statement, ast.ImportFrom) and any(a.name == leaf for a in statement.names):
                    words = f"cannot import name '{leaf}' from '{parent}'"
                is_certain = step.is_certain and is_sure
                self.follow(Import(name, "", is_certain, at, max(step.if_missing, if_missing), words))


@once_per_host
def parsed(host: Host, path: str) -> ast.Module | None:
    """Return the syntax tree of a module without the bodies of functions, None for one that cannot be read.

    Most of a module is functions; without them the parser takes a third of the time.
    """
    data = host.read_bytes(path, _MODULE_BYTES)
    for source in (_FUNCTION.sub(_without_body, data), data):
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # a text in several lines may look like a function, or end one
    return None


def _without_body(function: re.Match[bytes]) -> bytes:
    """Return a function without its body in as many lines; all of one that may end within a text."""
    text = function[0]
    if text.count(b'"""') % 2 or text.count(b"'''") % 2:
        return text
    return function[1] + b"def _(): pass" + b"\n" * text.count(b"\n")


def _statements(
    body: list[ast.stmt], is_sure: bool, if_missing: str, host: Host
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, str]]:
    """Yield the imports among statements.

    Each with whether it surely runs and its failure is not caught, and with `if_missing` of the module.
    """
    for statement in body:
        match statement:
            case ast.Import() | ast.ImportFrom():
                yield statement, is_sure, if_missing
            case ast.ClassDef():
                yield from _statements(statement.body, is_sure, if_missing, host)
            case ast.With():
                suppresses = any("suppress" in ast.unparse(item.context_expr) for item in statement.items)
                sure, missing = is_sure and not suppresses, "handled" if suppresses else if_missing
                yield from _statements(statement.body, sure, missing, host)
            case ast.Try():
                caught = _caught(statement.handlers)
                sure = is_sure and not caught & _CATCHING
                missing = "handled" if caught & {*_CATCHING, "ModuleNotFoundError"} else if_missing
                yield from _statements(statement.body, sure, missing, host)
                for handler in statement.handlers:
                    yield from _statements(handler.body, False, "handled", host)
                yield from _statements(statement.orelse, sure, missing, host)
                yield from _statements(statement.finalbody, is_sure, if_missing, host)
            case ast.If():
                answer = _decided(statement.test, host)
                # A constant that is not known here, such as LINUX, chooses among what is there; a call asks
                # for something that may be missing.
                asks = any(isinstance(node, ast.Call | ast.Subscript) for node in ast.walk(statement.test))
                branches = ((statement.body, True), (statement.orelse, False))
                is_choice = answer is None and all(_has_imports(branch) for branch, _ in branches)
                for branch, value in branches:
                    if answer is None or answer is value:
                        sure = is_sure and (answer is value or not asks)
                        own = "chosen" if is_choice else "conditional" * (answer is None)
                        missing = if_missing if if_missing in ("handled", "chosen") else own or if_missing
                        yield from _statements(branch, sure, missing, host)
            case ast.For() | ast.While():
                yield from _statements(statement.body, False, "handled", host)


def _has_imports(branch: list[ast.stmt]) -> bool:
    nodes = (node for statement in branch for node in ast.walk(statement))
    return any(isinstance(node, ast.Import | ast.ImportFrom) for node in nodes)


def _caught(handlers: list[ast.ExceptHandler]) -> set[str]:
    """Return the names of the exceptions that handlers catch for good.

    A handler that raises again, as most do whose condition asks for the words, catches what is not installed.
    """
    names = set()
    for handler in handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        caught = {kind.id if isinstance(kind, ast.Name) else "" for kind in kinds}
        if any(isinstance(statement, ast.Raise) for statement in handler.body):
            continue
        inner = [node for statement in handler.body for node in ast.walk(statement)]
        raises = any(isinstance(node, ast.Raise) for node in inner)
        tries = any(isinstance(node, ast.Import | ast.ImportFrom | ast.Try) for node in inner)
        names |= {"ModuleNotFoundError"} if raises and not tries and caught & _CATCHING else caught
    return names


def _decided(test: ast.expr, host: Host) -> bool | None:
    """Return the value of a condition on the platform or on Python's version, None for any other."""
    text = ast.unparse(test)
    if text in ("TYPE_CHECKING", "typing.TYPE_CHECKING", "False"):
        return False
    version = tuple(int(part) for part in str(host.python.get("version", "3")).split(".") if part.isdigit())
    match test:
        case ast.UnaryOp(ast.Not(), operand):
            answer = _decided(operand, host)
            return None if answer is None else not answer
        case ast.BoolOp(ast.Or(), operands) if any(_decided(operand, host) for operand in operands):
            return True  # as SWIG's modules ask whether they are in a package
        case ast.Compare(ast.Constant("."), [ast.In()], [ast.Name("__name__")]):
            return True
        case ast.Compare(left, [operator], [ast.Constant(str() as value)]):
            system = {"linux": "Linux", "darwin": "Darwin", "win32": "Windows"}.get(host.platform, "")
            known = {
                "sys.platform": host.platform,
                "os.name": "nt" if host.platform == "win32" else "posix",
                "platform.system()": system,
                **_implementation(host),
            }.get(ast.unparse(left))
            if known is not None and isinstance(operator, ast.Eq | ast.NotEq):
                return (known == value) is isinstance(operator, ast.Eq)
        case ast.Compare(left, [ast.In()], [ast.Tuple(elements)]) if ast.unparse(left) in _implementation(
            host
        ):
            names = [part.value for part in elements if isinstance(part, ast.Constant)]
            return _implementation(host)[ast.unparse(left)] in names
        case ast.Compare(left, [operator], [ast.Tuple(elements)]):
            wanted = tuple(part.value for part in elements if isinstance(part, ast.Constant))
            if ast.unparse(left).startswith("sys.version_info") and all(isinstance(w, int) for w in wanted):
                if isinstance(operator, ast.GtE | ast.Gt):
                    return version >= wanted
                if isinstance(operator, ast.Lt | ast.LtE):
                    return version < wanted
        case ast.Call(ast.Attribute(value, "startswith"), [ast.Constant(str() as start)]):
            if ast.unparse(value) == "sys.platform":
                return host.platform.startswith(start)
    return None


@once_per_host
def _implementation(host: Host) -> dict[str, str]:
    """Return how Python names its implementation, by the expression that asks for it."""
    name = str(host.python.get("implementation") or "cpython")
    public = {"cpython": "CPython", "pypy": "PyPy"}.get(name, name)
    return {"platform.python_implementation()": public, "sys.implementation.name": name}


def _imported(statement: ast.Import | ast.ImportFrom, module: str, is_package: bool) -> Iterator[str]:
    """Yield the modules that a statement may import."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
        return
    base = statement.module or ""
    if statement.level:
        parts = module.split(".")
        parts = parts[: len(parts) - statement.level + is_package]
        base = ".".join([*parts, *([base] if base else [])])
    if base:
        yield base
        yield from (f"{base}.{alias.name}" for alias in statement.names if alias.name != "*")
