"""Trace records: what all kinds promise."""

from __future__ import annotations

import msgspec
import pytest

from mlbackends.model.signature import PartitionSignature, PrimitiveSignature, RoutineSignature
from mlbackends.model.trace import (
    AnyRecord,
    Dispatch,
    GraphPartition,
    Header,
    Info,
    Malformed,
    MklCall,
    Primitive,
    Record,
    Text,
    as_row,
)

MATMUL = PrimitiveSignature(
    tracer="onednn",
    key="key",
    primitive="matmul",
    implementation="ref:any",
    problem="3x5:5x7",
    memory_descriptors="src:f32::blocked:ab::f0 wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0",
)
ALL: list[AnyRecord] = [
    Header(tracer="mkl", raw="a", version="1"),
    MklCall(tracer="mkl", raw="b", signature=RoutineSignature(tracer="mkl", key="k", routine="X")),
    Primitive(tracer="onednn", raw="c", signature=MATMUL, duration_ns=100.0),
    GraphPartition(tracer="onednn", raw="d", signature=PartitionSignature(tracer="onednn", key="k")),
    Dispatch(tracer="onednn", raw="e", refused=MATMUL),
    Info(raw="f"),
    Text(raw="g\n"),
    Malformed(raw="h"),
]


@pytest.mark.parametrize("record", ALL, ids=lambda record: record.kind)
def test_every_kind_is_its_line_and_survives_json(record: Record) -> None:
    assert str(record) == record.raw
    assert msgspec.json.decode(msgspec.json.encode(record), type=AnyRecord) == record
    row = as_row(record)
    assert row["kind"] == record.kind
    assert row["raw"] == record.raw
    assert isinstance(row["counted"], bool)
    msgspec.json.encode(row)


def test_rates_are_work_over_time() -> None:
    record = Primitive(signature=MATMUL, duration_ns=100.0)
    assert record.gflops == 210 / 100
    assert record.gigabytes_per_second == 4 * (15 + 35 + 21) / 100
    assert record.slow_path == "ref"


@pytest.mark.parametrize("duration", [None, 0.0])
def test_without_a_time_there_is_no_rate(duration: float | None) -> None:
    record = Primitive(signature=MATMUL, duration_ns=duration)
    assert (record.gflops, record.gigabytes_per_second) == (None, None)


def test_a_creation_has_work_and_no_rate() -> None:
    record = Primitive(signature=MATMUL, duration_ns=100.0, event="create", cache_state="cache_hit")
    assert (record.flops, record.gflops, record.counted, record.cache) == (
        210,
        None,
        False,
        "cache_hit",
    )


def test_what_follows_is_worked_out_once_for_all_records_of_a_call() -> None:
    first, second = Primitive(signature=MATMUL), Primitive(signature=MATMUL, raw="other")
    assert first.derived is second.derived


def test_a_refusal_tells_what_was_refused() -> None:
    record = Dispatch(refused=MATMUL, origin="matmul")
    assert (record.operation, record.shape, record.counted) == ("matmul", "3x5:5x7", False)
    assert Dispatch(origin="reorder").operation == "reorder"
