"""The packages are put together as they should be, and import what CONTRIBUTING lists."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mlbackends
import mlbackends_cli
import mlbackends_kernels
import mlbackends_probes

sys.path.insert(0, str(Path(__file__).parent))
import measure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
#: Each package, and its folder in the tree.
PACKAGES: dict[ModuleType, str] = {
    mlbackends: "core",
    mlbackends_cli: "cli",
    mlbackends_kernels: "kernels",
    mlbackends_probes: "probes",
}
#: Folders whose files are leaves, which the registry loads by name.
REGISTRIES = (
    "mlbackends_probes",
    "mlbackends_kernels",
    "mlbackends_kernels.peers",
    "mlbackends.tracing.formats",
    "mlbackends.audit.hazards",
    "mlbackends.audit.device_kinds",
    "mlbackends_cli.formats",
    "mlbackends.tracing.views",
    "mlbackends.tracing.findings",
)
#: The public names of torch.backends that are modules, and what belongs to them.
TORCH_NAMES = frozenset({
    "__main__", "cpu", "cuda", "cudnn", "cusparselt", "kleidiai", "mha", "miopen", "mkl",
    "mkldnn", "mps", "nnpack", "openmp", "opt_einsum", "python_native", "quantized", "xeon", "xnnpack",
})  # fmt: skip
TORCH = "torch's names"
#: Packages whose `__init__` is the public address of what its files define.
PUBLIC_NAMESPACES = frozenset({"mlbackends.sdpa"})


def table() -> dict[str, list[str]]:
    """Return CONTRIBUTING's table: what each package imports, the lowest package first."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = text.partition("| package | imports | what it holds |\n")[2].partition("\n\n")[0]
    cells = [[cell.strip(" `") for cell in row.split("|")] for row in rows.splitlines()[1:]]
    return {name: imports.strip("-").split(", ") for _, name, imports, *_ in cells}


#: Which package may import which, at the top of a file or in a function.
MAY_IMPORT = {name: frozenset(filter(None, listed)) for name, listed in table().items()}
#: The packages of `mlbackends` other than torch's names.
PACKAGES_OF_CORE = {name for name in MAY_IMPORT if name.islower() and not name.startswith("mlbackends_")} - {
    TORCH
}


def sources() -> Iterator[tuple[str, Path]]:
    """Yield each module of the installed packages, and its file."""
    for package in PACKAGES:
        folder = Path(str(package.__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            parts = (package.__name__, *path.relative_to(folder).with_suffix("").parts)
            yield ".".join(parts).removesuffix(".__init__"), path


def imported(node: ast.AST) -> set[str]:
    """Return the full name of each thing that a statement imports."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        # A relative import keeps its dots, and so matches no allowed name.
        module = "." * node.level + (node.module or "")
        return {f"{module}.{alias.name}" for alias in node.names}
    return set()


def imports(path: Path) -> set[str]:
    """Return the full name of each thing that a file imports, at the top or in a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {name for node in ast.walk(tree) for name in imported(node)}


def below(name: str, package: str) -> bool:
    """Return whether a dotted name is a package or something in it."""
    return name == package or name.startswith(f"{package}.")


def leaf(name: str) -> str:
    """Return the leaf that a dotted name is or belongs to, or nothing.

    As in the registry: a file whose name has no leading underscore. A folder next to the leaves
    holds what several of them share.
    """
    for registry in REGISTRIES:
        if name.startswith(f"{registry}."):
            stem = name.removeprefix(f"{registry}.").split(".")[0]
            path = PATHS.get(f"{registry}.{stem}")
            if path and path.name != "__init__.py" and not stem.startswith("_"):
                return f"{registry}.{stem}"
    return ""


PATHS = dict(sources())
TREE = measure.Tree(ROOT)


@cache
def all_imports() -> dict[str, set[str]]:
    """Return what each module imports: parsed when a test wants it, not whenever pytest collects."""
    return {name: imports(path) for name, path in PATHS.items()}


def importers(package: str) -> set[str]:
    """Return the modules that import a package or something in it."""
    return {name for name, used in all_imports().items() if any(below(use, package) for use in used)}


def package_of(name: str) -> str:
    """Return the package of a module of ours, "torch's names" for one of these, "" for any other module."""
    package, _, rest = name.partition(".")
    if package not in {package.__name__ for package in PACKAGES}:
        return ""
    if package != "mlbackends":
        return package
    part = rest.partition(".")[0]
    return part if part in PACKAGES_OF_CORE else TORCH if part in TORCH_NAMES else ""


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_an_import_names_the_file(package: ModuleType) -> None:
    folder = ROOT / PACKAGES[package] / package.__name__
    installed = Path(str(package.__file__)).resolve()

    assert (folder / "__init__.py").is_file()
    assert installed.name == "__init__.py"
    assert installed.parent.name == folder.name


def test_an_install_adds_the_four_packages_their_metadata_and_shared_files() -> None:
    files = importlib.metadata.files("mlbackends")
    assert files
    inside = {file.parts[0] for file in files if ".." not in file.parts}
    tops = {top for top in inside if not top.startswith("mlbackends-")}
    tops -= {package.__name__ for package in PACKAGES}
    assert tops <= {"_editable_impl_mlbackends.pth", "_mlbackends.pth"}
    outside = {file.parts[file.parts.count("..")] for file in files if ".." in file.parts}
    assert outside <= {"bin", "Scripts", "share"}


def test_no_import_is_relative() -> None:
    assert not {f"{name}: {use}" for name, used in all_imports().items() for use in used if use[0] == "."}


def test_each_package_has_a_row() -> None:
    top = {name.split(".")[1] for name in PATHS if name.startswith("mlbackends.")}

    assert top <= PACKAGES_OF_CORE | TORCH_NAMES
    assert top >= PACKAGES_OF_CORE


@pytest.mark.parametrize("name", sorted(MAY_IMPORT))
def test_a_package_imports_what_its_row_names_and_nothing_else(name: str) -> None:
    uses = {
        (importer, use)
        for importer, used in all_imports().items()
        if package_of(importer) == name and importer != "mlbackends.__main__"
        for use in used
        if package_of(use) and package_of(use) != name
    }
    assert {
        f"{importer}: {use}" for importer, use in uses if package_of(use) not in MAY_IMPORT[name]
    } == set()
    assert MAY_IMPORT[name] == {package_of(use) for _, use in uses}


def test_model_holds_records_only() -> None:
    """It reads no file, starts no process and loads no plugin but the tracer of a signature."""
    outside = {
        f"{importer}: {use}"
        for importer, used in all_imports().items()
        if package_of(importer) == "model"
        for use in used
        if use.partition(".")[0]
        in {"os", "sys", "io", "pathlib", "importlib", "subprocess", "tomllib", "json"}
        or use.startswith(("mlbackends.base.tables", "mlbackends.base.registry", "mlbackends.base.mounts"))
    }
    assert outside == {"mlbackends.model.signature: mlbackends.base.registry.load"}


def test_the_table_goes_from_low_to_high() -> None:
    seen: set[str] = set()
    for name, may in MAY_IMPORT.items():
        assert may <= seen, f"{name} imports what has no row above it"
        seen.add(name)


def test_no_files_import_each_other_in_a_circle() -> None:
    assert [name for _, _, name in measure.circles(TREE)] == []


def test_no_string_names_a_higher_package() -> None:
    """Only base/registry.py has these names; everything else takes them from there."""
    assert list(measure.upward_strings(TREE)) == []


def test_no_file_only_hands_on() -> None:
    """A file that only imports adds one more file to look through."""
    bad = set()
    for name, path in PATHS.items():
        body = ast.parse(path.read_text(encoding="utf-8")).body
        statements = [node for node in body if not isinstance(node, ast.Expr)]
        hands_on = statements and all(
            isinstance(node, ast.Import | ast.ImportFrom)
            or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
            for node in statements
        )
        if hands_on and package_of(name) != TORCH:
            bad.add(name)
    assert bad <= PUBLIC_NAMESPACES


def test_nothing_imports_a_leaf() -> None:
    """The registry loads a leaf by its file's name, so deleting one breaks nothing else."""
    bad = {
        f"{name}: {use}"
        for name, used in all_imports().items()
        for use in used
        if leaf(use) and leaf(use) != leaf(name)
    }
    assert not bad


def test_the_engines_know_nothing_of_the_command_line() -> None:
    bad = {
        name
        for name in importers("mlbackends_cli")
        if not below(name, "mlbackends_cli") and name != "mlbackends.__main__"
    }
    assert not bad


def test_only_the_command_line_imports_click() -> None:
    assert all(below(name, "mlbackends_cli") for name in importers("click"))


@pytest.mark.parametrize("heavy", ["cuda", "jax", "numpy", "torch"])
def test_only_kernels_import_what_computes(heavy: str) -> None:
    """And the checks of packages and of numbers, which run in the interpreter that is inspected."""
    allowed = ("mlbackends_kernels", "mlbackends_probes.package_checks", "mlbackends.conform.programs")
    assert all(any(below(name, package) for package in allowed) for name in importers(heavy))
