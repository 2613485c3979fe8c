"""A walk that reads few lines gives away what reading all of them does."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from mlbackends.model.trace import Malformed, Text
from mlbackends.tracing.filters import where
from mlbackends.tracing.machine import Machine
from mlbackends.tracing.reader import LONGEST_LINE, records
from mlbackends.tracing.viewing import begin, view
from mlbackends.tracing.walk import Follower, Walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlbackends.model.trace import Record

TRACES = sorted((Path(__file__).resolve().parents[2] / "traces").glob("*.log"))
LINES = [line for path in TRACES for line in path.read_bytes().splitlines() if line]
HEADERS = [line for line in LINES if b",info,oneDNN v" in line][:2]
MATMUL = next(line for line in LINES if b"v1,primitive,exec,cpu,matmul" in line)
REORDER = next(line for line in LINES if b"v1,primitive,exec,cpu,reorder" in line)
MADE = next(line for line in LINES if b"v1,primitive,create:cache_miss,cpu" in line)
GEMM = next(line for line in LINES if line.startswith(b"MKL_VERBOSE SGEMM("))
MACHINE = Machine(cpus=1.0, cores=1, because="quota", vendor="AMD")
PLACES = [
    b"",
    b"",
    b"[pid 1 tid 2 end 3000000000] ",
    b"[pid 1 tid 3 end 9000000000] ",
    b"[rank1]: ",
    b"2026-11-21T16:35:59.123456789Z stdout F ",
    b"loss=0.1 ",
    b"\x1b[36m",
    b"\x1b[36m[rank1]: \x1b[0m",
]
ENDS = [b"\n"] * 12 + [b"\r\n", b"\x1b[0m\n", b"\r", b"\\n", b"", b" text "]


def rounded(value: Any) -> Any:
    """Return what was found with its sums to nine digits: they are added up in other orders."""
    return tuple(
        structs.replace(
            finding, total_ns=float(f"{finding.total_ns:.9g}"), share=round(finding.share or 0, 9)
        )
        for finding in value.findings
    )


def timed(line: bytes, time: float) -> bytes:
    """Return a line with another time."""
    if line.startswith(b"MKL"):
        before, _, behind = line.rpartition(b") ")
        return before + b") %.2fus " % (time * 1000) + behind.partition(b"s ")[2]
    return line.rpartition(b",")[0] + b",%g" % time


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Return a log of few different calls with many times, from some places, in any order."""
    kinds = [
        MATMUL,
        MATMUL.replace(b"v1,", b"v1,1795258901075.670898,", 1),
        MATMUL.replace(b"v1,", b"v1,1795258901076,670898,", 1),
        REORDER,
        REORDER.replace(b"f32", b"bf16"),
        REORDER.replace(b"exec", b"create:cache_hit"),
        MADE,
        GEMM,
        GEMM.replace(b"0x7f", b"0x55"),
        b"text",
        MATMUL[:50],
        MATMUL + b",x",
        GEMM.replace(b"CNR:", b"CNR:\x1b[1m"),
        MATMUL.replace(b"verbose", b"\x1b[31mverbose\x1b[0m"),
        *HEADERS,
    ]
    kinds = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4, unique=True))
    times = draw(st.lists(st.sampled_from([0.001, 0.5, 2, 300.0]), min_size=1, max_size=3))
    chosen = st.tuples(st.sampled_from(kinds), st.sampled_from(PLACES), st.sampled_from(times))
    found = []
    for number, (line, place, time) in enumerate(draw(st.lists(chosen, max_size=60))):
        whole = timed(line, time) if line in (MATMUL, REORDER, MADE, GEMM) else line
        whole = whole.replace(b"075.670898", b"%03d.%06d" % (75 + number // 9, number))
        end = draw(st.sampled_from(ENDS))
        found.append(place.replace(b"000000000", b"%09d" % (number * 7_000_000)) + whole + end)
    return b"".join(found) * draw(st.sampled_from([1, 1, 40]))


def walked(data: bytes, size: int = 1 << 20, expression: str = "") -> Any:
    """Return the findings by a walk."""
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    findings = begin("findings", machine=MACHINE)
    Walk([findings], where(expression)).add(pieces)
    return findings.result()


@settings(max_examples=50)
@given(logs(), st.integers(1, 5000))
def test_findings_are_those_of_all_records(data: bytes, size: int) -> None:
    assert rounded(walked(data, size)) == rounded(view("findings", records([data]), machine=MACHINE))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_findings_of_a_log_three_times_over_are_those_of_its_records(path: Path) -> None:
    data = path.read_bytes() * 3
    assert rounded(walked(data)) == rounded(view("findings", records([data]), machine=MACHINE))


class Counting:
    """Counts what it is given."""

    def __init__(self) -> None:
        self.read = self.more = self.followed = 0
        self.total = 0.0

    def add(self, record: Record) -> None:
        self.read += 1
        self.total += record.duration_ns or 0.0

    def add_many(self, record: Record, count: int, durations: Sequence[float]) -> None:
        assert record.counted
        assert count == len(durations)
        self.more += count
        self.total += sum(durations)

    def follow(self, record: Record) -> Follower:
        def count(_: bytes, __: int, duration: float | None, ___: int | None) -> None:
            assert duration == record.duration_ns
            self.followed += 1

        return count


@pytest.mark.parametrize("line", [MATMUL, GEMM, b"[pid 1 tid 2] " + MATMUL, b"[rank1]: " + GEMM])
def test_of_equal_calls_few_are_given_one_by_one(line: bytes) -> None:
    counting = Counting()
    walk = Walk([counting])
    walk.add([(line + b"\n") * 1000])
    assert (counting.read, counting.more, counting.followed) == (1, 999, 999)
    assert (walk.lines, walk.unreadable) == (1000, 0)


def test_calls_with_new_addresses_are_read_no_more_often() -> None:
    counting = Counting()
    lines = [GEMM.replace(b"0x7f", b"0x%02x" % (16 + n % 200)) + b"\n" for n in range(1000)]
    Walk([counting]).add(lines)
    assert counting.read + counting.more == 1000
    assert counting.read <= 5


def test_a_torn_last_line_is_unreadable_and_no_call() -> None:
    counting = Counting()
    walk = Walk([counting])
    walk.add([(MATMUL + b"\n") * 10 + MATMUL])
    assert (walk.lines, walk.unreadable, counting.more) == (11, 1, 9)


def test_only_what_is_asked_for_is_found() -> None:
    data = (MATMUL + b"\n" + REORDER + b"\n") * 500
    keep = where("operation=matmul")
    found = walked(data, expression="operation=matmul")
    assert rounded(found) == rounded(view("findings", filter(keep, records([data])), machine=MACHINE))


def test_calls_of_another_log_are_others() -> None:
    data = (MADE + b"\n") * 20
    findings = begin("findings")
    walk = Walk([findings])
    walk.add([data], "a.log")
    walk.add([data], "b.log")
    expected = [*records([data], log="a.log"), *records([data], log="b.log")]
    assert rounded(findings.result()) == rounded(view("findings", expected))


def test_views_that_take_sums_walk_along() -> None:
    data = b"".join(line + b"\n" for line in LINES) * 2
    walking = {name: begin(name) for name in ("summary", "findings", "dispatch")}
    Walk(tuple(walking.values())).add([data])
    views = {name: walked.result() for name, walked in walking.items()}
    read = view("summary", records([data]))
    assert [row.count for row in views["summary"].rows] == [row.count for row in read.rows]  # type: ignore[union-attr]
    assert views["dispatch"] == view("dispatch", records([data]))


class Sums:
    """Collects the number and the times of equal lines from one place."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[object, ...]] = Counter()
        self.times: defaultdict[tuple[object, ...], list[float]] = defaultdict(list)

    def add(self, record: Record) -> None:
        self.add_many(record, 1, [] if record.duration_ns is None else [record.duration_ns])

    def add_many(self, record: Record, count: int, durations: Sequence[float]) -> None:
        key = record.key or re.sub(r",[0-9]+[.][0-9]+", "", record.raw, count=1)
        place = (record.kind, key, record.process, record.thread, record.source)
        self.counts[place] += count
        self.times[place] += durations


class Each:
    """Collects the records, one by one."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def add(self, record: Record) -> None:
        self.records.append(record)


def check(data: bytes, size: int = 1 << 20) -> Sums:
    """Check a walk's sums, records and counts against those of all records; return the sums."""
    sums, each, expected = Sums(), Each(), Sums()
    walk = Walk([sums, each])
    walk.add(data[at : at + size] for at in range(0, len(data), size))
    found = [record for record in records([data]) if not isinstance(record, Text)]
    for record in found:
        expected.add(record)
    assert each.records == found
    assert sums.counts == expected.counts
    for place, times in expected.times.items():
        assert sorted(sums.times[place]) == sorted(times)
    assert walk.lines == len(found)
    assert walk.texts == sum(isinstance(record, Text) for record in records([data]))
    assert walk.unreadable == sum(isinstance(record, Malformed) for record in found)
    return sums


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
    check(b"".join(line + behind for line, behind in parts) * 3, size)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_log_twice_over_adds_up_to_its_records(path: Path) -> None:
    check(path.read_bytes() * 2, 777)


@pytest.mark.parametrize("size", [70_001, 1 << 22])
def test_what_is_too_long_to_be_a_line_is_cut_where_the_records_are(size: int) -> None:
    parts = [b"\x1b[32m" + CREATED, MATMUL, GEMM, b"x" * 5000]
    long = b"\r".join(parts * (LONGEST_LINE // 5400)) + b"\n"
    check(MATMUL + b"\n" + long + MATMUL + b"\n" + long[:-1], size)


ENDLESS = ["1e400", "1e303", "1e30", "1e+30", "inf", "nan", "-1e9", "-0.1", "1_0", "+2", " 3", ".5"]


@pytest.mark.parametrize("time", [*ENDLESS, "1E2"])
@pytest.mark.parametrize("line", [MATMUL, GEMM], ids=["oneDNN", "MKL"])
@pytest.mark.parametrize("before", [b"", b"[rank1]: ", b"text "])
def test_a_time_is_one_to_the_sums_where_it_is_one_to_the_records(
    time: str, line: bytes, before: bytes
) -> None:
    number = re.compile(rb"(?<=\) )[0-9.]+" if line.startswith(b"MKL") else rb"(?<=,)[0-9.e-]+$")
    odd = before + number.sub(time.encode(), line)
    for lines in ([odd], [line, odd], [before + line, odd, line, odd]):
        check(b"\n".join(lines) + b"\n")


def test_refusals_are_counted_by_what_they_report() -> None:
    line = (
        b"onednn_verbose,v1,1795258901094.%06d,primitive,create:dispatch,brgemm_matmul,"
        b"datatype configuration not supported on this isa,src/cpu/x64/matmul/a.cpp:1719\n"
    )
    sums = check(b"".join(line % number for number in range(5)))
    assert [*sums.counts.values()] == [5]


def test_calls_of_other_sizes_are_groups_of_their_own() -> None:
    sizes = [b"%dx256:256x128" % number for number in range(1, 50)]
    lines = [MATMUL.replace(b"128x256:256x128", size) + b"\n" for size in sizes] * 3
    assert [*check(b"text\n" + b"".join(lines)).counts.values()] == [3] * 49
