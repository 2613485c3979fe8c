"""Adding up gives what the records give."""

from __future__ import annotations

import re
from collections import Counter
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.model.trace import AnyRecord, Call, Dispatch
from mlbackends.tracing.aggregate import Aggregate
from mlbackends.tracing.reader import LONGEST_LINE, records

TRACES = sorted((Path(__file__).resolve().parents[2] / "traces").glob("*.log"))
LINES = [line for path in TRACES for line in path.read_bytes().splitlines() if line]
MATMUL = next(line for line in LINES if b"v1,primitive,exec,cpu,matmul" in line)
GEMM = next(line for line in LINES if line.startswith(b"MKL_VERBOSE SGEMM("))

Sums = dict[tuple[str, str, object], tuple[int, list[float]]]


def summed(found: list[AnyRecord]) -> Sums:
    """Return count and times of each call by what it is and where."""
    result: Sums = {}
    for each in found:
        if isinstance(each, Call):
            key = (each.kind, each.key, (each.process, each.thread, each.source))
            count, times = result.get(key, (0, []))
            times = times if each.duration_ns is None else [*times, each.duration_ns]
            result[key] = (count + 1, times)
    return result


def aggregated(whole: Aggregate) -> Sums:
    """Return the same of an aggregate."""
    result: Sums = {}
    for group in whole.groups:
        key = (group.kind, group.record.key, group.where)
        assert key not in result
        result[key] = (group.count, list(group.durations))
    return result


def timed(line: bytes, time: bytes) -> bytes:
    """Return a call's line with another time."""
    if line.startswith(b"MKL"):
        before, _, behind = line.rpartition(b") ")
        return before + b") " + time + re.sub(rb"^[\d.]+", b"", behind)
    return line.rpartition(b",")[0] + b"," + time


def same(whole: Aggregate, found: list[AnyRecord]) -> bool:
    """Tell whether an aggregate and records say the same."""
    assert whole.kinds == dict(Counter(each.kind for each in found))
    assert all(group.record in found for group in (*whole.groups, *whole.notes))
    ours, theirs = aggregated(whole), summed(found)
    assert ours.keys() == theirs.keys()
    for key, (count, times) in theirs.items():
        assert ours[key][0] == count
        assert sorted(ours[key][1]) == pytest.approx(sorted(times))
    return True


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_log_adds_up_to_its_records(path: Path) -> None:
    data = path.read_bytes()
    assert same(Aggregate().add([data]), list(records([data])))


def test_all_logs_ten_times_over_in_small_pieces() -> None:
    data = b"\n".join(LINES * 3) + b"\n"
    pieces = [data[at : at + 777] for at in range(0, len(data), 777)]
    assert same(Aggregate().add(pieces), list(records([data])))


ODD = [
    MATMUL,
    MATMUL + b",5",
    MATMUL.rpartition(b",")[0],
    MATMUL.rpartition(b",")[0] + b",",
    MATMUL.rpartition(b",")[0] + b",0,5",
    MATMUL.rpartition(b",")[0] + b",soon",
    MATMUL.replace(b"v1,", b"v1,1795258901075.670898,", 1),
    MATMUL.replace(b"v1,", b"v1,1795258901076,670898,", 1),
    MATMUL.replace(b"v1,", b"v1,1795258901_75.670898,", 1),
    MATMUL.replace(b"v1,", b"v1,1795258901075670898,", 1),
    MATMUL.replace(b"v1,", b"v1,1795258901075.67 898,", 1),
    b"[pid 1 tid 2 end 3000000] " + MATMUL,
    b"[pid 1 tid 2 end 9000000] " + MATMUL,
    b"[rank1]: " + MATMUL,
    b"loss=0.1 " + MATMUL,
    MATMUL.replace(b"128x256:", b"1x256:"),
    MATMUL.replace(b"128x256:", b"2x256:"),
    MATMUL.replace(b"128x256:256x128", b""),
    MATMUL.replace(b"128x256:", b"128 x:"),
    MATMUL.replace(b"128x256:", "1\u00a0x:".encode()),
    MATMUL.replace(b"128x256:256x128,0.0", b"128x256:256x127,0,0"),
    MATMUL.replace(b"128x256:", b"onednn_verbose:"),
    MATMUL.replace(b"128x256:", b"3x256:").replace(b"v1,", b"v1,1795258901075.670898,", 1),
    MATMUL[:50],
    MATMUL[:50] + MATMUL,
    GEMM,
    GEMM.replace(b"0x7f", b"0x55"),
    GEMM.replace(b"0x7ffd", b"0x1c"),
    GEMM.replace(b",512,0x", b",640,0x", 1),
    GEMM.replace(b",512,0x", b",51,0x", 1),
    GEMM.replace(b"TID:0", b"TID:1"),
    GEMM[:40],
    b"[rank0]: " + GEMM,
    b"text",
    b"",
]


@given(st.lists(st.sampled_from(ODD), max_size=40), st.integers(1, 500))
def test_odd_lines_in_any_order_add_up_to_their_records(lines: list[bytes], size: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert same(Aggregate().add(pieces), list(records([data])))


CREATED = MATMUL.replace(b"exec", b"create:cache_miss", 1)
JOINED = [b"\n"] * 4 + [b"\r\n", b"\r", b"\\n", b"", b" text ", b"\x1b[31m", b"\n[rank0]: ", b"7"]
JOINED += [b"\n[pid 1 tid 2 end 3000000] ", b"\n[pid 1 tid 2 end x] ", b"\\n[pid 1 tid 2] "]


@given(
    st.lists(
        st.tuples(st.sampled_from([*ODD, CREATED, CREATED, GEMM]), st.sampled_from(JOINED)),
        max_size=30,
    ),
    st.integers(1, 2000),
)
def test_lines_joined_by_anything_add_up_to_their_records(
    parts: list[tuple[bytes, bytes]], size: int
) -> None:
    data = b"".join(line + behind for line, behind in parts) * 3
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert same(Aggregate().add(pieces), list(records([data])))


@pytest.mark.parametrize("joint", [b"\r", b"\\n", b" and then ", b"\x1b[0m\r"])
def test_executions_behind_a_creation_on_its_line_are_executions(joint: bytes) -> None:
    line = joint.join([CREATED, MATMUL, b"[rank0]: " + MATMUL, MATMUL]) + b"\n"
    whole = Aggregate().add([line])
    assert [(group.record.key.split(",")[3], group.count) for group in whole.groups] == [
        *(("create:cache_miss", 1), ("exec", 3)),
    ]
    assert same(whole, list(records([line])))


@pytest.mark.parametrize("size", [70_001, 1 << 22])
def test_what_is_too_long_to_be_a_line_is_cut_where_the_records_are(size: int) -> None:
    parts = [b"\x1b[32m" + CREATED, MATMUL, GEMM, b"x" * 5000]
    long = b"\r".join(parts * (LONGEST_LINE // 5400)) + b"\n"
    data = MATMUL + b"\n" + long + MATMUL + b"\n" + long[:-1]
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert same(Aggregate().add(pieces), list(records([data])))


def test_bytes_that_are_no_text_may_stand_in_lines_that_differ_in_their_sizes() -> None:
    odd = MATMUL.replace(b"src:f32", b"src:f32\xff")
    data = b"".join(odd.replace(b"128x256:", b"%dx256:" % size) + b"\n" for size in (1, 2, 3))
    assert same(Aggregate().add([data]), list(records([data])))


def test_calls_of_other_sizes_are_groups_of_their_own() -> None:
    sizes = [b"%dx256:256x128" % number for number in range(1, 50)]
    lines = [MATMUL.replace(b"128x256:256x128", size) + b"\n" for size in sizes] * 3
    whole = Aggregate().add([b"text\n", *lines])
    assert same(whole, list(records([b"text\n", *lines])))
    assert [group.record.shape.encode() for group in whole.groups] == sizes
    assert [group.record.line_number for group in whole.groups] == list(range(2, 51))


def test_times_that_are_no_numbers_poison_no_total() -> None:
    head = MATMUL.rpartition(b",")[0]
    whole = Aggregate().add([head + b",1\n" + head + b",nan\n" + head + b",inf\n"])
    (group,) = whole.groups
    assert sum(group.durations) == 1e6
    assert whole.malformed_count == 2


ENDLESS = [
    "1e400",
    "1e303",
    "1e30",
    "1e+30",
    "inf",
    "nan",
    "-1e9",
    "-0.1",
    "1_0",
    "+2",
    " 3",
    ".5",
    "1E2",
]


@pytest.mark.parametrize("time", ENDLESS)
@pytest.mark.parametrize("line", [MATMUL, GEMM], ids=["oneDNN", "MKL"])
@pytest.mark.parametrize("before", [b"", b"[rank1]: ", b"text "])
def test_a_time_is_one_to_the_sums_where_it_is_one_to_the_records(
    time: str, line: bytes, before: bytes
) -> None:
    odd = before + timed(line, time.encode())
    for lines in ([odd], [line, odd], [before + line, odd, line, odd]):
        data = b"\n".join(lines) + b"\n"
        assert same(Aggregate().add([data]), list(records([data])))
        if abs(float(time)) == inf and not before:
            assert Aggregate().add([data]).malformed_count == lines.count(odd)


@pytest.mark.parametrize("size", [7, 1 << 20])
def test_coloured_lines_add_up_as_plain_ones(size: int) -> None:
    lines = [b"\x1b[32m" + line + b"\x1b[0m\r\n" for line in (MATMUL, GEMM, b"text")] * 3
    lines += [
        MATMUL + b"\x1b[0m\n",
        b"\x1b[36mweb-1  | \x1b[0m" + GEMM + b"\n",
        GEMM[:40] + b"\x1b[0m\n",
    ]
    data = b"".join(lines)
    whole = Aggregate().add(data[at : at + size] for at in range(0, len(data), size))
    assert same(whole, list(records([data])))
    assert len(whole.groups) == 3


def test_times_below_zero_are_no_times() -> None:
    head = MATMUL.rpartition(b",")[0]
    log = [head + b",1\n" + head + b",-1\n" + head + b",-0.5\n"]
    whole = Aggregate().add(log)
    (group,) = whole.groups
    assert (group.count, sum(group.durations), whole.malformed_count) == (1, 1e6, 2)
    assert same(whole, list(records(log)))
    assert Aggregate().add([head + b",-1\n"]).kinds == {"malformed": 1}


def test_a_group_knows_its_times_and_its_first_line() -> None:
    head = MATMUL.rpartition(b",")[0]
    whole = Aggregate().add([b"text\n" + b"".join(head + b",%d\n" % n for n in (3, 1, 2, 9))])
    (group,) = whole.groups
    assert list(group.durations) == [3e6, 1e6, 2e6, 9e6]
    assert group.record.raw == head.decode() + ",3"
    assert group.record.line_number == 2
    assert (whole.lines, whole.texts) == (5, 1)


@pytest.mark.slow
def test_addresses_that_never_come_back_are_still_one_call() -> None:
    lines = []
    for index in range(45_000):
        address = b"0x7f%010x" % (index * 4096)
        lines.append(GEMM.replace(b"0x7f" + GEMM.partition(b"0x7f")[2][:10], address))
    (group,) = Aggregate().add([b"\n".join(lines) + b"\n"]).groups
    assert group.count == 45_000


def test_refusals_are_counted_by_what_they_say() -> None:
    line = (
        b"onednn_verbose,v1,1795258901094.%06d,primitive,create:dispatch,brgemm_matmul,"
        b"datatype configuration not supported on this isa,src/cpu/x64/matmul/a.cpp:1719\n"
    )
    whole = Aggregate().add([b"".join(line % number for number in range(5))])
    (note,) = whole.notes
    assert note.count == 5
    assert isinstance(note.record, Dispatch)


def test_malformed_lines_are_kept_up_to_a_thousand_and_all_counted() -> None:
    whole = Aggregate().add([b"onednn_verbose,nonsense\n" * 1500])
    assert (len(whole.malformed), whole.malformed_count) == (1000, 1500)


def test_several_logs_add_up() -> None:
    whole = Aggregate().add([MATMUL + b"\n"]).add([MATMUL + b"\n"])
    (group,) = whole.groups
    assert group.count == 2
    assert list(group.durations) == [group.record.duration_ns] * 2
