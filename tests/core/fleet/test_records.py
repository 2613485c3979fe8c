"""Records other than reports: what nodes have alike, and the figure of one that is far from the others'."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from mlbackends.fleet.collection import Collection
from mlbackends.fleet.groups import fleet_of
from mlbackends.fleet.records import FailedChecks
from mlbackends.model.fleet import Envelope, Fleet, Kind
from mlbackends_cli.fleet.text import heading


def bench(seconds: float, *, processor: str = "Xeon", instructions: str = "avx2") -> dict[str, Any]:
    results = [
        {
            "backend": "flash_cpu",
            "ended": "ran",
            "timing": {"calls": 9, "median_seconds": seconds},
            "details": {"instruction set": instructions},
        }
    ]
    problem = {"checked": {"text": "--shape 1,8,64,32", "results": results}}
    return {"schema": "backends.sdpa-bench/1", "processor": processor, "problems": [problem]}


def fleet(**records: dict[str, Any]) -> Fleet:
    collection = Collection()
    for node, record in records.items():
        collection.add(Envelope(node=node, report=Raw(msgspec.json.encode(record))))
    return fleet_of(collection)


NAME = "sdpa-bench.problems[--shape 1,8,64,32].checked.results[flash_cpu]"


def test_the_slow_node_is_found_with_its_figure() -> None:
    times = [1.0, 1.02, 0.99, 3.1, 1.01, 0.98]
    found = fleet(**{f"n{at}": bench(seconds) for at, seconds in enumerate(times)})
    (outlier,) = found.outliers
    assert (outlier.node, outlier.name) == ("n3", f"{NAME}.timing.median_seconds")
    assert (outlier.value, outlier.nodes) == (3.1, 6)
    assert 0.98 < outlier.median < 1.03


def test_noise_is_no_outlier_and_calls_are_no_figure() -> None:
    times = [1.0, 1.08, 0.95, 1.09, 0.92]
    found = fleet(**{f"n{at}": bench(seconds) for at, seconds in enumerate(times)})
    assert found.outliers == ()
    assert [*found.figures] == [f"{NAME}.timing.median_seconds"]


def test_nodes_with_another_processor_are_a_kind_of_their_own() -> None:
    slow = {f"old{at}": bench(9.0 + at / 100, processor="Atom") for at in range(3)}
    fast = {f"new{at}": bench(1.0 + at / 100) for at in range(3)}
    found = fleet(**slow, **fast)
    assert len(found.kinds) == 2
    assert found.outliers == ()


def test_records_of_two_commands_are_two_kinds_with_their_names() -> None:
    flags = {"schema": "backends.flags/1", "flags": [{"name": "a", "value": "none"}]}
    found = fleet(f1=flags, f2=flags, f3=flags, n1=bench(1.0), n2=bench(1.0))
    assert [(kind.title.get("record"), kind.nodes, kind.alike) for kind in found.kinds] == [
        ("flags", 3, 3), ("sdpa-bench", 2, 2),
    ]  # fmt: skip
    assert [*map(heading, found.kinds)] == [
        "3 nodes: flags records",
        "2 nodes: sdpa-bench records, Xeon",
    ]


def test_nodes_that_nothing_names_are_counted() -> None:
    assert heading(Kind({"cpu.model_name": None}, 3, 3)) == "3 nodes"


def test_facts_of_records_are_compared_as_those_of_reports() -> None:
    odd = bench(1.0, instructions="avx512")
    found = fleet(n1=bench(1.0), n2=bench(1.0), n3=odd)
    ((deviation,),) = (kind.deviations for kind in found.kinds)
    assert deviation.nodes == ("n3",)
    assert [difference.name for difference in deviation.differences] == [f"{NAME}.details.instruction set"]


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"schema": "other"}, "no command for nodes prints"),
        ({"schema": "backends.report/9"}, "this version reads"),
        ({"schema": "backends.x/1", "a": [{"b": 1}] * 30_000}, "values"),
    ],
)
def test_what_is_no_record_is_an_error_of_its_node(record: dict[str, Any], error: str) -> None:
    (silent,) = fleet(n1=record).silent
    assert error in silent.error


def test_figures_of_two_parts_of_a_fleet_are_put_together() -> None:
    times = {f"n{at}": bench(seconds) for at, seconds in enumerate([1.0, 1.02, 3.1])}
    first, second = fleet(n0=times["n0"]), fleet(n1=times["n1"], n2=times["n2"])
    collection = Collection()
    collection.merge(first)
    collection.merge(second)
    assert [outlier.node for outlier in fleet_of(collection).outliers] == ["n2"]


def test_the_checks_that_failed_are_told_with_their_nodes() -> None:
    failed = FailedChecks()
    for node, status in (("n1", "failed"), ("n2", "passed"), ("n3", "failed")):
        check = {"code": "c", "title": "t", "severity": "error", "status": status, "message": "m"}
        head = {"schema": "backends.outcome/1", "tool": "", "kind": "audit", "title": ""}
        record = head | {"subject": "", "created": "", "checks": [check]}
        failed.visit(node, Envelope(node=node, report=Raw(msgspec.json.encode(record))))
    failed.visit("n4", Envelope(node="n4", report=Raw(msgspec.json.encode(bench(1.0)))))
    (hazard,) = failed.hazards
    assert (hazard.check.code, hazard.nodes) == ("c", ("n1", "n3"))


def test_a_trace_is_compared_by_its_rows() -> None:
    def trace(nanoseconds: float) -> dict[str, Any]:
        row = {"values": ["onednn", "matmul"], "count": 1, "total_ns": nanoseconds}
        return {"view": "summary", "by": ["tracer"], "rows": [row]}

    found = fleet(n1=trace(10.0), n2=trace(10.1), n3=trace(50.0))
    assert [(outlier.node, outlier.name) for outlier in found.outliers] == [
        ("n3", "trace.rows[onednn matmul].total_ns")
    ]
