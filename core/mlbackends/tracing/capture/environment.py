"""The variables of a traced command: what its libraries want set, what the user has set, and ranks.

Where the user's own settings ask for more lines, or choose among them, that is kept. A launcher such as
mpirun tells each process its rank by a variable; each rank may have a trace of its own.
"""

import os
import re
from collections.abc import Mapping, Sequence

from mlbackends.launch.notices import Notice, warning

_ONEDNN = ("ONEDNN_VERBOSE", "DNNL_VERBOSE", "MKLDNN_VERBOSE")
_NOTHING = ("", "0", "none")
_OUTPUT_FILE = "MKL_VERBOSE_OUTPUT_FILE"
_LONGEST_RANK = 15


def combined(wanted: Mapping[str, str], user: Mapping[str, str]) -> dict[str, str]:
    """Return the wanted variables, each at least as rich as the user's."""
    return {name: _richer(name, value, user) for name, value in wanted.items()}


def given_way(wanted: Mapping[str, str], user: Mapping[str, str]) -> list[Notice]:
    """Return notices of the user's settings that a trace cannot keep."""
    name = _OUTPUT_FILE
    if name not in wanted or user.get(name, "") in ("", wanted[name]):
        return []
    return [warning(f"{name}={user[name]} gives way: MKL's lines go to the trace")]


def _richer(name: str, value: str, user: Mapping[str, str]) -> str:
    if name == _OUTPUT_FILE:
        return value
    if name == _ONEDNN[0]:
        # The first that is set is the one that counts.
        theirs = next((user[each] for each in _ONEDNN if user.get(each)), "")
        return _joined(value.split(","), theirs.split(","))
    numbers = [each for each in (value, user.get(name, "")) if each in ("0", "1", "2")]
    return max(numbers, default=value)


def _joined(words: Sequence[str], theirs: Sequence[str]) -> str:
    """Return both lists of words as one, which starts with a number for versions that read no words."""
    numbers = [each for each in (*words, *theirs) if each in ("1", "2")]
    named = [each for each in words if each not in ("1", "2", *_NOTHING)]
    has_filter = any(each.startswith("filter=") for each in named)
    for word in theirs:
        is_new = word not in (*named, "1", "2", *_NOTHING)
        if is_new and not (has_filter and word.startswith("filter=")):
            named.append(word)
    return ",".join([*([max(numbers)] if numbers else []), *named])


def rank_of(environment: Mapping[str, str], variables: Sequence[str]) -> str:
    """Return the rank that the first variable with a number tells, "" where none does.

    As in the shim's settings.c.
    """
    for name in variables:
        value = environment.get(name, "")
        if value.isascii() and value.isdigit() and len(value) <= _LONGEST_RANK:
            return value
    return ""


def with_rank(path: str, rank: str) -> str:
    """Return the name of a rank's trace: trace.log becomes trace.rank3.log."""
    stem, extension = os.path.splitext(path)
    return f"{stem}.rank{rank}{extension}" if rank else path


def ranks_files(path: str) -> list[str]:
    """Return the traces of ranks that lie beside a trace, in the order of the ranks."""
    folder, name = os.path.split(path)
    stem, extension = os.path.splitext(name)
    pattern = re.compile(rf"{re.escape(stem)}\.rank(\d{{1,{_LONGEST_RANK}}}){re.escape(extension)}")
    try:
        found = [
            (match[1], each) for each in os.listdir(folder) if (match := pattern.fullmatch(each))
        ]
    except OSError:
        return []
    return [os.path.join(folder, each) for _, each in sorted(found, key=lambda item: int(item[0]))]
