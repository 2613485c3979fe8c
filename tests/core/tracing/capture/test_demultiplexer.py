"""Trace lines and text, told apart in one stream however it is cut."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.model.trace import Malformed, Text
from mlbackends.tracing.capture.demultiplexer import Demultiplexer
from mlbackends.tracing.reader import line_records

TRACES = Path(__file__).resolve().parents[3] / "traces"
MARKERS = (b"MKL_VERBOSE ", b"onednn_verbose,", b"dnnl_verbose,", b"mkldnn_verbose,")
LINES = [
    b"onednn_verbose,v1,1795257427993.180908,primitive,exec,cpu,matmul,brg,undef,s:f32,,,8x8:8x8,0.5\n",
    b"onednn_verbose,info,oneDNN v3.2.0 (commit N/A)\n",
    b"onednn_verbose,v1,1795258265931,718018,primitive,exec,cpu,matmul,brg,undef,s:f32,,,128x256:256x64,7,16992\n",
    b"dnnl_verbose,create:cache_hit,cpu,convolution,jit,forward,src_f32::blocked:a:f0,,alg:x,d,0.01\r\n",
    b"mkldnn_verbose,exec,reorder,simple:any,undef,in:f32_nchw out:f32_nhwc,num:1,2x3,0.02\n",
    b"MKL_VERBOSE SGEMM(N,N,64,64,64,0x1,0x2,64,0x3,64,0x4,0x5,64) 63.62us CNR:OFF Dyn:1\n",
    b"MKL_VERBOSE oneMKL 2024.0 Update 2 Product build 20240605, Lnx 2.30GHz lp64 gnu_thread\n",
    b"MKL_VERBOSE FFT: MAIN_DESC | dcfi1024 | THR_LIMIT = 2 | 0.00s CNR:OFF\n",
]


def separated(pieces: list[bytes]) -> tuple[bytes, list[bytes]]:
    """Feed pieces and return all text and all lines."""
    demultiplexer = Demultiplexer(MARKERS)
    given_out = [demultiplexer.feed(piece) for piece in pieces]
    given_out.append(demultiplexer.release(at_end=True))
    return b"".join(part.text for part in given_out), [x for part in given_out for x in part.lines]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Return data in pieces that end at these places."""
    ends = sorted({min(place, len(data)) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


# Text without the bytes that all markers hold, and text that comes near to one.
NEAR = [b"onednn_verb", b"MKL_", b"o", b"\n", b"onednn_verbose ", b"mkldnn_\n", b"MKL_VERBOSE is\n"]
TEXT = st.one_of(st.binary(max_size=30).filter(lambda text: b"_" not in text), st.sampled_from(NEAR))


@given(
    st.lists(st.tuples(TEXT, st.sampled_from(LINES))),
    TEXT,
    st.lists(st.integers(0, 3000), max_size=40),
)
def test_lines_and_text_come_out_as_they_went_in(
    parts: list[tuple[bytes, bytes]], last: bytes, places: list[int]
) -> None:
    # A marker that begins in the text makes the text before it a neighbour, never a part, of a line.
    data = b"".join(text + b"\n" + line for text, line in parts) + last
    text, lines = separated(cut(data, places))
    assert lines == [line for _, line in parts]
    assert text == b"".join(text + b"\n" for text, _ in parts) + last


@given(st.lists(st.sampled_from([*LINES, *NEAR, b"x", b"9,", b","])), st.lists(st.integers(0, 2000)))
def test_how_the_stream_is_cut_makes_no_difference(parts: list[bytes], places: list[int]) -> None:
    data = b"".join(parts)
    assert separated(cut(data, places)) == separated([data])


@given(st.lists(st.sampled_from([*LINES, *NEAR])), st.lists(st.integers(0, 2000)))
def test_no_byte_is_lost_or_added(parts: list[bytes], places: list[int]) -> None:
    text, lines = separated(cut(b"".join(parts), places))
    assert sorted(text + b"".join(lines)) == sorted(b"".join(parts))


@pytest.mark.parametrize("line", LINES)
def test_a_line_may_start_behind_text(line: bytes) -> None:
    assert separated([b"epoch 3: " + line + b"done"]) == (b"epoch 3: done", [line])


@pytest.mark.parametrize(
    "text",
    [
        b"set MKL_VERBOSE =1 to see more\n",
        b"MKL_VERBOSE is on\n",
        b"the marker is onednn_verbose, as ever\n",
        b"onednn_verbose,\n",
        b"onednn_verbose,Exec\n",
        b"onednn_verbose,hello\n",
        b"onednn_verbose,exec,was it\n",
        b"MKL_VERBOSE SGEMM() is slow\n",
    ],
)
def test_a_sentence_about_markers_is_text(text: bytes) -> None:
    assert separated([text, LINES[0]]) == (text, [LINES[0]])


@pytest.mark.parametrize("line", LINES[:1] + LINES[5:6])
def test_text_right_behind_a_call_is_text(line: bytes) -> None:
    glued = line.rstrip() + b"Epoch 1\n" + line
    assert separated([glued]) == (b"Epoch 1\n", [line, line])
    assert separated([glued[:-1]]) == (b"Epoch 1\n", [line, line[:-1]])
    at_the_end = line.rstrip() + b"Epoch 1"
    assert separated([at_the_end]) == (b"Epoch 1", [line.rstrip()])


def test_a_line_that_is_torn_by_another_stays_text() -> None:
    assert separated([LINES[0][:60] + LINES[0]]) == (LINES[0][:60], [LINES[0]])


@pytest.mark.parametrize("text", [b"onednn_verbose,hello", b"onednn_verbose,v1,hello", b"MKL_VERBOSE"])
def test_text_like_a_line_is_text_at_the_end_too(text: bytes) -> None:
    assert separated([text]) == (text, [])


def test_a_line_full_of_markers_is_read_in_one_walk() -> None:
    text = b"onednn_verbose,exec," * 40_000 + b"\n"
    assert separated([text, LINES[0]]) == (text, [LINES[0]])


@given(st.lists(st.sampled_from(LINES), min_size=1), st.integers(0, 40))
def test_a_line_that_was_seen_before_is_measured_as_at_first(lines: list[bytes], at: int) -> None:
    torn = [line[:at] + b" " + line[at:] if at < 14 else line for line in lines]
    fresh = [separated([line]) for line in torn]
    assert separated(torn) == (
        b"".join(text for text, _ in fresh),
        [line for _, own in fresh for line in own],
    )


@pytest.mark.parametrize("text", [b"Password: ", b"progress 10%\r", b"\x1b[2K", b"nne"])
def test_text_without_an_end_is_not_held(text: bytes) -> None:
    demultiplexer = Demultiplexer(MARKERS)
    assert demultiplexer.feed(text).text == text
    assert not demultiplexer.release().text


def test_what_may_become_a_marker_is_held_until_told() -> None:
    demultiplexer = Demultiplexer(MARKERS)
    assert demultiplexer.feed(b"press M").text == b"press "
    assert demultiplexer.idle() == (b"", [])  # not yet
    time.sleep(0.1)
    assert demultiplexer.idle().text == b"M"
    assert not demultiplexer.release().text


@pytest.mark.parametrize("size", [21, 25, 40, 60, len(LINES[0]) - 1])
def test_the_torn_last_line_of_a_killed_program_is_a_line(size: int) -> None:
    torn = LINES[0][:size]
    assert separated([b"text\n", torn]) == (b"text\n", [torn])


def test_a_line_that_never_ends_is_let_go_as_text() -> None:
    endless = LINES[0].rstrip() + b"x" * (1 << 21)
    whole = separated([endless, b"\n", LINES[1]])
    assert whole == (endless + b"\n", [LINES[1]])
    assert separated(cut(endless + b"\n" + LINES[1], [100, 1 << 20, 3 << 19])) == whole


@pytest.mark.parametrize("name", sorted(path.name for path in TRACES.glob("*.log")))
def test_real_logs_leave_no_marker_in_the_text(name: str) -> None:
    data = (TRACES / name).read_bytes()
    text, lines = separated(cut(data, list(range(0, len(data), 777))))
    assert sum(map(len, lines)) + len(text) == len(data)
    assert lines
    for line in text.splitlines(keepends=True):
        if any(marker in line for marker in MARKERS):
            assert {type(record) for record in line_records(line)} <= {Text, Malformed}, line
