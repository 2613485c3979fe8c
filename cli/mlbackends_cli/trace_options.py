"""What the commands below `backends trace` have in common: their group, options and kinds of values."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mlbackends.model import registry
from mlbackends.model.errors import UnknownName
from mlbackends_cli.options import COLOR

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VIEWS = tuple(name for name in registry.names("mlbackends.tracing.views") if name != "diff")
Command = Callable[..., Any]
FIELDS = """\b
Fields, for --where and --group-by:
  kind tracer source prefix clock raw key event cache operation shape dtype
  asked implementation isa slow_path format component engine primitive
  propagation memory_descriptors attributes auxiliary problem routine
  partition partition_kind data_formats logical_tensors fpmath_mode scratchpad
  backend who reason place level text topic version line_number process thread
  start_ns duration_ns flops bytes gflops gigabytes_per_second executed nested
  counted workspace_query, and entries of tables: arguments.m state.CNR
  facts.threading values.isa
"""


class NearestGroup(click.Group):
    """A group that answers an unknown command with the nearest one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a word that is none is most likely meant as what is to be run."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            error = UnknownName(f"{ctx.info_name} command", args[0], tuple(self.commands))
            if "did you mean" not in error.hint:
                error.hint += f"; to run a command: backends trace all -- {args[0]} ..."
            raise error
        return super().resolve_command(ctx, args)


def ratio(text: str) -> float:
    """Return how many times as long: 1.1 for "1.1" and "10%"."""
    try:
        found = 1 + float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither a ratio such as 1.1 nor a share such as 10%"
        ) from None
    if text.lstrip().startswith("-"):
        raise click.BadParameter(f"{text} is below nothing; give how much slower: 10%, or 1.1")
    return found


def share(text: str) -> float:
    """Return a part of the whole: 0.01 for "0.01" and "1%"."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither a part such as 0.01 nor a share such as 1%"
        ) from None


def _complete_fields(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Complete the last field of a list."""
    del ctx, param
    from click.shell_completion import CompletionItem

    from mlbackends.tracing.fields import NAMES

    before, comma, last = incomplete.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{name}") for name in sorted(NAMES) if name.startswith(last)
    ]


WHERE = click.option(
    "--where",
    "wheres",
    metavar="EXPRESSION",
    multiple=True,
    help="Only what this holds for, such as 'operation=matmul and duration_ns>20us' or"
    " 'shape~64x64'. Given again, all must hold.",
)


def _joined(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str:
    """Return the fields of all --group-by as one list."""
    del ctx, param
    if not all(value.strip(" ,") for value in values):
        raise click.BadParameter("nothing to group by; give fields such as operation,shape")
    return ",".join(values)


GROUP_BY = click.option(
    "--group-by",
    metavar="FIELD,...",
    multiple=True,
    callback=_joined,
    shell_complete=_complete_fields,
    help="What calls are put together by: tracer, operation, shape, implementation, dtype, isa,"
    " thread, process, source, arguments.m and so on. Given again, by all of them. Forward and backward"
    " of one shape are together unless `asked` or `propagation` is given too.",
)
SKIP_FIRST = click.option(
    "--skip-first",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Leave out the first N executions of each call in each process, and in each thread where"
    " the trace tells them: the warm-up.",
)
TOP = click.option(
    "--top",
    type=click.IntRange(min=0),
    default=None,
    metavar="N",
    help="So many rows at most; 0 is all.  [default: 20 in tables, else all]",
)


def capture_options(*, of_onednn: bool) -> Callable[[Command], Command]:
    """Give a command the options of a capture; MKL has no level to choose."""

    def decorated(function: Command) -> Command:
        options = [*_CAPTURE, *(_ONEDNN if of_onednn else ())]
        function = click.argument(
            "command_line", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED
        )(function)
        for option in reversed(options):
            function = option(function)
        return function

    return decorated


_CAPTURE = (
    click.option(
        "-o",
        "--output",
        metavar="FILE",
        default="backends-trace.log",
        show_default=True,
        help="Where the trace goes, one line a call as the library prints it; it is replaced.",
    ),
    click.option("--append", is_flag=True, help="Add to FILE, do not replace it."),
    click.option(
        "--rank-env",
        "rank_variables",
        metavar="NAME,...",
        default="",
        help="Variables that hold a rank, the first that is set counts: OMPI_COMM_WORLD_RANK,"
        " PMI_RANK, SLURM_PROCID, RANK. Each rank gets a file of its own, FILE.rank0.log and so on.",
    ),
    click.option(
        "--summary",
        "said",
        type=click.Choice(["none", "short", "full"]),
        default="short",
        show_default=True,
        help="What to print to standard error at the end; full has findings and refusals too.",
    ),
    click.option(
        "--live",
        is_flag=True,
        help="Show a running table at the bottom of the terminal, while COMMAND prints above it. Not for"
        " programs that take the whole screen, as editors do: they draw over it.",
    ),
    click.option(
        "--separation",
        type=click.Choice(["auto", "preload", "terminal", "pipe", "none"]),
        default="auto",
        show_default=True,
        help="How trace lines are kept out of COMMAND's output: by a small library that is preloaded"
        " into it, or by passing its output through a terminal or a pipe. With none, and for oneDNN,"
        " they stay in it.",
    ),
    COLOR,
)
_ONEDNN = (
    click.option(
        "--level",
        type=click.Choice(["exec", "create", "dispatch", "all"]),
        default="create",
        show_default=True,
        help="What oneDNN tells: exec, what ran; create, what was made for it too; dispatch, and why"
        " faster implementations refused (long); all, and checks and warnings.",
    ),
    click.option(
        "--components",
        metavar="REGEX",
        default="",
        help="Only these parts of oneDNN, such as 'matmul|graph' (3.3 and newer).",
    ),
    click.option(
        "--timestamps/--no-timestamps",
        default=True,
        show_default=True,
        help="Have oneDNN tell when each call began.",
    ),
)
