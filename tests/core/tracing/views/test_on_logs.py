"""Every view of every recorded log: what it comes to, and that it can be written and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from mlbackends.base import registry
from mlbackends.model.trace_views import AnyView, Findings, Summary
from mlbackends.tracing import reader
from mlbackends.tracing.viewing import REGISTRY, views

TRACES = Path(__file__).resolve().parents[3] / "traces"
LOGS = sorted(path.name for path in TRACES.glob("*.log"))
WANTED: dict[str, dict[str, Any]] = {name: {} for name in registry.names(REGISTRY)}

FOUND = {
    "frameworks-tf-jax-openvino-mxnet.log": {"f32-as-bf16", "reorder-share", "several-versions"},
    "mkl-2019-to-2025-versions.log": {"several-versions", "generic-mkl-kernel"},
    "mkl-2026.2-blas-lapack-fft.log": {
        "library-errors",
        "first-calls",
        "generic-mkl-kernel",
    },
    "mkl-2026.2-variants.log": {"library-errors", "generic-mkl-kernel", "mkl-cbwr"},
    "onednn-2.0-to-3.6-versions.log": {"reorder-share", "several-versions"},
    "onednn-3.13-graph-sdpa.log": {"library-errors"},
    "onednn-3.6-filter-check-dispatch-errors.log": {
        "library-errors",
        "several-versions",
    },
    "torch-2.13-mkl.log": {"generic-mkl-kernel"},
    "torch-2.13-onednn-all-timestamp.log": {"reorder-share", "library-errors"},
    "torch-2.13-onednn-level2.log": {
        "f32-as-bf16",
        "reorder-share",
        "reference-implementation",
    },
}
LONGEST = {
    "frameworks-tf-jax-openvino-mxnet.log": ("gemm_api", 4, 86_421_098),
    "mkl-2019-to-2025-versions.log": ("DSYEVD", 4, 690_520_000),
    "onednn-3.13-graph-sdpa.log": ("matmul", 12, 185_727_759),
    "torch-2.13-mkl.log": ("SGESDD", 1, 34_840_000),
    "torch-2.13-onednn-level2.log": ("matmul", 5, 2_245_367),
    "torch-2.13-onednn-all-timestamp.log": ("convolution", 5, 1_900_879),
}


def seen(log: str, **options: dict[str, Any]) -> dict[str, AnyView]:
    return views(reader.read(str(TRACES / log)), WANTED | options)


@pytest.mark.parametrize("log", LOGS)
def test_every_view_can_be_written_and_read_back(log: str) -> None:
    for name, view in seen(log).items():
        data = msgspec.json.encode(view)
        assert msgspec.json.decode(data)["view"] == name.replace("diff", "difference")
        assert msgspec.json.decode(data, type=AnyView) == view


@pytest.mark.parametrize("log", FOUND)
def test_a_log_gives_away(log: str) -> None:
    found = cast("Findings", seen(log)["findings"])
    assert {finding.code for finding in found.findings} == FOUND[log]
    for finding in found.findings:
        assert finding.seen
        assert finding.why
        assert finding.action


@pytest.mark.parametrize("log", LONGEST)
def test_the_longest_operation_of_a_log_is(log: str) -> None:
    summary = cast("Summary", seen(log, summary={"by": ("operation",)})["summary"])
    row = summary.rows[0]
    assert (*row.values, row.count, round(row.total_ns)) == LONGEST[log]
