"""Show the switches of torch.backends: their values, where these come from, and what reads them.

A switch has the same name here, in files and for `backends run`, which carries switches into a program
that uses torch. In Python it is the same below mlbackends as below torch.backends: an attribute
(cudnn.benchmark), a function (cuda.enable_flash_sdp()), an argument of set_flags() and flags() (nnpack),
or nothing, if a library reads a variable when it is loaded (mkl.num_threads). `backends explain
NAME` shows which.

A switch starts from its environment variable, else from the file that MLBACKENDS_FLAGS names, else
from its default.

Examples:
  backends flags list                     every switch
  backends flags list cudnn --changed     those of cuDNN that differ from their default
  backends flags get cuda.matmul.allow_tf32
  backends flags env --flags run.toml     the variables with the same effect
  backends flags check run.toml
"""

import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from mlbackends.base.errors import BadInput, shown
from mlbackends.base.shells import SHELLS, assignment, own_shell
from mlbackends.host.files import named_bytes
from mlbackends.inject import requested
from mlbackends.sdpa.avoiding import known_wrong_kinds, torch_reports
from mlbackends.sdpa.rules.environment import basis
from mlbackends.sdpa.switches import SWITCHES as ATTENTION
from mlbackends.switches import files as flag_files
from mlbackends.switches import store
from mlbackends.switches.cells import refuse_contradictions
from mlbackends.switches.files import as_data
from mlbackends.switches.files import settings as settings_of
from mlbackends.switches.listing import installed_torch, lacking
from mlbackends.switches.startup import as_error
from mlbackends.switches.table import SWITCHES
from mlbackends_cli import exits, formats
from mlbackends_cli.lazy import FolderGroup
from mlbackends_cli.options import OUTPUT, completing, format_option, option, together
from mlbackends_cli.output import json_line, log, write
from mlbackends_cli.terminal import page
from mlbackends_cli.text.plain import log_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


command = FolderGroup(__name__, name="flags")


#: Completes the name of a switch.
complete = completing(lambda: SWITCHES)


def complete_setting(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete a switch's name, and behind the = its values."""
    from click.shell_completion import CompletionItem

    del ctx, param
    name, sign, _ = incomplete.partition("=")
    completions = {f"{switch.name}=": switch.doc for switch in SWITCHES.values() if not switch.read_only}
    if sign:
        kind = SWITCHES[name].kind if name in SWITCHES else None
        words = () if getattr(kind, "name", "") == "order" else getattr(kind, "words", ())
        words = ("true", "false") if getattr(kind, "name", "") == "bool" else words
        completions = {f"{name}={word}": "" for word in words}
    return [
        CompletionItem(text, help=about) for text, about in completions.items() if text.startswith(incomplete)
    ]


#: The options for the values of switches; for `apply`.
with_values = together(
    option("--flags files FILE.toml", "Apply the switches of this file first (repeatable).", many=True),
    option(
        "--set settings NAME=VALUE",
        "Assume that NAME is set to VALUE (repeatable).",
        many=True,
        shell_complete=complete_setting,
    ),
)


def environment_problems() -> list[str]:
    """Return what is wrong with the variables of this environment, a sentence each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return store.problems()


def apply(files: tuple[str, ...], settings: tuple[str, ...]) -> None:
    """Apply the switches of files and options; print a line for each invalid variable."""
    for problem in environment_problems():
        log(problem)
    if files or settings:
        refuse_contradictions(requested(settings, files))  # as `backends run` does
        for path in files:
            store.load_file(path)
        store.assume(settings_of(settings))


@command.command("get")
@click.argument("name", shell_complete=complete)
@option("--origin", "Print the origin of the value instead of the value.")
@with_values
def get(name: str, origin: bool, files: tuple[str, ...], settings: tuple[str, ...]) -> int:
    """Print one bare value: text as it is, everything else as JSON.

    Exit 1 if there is no value: an older switch that cannot express the setting of fp32_precision.

    Examples:
      backends flags get cudnn.benchmark
    """
    apply(files, settings)
    try:
        value = store.read(name)
    except RuntimeError as error:
        log(str(error))
        return exits.NO
    shown = store.origin(name) if origin else as_data(SWITCHES[name], value)
    write(shown if isinstance(shown, str) else json_line(shown))
    return exits.YES


@command.command("check")
@click.argument("files", metavar="[FILE.toml]...", nargs=-1)
def check(files: tuple[str, ...]) -> int:
    """Check files of switches, - for standard input; without FILE, the variables of this environment.

    Exit 2 at the first file with an unknown name or value; the message has the line and the nearest name. A
    variable that torch would ignore with a warning is an error here.

    Examples:
      backends flags check run.toml
      make-flags | backends flags check -
      backends flags check               the variables of this environment
    """
    for path in files:
        if path == "-":
            path = "standard input"
            data = named_bytes("-", flag_files.LIMIT, "file of switches", path)
            _print(path, flag_files.switches(data, path))
        else:
            _print(path, flag_files.read(path))
    if not files:
        if problems := environment_problems():
            raise BadInput(as_error(problems))
        _print("this environment", store.environment())
    return exits.YES


def _print(name: str, values: Mapping[str, object]) -> None:
    count = len(values)
    word = "switch" if count == 1 else "switches"
    write(log_line(f"{name}: {count} {word}, all right"))
    for switch, value in (
        (SWITCHES[switch_name], value) for switch_name, value in values.items() if switch_name in SWITCHES
    ):
        if switch.needed_torch(value) and (torch := lacking(switch, value, installed_torch())):
            log(f"{switch.name}={value} needs torch {switch.needed_torch(value)}; installed here is {torch}")


def _avoid_known_wrong(device: str) -> dict[str, str]:
    """Switch off the kinds of attention that compute wrong numbers; return the variables for the rest."""
    variables: dict[str, str] = {}
    kinds, reports = known_wrong_kinds(device), torch_reports(device)
    for report in reports:
        variables |= report.variables
        is_avoided = report.variables or kinds.intersection(report.backends)
        left = "" if is_avoided else f"; no variable avoids it: {report.instead}"
        log(f"{report.source}: {report.title}{left}")
    if not reports:
        log(f"no report of wrong numbers is about this device; {basis(installed_torch())}")
    for kind, name in ATTENTION.items():
        if kind.name in kinds:
            store.write(name, False)
    return variables


@command.command("env")
@format_option(
    also=("shell", "dotenv"),
    default="shell",
    about="shell is for eval, dotenv for docker --env-file.",
)
@option("--shell", "shell", one_of=SHELLS)
@with_values
@option(
    "--avoid-known-wrong",
    "Also switch off what is known to compute wrong numbers with this torch on this machine.",
)
@option("--device NAME", "With --avoid-known-wrong: the device of another machine, such as h100.")
@OUTPUT
def env(
    form: str,
    shell: str | None,
    files: tuple[str, ...],
    settings: tuple[str, ...],
    avoid_known_wrong: bool,
    device: str,
    output: str,
) -> int:
    """Print the variables that reproduce the current state; nothing if everything is at its default.

    Those named TORCH_..., OMP_NUM_THREADS and so on are read by torch and the libraries themselves.
    Those named MLBACKENDS_... are read by mlbackends, and `backends run` carries them into torch.

    Examples:
      eval "$(backends flags env --set cudnn.benchmark=true)"
      backends flags env --shell powershell | Out-String | Invoke-Expression
      backends flags env --shell cmd > env.cmd
      backends flags env --flags run.toml --format dotenv > run.env
    """
    apply(files, settings)
    if device and not avoid_known_wrong:
        raise BadInput("--device goes with --avoid-known-wrong")
    others = _avoid_known_wrong(device) if avoid_known_wrong else {}
    variables = store.environment() | others
    if form == "shell":
        if not shell and os.name == "nt":
            import psutil

            names = []
            with suppress(psutil.Error, OSError):  # one of them has ended
                names = [parent.name() for parent in psutil.Process().parents()]
            shell = own_shell(names, os.environ)
        shell = shell or "sh"
        lines = [assignment(name, text, shell) for name, text in variables.items()]
        if shell == "cmd":  # which would print each command that it reads from a file
            lines = [f"@{line}" for line in lines]
        write("\n".join(lines), output)
    elif form == "dotenv":
        for name, text in variables.items():
            if not text.isprintable():
                raise BadInput(
                    f"{name} is {shown(text)}, which a dotenv file cannot express",
                    "--format shell or json can",
                )
        write("\n".join(f"{name}={text}" for name, text in variables.items()), output)
    else:
        write(formats.text(form, "record", variables, page("auto", output)), output)
    return exits.YES
