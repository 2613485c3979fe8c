"""`backends fleet summarize --by-group`: what is shown by group, and what Prometheus reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from running import backends

from mlbackends.fleet.frames import frames
from mlbackends.model.fleet import Envelope
from mlbackends_cli.report.commands.schema import SCHEMAS

if TYPE_CHECKING:
    import subprocess

ROOT = Path(__file__).resolve().parents[2]
SOUND = json.loads((ROOT / "tests/reports/hgx-h100-sound.json").read_text("utf-8"))
#: The third rack has another driver, and one node of the first rack another module.
DRIVERS = {"r1": "560.35.03", "r2": "560.35.03", "r3": "580.65.06"}


def report(**nvidia: Any) -> bytes:
    document = json.loads(json.dumps(SOUND))
    document["probes"]["nvidia"]["facts"].update(nvidia)
    return json.dumps(document).encode()


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("racks") / "all.jsonl"
    with file.open("wb") as lines:
        for rack, driver in DRIVERS.items():
            for at in range(4):
                facts = {"kernel_module": "proprietary"} if (rack, at) == ("r1", 2) else {}
                data = msgspec.Raw(report(driver_release=driver, **facts))
                lines.write(msgspec.json.encode(Envelope(node=f"{rack}n{at}", report=data)) + b"\n")
    return file


def summarized(racks: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return backends("fleet", "summarize", str(racks), "--by-group", "(r[0-9]+)n", *options)


def test_a_group_that_differs_is_a_part_and_each_of_the_others_a_line(racks: Path) -> None:
    done = summarized(racks, "--expect", "r[1-4]n[0-3],r2n4,login1", "--fail-on", "drift")

    assert done.returncode == 1
    first, others, silent = done.stdout.split("group", maxsplit=3)[1:]
    assert first.startswith(" r1: 4 nodes: ")
    assert "1 of 4  r1n2" in first and "nvidia.kernel_module: proprietary (others open)" in first
    assert [line.split(maxsplit=1) for line in others.splitlines()[2:4]] == [
        ["r2", "4 nodes; 1 of 5 without a report"],
        ["r3", "4 nodes"],
    ]
    assert "r4           4 of 4 without a report" in silent
    assert "in no group  1 of 1 without a report" in silent
    assert "1 node is in no group of (r[0-9]+)n: login1" in done.stdout


def test_every_form_has_the_groups(racks: Path, tmp_path: Path) -> None:
    picture = tmp_path / "fleet.svg"
    for form in ("html", "markdown"):
        text = summarized(racks, "--format", form, "--plot", str(picture)).stdout
        assert "group r1: 4 nodes" in text and "groups that agree with the majority" in text
    assert "group r3: 4 nodes" in picture.read_text("utf-8")
    fleet = json.loads(summarized(racks, "--format", "json").stdout)
    jsonschema.validate(fleet, SCHEMAS["fleet"]())
    assert [kind["title"]["group"] for kind in fleet["kinds"]] == ["r1", "r2", "r3"]
    assert fleet["groups"]["r2"] == ["r2n0", "r2n1", "r2n2", "r2n3"]
    saved = tmp_path / "fleet.json"
    saved.write_text(json.dumps(fleet))
    assert json.loads(summarized(saved, "--format", "json").stdout)["kinds"] == fleet["kinds"]


def test_each_group_can_have_its_golden_node(racks: Path, tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_bytes(report(driver_release="560.35.03"))
    new.write_bytes(report(driver_release="580.65.06"))

    done = summarized(racks, "--baseline", f"r3={new}", "--baseline", str(old), "--format", "json")
    kinds = {kind["title"]["group"]: kind for kind in json.loads(done.stdout)["kinds"]}
    assert {group: kind["alike"] for group, kind in kinds.items()} == {"r1": 3, "r2": 4, "r3": 4}
    assert kinds["r3"]["compared_with"] == str(new) and kinds["r2"]["compared_with"] == str(old)
    done = summarized(racks, "--baseline", f"r3={old}")
    assert "0 of 4 agree with" in done.stdout

    twice = summarized(racks, "--baseline", str(old), "--baseline", str(new))
    assert twice.returncode == 2 and "twice for all nodes" in twice.stderr
    without = summarized(racks, "--baseline", "r1=")
    assert without.returncode == 2 and "'r1=' does not name a file" in without.stderr
    without = backends("fleet", "summarize", str(racks), "--baseline", f"r1={old}")
    assert without.returncode == 2 and "--by-group makes groups" in without.stderr
    nodes = tmp_path / "nodes"
    nodes.write_text("r[1-3]n[0-3]|gpu|(null)\n")
    wrong = backends(
        "fleet", "summarize", str(racks), "--by-group", f"partition={nodes}", "--baseline", f"gpus={old}"
    )
    assert wrong.returncode == 2 and "did you mean gpu?" in wrong.stderr.replace("'", "")


def samples(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a family by the values of their labels, as Prometheus' client reads them."""
    (family,) = (found for found in text_string_to_metric_families(text) if found.name == name)
    assert family.documentation and family.type == "gauge"
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def test_prometheus_counts_by_group_and_names_the_nodes(racks: Path, tmp_path: Path) -> None:
    file = tmp_path / "fleet.prom"
    options = ("--expect", "r[1-3]n[0-3],r2n4", "--hazards", "--format", "prometheus")
    done = summarized(racks, *options, "--output", str(file))
    assert done.returncode == 0 and file.stat().st_mode & 0o044 == 0o044
    text = file.read_text("utf-8")

    nodes = samples(text, "backends_fleet_nodes")
    assert {key: count for key, count in nodes.items() if count} == {
        ("r1", "ok"): 4, ("r2", "ok"): 4, ("r2", "missing"): 1, ("r3", "ok"): 4,
    }  # fmt: skip
    assert samples(text, "backends_fleet_deviating_nodes") == {("r1",): 1, ("r2",): 0, ("r3",): 0}
    assert samples(text, "backends_fleet_node_deviations") == {("r1", "r1n2"): 1}
    assert samples(text, "backends_fleet_node_silent") == {("r2", "r2n4", "missing"): 1}
    hazards = samples(text, "backends_fleet_hazard_nodes")
    assert {group: count for (group, code, _), count in hazards.items() if code == "known-wrong-numbers"} == {
        "r1": 4, "r2": 4, "r3": 4,
    }  # fmt: skip


def test_a_group_that_is_divided_has_facts_without_a_majority(racks: Path) -> None:
    text = backends(
        "fleet", "summarize", str(racks), "--by-group", "(r)[13]n[01]", "--format", "prometheus"
    ).stdout
    assert samples(text, "backends_fleet_deviating_nodes")["r",] == 0
    assert samples(text, "backends_fleet_facts_without_majority") == {("r",): 1, ("",): 0}


@pytest.mark.skipif(os.name == "nt", reason="the stub of ssh is a shell script")
def test_a_run_and_its_kept_reports_are_grouped(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    frame = "\n".join(frames(Envelope(report=msgspec.Raw(report()))))
    (tmp_path / "report").write_text(f"{frame}\n")
    ssh.write_text(f'#!/bin/sh\ncase "$*" in *b2*) exit 255 ;; *) cat {tmp_path}/report ;; esac\n')
    ssh.chmod(0o755)
    options = ("--by-group", "([ab])", "--format", "json")
    kept = str(tmp_path / "kept")
    done = backends(
        "fleet", "run", "--hosts", "a[1-2],b[1-2]", "--keep", kept, *options,
        environment={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )  # fmt: skip
    for text in (done.stdout, backends("fleet", "summarize", kept, *options).stdout):
        fleet = json.loads(text)
        assert fleet["groups"] == {"a": ["a1", "a2"], "b": ["b1", "b2"]}
        assert [(kind["title"]["group"], kind["nodes"]) for kind in fleet["kinds"]] == [("a", 2), ("b", 1)]


def test_prometheus_without_groups_and_with_hostile_names() -> None:
    lines = "\n".join(
        msgspec.json.encode(Envelope(node=node, report=msgspec.Raw(report(kernel_module=module)))).decode()
        for node, module in (('a"b\\\n', "x"), ("n2", "open"), ("n3", "open"), ("n4", "open"))
    )
    done = backends("fleet", "summarize", "--format", "prometheus", data=lines)
    assert samples(done.stdout, "backends_fleet_node_deviations") == {("", "a?b??"): 1}
    assert samples(done.stdout, "backends_fleet_nodes")["", "ok"] == 4
