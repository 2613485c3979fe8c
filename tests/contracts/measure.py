"""Measure the tree: lines, files, private functions used once, imports in functions, circles.

    python tests/contracts/measure.py [FOLDER]          one tree, as `name value` lines
    python tests/contracts/measure.py --by-folder       what each folder of the product adds
    python tests/contracts/measure.py --list NAME       the places behind one figure
    python tests/contracts/measure.py --table REVISION [--row NAME BEFORE AFTER ...]
                                                        both trees as a Markdown table; rows add timings

Only files that git tracks are counted. `DECISIONS.md` has the table that this script made.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The folders of the product; everything else is tests, tools or documents.
PRODUCT = ("core", "cli", "probes", "kernels")
#: What counts as code of the product.
CODE = (".py", ".c", ".cpp", ".h", ".cu")
#: A Python file below this many lines is small.
SMALL = 60
#: Files that man/generate.py and docs/pictures/make.py write.
GENERATED = re.compile(r"man/.*(?<!\.py)|core/.*\.pyi|docs/pictures/.*\.svg")

Place = tuple[str, int, str]


def tracked(root: Path) -> list[str]:
    """Return the files that git tracks in a tree."""
    command = ("git", "-C", str(root), "ls-files", "-z")
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return [name for name in names if name and (root / name).is_file()]


class Tree:
    """The tracked files of one checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = tracked(root)
        self.product = [f for f in self.files if f.startswith(tuple(f"{p}/" for p in PRODUCT))]
        self.python = [f for f in self.product if f.endswith(".py")]
        self._trees: dict[str, ast.Module] = {}

    def lines(self, name: str) -> int:
        """Return the number of lines of a file."""
        return (self.root / name).read_bytes().count(b"\n")

    def parsed(self, name: str) -> ast.Module:
        """Return the syntax tree of a Python file."""
        if name not in self._trees:
            self._trees[name] = ast.parse((self.root / name).read_text(encoding="utf-8"))
        return self._trees[name]


def once_used(tree: Tree) -> Iterator[Place]:
    """Yield private functions and methods that exactly one place of their file names."""
    for file in tree.python:
        module = tree.parsed(file)
        used: Counter[str] = Counter()
        for node in ast.walk(module):
            if isinstance(node, ast.Name):
                used[node.id] += 1
            elif isinstance(node, ast.Attribute):
                used[node.attr] += 1
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = node.name
                if name.startswith("_") and not name.startswith("__") and used[name] == 1:
                    yield file, node.lineno, name


def inner_imports(tree: Tree) -> Iterator[Place]:
    """Yield the import statements inside functions."""
    for file in tree.python:
        found = set()
        for node in ast.walk(tree.parsed(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Import | ast.ImportFrom):
                        found.add((inner.lineno, ast.unparse(inner)))
        for line, text in sorted(found):
            yield file, line, text


def idle_strings(tree: Tree) -> Iterator[Place]:
    """Yield string expressions that are no docstring of a module, class or function."""
    for file in tree.python:
        module = tree.parsed(file)
        scopes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        for scope in ast.walk(module):
            if isinstance(scope, scopes):
                for statement in scope.body[1:]:
                    value = statement.value if isinstance(statement, ast.Expr) else None
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        yield file, statement.lineno, value.value[:60]


def small_files(tree: Tree) -> Iterator[Place]:
    """Yield the Python files that are small."""
    for file in tree.python:
        if (count := tree.lines(file)) < SMALL:
            yield file, count, ""


def module_name(file: str) -> str:
    """Return the dotted name under which a file of the product is imported."""
    return file.partition("/")[2].removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def circles(tree: Tree) -> Iterator[Place]:
    """Yield each module that imports itself through others, in functions too."""
    modules = {module_name(f): f for f in tree.python}
    edges: dict[str, set[str]] = defaultdict(set)
    for name, file in modules.items():
        checking = {
            id(inner)
            for node in ast.walk(tree.parsed(file))
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree.parsed(file)):
            if id(node) in checking:
                continue
            if isinstance(node, ast.Import):
                full = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                full = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for use in full:
                target = use if use in modules else use.rpartition(".")[0]
                if target in modules and target != name:
                    edges[name].add(target)
    for start in list(edges):
        seen: set[str] = set()
        left = list(edges[start])
        while left:
            at = left.pop()
            if at not in seen:
                seen.add(at)
                left.extend(edges.get(at, ()))
        if start in seen:
            yield modules[start], 1, start


#: A package of the product, and those whose names must not stand in its strings.
ABOVE = {
    "core": r"\bmlbackends_(?:probes|kernels|cli)\b",
    "probes": r"\bmlbackends_(?:kernels|cli)\b",
    "kernels": r"\bmlbackends_(?:probes|cli)\b",
}
#: The one module that knows the names of the other packages.
REGISTRY = re.compile(r"core/mlbackends/\w+/registry\.py")


def upward_strings(tree: Tree) -> Iterator[Place]:
    """Yield the strings that name a package above the one they are in; docstrings do not count."""
    for file in tree.python:
        above = ABOVE.get(file.partition("/")[0])
        if above is None or REGISTRY.fullmatch(file):
            continue
        module = tree.parsed(file)
        documents = {
            id(node.value)
            for node in ast.walk(module)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(module):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in documents
                and re.search(above, node.value)
            ):
                yield file, node.lineno, node.value[:80]


#: Each figure that is a list of places.
LISTS: dict[str, Callable[[Tree], Iterator[Place]]] = {
    "private_functions_used_once": once_used,
    "imports_inside_functions": inner_imports,
    "string_expressions": idle_strings,
    "python_files_under_60_lines": small_files,
    "modules_in_import_circles": circles,
    "upward_strings": upward_strings,
}


def figures(tree: Tree) -> dict[str, int]:
    """Return each figure of a tree by its name."""
    code = [f for f in tree.product if f.endswith(CODE)]
    tests = [f for f in tree.files if f.startswith("tests/")]
    made = [f for f in tree.files if GENERATED.fullmatch(f)]
    counts = {
        "product_lines": sum(map(tree.lines, code)),
        "product_files": len(tree.product),
        "test_lines_python": sum(tree.lines(f) for f in tests if f.endswith(".py")),
        "test_lines_json": sum(tree.lines(f) for f in tests if f.endswith(".json")),
        "generated_lines": sum(map(tree.lines, made)),
        "files": len(tree.files),
        "decisions_bytes": (tree.root / "DECISIONS.md").stat().st_size,
    }
    return counts | {name: sum(1 for _ in find(tree)) for name, find in LISTS.items()}


def table(before: dict[str, int], after: dict[str, int], rows: list[list[str]]) -> str:
    """Return the figures of two trees in Markdown; rows: name, before and after of what was timed."""
    figured = [[name.replace("_", " "), f"{before[name]:,}", f"{after[name]:,}"] for name in after]
    lines = [f"| {' | '.join(row)} |" for row in (*figured, *rows)]
    return "\n".join(("| | before | after |", "| --- | ---: | ---: |", *lines))


def figures_of(root: Path, revision: str) -> dict[str, int]:
    """Return the figures of an earlier commit, from a checkout that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        clone = ("git", "clone", "-q", "--no-checkout", str(root), folder)
        subprocess.run(clone, check=True)
        subprocess.run(("git", "-C", folder, "checkout", "-q", revision), check=True)
        return figures(Tree(Path(folder)))


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[2])
    parser.add_argument("--by-folder", action="store_true")
    parser.add_argument("--list", choices=LISTS)
    parser.add_argument("--table", metavar="REVISION")
    parser.add_argument("--row", nargs=3, action="append", default=[])
    options = parser.parse_args()
    tree = Tree(options.folder)
    if options.table:
        print(table(figures_of(options.folder, options.table), figures(tree), options.row))
    elif options.list:
        for file, line, text in LISTS[options.list](tree):
            print(f"{file}:{line}: {text}")
    elif options.by_folder:
        shares = {name: Counter[str]() for name in ("lines", *LISTS)}
        for file in tree.product:
            if file.endswith(CODE):
                shares["lines"]["/".join(file.split("/")[:-1][:3])] += tree.lines(file)
        for name, find in LISTS.items():
            for file, _, _ in find(tree):
                shares[name]["/".join(file.split("/")[:-1][:3])] += 1
        print("lines, then " + ", ".join(LISTS))
        for folder in sorted(shares["lines"]):
            print(*(f"{share[folder]:5}" for share in shares.values()), folder)
    else:
        for name, value in figures(tree).items():
            print(f"{name:30} {value:7}")


if __name__ == "__main__":
    main()
