"""What `backends trace show` says of logs that are unlike any that a library writes to a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from running import backends

if TYPE_CHECKING:
    from pathlib import Path

EXECUTED = (
    "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,"
    "src:f32::blocked:ab::f0 dst:f32::blocked:ba::f0,,,16x16,2.5"
)
CREATED = EXECUTED.replace("exec", "create:cache_miss").replace("2.5", "0.5")
ENDLESS = EXECUTED.replace("2.5", "1e400")


def test_a_log_in_a_string_of_json_is_read_like_the_log(tmp_path: Path) -> None:
    log, string = tmp_path / "a.log", tmp_path / "a.json"
    log.write_text(f"{CREATED}\n{EXECUTED}\n" * 1500)
    string.write_text(json.dumps({"output": f"begin\n{log.read_text()}end\n"}))
    grouped = ("--group-by", "operation,implementation", "--format", "json")
    of_log, of_string = (backends("trace", "show", str(file), *grouped) for file in (log, string))
    assert (of_string.returncode, of_string.stderr) == (0, "")
    assert json.loads(of_string.stdout) == json.loads(of_log.stdout)


def test_a_summary_of_lines_behind_carriage_returns_counts_executions(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(f"{CREATED}\r{EXECUTED}\r{EXECUTED}\n".encode())
    found = json.loads(backends("trace", "show", str(log), "--format", "json").stdout)
    assert (found["count"], found["total_ns"]) == (2, 5e6)


@pytest.mark.parametrize("options", [(), ("--group-by", "dtype"), ("--where", "operation=reorder")])
def test_where_no_line_can_be_read_it_says_so_and_how_to_see_them(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"text\n{ENDLESS}\nonednn_verbose,v9,what,is,this\n")
    done = backends("trace", "show", str(log), *options)
    assert (done.stdout, done.returncode) == ("", 1)
    assert "2 lines could not be read; --list-malformed shows them" in done.stderr
    assert f"no line in {log} can be read as one of MKL or oneDNN" in done.stderr


def test_findings_of_lines_that_cannot_be_read_are_shown_all_the_same(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"{ENDLESS}\n")
    done = backends("trace", "show", str(log), "--view", "findings")
    assert done.returncode == 1
    assert "1 line could not be read" in done.stdout


def test_who_asks_for_the_first_lines_alone_is_told_nothing_of_the_others(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"{ENDLESS}\n{EXECUTED}\n")
    done = backends("trace", "show", str(log), "--view", "records", "--top", "1")
    assert (done.stdout, done.returncode) == (f"{ENDLESS}\n", 0)
    assert "no line" not in done.stderr


def test_one_line_that_can_be_read_is_a_trace(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"{ENDLESS}\n{EXECUTED}\n")
    done = backends("trace", "show", str(log))
    assert (done.returncode, "1 call, 2.5 ms" in done.stdout) == (0, True)
