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
  backends resolve --why libcudart.so.12      who needs it, and which step finds it
  backends resolve onnxruntime --format json
  backends resolve torch --for h100 --for gb10     whether other machines can run it
  backends resolve --if-installed vllm==0.22     before it is installed; downloads parts of wheels
  backends resolve --lock pylock.toml --for h100
  backends resolve --matrix              every package's GPU code against every chip
"""

import os
from contextlib import suppress

import click
from msgspec.structs import replace

from mlbackends.base.errors import BadInput, Incomplete
from mlbackends.host.host import Host
from mlbackends.host.interpreter import of_process, query
from mlbackends.host.python.packages import python_folders
from mlbackends.loading.before import before
from mlbackends.loading.image import python_below, started_as
from mlbackends.loading.lookup import lookup
from mlbackends.loading.outcome import outcome_of
from mlbackends.loading.packages import resolve
from mlbackends.model.loading import Verdict
from mlbackends_cli import exits, formats
from mlbackends_cli.lazy import documented
from mlbackends_cli.loading.targets import matrix_text, target_machine
from mlbackends_cli.loading.text import table
from mlbackends_cli.options import PID, PYTHON, option, root_option, written
from mlbackends_cli.output import write
from mlbackends_cli.report.judgement import write_outcome
from mlbackends_cli.terminal import ProgressLine, page

#: Options, each with one that would be ignored next to it.
_NOT_WITH = "--root --pid", "--if-installed --lock", "--matrix --why", "--matrix --tree", "--why --tree"
#: Of the other verdicts it is exits.NO.
CODES = {Verdict.LOADS: exits.YES, Verdict.FALLS_BACK: exits.FALLS_BACK, Verdict.UNKNOWN: exits.UNKNOWN}


@documented()
@click.argument("subjects", metavar="[PACKAGE|FILE|DIR]...", nargs=-1)
@option("--why names SYMBOL|LIBRARY", "Show who needs it, and what has it (repeatable).", many=True)
@option(
    "--for machines NAME",
    "Judge for another machine: h100, gfx1151, x86-64-v2, aarch64, glibc-2.31, driver-550 (repeatable).",
    many=True,
)
@option("--matrix", "Show how the GPU code of each package fits each chip; --for chooses the chips.")
@option("--if-installed wanted REQUIREMENT", "Judge the environment with this added (repeatable).", many=True)
@option("--lock FILE", "Judge the packages of a pylock.toml or uv.lock instead.", usual="")
@option("--index URL|DIR", "A package index or a folder of wheels, for --if-installed.", usual="")
@option("--tree", "Show every file that is mapped, and how it is found.")
@option("--all details", "Also list the packages that load, and every fault of the others.")
@PYTHON
@PID
@root_option("Follow the packages of another file system, by its root folder; --python is below it.")
@written("outcome")
def command(
    subjects: tuple[str, ...],
    names: tuple[str, ...],
    machines: tuple[str, ...],
    matrix: bool,
    wanted: tuple[str, ...],
    lock: str,
    index: str,
    tree: bool,
    details: bool,
    python: str,
    pid: int | None,
    root: str | None,
    form: str,
    output: str,
    color: str,
) -> int:
    given = {"--root": root, "--pid": pid, "--python": python, "--if-installed": wanted, "--lock": lock}
    given |= {"--index": index, "--matrix": matrix, "--why": names, "--tree": tree}
    for name, other in map(str.split, _NOT_WITH):
        if given[name] and given[other]:
            raise BadInput(f"{name} cannot be combined with {other}", "leave one of them out")
    if index and not wanted:
        raise BadInput("--index is for --if-installed alone", "add --if-installed REQUIREMENT")
    if (names or tree) and not (form == "table" or formats.has(form, "record")):
        raise BadInput(f"--why and --tree cannot be written as {form}", "use table or json")
    root = root if root and os.path.abspath(root) != "/" else None
    inspected = of_process(pid, 5.0) if pid else None
    process = Host("/", pid=pid)
    notes: tuple[str, ...] = ()
    if root:
        # Files need no Python.
        with suppress(*[Incomplete] * (subjects != () and all("/" in subject for subject in subjects))):
            inspected, notes = python_below(Host(root), python)
    elif python:
        inspected = query(python)
    elif pid and process.platform == "linux" and (process.root or not inspected):
        inspected, notes = python_below(process, started_as(process))
    elif pid and not inspected:
        raise BadInput(f"process {pid} is not a Python interpreter of this user", "name one with --python")
    host = Host(root or "/", pid=pid, python=inspected)
    paths = [os.path.abspath(subject) if "/" in subject and not root else subject for subject in subjects]
    targets = tuple(target_machine(name) for name in machines)
    style = page(color, output, details=details)
    with (
        ProgressLine(lambda done, total, name: f"{done} of {total} followed, now {name}") as progress,
        before(host, paths, wanted, index, lock, targets, progress) as plan,
    ):
        host, whole = plan.host, tree or bool(names)
        if matrix:
            write(matrix_text(host, plan.packages or (), targets, form, style), output)
            return exits.YES
        answer = resolve(host, plan.packages, targets=targets, with_files=whole, progress=progress)
        lookups = tuple(lookup(host, answer.packages, name) for name in names)
        resolution = replace(
            answer, packages=(*plan.lacking, *answer.packages), notes=(*notes, *plan.notes())
        )
    code = CODES.get(resolution.verdict, exits.NO)
    if names:
        code = exits.YES if all(found.definers for found in lookups) else exits.NO
        resolution = replace(resolution, lookups=lookups)
    if form == "table":
        write(table(resolution, style, python_folders(host), tree=tree), output)
    elif formats.has(form, "record"):
        write(formats.text(form, "record", resolution, style), output)
    else:
        write_outcome(outcome_of(resolution), form, output, style)
    return code
