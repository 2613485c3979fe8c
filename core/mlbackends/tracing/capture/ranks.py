"""One trace a rank: a launcher such as mpirun tells each process its rank by a variable."""

import os
import re
from collections.abc import Mapping, Sequence

_LONGEST = 15


def rank_of(environment: Mapping[str, str], variables: Sequence[str]) -> str:
    """Return the rank that the first variable with a number tells, "" where none does.

    As in the shim's settings.c.
    """
    for name in variables:
        value = environment.get(name, "")
        if value.isascii() and value.isdigit() and len(value) <= _LONGEST:
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
    pattern = re.compile(rf"{re.escape(stem)}\.rank(\d{{1,{_LONGEST}}}){re.escape(extension)}")
    try:
        found = [
            (match[1], each) for each in os.listdir(folder) if (match := pattern.fullmatch(each))
        ]
    except OSError:
        return []
    return [os.path.join(folder, each) for _, each in sorted(found, key=lambda item: int(item[0]))]
