"""Prefixes and colours are found wherever they are, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.tracing.prefixes import Prefix, plain, prefix

LAUNCHERS = [
    ("[rank0]: ", "rank0"),
    ("[rank0]:", "rank0"),
    ("[default3]:", "default3"),
    ("[0] ", "0"),
    ("[1,0]<stdout>:", "1,0"),
    ("[1,0]<stderr>: ", "1,0"),
    ("[prterun-node-12@1,0]<stdout>: ", "prterun-node-12@1,0"),
    ("3: ", "3"),
    ("  3: ", "3"),
    ("2026-11-21T16:35:59.123456789Z stdout F ", ""),
    ("2026-11-21 16:35:59,123 ", ""),
    ("web-1  | ", "web-1"),
    ("(train pid=1234) ", "train pid=1234"),
    ("(RayTrainWorker pid=1234, ip=10.0.0.1) ", "RayTrainWorker pid=1234, ip=10.0.0.1"),
    ("[rank0]: 2026-11-21T16:35:59Z ", "rank0"),
    ("2026-11-21T16:35:59Z stdout F web-1  | [rank0]: ", "web-1 rank0"),
]


@pytest.mark.parametrize(("text", "source"), LAUNCHERS)
def test_a_launchers_prefix_is_kept_whole_and_names_a_source(text: str, source: str) -> None:
    assert prefix(text.encode()) == Prefix(text, source, None, None, None)


@pytest.mark.parametrize(("text", "source"), [("", ""), ("[rank0]: ", "rank0")])
def test_the_captures_stamp_is_taken_apart(text: str, source: str) -> None:
    stamp = b"[pid 12 tid 34 end 56] "
    assert prefix(text.encode() + stamp) == Prefix(text, source, 12, 34, 56)
    assert prefix(b"[pid 12] ") == Prefix("", "", 12, None, None)


@pytest.mark.parametrize(
    "text", ["step 0 loss=0.1 | ", "hello", ">>> ", "[info] ", "[pid 12 tid x] ", "a: ", "\x1b[31m"]
)
def test_the_programs_text_is_no_prefix(text: str) -> None:
    assert prefix(text.encode()) is None


@given(st.binary(max_size=60))
def test_nothing_raises(text: bytes) -> None:
    prefix(text)


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        (b"\x1b[32mgreen\x1b[0m", b"green"),
        (b"\x1b[01;31m\x1b[Kgrep\x1b[m\x1b[K", b"grep"),
        (b"\x1b[38;2;1;2;3mfine\x1b(B\x1b[m", b"fine"),
        (b"\x1b[?25lhidden\x1b[2K", b"hidden"),
        (b"none [0m", b"none [0m"),
        (b"cut \x1b[3", b"cut \x1b[3"),
        (b"\x1b", b"\x1b"),
    ],
)
def test_a_text_without_its_colours(text: bytes, bare: bytes) -> None:
    assert plain(text) == bare
