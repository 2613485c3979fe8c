"""Make the man pages, completion scripts and type stubs from the code itself.

python man/generate.py                list the files in git that would change
python man/generate.py --write        write them
python man/generate.py --check        exit 1 if one is stale or left over
python man/generate.py --into FOLDER  write every man page into FOLDER, the tables of section 7 too

The pages of commands, completions and stubs are in git. The tables of section 7 are made with a wheel;
`backends schema NAME` prints a JSON Schema, and `backends explain` the pages of deviations and device kinds.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlbackends.audit.policy import language as policy
from mlbackends.base import registry
from mlbackends.base.reasons import shared_codes
from mlbackends.base.version import __version__
from mlbackends.host.declared import facts_of
from mlbackends.switches.deviations import DEVIATIONS
from mlbackends.switches.table import SWITCHES, of_module
from mlbackends_cli import exits
from mlbackends_cli.commands import completion
from mlbackends_cli.lazy import Command
from mlbackends_cli.main import main as group
from mlbackends_cli.report.commands import explain

sys.path.insert(0, str(Path(__file__).parent))
import stubs

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]

ENVIRONMENT = {
    "NO_COLOR": "Any text: no colour, unless --color=always.",
    "FORCE_COLOR, CLICOLOR_FORCE": "Anything but empty or 0: colour, also into a pipe.",
    "CLICOLOR, TERM": "CLICOLOR=0 or TERM=dumb: no colour.",
    "COLUMNS": "The width of the page, where standard output is no terminal.",
    "LD_LIBRARY_PATH, LD_PRELOAD": "Searched as the loader does, and reported where they shadow a copy.",
    "CONDA_PREFIX, CUDA_HOME, CUDA_PATH, CUDNN_PATH, ROCM_PATH, ...": "Folders that are searched too.",
}
FILES = {
    "/proc, /sys": "What the kernel exports; most facts come from there.",
    "/etc/ld.so.cache": "The loader's cache, in which libraries are looked for.",
    "*.dist-info": "What Python packages say of themselves; none is imported.",
    "DIR/host.json": "With --root: the environment, uname and other answers of a recorded machine.",
}


def escaped(text: str) -> str:
    """Return text that roff prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("\t", "    ")
    return "\n".join(f"\\&{line}" if line[:1] in ".'" else line for line in text.splitlines())


def paragraphs(text: str) -> Iterator[str]:
    r"""Yield the paragraphs of a help text; one that click's \\b opens keeps its lines."""
    for block in inspect.cleandoc(text.replace("\f", "")).split("\n\n"):
        lines = block.splitlines()
        if lines and lines[0].strip() == "\b":
            yield ".nf\n" + escaped("\n".join(lines[1:])) + "\n.fi"
        else:
            yield escaped(" ".join(line.strip() for line in lines))


def definitions(rows: dict[str, str]) -> list[str]:
    """Return a list of terms and what they mean."""
    lines = []
    for term, text in rows.items():
        lines += [".TP", f".B {escaped(term)}", escaped(text) or "\\&"]
    return lines


def page(command: click.Command, context: click.Context) -> str:
    """Return the man page of a command, section 1."""
    name = context.command_path.replace(" ", "-")
    summary = command.get_short_help_str(200).rstrip(".")
    lines = [
        '.\\" Made by man/generate.py from the command itself; change the command.',
        f'.TH {name.upper()} 1 "" "backends {__version__}" "User Commands"',
        ".SH NAME",
        f"{escaped(name)} \\- {escaped(summary)}",
        ".SH SYNOPSIS",
        ".nh\n.ad l",
        f".B {escaped(context.command_path)}",
        # A line may end between the words of a choice.
        escaped(" ".join(command.collect_usage_pieces(context))).replace("|", "|\\:"),
        ".ad b\n.hy",
        ".SH DESCRIPTION",
        "\n.PP\n".join(paragraphs(command.help or "")),
        ".SH OPTIONS",
    ]
    assert isinstance(command, Command)
    sections = command.option_sections(context)
    for heading, rows in sections.items():
        lines += [f".SS {escaped(heading)}"] if len(sections) > 1 else []
        lines += definitions(dict(rows))
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for sub in command.list_commands(context):
            below = command.get_command(context, sub)
            assert below is not None
            lines += [
                ".TP",
                f".BR {escaped(f'{name}-{sub}')} (1)",
                escaped(below.get_short_help_str(200)),
            ]
    lines += [
        ".SH EXIT STATUS",
        *definitions({str(code): text for code, text in exits.MEANINGS.items() if code <= exits.UNKNOWN}),
    ]
    if name == "backends":
        others = {str(code): text for code, text in exits.MEANINGS.items() if code > exits.UNKNOWN}
        lines += definitions(others)
    else:
        lines += [".PP", ".BR backends (1)", "has those of signals and errors."]
    lines += [".SH ENVIRONMENT", *definitions(ENVIRONMENT), ".SH FILES", *definitions(FILES)]
    examples = [part for part in (command.epilog or "").split("\n\n") if "Examples:" in part]
    for text in examples:
        lines += [
            ".SH EXAMPLES",
            ".nf",
            escaped(inspect.cleandoc(text.split("Examples:\n")[1])),
            ".fi",
        ]
    pages = [
        "backends",
        *(f"backends-{command_name}" for command_name in group.list_commands(context)),
    ]
    also = [f".BR {escaped(other)} (1)" for other in pages if other != name]
    lines += [
        ".SH SEE ALSO",
        ",\n".join([*also, ".BR backends\\-facts (7)", ".BR backends\\-flags (7)"]),
    ]
    return "\n".join(lines) + "\n"


def facts_page() -> str:
    """Return backends-facts(7): every dotted name, and every reason code."""
    lines = [
        '.\\" Made by man/generate.py from the probes; change them.',
        f'.TH BACKENDS-FACTS 7 "" "backends {__version__}" "Miscellaneous"',
        ".SH NAME",
        "backends\\-facts \\- every dotted name that a report can hold",
        ".SH DESCRIPTION",
        "Each name works in",
        ".B backends info \\-\\-get",
        "and",
        ".BR \\-\\-require .",
        "Below every probe stand also presence, version, libraries, devices, reasons, warnings,",
        "failure and source, such as cudnn.version or nvidia.devices.0.name. Below a list, a name is a",
        "number, the first value of a row (limits.threads_expected.OpenMP.cpus) or a column",
        "(nvidia.devices.name).",
        "The word in brackets is the role: a fact is compared, a metric is compared after rounding,",
        "an identity is hidden by \\-\\-redact, and what is volatile is never compared.",
    ]
    codes = shared_codes()
    for name in registry.names("mlbackends_probes"):
        probe = registry.load("mlbackends_probes", name)
        lines.append(f".SH {escaped(name)}")
        first, *rest = inspect.cleandoc(probe.__doc__ or "").split("\n\n")
        lines.append(escaped(" ".join(first.split())))
        for block in rest:
            lines += definitions(definitions_in(block)) or [".PP", escaped(" ".join(block.split()))]
        rows = {
            f"{name}.{fact}": f"{declared.doc} [{declared.role}]" for fact, declared in facts_of(name).items()
        }
        lines += definitions(rows)
        codes.update(getattr(probe, "CODES", {}))
    lines += [".SH REASONS", *definitions(dict(sorted(codes.items())))]
    lines += [".SH SEE ALSO", ".BR backends (1),\n.BR backends\\-info (1)"]
    return "\n".join(lines) + "\n"


def flags_page() -> str:
    """Return backends-flags(7): every switch, its variable, its default, and who reads it."""
    lines = [
        '.\\" Made by man/generate.py from core/mlbackends/switches/table.py; change that.',
        f'.TH BACKENDS-FLAGS 7 "" "backends {__version__}" "Miscellaneous"',
        ".SH NAME",
        "backends\\-flags \\- every switch of torch.backends that mlbackends has",
        ".SH DESCRIPTION",
        "Each name works in",
        '.BR "backends flags" ,',
        "in",
        '.BR "backends run \\-\\-set" ,',
        "and in a TOML file. In Python the line",
        ".I in Python",
        "says how it is set: most are attributes below mlbackends, some are functions as in torch.backends,",
        "NNPACK's is set by set_flags() and flags(), and what a library reads when it is loaded has a",
        "variable alone. An assignment to a name that is not an attribute reports what to use.",
        ".PP",
        "A variable that begins with MLBACKENDS_ is read by mlbackends and by what backends run starts;",
        "every other one is read by torch or the library itself.",
        ".PP",
        "Values hold for the whole process, for all of its threads. What is set in Python comes before the",
        "environment, that before the file that MLBACKENDS_FLAGS names, and that before the default.",
    ]
    for module in dict.fromkeys(switch.module for switch in SWITCHES.values()):
        lines.append(f".SH {escaped(module or 'mlbackends')}")
        for switch in of_module(module):
            passage = explain.switch(switch)
            about = [f"{term} {text}" for term, text in passage.lines if term]
            lines += [".TP", f".B {escaped(switch.name)}", escaped(switch.doc), ".br"]
            lines.append(escaped(" · ".join(about)))
    lines += [".SH SEE ALSO", ".BR backends\\-flags (1),\n.BR backends\\-run (1)"]
    return "\n".join(lines) + "\n"


def policy_page() -> str:
    """Return backends-policy(7): every table and key of a policy file."""
    lines = [
        '.\\" Made by man/generate.py from core/mlbackends/audit/policy/language.json; change that.',
        f'.TH BACKENDS-POLICY 7 "" "backends {__version__}" "Miscellaneous"',
        ".SH NAME",
        "backends\\-policy \\- what is expected of a machine, in TOML",
        ".SH DESCRIPTION",
        ".B backends audit \\-\\-policy FILE",
        "holds a machine to a policy. Nothing in a policy is ever run.",
        ".SH NAMES OF VALUES",
        *definitions(policy.NAMES),
        ".SH SHORT FORM",
        *definitions(policy.SHORT_FORM),
        ".PP",
        "The word each, any or none before it says of how many values it must be true; the default is each.",
    ]
    heads = {"": "THE FILE", "rule": "[[RULE]]", "waive": "[[WAIVE]]", "hazards": "[HAZARDS]"}
    heads |= {"expected": "THE FILE OF \\-\\-EXPECTED", "accepted": "[[WAIVE]] OF \\-\\-EXPECTED"}
    for table, keys in (policy.TABLES | policy.EXPECTED).items():
        lines.append(f".SH {heads[table]}")
        for key in keys:
            takes = " or ".join(key.words) or policy.KINDS[key.kind].words
            needed = " Required." if key.required else ""
            lines += definitions({key.name: f"{key.doc}{needed} Takes {takes}."})
    lines += [".SH SEE ALSO", ".BR backends\\-audit (1),\n.BR backends\\-facts (7)"]
    return "\n".join(lines) + "\n"


def deviations_page() -> str:
    """Return backends-deviations(7): where mlbackends and torch.backends differ."""
    lines = [
        '.\\" Made by man/generate.py from core/mlbackends/switches/deviations.toml; change that.',
        f'.TH BACKENDS-DEVIATIONS 7 "" "backends {__version__}" "Miscellaneous"',
        ".SH NAME",
        "backends\\-deviations \\- where mlbackends and torch.backends differ",
        ".SH DESCRIPTION",
        escaped(DEVIATIONS_HEAD),
    ]
    for deviation in DEVIATIONS:
        lines += [
            f".SH {escaped(deviation.code)}",
            *definitions(dict(explain.deviation(deviation).lines)),
        ]
    lines += [".SH SEE ALSO", ".BR backends\\-explain (1),\n.BR backends\\-flags (7)"]
    return "\n".join(lines) + "\n"


DEVIATIONS_HEAD = (
    "Names, signatures, defaults and exceptions of mlbackends are those of torch.backends in torch 2.15,"
    " but for what stands here. A test compares both and fails for a difference that is not listed, and"
    " for one that is listed and no longer there."
)


def definitions_in(block: str) -> dict[str, str]:
    """Return the definitions in a probe's docstring by word, "Finds" and so on; {} for another paragraph.

    A line that does not begin with a word and a colon continues the one before it.
    """
    found: dict[str, str] = {}
    for line in block.splitlines():
        if match := re.match(r"([A-Z][a-z]+):\s+", line):
            found[match[1]] = line[match.end() :]
        elif found:
            word = next(reversed(found))
            found[word] += f" {line.strip()}"
        else:
            return {}
    return found


def pages(command: click.Command, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of a command's page, and of all below it."""
    settings = {**command.context_settings, "terminal_width": 100}
    context = click.Context(command, parent, command.name, **settings)
    yield f"{context.command_path.replace(' ', '-')}.1", page(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            below.name = name
            yield from pages(below, context)


def kept() -> dict[str, str]:
    """Return the generated files that are in git, by path in the repository."""
    made = {f"man/{name}": text for name, text in pages(group)}
    for shell in completion.SHELLS:
        made[f"man/completions/backends.{shell}"] = completion.script(shell)
    return made | stubs.stubs()


def tables() -> dict[str, str]:
    """Return the pages of section 7, by file name."""
    return {
        "backends-facts.7": facts_page(),
        "backends-flags.7": flags_page(),
        "backends-policy.7": policy_page(),
        "backends-deviations.7": deviations_page(),
    }


def main(arguments: list[str] | None = None) -> int:
    """Compare, and write where asked to."""
    parser = argparse.ArgumentParser(description="Make the generated files; say which would change.")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--write", action="store_true", help="write them")
    modes.add_argument("--check", action="store_true", help="exit 1 where one is stale or left over")
    modes.add_argument("--into", type=Path, metavar="FOLDER", help="write every man page there")
    options = parser.parse_args(arguments)
    if options.into:
        options.into.mkdir(parents=True, exist_ok=True)
        for name, text in {**dict(pages(group)), **tables()}.items():
            (options.into / name).write_text(text, encoding="utf-8")
        return 0
    made = kept()
    there = {f"man/{path.name}" for path in (ROOT / "man").glob("*.[1-9]")}
    there |= {f"core/{path.relative_to(ROOT / 'core')}" for path in (ROOT / "core").rglob("*.pyi")}
    changed = [
        path
        for path, text in made.items()
        if not (ROOT / path).is_file() or (ROOT / path).read_text(encoding="utf-8") != text
    ]
    left_over = sorted(there - made.keys())
    for path in [*changed, *left_over]:
        sys.stderr.write(f"{path}: {'left over' if path in left_over else 'stale'}\n")
    if options.write:
        for path in changed:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(made[path], encoding="utf-8")
        for path in left_over:
            (ROOT / path).unlink()
        return 0
    return 1 if options.check and (changed or left_over) else 0


if __name__ == "__main__":
    registry.GROUPS.clear()  # the files are about our own entries, not what other distributions add
    sys.exit(main())
