"""Show the switches of torch.backends: what they are, where from, and who obeys them."""

from typing import TYPE_CHECKING, Any

import click

from mlbackends.model import registry
from mlbackends_cli import exits
from mlbackends_cli.options import COLOR, OUTPUT

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

    from mlbackends.model.switches import Switch, Switches
    from mlbackends_cli.listing import Listing


def _complete(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    del ctx, param
    from click.shell_completion import CompletionItem

    from mlbackends.switches.table import FLAGS

    return [CompletionItem(name) for name in FLAGS if name.startswith(incomplete)]


def _with_values(command: "Callable[..., Any]") -> "Callable[..., Any]":
    """Add the options that say what the switches are to be taken for."""
    file = click.option(
        "--flags",
        "files",
        metavar="FILE.toml",
        multiple=True,
        help="Take the switches of a file first.",
    )
    one = click.option(
        "--set", "settings", metavar="NAME=VALUE", multiple=True, shell_complete=_complete,
        help="Take one switch for set to VALUE.",
    )  # fmt: skip
    return file(one(command))


@click.group(
    "flags",
    epilog="""\b
Examples:
  backends flags list                     every switch
  backends flags list cudnn --changed     those of cuDNN that are not at their default
  backends flags get cuda.matmul.allow_tf32
  backends flags env --flags run.toml     the variables that say the same
  backends flags check run.toml
""",
)
def command() -> None:
    """Show the switches of torch.backends: what they are, where from, and who obeys them.

    Each has one name here, in files and for `backends run`, which carries them into a program that uses
    torch. In Python it is below mlbackends what it is below torch.backends: an attribute
    (cudnn.benchmark), a function (cuda.enable_flash_sdp()), the work of set_flags() and flags() (nnpack),
    or nothing, where a library reads a variable when it is loaded (mkl.num_threads). `backends explain
    NAME` says which.

    A switch starts from its environment variable, else from the file that MLBACKENDS_FLAGS names, else
    from its default.
    """


@command.command(
    "list",
    epilog="""\b
Examples:
  backends flags list
  backends flags list cuda.matmul mkldnn
  backends flags list --changed
  backends flags list --format json | jq '.flags[] | select(.origin != "default")'
""",
)
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=_complete)
@click.option("--changed", is_flag=True, help="Only those that are not at their default.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "jsonl", "markdown"]),
    default="table",
    show_default=True,
    help="How to print them.",
)
@_with_values
@OUTPUT
@COLOR
def list_command(
    names: tuple[str, ...],
    changed: bool,
    form: str,
    files: tuple[str, ...],
    settings: tuple[str, ...],
    output: str,
    color: str,
) -> int:
    """List switches: value, origin, and who obeys each.

    NAME is a switch, or what several begin with: cudnn, cuda.matmul. What is printed is what a Python
    process started here would see. The values of JSON are typed; null stands for what the library
    itself chooses.
    """
    from msgspec.structs import replace

    from mlbackends.switches import listing
    from mlbackends_cli.output import write
    from mlbackends_cli.terminal import page

    _take(files, settings)
    switches = listing.listing(names)
    if changed:
        kept = tuple(each for each in switches.flags if each.origin != "default")
        switches = replace(switches, flags=kept)
    if form in ("json", "jsonl"):
        write(_json(switches, form), output)
    else:
        style = page(color, to_file=output not in ("", "-"))
        write(
            registry.load("mlbackends_cli.render", form).listing(_listing(switches, names), style),
            output,
        )
    return exits.YES


@command.command("get", epilog="\b\nExamples:\n  backends flags get cudnn.benchmark\n")
@click.argument("name", shell_complete=_complete)
@click.option("--origin", is_flag=True, help="Print where the value comes from, not the value.")
@_with_values
def get(name: str, origin: bool, files: tuple[str, ...], settings: tuple[str, ...]) -> int:
    """Print one bare value: text as it is, everything else as JSON.

    Exit 1 where it has no value: an older switch that has no word for what fp32_precision says.
    """
    import msgspec

    from mlbackends.switches import files as flag_files
    from mlbackends.switches import store
    from mlbackends.switches.table import FLAGS
    from mlbackends_cli.output import write

    _take(files, settings)
    try:
        value = store.read(name)
    except RuntimeError as error:
        click.echo(f"backends: {error}", err=True)
        return exits.NO
    shown = store.origin(name) if origin else flag_files.as_data(FLAGS[name], value)
    write(shown if isinstance(shown, str) else msgspec.json.encode(shown).decode())
    return exits.YES


@command.command(
    "env",
    epilog="""\b
Examples:
  eval "$(backends flags env --set cudnn.benchmark=true)"
  backends flags env --flags run.toml --format dotenv > run.env
""",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["shell", "dotenv", "json"]),
    default="shell",
    show_default=True,
    help="shell is for eval, dotenv for docker --env-file.",
)
@_with_values
@OUTPUT
def env(form: str, files: tuple[str, ...], settings: tuple[str, ...], output: str) -> int:
    """Print the variables that reproduce the current state; nothing where all is at its default.

    Those named TORCH_..., OMP_NUM_THREADS and so on are read by torch and the libraries themselves.
    Those named MLBACKENDS_... are read by mlbackends, and carried into torch by `backends run`.
    """
    import shlex

    from mlbackends.model.errors import BadInput, shown
    from mlbackends.switches import store
    from mlbackends_cli.output import indented, write

    _take(files, settings)
    variables = store.environment()
    if form == "json":
        write(indented(variables), output)
    elif form == "shell":
        lines = [f"export {name}={shlex.quote(text)}" for name, text in variables.items()]
        write("\n".join(lines), output)
    else:
        for name, text in variables.items():
            if not text.isprintable():
                raise BadInput(
                    f"{name} is {shown(text)}, which a dotenv file cannot say",
                    "--format shell or json can",
                )
        write("\n".join(f"{name}={text}" for name, text in variables.items()), output)
    return exits.YES


@command.command(
    "check",
    epilog="""\b
Examples:
  backends flags check run.toml
  make-flags | backends flags check -
  backends flags check               the variables of this environment
""",
)
@click.argument("files", metavar="[FILE.toml]...", nargs=-1)
def check(files: tuple[str, ...]) -> int:
    """Check files of switches, - for standard input; without FILE, this environment's variables.

    Exit 2 at the first file with an unknown name or value, which is told with its line and the nearest
    name. A variable that torch would ignore with a warning is an error here too.
    """
    import sys
    import warnings

    from mlbackends.model.errors import BadInput
    from mlbackends.switches import files as flag_files
    from mlbackends.switches import store
    from mlbackends.switches.startup import as_error

    for path in files:
        if path == "-":
            path = "standard input"
            data = sys.stdin.buffer.read(_MOST) if sys.stdin else b""
            count = len(flag_files.switches(data, path))
        else:
            count = len(flag_files.read(path))
        click.echo(f"{path}: {count} {'switch' if count == 1 else 'switches'}, all right")
    if not files:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problems = store.problems()
        if problems:
            raise BadInput(as_error(problems))
        count = len(store.environment())
        click.echo(f"this environment: {count} {'switch' if count == 1 else 'switches'}, all right")
    return exits.YES


def _take(files: tuple[str, ...], settings: tuple[str, ...]) -> None:
    """Take the switches for what files and options say, and say in one line what is wrong with variables."""
    import warnings

    from mlbackends.switches import store

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problems = store.problems()
    for problem in problems:
        click.echo(f"backends: {problem}", err=True)
    if files or settings:
        from mlbackends.inject import requested
        from mlbackends.switches.cells import refuse_contradictions
        from mlbackends.switches.files import settings as settings_of

        refuse_contradictions(requested(settings, files))  # as `backends run` does
        for path in files:
            store.load_file(path)
        store.take(settings_of(settings))


def _json(switches: "Switches", form: str) -> str:
    import msgspec

    from mlbackends_cli.output import indented

    if form == "jsonl":
        return "\n".join(msgspec.json.encode(each).decode() for each in switches.flags)
    return indented(switches)


_SPLIT_K = "_split_k"
_MOST = (1 << 20) + 1
"""So much of standard input is read: a byte more than a file of switches may have."""


def _listing(switches: "Switches", names: tuple[str, ...]) -> "Listing":
    """Group the switches by module; whether split-K is allowed stands on the line of what sets it.

    It has a line of its own where it is asked for by its whole name: that is too long for others.
    """
    from mlbackends_cli.listing import Group, Listing

    split_k = {
        each.name: each.value
        for each in switches.flags
        if each.name.endswith(_SPLIT_K) and each.name not in names
    }
    flags = [each for each in switches.flags if each.name not in split_k]
    modules = dict.fromkeys(each.name.rpartition(".")[0] for each in flags)
    groups, marked = [], set()
    for at, module in enumerate(modules):
        own = [each for each in flags if each.name.rpartition(".")[0] == module]
        marked |= {(at, number) for number, each in enumerate(own) if each.origin != "default"}
        rows = tuple(_row(each, split_k.get(each.name + _SPLIT_K, True)) for each in own)
        groups.append(Group(module or "mlbackends", rows, f"{module}." if module else ""))
    notes = [each.problem for each in switches.flags if each.problem]
    if split_k:
        notes.append(
            "The switches that end in _split_k stand on the lines of what sets them; `backends flags"
            " list NAME` shows one alone."
        )
    columns = ("switch", "value", "read by")
    return Listing(columns, tuple(groups), tuple(notes), frozenset(marked))


def _row(switch: "Switch", allows_split_k: bool) -> tuple[str, ...]:
    value = "?" if switch.problem else _shown(switch.value)
    if switch.accepts.startswith("any order"):
        value = value.replace(", ", " → ")
    value += "" if allows_split_k else ", no split-K"
    is_default = switch.origin == "default"
    value += " (default)" if is_default else f" ({switch.origin}; default {_shown(switch.default)})"
    return (switch.name.rpartition(".")[2], value, ", ".join(switch.obeyed_by) or "nobody yet")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return "unset" if value is None else str(value)
