"""Time backends and peers on a grid of problems, in alternating rounds and separate processes.

The table has the median time with the middle half of the calls, the share of the machine's measured peak
and bandwidth, and the speed ratios between backends, round by round. If the speed of a
machine changes, only these ratios are reliable. While one backend is timed, the processes of the others are
stopped. A round in which threads waited for a CPU is repeated; times that remain unstable are marked with ~
and not compared. Results are also compared with float64. Exit 1
if a result is wrong, a backend crashed, or --fail-below applies; exit 3 if unstable times leave
that open, or if no backend ran for one of the problems. With --device cuda, CUDA events measure the
time; our CUDA backends have not run on a GPU yet.

Examples:
  backends sdpa bench --shape 2,8,1024,64 --peers
  backends sdpa bench --shape 1,8,512,64 --shape 1,8,1024,64 --shape 1,8,2048,64 --peers --plot speed.svg
  backends sdpa bench --shape 2,8,1024,64 --dtype float32,bfloat16 --format json --output then.json
  backends sdpa bench --shape 1,8,1024,64 --backward --backend flash_cpu --backend torch_flash
  backends sdpa bench --from then.json --plot
  backends sdpa bench --from then.json --format html --output then.html
  backends sdpa bench --problems tests/problems/issue.txt --compare then.json --fail-below 0.9
"""

from functools import partial
from typing import Any

import click

from mlbackends.base.errors import BadInput
from mlbackends.model.benched import Benched
from mlbackends.sdpa.verify import speed
from mlbackends.sdpa.verify.processes import Plan
from mlbackends.sdpa.verify.run import bench
from mlbackends_cli import exits, formats
from mlbackends_cli.attention import chart as attention
from mlbackends_cli.attention import page as attention_page
from mlbackends_cli.attention import tables
from mlbackends_cli.attention.options import (
    complete_backend,
    refuse_beside_saved,
    run_options,
    wordings_of,
)
from mlbackends_cli.charts import plot, svg
from mlbackends_cli.exits import cleared_up
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import option, written
from mlbackends_cli.output import refuse_unwritable, write
from mlbackends_cli.terminal import ProgressLine, page


@documented()
@run_options(1, 11, 120.0)
@option("--against NAME", "against", usual="", shell_complete=complete_backend)
@option("--plot plots [FILE.svg|FILE.png]", "plot", many=True, is_flag=False, flag_value="")
@option("--compare then FILE", "Compare with a run that was saved by --format json.", usual="")
@option("--fail-below RATIO", "fail-below", usual=0.0, kind=click.FloatRange(min=0, max=100))
@written(also=("table", "markdown", "html"))
def command(
    against: str,
    plots: tuple[str, ...],
    saved: str,
    then: str,
    fail_below: float,
    form: str,
    output: str,
    color: str,
    **options: Any,
) -> int:
    run: Benched | None = None
    if saved:
        refuse_beside_saved(options)
        run = speed.read_saved(saved, Benched)
        texts = [problem.checked.text for problem in run.problems]
    else:
        wordings = wordings_of(options)
        texts = [wording.text for wording in wordings]
    if fail_below and not then:
        raise BadInput("--fail-below compares with a saved run", "add --compare FILE")
    files = [path for path in plots if path]
    # A table and plots of characters are one text; every other output needs its own file.
    is_one = form == "table" or "" not in plots
    refuse_unwritable(*([] if is_one else ["-"]), output or "-", *files)
    drawings = {path: svg.drawing(path, attention.sheet) for path in files}  # what cannot be drawn fails now
    before = speed.read_saved(then, Benched, texts) if then else None
    if run is None:
        plan = Plan(also=(against,) if against else (), **options)
        with (
            cleared_up(),
            ProgressLine(lambda done, total, problem: f"{done} of {total}  {problem}") as progress,
        ):
            run = bench(wordings, plan, progress)
    run = speed.compared(run, before) if before else run
    base = against or tables.baseline(run)
    style = page(color, output)
    own = {
        "table": partial(tables.bench_text, base=base),
        "markdown": partial(tables.bench_markdown, base=base),
        "html": partial(attention_page.bench_page, base=base),
    }
    text = formats.text_of(form, run, style, **own)
    drawn = plot.printed(attention.plots(run), style) if "" in plots else ""
    write(f"{text}\n{drawn}" if drawn and is_one else text, output)
    if drawn and not is_one:
        write(drawn)
    for path, draw in drawings.items():
        write(draw(run), path)
    changes = [change for problem in run.problems for change in problem.changes]
    good = all(problem.checked.good for problem in run.problems)
    slower = any((change.by_share or change.by_time) < fail_below for change in changes)
    if slower or not good:
        return exits.NO
    timings = [result.timing for problem in run.problems for result in problem.checked.results]
    unstable = any(timing.unstable for timing in timings if timing is not None)
    is_idle = any(problem.checked.idle for problem in run.problems)
    return exits.UNKNOWN if is_idle or (fail_below and unstable) else exits.YES
