"""Compute a problem with every backend that can: is it right, how fast, and with how much memory.

Each backend runs in a process of its own, so that one that crashes or hangs is a row of the table. Its
result is compared with the one that the plain formula gives in float64. Allowed are its tolerance (see
`backends sdpa list`) times the error of the plain formula in the same type, and beside that 4 units in
the last place of the largest number in float32 and float64, 1 in float16 and bfloat16; in float64, where
the plain formula is the exact one, 4 such units and as many more as the largest log-sum-exp stand for its
error. Backends are timed in turn, and beside them multiply-adds that need no memory, whose speed is the
peak. With --backward, each gradient is compared as well, where the largest number may be one that it is
the difference of; and what is timed is the backward pass alone: five products to the forward's two.
Exit 0 where all that ran are within their tolerance and those that are required ran, else 1; so also 0
where none ran, which the page says: --require asks for one. No backend for CUDA of ours has run on a GPU
yet: with --device cuda, its numbers would be the first.

Examples:
  backends sdpa check --shape 2,8,1024,64
  backends sdpa check --shape 2,8,1024,64 --dtype float32,bfloat16 --mask none,causal,bool --peers
  backends sdpa check --shape 1,8,512,64 --mask float --mask-gradient --require math
  backends sdpa check --problems tests/problems/small.txt --rounds 0 --format junit --output sdpa.xml
  backends sdpa check --shape 1,8,512,64 --device cpu:avx2 --require flash_cpu
  backends sdpa check --shape 2,8,1024,64 --peers --format json --output then.json
  backends sdpa check --from then.json --format html --output then.html
"""

from typing import Any

import click

from mlbackends.model.checked import Checked
from mlbackends.sdpa.verify.outcome import outcome_of
from mlbackends.sdpa.verify.processes import Plan
from mlbackends.sdpa.verify.run import check
from mlbackends.sdpa.verify.speed import read_saved
from mlbackends_cli import exits, formats
from mlbackends_cli.attention import check_table
from mlbackends_cli.attention import page as attention_page
from mlbackends_cli.attention.options import (
    PYTHON,
    SAVED,
    backend_option,
    problem_options,
    refuse_beside_saved,
    rounds_option,
    time_limit,
    wordings_of,
)
from mlbackends_cli.exits import cleared_up
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import COLOR, OUTPUT, format_option
from mlbackends_cli.output import refuse_unwritable, write
from mlbackends_cli.report.judgement import write_outcome
from mlbackends_cli.terminal import ProgressLine, page


def _progress(done: int, total: int, problem: str) -> str:
    return f"{done} of {total} checked, computing {problem}"


@documented()
@problem_options
@backend_option("Run this one alone, or this peer; may be given again.")
@backend_option(
    "Exit 1 unless this one computes every problem, and right.", "--require", "required"
)
@click.option("--peers", is_flag=True, help="Run peers too, each in its own process.")
@PYTHON
@rounds_option(0, 1000, 7, "How often each takes its turn to be timed; 0 for not at all.")
@time_limit(60.0)
@SAVED
@format_option(
    "outcome",
    about="How to print it; a format for CI has whether each is right, and no more.",
)
@OUTPUT
@COLOR
def command(saved: str, form: str, output: str, color: str, **options: Any) -> int:
    if saved:
        refuse_beside_saved(options)
        checked = read_saved(saved, Checked)
    else:
        wordings = wordings_of(options)
        refuse_unwritable(output)
        with cleared_up(), ProgressLine(_progress) as progress:
            checked = check(wordings, Plan(**options), progress)
    style = page(color, output)
    own = {
        "table": check_table.printed,
        "markdown": check_table.markdown,
        "html": attention_page.check_page,
    }
    if form in own or formats.has(form, "record"):
        write(formats.text_of(form, checked, style, **own), output)
    else:
        write_outcome(outcome_of(checked), form, output, style)
    return exits.YES if all(each.good for each in checked.problems) else exits.NO
