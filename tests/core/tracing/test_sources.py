"""A source reads a log wherever it is, and says how far it came and what went wrong."""

from __future__ import annotations

import gzip
import os
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.errors import BadInput
from mlbackends.host.files import as_utf8
from mlbackends.tracing.sources import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def test_a_file_tells_its_size_and_how_much_was_read(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"one\ntwo\n")
    source = Source(str(log))
    assert source.size == 8
    assert b"".join(source.chunks()) == b"one\ntwo\n"
    assert (source.position, source.damage) == (8, "")


def test_a_file_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be opened: No such file"):
        Source(str(tmp_path / "none.log"))


def test_a_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="directory"):
        Source(str(tmp_path))


def test_an_empty_file_is_an_empty_log(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.touch()
    assert b"".join(Source(str(log)).chunks()) == b""


def test_damage_ends_the_text_and_is_told(tmp_path: Path) -> None:
    log = tmp_path / "a.log.gz"
    log.write_bytes(gzip.compress(b"one\n" * 1000)[:-5])
    source = Source(str(log))
    assert b"".join(source.chunks()) == b"one\n" * 1000
    assert "ends too early" in source.damage


def added(log: Path, text: bytes) -> None:
    """Write to the end of a log."""
    with log.open("ab") as file:
        file.write(text)


def test_following_sees_what_is_added_and_a_file_that_starts_anew(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * 70 + b"\n")
    other = tmp_path / "b.log"
    other.write_bytes(b"another file\n")
    steps: Iterator[Callable[[], object]] = iter(
        [
            lambda: added(log, b"more\n"),
            lambda: log.write_bytes(b"anew\n"),
            lambda: os.replace(other, log),
        ]
    )

    def is_over() -> bool:
        step = next(steps, None)
        if step is None:
            return True
        step()
        return False

    text = b"".join(Source(str(log), follow=True, is_over=is_over).chunks())
    assert text == b"x" * 70 + b"\nmore\nanew\nanother file\n"


def test_a_compressed_file_cannot_be_followed(tmp_path: Path) -> None:
    log = tmp_path / "a.log.gz"
    log.write_bytes(gzip.compress(b"one\n"))
    with pytest.raises(BadInput, match="gzip and cannot be followed"):
        list(Source(str(log), follow=True).chunks())


def test_the_end_of_standard_input_ends_following(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-").write_bytes(b"a file of that name is another\n")
    reader, writer = os.pipe()
    os.write(writer, b"one\n")
    os.close(writer)
    with os.fdopen(reader) as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert b"".join(Source("-", follow=True).chunks()) == b"one\n"


TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200)


def pieces(data: bytes, places: list[int]) -> list[bytes]:
    """Return data cut at the places."""
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(ends)]


@given(TEXT, st.sampled_from(["utf-8-sig", "utf-16"]), st.lists(st.integers(0, 999)))
def test_a_mark_tells_the_encoding(text: str, encoding: str, places: list[int]) -> None:
    data = text.encode(encoding)
    if text.startswith("\ufeff"):
        return
    assert b"".join(as_utf8(pieces(data, places))).decode() == text


@given(st.sampled_from(["utf-16-le", "utf-16-be"]), st.lists(st.integers(0, 999)))
def test_without_a_mark_plain_text_of_two_bytes_is_seen(encoding: str, places: list[int]) -> None:
    text = "onednn_verbose,v1,info,oneDNN v3.6.2 (commit N/A)\nÄ€😀\n" * 3
    assert b"".join(as_utf8(pieces(text.encode(encoding), places))).decode() == text


@given(st.binary(max_size=200), st.lists(st.integers(0, 999)))
def test_bytes_without_a_mark_pass_as_they_are(data: bytes, places: list[int]) -> None:
    if b"\0" in data or data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return
    assert b"".join(as_utf8(pieces(data, places))) == data


@given(st.binary(max_size=200))
def test_nothing_raises(data: bytes) -> None:
    b"".join(as_utf8([b"\xff\xfe", data]))
    b"".join(as_utf8([data]))
