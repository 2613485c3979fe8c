"""The file that a trace goes to, what is counted in it, and who watches it grow."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

if sys.platform == "win32":
    pytest.skip("captures are for POSIX", allow_module_level=True)

from mlbackends.tracing.capture.environment import rank_of, ranks_files, with_rank
from mlbackends.tracing.capture.trace_file import TraceFile, counted

if TYPE_CHECKING:
    from pathlib import Path

MARKERS = {"mkl": (b"MKL_VERBOSE ",), "onednn": (b"onednn_verbose,", b"dnnl_verbose,")}


@pytest.mark.parametrize("size", [10, 1 << 20, (1 << 20) - 7, (1 << 20) + 1])
def test_lines_are_counted_once_wherever_the_pieces_end(tmp_path: Path, size: int) -> None:
    file = tmp_path / "trace.log"
    text = b"onednn_verbose,a\n[pid 1 tid 1 end 1] MKL_VERBOSE b\n"
    filler = b"x" * (size % 97) + b"\n"
    count = max(size // len(text), 1)
    file.write_bytes(b"skipped\n" + filler + text * count + b"dnnl_verbose,c\n")
    totals = counted([(str(file), len(b"skipped\n"))], MARKERS)
    assert totals == {"": 2 * count + 2, "mkl": count, "onednn": count + 1}


def test_a_line_without_an_end_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "trace.log"
    file.write_bytes(b"MKL_VERBOSE a\nonednn_verbose,a\nonednn_verbose,b")
    assert counted([(str(file), 0)], MARKERS) == {"": 2, "mkl": 1, "onednn": 1}


def test_the_first_line_of_an_empty_file_counts(tmp_path: Path) -> None:
    file = tmp_path / "trace.log"
    file.write_bytes(b"MKL_VERBOSE a\n")
    assert counted([(str(file), 0)], MARKERS) == {"": 1, "mkl": 1, "onednn": 0}


def test_a_program_that_moves_its_folder_writes_to_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with TraceFile("trace.log", append=False, of_ranks=False) as trace:
        assert trace.path == str(tmp_path / "trace.log")


def test_what_stood_there_is_kept_only_where_that_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "trace.log"
    for append, text in ((True, b"old\n"), (False, b"")):
        file.write_bytes(b"old\n")
        with TraceFile(str(file), append=append, of_ranks=False) as trace:
            assert trace.parts() == [(str(file), len(text))]
        assert file.read_bytes() == text


@pytest.mark.parametrize(
    ("path", "rank", "name"),
    [
        ("/a/trace.log", "3", "/a/trace.rank3.log"),
        ("/a.b/trace", "0", "/a.b/trace.rank0"),
        (".trace", "1", ".trace.rank1"),
        ("trace.log", "", "trace.log"),
    ],
)
def test_a_rank_stands_before_the_extension(path: str, rank: str, name: str) -> None:
    assert with_rank(path, rank) == name


@pytest.mark.parametrize("value", ["", "x", "-1", "1.0", "²", "9" * 16])
def test_what_is_no_number_is_no_rank(value: str) -> None:
    assert not rank_of({"RANK": value}, ("RANK",))
    assert rank_of({"RANK": value, "PMI_RANK": "2"}, ("RANK", "PMI_RANK")) == "2"


def test_the_traces_of_ranks_come_in_order(tmp_path: Path) -> None:
    names = ["t.rank10.log", "t.rank9.log", "t.rankx.log", "t.log", "u.rank1.log"]
    for name in names:
        (tmp_path / name).touch()
    found = [os.path.basename(file) for file in ranks_files(str(tmp_path / "t.log"))]
    assert found == ["t.rank9.log", "t.rank10.log"]
    assert ranks_files("/no/such/t.log") == []
