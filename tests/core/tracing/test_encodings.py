"""Text comes out as UTF-8, however it was written and wherever it is cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mlbackends.tracing.sources import as_utf8

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
