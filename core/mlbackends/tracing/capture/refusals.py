"""What of a capture's question has no answer, told before anything is written or run."""

import re
import warnings
from collections.abc import Mapping

from mlbackends.model.errors import BadInput

TRACE = "MLBACKENDS_TRACE_FILE"
"""The variable that a traced command finds: where its trace goes."""

# Python knows these, and oneDNN, whose expressions are ECMAScript's, does not.
_PYTHONS_OWN = re.compile(r"(?<!\\)\(\?[^:=!]")


def require_sound(output: str, components: str, environment: Mapping[str, str]) -> None:
    """Raise BadInput where a trace could not come, whatever the command does."""
    if not output:
        raise BadInput("no file is named for the trace")
    if output == "-":
        raise BadInput(
            "the trace cannot go to standard output: that is the command's own",
            "name a file, or /dev/stderr; a file of that name is ./-",
        )
    if other := environment.get(TRACE, ""):
        raise BadInput(
            f"this already runs under `backends trace`, which writes to {other}",
            "one capture takes both libraries: backends trace all",
        )
    _require_expression(components)


def _require_expression(components: str) -> None:
    """Refuse what oneDNN would take no notice of: it then prints as if there were no filter."""
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(components)
    except re.error as error:
        problem = str(error)
    else:
        own = _PYTHONS_OWN.search(components)
        problem = f"oneDNN knows no {own[0]}" if own else ""
    if problem:
        raise BadInput(f"components is no regular expression: {components!r}: {problem}")
