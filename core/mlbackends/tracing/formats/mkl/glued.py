"""A call's line that a program's text follows without a line's end: where the state in it ends.

    ... CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:2Epoch 1
    ... CNR:OFF Dyn:1 FastMM:1Epoch 1                     the sequential and TBB layers

The state is an open list, so a text that would go on with it cannot be told apart: more digits, a comma,
a blank and a word that is the last or has a colon, and any blank where no NThr is. Such a line is read as
longer than it is, or left unread.
"""

import re
from itertools import islice

from mlbackends.model.trace import AnyRecord, MklCall
from mlbackends.tracing.formats.mkl import grammar

_STATE = re.compile(
    r" CNR:\S++ Dyn:\d(?: FastMM:\d)?+"
    r"(?: +TID:\d++ +NThr:\d++(?:,[A-Z]++:\d++)*+(?! +[A-Za-z_]\w*+(?:$|:))|(?! ))"
    r"(?=[^\d,])",
    re.DOTALL | re.ASCII,
)
_MOST_TRIED = 8


def split(line: str) -> tuple[AnyRecord, str] | None:
    """Return the record of the call that a line begins with and the text behind it, None if untold."""
    for found in islice(_STATE.finditer(line), _MOST_TRIED):
        record = grammar.parse(line[: found.end()])
        if isinstance(record, MklCall):
            return record, line[found.end() :]
    return None
