"""What `import NAME` imports, in its order, from the text of the modules; no module is run.

Only what surely runs at import counts as certain: statements of a module and of its classes, and the branches
of conditions on the platform and on Python's version. What a `try` that catches the failure or another
condition guards is reported as uncertain; what is inside functions is left out.
"""

import ast
import operator
import posixpath
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from mlbackends.base.patterns import bytes_pattern, pattern
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import (
    Distribution,
    contents,
    distributions,
    editable_location,
    listed_files,
    python_folders,
    python_release,
)
from mlbackends.libraries.c_runtime import c_library

#: What catches the failure of an extension module, and also that of a module that is not installed.
_CATCHING = frozenset(["ImportError", "Exception", "BaseException", ""])
_MOST_ITEMS = 16
_MODULE_BYTES, _COMPILED_BYTES = 4 << 20, 32 << 20
_OF_A_PYTHON = pattern(r"\.cpython-\d+t?-[\w-]+\.so$")
#: What is a library, and not an extension module, by its name alone.
LIBRARY = pattern(r"/lib[^./]*\.so$")
_SHARED = bytes_pattern(rb'\.(?:so|dylib|dll|pyd|DLL)(?=[.,"\s]|\Z)[^\n]*')
#: How the names of shared objects end, by platform; on Linux a version may follow.
_ENDINGS = {"win32": (".pyd", ".dll"), "darwin": (".so", ".dylib")}
_OPENS = bytes_pattern(rb"\b(?:CDLL|PyDLL|dlopen|LoadLibrary|load_library)\(")
#: Without an empty __init__.py: a folder without one can be imported.
_SOURCE = bytes_pattern(rb'(?!(?<=__init__)\.py,[^,\n]*,0\s)\.py(?=[,"\s]|\Z)[^\n]*')
_LAZY = pattern(r"(?i)lazy|optional|logger")
#: What gives a module more modules or names than its folder and text show; _SUBMOD_ATTRS lists all names.
_ADDS_MODULES = bytes_pattern(rb"sys\.modules|__path__|meta_path|declare_namespace")
_REPLACES = bytes_pattern(rb"meta_path|sys\.modules\[[^\n]*\] =")
_ADDS_NAMES = bytes_pattern(
    rb"sys\.modules|meta_path|^[ \t]*from[^#\n]+import[ \t(]+\*|(?:globals|vars|locals)\(\)|\bexec\([^)]"
    rb"|^__getattr__|def __getattr__\((?!self|cls)",
    re.MULTILINE,
)
_Importing = ast.Import | ast.ImportFrom | ast.Call
#: A function: its first line, then lines that are indented deeper, are empty, or close its parameters.
_FUNCTION = bytes_pattern(
    rb"^([ \t]*)(?:async[ \t]+)?def[ \t].*(?:\n(?:\1[ \t]+\S.*|[ \t]*(?:#.*)?$|[ \t]*[)\]}].*))*",
    re.MULTILINE,
)
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.In: lambda left, right: left in right,
}


class Guard(IntEnum):
    """What an import may come to without the failure of the package; of several the last one counts."""

    NOTHING = 0
    #: It is expected that the module is not installed.
    ABSENCE = 1
    #: A condition decides that is not known here: of another package, whether it could be imported.
    CONDITION = 2
    #: Such a condition chooses among modules.
    CHOICE = 3
    #: Each failure is handled, or a condition asks for something that may be missing.
    FAILURE = 4


class Import(NamedTuple):
    """A module that another one imports. path: its file, "" if there is none, or for one of another package.

    words: what Python says where it is not there. by_function: a function of the package opens it, which may
    do so as with a library. instead: modules, after whose failure alone it is imported, and is needed.
    """

    module: str
    path: str = ""
    guard: Guard = Guard.NOTHING
    words: str = ""
    by_function: bool = False
    instead: tuple[str, ...] = ()

    @property
    def is_certain(self) -> bool:
        """Whether importing the package surely imports it, and fails where it cannot be opened."""
        return self.guard is not Guard.FAILURE

    @property
    def is_extension(self) -> bool:
        """Whether it is compiled."""
        return self.path.endswith((".so", ".pyd"))


def imports_of(
    host: Host, module: str, met: dict[str, Guard] | None = None, failed: Collection[str] = ()
) -> Iterator[Import]:
    """Yield what importing a module imports, itself first; of other packages only the modules that it names.

    A module whose file is gone, which its package's RECORD lists, has the path that it had. met: what was
    imported before and is not followed again, to which each step is added; a module comes a second time where
    it is guarded less. failed: the modules that could not be imported, which its caller adds to.
    """
    met, top = {} if met is None else met, module.partition(".")[0]
    waiting: list[Iterator[Import]] = [_steps(host, module, module)]
    while waiting:
        step = next(waiting[-1], None)
        if step and any(name in failed for name in step.instead):
            step = step._replace(guard=Guard.NOTHING)
        if step is None:
            waiting.pop()
        elif step.module.partition(".")[0] != top:
            yield step
        elif step.guard is Guard.CHOICE and met.get(step.module) is Guard.FAILURE and step.is_extension:
            continue  # where trying it has failed, the condition chooses the other one
        elif step.words:  # its file is gone, or was followed just before
            met.setdefault(step.module, step.guard)
            yield step
        elif step.module not in met or step.guard < met[step.module]:
            met[step.module] = step.guard
            yield step
            inner = _imported_by(host, step.module, step.path)
            guard = step.guard
            waiting.append(iter([it if it.guard >= guard else it._replace(guard=guard) for it in inner]))


def _steps(
    host: Host, name: str, asking: str, guard: Guard = Guard.NOTHING, words: str = ""
) -> Iterator[Import]:
    """Yield the packages above a module, then the module itself."""
    parts = name.split(".")
    is_own = parts[0] == asking.partition(".")[0]
    for count in range(1, len(parts) + 1):
        module = ".".join(parts[:count])
        path = (module_file(host, module) or lost_modules(host).get(module, "")) if is_own else ""
        # Without a file it is a name of the package above it, or a module of another system.
        if path or not is_own or count == 1:
            yield Import(module, path, guard, words if count == len(parts) else "")


@once_per_host
def _imported_by(host: Host, module: str, path: str) -> tuple[Import, ...]:
    """Return what one module imports by its own text or code."""
    found: list[Import] = []
    if path.endswith(".py"):
        tree = parsed(host, path)
        package = module if path.endswith("/__init__.py") else module.rpartition(".")[0]
        known = {**_known(host), "__name__": module, "__package__": package}
        known |= _flags(host, tree, module, path, known)
        for statement, guard, instead in _statements(tree.body if tree else [], Guard.NOTHING, known):
            for name in _imported(statement, module, path.endswith("/__init__.py")):
                parent, _, leaf = name.rpartition(".")
                words, absent, lost = "", list[Import](), lost_modules(host)
                file = module_file(host, name) or lost.get(name, "")
                if isinstance(statement, ast.Call) and not Import(name, file).is_extension:
                    continue
                is_name = isinstance(statement, ast.ImportFrom) and leaf in [
                    alias.name for alias in statement.names
                ]
                if parent and not file:
                    if lost.get(parent, "").endswith("/__init__.py"):
                        words = f"cannot import name '{leaf}' from '{parent}' (unknown location)"
                    elif guard is Guard.NOTHING and not isinstance(statement, ast.Call):
                        absent += _not_there(host, name, is_name)
                    name = parent  # `from .module import function`
                elif is_name and name in lost:
                    words = f"cannot import name '{leaf}' from '{parent}'"
                *above, last = _steps(host, name, module, guard, words)
                found += [*above, last._replace(by_function=isinstance(statement, ast.Call), instead=instead)]
                found += absent
    elif path:
        # Compiled code has the full names of the modules whose types it uses, and imports them at its start.
        top = re.escape(module.partition(".")[0].encode())
        names = re.findall(top + rb"(?:\.\w+)+(?=\0)", host.read_bytes(path, _COMPILED_BYTES))
        for name in dict.fromkeys(names):
            *above, last = _steps(host, name.decode(errors="replace"), module)
            found += [*above, last] * last.is_extension
    return tuple(dict.fromkeys(found))


def _not_there(host: Host, name: str, is_name: bool) -> tuple[Import, ...]:
    """Return the module that surely lacks a module or, for is_name, a name, with Python's words; else ()."""
    parent, _, leaf = name.rpartition(".")
    path = module_file(host, parent) if parent else ""
    if parent and not path:
        return _not_there(host, parent, is_name=False)
    if not path.endswith(".py") or parent.partition(".")[0] in sys.stdlib_module_names:
        return ()
    is_package, data = path.endswith("/__init__.py"), host.read_bytes(path, _MODULE_BYTES)
    beside = _names(host, posixpath.dirname(path)) if is_package else ()
    is_there = is_name and (leaf.startswith("__") or leaf.encode() in data)
    if is_there or any(other.partition(".")[0] == leaf for other in beside):
        return ()
    words = f"No module named '{name}'" + f"; '{parent}' is not a package" * (not is_package)
    if is_name:
        words = f"cannot import name '{leaf}' from '{parent}' ({path})"
    is_listed = is_name and b"_SUBMOD_ATTRS" in data
    is_open = (_ADDS_NAMES if is_name else _ADDS_MODULES).search(data) and not is_listed
    others = (f"{posixpath.dirname(path)}/{other}" for other in beside if other.endswith(".py"))
    is_open = is_open or any(_REPLACES.search(host.read_bytes(other, _MODULE_BYTES)) for other in others)
    return () if is_open else (Import(parent, path, words=words),)


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
    location = "" if parent else editable_location(host, name)
    file = _module_in(host, location, _names(host, location), "__init__")
    return f"{location}/{file}" if file else location * location.endswith(".py")


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
    libc = "musl" if c_library(host)[0] == "musl" else "gnu"
    tag = f"cpython-{major}{minor}"
    return (f".{tag}-{host.machine}-linux-{libc}.so", f".{tag}.so", f".abi{major}.so", ".so", ".py")


@once_per_host
def _names(host: Host, folder: str) -> frozenset[str]:
    return frozenset(host.listdir(folder))


def sources(host: Host, dist: Distribution) -> Iterator[str]:
    """Yield the paths of the Python modules that a distribution installed."""
    folder, record = contents(host, dist)
    yield from (f"{folder}/{name}" for name in listed_files(record, _SOURCE))


@once_per_host
def shared_objects(host: Host, dist: Distribution) -> tuple[str, ...]:
    """Return the paths of the shared objects that a distribution installed, as its RECORD lists them."""
    folder, record = contents(host, dist)
    paths = (
        posixpath.normpath(f"{folder}/{name}")
        for name in listed_files(record, _SHARED)
        if is_shared_object(host, name)
    )
    return tuple(dict.fromkeys(paths))


def opens_libraries(host: Host, dist: Distribution) -> bool:
    """Return whether a distribution's Python code has a call that opens a library."""
    return any(_OPENS.search(host.read_bytes(path, _MODULE_BYTES)) for path in sources(host, dist))


def is_shared_object(host: Host, path: str) -> bool:
    """Return whether a file's name is one of a shared object on a host's platform."""
    endings = _ENDINGS.get(host.platform)
    if endings:
        return path.lower().endswith(endings)
    return path.endswith(".so") or ".so." in posixpath.basename(path)


def module_name(host: Host, dist: Distribution, path: str) -> str:
    """Return the name under which Python can import a file of a distribution, "" if it can under none."""
    folder, _ = contents(host, dist)
    for suffix in suffixes(host):
        if path.endswith(suffix) and path.startswith(f"{folder}/"):
            parts = path[len(folder) + 1 : -len(suffix)].removesuffix("/__init__").split("/")
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
            if not LIBRARY.search(path):
                lost.setdefault(module_name(host, dists[0], _OF_A_PYTHON.sub(own, path)), path)
    lost.pop("", None)
    return {module: path for module, path in lost.items() if not module_file(host, module)}


@once_per_host
def lost_files(host: Host, dist: Distribution) -> tuple[str, ...]:
    """Return the modules and shared objects that a distribution's RECORD lists and that are gone.

    Those in a folder that may not be read are among them.
    """
    return tuple(
        path
        for path in (*sources(host, dist), *shared_objects(host, dist))
        if posixpath.basename(path) not in _names(host, posixpath.dirname(path))
        or not (path.endswith(".py") or host.is_file(path))
    )


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
    body: list[ast.stmt], guard: Guard, known: Mapping[str, Any]
) -> Iterator[tuple[_Importing, Guard, tuple[str, ...]]]:
    """Yield the imports among statements, each with its guard and what it is instead of.

    known: the values of expressions.
    """
    for statement in body:
        match statement:
            case ast.Import() | ast.ImportFrom():
                yield statement, guard, ()
            case ast.Expr(ast.Call() as call) | ast.Assign(value=ast.Call() as call):
                if imported := _by_call(call, known):
                    yield imported, guard, ()
            case ast.ClassDef():
                yield from _statements(statement.body, guard, known)
            case ast.With():
                suppresses = any("suppress" in ast.unparse(item.context_expr) for item in statement.items)
                yield from _statements(statement.body, Guard.FAILURE if suppresses else guard, known)
            case ast.Try():
                caught = (_caught(handler, known) for handler in statement.handlers)
                inner = max(guard, *caught, Guard.NOTHING)
                yield from _statements(statement.body, inner, known)
                is_package = known["__name__"] == known["__package__"]
                tried = [
                    name
                    for first in statement.body
                    if isinstance(first, ast.Import | ast.ImportFrom)
                    for name in _imported(first, known["__name__"], is_package)
                ]
                tried += [name.rpartition(".")[0] for name in tried]
                for handler in statement.handlers:
                    for other, caught_by, _ in _statements(handler.body, Guard.FAILURE, known):
                        is_needed = guard is Guard.NOTHING and other in handler.body
                        yield other, caught_by, tuple(tried) if is_needed else ()
                yield from _statements(statement.orelse, inner, known)
                yield from _statements(statement.finalbody, guard, known)
            case ast.If():
                answer = _decided(statement.test, known)
                asks = any(isinstance(node, ast.Call | ast.Subscript) for node in ast.walk(statement.test))
                is_choice = all(any(_statements(b, guard, known)) for b in (statement.body, statement.orelse))
                unknown = Guard.FAILURE if asks else Guard.CHOICE if is_choice else Guard.CONDITION
                for branch, value in ((statement.body, True), (statement.orelse, False)):
                    if answer is None or answer is value:
                        yield from _statements(
                            branch, guard if answer is value else max(guard, unknown), known
                        )
            case ast.For(ast.Name(name)) if items := _constants(statement, body):
                # What a handler collects may be raised after the loop.
                raised = [ast.unparse(it.test) for it in body if isinstance(it, ast.If) and _raises(it.body)]
                for item in items:
                    inside = {**known, name: item, "raise": raised}
                    yield from _statements(statement.body, guard, inside)
            case ast.For() | ast.While():
                yield from _statements(statement.body, Guard.FAILURE, known)


def _raises(body: list[ast.stmt]) -> bool:
    return any(isinstance(statement, ast.Raise) for statement in body)


def _constants(loop: ast.For, body: list[ast.stmt]) -> list[str]:
    """Return the few texts that a loop goes through to its end, [] for any other. body: what it is in."""
    values = loop.iter
    for statement in body:
        match statement, values:
            case ast.Assign([ast.Name(name)], value), ast.Name(known) if name == known:
                values = value
    items = values.elts if isinstance(values, ast.Tuple | ast.List) else []
    texts = [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    ends = any(isinstance(node, ast.Break) for node in ast.walk(loop))
    return texts if len(texts) == len(items) <= _MOST_ITEMS and not ends else []


def _by_call(call: ast.Call, known: Mapping[str, Any]) -> _Importing | None:
    """Return the import that a call comes to, None for one that imports nothing.

    A call that names a module of the package may import that, if it is compiled.
    """
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if function not in ("__import__", "import_module"):
        top = known["__name__"].partition(".")[0]
        return call if any(_named(call, top)) and not _LAZY.search(function) else None
    try:
        name, *of = [_value(argument, known) for argument in call.args[:2]]
    except ValueError:
        return None
    bare = name.lstrip(".")
    if bare == name:
        return ast.Import([ast.alias(name)])
    parent, _, leaf = bare.rpartition(".")
    is_own = of == [known["__package__"]]
    return ast.ImportFrom(parent or None, [ast.alias(leaf)], len(name) - len(bare)) if is_own else None


def _named(call: ast.Call, top: str) -> Iterator[str]:
    """Yield the arguments of a call that may be names of modules of a package."""
    for argument in call.args:
        if isinstance(argument, ast.Constant) and str(argument.value).startswith(f"{top}."):
            yield str(argument.value)


def _caught(handler: ast.ExceptHandler, known: Mapping[str, Any]) -> Guard:
    """Return what a handler catches for good.

    One that raises again, as most do whose condition asks for the words, catches what is not installed.
    """
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {kind.id if isinstance(kind, ast.Name) else "" for kind in kinds}
    inner = [node for statement in handler.body for node in ast.walk(statement)]
    is_collected = any(isinstance(node, ast.Name) and node.id in known["raise"] for node in inner)
    if _raises(handler.body) or is_collected:
        return Guard.NOTHING
    raises = any(isinstance(node, ast.Raise) for node in inner)
    tries = any(isinstance(node, ast.Import | ast.ImportFrom | ast.Try) for node in inner)
    if names & _CATCHING and (tries or not raises):
        return Guard.FAILURE
    return Guard.ABSENCE if names & {*_CATCHING, "ModuleNotFoundError"} else Guard.NOTHING


def _decided(test: ast.expr, known: Mapping[str, Any]) -> bool | None:
    """Return the value of a condition on the platform or on Python, None for any other."""
    try:
        match test:
            case ast.UnaryOp(ast.Not(), operand):
                answer = _decided(operand, known)
                return None if answer is None else not answer
            case ast.BoolOp(word, operands):
                answers, decisive = {_decided(each, known) for each in operands}, isinstance(word, ast.Or)
                return decisive if decisive in answers else None if None in answers else not decisive
            case ast.Compare(left, [sign], [right]):
                return _COMPARISONS[type(sign)](_value(left, known), _value(right, known))
            case ast.Call(ast.Attribute(text, "startswith"), [start]):
                return str(_value(text, known)).startswith(_value(start, known))
        value = _value(test, known)
    except (KeyError, ValueError, TypeError):
        return None
    return bool(value)


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """Return the value of a constant, or of what is known. Raises ValueError."""
    text = ast.unparse(node)
    return known[text] if text in known else ast.literal_eval(node)


@once_per_host
def _known(host: Host) -> dict[str, Any]:
    """Return the values of expressions on Python and the platform."""
    numbers = str(host.python.get("version", "3")).split(".")
    version = tuple(int(part) for part in numbers if part.isdigit())
    name = str(host.python.get("implementation") or "cpython")
    return {
        "sys.version_info": version,
        "sys.version_info[:2]": version[:2],
        "sys.version_info[0]": version[0],
        "sys.platform": host.platform,
        "os.name": "nt" if host.platform == "win32" else "posix",
        "platform.system()": {"darwin": "Darwin", "win32": "Windows"}.get(host.platform, "Linux"),
        "platform.python_implementation()": {"cpython": "CPython", "pypy": "PyPy"}.get(name, name),
        "sys.implementation.name": name,
        "TYPE_CHECKING": False,
        "typing.TYPE_CHECKING": False,
        "raise": (),
    }


def _flags(
    host: Host, tree: ast.Module | None, module: str, path: str, known: Mapping[str, Any]
) -> dict[str, bool]:
    """Return the names that a module's conditions test, such as LINUX, with their answers here.

    A module gives them to such conditions itself, or has them from another one of its package.
    """
    body = tree.body if tree else []
    tests = [node.test for node in body if isinstance(node, ast.If)]
    tested = {node.id for test in tests for node in ast.walk(test) if isinstance(node, ast.Name)}
    found = _answers(body, known) if tested else {}
    for statement in body if tested - {*found} else ():
        names = statement.names if isinstance(statement, ast.ImportFrom) else []
        if isinstance(statement, ast.ImportFrom) and tested.intersection(
            it.asname or it.name for it in names
        ):
            whole = next(_imported(statement, module, path.endswith("/__init__.py")), "")
            flags = _flags_of(host, module_file(host, whole.rpartition(".")[0]))
            found |= {it.asname or it.name: flags[it.name] for it in names if it.name in flags}
    return found


@once_per_host
def _flags_of(host: Host, path: str) -> dict[str, bool]:
    tree = parsed(host, path) if path.endswith(".py") else None
    return _answers(tree.body if tree else [], _known(host))


def _answers(body: list[ast.stmt], known: Mapping[str, Any]) -> dict[str, bool]:
    """Return the names that statements give to conditions, with the answers that are known."""
    found: dict[str, bool] = {}
    for statement in body:
        match statement:
            case ast.Assign(
                [ast.Name(name)], ast.Call() | ast.Compare() | ast.BoolOp() | ast.UnaryOp() as test
            ):
                if (answer := _decided(test, {**known, **found})) is not None:
                    found[name] = answer
    return found


def _imported(statement: _Importing, module: str, is_package: bool) -> Iterator[str]:
    """Yield the modules that a statement may import."""
    if isinstance(statement, ast.Call):
        yield from _named(statement, module.partition(".")[0])
        return
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
        return
    base = statement.module or ""
    if statement.level:
        parts = module.split(".")
        parts = parts[: len(parts) - statement.level + is_package]
        base = ".".join([*parts, *([base] if base else [])])
    if base:
        yield from (base if alias.name == "*" else f"{base}.{alias.name}" for alias in statement.names)
