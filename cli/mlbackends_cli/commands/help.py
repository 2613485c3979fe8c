"""Show the help of a command, as its --help does.

--man shows the manual page of this installation; `man` itself finds it only if the folder of the
environment's commands is on PATH. On Windows, which has no man, the page is printed as text. Section 7
has the pages facts, flags, policy and deviations.

--skill prints what an assistant should know to use this tool, as a skill in Markdown: save it as
SKILL.md in a folder of its skills.

Examples:
  backends help                the list of commands
  backends help info
  backends help trace show     a command of a group
  backends help --man facts    the manual page with the name of every value
  backends help --skill        for assistants
"""

import os
import shlex

import click

import mlbackends_cli
from mlbackends.base.errors import BadInput
from mlbackends_cli import exits
from mlbackends_cli.lazy import FolderGroup, contexts, documented
from mlbackends_cli.options import option
from mlbackends_cli.output import write, write_paged
from mlbackends_cli.terminal import page
from mlbackends_cli.text.plain import wrapped

_UNQUOTED = (("\\&", ""), ("\\-", "-"), ("\\e", "\\"))


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete by the commands of the group that is named so far."""
    del param
    found = contexts(ctx.find_root().command, ctx.params.get("names") or ())[-1]
    names = found.command.list_commands(found) if isinstance(found.command, FolderGroup) else []
    return [name for name in names if name.startswith(incomplete)]


def _open_manual(names: tuple[str, ...]) -> int:
    """Open the installed pages of that name with man; returns its exit code."""
    import subprocess
    from importlib.metadata import PackageNotFoundError, files

    name = "-".join(("backends", *names))
    try:
        installed = files("mlbackends") or ()
    except PackageNotFoundError:
        hint = f"write `{' '.join(('backends help', *names))}`"
        raise BadInput("mlbackends is not installed, so there are no manual pages", hint) from None
    found = [
        os.path.realpath(file.locate())
        for file in installed
        if file.stem == name and file.parent.name.startswith("man")
    ]
    if not found:
        raise BadInput(f"manual page {name} not found", "`backends help` lists the commands")
    if os.name == "nt":  # where no man is
        for path in found:
            with open(path, encoding="utf-8") as file:
                write_paged(plain_manual(file.read(), page("auto").width))
        return exits.YES
    try:
        return subprocess.run(["man", *found], check=False).returncode
    except FileNotFoundError:
        equivalent = " ".join(("backends help", *names))
        hint = f"the page is {found[0]}; or write `{equivalent}`"
        raise BadInput("the program man is not installed", hint) from None


@documented()
@click.argument("names", metavar="[COMMAND]...", nargs=-1, shell_complete=_complete)
@option("--man", "Show the manual page instead.")
@option("--skill", "Print a skill for assistants instead.")
@click.pass_context
def command(ctx: click.Context, names: tuple[str, ...], *, man: bool, skill: bool) -> int:
    if skill:
        with open(
            os.path.join(os.path.dirname(mlbackends_cli.__file__), "SKILL.md"), encoding="utf-8"
        ) as file:
            write(file.read())
        return exits.YES
    if man:
        return _open_manual(names)
    *above, found = contexts(ctx.find_root().command, names)
    if rest := list(names[len(above) :]):
        if isinstance(found.command, FolderGroup):
            found.command.resolve_command(found, rest)  # raises, with the nearest
        path = found.command_path
        hint = f"write `backends help {path.partition(' ')[2]}`"
        raise BadInput(f"`{path}` has no subcommands", hint)
    write_paged(found.get_help())
    return exits.YES


def plain_manual(roff: str, width: int) -> str:
    """Return a manual page with the macros of man/generate.py as text of at most `width` columns."""
    lines: list[str] = []
    words, indent, is_literal, is_term = "", "  ", False, False

    def end_paragraph() -> None:
        nonlocal words
        lines.extend(wrapped(words.strip(), width, indent, indent))
        words = ""

    for line in roff.splitlines():
        macro, _, rest = line.partition(" ") if line[:1] == "." else ("", "", line)
        text = _unquoted(rest)
        if macro in ("", ".B", ".I", ".BR"):
            if macro == ".BR":  # its arguments alternate between fonts, without blanks
                text = "".join(_unquoted(word) for word in shlex.split(rest.replace("\\", "\\\\")))
            if is_literal:
                lines.append(f"{indent}{text}")
            elif is_term:
                lines.append(f"  {text}")
                is_term = False
            else:
                words += f" {text}"
            continue
        end_paragraph()
        if macro in (".SH", ".SS"):
            lines += ["", text if macro == ".SH" else f" {text}"]
        if macro in (".SH", ".SS", ".PP"):
            indent = "  "
        if macro == ".PP":
            lines.append("")
        if macro == ".TP":
            indent, is_term = "      ", True
        if macro in (".nf", ".fi"):
            is_literal = macro == ".nf"
    end_paragraph()
    return "\n".join(lines).strip("\n") + "\n"


def _unquoted(text: str) -> str:
    for written, character in _UNQUOTED:
        text = text.replace(written, character)
    return text
