"""Run a command with MKL's and oneDNN's tracing on, and read, explain and compare traces."""

from typing import Any

import click

from mlbackends_cli.options import COLOR, OUTPUT
from mlbackends_cli.trace_options import (
    FIELDS,
    GROUP_BY,
    SKIP_FIRST,
    TOP,
    VIEWS,
    WHERE,
    NearestGroup,
    capture_options,
    ratio,
    share,
)

_SETTINGS = {"allow_interspersed_args": False}  # what follows COMMAND is its own


@click.group(
    "trace",
    cls=NearestGroup,
    epilog="""\b
Examples:
  backends trace demo                                what a trace looks like, from a real one
  backends trace onednn -- python train.py           trace, and a summary at the end
  backends trace all -o run.log -- mpirun -n 4 ./solver
  backends trace show run.log --view findings        what to look at
  backends trace diff before.log after.log           exit 1 where something is slower
""",
)
def command() -> None:
    """Run a command with MKL's and oneDNN's tracing on, and read, explain and compare traces.

    Both libraries can print a line for every call that they run. mkl, onednn and all run a command
    and collect these lines in a file, off its own output; show and diff read such files, and any
    log that has the lines among other text, from MKL-DNN 0.x to oneDNN 3.13 and MKL 2019 to 2026.
    In Python, `with mlbackends.trace("onednn") as session:` does the same for a few calls.
    """


_CAPTURE_HELP = """

    COMMAND's input, output, terminal, signals and exit code are its own; nothing but {lines} lines is
    taken out of its output. All processes that it starts are traced too. The summary and what backends
    itself has to say go to standard error. Exit 127 where there is no such command, 126 where it
    cannot be executed, 2 where the trace cannot be written, before COMMAND runs.
"""
_SEPARATED = """
    Where no library can be preloaded (a static or setuid program, macOS), the output passes through
    a terminal, if standard output is one, or a pipe. COMMAND's first program alone decides that: where
    only one that it starts is static, as below a shell, ask for --separation pipe. Through a pipe, a
    program that holds its output back prints it later than it would to a terminal; nothing of it is
    lost. Lines that a program writes past C's printing functions (a shell's printf, coreutils'
    printf) stay in its output; --separation pipe takes them. macOS is not tried yet.
"""


@command.command(
    "mkl",
    context_settings=_SETTINGS,
    help="Run a command with MKL's tracing on." + _CAPTURE_HELP.format(lines="MKL's")
    + "\n    MKL itself appends its lines to the file (2021.4 and newer).\n",
    epilog="""\b
Examples:
  backends trace mkl -- python solve.py
  backends trace mkl -o solve.log --summary full -- ./solver --size 1000
  backends trace mkl --rank-env OMPI_COMM_WORLD_RANK -- mpirun -n 4 ./solver
""",
)  # fmt: skip
@capture_options(of_onednn=False)
def mkl(**options: Any) -> int:
    """Run a command with MKL's tracing on."""
    return _run(("mkl",), **options)


@command.command(
    "onednn",
    context_settings=_SETTINGS,
    help="Run a command with oneDNN's tracing on." + _CAPTURE_HELP.format(lines="oneDNN's") + _SEPARATED,
    epilog="""\b
Examples:
  backends trace onednn -- python train.py
  backends trace onednn --level dispatch --summary full -- python infer.py
  backends trace onednn --live -o train.log -- torchrun --nproc-per-node 2 train.py
""",
)  # fmt: skip
@capture_options(of_onednn=True)
def onednn(**options: Any) -> int:
    """Run a command with oneDNN's tracing on."""
    return _run(("onednn",), **options)


@command.command(
    "all",
    context_settings=_SETTINGS,
    help="Run a command with the tracing of MKL and oneDNN on."
    + _CAPTURE_HELP.format(lines="MKL's and oneDNN's") + _SEPARATED,
    epilog="""\b
Examples:
  backends trace all -- python train.py
  backends trace all --append -o nightly.log --summary none -- pytest tests
""",
)  # fmt: skip
@capture_options(of_onednn=True)
def all_command(**options: Any) -> int:
    """Run a command with the tracing of MKL and oneDNN on."""
    return _run(("mkl", "onednn"), **options)


def _run(tracers: tuple[str, ...], **options: Any) -> int:
    from mlbackends_cli.trace_run import run

    return run(options.pop("command_line"), tracers, options.pop("output"), **options)


@command.command(
    "show",
    epilog="""\b
Examples:
  backends trace show backends-trace.log
  backends trace show run.log.gz --group-by operation,shape --top 10
  backends trace show run.log --view findings --view dispatch
  backends trace show run.log --where 'isa~avx512 and duration_ns>1ms' --view repro
  backends trace show run.log --format perfetto --output run.json   # open in ui.perfetto.dev
  backends trace show run.log --format html --output run.html
  ONEDNN_VERBOSE=2 python train.py | backends trace show -

"""
    + FIELDS,
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--view",
    "views",
    type=click.Choice([*VIEWS, "records"]),
    multiple=True,
    help="summary: which calls took the time; findings: what to look at; dispatch: why faster"
    " implementations refused; timeline: when; repro: how to run a call again; roofline: work"
    " against traffic; records: every line. May be given again.  [default: summary; records for"
    " jsonl, csv, parquet and perfetto]",
)
@GROUP_BY
@click.option(
    "--of",
    type=click.Choice(["work", "creations", "partitions", "all"]),
    default="work",
    show_default=True,
    help="Which calls a summary is of: work is counted once each.",
)
@WHERE
@TOP
@SKIP_FIRST
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "json", "jsonl", "csv", "parquet", "perfetto", "html"]),
    default="table",
    show_default=True,
    help="How to print it. html is one page with all views and plots; perfetto is Chrome's trace.",
)
@OUTPUT
@click.option("--follow", is_flag=True, help="Go on as the file grows, until Ctrl-C.")
@click.option(
    "--list-malformed", is_flag=True, help="Only list the lines that could not be read, and why."
)
@click.option(
    "--this-machine",
    is_flag=True,
    help="The trace is of this machine: findings compare with its processor.",
)
@COLOR
def show(files: tuple[str, ...], *, follow: bool, list_malformed: bool, **options: Any) -> int:
    """Read traces: summary, findings, timeline and more, in many formats.

    FILE is any log that holds lines of MKL or oneDNN, also amid other text, behind ranks' prefixes,
    packed by gzip, xz or zstd, or in UTF-16; - is standard input. Lines that cannot be read are
    counted and never stop it.

    Exit 1 where no line of MKL or oneDNN is there or none fits what is asked for, 3 where a
    file could be read in part only.
    """
    from mlbackends_cli import trace_show

    asked = trace_show.Asked(**options)
    if list_malformed and follow:
        raise click.UsageError("--list-malformed reads to the end of a file: no --follow")
    if list_malformed:
        return trace_show.list_malformed(files, asked.output)
    return trace_show.follow(files, asked) if follow else trace_show.show(files, asked)


@command.command(
    "diff",
    epilog="""\b
Examples:
  backends trace diff before.log after.log
  backends trace diff main.log branch.log --threshold 20% --whole-threshold 5%
  backends trace diff a.log b.log --group-by operation,shape,implementation --measure total
  backends trace diff a.log b.log --format json | jq '.changes[] | select(.verdict=="slower")'
""",
)
@click.argument("before", metavar="BEFORE", type=click.Path())
@click.argument("after", metavar="AFTER", type=click.Path())
@GROUP_BY
@click.option(
    "--measure",
    type=click.Choice(["median", "mean", "min", "total"]),
    default="median",
    show_default=True,
    help="What is compared.",
)
@click.option(
    "--threshold",
    type=ratio,
    default="10%",
    show_default=True,
    metavar="RATIO",
    help="From which on a call is slower: 10%, or 1.1 times as long.",
)
@click.option(
    "--smallest-share",
    type=share,
    default="1%",
    show_default=True,
    metavar="SHARE",
    help="Calls that take less of the time, before and after, are noise.",
)
@click.option(
    "--whole-threshold",
    type=ratio,
    default=None,
    metavar="RATIO",
    help="Fail too where all calls together take so much longer.",
)
@WHERE
@TOP
@SKIP_FIRST
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show the calls too that stayed the same or are noise; the formats for programs always do.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "json", "jsonl", "csv"]),
    default="table",
    show_default=True,
    help="How to print it.",
)
@OUTPUT
@COLOR
def diff(**options: Any) -> int:
    """Compare two traces: what became slower, faster, is new or gone.

    Exit 1 where a call is slower than the thresholds allow, for CI; 3 where nothing could be
    compared, as where no call fits --where, or no call is in both.

    Calls are found again by tracer, operation, shape, dtype and `asked`: what else the program wants, as
    forward or backward, the algorithm, bias, what is fused, the layouts of a reorder, a transposed matrix
    of a product, MKL's words such as N,T. What a library chooses is not in it, so that another
    implementation, or layout of a convolution, shows as a change of the same call. The direction stands
    behind the operation: fwd_t (training), fwd_i (inference), bwd_d (data), bwd_w (weights). A reorder
    into another block is another call.
    """
    from mlbackends_cli.trace_diff import diff as compare

    return compare(**options)


@command.command(
    "demo",
    epilog="""\b
Examples:
  backends trace demo
  backends trace demo onednn -o demo.log
""",
)
@click.argument("tracer", type=click.Choice(["mkl", "onednn", "all"]), default="all")
@click.option("-o", "--output", metavar="FILE", default="", help="Keep the trace in FILE.")
@COLOR
def demo(tracer: str, output: str, color: str) -> int:
    """Trace a few real calls of what is installed, and show what comes.

    It takes the oneDNN and the MKL that it finds, or those inside torch. Exit 1 where neither is here.
    """
    from mlbackends_cli.trace_demo import demo as show_demo

    return show_demo(tracer, output, color)
