"""Type stubs of the modules whose names are made at run time: from the table of switches and the sources.

A stub replaces its source for a type checker, so it holds all that is public there: functions and classes
as the source has them, switches and `flags()` as the table has them, names that are loaded at first use.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mlbackends.switches.kinds import Reduction
from mlbackends.switches.modules import PropModule, set_flags_default
from mlbackends.switches.table import NOT_IN_FLAGS, Switch, of_module

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
HEAD = "# Made by man/generate.py from the table of switches and the source beside this file; change those."

#: The modules that need one, as files below core/mlbackends/.
MODULES = (
    "__init__", "cuda/__init__", "cuda/cublas", "cudnn/__init__", "cudnn/rnn", "miopen", "mkl", "mkldnn",
    "nnpack", "opt_einsum", "quantized", "sdpa/__init__", "testing/__init__", "xnnpack",
)  # fmt: skip
_SCOPE = "_GeneratorContextManager[None]"


def stubs() -> dict[str, str]:
    """Return every stub by its path in the repository."""
    return {f"core/mlbackends/{name}.pyi": stub(name) for name in MODULES}


def stub(name: str) -> str:
    """Return the stub of one module."""
    dotted = f"mlbackends.{name.replace('/', '.')}".removesuffix(".__init__")
    module = importlib.import_module(dotted)
    dir(module)  # wakes mlbackends itself
    tree = ast.parse((ROOT / "core" / "mlbackends" / f"{name}.py").read_text(encoding="utf-8"))
    short = dotted.removeprefix("mlbackends").removeprefix(".")
    rows = [switch for switch in of_module(short) if switch.reached == "attribute"]
    inside = [switch for switch in of_module(short) if switch.inside_flags is not NOT_IN_FLAGS]
    body = list(_of_source(tree))
    if name == "cuda/cublas":
        body = [f"class cuBLASModule:{_properties(of_module('cuda.matmul'))}"]
    else:
        body += [f"{switch.attribute}: {_type(switch)}" for switch in rows]
        body += _module_class(module, rows)
    if name == "quantized":
        body.append("supported_engines: list[str]")
    body += [*_flag_functions(inside), *_of_other_names(module)]
    imports = [*_of_imports(tree, "\n".join(body)), *_of_lazy(module)]
    if any(_SCOPE in line for line in body):
        imports.append("from contextlib import _GeneratorContextManager")
    if any("(PropModule)" in line for line in body):
        imports.append("from mlbackends.switches.modules import PropModule as PropModule")
    return "\n".join([HEAD, "", *sorted(set(imports)), "", *body]) + "\n"


def _of_imports(tree: ast.Module, body: str) -> Iterator[str]:
    """Yield what the source imports for the names in its stub."""
    words = set(re.findall(r"\w+", body))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if alias.name in words or alias.asname == alias.name:
                    yield f"from {node.module} import {alias.name} as {alias.name}"


def _of_lazy(module: object) -> Iterator[str]:
    for source in getattr(module, "_LAZY", {}).values():
        path, _, attribute = source.partition(":")
        if not attribute:
            path, _, attribute = path.rpartition(".")
        # Only "a as a" is handed on; another name is an assignment in a stub.
        yield f"from {path} import {attribute} as {attribute}"


def _of_other_names(module: object) -> Iterator[str]:
    for name, source in getattr(module, "_LAZY", {}).items():
        attribute = source.rpartition(":")[2].rpartition(".")[2]
        if attribute != name:
            yield f"{name} = {attribute}"


def _of_source(tree: ast.Module) -> Iterator[str]:
    """Yield the constants, functions and classes of a source, without their bodies."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield _signature(node)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield _class(node)
        elif isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            hidden = target.id.startswith("_") and target.id != "__version__"
            if hidden or target.id == "TYPE_CHECKING":
                continue
            yield f"{target.id}: {_type_of(node.value)}"


def _type_of(value: ast.expr) -> str:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return "frozenset[str]" if value.func.id == "frozenset" else value.func.id
    assert isinstance(value, ast.Constant), ast.dump(value)
    return type(value.value).__name__


def _signature(node: ast.FunctionDef, indent: str = "") -> str:
    decorators = [
        ast.unparse(decorator)
        for decorator in node.decorator_list
        if "contextmanager" not in ast.unparse(decorator)
    ]
    lines = [f"{indent}@{decorator}" for decorator in decorators if "lru_cache" not in decorator]
    returned = ast.unparse(node.returns) if node.returns else "None"
    lines.append(f"{indent}def {node.name}({_bare(ast.unparse(node.args))}) -> {_bare(returned)}: ...")
    return "\n".join(lines)


def _bare(text: str) -> str:
    """Return annotations without the quotes that the source needs and a stub does not."""
    return text.replace("'", "")


def _class(node: ast.ClassDef) -> str:
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    lines = [f"class {node.name}({bases}):" if bases else f"class {node.name}:"]
    lines += [
        _signature(statement, "    ")
        for statement in node.body
        if isinstance(statement, ast.FunctionDef)
        and (not statement.name.startswith("_") or statement.name in ("__init__", "__enter__", "__exit__"))
    ]
    return "\n".join(lines)


def _type(switch: Switch) -> str:
    """Return what reading a switch gives."""
    if isinstance(switch.kind, Reduction):
        return "bool"
    if switch.name == "mkldnn.allow_tf32":
        return "bool | None"
    return switch.kind.annotation


def _properties(rows: list[Switch]) -> str:
    lines = []
    for switch in rows:
        lines += ["", "    @property", f"    def {switch.attribute}(self) -> {_type(switch)}: ..."]
        if not switch.read_only:
            taken = switch.kind.annotation
            lines += [
                f"    @{switch.attribute}.setter",
                f"    def {switch.attribute}(self, value: {taken}) -> None: ...",
            ]
    return "\n".join(lines)


def _module_class(module: object, rows: list[Switch]) -> Iterator[str]:
    made = type(module)
    if issubclass(made, PropModule) and not made.__name__.startswith("_"):
        inside = [f"    {switch.attribute}: {_type(switch)}" for switch in rows]
        yield "\n".join([f"class {made.__name__}(PropModule):", *(inside or ["    ..."])])


def _flag_functions(rows: list[Switch]) -> Iterator[str]:
    if not rows:
        return
    old = ", ".join(_type(switch) for switch in rows)
    must_be_said = len(rows) == 1 and rows[0].reached == "flags"
    new = ", ".join(
        f"_{switch.attribute}: {_optional(switch)}"
        + ("" if must_be_said else f" = {set_flags_default(switch)!r}")
        for switch in rows
    )
    yield f"def set_flags({new}) -> tuple[{old}]: ..."
    inside = ", ".join(
        f"{switch.attribute}: {_optional(switch)} = {switch.inside_flags!r}" for switch in rows
    )
    yield f"def flags({inside}) -> {_SCOPE}: ..."


def _optional(switch: Switch) -> str:
    kind = switch.kind.annotation
    return kind if "None" in kind else f"{kind} | None"
