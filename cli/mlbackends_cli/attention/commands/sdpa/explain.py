"""Show which backends support a problem, on this machine or another; nothing is computed.

The page has all reasons of all backends, the backend that mlbackends would choose, and torch's choice.
DEVICE need not be present: its rules are data. The switches of torch.backends apply as they are set
in this environment. If one of our CUDA backends supports a problem, that does not mean that it has run
there: none has run on a GPU yet. Exit 0 if one of ours supports every problem, else 1.

Examples:
  backends sdpa explain --shape 2,8,1024,64
  backends sdpa explain --shape 2,8,1024,64 --dtype float16 --causal --device sm80,sm90,gfx942
  backends sdpa explain --shape 2,8,1024,200 --dtype float16 --backward --device sm86
  backends sdpa explain --shape 1,32,1,128 --kv-len 4096 --kv-heads 8 --gqa --format json
"""

from typing import Any

from mlbackends.sdpa import explaining
from mlbackends_cli import exits, formats
from mlbackends_cli.attention import backends
from mlbackends_cli.attention.options import FORMAT, backend_option, problem_options, wordings_of
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import option
from mlbackends_cli.output import write
from mlbackends_cli.terminal import page


@documented()
@problem_options
@backend_option("Explain only this backend of ours (repeatable).")
@backend_option("Exit 1 unless this backend supports every problem.", "--require", "required")
@option("--all details", "Print all reasons, even for many problems.")
@FORMAT
def command(
    names: tuple[str, ...],
    required: tuple[str, ...],
    details: bool,
    form: str,
    output: str,
    color: str,
    **words: Any,
) -> int:
    wordings = wordings_of(words)
    explaining.chosen_backends(required)
    explanation = explaining.explain(wordings, (*names, *required) if names else ())
    style = page(color, output, details=details)
    own = {"table": backends.printed, "markdown": backends.markdown}
    write(formats.text_of(form, explanation, style, **own), output)
    for problem in explanation.problems:
        able = {verdict.backend for verdict in problem.verdicts if verdict.usable}
        if not problem.answered or not able.issuperset(required):
            return exits.NO
    return exits.YES
