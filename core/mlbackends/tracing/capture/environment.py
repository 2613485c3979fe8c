"""The variables of a traced command: what its libraries want set, what the user has set, and ranks.

Where the user's own settings ask for more lines, or choose among them, that is kept. A launcher such as
mpirun passes each process its rank in a variable; each rank may have its own trace.
"""

import os
import re
from collections.abc import Mapping, Sequence

from mlbackends.base.notices import Notice, warning

_ONEDNN = ("ONEDNN_VERBOSE", "DNNL_VERBOSE", "MKLDNN_VERBOSE")
_NUMBERS = ("0", "1", "2")
_OUTPUT_FILE = "MKL_VERBOSE_OUTPUT_FILE"
_LONGEST_RANK = 15


def combined(requested: Mapping[str, str], user: Mapping[str, str]) -> tuple[dict[str, str], list[Notice]]:
    """Return the requested variables, none less verbose than the user's, and what is overridden."""
    found, notices = dict(requested), []
    for name, value in requested.items():
        theirs = user.get(name, "")
        if name == _OUTPUT_FILE:
            if theirs not in ("", value):
                notices.append(warning(f"{name}={theirs} is overridden: MKL's lines go to the trace"))
        elif name == _ONEDNN[0]:
            # The first that is set is the one that counts.
            first = next((user[variable] for variable in _ONEDNN if user.get(variable)), "")
            found[name] = _joined(value.split(","), first.split(","))
        elif theirs in _NUMBERS:
            found[name] = max(value, theirs)
    return found, notices


def of_command(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a traced command.

    On Windows MKL opens its file for itself alone, which it cannot where we have it: it prints instead.
    """
    return {name: text for name, text in variables.items() if os.name != "nt" or name != _OUTPUT_FILE}


def _joined(words: Sequence[str], theirs: Sequence[str]) -> str:
    """Return both lists of words as one, which starts with a number for versions that read no words."""
    numbers = [word for word in (*words, *theirs) if word in ("1", "2")]
    named = [word for word in words if word not in ("", "none", *_NUMBERS)]
    has_filter = any(word.startswith("filter=") for word in named)
    for word in theirs:
        is_new = word not in (*named, "", "none", *_NUMBERS)
        if is_new and not (has_filter and word.startswith("filter=")):
            named.append(word)
    return ",".join([*([max(numbers)] if numbers else []), *named])


def rank_of(environment: Mapping[str, str], variables: Sequence[str]) -> str:
    """Return the rank in the first variable that holds a number, or "".

    As in the shim's settings.c.
    """
    values = (environment.get(name, "") for name in variables)
    return next((value for value in values if re.fullmatch(rf"[0-9]{{1,{_LONGEST_RANK}}}", value)), "")


def with_rank(path: str, rank: str) -> str:
    """Return the name of a rank's trace: trace.log becomes trace.rank3.log."""
    stem, extension = os.path.splitext(path)
    return f"{stem}.rank{rank}{extension}" if rank else path


def ranks_files(path: str) -> list[str]:
    """Return the ranks' traces in the same folder as a trace, in the order of the ranks."""
    folder, name = os.path.split(path)
    stem, extension = map(re.escape, os.path.splitext(name))
    pattern = re.compile(rf"{stem}\.rank(\d{{1,{_LONGEST_RANK}}}){extension}")
    try:
        matches = [match for entry in os.listdir(folder) if (match := pattern.fullmatch(entry))]
    except OSError:
        return []
    return [os.path.join(folder, match[0]) for match in sorted(matches, key=lambda match: int(match[1]))]
