"""The package is put together as it should be, and its layers hold."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mlbackends

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("cli", "core", "kernels", "probes")
#: Where the leaves grow: each file right in one of these folders is one.
REGISTRIES = (
    "mlbackends.probes",
    "mlbackends.kernels",
    "mlbackends.kernels.peers",
    "mlbackends.tracers",
    "mlbackends.audit.hazards",
    "mlbackends.device_kinds",
    "mlbackends.cli.outcomes",
    "mlbackends.cli.render",
    "mlbackends.tracing.views",
    "mlbackends.tracing.findings",
    "mlbackends.tracing.exports",
)


def sources() -> Iterator[tuple[str, Path]]:
    """Yield each module of the installed package, and its file."""
    package = Path(str(mlbackends.__file__)).parent
    for folder, folders, files in os.walk(package, followlinks=True):
        folders[:] = sorted(set(folders) - {"__pycache__", "builder", "completions"})
        for file in sorted(files):
            if file.endswith(".py"):
                path = Path(folder, file)
                parts = ("mlbackends", *path.relative_to(package).with_suffix("").parts)
                yield ".".join(parts).removesuffix(".__init__"), path


def imports(path: Path) -> set[str]:
    """Return the full name of each thing that a file imports, at the top or in a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # A relative import keeps its dots, and so matches no allowed name.
            module = "." * node.level + (node.module or "")
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def below(name: str, package: str) -> bool:
    """Tell whether a dotted name is a package or something in it."""
    return name == package or name.startswith(f"{package}.")


def leaf(name: str) -> str:
    """Return the leaf that a dotted name is or belongs to, or nothing.

    As in the registry: a file whose name has no leading underscore. A folder beside the leaves
    holds what several of them stand on.
    """
    for registry in REGISTRIES:
        if name.startswith(f"{registry}."):
            stem = name.removeprefix(f"{registry}.").split(".")[0]
            path = PATHS.get(f"{registry}.{stem}")
            if path and path.name != "__init__.py" and not stem.startswith("_"):
                return f"{registry}.{stem}"
    return ""


PATHS = dict(sources())
IMPORTS = {name: imports(path) for name, path in PATHS.items()}


def importers(package: str) -> set[str]:
    """Return the modules that import a package or something in it."""
    return {name for name, used in IMPORTS.items() if any(below(use, package) for use in used)}


def test_the_walk_sees_the_whole_package() -> None:
    assert {"mlbackends", "mlbackends.model", "mlbackends.probes", "mlbackends.kernels"} <= set(
        IMPORTS
    )


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_no_package_of_its_own(name: str) -> None:
    found = importlib.util.find_spec(name)
    places = [found.origin, *(found.submodule_search_locations or ())] if found else []
    assert not [place for place in places if place and Path(place).is_relative_to(ROOT)]
    assert name not in sys.modules


def test_an_install_adds_only_the_package_its_metadata_and_shared_files() -> None:
    files = importlib.metadata.files("mlbackends")
    assert files
    inside = {file.parts[0] for file in files if ".." not in file.parts}
    tops = {top for top in inside if not top.startswith("mlbackends-")} - {"mlbackends"}
    assert tops <= {"_editable_impl_mlbackends.pth", "_mlbackends.pth"}
    outside = {file.parts[file.parts.count("..")] for file in files if ".." in file.parts}
    assert outside <= {"bin", "Scripts", "share"}


def test_the_folder_of_an_editable_install_holds_one_package() -> None:
    folder = ROOT / "build" / "editable"
    if not folder.is_dir():
        pytest.skip("not an editable install")
    assert os.listdir(folder) == ["mlbackends"]


def test_the_version_is_the_installed_one() -> None:
    assert mlbackends.__version__ == importlib.metadata.version("mlbackends")


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(str(mlbackends.__file__)).parent / "py.typed").is_file()


def test_no_import_is_relative_or_by_a_folder_name() -> None:
    bad = {
        f"{name}: {use}"
        for name, used in IMPORTS.items()
        for use in used
        if use.startswith(".") or use.split(".")[0] in FOLDERS
    }
    assert not bad


def test_the_model_imports_nothing_of_ours_but_the_model() -> None:
    bad = {
        f"{name}: {use}"
        for name, used in IMPORTS.items()
        if below(name, "mlbackends.model")
        for use in used
        if below(use, "mlbackends") and not below(use, "mlbackends.model")
    }
    assert not bad


def test_nothing_imports_a_leaf() -> None:
    """Engines reach a leaf by its file's name, so deleting it breaks nothing else."""
    bad = {
        f"{name}: {use}"
        for name, used in IMPORTS.items()
        for use in used
        if leaf(use) and leaf(use) != leaf(name)
    }
    assert not bad


def test_the_engines_know_nothing_of_the_command_line() -> None:
    bad = {
        name
        for name in importers("mlbackends.cli")
        if not below(name, "mlbackends.cli") and name != "mlbackends.__main__"
    }
    assert not bad


def test_only_the_command_line_imports_click() -> None:
    assert all(below(name, "mlbackends.cli") for name in importers("click"))


def test_only_the_table_and_the_terminal_import_rich() -> None:
    assert importers("rich") <= {"mlbackends.cli.render.table", "mlbackends.cli.terminal"}


def test_only_the_parquet_export_imports_pyarrow() -> None:
    assert importers("pyarrow") <= {"mlbackends.tracing.exports.parquet"}


@pytest.mark.parametrize("heavy", ["cuda", "jax", "numpy", "torch"])
def test_only_kernels_import_what_computes(heavy: str) -> None:
    assert all(below(name, "mlbackends.kernels") for name in importers(heavy))
