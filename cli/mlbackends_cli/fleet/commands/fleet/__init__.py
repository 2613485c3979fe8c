"""Compare many machines: which differ, how, which are unhealthy, and which did not report.

Nothing is started here: Slurm, clush, pdsh, mpirun, Ansible, kubectl or a folder of files bring the
reports, and these commands read them. `backends info --format frame` on the nodes prints lines that
survive when output is cut or mixed; reports as JSON are read too, with the labels of any of these tools.

Examples:
  srun -N8 --ntasks-per-node=1 backends info --format frame | backends fleet summarize --expect 8
  clush -w @compute backends info --format frame | backends fleet summarize --expect @compute
  backends fleet summarize reports/            a folder with one report per node
  backends fleet facts nvidia.version reports/
  backends fleet diff before.json after.json   which nodes an upgrade did not reach
  backends fleet history kept/                 what changed when, over the runs of `run --keep kept/`
"""

import datetime as dt
import json
import os
import shlex
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import click

from mlbackends.audit.catalogue import load
from mlbackends.audit.policy import evaluation
from mlbackends.audit.policy.rules import read
from mlbackends.audit.runner import examine
from mlbackends.base import registry
from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.tables import table
from mlbackends.fleet.changes import difference_of
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.engines import record_of
from mlbackends.fleet.expected import Expected, changes_without_expected
from mlbackends.fleet.expected import read as expectations
from mlbackends.fleet.frames import frames
from mlbackends.fleet.groups import facts_of_fleet
from mlbackends.fleet.judging import Judge, fleet_outcome, places_of
from mlbackends_cli import exits, formats
from mlbackends_cli.fleet import text as fleets
from mlbackends_cli.fleet.actions import ACTIONS, health_of
from mlbackends_cli.fleet.sources import EXPECT, HELP, OUTCOME, collected, reading
from mlbackends_cli.lazy import FolderGroup
from mlbackends_cli.options import TypedPath, option, timeout_option, together, written
from mlbackends_cli.output import write
from mlbackends_cli.report.judgement import EXPECTED, HAZARDS, POLICIES, finish
from mlbackends_cli.report.judgement import code as exit_code

command = FolderGroup(__name__, name="fleet")


COMMAND = click.argument(
    "command_line",
    metavar="[COMMAND...]",
    nargs=-1,
    type=click.UNPROCESSED,
    # click keeps a leading "--" after another argument
    callback=lambda _ctx, _param, words: words[1:] if words[:1] == ("--",) else words,
)


def root_command() -> click.Command:
    """Return the whole command line, of which the running command is a part."""
    return click.get_current_context().find_root().command


def as_json(words: Sequence[str], program: click.Command) -> tuple[str, ...]:
    """Return a command of `program` with --format json after its name; `info` if there are no words.

    Raises UnknownName for an unknown command, and BadInput for a command that cannot print JSON.
    """
    words = tuple(words) or ("info",)
    at, found = _name_in(words, program)
    name = " ".join(words[:at])
    options = words[at:][: words[at:].index("--")] if "--" in words[at:] else words[at:]
    if any(option.partition("=")[0] == "--format" for option in options):
        raise BadInput("nodes always print JSON; remove --format from their command")
    choices = [
        choice
        for option in (found.params if found else ())
        if option.name == "form" and isinstance(option.type, click.Choice)
        for choice in option.type.choices
    ]
    if "json" not in choices:
        hint = "info, doctor, audit, sdpa check, sdpa bench and others do"
        raise BadInput(f"`backends {name}` has no --format json, which a node must print", hint)
    return (*words[:at], "--format", "json", *words[at:])


def of_python(words: Sequence[str], program: click.Command, python: str) -> tuple[str, ...]:
    """Return a command with --python, if it has this option and its words do not choose what is inspected."""
    words = tuple(words) or ("info",)
    at, found = _name_in(words, program)
    typed = {word.partition("=")[0] for word in words[at:]}
    if found is None or typed & {"--python", "--pid", "--root"}:
        return words
    has = any(option.name == "python" for option in found.params)
    return (*words[:at], *(("--python", python) if has else ()), *words[at:])


def _name_in(words: Sequence[str], program: click.Command) -> tuple[int, click.Command | None]:
    """Return the number of words that name a command, and the command. Raises UnknownName."""
    found: click.Command | None = program
    at = 0
    with click.Context(program, info_name="backends", color=False) as context:
        while isinstance(found, FolderGroup) and at < len(words):
            _, found, _ = found.resolve_command(context, list(words[at:]))[0:3]
            at += 1
    return at, found


#: The options that name a cluster with workers.
CLUSTER = together(
    option("--ray [ADDRESS]", "Run on a Ray cluster.", is_flag=False, flag_value="auto"),
    option("--dask ADDRESS", "Run on the Dask cluster with the scheduler at this address."),
    option("--engine NAME[=ADDRESS]", "Run on another engine, which a package provides."),
)


def named(engine: str | None, **asked: str | None) -> list[tuple[str, str]]:
    """Return the engines that are asked for, and their addresses. asked: the address of each, or None.

    Raises BadInput where there are several.
    """
    name, _, where = (engine or "").partition("=")
    every = {**asked, name: where if engine else None}
    found = [(node, address) for node, address in every.items() if address is not None]
    if len(found) > 1:
        raise BadInput(f"name one engine, not {' and '.join(name for name, _ in found)}")
    return found


def loaded(name: str) -> ModuleType:
    """Import an engine. Raises UnknownName, and BadInput if it cannot be imported."""
    module = registry.load("mlbackends.fleet.engines", name)
    if error := registry.import_error(module):
        raise BadInput(f"the engine {name} cannot be imported: {type(error).__name__}: {error}")
    if not callable(getattr(module, "run", None)):
        raise BadInput(f"the engine {name} cannot be used: it defines no function `run`")
    return module


def _finished(judge: Judge, collection: Collection, expected: Expected, **written: Any) -> int:
    """Write the outcome of all nodes; return the exit code: 3 where a node of a summary was not judged."""
    outcome = fleet_outcome(judge, collection, expected)
    form, fail_on = written["form"], written["fail_on"]
    judged = {node for _, nodes in judge.outcomes.values() for node in nodes}
    if form in ACTIONS:
        silent = [node for nodes in collection.all_silent().values() for node in nodes]
        silent += [node for node in collection.nodes if node not in judged]
        health = health_of(judge.by_code(expected), silent, outcome.kind, fail_on)
        write(ACTIONS[form](health), written["output"])
        code = exit_code(outcome, fail_on=fail_on, strict=written["strict"])
    else:
        code = finish(outcome, **written)
    is_whole = bool(collection.nodes) and judged.issuperset(collection.nodes)
    return code if code != exits.YES or is_whole else exits.UNKNOWN


@command.command("audit")
@reading
@POLICIES
@EXPECTED
@OUTCOME
def audit(
    sources: tuple[str, ...], expect: str, policies: tuple[str, ...], expected: str | None, **written: Any
) -> int:
    """Check the nodes of a fleet against a policy, and show on which of them a rule fails.

    The policy is checked once for each distinct configuration; backends-policy(7) describes the language.
    A node without a report could not be checked: --strict then exits 3. So does a stored summary, which
    holds no reports, and a fleet in which no node reported, without --strict. SOURCE is what
    `backends fleet summarize` reads.

    Examples:
      backends fleet audit reports/ --policy gpu.toml
      backends fleet audit reports/ --policy gpu.toml --expect 'node[001-064]' --strict
      backends fleet audit reports/ --policy gpu.toml --format sarif --output fleet.sarif
    """
    if not policies:
        raise BadInput("no policy: name one with --policy FILE")
    rules = [read(path) for path in policies]
    accepted = expectations(expected, "rule", "hazard")
    today = dt.datetime.now().astimezone().date()
    judge = Judge(lambda report: evaluation.audit(rules, report, today), places_of(rules))
    return _finished(judge, collected(sources, expect, judge.visit), accepted, **written)


@command.command("doctor")
@reading
@HAZARDS
@EXPECTED
@OUTCOME
def doctor(
    sources: tuple[str, ...],
    expect: str,
    only: tuple[str, ...],
    ignore: tuple[str, ...],
    expected: str | None,
    **written: Any,
) -> int:
    """Find known problems on the nodes of a fleet, and the nodes that have them.

    Each hazard is looked for once per distinct configuration, and is reported with its number of nodes.
    A node without a report could not be checked: --strict then exits 3. So does a stored summary, which
    holds no reports, and a fleet in which no node reported, without --strict. `backends explain CODE`
    describes a finding. SOURCE is what `backends fleet summarize` reads.

    Examples:
      backends fleet doctor reports/
      backends fleet doctor reports/ --only nvidia-fabric-manager
      backends fleet doctor reports/ --expected expected.toml   what is accepted does not fail
      backends fleet doctor reports/ --format slurm             the commands that drain the sick nodes
      backends fleet doctor reports/ --expect 'node[001-064]' --strict --format junit --output fleet.xml
    """
    for code in (*only, *ignore):
        load(code)  # a wrong code is an error before anything is read
    accepted = expectations(expected, "hazard")
    judge = Judge(lambda report: examine(report, only=only, ignored=ignore))
    return _finished(judge, collected(sources, expect, judge.visit), accepted, **written)


@command.command("envelope", context_settings={"allow_interspersed_args": False})
@timeout_option(60.0, "Time limit of the command before it is killed.", most=86400)
@COMMAND
def envelope(timeout: float, command_line: tuple[str, ...]) -> None:
    """Run a command of backends on this node, and print its record as frames.

    COMMAND is one that has --format json, without the word backends: info (the default), doctor, audit,
    sdpa check. It runs in a separate process group, which is killed at --timeout. If the command hangs,
    crashes or prints something else, the envelope reports that. The exit code is 0 even then, so that one
    failing node does not end the job of the others.

    Examples:
      backends fleet envelope
      srun -N8 --ntasks-per-node=1 backends fleet envelope -- doctor | backends fleet summarize --expect 8
    """
    program = (sys.executable, "-P", "-m", "mlbackends", *as_json(command_line, root_command()))
    write("".join(f"{line}\n" for line in frames(record_of(program, timeout))))


ENGINES = ("slurm", "clush", "pdsh", "mpi", "ansible", "kubernetes", "ray", "dask")


@command.command("recipe", context_settings={"allow_interspersed_args": False})
@click.argument("engine", metavar="ENGINE", type=click.Choice(ENGINES))
@COMMAND
def recipe(engine: str, command_line: tuple[str, ...]) -> None:
    """Print the pipeline that does on an engine what backends fleet run does, to type or to change.

    ENGINE is slurm, clush, pdsh, mpi, ansible, kubernetes, ray or dask. COMMAND is a command of backends that
    has --format json, without that option; info by default.

    Examples:
      backends fleet recipe slurm
      backends fleet recipe kubernetes -- doctor
    """
    as_json(command_line, root_command())  # refuses what nodes cannot run
    text: str = table(os.path.join(os.path.dirname(__file__), "recipes.toml"))[engine]
    words = ["backends", "fleet", "envelope", *(["--", *command_line] if command_line else [])]
    text = text.lstrip("\n").replace("{command}", shlex.join(words))
    write(text.replace("{words}", json.dumps(words)))


@command.command("diff")
@click.argument("old", type=TypedPath())
@click.argument("new", type=TypedPath())
@EXPECTED
@option("--fail-on", HELP["diff_fail_on"], usual="change", one_of=["change", "left-behind", "never"])
@option("--all details", "Show every fact and every node.")
@written(also=("table", "markdown"))
def diff(old: str, new: str, expected: str | None, fail_on: str, details: bool, **written_to: Any) -> int:
    """Show what changed on a fleet from OLD to NEW, and which nodes were left behind.

    OLD and NEW are what `backends fleet summarize` reads, one file or folder each; best what it wrote with
    --format json. Facts that changed on the same nodes are one change. A node is left behind if most nodes
    that had the same old value have a new one, as after a rolling upgrade that did not reach it.

    Examples:
      backends fleet diff before.json after.json
      backends fleet summarize reports/ --format json --output before.json
      backends fleet diff before.json after/ --fail-on left-behind
    """
    accepted = expectations(expected, "fact")
    difference = difference_of(collected([old]), collected([new]), (old, new))
    difference = changes_without_expected(difference, accepted)
    formats.show(difference, fleets.forms(fleets.changes_parts), details=details, **written_to)
    behind = bool(difference.silent) or any(change.left_behind for change in difference.changes)
    changed = behind or bool(difference.changes or difference.new)
    if {"change": changed, "left-behind": behind}.get(fail_on):
        return exits.NO
    return exits.YES if difference.nodes else exits.UNKNOWN


@command.command("facts")
@click.argument("words", metavar="NAME [SOURCE]...", nargs=-1, type=TypedPath())
@option("--differing", "Show every fact that has several values; no NAME.")
@EXPECT
@option("--all details", "Show every node.")
@written(also=("table", "markdown"))
def facts(words: tuple[str, ...], differing: bool, expect: str, details: bool, **written_to: Any) -> None:
    """Show how many nodes have which value of a fact, the rarest first.

    NAME is a dotted name such as nvidia.version; a name includes all names below it, as
    packages.distributions does; or a glob such as '*.version'. --differing shows every fact that has several
    values. SOURCE is what `backends fleet summarize` reads: - or nothing for standard input, files, folders.

    Examples:
      backends fleet facts nvidia.version reports/
      backends fleet facts packages.distributions.torch fleet.json
      backends fleet facts --differing reports/
    """
    if not (words or differing):
        raise BadInput("no fact: name one, such as nvidia.version", "--differing shows all that differ")
    names, sources = ((), words) if differing else (words[:1], words[1:])
    is_path = bool(names) and os.path.exists(names[0])
    hint = f"name the fact first, as in nvidia.version {names[0]}, or --differing" if names else ""
    if is_path and not sources:
        raise BadInput(f"{names[0]} is a file or folder, not the name of a fact", hint)
    collection = collected(sources, expect)
    try:
        record = facts_of_fleet(collection, names)
    except UnknownName as error:
        if not is_path:
            raise
        raise BadInput(f"{error}; {names[0]} is a file or folder", hint) from None
    formats.show(record, fleets.forms(fleets.facts_parts), details=details, **written_to)
