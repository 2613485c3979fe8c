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


def steps(folder: Path, text: str, *files: str) -> dict[str, Guard]:
    """Return what importing a package imports, each module with its guard."""
    package = folder / "site-packages" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(text)
    for file in files:
        (package / file).write_bytes(b"")
    host = Host(python={"version": "3.11.7", "path": [str(package.parent)]})
    return {step.module: step.guard for step in imports_of(host, "pkg")}


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
    found = steps(tmp_path, f"import sys\nif {condition}:\n    import wanted\n")
    assert found.get("wanted") == (Guard.NOTHING if runs else None)


LOOP = """
NAMES = ("wanted", "other")
for name in NAMES:
    try:
        {}(name)
    except ImportError as error:
        {}
"""
LATER = "lost.append(name)\nif lost:\n    raise ImportError(lost)"


@pytest.mark.parametrize(
    ("text", "guard"),
    [
        (LOOP.format("__import__", "raise ImportError('no') from error"), Guard.NOTHING),
        (LOOP.format("import_module", LATER), Guard.NOTHING),
        (LOOP.format("import_module", "lost.append(name)"), Guard.FAILURE),
        ("for name in ['other', 'wanted']:\n    importlib.import_module(name)", Guard.NOTHING),
        ("for name in ['other', 'wanted']:\n    importlib.import_module(name)\n    break", None),
        ("for name in found():\n    __import__(name)", None),
        ("__import__('wanted')", Guard.NOTHING),
        ("import_module(NAME)", None),
    ],
)
def test_a_call_imports_the_modules_of_constants(tmp_path: Path, text: str, guard: Guard | None) -> None:
    assert steps(tmp_path, text).get("wanted") == guard


@pytest.mark.parametrize(
    ("text", "is_import"),
    [
        ("_lib = load_raw_lib('pkg._C', 'int f(void);')", True),
        ("import_module('._C', __package__)", True),
        ("import_module('._C', __name__)", True),
        ("import_module('._C', 'other')", False),
        ("_lib = LazyLoader('pkg._C')", False),
        ("log('pkg.python')", False),
    ],
)
def test_a_call_may_import_a_compiled_module_of_the_package(
    tmp_path: Path, text: str, is_import: bool
) -> None:
    assert [*steps(tmp_path, text, "_C.so", "python.py")] == ["pkg", *["pkg._C"] * is_import]


def test_a_condition_by_a_name_of_another_module_of_the_package_is_decided(tmp_path: Path) -> None:
    """Only psutil/_common.py compares sys.platform; a name that a call of the package gives stays unknown."""
    text = "from ._common import LINUX, UNKNOWN\n"
    text += "if LINUX:\n    from . import here\nelif UNKNOWN:\n    from . import c\n"
    text += "else:\n    from . import there\nif UNKNOWN:\n    from . import maybe\n"
    package = tmp_path / "site-packages" / "pkg"
    package.mkdir(parents=True)
    (package / "_common.py").write_text(
        "import sys\nLINUX = sys.platform.startswith('linux')\nUNKNOWN = found('x')\n"
    )
    (package / "__init__.py").write_text(text)
    for name in ("here", "there", "maybe", "c"):
        (package / f"{name}.py").touch()
    host = Host(python={"version": "3.11.7", "path": [str(package.parent)]})
    guards = {step.module: step.guard for step in imports_of(host, "pkg")}

    is_linux = host.platform == "linux"
    assert guards.get("pkg.here") == (Guard.NOTHING if is_linux else None)
    assert ("pkg.there" in guards) is not is_linux
    assert guards["pkg.maybe"] is Guard.CONDITION
