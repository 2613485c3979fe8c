"""Many nodes: 500 by ssh of which a tenth hangs, and 200,000 reports that workers read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from mlbackends.audit.reports import report_of
from mlbackends.fleet.frames import frames
from mlbackends.model.fleet import Envelope
from mlbackends.model.records import SCHEMA

MACHINE = Path(__file__).parents[1] / "hosts" / "cluster-modules-node.machine"
#: Stands for ssh: every tenth node notes that it was asked, and hangs.
SSH = """#!/bin/sh
for word; do case "$word" in n[0-9]*) host=$word; break;; esac; done
case $host in
    n*7) date +%s.%N > FOLDER/$host; exec sleep 600 ;;
    *) cat FOLDER/report ;;
esac
"""


@pytest.mark.nightly
@pytest.mark.skipif(os.name == "nt", reason="the stub of ssh is a shell script")
@pytest.mark.parametrize("fanout", [64, 512])
def test_500_nodes_of_which_50_hang_end_five_seconds_after_the_limit(tmp_path: Path, fanout: int) -> None:
    report = Raw(msgspec.json.encode(report_of(str(MACHINE))))
    (tmp_path / "report").write_text("".join(f"{line}\n" for line in frames(Envelope(report=report))))
    (tmp_path / "ssh").write_text(SSH.replace("FOLDER", str(tmp_path)))
    (tmp_path / "ssh").chmod(0o755)
    command = [sys.executable, "-m", "mlbackends", "fleet", "run", "--hosts", "n[000-499]"]
    command += ["--timeout", "10", "--fanout", str(fanout), "--format", "json"]
    command += ["--by-group", "n(.)..", "--fail-on", "never"]
    begun = time.time()
    done = subprocess.run(
        command,
        capture_output=True,
        check=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    ended = time.time()
    fleet = json.loads(done.stdout)
    hanging = [f"n{at:03}" for at in range(500) if at % 10 == 7]
    assert [(group["status"], group["nodes"]) for group in fleet["silent"]] == [("timeout", hanging)]
    assert {group: len(nodes) for group, nodes in fleet["groups"].items()} == dict.fromkeys("01234", 100)
    starts = [float((tmp_path / node).read_text()) for node in hanging]
    print(f"{ended - begun:.1f} s in all; {ended - max(starts):.1f} s after the last that hangs was asked")
    assert ended - max(starts) < 10 + 5 + 5  # the second five are for this machine: to start, end and write


@pytest.mark.nightly
def test_200_000_reports_are_read_by_workers(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    head: dict[str, Any] = {
        "schema": SCHEMA,
        "tool": "backends 0",
        "depth": "found",
        "root": "/",
        "created": "",
    }
    head |= {"duration_seconds": 0.5, "redacted": True}
    count, planted = 200_000, {12_345: "old", 199_999: "old", 77_777: "odd"}
    files = [tmp_path / f"part{at:02}.jsonl" for at in range(20)]
    for place, file in enumerate(files):
        with file.open("wb") as lines:
            for at in range(place * count // 20, (place + 1) * count // 20):
                facts = {"model_name": "Xeon", "driver": planted.get(at, "new"), "uptime": "same"}
                probes = {"cpu": {"presence": "found", "facts": facts, "duration_seconds": at / 7}}
                data = Raw(msgspec.json.encode(head | {"probes": probes}))
                lines.write(msgspec.json.encode(Envelope(node=f"r{at // 100:04}n{at % 100:02}", report=data)))
                lines.write(b"\n")
    program = [sys.executable, "-m", "mlbackends", "fleet", "summarize", *map(str, files)]
    program += ["--by-group", "(r[0-9]+)n", "--expect", "r[0000-1999]n[00-99]", "--format", "json"]
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        command = [*program, "--dask", cluster.scheduler_address]
        fleet = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert sum(len(configuration["nodes"]) for configuration in fleet["configurations"]) == count
    assert not fleet["silent"] and len(fleet["groups"]) == 2000
    found = [
        (kind["title"]["group"], deviation["nodes"], deviation["differences"][0]["value"])
        for kind in fleet["kinds"]
        for deviation in kind["deviations"]
    ]
    assert sorted(found) == [
        ("r0123", ["r0123n45"], "old"), ("r0777", ["r0777n77"], "odd"), ("r1999", ["r1999n99"], "old"),
    ]  # fmt: skip
