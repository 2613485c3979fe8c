"""The variables that a traced command gets: what its libraries want set, and what the user asked for.

Where the user's own settings ask for more lines, or choose among them, that is kept.
"""

from collections.abc import Mapping, Sequence

from mlbackends.launch.notices import Notice, warning

_ONEDNN = ("ONEDNN_VERBOSE", "DNNL_VERBOSE", "MKLDNN_VERBOSE")
_NOTHING = ("", "0", "none")
_OUTPUT_FILE = "MKL_VERBOSE_OUTPUT_FILE"


def combined(wanted: Mapping[str, str], user: Mapping[str, str]) -> dict[str, str]:
    """Return the wanted variables, each at least as rich as the user's."""
    return {name: _richer(name, value, user) for name, value in wanted.items()}


def given_way(wanted: Mapping[str, str], user: Mapping[str, str]) -> list[Notice]:
    """Tell what of the user's settings a trace cannot keep."""
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
