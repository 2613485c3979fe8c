"""Attention beside torch on the CPU: values, exceptions, rules, switches and their order."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builds import RELEASE, without_cuda
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mlbackends
from mlbackends import sdpa
from mlbackends.base.errors import InvalidProblem
from mlbackends.sdpa import cuda_surface, dispatch, switches
from mlbackends.sdpa.cuda_surface import problem_of
from mlbackends.sdpa.rules import CPU_ORDER, why_not
from mlbackends.sdpa.rules.environment import environment_here
from mlbackends.sdpa.switches import SDPBackend
from mlbackends.switches import store
from mlbackends.switches.table import SWITCHES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlbackends.model.problem import AttentionProblem

torch = pytest.importorskip("torch")
torch_bias = pytest.importorskip("torch.nn.attention.bias")
pytestmark = pytest.mark.torch

attention = torch.nn.functional.scaled_dot_product_attention
ours: Any = mlbackends.scaled_dot_product_attention
OurParams: Any = sdpa.SDPAParams
TorchKind = torch.nn.attention.SDPBackend
torch_kernel = torch.nn.attention.sdpa_kernel
#: Ours may err in the last place, as two ways of summing do.
CLOSE = {
    "float64": (1e-12, 1e-12),
    "float32": (2e-5, 2e-6),
    "float16": (2e-3, 1e-3),
    "bfloat16": (1.6e-2, 8e-3),
}


def torch_choice(problem: AttentionProblem) -> SDPBackend | None:
    """Return the kind that torch takes on the CPU by our rules, None where it raises."""
    able = (kind for kind in CPU_ORDER if not why_not(kind, problem, environment_here(problem)))
    return next(able, None)


@pytest.fixture(autouse=True)
def switches_as_found() -> Iterator[None]:
    with store.restored(*(name for name in SWITCHES if "sdp" in name)):
        yield


def drawn(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float32).to(getattr(torch, dtype))


def assert_close(seen: Any, wanted: Any, dtype: str) -> None:
    relative, absolute = CLOSE[dtype]
    torch.testing.assert_close(seen, wanted, rtol=relative, atol=absolute, equal_nan=True)


sizes = st.integers(1, 5)


@st.composite
def calls(draw: Any) -> tuple[tuple[Any, Any, Any], dict[str, Any]]:
    """Draw tensors and keywords of a call that makes sense, in any layout."""
    dtype = draw(st.sampled_from(sorted(CLOSE)))
    batch, groups, shared = draw(sizes), draw(sizes), draw(st.integers(1, 3))
    length, keys, width, value_width = draw(sizes), draw(sizes), draw(sizes), draw(sizes)
    seed, rank = draw(st.integers(0, 99)), draw(st.sampled_from((2, 3, 4, 4, 4, 5)))
    grouped = rank > 2 and draw(st.booleans())
    heads = groups * shared if grouped else groups
    front = {2: (), 3: (heads,), 4: (batch, heads), 5: (2, batch, heads)}[rank]
    key_front = (*front[:-1], groups) if grouped else front

    def tensor(front: tuple[int, ...], rows: int, columns: int, seed: int) -> Any:
        kind = draw(st.sampled_from(("plain", "rows first", "columns first", "every second")))
        if kind == "rows first" and front:
            shape = (*front[:-1], rows, front[-1], columns)
            return drawn(*shape, dtype=dtype, seed=seed).transpose(-2, -3)
        if kind == "columns first":
            return drawn(*front, columns, rows, dtype=dtype, seed=seed).mT
        if kind == "every second":
            return drawn(*front, rows, columns * 2, dtype=dtype, seed=seed)[..., ::2]
        return drawn(*front, rows, columns, dtype=dtype, seed=seed)

    query = tensor(front, length, width, seed)
    key = tensor(key_front, keys, width, seed + 100)
    value = tensor(key_front, keys, value_width, seed + 200)
    options: dict[str, Any] = {"enable_gqa": grouped}
    if draw(st.booleans()):
        options["scale"] = draw(st.sampled_from((0.0, 0.5, -1.0, 3, True)))
    masking = draw(st.sampled_from(("none", "causal", "bool", "float", "wide")))
    if masking == "causal":
        options["is_causal"] = True
    elif masking != "none":
        shape = [draw(st.sampled_from((1, size))) for size in (*front, length, keys)]
        mask = drawn(*shape[draw(st.integers(0, len(front))) :], seed=seed)
        options["attn_mask"] = mask > 0 if masking == "bool" else mask
        if masking == "float":  # "wide" is float32 whatever the others are, as torch takes it
            options["attn_mask"] = mask.to(query.dtype)
    return (query, key, value), options


@given(calls())
@settings(max_examples=300)
def test_values_are_those_of_torchs_formula(
    call: tuple[tuple[Any, Any, Any], dict[str, Any]],
) -> None:
    tensors, options = call
    with torch_kernel(TorchKind.MATH):
        wanted = attention(*tensors, **options)

    seen = ours(*tensors, **options)

    assert seen.dtype == wanted.dtype
    assert_close(seen, wanted, str(wanted.dtype).removeprefix("torch."))


@given(calls())
@settings(max_examples=100)
def test_sixteen_bits_between_the_steps_are_torchs_where_both_allow_it(
    call: tuple[tuple[Any, Any, Any], dict[str, Any]],
) -> None:
    tensors, options = call
    assume(tensors[0].dtype in (torch.float16, torch.bfloat16))
    assume(getattr(options.get("attn_mask"), "dtype", None) is not torch.float32)
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with torch_kernel(TorchKind.MATH):
            wanted = attention(*tensors, **options)
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(False)

    mlbackends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    seen = ours(*tensors, **options)

    relative, absolute = CLOSE[str(wanted.dtype).removeprefix("torch.")]
    # Both round the scores: where those are large, torch is as far from the exact result as we may be.
    mask = options.get("attn_mask")
    if mask is not None and mask.is_floating_point():
        options = {**options, "attn_mask": mask.double()}
    with torch_kernel(TorchKind.MATH):
        exact = attention(*(tensor.double() for tensor in tensors), **options)
    rounded = float(torch.nan_to_num((wanted.double() - exact).abs()).max()) if wanted.numel() else 0.0
    torch.testing.assert_close(seen, wanted, rtol=relative * 4, atol=absolute * 4 + rounded, equal_nan=True)


@given(calls())
@settings(max_examples=300)
def test_the_rules_for_the_cpu_are_torchs(
    call: tuple[tuple[Any, Any, Any], dict[str, Any]],
) -> None:
    tensors, options = call
    options.pop("scale", None)
    mask, causal = options.get("attn_mask"), options.get("is_causal", False)
    wanted = torch._fused_sdp_choice(*tensors, mask, 0.0, causal, enable_gqa=options["enable_gqa"])
    params = OurParams(*tensors, mask, 0.0, causal, options["enable_gqa"])

    seen = torch_choice(problem_of(params))

    assert seen is not None
    assert seen.value == wanted


@given(
    # From one up: grouped heads of no number end a process with torch by a division by zero.
    shapes=st.tuples(*[st.lists(st.integers(1, 3), min_size=2, max_size=4)] * 3),
    dropout=st.sampled_from((0.0, 0.5)),
    causal=st.booleans(),
    grouped=st.booleans(),
)
@settings(max_examples=500)
def test_what_is_no_problem_to_us_is_none_to_torch(
    shapes: tuple[list[int], list[int], list[int]], dropout: float, causal: bool, grouped: bool
) -> None:
    """Where torch's formula has an answer we have a problem, of that shape; else we have none."""
    tensors = [torch.zeros(shape) for shape in shapes]
    params = OurParams(*tensors, None, dropout, causal, grouped)
    try:
        problem = problem_of(params)
    except InvalidProblem:
        problem = None
    try:
        wanted = tuple(
            torch._scaled_dot_product_attention_math(*tensors, None, dropout, causal, enable_gqa=grouped)[
                0
            ].shape
        )
    except (RuntimeError, IndexError):
        wanted = None
    if problem is None:
        assert wanted is None
    else:
        assert problem.output_shape == wanted
        assert torch_choice(problem) is SDPBackend(
            torch._fused_sdp_choice(*tensors, None, dropout, causal, enable_gqa=grouped)
        )


@given(
    shapes=st.tuples(*[st.lists(st.integers(0, 2), min_size=2, max_size=4)] * 3),
    causal=st.booleans(),
)
@settings(max_examples=300)
def test_what_has_nothing_to_do_gives_zeros_as_in_torch(
    shapes: tuple[list[int], list[int], list[int]], causal: bool
) -> None:
    """With every backend off, torch answers only those that never reach one."""
    tensors = [torch.ones(shape, dtype=torch.int64) for shape in shapes]
    with torch_kernel([]):
        try:
            wanted = attention(*tensors, None, 7.0, causal)
        except RuntimeError:
            wanted = None

    with mlbackends.sdpa_kernel([]):
        if wanted is None:
            with pytest.raises(RuntimeError):
                ours(*tensors, None, 7.0, causal)
        else:
            torch.testing.assert_close(ours(*tensors, None, 7.0, causal), wanted)


Q = drawn(2, 4, 3, 8)
BAD_CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "a number": ((1, Q, Q), {}),
    "nothing": ((None, Q, Q), {}),
    "one dimension": ((Q[0, 0, 0], Q[0, 0, 0], Q[0, 0, 0]), {}),
    "one dimension among others": ((Q, Q[0, 0, 0], Q), {}),
    "two types": ((Q, Q.double(), Q), {}),
    "two types of values": ((Q, Q, Q.half()), {}),
    "two devices": ((Q, Q.to("meta"), Q), {}),
    "a mask of one dimension": ((Q, Q, Q, torch.ones(3)), {}),
    "a mask of no dimension": ((Q, Q, Q, torch.tensor(True)), {}),
    "a mask of integers": ((Q, Q, Q, torch.ones(3, 3, dtype=torch.int32)), {}),
    "a mask of half numbers": ((Q, Q, Q, torch.ones(3, 3).half()), {}),
    "a mask of doubles": ((Q, Q, Q, torch.ones(3, 3).double()), {}),
    "a mask of the other half": ((*[Q.half()] * 3, torch.ones(3, 3).bfloat16()), {}),
    "a mask of half numbers for doubles": ((*[Q.double()] * 3, torch.ones(3, 3).half()), {}),
    "a number for a mask": ((Q, Q, Q, 3), {}),
    "a mask that is too long": ((Q, Q, Q, torch.ones(3, 4)), {}),
    "a mask for other heads": ((Q, Q, Q, torch.ones(2, 3, 3, 3)), {}),
    "a mask of five dimensions": ((Q, Q, Q, torch.ones(1, 1, 1, 3, 3)), {}),
    "a mask larger than the scores": ((Q[:1], Q[:1], Q[:1], torch.ones(2, 1, 3, 3)), {}),
    "a word for dropout": ((Q, Q, Q, None, "a"), {}),
    "no dropout": ((Q, Q, Q, None, None), {}),
    "dropout above one": ((Q, Q, Q, None, 1.5), {}),
    "dropout below zero": ((Q, Q, Q, None, -0.5), {}),
    "dropout that is no number": ((Q, Q, Q, None, math.nan), {}),
    "a number for causal": ((Q, Q, Q, None, 0.0, 1), {}),
    "none for causal": ((Q, Q, Q, None, 0.0, None), {}),
    "a word for scale": ((Q, Q, Q), {"scale": "a"}),
    "a number for grouped": ((Q, Q, Q), {"enable_gqa": 1}),
    "none for grouped": ((Q, Q, Q), {"enable_gqa": None}),
    "seven by position": ((Q, Q, Q, None, 0.0, False, None), {}),
    "an unknown name": ((Q, Q, Q), {"dropout": 0.0}),
    "two tensors": ((Q, Q), {}),
    "heads that do not divide": ((Q, Q[:, :3], Q[:, :3]), {"enable_gqa": True}),
    "more heads in the key": ((Q[:, :2], Q, Q), {"enable_gqa": True}),
    "grouped without heads": ((Q[0, 0], Q[0, 0], Q[0, 0]), {"enable_gqa": True}),
    "heads that differ": ((Q, Q[:, :2], Q[:, :2]), {}),
    "batches that differ": ((drawn(3, 4, 3, 8), Q, Q), {}),
    "widths that differ": ((Q, Q[..., :7], Q), {}),
    "lengths that differ": ((Q[0, 0], Q[0, 0], Q[0, 0, :2]), {}),
    "integers": ((Q.int(), Q.int(), Q.int()), {}),
    "booleans": ((Q.bool(), Q.bool(), Q.bool()), {}),
    "complex numbers": ((Q.cfloat(), Q.cfloat(), Q.cfloat()), {}),
    "a bias beside causal": ((Q, Q, Q, torch_bias.causal_upper_left(3, 3)), {"is_causal": True}),
    "a bias that does not fit": ((Q, Q, Q, torch_bias.causal_lower_right(3, 5)), {}),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_wrong_call_raises_what_torch_raises(case: str) -> None:
    arguments, options = BAD_CALLS[case]
    with pytest.raises(Exception) as wanted:  # noqa: PT011  the type is what is compared
        attention(*arguments, **options)

    with pytest.raises(wanted.type):
        ours(*arguments, **options)


def test_a_mask_beside_causal_is_refused_as_documented_where_torchs_flash_applies_both() -> None:
    mask = torch.zeros(3, 3)
    if RELEASE < (2, 14):
        torch.testing.assert_close(
            attention(Q, Q, Q, mask, is_causal=True), attention(Q, Q, Q, is_causal=True)
        )
    with torch_kernel(TorchKind.MATH), pytest.raises(RuntimeError, match="Explicit attn_mask"):
        attention(Q, Q, Q, mask, is_causal=True)

    with pytest.raises(RuntimeError, match="Explicit attn_mask"):
        ours(Q, Q, Q, mask, is_causal=True)


def test_lengths_that_differ_are_refused_where_torchs_flash_computes_nonsense() -> None:
    value = drawn(2, 4, 4, 8)
    assert attention(Q, Q, value).shape == Q.shape

    with pytest.raises(RuntimeError, match="same length"):
        ours(Q, Q, value)


@pytest.mark.parametrize("kind", ["causal_upper_left", "causal_lower_right"])
@pytest.mark.parametrize(("length", "keys"), [(3, 5), (3, 3), (5, 3)])
def test_a_causal_bias_means_what_torchs_means(kind: str, length: int, keys: int) -> None:
    query, key, value = drawn(1, 2, length, 8), drawn(1, 2, keys, 8), drawn(1, 2, keys, 4, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of NaN, which it no longer gives
        theirs = getattr(torch_bias, kind)(length, keys)
        wanted = attention(query, key, value, theirs)
    bias = getattr(mlbackends, kind)(length, keys)

    assert torch.equal(torch.tensor(bias.rows()), theirs._materialize())
    assert_close(ours(query, key, value, bias), wanted, "float32")
    assert_close(ours(query, key, value, theirs), wanted, "float32")


@pytest.mark.parametrize("masked", [torch.zeros(3, 3, dtype=torch.bool), torch.full((3, 3), -torch.inf)])
def test_a_row_that_sees_nothing_is_zero_as_in_torch(masked: Any) -> None:
    assert torch.equal(ours(Q, Q, Q, masked), attention(Q, Q, Q, masked))
    assert not ours(Q, Q, Q, masked).any()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["query", "key", "value", "mask"])
def test_what_is_not_finite_goes_where_torchs_goes(bad: float, where: str) -> None:
    tensors = {"query": Q.clone(), "key": Q.clone(), "value": Q.clone(), "mask": torch.zeros(3, 3)}
    tensors[where][..., 1, 1] = bad
    with torch_kernel(TorchKind.MATH):
        wanted = attention(*tensors.values())
    if where == "query" and math.isinf(bad):  # all scores of a row may be -inf
        wanted[(wanted == 0).all(-1)] = math.nan

    assert_close(ours(*tensors.values()), wanted, "float32")


def test_nan_in_the_query_is_zero_to_torchs_flash_and_nan_here() -> None:
    query = Q.clone()
    query[0, 0, 1, 0] = math.nan
    with torch_kernel(TorchKind.FLASH_ATTENTION):
        assert not attention(query, Q, Q)[0, 0, 1].any()
    huge = torch.full_like(Q, 1e20)
    assert not attention(huge, -huge, Q).any()

    for kind in (mlbackends.SDPBackend.MATH, mlbackends.SDPBackend.FLASH_ATTENTION):
        with mlbackends.sdpa_kernel([kind, mlbackends.SDPBackend.MATH], set_priority=True):
            assert ours(query, Q, Q)[0, 0, 1].isnan().all()
            assert ours(huge, -huge, Q).isnan().all()


def test_no_width_gives_the_mean_of_the_values_as_in_torch() -> None:
    query, key, value = drawn(1, 1, 2, 0), drawn(1, 1, 3, 0), drawn(1, 1, 3, 2)

    for causal in (False, True):
        wanted = attention(query, key, value, is_causal=causal)
        assert_close(ours(query, key, value, is_causal=causal), wanted, "float32")


def test_dropout_keeps_the_mean_and_the_share_of_torchs() -> None:
    torch.manual_seed(0)
    query, value = torch.zeros(1, 1, 200, 8), torch.ones(1, 1, 500, 1)
    wanted = attention(query, query.new_zeros(1, 1, 500, 8), value, dropout_p=0.25)

    seen = ours(query, query.new_zeros(1, 1, 500, 8), value, dropout_p=0.25)

    assert seen.mean() == pytest.approx(1, abs=0.01)
    assert seen.std() == pytest.approx(float(wanted.std()), rel=0.25)
    assert not ours(Q, Q, Q, dropout_p=1.0).any()


def test_flash_drops_here_and_torchs_alone_refuses() -> None:
    with torch_kernel(TorchKind.FLASH_ATTENTION), pytest.raises(RuntimeError, match="No available"):
        attention(Q, Q, Q, dropout_p=0.5)

    with mlbackends.sdpa_kernel(mlbackends.SDPBackend.FLASH_ATTENTION):
        assert ours(Q, Q, Q, dropout_p=0.5).shape == Q.shape


@pytest.mark.parametrize("dropout", [-0.5, math.nan])
def test_dropout_that_is_no_probability_is_none_to_torchs_formula_and_refused_here(
    dropout: float,
) -> None:
    with torch_kernel(TorchKind.MATH):
        assert torch.equal(attention(Q, Q, Q, dropout_p=dropout), attention(Q, Q, Q))

    with pytest.raises(RuntimeError, match="between 0 and 1"):
        ours(Q, Q, Q, dropout_p=dropout)


def test_reasons_are_warnings_in_torch_and_in_the_exception_here() -> None:
    apart = Q.mT.contiguous().mT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch_kernel(TorchKind.FLASH_ATTENTION), pytest.raises(RuntimeError) as theirs:
            attention(apart, Q, Q)
    assert "stride" not in str(theirs.value)

    with (
        mlbackends.sdpa_kernel(SDPBackend.FLASH_ATTENTION),
        pytest.raises(RuntimeError, match="the strides of the last dimension must be 1; they are query"),
    ):
        ours(apart, Q, Q)


def test_gradients_of_flash_are_differentiated_here_and_not_by_torch() -> None:
    query = Q.clone().requires_grad_()
    (once,) = torch.autograd.grad(attention(query, Q, Q).sum(), query, create_graph=True)
    with pytest.raises(RuntimeError, match="not implemented"):
        once.sum().backward()
    with torch_kernel(TorchKind.MATH):
        (once,) = torch.autograd.grad(attention(query, Q, Q).square().sum(), query, create_graph=True)
        (wanted,) = torch.autograd.grad(once.square().sum(), query)

    with mlbackends.sdpa_kernel(mlbackends.SDPBackend.FLASH_ATTENTION):
        (once,) = torch.autograd.grad(ours(query, Q, Q).square().sum(), query, create_graph=True)
        (found,) = torch.autograd.grad(once.square().sum(), query)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        assert not ours(query, Q, Q).requires_grad


@pytest.mark.parametrize("number", [np.float32(0.5), np.int64(1), np.float64(0.5), torch.tensor(0.5)])
def test_a_number_may_be_numpys_or_torchs(number: Any) -> None:
    assert_close(ours(Q, Q, Q, scale=number), attention(Q, Q, Q, scale=number), "float32")


@pytest.mark.parametrize("bad", [np.array(0.5), np.ones(1), torch.ones(1), 1j])
def test_a_number_may_not_be_an_array_or_complex(bad: Any) -> None:
    for function in (attention, ours):
        with pytest.raises(TypeError):
            function(Q, Q, Q, scale=bad)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nested_tensors_are_computed_by_torchs_formula_and_refused_here() -> None:
    rows = [torch.zeros(2, length, 4) for length in (3, 5)]
    nested = torch.nested.nested_tensor(rows)
    assert attention(nested, nested, nested).is_nested

    with pytest.raises(RuntimeError, match="nested"):
        ours(nested, nested, nested)


def test_sparse_tensors_are_refused_as_by_torch() -> None:
    sparse = Q.to_sparse()
    for function in (attention, ours):
        with pytest.raises(RuntimeError):
            function(sparse, sparse, sparse)


@pytest.mark.parametrize("dtype", sorted(CLOSE))
def test_a_torch_tensor_is_read_without_a_copy(dtype: str) -> None:
    from mlbackends_kernels.tensors import interchange

    tensor = drawn(2, 3, 4, dtype=dtype).transpose(0, 1)
    array = interchange.as_array(tensor)
    assert array.__array_interface__["data"][0] == tensor.data_ptr()
    assert torch.equal(interchange.like(tensor, array), tensor)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=500)
def test_rounding_to_bfloat16_is_torchs(pattern: int) -> None:
    from mlbackends_kernels.tensors import arithmetic

    number = np.array([pattern], np.uint32).view(np.float32)
    wanted = torch.from_numpy(number).bfloat16()

    seen = arithmetic.bfloat16_to_float32(arithmetic.bfloat16_from_float32(number))

    assert np.array_equal(seen, wanted.float().numpy(), equal_nan=True)


# ---- switches -------------------------------------------------------------------


def test_the_numbers_of_the_kinds_are_torchs() -> None:
    assert {name: int(kind) for name, kind in TorchKind.__members__.items()} == {
        kind.name: int(kind) for kind in SDPBackend
    }
    assert repr(SDPBackend.MATH) == repr(TorchKind.MATH)
    number: Any = 0
    assert (number == SDPBackend.MATH) is (number == TorchKind.MATH) is False


def state() -> tuple[list[bool], list[int]]:
    order = store.read("cuda.sdp_priority_order")
    assert isinstance(order, tuple)
    names = ("flash", "mem_efficient", "math", "cudnn", "overrideable")
    return [bool(store.read(f"cuda.{name}_sdp")) for name in names], list(order)


def torchs_state() -> tuple[list[bool], list[int]]:
    c = torch._C
    switches = [
        c._get_flash_sdp_enabled(),
        c._get_mem_efficient_sdp_enabled(),
        c._get_math_sdp_enabled(),
        c._get_cudnn_sdp_enabled(),
        c._get_overrideable_sdp_enabled(),
    ]
    return switches, list(c._get_sdp_priority_order())


kinds = st.lists(st.sampled_from([kind for kind in SDPBackend if int(kind) >= 0]), max_size=6)


@given(kinds, st.booleans(), kinds, st.booleans())
def test_what_holds_inside_a_block_and_after_it_is_torchs(
    outer: list[SDPBackend], outer_first: bool, inner: list[SDPBackend], inner_first: bool
) -> None:
    def theirs(kinds: list[SDPBackend]) -> list[Any]:
        return [getattr(TorchKind, kind.name) for kind in kinds]

    started = state()
    torch._C._set_sdp_priority_order(started[1])  # what an earlier example left behind
    assert started == torchs_state()
    with torch_kernel(theirs(outer), outer_first), mlbackends.sdpa_kernel(outer, outer_first):
        found = state()
        assert found == torchs_state()
        with mlbackends.sdpa_kernel(inner, inner_first), torch_kernel(theirs(inner), inner_first):
            assert state() == torchs_state()
        assert state() == found
        assert torchs_state()[0] == found[0]  # of the order torch has lost some
    torch._C._set_sdp_priority_order(started[1])
    assert state() == started == torchs_state()


def test_the_whole_order_comes_back_where_torchs_leaks() -> None:
    torch.backends.cuda.enable_flash_sdp(False)
    mlbackends.cuda.enable_flash_sdp(False)
    before = torch._C._get_sdp_priority_order()
    try:
        with torch_kernel([TorchKind.MATH], set_priority=True):
            pass
        assert torch._C._get_sdp_priority_order() == [2, 0, 3, 4, 1]
    finally:
        torch._C._set_sdp_priority_order(before)
        torch.backends.cuda.enable_flash_sdp(True)

    with mlbackends.sdpa_kernel([SDPBackend.MATH], set_priority=True):
        assert state()[1] == [0, 1, 2, 3, 4]
    assert state()[1] == [1, 2, 0, 3, 4]


def test_the_order_is_ignored_by_torch_on_the_cpu_and_obeyed_here() -> None:
    both = ("MATH", "FLASH_ATTENTION")
    with torch_kernel([getattr(TorchKind, name) for name in both], set_priority=True):
        assert torch._fused_sdp_choice(Q, Q, Q) == int(TorchKind.FLASH_ATTENTION)

    question = problem_of(OurParams(Q, Q, Q, None, 0.0, False, False))
    with mlbackends.sdpa_kernel([SDPBackend[name] for name in both], set_priority=True):
        assert dispatch.in_order(question, dispatch.backends())[0].answers_to is SDPBackend.MATH


@pytest.mark.parametrize("bad", [(), {TorchKind.MATH}, "math", None, 1])
def test_what_is_no_list_is_an_assertion_as_in_torch(bad: Any) -> None:
    with pytest.raises(AssertionError), torch_kernel(bad):
        pass
    with pytest.raises(AssertionError), mlbackends.sdpa_kernel(bad):
        pass


@pytest.mark.parametrize("bad", [1, "flash", None])
def test_what_torch_takes_for_none_at_all_is_refused(bad: Any) -> None:
    with torch_kernel([bad]):
        assert torchs_state()[0] == [False] * 5

    with pytest.raises(TypeError, match="SDPBackend"), mlbackends.sdpa_kernel([bad]):
        pass
    assert state()[0] == [True] * 5


@pytest.mark.parametrize("name", ["flash", "mem_efficient", "math", "cudnn"])
@pytest.mark.parametrize("bad", [0, 1, None, "on"])
def test_a_switch_takes_bools_alone_as_in_torch(name: str, bad: Any) -> None:
    with pytest.raises(RuntimeError):
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(bad)
    with pytest.raises(RuntimeError, match="expects a bool"):
        getattr(cuda_surface, f"enable_{name}_sdp")(bad)
    assert state()[0] == [True] * 5


def test_the_switches_govern_the_cpu_as_in_torch() -> None:
    with (
        torch_kernel(TorchKind.EFFICIENT_ATTENTION),
        pytest.raises(RuntimeError, match="No viable"),
    ):
        attention(Q, Q, Q)
    with (
        mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION),
        pytest.raises(RuntimeError, match="No viable"),
    ):
        ours(Q, Q, Q)


# ---- SDPAParams -----------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        (Q, Q, Q, None, 0.0, False),
        (1, Q, Q, None, 0.0, False, False),
        (Q, Q, None, None, 0.0, False, False),
        (Q, Q, Q, 1, 0.0, False, False),
        (Q, Q, Q, None, "a", False, False),
        (Q, Q, Q, None, None, False, False),
        (Q, Q, Q, None, 0.0, "x", False),
        (Q, Q, Q, None, 0.0, False, []),
        (Q, Q, Q, None, 0, 1, 0),
        (Q, Q, Q, None, True, None, 0.5),
        (Q, Q, Q, torch.ones(1), 9, False, True),
    ],
)
def test_params_take_what_torchs_take(arguments: tuple[Any, ...]) -> None:
    try:
        wanted = torch.backends.cuda.SDPAParams(*arguments)
    except TypeError:
        with pytest.raises(TypeError):
            OurParams(*arguments)
        return
    seen = OurParams(*arguments)
    names = ("dropout", "is_causal", "enable_gqa")
    assert [getattr(seen, name) for name in names] == [getattr(wanted, name) for name in names]
    assert seen.query is arguments[0]


def test_params_are_read_only_as_torchs() -> None:
    arguments = (Q, Q, Q, None, 0.0, False, False)
    for params in (torch.backends.cuda.SDPAParams(*arguments), OurParams(*arguments)):
        for name in ("query", "key", "value", "attn_mask", "dropout", "is_causal", "enable_gqa"):
            with pytest.raises(AttributeError):
                setattr(params, name, None)
        with pytest.raises(AttributeError):
            params.nonsense = 1
    with pytest.raises(TypeError):
        OurParams(Q, Q, Q, None, 0.0, False, enable_gqa=False)


@without_cuda
def test_no_fused_kernel_for_cuda_takes_tensors_of_the_cpu() -> None:
    arguments = (Q, Q, Q, None, 0.0, False, False)
    for name in ("flash", "efficient", "cudnn"):
        function = f"can_use_{name}_attention"
        theirs = getattr(torch.backends.cuda, function)
        assert theirs(torch.backends.cuda.SDPAParams(*arguments), debug=True) is False
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert getattr(cuda_surface, function)(OurParams(*arguments), debug=True) is False
        assert any("these are on cpu" in str(warning.message) for warning in told)
        with pytest.raises(TypeError):
            theirs(Q)
        with pytest.raises(TypeError):
            getattr(cuda_surface, function)(Q)


# ---- torch's own words ----------------------------------------------------------


def test_torchs_own_backends_are_taken_as_ours() -> None:
    def allowed_by(given: Any, **options: bool) -> set[str]:
        with mlbackends.sdpa_kernel(given, **options):
            return {kind.name for kind in switches.SWITCHES if switches.allowed(kind)}

    for name, ours_too in SDPBackend.__members__.items():
        theirs = getattr(TorchKind, name)
        if name == "ERROR":
            with pytest.raises(ValueError, match="is not a backend"):
                allowed_by(theirs)
            continue
        assert int(theirs) == ours_too.value
        assert allowed_by(theirs) == allowed_by([theirs]) == {name}
    both = [TorchKind.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    with mlbackends.sdpa_kernel(both, set_priority=True):  # type: ignore[arg-type,unused-ignore]
        assert switches.priority_order()[:2] == (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION)


def test_a_priority_that_is_no_bool_is_true_or_false_to_torch_and_refused_here() -> None:
    with torch_kernel(TorchKind.MATH, set_priority="no"):
        pass
    with (
        pytest.raises(TypeError, match="set_priority must be a bool"),
        mlbackends.sdpa_kernel(SDPBackend.MATH, set_priority="no"),  # type: ignore[arg-type]
    ):
        pass


@pytest.mark.parametrize("shape", [(4, 5), (2, 5), (3, 4), (3, 7)])
def test_a_causal_mask_of_another_shape_is_cut_by_torch_from_the_upper_left_and_refused_here(
    shape: tuple[int, int],
) -> None:
    query, keys = drawn(1, 1, 3, 8), drawn(1, 1, 5, 8, seed=1)
    wanted = attention(query, keys, keys, is_causal=True)
    upper = torch_bias.causal_upper_left(*shape)
    assert torch.equal(attention(query, keys, keys, attn_mask=upper), wanted)
    with pytest.raises(RuntimeError, match="must match"):
        attention(query, keys, keys, attn_mask=torch_bias.causal_lower_right(*shape))
    for mask in (
        upper,
        mlbackends.causal_upper_left(*shape),
        mlbackends.causal_lower_right(*shape),
    ):
        with pytest.raises(RuntimeError, match=r"does not fit scores of \(3, 5\)"):
            ours(query, keys, keys, attn_mask=mask)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_torchs_seed_repeats_what_is_dropped(dtype: str) -> None:
    query = drawn(2, 8, 8, dtype=dtype)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        first, second = (ours(query, query, query, dropout_p=0.5) for _ in range(2))
        torch.manual_seed(3)
        assert torch.equal(ours(query, query, query, dropout_p=0.5), first)
        assert not torch.equal(first, second)
        before = torch.get_rng_state()
        ours(query, query, query)
        ours(query, query, query, dropout_p=1.0)
        assert torch.equal(torch.get_rng_state(), before)
