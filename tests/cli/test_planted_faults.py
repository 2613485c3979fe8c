"""Fleets drawn by seed with faults on known nodes: each of these is named with its value, and no other is."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Raw
from running import backends

from mlbackends.fleet.frames import frames
from mlbackends.model.fleet import Envelope
from mlbackends.model.records import SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

Facts = dict[str, Any]
USUAL: Facts = {"model_name": "Xeon", "driver": "570.86.15", "kernel": "6.8.0-40", "shm_gib": 512}


def report(facts: Facts) -> Facts:
    return {
        "schema": SCHEMA, "tool": "backends 0", "depth": "found", "root": "/", "created": "",
        "duration_seconds": 0.1, "redacted": True,
        "probes": {"cpu": {"presence": "found", "facts": facts, "duration_seconds": 0.1}},
    }  # fmt: skip


class Planted:
    """A folder of a fleet with faults. wanted: what a summary must state, by node, and nothing else."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._random = random.Random(seed)
        self._folder = folder
        size = self._random.choice([5, 7, 12, 40, 130])
        self.nodes = [f"n{at:03}" for at in range(size)]
        self._untouched = self._random.sample(self.nodes, size)
        self._facts = {node: dict(USUAL) for node in self.nodes}
        self._texts: dict[str, str] = {}
        self.missing: list[str] = []
        self.broken: dict[str, str] = {}
        self.drift: dict[str, tuple[str, Any]] = {}
        self.lone: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.thirds: dict[str, str] = {}
        faults = [self.drifting, self.of_another_kind, self.absent, self.garbage, self.failing]
        for fault in self._random.sample(faults, self._random.randint(1, 3) if size > 7 else 1):
            fault()
        if size >= 12 and self._random.random() < 0.6:
            self.in_thirds()
        for node, facts in self._facts.items():
            data = json.dumps(report(facts)).encode()
            if node not in self._texts and node not in self.missing:
                error = self.failed.get(node, "")
                envelope = Envelope(node=node, report=Raw(data), error=error)
                (folder / f"{node}.frame").write_text("\n".join(frames(envelope)))
        for node, text in self._texts.items():
            (folder / f"{node}.json").write_text(text)

    def _some(self, most: int) -> list[str]:
        return [self._untouched.pop() for _ in range(self._random.randint(1, most))]

    def drifting(self) -> None:
        """Give a node, or two nodes of a large fleet, each another value of one fact."""
        for at, node in enumerate(self._some(2 if len(self.nodes) > 7 else 1)):
            name, value = self._random.choice([
                ("driver", f"550.54.1{at}"), ("kernel", f"5.15.0-12{at}"), ("shm_gib", 64 + at),
            ])  # fmt: skip
            self._facts[node][name] = value
            self.drift[node] = (f"cpu.{name}", value)

    def of_another_kind(self) -> None:
        """Make one node another model."""
        for node in self._some(1):
            self._facts[node]["model_name"] = self.lone[node] = f"EPYC 96{self._random.randint(10, 99)}"

    def absent(self) -> None:
        """Take away the files of some nodes."""
        self.missing += self._some(2)

    def garbage(self) -> None:
        """Let the files of some nodes have other text."""
        texts = ["Segmentation fault", "ImportError: no", "node9: killed", "error: {x", ""]
        texts += ['{"a": 1}', '{"a": "b', "srun: {"]
        for node in self._some(2):
            self._texts[node] = self.broken[node] = self._random.choice(texts)

    def failing(self) -> None:
        """Let the command of some nodes fail after it printed the report."""
        for node in self._some(2):
            self.failed[node] = f"exit code {self._random.choice([70, 3, 139])}"

    def in_thirds(self) -> None:
        """Give a third of all nodes each of three libraries."""
        for at, node in enumerate(self.nodes):
            value = self._facts[node]["library"] = f"2.{at % 3}.1"
            if node not in self.missing and node not in self.broken:
                self.thirds[node] = value


@pytest.mark.parametrize("seed", range(32))
def test_each_planted_node_is_named_with_its_value_and_no_other_is(seed: int, tmp_path: Path) -> None:
    planted = Planted(seed, tmp_path)
    words = ("fleet", "summarize", str(tmp_path), "--expect", ",".join(planted.nodes))
    fleet = json.loads(backends(*words, "--format", "json").stdout)

    (kind,) = fleet["kinds"]
    found = {
        (node, difference["name"]): difference["value"]
        for deviation in kind["deviations"]
        for node in deviation["nodes"]
        for difference in deviation["differences"]
    }
    wanted: dict[tuple[str, str], Any] = {
        (node, name): value for node, (name, value) in planted.drift.items()
    }
    wanted |= {(node, "cpu.model_name"): model for node, model in planted.lone.items()}
    assert found == wanted
    assert kind["others"] == [*planted.lone] and kind["not_compared"] == []
    thirds = {
        node: value
        for split in kind["splits"]
        for name, values in split["facts"].items()
        for nodes, value in zip(split["groups"], values, strict=True)
        for node in nodes
        if name == "cpu.library"
    }
    assert thirds == planted.thirds
    assert fleet["flagged"] == planted.failed
    silent = {node: (group["status"], group["error"]) for group in fleet["silent"] for node in group["nodes"]}
    assert {node for node, (status, _) in silent.items() if status == "missing"} == {*planted.missing}
    broken = {node: error for node, (status, error) in silent.items() if status == "error"}
    assert {*broken} == {*planted.broken}
    assert all(planted.broken[node] in error for node, error in broken.items())
    assert len(silent) == len(planted.missing) + len(planted.broken)

    drifts = bool(planted.drift or planted.lone or planted.thirds)
    assert backends(*words, "--fail-on", "drift").returncode == int(drifts)
    incomplete = bool(planted.missing or planted.broken)
    assert backends(*words, "--fail-on", "any").returncode == int(
        drifts or incomplete or bool(planted.failed)
    )
    page = backends(*words, "--all").stdout
    for node, (_, value) in planted.drift.items():
        assert node in page and str(value) in page
    for value in (*planted.lone.values(), *planted.thirds.values(), *planted.failed.values()):
        assert value in page


def test_values_that_begin_alike_are_shown_where_they_differ(tmp_path: Path) -> None:
    alike = "-O2 " * 40
    for at, flags in enumerate(["none", *(f"{alike}-march=v{level}" for level in (2, 3, 4))]):
        data = json.dumps(report(USUAL | {"flags": flags}))
        (tmp_path / f"n{at}.json").write_text(data)
    for words in (("facts", "cpu.flags"), ("summarize",)):
        page = backends("fleet", *words, str(tmp_path)).stdout
        assert all(f"-march=v{level}" in page for level in (2, 3, 4)), page
        assert "…none" not in page


def test_a_fact_that_each_machine_has_for_itself_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "n1.json").write_text(json.dumps(report(USUAL)))
    told = {
        "host.host_name": "each machine has its own",
        "memory.free_bytes": "it changes by itself",
    }
    for fact, why in told.items():
        failed = backends("fleet", "facts", fact, str(tmp_path))
        assert (failed.returncode, failed.stderr) == (
            2, f"backends: {fact} is not compared: {why}\n"
        )  # fmt: skip
    assert "did you mean 'cpu.driver'?" in backends("fleet", "facts", "cpu.drivr", str(tmp_path)).stderr
