"""`backends bench`: the record, the table, and the outliers of a fleet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
from jsonschema import Draft202012Validator
from msgspec.structs import replace
from running import backends

from mlbackends.base.reasons import Reason
from mlbackends.model.machine_speed import SCHEMA, Figure, MachineSpeed
from mlbackends_cli.report.commands.bench import text
from mlbackends_cli.report.commands.schema import SCHEMAS
from mlbackends_cli.terminal import Page

if TYPE_CHECKING:
    from pathlib import Path

MISSING = Figure("product", "GFLOP/s", reason=Reason("missing-part", "numpy is not installed"))
MEMORY = Figure("memory", "GB/s", 20.0, 0.011, 30, "reading 256 MiB, 8 threads", "memory")
BUSY = Reason("busy", "other work used 40% of the CPUs before the first round")
SPEED = MachineSpeed(
    SCHEMA, "backends 0", "2026-01-01T00:00:00Z", "Xeon", 8, 5, 6.0, (MEMORY, MISSING), (BUSY,), 3.2
)


def test_the_table_has_speeds_reasons_and_what_disturbed() -> None:
    lines = text(SPEED, Page(width=200)).splitlines()
    assert lines[1].split() == [
        "memory",
        "20",
        "GB/s",
        "1.1%",
        "30",
        *("reading", "256", "MiB,", "8", "threads;", "memory"),
    ]
    assert "not measured: numpy is not installed" in lines[2]
    assert max(map(len, text(SPEED, Page(width=60)).splitlines())) <= 60
    assert "Xeon, 8 threads, 5 rounds in 6.0 s" in lines
    assert "disturbed: other work used 40% of the CPUs before the first round" in lines


def test_a_folder_that_is_none_is_one_line_and_exit_2() -> None:
    done = backends("bench", "--quick", "--disk", "/nowhere/at/all")
    assert done.returncode == 2
    assert "--disk: '/nowhere/at/all' is not a folder" in done.stderr


def test_a_quick_run_prints_a_record_of_the_schema(tmp_path: Path) -> None:
    done = backends("bench", "--quick", "--disk", str(tmp_path), "--format", "json")
    record = json.loads(done.stdout)
    Draft202012Validator(SCHEMAS["bench"]()).validate(record)
    assert done.returncode in {0, 3}, done.stderr
    assert {figure["name"] for figure in record["figures"]} >= {"memory", "product", "disk-read"}


def test_a_slow_node_of_a_fleet_is_named_with_its_speed(tmp_path: Path) -> None:
    for node in range(40):
        speed = 15.0 if node == 7 else 20.0 + node % 3 / 10
        record = replace(
            SPEED, figures=(replace(MEMORY, value=speed), MISSING), disturbed=(BUSY,) * (node == 9)
        )
        (tmp_path / f"n{node}.json").write_bytes(msgspec.json.encode(record))
    done = backends("fleet", "summarize", str(tmp_path), "--fail-on", "drift")
    assert done.returncode == 1, done.stderr
    assert "memory value: 15, 0.746 times the median of 40 nodes (20.1)" in " ".join(done.stdout.split())
    assert "n9" in done.stdout
    assert "disturbed[busy].code" in done.stdout
