"""What a module imports, read from its text without the bodies of its functions."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from mlbackends.host.host import Host
from mlbackends.loading.imports import Guard, imports_of, parsed

NASTY = '''
import first
def one(a,
    b="""
def inside(): import wrong
""",
) -> int:
    """
import wrong
"""
    import wrong
@property
def two(): return 1
if True:
    async def three():
        x = [
1]
    import second
TEXT = """
def four():
    pass
import wrong
"""
import third
'''


def imported(tree: ast.Module | None) -> list[str]:
    """Return the imports outside of functions, each with its line."""
    found = []
    nodes: list[ast.AST] = [tree] if tree else []
    for node in nodes:  # grows as it is walked
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(f"{node.lineno} {ast.unparse(node)}")
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            nodes += ast.iter_child_nodes(node)
    return found


def test_the_imports_of_a_module_are_those_of_its_whole_text(tmp_path: Path) -> None:
    (tmp_path / "nasty.py").write_text(NASTY)
    files = [*sorted(Path(os.__file__).parent.glob("*.py"))[::4], tmp_path / "nasty.py"]

    for file in files:
        assert imported(parsed(Host(), str(file))) == imported(ast.parse(file.read_bytes())), file


@pytest.mark.parametrize(
    ("condition", "runs"),
    [
        ('__name__ == "pkg"', True),
        ('sys.version_info >= (3, 6) and __name__ == "pkg"', True),
        ('__name__ == "__main__"', False),
        ('__package__ or "." in __name__', True),
    ],
)
def test_a_condition_on_the_modules_own_name_is_decided(tmp_path: Path, condition: str, runs: bool) -> None:
    folder = tmp_path / "site-packages" / "pkg"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(f"import sys\nif {condition}:\n    import wanted\n")
    host = Host(python={"version": "3.11.7", "path": [str(folder.parent)]})
    found = {step.module: step.guard for step in imports_of(host, "pkg")}
    assert found.get("wanted") == (Guard.NOTHING if runs else None)
