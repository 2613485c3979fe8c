"""Logs become records, whatever is around and between the lines."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.model.trace import AnyRecord, Call, Malformed, MklCall, Primitive, Record, Text
from mlbackends.tracing import prefixes
from mlbackends.tracing.prefixes import prefix
from mlbackends.tracing.reader import LONGEST_LINE, read, records

if TYPE_CHECKING:
    from collections.abc import Iterable

TRACES = sorted((Path(__file__).resolve().parents[2] / "traces").glob("*.log"))
LINES = [
    line
    for path in TRACES
    for line in path.read_bytes().splitlines()
    if line.startswith((b"onednn_verbose,v1", b"dnnl_verbose,", b"MKL_VERBOSE "))
]
MATMUL = next(line for line in LINES if b"primitive,exec,cpu,matmul" in line)
GEMM = next(line for line in LINES if line.startswith(b"MKL_VERBOSE SGEMM("))
TEXT = st.binary(max_size=40).filter(
    lambda text: (
        b"\n" not in text
        and b"_verbose," not in text
        and b"MKL_VERBOSE " not in text
        and not (text and prefix(text))
    )
)


def program_text(parts: list[AnyRecord]) -> bytes:
    """Return the program's own output: all Text, byte for byte."""
    texts = (part.raw for part in parts if isinstance(part, Text))
    return b"".join(text.encode("utf-8", "surrogateescape") for text in texts)


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """Return data in pieces, cut at the places."""
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(ends)]


def plain(found: Iterable[AnyRecord]) -> list[tuple[str, str, float | None]]:
    """Return what a library printed, without where it stood."""
    return [(record.kind, record.raw, record.duration_ns) for record in found if not isinstance(record, Text)]


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_every_line_of_a_library_is_read_and_all_else_is_text(path: Path) -> None:
    found = list(read(str(path)))
    assert not [record for record in found if isinstance(record, Malformed)]
    again = b"".join(
        record.raw.encode() if isinstance(record, Text) else record.raw.encode() + b"\n" for record in found
    )
    assert again.replace(b"\r", b"") == path.read_bytes().replace(b"\r", b"")


@given(st.lists(st.integers(0, 1 << 20), max_size=30), st.sampled_from(TRACES))
def test_where_a_stream_is_cut_makes_no_difference(places: list[int], path: Path) -> None:
    data = path.read_bytes()[:6000]
    assert list(records(cut(data, places))) == list(records([data]))


@given(st.lists(st.tuples(TEXT, st.booleans(), st.sampled_from(LINES)), max_size=12))
def test_program_text_between_and_before_lines_comes_out_byte_for_byte(
    parts: list[tuple[bytes, bool, bytes]],
) -> None:
    data = text = b""
    for words, ends, line in parts:
        words += b"\n" if ends else b""
        text += words
        data += words + line + b"\n"
    found = list(records([data]))
    assert program_text(found) == text
    assert [record.raw.encode() for record in found if not isinstance(record, Text)] == [
        line for _, _, line in parts
    ]


@given(st.integers(0, 20_000), st.sampled_from(TRACES))
def test_what_is_cut_off_costs_the_last_line_alone(length: int, path: Path) -> None:
    data = path.read_bytes()
    kept = data[: length % (len(data) + 1)]
    whole, found = list(records([data])), list(records([kept]))
    complete = kept.count(b"\n")
    assert [record for record in found if record.line_number <= complete] == [
        record for record in whole if record.line_number <= complete
    ]
    rest = [record for record in found if record.line_number > complete]
    assert all(isinstance(record, Text | Malformed) for record in rest)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.decode().encode("utf-16"),
        lambda data: data.decode().encode("utf-16-be"),
        lambda data: b"\xfe\xff" + data.decode().encode("utf-16-be"),
        lambda data: data.decode().replace("\n", "\r\n").encode("utf-16"),
        gzip.compress,
        lambda data: b"".join(b"[rank3]: " + line for line in data.splitlines(keepends=True)),
        lambda data: b"".join(b"[1,0]<stdout>:" + line for line in data.splitlines(keepends=True)),
        lambda data: b"".join(
            b"2026-11-21T16:35:59.123456789Z stdout F " + line
            for line in data.splitlines(keepends=True)
        ),
    ],
    ids=["CRLF", "UTF-8 mark", "UTF-16", "UTF-16 no mark", "UTF-16 BE", "UTF-16 CRLF", "gzip",
         "rank", "mpirun", "kubernetes"],
)  # fmt: skip
def test_how_a_log_is_wrapped_makes_no_difference(change: object, tmp_path: Path) -> None:
    data = b"\n".join(LINES[::5]) + b"\n"
    log = tmp_path / "any.log"
    log.write_bytes(change(data))  # type: ignore[operator]
    assert plain(read(str(log))) == plain(records([data]))


def test_a_log_of_several_is_in_the_source_of_all_that_it_holds() -> None:
    data = b"hello\n" + MATMUL + b"\n[rank7]: " + MATMUL + b"\n" + MATMUL[:70]
    found = list(records([data], log="node0.log"))
    assert [record.kind for record in found] == ["text", "primitive", "primitive", "malformed"]
    assert [record.source for record in found] == [
        *("node0.log", "node0.log", "node0.log/rank7", "node0.log")
    ]
    assert [str(record) for record in found] == [str(record) for record in records([data])]


COLOURED = [
    (MATMUL + b"\x1b[0m", ""),
    (b"\x1b[32m" + MATMUL + b"\x1b[0m", ""),
    (b"\x1b[01;31m\x1b[Konednn_verbose\x1b[m\x1b[K" + MATMUL.removeprefix(b"onednn_verbose"), ""),
    (b"\x1b[36mweb-1  | \x1b[0m" + MATMUL, "web-1  | "),
    (b"\x1b[33m[rank0]:\x1b[0m " + MATMUL + b"\x1b[m\r", "[rank0]: "),
]


@pytest.mark.parametrize(("line", "source"), COLOURED)
def test_colours_around_a_line_are_no_part_of_it(line: bytes, source: str) -> None:
    (found,) = records([line + b"\n"])
    assert isinstance(found, Primitive)
    assert (str(found), found.prefix) == (MATMUL.decode(), source)


def test_coloured_text_comes_out_plain() -> None:
    first, second, line = records([b"\x1b[1mtitle\x1b[0m\n\x1b[31mwait\x1b[0m " + MATMUL + b"\n"])
    assert (str(first), str(second)) == ("title\n", "wait ")
    assert str(line) == MATMUL.decode()


def test_the_captures_stamp_tells_process_thread_and_start() -> None:
    (found,) = records([b"[pid 12 tid 34 end 5000000000] " + MATMUL + b"\n"])
    assert isinstance(found, Primitive)
    assert (found.process, found.thread, found.clock, found.source) == (12, 34, "epoch", "")
    assert found.start_ns == 5_000_000_000 - round(found.duration_ns or 0)
    assert str(found) == MATMUL.decode()


def test_a_stamp_of_the_library_is_better_than_the_captures() -> None:
    stamped = MATMUL.replace(b"v1,", b"v1,1795258901075.670898,", 1)
    (found,) = records([b"[pid 12 tid 34 end 5000000000] " + stamped + b"\n"])
    assert (found.start_ns, found.clock, found.process) == (1795258901075670898, "epoch", 12)


def test_a_line_may_begin_in_the_middle_of_the_programs() -> None:
    text, record = records([b"step 3 loss=0.1 | " + MATMUL + b"\n"])
    assert isinstance(text, Text)
    assert (text.raw, record.raw) == ("step 3 loss=0.1 | ", MATMUL.decode())


def test_a_torn_line_does_not_take_the_next_one_with_it() -> None:
    torn, whole = records([MATMUL[:70] + MATMUL + b"\n"])
    assert isinstance(torn, Malformed)
    assert (torn.raw, whole.raw) == (MATMUL[:70].decode(), MATMUL.decode())


def test_text_about_markers_is_text_and_a_line_of_nonsense_is_counted() -> None:
    text, bad = records([b"set onednn_verbose, please\n", b"onednn_verbose,v9,what,is,this\n"])
    assert isinstance(text, Text)
    assert isinstance(bad, Malformed)
    assert (bad.tracer, bad.line_number, bad.raw) == ("onednn", 2, "onednn_verbose,v9,what,is,this")
    assert bad.reason


def test_bytes_that_are_no_text_pass() -> None:
    data = b"\x00\xff\x1b[31m" + MATMUL + b"\n\xc3\x28\n"
    found = list(records([data]))
    assert program_text(found) == b"\x00\xff\xc3\x28\n"
    assert isinstance(found[1], Primitive)


def test_a_line_without_end_is_cut_and_comes_out_whole() -> None:
    data = b"x" * (3 * LONGEST_LINE + 5)
    found = list(records(cut(data, range(0, len(data), 70_001))))
    assert len(found) == 4
    assert program_text(found) == data


def test_so_many_records_may_share_a_line() -> None:
    parts = [b"".join([MATMUL, b"\\n"]), b"\x1b[31m[pid 1 tid 2 end 3] " + MATMUL + b"\x1b[0m\r"]
    for part in parts:
        data = b'{"text": "' + part * 4000 + b'"}\n'
        found = list(records([data]))
        assert [record.raw.encode() for record in found if record.kind == "primitive"] == [MATMUL] * 4000
        assert program_text(found) == prefixes.plain(data).replace(MATMUL, b"")


@given(st.binary(max_size=300))
def test_nothing_raises_and_nothing_is_lost(data: bytes) -> None:
    found = list(records([data]))
    assert b"".join(record.raw.encode("utf-8", "surrogateescape") for record in found).replace(
        b"\r", b""
    ).replace(b"\n", b"") == prefixes.plain(data).replace(b"\r", b"").replace(b"\n", b"")


@given(
    st.lists(st.sampled_from([b"onednn_verbose,", b"v1,", b"primitive,", b"exec,", b"create:dispatch,",
                              b"cpu,", b"matmul,", b"1795258901.5,", b",", b"0,5", b"128x256", b"info,",
                              b"MKL_VERBOSE ", b"SGEMM(", b"0x7f", b") ", b"1.00ms ", b"CNR:OFF", b"[pid 1] ",
                              b"graph,", b"a.cpp:1", b"nan", b" ", b"\n", b"\r", b"\xff"]), max_size=25)
)  # fmt: skip
def test_pieces_of_lines_in_any_order_raise_nothing(parts: list[bytes]) -> None:
    for record in records([b"".join(parts)]):
        assert isinstance(record, Record)
        assert record.counted in (True, False)


def test_lines_have_numbers() -> None:
    found = list(records([b"one\n" + MATMUL + b"\n"]))
    assert [record.line_number for record in found] == [1, 2]


def test_two_libraries_in_one_log() -> None:
    calls = [call for path in TRACES for call in read(str(path)) if isinstance(call, Call)]
    assert sum(isinstance(call, MklCall) for call in calls) > 250
    assert sum(isinstance(call, Primitive) for call in calls) > 250
