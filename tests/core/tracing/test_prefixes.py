"""What launchers and the capture put before a line is told from the program's text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.tracing.prefixes import Prefix, place, prefix

LAUNCHERS = [
    "[rank0]: ",
    "[rank0]:",
    "[default3]:",
    "[0] ",
    "[1,0]<stdout>:",
    "[1,0]<stderr>: ",
    "[prterun-node-12@1,0]<stdout>: ",
    "3: ",
    "2026-11-21T16:35:59.123456789Z stdout F ",
    "2026-11-21 16:35:59,123 ",
    "web-1  | ",
    "(train pid=1234) ",
    "(RayTrainWorker pid=1234, ip=10.0.0.1) ",
    "[rank0]: 2026-11-21T16:35:59Z ",
]


@pytest.mark.parametrize("text", LAUNCHERS)
def test_a_launchers_prefix_is_kept_whole(text: str) -> None:
    assert prefix(text.encode()) == Prefix(text, None, None, None)


@pytest.mark.parametrize("text", ["", "[rank0]: "])
def test_the_captures_stamp_is_taken_apart(text: str) -> None:
    stamp = b"[pid 12 tid 34 end 56] "
    assert prefix(text.encode() + stamp) == Prefix(text, 12, 34, 56)
    assert prefix(b"[pid 12] ") == Prefix("", 12, None, None)


@pytest.mark.parametrize(
    "text", ["step 0 loss=0.1 | ", "hello", ">>> ", "[info] ", "[pid 12 tid x] ", "a: ", "\x1b[31m"]
)
def test_the_programs_text_is_no_prefix(text: str) -> None:
    assert prefix(text.encode()) is None


def test_the_time_of_a_line_is_no_place() -> None:
    assert place("[rank0]: 2026-11-21T16:35:59Z ") == "[rank0]: "
    assert place("[rank0]: ") == "[rank0]: "


@given(st.binary(max_size=60))
def test_nothing_raises(text: bytes) -> None:
    prefix(text)
