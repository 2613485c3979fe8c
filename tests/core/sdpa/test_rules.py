"""torch's rules for devices that are not here: what torch 2.5 to 2.15 support, case by case."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mlbackends.base.reasons import shared_codes
from mlbackends.libraries.cuda import cudnn_release
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device
from mlbackends.sdpa.dispatch import torch_order
from mlbackends.sdpa.rules import CPU_ORDER, rocm, rules, unrecorded, why_not
from mlbackends.sdpa.rules.environment import CUDNN as CUDNN_OF
from mlbackends.sdpa.rules.environment import NEWEST as OF_2_15
from mlbackends.sdpa.rules.environment import Environment, release_of
from mlbackends.sdpa.switches import SDPBackend

MATH, FLASH = SDPBackend.MATH, SDPBackend.FLASH_ATTENTION
EFFICIENT, CUDNN = SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION
#: torch 2.13, with the cuDNN of its wheel.
NEWEST = Environment(cudnn_version=91900)
DEFAULT = (FLASH, EFFICIENT, MATH, CUDNN, SDPBackend.OVERRIDEABLE)


def torch_would_choose(
    problem: AttentionProblem,
    environment: Environment,
    order: tuple[SDPBackend, ...],
    allowed: tuple[SDPBackend, ...] = tuple(SDPBackend),
) -> SDPBackend | None:
    """Return the kind that torch takes, None where it raises."""
    kinds = CPU_ORDER if problem.platform == "cpu" else order
    able = (kind for kind in kinds if kind in allowed and not why_not(kind, problem, environment))
    return next(able, None)


def asked(
    *,
    sm: str = "9.0",
    dtype: str = "float16",
    dims: tuple[int, int] = (64, 64),
    lengths: tuple[int, int] = (128, 128),
    heads: tuple[int, int, int] = (8, 8, 8),
    batch: int = 2,
    offset: int = 0,
    requires_grad: bool = False,
    nested: bool = False,
    mask: TensorSpec | None = None,
    **more: Any,
) -> AttentionProblem:
    """Return a problem on a CUDA device, by what differs from an easy one."""
    tell: dict[str, Any] = {"requires_grad": requires_grad, "nested": nested}
    return AttentionProblem(
        query=TensorSpec((batch, heads[0], lengths[0], dims[0]), dtype, **tell),
        key=TensorSpec((batch, heads[1], lengths[1], dims[0]), dtype, storage_offset=offset, **tell),
        value=TensorSpec((batch, heads[2], lengths[1], dims[1]), dtype, **tell),
        mask=mask,
        device=Device("cuda", 0, capability=sm),
        **more,
    )


def codes(kind: SDPBackend, environment: Environment = NEWEST, **question: Any) -> set[str]:
    reasons = why_not(kind, asked(**question), environment)
    assert {reason.code for reason in reasons} <= set(shared_codes())
    return {reason.code for reason in reasons}


MASK = TensorSpec((128, 128), "float16")
TALL = TensorSpec((8, 128, 128), "float16")

FLASH_CASES: list[tuple[dict[str, Any], set[str]]] = [
    ({}, set()),
    ({"sm": "8.0"}, set()),
    ({"sm": "12.1"}, set()),
    ({"sm": "7.5"}, {"wrong-capability"}),
    ({"sm": "12.2"}, {"wrong-capability"}),
    ({"sm": "7.5", "dtype": "bfloat16"}, {"wrong-capability", "wrong-dtype"}),
    ({"dtype": "bfloat16"}, set()),
    ({"dtype": "float32"}, {"wrong-dtype"}),
    ({"dtype": "float8_e4m3fn"}, {"wrong-dtype"}),
    ({"mask": MASK}, {"mask"}),
    ({"dims": (256, 256)}, set()),
    ({"dims": (257, 257)}, {"head-dim-too-large"}),
    ({"dims": (63, 63)}, set()),
    ({"dims": (64, 32)}, {"head-dim-differs"}),
    ({"is_causal": True}, set()),
    ({"is_causal": True, "lengths": (64, 128)}, {"causal-not-square"}),
    ({"lengths": (64, 128)}, set()),
    ({"lengths": (0, 128)}, {"empty-sequence"}),
    ({"dropout": 0.3}, set()),
    ({"heads": (8, 2, 2), "enable_gqa": True}, set()),
    ({"heads": (8, 2, 4), "enable_gqa": True}, {"heads-differ"}),
    ({"heads": (8, 1, 1)}, {"heads-differ"}),
    ({"sm": "8.6", "dims": (200, 200), "requires_grad": True}, {"gradient"}),
    ({"sm": "8.6", "dims": (200, 200)}, set()),
    ({"sm": "8.6", "dims": (192, 192), "requires_grad": True}, set()),
    ({"sm": "8.9", "dims": (240, 240), "requires_grad": True}, set()),
    ({"sm": "8.9", "dims": (240, 240), "requires_grad": True, "dropout": 0.1}, {"gradient"}),
    ({"sm": "12.0", "dims": (224, 224), "requires_grad": True}, {"gradient"}),
    ({"sm": "8.0", "dims": (224, 224), "requires_grad": True}, set()),
    ({"nested": True}, set()),
    ({"nested": True, "dims": (60, 60)}, {"head-dim-unaligned"}),
    ({"nested": True, "heads": (0, 0, 0)}, {"nested"}),
    ({"nested": True, "heads": (8, 1, 1)}, set()),
    ({"nested": True, "heads": (8, 1, 1), "requires_grad": True}, {"nested"}),
]

EFFICIENT_CASES: list[tuple[dict[str, Any], set[str]]] = [
    ({}, set()),
    ({"sm": "5.0"}, set()),
    ({"sm": "3.7"}, {"wrong-capability"}),
    ({"sm": "12.2"}, {"wrong-capability"}),
    ({"sm": "7.5", "dtype": "bfloat16"}, {"wrong-dtype"}),
    ({"dtype": "float32"}, set()),
    ({"dtype": "float64"}, {"wrong-dtype"}),
    ({"dims": (60, 64)}, {"head-dim-unaligned"}),
    ({"dims": (64, 60)}, {"head-dim-unaligned"}),
    ({"dims": (64, 0)}, {"head-dim-unaligned"}),
    ({"dims": (0, 64)}, {"head-dim-unaligned"}),
    ({"dims": (1024, 512)}, set()),
    ({"dims": (60, 60), "dtype": "float32"}, set()),
    ({"dims": (62, 62), "dtype": "float32"}, {"head-dim-unaligned"}),
    ({"dims": (62, 62), "dtype": "float32", "sm": "7.5"}, set()),
    ({"dims": (60, 60), "sm": "7.0"}, {"head-dim-unaligned"}),
    ({"dims": (61, 61), "sm": "6.1"}, set()),
    ({"offset": 4}, {"storage-unaligned"}),
    ({"offset": 8}, set()),
    ({"offset": 4, "dtype": "float32"}, set()),
    ({"offset": 3, "sm": "7.5"}, set()),
    ({"mask": MASK}, set()),
    ({"mask": TALL}, set()),
    ({"mask": TensorSpec((128, 128), "float16", requires_grad=True)}, set()),
    ({"mask": TensorSpec((128, 128), "float16", strides=(1, 128))}, {"rows-not-contiguous"}),
    ({"is_causal": True, "lengths": (64, 128)}, set()),
    ({"heads": (8, 2, 2), "enable_gqa": True}, {"heads-differ"}),
    ({"heads": (8, 8, 8), "enable_gqa": True}, set()),
    ({"lengths": (128, 0)}, {"empty-sequence"}),
    ({"nested": True}, set()),
    ({"nested": True, "requires_grad": True}, {"gradient"}),
    ({"nested": True, "heads": (0, 0, 0)}, {"nested"}),
]

TURNED = TensorSpec((128, 128), "float16", strides=(1, 128))
CUDNN_CASES: list[tuple[dict[str, Any], int, set[str]]] = [
    ({"mask": MASK}, 91900, set()),
    ({"mask": TURNED}, 91900, {"rows-not-contiguous"}),
    ({"mask": TURNED, "dims": (1, 1)}, 91900, {"rows-not-contiguous", "head-dim-unaligned"}),
    ({}, 91900, set()),
    ({}, 0, {"not-built"}),
    ({}, 8902, {"not-built"}),
    ({}, 8903, set()),
    ({"lengths": (128, 100)}, 8905, {"length-unsupported"}),
    ({"lengths": (128, 100)}, 8906, set()),
    ({"lengths": (32, 128)}, 8907, {"length-unsupported"}),
    ({"lengths": (32, 128)}, 90000, set()),
    ({"dropout": 0.5}, 8903, {"not-built"}),
    ({"dropout": 0.5, "lengths": (100, 128)}, 8906, {"length-unsupported"}),
    ({"dropout": 0.5}, 91100, set()),
    ({"dropout": 0.5}, 91101, {"dropout"}),
    ({"dropout": 0.5}, 91399, {"dropout"}),
    ({"dropout": 0.5}, 91400, set()),
    ({"dropout": 0.3}, 91900, {"dropout"}),
    ({"dtype": "float32"}, 91900, {"wrong-dtype"}),
    ({"mask": MASK}, 91900, set()),
    ({"mask": TALL}, 91900, {"mask-rank"}),
    ({"mask": TensorSpec((128, 128), "float16", requires_grad=True)}, 91900, {"mask-gradient"}),
    ({"sm": "7.5"}, 91900, {"wrong-capability"}),
    ({"dims": (128, 128)}, 91900, set()),
    ({"dims": (136, 136)}, 90900, {"head-dim-too-large"}),
    ({"dims": (256, 256)}, 91000, set()),
    ({"dims": (256, 256), "sm": "10.0"}, 91000, {"head-dim-too-large"}),
    ({"dims": (264, 264)}, 91900, {"head-dim-too-large"}),
    ({"dims": (192, 128), "sm": "10.0"}, 91100, set()),
    ({"dims": (192, 128), "sm": "10.3"}, 91100, set()),
    ({"dims": (192, 128), "sm": "10.0"}, 91099, {"head-dim-too-large"}),
    ({"dims": (192, 192), "sm": "10.0"}, 91900, {"head-dim-too-large"}),
    ({"dims": (60, 60)}, 91900, {"head-dim-unaligned"}),
    ({"heads": (8, 2, 4), "enable_gqa": True}, 91900, set()),
    ({"heads": (8, 1, 1)}, 91900, {"heads-differ"}),
    ({"heads": (65536, 65536, 65536)}, 91900, {"too-many-heads"}),
    ({"batch": 65535}, 91900, set()),
    ({"batch": 65536}, 91900, {"too-many-heads"}),
    ({"lengths": (128, 1)}, 91900, {"length-unsupported"}),
    ({"lengths": (1, 128)}, 91900, set()),
    ({"lengths": (1, 128), "dropout": 0.5}, 91900, {"length-unsupported"}),
    ({"nested": True}, 91900, {"nested"}),
]


def named(part: object) -> str:
    """Return a name that each process of pytest-xdist makes alike."""
    return str(sorted(part) if isinstance(part, set) else part)


@pytest.mark.parametrize(("question", "wanted"), FLASH_CASES, ids=named)
def test_flash_on_cuda(question: dict[str, Any], wanted: set[str]) -> None:
    assert codes(FLASH, **question) == wanted


@pytest.mark.parametrize(("question", "wanted"), EFFICIENT_CASES, ids=named)
def test_memory_efficient_on_cuda(question: dict[str, Any], wanted: set[str]) -> None:
    assert codes(EFFICIENT, **question) == wanted


@pytest.mark.parametrize(("question", "version", "wanted"), CUDNN_CASES, ids=named)
def test_cudnn_on_cuda(question: dict[str, Any], version: int, wanted: set[str]) -> None:
    assert codes(CUDNN, Environment(cudnn_version=version), **question) == wanted


def test_an_environment_changes_what_is_taken() -> None:
    strict = Environment(cudnn_version=91900, deterministic=True)
    assert codes(CUDNN, strict) == {"not-deterministic"}
    nested = Environment(cudnn_version=91900, nested_cudnn=True)
    assert codes(CUDNN, nested, nested=True) == set()
    assert codes(CUDNN, nested, nested=True, sm="8.0") == {"nested"}


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ({}, FLASH),
        ({"mask": MASK}, EFFICIENT),
        ({"dtype": "float32"}, EFFICIENT),
        ({"dtype": "float64"}, MATH),
        ({"mask": MASK, "heads": (8, 2, 2), "enable_gqa": True}, MATH),
        ({"sm": "7.5", "dtype": "float16"}, EFFICIENT),
    ],
)
def test_what_torch_would_choose_on_a_device_that_is_not_here(
    question: dict[str, Any], wanted: SDPBackend
) -> None:
    assert torch_would_choose(asked(**question), NEWEST, DEFAULT) is wanted


@pytest.mark.parametrize("dtype", ["int8", "int64", "bool", "complex64"])
def test_torchs_formula_takes_floating_point_numbers_alone(dtype: str) -> None:
    spec = TensorSpec((2, 8, 16, 64), dtype)
    here = AttentionProblem(query=spec, key=spec, value=spec)
    assert torch_would_choose(here, Environment(), DEFAULT) is None
    assert torch_would_choose(asked(dtype=dtype), NEWEST, DEFAULT) is None


def test_the_order_counts_on_cuda_and_not_on_the_cpu() -> None:
    first = (CUDNN, *(kind for kind in DEFAULT if kind is not CUDNN))
    assert torch_would_choose(asked(), NEWEST, first) is CUDNN
    assert torch_would_choose(asked(), NEWEST, first, (FLASH,)) is FLASH
    assert torch_would_choose(asked(mask=MASK), NEWEST, DEFAULT, (FLASH,)) is None
    spec = TensorSpec((2, 8, 16, 64), "float32")
    here = AttentionProblem(query=spec, key=spec, value=spec)
    assert torch_would_choose(here, Environment(), (MATH, FLASH)) is FLASH
    assert torch_would_choose(here, Environment(), DEFAULT, (EFFICIENT, CUDNN)) is None


# ---- AMD's GPUs -------------------------------------------------------------------------------


def on_rocm(target: str, **question: Any) -> AttentionProblem:
    return replace(asked(**question), device=Device("rocm", 0, capability=target))


ROCM_CASES: list[tuple[SDPBackend, str, dict[str, Any], set[str]]] = [
    (FLASH, "gfx942", {}, set()),
    (FLASH, "gfx90a", {"dtype": "bfloat16", "dims": (512, 512)}, set()),
    (FLASH, "gfx942", {"dims": (520, 520)}, {"head-dim-too-large"}),
    (FLASH, "gfx1100", {"dims": (264, 264)}, set()),
    (FLASH, "gfx908", {}, {"wrong-capability"}),
    (FLASH, "gfx1102", {}, {"wrong-capability"}),
    (FLASH, "gfx1250", {}, {"wrong-capability"}),
    (FLASH, "gfx942", {"dims": (256, 256), "nested": True}, set()),
    (FLASH, "gfx942", {"dims": (264, 264), "nested": True}, {"head-dim-too-large"}),
    (FLASH, "gfx942", {"heads": (8, 2, 2), "nested": True}, {"nested"}),
    (FLASH, "gfx942", {"dtype": "float32"}, {"wrong-dtype"}),
    (FLASH, "gfx942", {"mask": MASK}, {"mask"}),
    (FLASH, "gfx942", {"dims": (64, 32)}, {"head-dim-differs"}),
    (FLASH, "gfx942", {"lengths": (64, 128), "is_causal": True}, {"causal-not-square"}),
    (FLASH, "gfx942", {"heads": (8, 2, 2), "enable_gqa": True}, set()),
    (FLASH, "gfx942", {"dims": (224, 224), "requires_grad": True}, set()),
    (FLASH, "gfx1201", {"dims": (224, 224), "requires_grad": True}, {"gradient"}),
    (EFFICIENT, "gfx942", {"dtype": "float32", "mask": TensorSpec((128, 128), "float32")}, set()),
    (EFFICIENT, "gfx942", {"mask": TensorSpec((128, 128), "float32")}, {"wrong-dtype"}),
    (EFFICIENT, "gfx942", {"dims": (64, 32)}, set()),
    (EFFICIENT, "gfx942", {"dims": (68, 68)}, {"head-dim-unaligned"}),
    (EFFICIENT, "gfx942", {"dims": (68, 68), "dtype": "float32"}, set()),
    (EFFICIENT, "gfx942", {"heads": (8, 2, 2), "enable_gqa": True}, {"heads-differ"}),
    (EFFICIENT, "gfx906", {}, {"wrong-capability"}),
    (CUDNN, "gfx942", {}, {"wrong-device"}),
]


@pytest.mark.parametrize(("kind", "target", "question", "wanted"), ROCM_CASES)
def test_on_rocm(kind: SDPBackend, target: str, question: dict[str, Any], wanted: set[str]) -> None:
    reasons = why_not(kind, on_rocm(target, **question), NEWEST)
    assert {reason.code for reason in reasons} == wanted


def test_on_rocm_ck_is_asked_for_no_target_and_takes_no_float32() -> None:
    preferred = replace(NEWEST, composable_kernel=True)
    old = on_rocm("gfx908", dtype="float32")
    assert why_not(FLASH, on_rocm("gfx908"), preferred) == ()
    assert [reason.code for reason in why_not(EFFICIENT, old, preferred)] == ["wrong-dtype"]


@pytest.mark.parametrize(
    ("device", "wanted"),
    [
        (Device("rocm", 0), "this GPU with torch 2.13"),
        (Device("rocm", 0, capability="gfx942"), ""),
        (Device("xpu", 0), "xpu"),
        (Device("cpu", 0), ""),
    ],
)
def test_where_nothing_is_written_down_that_is_said(device: Device, wanted: str) -> None:
    assert unrecorded(replace(asked(), device=device), NEWEST) == wanted


def test_what_is_not_written_down_is_said_so() -> None:
    spec = TensorSpec((2, 8, 16, 64), "float16")
    problem = AttentionProblem(query=spec, key=spec, value=spec, device=Device("xpu", 0))

    assert rules(FLASH, "xpu", NEWEST) is None
    assert [reason.code for reason in why_not(FLASH, problem, NEWEST)] == ["wrong-device"]


@pytest.mark.parametrize(
    ("told", "written"),
    [(91900, "9.19.0"), (91002, "9.10.2"), (90100, "9.1.0"), (8907, "8.9.7"), (8903, "8.9.3")],
)  # fmt: skip
def test_a_version_of_cudnn_is_written_as_people_do(told: int, written: str) -> None:
    assert cudnn_release(told) == written


# ---- what came later ------------------------------------------------------------------

OF_2_14 = Environment(torch=(2, 14), cudnn_version=92600)


@pytest.mark.parametrize("kind", [FLASH, EFFICIENT, CUDNN])
def test_one_head_of_key_and_value_is_shared_since_2_14(kind: SDPBackend) -> None:
    for question in ({"heads": (8, 1, 1)}, {"heads": (8, 2, 2), "enable_gqa": True}):
        is_older = question["heads"] == (8, 1, 1) or kind is EFFICIENT
        assert ("heads-differ" in codes(kind, **question)) is is_older
        assert codes(kind, OF_2_14, **question) == set()
    assert codes(kind, OF_2_14, heads=(8, 1, 8)) == {"heads-differ"}


@pytest.mark.parametrize("mask", [None, (128, 128), (8, 128, 128)])
def test_a_problem_without_batch_is_one_of_a_batch_of_one_since_2_14(
    mask: tuple[int, ...] | None,
) -> None:
    spec = TensorSpec((8, 128, 64), "float16")
    problem = AttentionProblem(
        query=spec,
        key=spec,
        value=spec,
        mask=TensorSpec(mask, "float16") if mask else None,
        device=Device("cuda", 0, capability="9.0"),
    )
    for kind in (EFFICIENT, CUDNN):
        assert "wrong-rank" in {reason.code for reason in why_not(kind, problem, NEWEST)}
        assert why_not(kind, problem, OF_2_14) == ()


@pytest.mark.parametrize("side", ["batch", "heads"])
def test_flash_attention_has_a_largest_grid_since_2_15(side: str) -> None:
    question: dict[str, Any] = {"batch": 65536} if side == "batch" else {"heads": (65536,) * 3}

    assert codes(FLASH, OF_2_14, **question) == set()
    assert codes(FLASH, OF_2_15, **question) == {"too-many-heads"}


@pytest.mark.parametrize(
    ("sm", "version", "dims", "older", "newer"),
    [
        ("9.0", 91000, (256, 256), True, False),
        ("9.0", 92201, (256, 256), True, True),
        ("9.0", 91100, (192, 128), True, True),
        ("10.0", 92600, (256, 256), False, True),
        ("10.7", 92500, (256, 256), False, False),
        ("8.0", 92600, (256, 256), False, False),
        ("10.0", 91100, (192, 128), True, True),
    ],
)
def test_cudnn_takes_longer_rows_since_2_14(
    sm: str, version: int, dims: tuple[int, int], older: bool, newer: bool
) -> None:
    for release, wanted in (((2, 13), older), ((2, 14), newer)):
        environment = Environment(torch=release, cudnn_version=version)
        assert (codes(CUDNN, environment, sm=sm, dims=dims) == set()) is wanted


def test_cudnn_gives_gradients_of_long_rows_for_some_widths() -> None:
    for dims, codes_wanted in (
        ((256, 256), set()),
        ((192, 128), set()),
        ((192, 192), {"gradient"}),
    ):
        question: dict[str, Any] = {"dims": dims, "requires_grad": True}
        assert codes(CUDNN, OF_2_15, **question) == codes_wanted
    assert codes(CUDNN, OF_2_15, dims=(192, 192)) == set()


@pytest.mark.parametrize("kind", [FLASH, EFFICIENT, CUDNN, SDPBackend.MATH])
def test_what_torchs_function_has_no_argument_for_is_refused_by_name(kind: SDPBackend) -> None:
    spec = TensorSpec((2, 4, 16, 64), "float16")
    problem = AttentionProblem(
        query=spec,
        key=spec,
        value=spec,
        window=(8, 0),
        softcap=30.0,
        sinks=TensorSpec((4,), "float16"),
        page_table=TensorSpec((2, 1), "int32"),
        key_lengths=(16, 3),
        device=Device("cuda", 0, capability="9.0"),
    )

    codes = {reason.code for reason in why_not(kind, problem, NEWEST)}

    assert {"window", "softcap", "sinks", "pages"} <= codes


# ---- earlier releases -----------------------------------------------------------------

CHANGES: list[tuple[SDPBackend, tuple[int, int], dict[str, Any], set[str], set[str]]] = [
    (FLASH, (2, 7), {"sm": "12.0"}, {"wrong-capability"}, set()),
    (FLASH, (2, 8), {"sm": "12.1"}, {"wrong-capability"}, set()),
    (EFFICIENT, (2, 7), {"sm": "10.0"}, {"wrong-capability"}, set()),
    (EFFICIENT, (2, 13), {"offset": 4}, set(), {"storage-unaligned"}),
    (CUDNN, (2, 6), {"lengths": (128, 1)}, set(), {"length-unsupported"}),
    (CUDNN, (2, 6), {"lengths": (1, 128)}, set(), {"length-unsupported"}),
    (CUDNN, (2, 7), {"sm": "10.0"}, {"wrong-capability"}, set()),
    (CUDNN, (2, 8), {"heads": (8, 1, 1)}, set(), {"heads-differ"}),
    (CUDNN, (2, 8), {"dims": (256, 256)}, {"head-dim-too-large"}, set()),
    (CUDNN, (2, 9), {"lengths": (1, 128)}, {"length-unsupported"}, set()),
    (CUDNN, (2, 11), {"dims": (192, 128), "sm": "10.0"}, {"head-dim-too-large"}, set()),
    (CUDNN, (2, 12), {"dropout": 0.3}, set(), {"dropout"}),
    (CUDNN, (2, 13), {"batch": 65536}, set(), {"too-many-heads"}),
]


@pytest.mark.parametrize(("kind", "since", "question", "before", "after"), CHANGES, ids=named)
def test_what_changed_with_a_release(
    kind: SDPBackend, since: tuple[int, int], question: dict[str, Any], before: set[str], after: set[str]
) -> None:
    for release, wanted in (((2, since[1] - 1), before), (since, after)):
        assert codes(kind, Environment(torch=release, cudnn_version=CUDNN_OF[release]), **question) == wanted


@pytest.mark.parametrize(("release", "wanted"), [((2, 8), set()), ((2, 9), {"dropout"})])
def test_until_2_8_torch_asks_for_the_cudnn_that_it_was_built_with(
    release: tuple[int, int], wanted: set[str]
) -> None:
    assert codes(CUDNN, Environment(torch=release, cudnn_version=91200), dropout=0.5) == wanted
    old = Environment(torch=release, cudnn_version=90100)
    assert (codes(CUDNN, old, dims=(256, 256)) == set()) is (release == (2, 8))


def test_what_flash_attention_on_the_cpu_takes_later() -> None:
    """Grouped heads since 2.9, and a mask whose rows are not contiguous since 2.8."""
    query, fewer = TensorSpec((2, 8, 16, 64), "float32"), TensorSpec((2, 2, 16, 64), "float32")
    grouped = AttentionProblem(query=query, key=fewer, value=fewer, enable_gqa=True)
    turned = TensorSpec((16, 16), "float32", strides=(1, 16))
    masked = AttentionProblem(query=query, key=query, value=query, mask=turned)

    for problem, minor, code in ((grouped, 9, "heads-differ"), (masked, 8, "rows-not-contiguous")):
        before = why_not(FLASH, problem, Environment(torch=(2, minor - 1)))
        assert [reason.code for reason in before] == [code]
        assert why_not(FLASH, problem, Environment(torch=(2, minor))) == ()


@pytest.mark.parametrize(
    ("version", "cudnn", "first"),
    [
        ("2.5.0", 90100, {"9.0"}),
        ("2.5.1", 90100, set()),
        ("2.9.1", 91600, set()),
        ("2.10.0", 91002, set()),
        ("2.10.0", 91600, {"9.0", "10.0", "10.3"}),
        ("2.13.0", 92000, {"9.0", "10.0", "10.3", "10.7"}),
    ],
    ids=named,
)
def test_when_torch_asks_cudnn_first(version: str, cudnn: int, first: set[str]) -> None:
    there = Environment(torch=release_of(version), cudnn_version=cudnn, torch_version=version)
    chips = ("8.0", "9.0", "10.0", "10.3", "10.7", "11.0", "12.0")

    assert {sm for sm in chips if torch_order(asked(sm=sm), there)[0] is CUDNN} == first


ROWS_OF_512 = {"dims": (512, 512)}
FLOAT_MASK = {"mask": TensorSpec((128, 128), "float32")}
#: What torch with AOTriton supports: a kind, the GPU, the problem, the releases that support it, and those
#: whose rules are not recorded. As sdp_utils.cpp of that time and AOTriton's tag have it.
ROCM_RELEASES: list[tuple[SDPBackend, str, dict[str, Any], str, str]] = [
    (FLASH, "gfx90a", {}, "5 6 7 8 9 10 11 12 13 14 15", ""),
    (FLASH, "gfx950", {}, "8 9 10 11 12 13 14 15", ""),
    (FLASH, "gfx1100", {}, "6 7 8 11 12 13 14 15", "10"),
    (FLASH, "gfx1101", {}, "", ""),
    (FLASH, "gfx1103", {}, "", "10"),
    (FLASH, "gfx1151", {}, "13 14 15", ""),
    (FLASH, "gfx1201", {}, "8 9 10 11 12 13 14 15", ""),
    (FLASH, "gfx1250", {}, "14 15", ""),
    (FLASH, "gfx1030", {}, "", ""),
    (FLASH, "gfx942", ROWS_OF_512, "7 8 9 10 11 12 13 14 15", ""),
    (FLASH, "gfx1100", ROWS_OF_512, "7 8 13", "10 14"),
    (FLASH, "gfx942", {"heads": (8, 2, 2), "enable_gqa": True}, "6 7 8 9 10 11 12 13 14 15", ""),
    (FLASH, "gfx1250", {"dims": (224, 224), "requires_grad": True}, "14 15", ""),
    (EFFICIENT, "gfx942", {"mask": MASK}, "5 6 7 8 9 10 11 12 13 14 15", ""),
    (EFFICIENT, "gfx942", FLOAT_MASK, "5", "6"),
    (EFFICIENT, "gfx942", {"dims": (68, 68)}, "5 6 7 8", "9"),
    (EFFICIENT, "gfx942", {"dims": (64, 32)}, "13 14 15", ""),
    (EFFICIENT, "gfx942", {"nested": True}, "6 7 8 9 10 11 12 13 14 15", ""),
    (EFFICIENT, "gfx942", {"nested": True, "requires_grad": True}, "6 7 8 9 10 11 12 13 14 15", ""),
    (EFFICIENT, "gfx942", {"nested": True, "dims": (264, 264)}, "13 14 15", ""),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "target", "question", "supported", "unclear"), ROCM_RELEASES)
def test_which_torch_supports_a_problem_on_amds_gpus(
    kind: SDPBackend, target: str, question: dict[str, Any], supported: str, unclear: str
) -> None:
    problem = on_rocm(target, **question)
    every = [Environment(torch=release) for release in CUDNN_OF]
    known = [there for there in every if not unrecorded(problem, there)]

    assert " ".join(str(there.torch[1]) for there in every if there not in known) == unclear
    assert " ".join(str(t.torch[1]) for t in known if not why_not(kind, problem, t)) == supported


@pytest.mark.parametrize(
    ("target", "releases"),
    [
        ("gfx1100", "5 6 7 8 9 11 12 13 14 15"),
        ("gfx1102", "9 10 11 12 13 14 15"),
        ("gfx1151", "9 10 11 12 13 14 15"),
        ("gfx1153", "11 12 13 14 15"),
        ("gfx1201", "7 8 9 10 11 12 13 14 15"),
        ("gfx1030", ""),
    ],
)
def test_a_variable_lets_torch_use_experimental_kernels(target: str, releases: str) -> None:
    every = [Environment(torch=release, experimental=True) for release in CUDNN_OF]
    known = [there for there in every if not unrecorded(on_rocm(target), there)]
    able = [str(there.torch[1]) for there in known if not why_not(FLASH, on_rocm(target), there)]

    assert " ".join(able) == releases
    off = why_not(FLASH, on_rocm("gfx1102"), NEWEST)
    assert [reason.hint for reason in off] == ["set TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1"]


def test_the_rows_of_aotriton_cover_every_recorded_torch_once_each() -> None:
    rows = [(release_of(row.since), release_of(row.until)) for row in rocm.releases()]

    for release in CUDNN_OF:
        assert sum(since <= release <= until for since, until in rows) == 1, release
    assert all(row.sources and not set(row.targets) & set(row.experimental) for row in rocm.releases())


def test_ck_is_known_to_torch_since_2_7() -> None:
    for release, wanted in (((2, 6), {"wrong-capability"}), ((2, 8), set())):
        ck = Environment(torch=release, composable_kernel=True)
        assert {reason.code for reason in why_not(FLASH, on_rocm("gfx908"), ck)} == wanted
    assert unrecorded(on_rocm("gfx908"), Environment(torch=(2, 7), composable_kernel=True))


def test_cudnn_takes_nested_tensors_since_2_7() -> None:
    for release, wanted in (((2, 6), {"nested"}), ((2, 7), set())):
        enabled = Environment(torch=release, cudnn_version=CUDNN_OF[release], nested_cudnn=True)
        assert codes(CUDNN, enabled, nested=True) == wanted


def test_torch_2_9_0_gives_cudnn_no_rows_above_128() -> None:
    for version, wanted in (("2.9.0", {"head-dim-too-large"}), ("2.9.1", set())):
        there = Environment(torch=(2, 9), cudnn_version=91002, torch_version=version)
        assert codes(CUDNN, there, dims=(256, 256)) == wanted
