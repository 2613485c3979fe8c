"""An import inside a function defers something: what is loaded anyway is imported at the top of the file."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import mlbackends
import mlbackends_cli
import mlbackends_kernels
import mlbackends_probes

PACKAGES = (mlbackends, mlbackends_cli, mlbackends_kernels, mlbackends_probes)
#: What every Python has loaded when it starts: deferring it saves nothing.
FREE = {"abc", "builtins", "codecs", "io", "os", "stat", "sys", "time"}
#: The package itself is there before any file below it, but not yet with all its names.
CIRCULAR = {"mlbackends"}


def files() -> dict[str, Path]:
    """Return the file of each module of ours."""
    found = {}
    for package in PACKAGES:
        folder = Path(str(package.__file__)).parent
        for path in folder.rglob("*.py"):
            parts = (package.__name__, *path.relative_to(folder).with_suffix("").parts)
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


FILES = files()


@cache
def trees() -> dict[str, ast.Module]:
    """Return each file's syntax: parsed when a test wants it, not whenever pytest collects."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}


def targets(node: ast.AST) -> list[str]:
    """Return the modules that an import statement loads, as far as their names tell."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        inner = [f"{node.module}.{alias.name}" for alias in node.names]
        return [name if name in FILES else str(node.module) for name in inner]
    return []


def is_for_types(node: ast.AST) -> bool:
    """Tell whether a statement imports for type checkers, or on another system only."""
    words = ("TYPE_CHECKING", "win32")
    return isinstance(node, ast.If) and any(word in ast.unparse(node.test) for word in words)


def at_the_top(body: list[ast.stmt]) -> set[str]:
    """Return the modules that importing a file loads, but for what is imported for types alone."""
    found: set[str] = set()
    for node in body:
        found |= set(targets(node))
        if isinstance(node, ast.If | ast.Try) and not is_for_types(node):
            found |= at_the_top(node.body)
    return found


@cache
def tops() -> dict[str, set[str]]:
    """Return what importing each module loads."""
    return {name: at_the_top(tree.body) for name, tree in trees().items()}


def loaded_with(name: str) -> set[str]:
    """Return all modules that are loaded once a file of ours is imported."""
    found: set[str] = set()
    left = [name]
    while left:
        module = left.pop()
        for needed in (*tops().get(module, ()), module.rpartition(".")[0]):
            if needed and needed not in found:
                found.add(needed)
                left.append(needed)
    return found


def deferred(name: str) -> set[tuple[str, str]]:
    """Return what the functions of a file import, as (function, module)."""
    return {
        (function.name, target)
        for function in ast.walk(trees()[name])
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        for target in targets(node)
    }


def test_an_import_in_a_function_defers_something() -> None:
    useless = {
        f"{name}.{function}: {target}"
        for name in FILES
        for function, target in deferred(name)
        if target not in CIRCULAR and (target in FREE or target in loaded_with(name))
    }
    assert not useless
