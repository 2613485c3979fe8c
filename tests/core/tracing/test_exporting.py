"""Traces written for other programs: read back by what reads such files."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.installed import install_command
from mlbackends.base.registry import load
from mlbackends.base.writable import csv_cell
from mlbackends.model.trace import Text
from mlbackends.tracing import exporting, reader
from mlbackends.tracing.exporting import COLUMNS, export, format_of
from mlbackends.tracing.walk import Walk

TRACES = Path(__file__).resolve().parents[2] / "traces"
LOGS = sorted(path.name for path in TRACES.glob("*.log"))
MATMUL = (
    "onednn_verbose,v1,{}primitive,exec,cpu,matmul,jit:avx2,undef,src:f32::blocked:ab::f0"
    " wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,,8x8:8x8,{}"
)


def records(log: str) -> list[Any]:
    return list(reader.read(str(TRACES / log)))


def parsed(line: str) -> Any:
    return load("mlbackends.tracing.formats", "onednn").parse(line)


# ---- JSON Lines ------------------------------------------------------------------------------


@pytest.mark.parametrize("log", LOGS)
def test_json_lines_hold_every_record(log: str, tmp_path: Path) -> None:
    told = records(log)
    path = tmp_path / "trace.jsonl"
    assert export(told, str(path)) == len(told)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["raw"] for row in rows] == [record.raw for record in told]
    assert [row["operation"] for row in rows] == [record.operation for record in told]
    assert {row["kind"] for row in rows} == {record.kind for record in told}


def walked(data: bytes, form: str, label: str = "") -> list[Any]:
    """Return what a walk writes, read back."""
    file = io.BytesIO()
    writer = exporting.LINES[form](file)
    Walk([writer]).add([data], label)
    writer.close()
    lines = read_back(file.getvalue(), form)
    assert len(lines) == writer.count
    return lines


def read_back(data: bytes, form: str) -> list[Any]:
    """Return objects of JSON Lines, or rows of CSV with numbers as such."""
    text = data.decode("utf-8", "surrogateescape")
    if form == "jsonl":
        return [json.loads(line) for line in text.splitlines()]
    rows = csv.DictReader(io.StringIO(text, newline=""))
    numbers = {name for name, kind in COLUMNS.items() if kind in (int, float)}
    return [
        {name: float(cell) if cell and name in numbers else cell for name, cell in row.items()}
        for row in rows
    ]


DAMAGED = [
    MATMUL.format("", "0.5"),
    MATMUL.format("1795258901075.670898,", "0.25"),
    MATMUL.format("", "\t0.5"),
    MATMUL.format("", "0"),
    MATMUL.format("", "1e-5").replace("undef", 'un"de\\f'),
    MATMUL.format("", "0.5").replace("jit", "j\udca7t"),
    MATMUL.format("", "0.5").replace("jit", "50%j\x7ft"),
    "[rank1]: " + MATMUL.format("", "0.5"),
    "[pid 12 tid 13 end 1795258901075670898] " + MATMUL.format("", "0.5"),
    "MKL_VERBOSE SDOT(512,0x7f,1,0x55,1) 28.43us CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:2",
    "MKL_VERBOSE DNOSUCH(3) 28.43us CNR:OFF",
    "onednn_verbose,v1,graph,exec,cpu,_host(_host_7),1,inputs:{f32:5:a:b::},outputs:{f32:1:a:b:1,2:1},0.5",
]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("log", [*LOGS, ""])
def test_a_walk_writes_what_the_records_are(log: str, form: str, tmp_path: Path) -> None:
    lines = "\r\n".join([*DAMAGED, *DAMAGED[::-1], *DAMAGED, ""])
    data = (TRACES / log).read_bytes() * 3 if log else lines.encode("utf-8", "surrogateescape")
    for label in ("", "a§raw§.log") if not log else ("",):
        path = tmp_path / "trace"
        found = reader.records([data], log=label)
        export((record for record in found if not isinstance(record, Text)), str(path), form)
        assert walked(data, form, label) == read_back(path.read_bytes(), form)


def test_bytes_that_are_no_utf8_survive_json_lines(tmp_path: Path) -> None:
    raw = b"\xff\x00\xfe".decode("utf-8", "surrogateescape")
    path = tmp_path / "trace.jsonl"
    export([Text(raw=raw)], str(path))
    assert json.loads(path.read_bytes())["raw"] == raw


# ---- CSV -------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", LOGS)
def test_csv_holds_every_record(log: str, tmp_path: Path) -> None:
    told = records(log)
    path = tmp_path / "trace.csv"
    assert export(told, str(path)) == len(told)
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert list(rows[0]) == list(COLUMNS)
    assert [row["shape"] for row in rows] == [record.shape for record in told]
    assert [row["raw"] for row in rows] == [csv_cell(record.raw) for record in told]
    times = [float(row["duration_ns"]) if row["duration_ns"] else None for row in rows]
    assert times == [record.duration_ns for record in told]


def test_csv_keeps_quotes_and_line_ends_and_no_controls(tmp_path: Path) -> None:
    raw = b'a "quoted",\x1b[1m \xc2\x9b \xff\0\r\n'.decode("utf-8", "surrogateescape")
    path = tmp_path / "trace.csv"
    export([Text(raw=raw, source="a\x1b.log")], str(path))
    text = path.read_bytes().decode()
    assert '"a ""quoted"",\ufffd[1m \ufffd \ufffd\ufffd\r\n"' in text
    assert "a\ufffd.log" in text


def test_json_lines_escape_what_a_terminal_executes(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    export([Text(raw="\x9b31m \x7f \u202e é\n")], str(path))
    data = path.read_text(encoding="utf-8")
    assert '"\\u009b31m \\u007f \\u202e é\\n"' in data
    assert json.loads(data)["raw"] == "\x9b31m \x7f \u202e é\n"


# ---- Chrome's trace ----------------------------------------------------------------------------


def traced(told: list[Any], tmp_path: Path, name: str = "trace.json") -> dict[str, Any]:
    path = tmp_path / name
    export(told, str(path))
    data = path.read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    return found


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_has_the_documented_fields(log: str, name: str, tmp_path: Path) -> None:
    found = traced(records(log), tmp_path, name)
    assert set(found) == {"displayTimeUnit", "traceEvents", "otherData"}
    assert found["displayTimeUnit"] in {"ms", "ns"}
    named = set()
    for event in found["traceEvents"]:
        assert event["ph"] in {"X", "M"}
        assert isinstance(event["pid"], int)
        assert isinstance(event["name"], str)
        assert isinstance(event["args"], dict)
        if event["ph"] == "X":
            assert isinstance(event["tid"], int)
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert event["cat"]
        elif event["name"] == "thread_name":
            named.add((event["pid"], event["tid"]))
        else:
            assert event["name"] == "process_name"
    assert named == {(e["pid"], e["tid"]) for e in found["traceEvents"] if e["ph"] == "X"}


def test_times_are_microseconds_since_the_first_call(tmp_path: Path) -> None:
    told = [
        parsed(MATMUL.format("1795258901078.000500,", "0.25")),
        parsed(MATMUL.format("1795258901080.000500,", "1.5")),
    ]
    events = traced(told, tmp_path)["traceEvents"]
    assert [(event["ts"], event["dur"]) for event in events[:2]] == [(0, 250), (2000, 1500)]
    assert "synthetic" not in events[0]["args"]


def test_made_up_times_are_marked(tmp_path: Path) -> None:
    found = traced([parsed(MATMUL.format("", "0.25")), parsed(MATMUL.format("", "1"))], tmp_path)
    events = found["traceEvents"]
    assert [event["ts"] for event in events[:2]] == [0, 250]
    assert [event["args"]["synthetic"] for event in events[:2]] == [True, True]
    assert found["otherData"]["synthetic"] is True


def test_a_partition_encloses_its_primitives(tmp_path: Path) -> None:
    events = traced(records("onednn-3.13-graph-sdpa.log"), tmp_path)["traceEvents"]
    partition = next(
        event for event in events if "graphpartition" in event["cat"] and event["args"].get("not_counted")
    )
    inside = [
        event
        for event in events
        if event["ph"] == "X" and partition["ts"] <= event["ts"] < partition["ts"] + partition["dur"]
    ]
    assert {"matmul", "softmax"} <= {event["name"] for event in inside}


def test_ranks_and_processes_have_numbers_of_their_own(tmp_path: Path) -> None:
    line = MATMUL.format("", "1").encode() + b"\n"
    text = [b"[rank0]: " + line, b"[rank1]: " + line, b"[pid 7 tid 9 end 5000000] " + line]
    found = traced(list(reader.records(text)), tmp_path)
    names = {event["args"]["name"] for event in found["traceEvents"] if event["name"] == "process_name"}
    assert names == {"rank0", "rank1", "process 7"}
    assert len({event["pid"] for event in found["traceEvents"]}) == 3
    assert 9 in {event.get("tid") for event in found["traceEvents"]}


def test_a_trace_of_nothing_is_a_trace(tmp_path: Path) -> None:
    assert traced([], tmp_path)["traceEvents"] == []


# ---- Parquet ---------------------------------------------------------------------------------


def test_parquet_holds_typed_columns(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    told = records("torch-2.13-onednn-level2.log")
    path = tmp_path / "trace.parquet"
    assert export(told, str(path)) == len(told)
    table = parquet.read_table(path)
    assert table.column_names == list(COLUMNS)
    assert str(table.schema.field("duration_ns").type) == "double"
    assert str(table.schema.field("process").type) == "int64"
    assert str(table.schema.field("counted").type) == "bool"
    assert table.column("raw").to_pylist() == [record.raw for record in told]
    assert table.column("gflops").to_pylist() == [record.gflops for record in told]
    assert table.column("isa").to_pylist() == [record.isa for record in told]


def test_parquet_takes_a_row_of_megabytes(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path, line = tmp_path / "trace.parquet", MATMUL.format("", "0.5\n")
    lines = [line, line.replace(",,,", "," + '"' * 900_000 + ",,"), line]
    export(reader.records([line.encode() for line in lines]), str(path))
    assert parquet.read_table(path).column("raw").to_pylist() == [line[:-1] for line in lines]


def test_parquet_takes_what_is_no_utf8(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "trace.parquet"
    export([Text(raw=b"\xffx".decode("utf-8", "surrogateescape"))], str(path))
    assert parquet.read_table(path).column("raw").to_pylist() == ["?x"]


def test_without_pyarrow_the_error_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from mlbackends.base.errors import BadInput\n"
        "from mlbackends.tracing.exporting import export\n"
        "try: export([], sys.argv[1])\n"
        "except BadInput as error: print(error.hint)\n"
    )
    path = tmp_path / "trace.parquet"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert install_command("parquet") in done.stdout
    assert os.listdir(tmp_path) == []


# ---- where it goes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a.jsonl", "jsonl"),
        ("A.CSV.GZ", "csv"),
        ("x/trace.json.gz", "perfetto"),
        ("t.parquet", "parquet"),
    ],
)
def test_a_files_end_tells_its_format(path: str, name: str) -> None:
    assert format_of(path) == name


def test_an_end_that_tells_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match="has no known format") as caught:
        format_of("trace.xyz")
    assert ".jsonl" in caught.value.hint
    with pytest.raises(UnknownName):
        export([], "trace", "cvs")


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        export([], str(tmp_path / "nowhere" / "trace.csv"))


def test_standard_output_takes_any_format(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    export([Text(raw="x\n")], "-", "jsonl")
    assert json.loads(capfdbinary.readouterr().out)["raw"] == "x\n"


def test_equal_traces_make_equal_packed_files(tmp_path: Path) -> None:
    told = records("torch-2.13-mkl.log")
    for name in ("a.csv.gz", "b.csv.gz"):
        export(told, str(tmp_path / name))
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
