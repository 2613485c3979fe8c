"""Measure how fast this machine is: arithmetic, memory, matrix products, attention and a disk.

All are timed in turn, in several rounds; a speed is the upper quartile of its rounds. Nothing is compared:
`backends fleet run -- bench --quick` finds the slow ones of many nodes. If the machine was busy, throttled or
without its CPUs (steal time), it is reported as disturbed. The disk's file has at most 64 MiB and no name; it
is not written if less than 1 GiB is free. GPUs and PCIe are not measured. Exit 3 if a speed was not measured.

Examples:
  backends bench
  backends bench --quick --disk /scratch
  backends bench --quick --format json
  backends fleet run --hosts @compute -- bench --quick
"""

from mlbackends.base.errors import counted
from mlbackends.bench import bench
from mlbackends.model.machine_speed import Figure, MachineSpeed
from mlbackends_cli import exits, formats
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import TypedPath, option, written
from mlbackends_cli.output import refuse_unwritable
from mlbackends_cli.terminal import Page, ProgressLine
from mlbackends_cli.text.layout import Cell, lines, wrapped
from mlbackends_cli.text.plain import one_line

#: The number of rounds, and the limit in seconds.
_USUAL, _QUICK = (15, 60.0), (5, 10.0)


@documented()
@option("--quick", "Fewer rounds: at most 10 s.")
@option(
    "--disk folder DIR",
    "Measure the disk of this folder.  [default: that of temporary files]",
    usual="",
    kind=TypedPath(),
)
@written(also=("table",))
def command(quick: bool, folder: str, form: str, output: str, color: str) -> int:
    refuse_unwritable(output)
    with exits.cleared_up(), ProgressLine(lambda done, total, _: f"{done} of {total} rounds") as progress:
        found = bench(*(_QUICK if quick else _USUAL), folder, progress)
    formats.show(found, {"table": text}, form=form, output=output, color=color)
    return exits.YES if all(figure.value for figure in found.figures) else exits.UNKNOWN


def text(found: MachineSpeed, page: Page) -> str:
    """Return a table of the speeds, and below it what disturbed the machine."""
    heads = ("", "speed", "spread", "calls", "how, and what limits it")
    rows = [[Cell(head, "dim") for head in heads], *map(_row, found.figures)]
    found_lines = [*lines(rows, page, indent=0)]
    work = f"{counted(found.threads, 'thread')}, {counted(found.rounds, 'round')} in {found.seconds:.1f} s"
    about = f"{one_line(found.processor)}, {work}"
    found_lines += ["", *wrapped(about, page.width)]
    for reason in found.disturbed:
        disturbed = wrapped(f"disturbed: {reason.message}", page.width)
        found_lines += [page.styled(line, "yellow") for line in disturbed]
    return page.fitted("\n".join(found_lines)) + "\n"


def _row(figure: Figure) -> list[Cell]:
    if figure.value is None:
        why = figure.reason.message if figure.reason else ""
        missing = Cell(f"not measured: {one_line(why)}", "yellow")
        return [Cell(figure.name), Cell("–", "dim"), Cell(""), Cell(""), missing]
    speed, spread = f"{figure.value:.4g} {figure.unit}", f"{figure.spread or 0:.1%}"
    how = "; ".join(filter(None, (one_line(figure.by), figure.limited_by)))
    texts = (figure.name, speed, spread, str(figure.repetitions), how)
    return [*map(Cell, texts)]
