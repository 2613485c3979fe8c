"""Colours are found wherever they are, and nothing else is."""

from __future__ import annotations

import pytest

from mlbackends.tracing.colours import plain, start


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


@pytest.mark.parametrize(
    ("length", "begin"),
    [(0, b"\x1b[1m"), (1, b"\x1b[1ma"), (2, b"\x1b[1mab\x1b[0m"), (3, b"\x1b[1mab\x1b[0mc")],
)
def test_the_start_of_a_text_has_its_colours(length: int, begin: bytes) -> None:
    assert start(b"\x1b[1mab\x1b[0mcd", length) == begin
