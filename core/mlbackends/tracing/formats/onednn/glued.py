"""A call's line that a program's text follows without a line's end: where the time in it ends.

The time is the line's last word, so what is no number begins the text: `...,0.0123Epoch 1`. What would
go on as a number cannot be told apart: a digit, `.`, `,` or an exponent right behind the time are read as
more of it, or leave the line unread; blanks alone stay with it. Only a whole call up to there counts.
"""

import re
from itertools import islice

from mlbackends.model.trace import AnyRecord, Call
from mlbackends.tracing.formats.onednn import grammar

_TIME = re.compile(r",\d++(?:[.,]\d++)?+(?:e[-+]\d++)?+(?=[^\d.,])(?![eE](?:[-+\d]|$))")
_MOST_TRIED = 32
"""Numbers with a text behind them stand before the time too, but few do: `,64x64,`."""


def split(line: str) -> tuple[AnyRecord, str] | None:
    """Return the record of the call that a line begins with and the text behind it, None if untold."""
    for found in islice(_TIME.finditer(line), _MOST_TRIED):
        record = grammar.parse(line[: found.end()])
        if isinstance(record, Call) and record.duration_ns is not None:
            return record, line[found.end() :]
    return None
