"""Compute a problem with every backend that supports it: is it correct, how fast, how much memory.

Each backend runs in a separate process, so that a crash or a hang is only a row of the table. Its
result is compared with plain attention in float64. The limit of the error is the backend's tolerance (see
`backends sdpa list`) times the error of plain attention in the same dtype, plus rounding: 4 units in
the last place of the largest number in float32 and float64, 1 in float16 and bfloat16. In float64, where
plain attention is the exact result, the limit is 4 such units plus the rounding error of the largest
log-sum-exp. Backends are timed in turn, together with multiply-adds that need no memory; their speed is the
peak. With --backward, each gradient is compared as well, relative to the largest number in the
subtraction that it results from, and only the backward pass is timed: five products instead of two.
Exit 0 if all backends that ran are within their tolerance and the required ones ran, else 1; exit 3 if
no backend ran for one of the problems. Our CUDA backends have not run on a GPU yet: with --device cuda,
your numbers are the first.

Examples:
  backends sdpa check --shape 2,8,1024,64
  backends sdpa check --shape 2,8,1024,64 --dtype float32,bfloat16 --mask none,causal,bool --peers
  backends sdpa check --shape 1,8,512,64 --mask float --mask-gradient --require math
  backends sdpa check --problems tests/problems/small.txt --rounds 0 --format junit --output sdpa.xml
  backends sdpa check --shape 1,8,512,64 --device cpu:avx2 --require flash_cpu
  backends sdpa check --known-wrong --peers
  backends sdpa check --shape 2,8,1024,64 --peers --format json --output then.json
  backends sdpa check --from then.json --format html --output then.html
"""

from typing import Any

from mlbackends.model.checked import Checked
from mlbackends.sdpa.verify.outcome import outcome_of
from mlbackends.sdpa.verify.processes import Plan
from mlbackends.sdpa.verify.run import check
from mlbackends.sdpa.verify.speed import read_saved
from mlbackends_cli import exits, formats
from mlbackends_cli.attention import page as attention_page
from mlbackends_cli.attention import tables
from mlbackends_cli.attention.options import (
    backend_option,
    refuse_beside_saved,
    run_options,
    wordings_of,
)
from mlbackends_cli.exits import cleared_up
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import option, written
from mlbackends_cli.output import refuse_unwritable, write
from mlbackends_cli.report.judgement import write_outcome
from mlbackends_cli.terminal import ProgressLine, page


@documented()
@run_options(0, 7, 60.0)
@option(
    "--known-wrong",
    "Also compute a problem of each public report of wrong numbers that is about this torch and this device.",
)
@backend_option("Exit 1 unless this backend computes every problem correctly.", "--require required NAME")
@written("outcome", about="How to print it; a format for CI has whether each is right, and no more.")
def command(saved: str, form: str, output: str, color: str, **options: Any) -> int:
    if saved:
        refuse_beside_saved(options)
        checked = read_saved(saved, Checked)
    else:
        wordings = wordings_of(options)
        refuse_unwritable(output)
        with (
            cleared_up(),
            ProgressLine(
                lambda done, total, problem: f"{done} of {total} checked, computing {problem}"
            ) as progress,
        ):
            checked = check(wordings, Plan(**options), progress)
    style = page(color, output)
    own = {
        "table": tables.check_text,
        "markdown": tables.check_markdown,
        "html": attention_page.check_page,
    }
    if form in own or formats.has(form, "record"):
        write(formats.text_of(form, checked, style, **own), output)
    else:
        write_outcome(outcome_of(checked), form, output, style)
    if not all(problem.good for problem in checked.problems):
        return exits.NO
    return exits.UNKNOWN if any(problem.idle for problem in checked.problems) else exits.YES
