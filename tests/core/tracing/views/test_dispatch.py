"""Why faster implementations refused, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from mlbackends.base.registry import load
from mlbackends.model.trace_views import DispatchView
from mlbackends.tracing.viewing import view

if TYPE_CHECKING:
    from mlbackends.model.trace import AnyRecord

FIELDS = "undef,src:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,,8x8"
LONG = (
    "onednn_verbose,v1,primitive,create:dispatch,matmul,cpu,matmul,brg_matmul:avx512_core_amx,"
    + FIELDS
    + ",unsupported isa, and more,src/cpu/x64/matmul/brgemm_matmul.cpp:114"
)
SHORT = (
    "onednn_verbose,v1,primitive,create:dispatch,matmul,unsupported format tag,"
    r"C:\src\cpu\x64\jit_brgemm_utils.cpp:220"
)
MADE = "onednn_verbose,v1,primitive,create:cache_miss,cpu,matmul,ref:any," + FIELDS + ",0.1"
OTHER = LONG.replace("matmul", "softmax")


def records(*lines: str) -> list[AnyRecord]:
    return [cast("AnyRecord", load("mlbackends.tracing.formats", "onednn").parse(line)) for line in lines]


def test_refusals_are_counted_in_the_order_in_which_they_were_tried() -> None:
    found = view("dispatch", records(LONG, SHORT, MADE, LONG, OTHER))
    assert isinstance(found, DispatchView)
    first, second = found.operations
    assert (first.operation, first.count, first.chosen) == ("matmul", 3, (("ref:any", 1),))
    assert [(refusal.implementation, refusal.reason, refusal.count) for refusal in first.refusals] == [
        ("brg_matmul:avx512_core_amx", "unsupported isa, and more", 2),
        ("jit_brgemm_utils", "unsupported format tag", 1),
    ]
    assert (second.operation, second.chosen) == ("softmax", ())
    assert found.count == 4


def test_one_operation_can_be_asked_for() -> None:
    found = cast("DispatchView", view("dispatch", records(LONG, OTHER), operation="softmax"))
    assert [operation.operation for operation in found.operations] == ["softmax"]


def test_a_trace_without_refusals_has_none() -> None:
    assert view("dispatch", records(MADE)) == DispatchView()
