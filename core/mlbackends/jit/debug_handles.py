"""Numbers that stand for lines of the original methods, for a backend to tell where it failed."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

_numbers = itertools.count()


class SourceLine(NamedTuple):
    """Where a debug handle points."""

    file: str
    line: int
    function: str


class DebugHandles:
    """The generator that a preprocess function gets: it gives each line of a method a handle.

    recorded: every handle given so far, and the line that it stands for. Handles are unique in the
    process, and the lowered module keeps the lines, also when it is saved.
    """

    def __init__(self) -> None:
        self.recorded: dict[int, SourceLine] = {}

    def __call__(self, method: Any) -> dict[int, int]:
        """Return {line number: handle} for the lines of a function or bound method that hold code.

        Raises TypeError for what is written in no Python (builtins, classes).
        """
        code = getattr(getattr(method, "__func__", method), "__code__", None)
        if code is None:
            raise TypeError(f"debug handles are for Python functions and methods, not {method!r}")
        lines = sorted({line for _, _, line in code.co_lines() if line})
        handles = {line: next(_numbers) for line in lines}
        for line, handle in handles.items():
            self.recorded[handle] = SourceLine(code.co_filename, line, code.co_qualname)
        return handles
