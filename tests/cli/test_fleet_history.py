"""`backends fleet history` and `prune`, over folders of kept runs."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kept_runs import keep, report
from running import backends

from mlbackends.model.fleet import Status
from mlbackends_cli.report.commands.schema import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NODES = [f"node{at:02}" for at in range(20)]


def history(folder: Path, *words: str) -> str:
    done = backends("fleet", "history", str(folder), *words, environment={"TZ": "UTC", "COLUMNS": "140"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def record(folder: Path, *words: str) -> Any:
    return json.loads(history(folder, "--format", "json", *words))


@pytest.fixture(scope="module")
def rolled_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep ten days in which a driver is rolled out, a firmware flaps, and nodes fall silent."""
    runs = []
    for day in range(10):
        answers: dict[str, Any] = {}
        for at, node in enumerate(NODES):
            is_new = (day >= 2 and at < 5) or (day >= 4 and at != 17)
            facts = {"version": "580.65", "cuda": "13.0"} if is_new else {"version": "570.86", "cuda": "12.8"}
            facts["firmware"] = "b" if at == 7 and day % 3 == 1 else "a"
            answers[node] = report(**facts, memory_bytes=(1 << 40) + day * 10**8)
        if day >= 8:
            answers["node19"] = Status.UNREACHABLE
        if day in {3, 6}:
            answers["node15"] = Status.TIMEOUT
        runs.append(answers)
    folder = tmp_path_factory.mktemp("kept")
    keep(folder, runs)
    return folder


def test_a_roll_out_is_one_line_with_its_progress(rolled_out: Path) -> None:
    lines = [" ".join(line.split()) for line in history(rolled_out).splitlines()]
    assert lines[0] == "10 runs of `info`"
    assert lines[1] == "run 10 2026-11-10 10:00: 19 reported, 1 without a report"
    start = lines.index("Changes") + 1
    progress = "19 of 20 nodes done by 2026-11-05; not yet: node17"
    assert lines[start] == f"2026-11-03 nvidia.version 570.86 → 580.65 since 2026-11-03: {progress}"
    assert lines[start + 1] == "nvidia.cuda 12.8 → 13.0"
    flaps = lines.index("Nodes that changed back and forth") + 1
    assert lines[flaps : flaps + 4] == [
        "6 changes node07, last on 2026-11-09", "nvidia.firmware a ↔ b",
        "4 changes node15, last on 2026-11-08", "status ok ↔ silent",
    ]  # fmt: skip
    assert lines[-1] == "unreachable node19: NODE failed, since 2026-11-09"
    assert "total_bytes" not in history(rolled_out, "--all")  # within a hundredth each day


def test_a_fact_has_its_values_over_time(rolled_out: Path) -> None:
    found = record(rolled_out, "--fact", "nvidia.version")
    jsonschema.validate(found, SCHEMAS["fleet-history"]())
    (fact,) = found["facts"]
    assert fact["mixed_since"] == 3
    states = [
        (state["run"], {one["value"]: one["nodes"] for one in state["counts"]}) for state in fact["states"]
    ]
    assert states == [(1, {"570.86": 20}), (3, {"570.86": 15, "580.65": 5}), (5, {"580.65": 19, "570.86": 1})]
    assert "nvidia.version: mixed since 2026-11-03" in history(rolled_out, "--fact", "nvidia.version")
    assert "cpu.model_name: the same on all nodes" in history(rolled_out, "--fact", "cpu.*")
    done = backends("fleet", "history", str(rolled_out), "--fact", "nvidia.versoin")
    assert (done.returncode, "did you mean 'nvidia.version'" in done.stderr) == (2, True)


def test_a_fact_that_some_nodes_lack_is_the_same_on_those_that_have_it(tmp_path: Path) -> None:
    keep(tmp_path, [{"a": report(version="1"), "b": report()}])
    assert "nvidia.version: the same on all nodes that have it" in history(
        tmp_path, "--fact", "nvidia.version"
    )


def test_a_node_has_its_own_history(rolled_out: Path) -> None:
    found = record(rolled_out, "--node", "node[03-04,15]")
    jsonschema.validate(found, SCHEMAS["fleet-history"]())
    ((rollout,), (flap,)) = found["rollouts"], found["flaps"]
    assert rollout["moves"] == [{"run": 3, "nodes": ["node03", "node04"]}, {"run": 5, "nodes": ["node15"]}]
    assert (flap["nodes"], flap["runs"]) == (["node15"], [4, 5, 7, 8])
    done = backends("fleet", "history", str(rolled_out), "--node", "other")
    assert (done.returncode, "has a report of these nodes" in done.stderr) == (3, True)


def test_runs_of_other_commands_and_nodes_that_are_gone_are_not_mixed_in(tmp_path: Path) -> None:
    sound, new = report(version="1"), report(version="2")
    keep(tmp_path, [{"a": sound, "b": sound, "c": sound}])
    keep(tmp_path, [{"a": new}], words=("doctor",))
    keep(tmp_path, [{"a": new, "b": sound}])
    found = record(tmp_path)
    assert [run["run"] for run in found["runs"]] == [1, 3]
    ((rollout),) = found["rollouts"]
    assert (rollout["moves"], rollout["total"], rollout["left"]) == ([{"run": 3, "nodes": ["a"]}], 2, ["b"])
    assert found["notes"] == [
        "left out, since another command was run: 1 run",
        "not counted as left, since the newest run did not ask: 1 node",
    ]


def test_who_was_not_asked_before_an_interrupt_is_not_silent(tmp_path: Path) -> None:
    keep(tmp_path, [{"a": report(), "b": report()}])
    keep(tmp_path, [{"a": report(), "b": None}], is_whole=False)
    assert record(tmp_path)["silent"] == []
    assert "interrupted or still running" in history(tmp_path)
    keep(tmp_path, [{"a": report(), "b": None}])
    (silent,) = record(tmp_path)["silent"]
    assert (silent["run"], silent["status"], silent["nodes"]) == (3, "missing", ["b"])


@pytest.mark.parametrize(("to", "is_change"), [(1.004, False), (1.05, True)])
def test_a_metric_is_compared_as_measured_and_not_as_rounded(
    tmp_path: Path, to: float, is_change: bool
) -> None:
    below = int(16.49 * (1 << 36))  # of which five bits count: from 16.5 on it is 17
    keep(tmp_path, [{"a": report(memory_bytes=value)} for value in (below, int(below * to))])
    assert bool(record(tmp_path)["rollouts"]) is is_change


def test_old_runs_are_removed(rolled_out: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(rolled_out, tmp_path / "kept")
    size = (folder / "fleet.sqlite3").stat().st_size

    def prune(*words: str) -> str:
        done = backends("fleet", "prune", str(folder), *words)
        return done.stderr if done.returncode else done.stdout

    assert "no rule says what to keep" in prune()
    assert "is not a duration" in prune("--keep-within", "3 days")
    assert prune("--keep-last", "3", "--dry-run").startswith("7 runs (1-7) would be removed; 3")
    assert prune("--keep-last", "3") == "7 runs (1-7) with 138 reports removed; 3 runs kept\n"
    assert (folder / "fleet.sqlite3").stat().st_size < size
    assert [run["run"] for run in record(folder)["runs"]] == [8, 9, 10]
    assert backends("fleet", "summarize", f"{folder}@8").stdout.startswith("20 nodes: 20 reported")
    assert "0 runs with 0 reports removed; 3 runs kept" in prune("--keep-within", "99y")
    assert "2 runs (8-9) with 39 reports removed; 1 run kept" in prune("--keep-within", "1h")


@pytest.mark.parametrize(
    "change",
    [
        "reports SET node = CAST(x'ff' || id AS BLOB), status = x'ff', error = x'ff'",
        "reports SET sections = 'x'", "reports SET sections = x'ff'",
        "reports SET node = '-x[1-' || id", "runs SET expected = '[\"-x[1-\"]'",
        "reports SET sections = '[' || id || ', y]'", "reports SET sections = '[1000]'",
        "sections SET probe = x'ff'", "sections SET facts = x'00'", "sections SET fingerprint = id",
        "contents SET data = x'00'", "runs SET started = -1", "runs SET ended = 1e300",
    ],
)  # fmt: skip
def test_any_database_is_read_or_refused(rolled_out: Path, tmp_path: Path, change: str) -> None:
    folder = shutil.copytree(rolled_out, tmp_path / "kept")
    with closing(sqlite3.connect(folder / "fleet.sqlite3")) as database:
        database.execute(f"UPDATE {change}")
        database.commit()
    for words in ((), ("--fact", "nvidia"), ("--node", "node[00-05]")):
        done = backends("fleet", "history", str(folder), *words)
        assert done.returncode in {0, 2, 3}, (words, done.stderr)


def reference(values: Sequence[dict[str, str | None]]) -> tuple[set[Any], set[str]]:
    """Return the changes (node, run, before, after) of nodes that do not flap, and those that do."""
    changes: set[Any] = set()
    flapping: set[str] = set()
    for node in NODES[:4]:
        chain = [(run, answers[node]) for run, answers in enumerate(values, 1) if answers[node] is not None]
        moves = [
            (node, run, before, after) for (_, before), (run, after) in pairwise(chain) if before != after
        ]
        seen = [before for _, _, before, _ in moves[:1]] + [after for *_, after in moves]
        if len({*seen}) < len(seen):
            flapping.add(node)
        else:
            changes.update(moves)
    return changes, flapping


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.fixed_dictionaries(dict.fromkeys(NODES[:4], st.sampled_from(["1", "1", "2", "3", None]))),
        min_size=1,
        max_size=5,
    ).filter(lambda runs: any(value for run in runs for value in run.values()))
)
def test_changes_are_those_of_each_node_on_its_own(
    tmp_path: Path, values: list[dict[str, str | None]]
) -> None:
    folder = tmp_path / "kept"
    shutil.rmtree(folder, ignore_errors=True)
    runs = [
        {node: Status.TIMEOUT if value is None else report(version=value) for node, value in answers.items()}
        for answers in values
    ]
    keep(folder, runs)
    found = record(folder, "--fact", "nvidia.version")
    changes, flapping = reference(values)
    assert {node for flap in found["flaps"] for node in flap["nodes"]} == flapping
    last = {node: [run[node] for run in values if run[node]][-1:] for node in NODES[:4]}
    moved = set()
    for rollout in found["rollouts"]:
        for move in rollout["moves"]:
            for node in move["nodes"]:
                (before,) = {
                    step["before"] for step in rollout["steps"] if node in step["nodes"] or not step["nodes"]
                }
                moved.add((node, move["run"], before, rollout["steps"][0]["after"]))
        after = rollout["steps"][0]["after"]
        formers = {step["before"] for step in rollout["steps"]}
        movers = {node for move in rollout["moves"] for node in move["nodes"]}
        left = {node for node, value in last.items() if {*value} & formers} - movers - flapping
        assert rollout["total"] == len(movers) + len(left)
        assert set(rollout["left"]) == (left if len(movers) >= len(left) else set())
        assert after not in formers
    assert moved == changes
    silent = {node for one in found["silent"] for node in one["nodes"]}
    assert silent == {node for node, value in values[-1].items() if value is None}
    (fact,) = found["facts"]
    known = [value for values in last.values() for value in values]
    assert sum(one["nodes"] for one in fact["states"][-1]["counts"]) == len(known)
    assert (fact["mixed_since"] is not None) == (len({*known}) > 1)
