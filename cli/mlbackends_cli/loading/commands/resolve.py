"""Show whether packages load here, and if not, why: from files alone, nothing is imported.

SUBJECT is a package, a module, a shared object, or a folder of them; without one, every installed package
that has shared objects. Each is followed as the dynamic loader would: which library is found by which step,
which symbol nothing defines, and what is missing once it runs.

Exit 0 if all load, 1 if one does not or has no code for the GPU, 4 if one loads and then falls back, 3 if it
cannot be determined.

Examples:
  backends resolve                       every package with compiled parts
  backends resolve torch                 one package
  backends resolve ./build/_C.so         a file
  backends resolve onnxruntime --format json
"""

import os
from typing import Any

import click

from mlbackends.host.host import Host
from mlbackends.host.interpreter import query
from mlbackends.loading.packages import resolve
from mlbackends.model.loading import Fault, PackageLoading, Resolution, Verdict
from mlbackends_cli import exits, formats
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import PYTHON, option, root_option, written
from mlbackends_cli.terminal import Page, ProgressLine

CODES = {
    Verdict.LOADS: exits.YES,
    Verdict.FALLS_BACK: exits.FALLS_BACK,
    Verdict.UNKNOWN: exits.UNKNOWN,
    Verdict.BREAKS: exits.NO,
    Verdict.FAILS: exits.NO,
}
_SIGNS = {
    Verdict.LOADS: ("✓", "ok", "green"),
    Verdict.FALLS_BACK: ("◐", "~", "yellow"),
    Verdict.UNKNOWN: ("?", "?", "yellow"),
    Verdict.BREAKS: ("✗", "x", "red"),
    Verdict.FAILS: ("✗", "x", "red"),
}


@documented()
@click.argument("subjects", metavar="[PACKAGE|FILE|DIR]...", nargs=-1)
@option("--tree", "Show every file that is mapped, and how it is found.")
@PYTHON
@root_option()
@written("record")
def command(subjects: tuple[str, ...], tree: bool, python: str, root: str | None, **shown: Any) -> int:
    paths = [os.path.abspath(subject) if "/" in subject else subject for subject in subjects]
    host = Host(root or "/", python=query(python) if python else None)
    with ProgressLine() as progress:
        resolution = resolve(host, paths, with_files=tree, progress=progress)
    formats.show(resolution, {"table": _table}, **shown)
    return CODES[resolution.verdict]


def _table(resolution: Resolution, page: Page) -> str:
    lines: list[str] = []
    for package in resolution.packages:
        lines += _lines(package, page)
    return "\n".join(lines)


def _lines(package: PackageLoading, page: Page) -> list[str]:
    sign, plain, colour = _SIGNS[package.verdict]
    name = f"{package.name} {package.version}".strip()
    note = f" after `import {', '.join(package.after)}`" if package.after else ""
    lines = [f"{page.styled(page.sign(sign, plain), colour)} {name} {package.verdict}{note}"]
    for fault in (*package.faults, *package.fallbacks):
        lines += _fault(fault)
    for file in package.files:
        lines.append(f"    {file.path}")
        lines += [f"        {need.name} => {need.path or 'not found'} ({need.step})" for need in file.needs]
    return lines


def _fault(fault: Fault) -> list[str]:
    lines = [f"    {fault.message}"]
    lines += [f"      {' -> '.join(fault.path)}"] * (len(fault.path) > 1)
    lines += [f"      {fault.cause}"] * bool(fault.cause) + [f"      {fault.hint}"] * bool(fault.hint)
    return lines + [f"      $ {fault.command}"] * bool(fault.command)
