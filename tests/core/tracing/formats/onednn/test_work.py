"""Sizes, operations and bytes of a primitive."""

from __future__ import annotations

import pytest

from mlbackends.model.signature import PrimitiveSignature
from mlbackends.tracing.formats.onednn.work import listed_sizes, named_sizes, work

F32 = "src:f32::blocked:ab::f0 wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0"
BIAS = F32.replace(" dst", " bia:f32::blocked:a::f0 dst")


def call(primitive: str, problem: str, tensors: str = F32, **more: str) -> PrimitiveSignature:
    """Return a signature with the fields that count."""
    return PrimitiveSignature(
        tracer="onednn",
        key="",
        primitive=primitive,
        problem=problem,
        memory_descriptors=tensors,
        **more,
    )


@pytest.mark.parametrize(
    ("primitive", "problem", "tensors", "flops", "elements"),
    [
        ("matmul", "3x5:5x7", F32, 2 * 3 * 5 * 7, 15 + 35 + 21),
        ("matmul", "3x5:5x7:3x7", F32, 2 * 3 * 5 * 7, 15 + 35 + 21),
        ("matmul", "m3n7k5", F32, 2 * 3 * 5 * 7, 15 + 35 + 21),
        ("matmul", "b2m3n7k5", F32, 2 * 2 * 3 * 5 * 7, 2 * (15 + 35 + 21)),
        ("matmul", "2x1x3x5:1x4x5x7", F32, 2 * 8 * 3 * 5 * 7, 30 + 140 + 8 * 21),
        ("gemm_api", "3x5:5x7", F32, 2 * 3 * 5 * 7, 15 + 35 + 21),
        ("convolution", "mb2_ic3oc4_ih5oh6kh3_iw7ow8kw2", F32,
         2 * 2 * 4 * 48 * 3 * 6, 2 * 3 * 35 + 4 * 3 * 6 + 2 * 4 * 48),
        ("convolution", "g2mb1_ic4oc6_iw8ow8kw3", BIAS,
         2 * 6 * 8 * 2 * 3, 4 * 8 + 6 * 2 * 3 + 6 + 6 * 8),
        ("deconvolution", "mb1_ic4oc6_iw8ow10kw3", F32, 2 * 4 * 6 * 3 * 8, 32 + 72 + 60),
        ("inner_product", "mb2ic3ih4iw5oc6", BIAS, 2 * 2 * 60 * 6, 120 + 360 + 6 + 12),
    ],
)  # fmt: skip
def test_products(primitive: str, problem: str, tensors: str, flops: float, elements: float) -> None:
    assert work(call(primitive, problem, tensors)) == (flops, 4 * elements)


@pytest.mark.parametrize(
    ("auxiliary", "propagation", "flops"),
    [
        ("alg:vanilla_lstm direction:unidirectional_left2right", "forward_inference", 4),
        ("alg:lbr_gru direction:unidirectional_left2right", "forward_training", 3),
        ("alg:vanilla_rnn direction:bidirectional_concat", "forward_training", 2),
        ("alg:vanilla_lstm direction:unidirectional_left2right", "backward", 8),
    ],
)
def test_recurrent_cells_count_their_gates(auxiliary: str, propagation: str, flops: int) -> None:
    found = work(call("rnn", "l1t10mb4sic64slc32dhc64dic64", auxiliary=auxiliary, propagation=propagation))
    assert found[0] == flops * 2 * 10 * 4 * 64 * (32 + 64)


TWO = "src:f32::blocked:ab::f0 dst:bf16::blocked:ab::f0"


@pytest.mark.parametrize(
    ("primitive", "problem", "tensors", "total"),
    [
        ("reorder", "16x32", TWO, 512 * 6),
        ("eltwise", "16x32", "data_f32::blocked:ab:f0 diff_undef::undef::f0", 512 * 8),
        ("softmax", "16x32", "src:f32::blocked:ab::f0 dst:f32::blocked:ab::f0", 512 * 8),
        ("pooling", "mb1ic2_ih4oh2_iw4ow2", TWO.replace("bf16", "f32"), 4 * (32 + 8)),
        ("binary", "4x8:1x8", "src:f32::blocked:ab::f0 " + TWO, 4 * 32 + 4 * 8 + 2 * 32),
        ("concat", "4x8:4x2", "src:f32::blocked:ab::f0 " + TWO, 4 * 40 + 2 * 40),
        ("reorder", "16x32", "src:s4::blocked:ab::f0 dst:f8_e4m3::blocked:ab::f0", 512 * 1.5),
    ],
)
def test_what_moves_memory_has_traffic_and_no_work(
    primitive: str, problem: str, tensors: str, total: float
) -> None:
    assert work(call(primitive, problem, tensors)) == (None, total)


@pytest.mark.parametrize(
    ("problem", "tensors"),
    [
        ("*x*:*x64", F32),
        ("3x5:6x7", F32),
        ("", F32),
        ("3x5:5x7", "src:f32::sparse:csr::f0 wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0"),
        ("x" * 5000, F32),
        ("1" * 5000, F32),
        (f"{'9' * 380}x5:5x7", F32),
        (f"m3n7k{'9' * 400}", F32),
        (":".join(["x".join(["9" * 18] * 20)] * 2), F32),
    ],
)
def test_sizes_that_are_not_told_give_no_numbers(problem: str, tensors: str) -> None:
    assert work(call("matmul", problem, tensors)) == (None, None)


def test_a_type_that_is_not_told_leaves_the_work() -> None:
    flops, traffic = work(call("matmul", "3x5:5x7", "fsrc:nc fwei:io fdst:nc"))
    assert (flops, traffic) == (210, None)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("m128n64k256", {"m": 128, "n": 64, "k": 256}),
        ("mb2_g1ic3oc4_iw7", {"mb": 2, "g": 1, "ic": 3, "oc": 4, "iw": 7}),
        ("l1t10mb4", {"l": 1, "t": 10, "mb": 4}),
        ("128x256", None),
        ("*x*", None),
        ("", None),
    ],
)
def test_names_and_numbers(problem: str, expected: dict[str, int] | None) -> None:
    assert named_sizes(problem) == expected


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("128", ((128,),)),
        ("2x3:3x4", ((2, 3), (3, 4))),
        ("2x3:", None),
        ("*x3:3x4", None),
        ("m1n2", None),
    ],
)
def test_lists(problem: str, expected: object) -> None:
    assert listed_sizes(problem) == expected
