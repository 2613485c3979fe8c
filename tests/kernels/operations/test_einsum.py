"""Sums of products: the equation, the order of the products, and the numbers."""

from __future__ import annotations

import re
import sys
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlbackends
from mlbackends.switches import store
from mlbackends_kernels.operations._equation import read
from mlbackends_kernels.operations._precision import without_last_bits
from mlbackends_kernels.operations.einsum import path

if TYPE_CHECKING:
    from collections.abc import Callable

einsum = mlbackends.einsum


def numbers(*shape: int, dtype: str = "f8") -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("bA", [(3, 4)]),
        ("ii", [(3, 3)]),
        ("ii->i", [(3, 3)]),
        ("iij->j", [(3, 3, 4)]),
        ("ij->ji", [(3, 4)]),
        ("ij->", [(3, 4)]),
        (" i j , j k -> i k ", [(3, 4), (4, 5)]),
        ("i,j->ij", [(3,), (4,)]),
        ("i,i->", [(3,), (3,)]),
        ("ij,ij->i", [(3, 4), (3, 4)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("...ij,...jk->...ik", [(6, 2, 3, 4), (2, 4, 5)]),
        ("...,...->...", [(2, 1), (3,)]),
        ("i...->...", [(3, 4)]),
        ("ij...,...jk->ik...", [(2, 3, 5), (5, 3, 4)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("ij,jk,kl,lm->im", [(2, 3), (3, 4), (4, 5), (5, 6)]),
        ("i,j,k->kji", [(2,), (3,), (4,)]),
        ("ab,ac,ad->bcd", [(2, 3), (2, 4), (2, 5)]),
        ("abc,cd,ef->b", [(2, 3, 4), (4, 5), (6, 7)]),
        ("iij,jkk->ik", [(3, 3, 4), (4, 5, 5)]),
        ("i,->i", [(3,), ()]),
        ("i,i->", [(0,), (0,)]),
        ("ij,jk->ik", [(2, 0), (0, 3)]),
        ("", [()]),
        ("->", [()]),
    ],
)
def test_it_is_what_numpy_says(equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [numbers(*shape) for shape in shapes]
    expected = np.einsum(equation or "->", *arrays)
    got = einsum(equation, *arrays)
    assert got.shape == expected.shape
    assert np.allclose(got, expected)


def test_a_dimension_of_size_one_repeats() -> None:
    a, b = numbers(2, 1), numbers(3, 4)
    assert np.allclose(einsum("ij,jk->ik", a, b), (a * np.ones((1, 3))) @ b)
    assert np.allclose(einsum("i,i->i", numbers(1), numbers(3)), numbers(1) * numbers(3))
    c = numbers(3, 5)
    assert np.allclose(einsum("ij,jk,jl->ikl", a, b, c), np.einsum("ia,jk,jl->ikl", a, b, c))


def test_an_ellipsis_that_the_output_lacks_is_summed() -> None:
    a = numbers(4, 2, 3)
    assert np.allclose(einsum("...ij->ij", a), a.sum(0))
    assert np.allclose(einsum("ij->...ij", a[0]), a[0])


def test_operands_may_come_with_lists_of_subscripts_or_in_a_list() -> None:
    a, b = numbers(2, 3), numbers(3, 4)
    assert np.allclose(einsum(a, [0, 1], b, [1, 2], [0, 2]), a @ b)
    assert np.allclose(einsum(a, [0, 1], b, [1, 2]), a @ b)
    assert np.allclose(einsum(a, [51, 3], [3, 51]), a.T)
    assert np.allclose(einsum(a, [30, 2]), a.T)  # 2 is C, which comes before e
    assert np.allclose(einsum(a, [..., 0], [0, ...]), a.T)
    assert np.allclose(einsum("ij,jk", [a, b]), a @ b)


@pytest.mark.parametrize(
    ("arguments", "error", "fragment"),
    [
        ((), ValueError, "an equation and at least one operand"),
        (("ij",), ValueError, "an equation and at least one operand"),
        ((numbers(2, 3),), ValueError, "an equation and at least one operand"),
        (("ij,jk", numbers(2, 3)), RuntimeError, "has 2 operands, and 1 were given"),
        (("i", numbers(2), numbers(2)), RuntimeError, "has 1 operands, and 2 were given"),
        (("ij", numbers(2)), RuntimeError, "operand 0 has 1 dimensions, and 2 subscripts"),
        (("i", numbers(2, 3)), RuntimeError, "without an ellipsis"),
        (("ij...", numbers(2)), RuntimeError, "operand 0 has 1 dimensions"),
        (("ij,jk", numbers(2, 3), numbers(4, 2)), RuntimeError, "subscript j has size 4 for operand 1"),
        (("...,...", numbers(2), numbers(3)), RuntimeError, "a dimension of the ellipsis has size 3"),
        (("ii", numbers(2, 3)), RuntimeError, "subscript i is repeated for operand 0"),
        (("ii", numbers(3, 1)), RuntimeError, "its sizes differ: 3 and 1"),
        (("i->ij", numbers(2)), RuntimeError, "output subscript j does not appear"),
        (("i->ii", numbers(2)), RuntimeError, "appears more than once in the output"),
        (("i1", numbers(2, 3)), RuntimeError, "invalid subscript '1' of operand 0"),
        (("i->i->i", numbers(2)), RuntimeError, "invalid subscript '-' of the output"),
        (("i-", numbers(2)), RuntimeError, "invalid subscript '-'"),
        (("é", numbers(2)), RuntimeError, "invalid subscript 'é'"),
        (("i..", numbers(2)), RuntimeError, "not part of any ellipsis"),
        (("...i...", numbers(2)), RuntimeError, "more than one ellipsis"),
        (("i->.i", numbers(2)), RuntimeError, "a '.' of the output"),
        ((numbers(2), [52]), ValueError, "subscript 52 is not within [0, 52)"),
        ((numbers(2), ["a"]), TypeError, "a subscript is an int"),
        ((numbers(2), 0), TypeError, "no list of subscripts"),
        (("i", 3), TypeError, ""),
        (("i,i", numbers(2), numbers(2, dtype="f4")), RuntimeError, "operand 1 is float32"),
    ],
)  # fmt: skip
def test_a_call_that_makes_no_sense_is_refused(
    arguments: tuple[Any, ...], error: type[Exception], fragment: str
) -> None:
    with pytest.raises(error) as caught:
        einsum(*arguments)
    assert fragment in str(caught.value)


@given(st.text("ij.-> ,A1", max_size=12), st.integers(1, 2))
def test_any_text_is_understood_or_refused_by_a_runtime_error(text: str, count: int) -> None:
    try:
        read(text, [(2, 2)] * count)
    except RuntimeError as error:
        assert str(error).startswith("einsum(): ")  # noqa: PT017


@given(st.data())
def test_any_chain_is_what_numpy_says(data: st.DataObject) -> None:
    letters = "abcde"
    sizes = dict(zip(letters, (2, 3, 1, 2, 3), strict=True))
    term = st.lists(st.sampled_from(letters), max_size=4, unique=True).map("".join)
    terms = data.draw(st.lists(term, min_size=1, max_size=4))
    present = sorted(set("".join(terms)))
    output = "".join(data.draw(st.lists(st.sampled_from(present), unique=True)) if present else [])
    arrays = [np.full([sizes[letter] for letter in each], i + 2.0) for i, each in enumerate(terms)]
    equation = f"{','.join(terms)}->{output}"
    assert np.allclose(einsum(equation, *arrays), np.einsum(equation, *arrays))


# ---- the precision ------------------------------------------------------------


def test_float32_obeys_the_precision_where_it_adds_up() -> None:
    a, b = numbers(4, 16, dtype="f4"), numbers(16, 4, dtype="f4")
    rounded = [without_last_bits(each, 16) for each in (a, b)]
    with store.applied({"mkldnn.matmul.fp32_precision": "bf16"}):
        assert np.array_equal(einsum("ij,jk", a, b), rounded[0] @ rounded[1])
        assert np.array_equal(einsum("ij,ij->ij", a, a), a * a)
        assert np.array_equal(einsum("ij->i", a), a.sum(1))


def test_float16_is_rounded_once_at_the_end() -> None:
    a = np.full(4096, 1, "f2")
    assert float(einsum("i,i->", a, a)) == 4096
    assert float(einsum("i->", a)) == 4096
    assert einsum("i,i,i->", a, a, a).dtype == np.float16


# ---- the order of the products --------------------------------------------------


def fake_opt_einsum(order: list[tuple[int, ...]], asked: list[Any]) -> Any:
    """Return an opt_einsum that finds the same path for everything."""
    module = types.ModuleType("opt_einsum")

    def contract_path(equation: str, *shapes: Any, **options: Any) -> Any:
        asked.append((equation, shapes, options))
        return order, "a report"

    module.contract_path = contract_path  # type: ignore[attr-defined]
    module.get_symbol = lambda i: "abcdefghijklmnopqrstuvwxyz"[i]  # type: ignore[attr-defined]
    return module


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    def install(order: list[tuple[int, ...]]) -> list[Any]:
        from mlbackends import opt_einsum
        from mlbackends.survey import availability

        asked: list[Any] = []
        monkeypatch.setitem(sys.modules, "opt_einsum", fake_opt_einsum(order, asked))
        asked_once: list[Any] = [availability.is_importable, opt_einsum.is_available]
        for each in asked_once:
            each.cache_clear()
        return asked

    return install


@pytest.fixture(autouse=True)
def forget_what_is_installed() -> Any:
    yield
    from mlbackends import opt_einsum
    from mlbackends.survey import availability

    asked_once: list[Any] = [availability.is_importable, opt_einsum.is_available]
    for each in asked_once:
        each.cache_clear()


def overflowing() -> list[Any]:
    """Three vectors: the product of the first two is infinite in float32, that of the last two is not."""
    return [np.full(1, value, "f4") for value in (1e30, 1e30, 1e-30)]


def finite(*arrays: Any) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(einsum("i,i,i->i", *arrays)).all())


def test_the_products_are_taken_in_the_order_of_the_path(
    installed: Callable[..., list[Any]],
) -> None:
    asked = installed([(1, 2), (0, 1)])
    with store.applied({"opt_einsum.enabled": True, "opt_einsum.strategy": "greedy"}):
        assert finite(*overflowing())
    assert asked == [("a,a,a->a", ((1,), (1,), (1,)), {"shapes": True, "optimize": "greedy"})]
    installed([(0, 1), (0, 1)])
    with store.applied({"opt_einsum.enabled": True}):
        assert not finite(*overflowing())


def test_switched_off_they_are_taken_from_left_to_right(
    installed: Callable[..., list[Any]],
) -> None:
    asked = installed([(1, 2), (0, 1)])
    with store.applied({"opt_einsum.enabled": False}):
        assert not finite(*overflowing())
        assert finite(*reversed(overflowing()))
    assert not asked


def test_two_operands_ask_for_no_path(installed: Callable[..., list[Any]]) -> None:
    asked = installed([(0, 1)])
    einsum("ij,jk", numbers(2, 3), numbers(3, 2))
    assert not asked


def test_the_path_is_asked_for_with_every_size_known(
    installed: Callable[..., list[Any]],
) -> None:
    asked = installed([(0, 1, 2)])
    a, b, c = numbers(5, 2, 3, 3), numbers(1, 3), numbers(3, 4)
    got = einsum("...ijj,ij,jk->...k", a, b, c)
    assert np.allclose(got, np.einsum("zijj,aj,jk->zk", a, b, c))
    equation, shapes, _ = asked[0]
    sizes = dict(zip("".join(equation.partition("->")[0].split(",")), sum(shapes, ()), strict=True))
    assert equation.count(",") == 2
    assert sorted(sizes.values()) == [2, 3, 4, 5]


def test_from_left_to_right_each_product_meets_the_next_operand() -> None:
    with store.applied({"opt_einsum.enabled": False}):
        contraction = read("a,b,c,d->", [(1,)] * 4)
        assert path(contraction) == [(0, 1), (0, 2), (0, 1)]
        assert path(read("a->", [(1,)])) == []
        assert path(read("a,b->", [(1,)] * 2)) == [(0, 1)]


# ---- on a device ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
def test_on_a_device_it_is_what_numpy_says(on_fake_cuda: Any, dtype: str) -> None:
    told = on_fake_cuda(
        f"""
equations = [
    ("ij,jk->ik", (3, 4), (4, 5)), ("ii", (3, 3)), ("ii->i", (3, 3)), ("iij->j", (3, 3, 4)),
    ("ij->ji", (3, 4)), ("ij->", (3, 4)), ("i,j->ij", (3,), (4,)), ("ij,ij->i", (3, 4), (3, 4)),
    ("ij,ij->ij", (3, 4), (3, 4)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("i,->i", (3,), ()),
    ("...ij,...jk->...ik", (3, 2, 3, 4), (2, 4, 5)), ("...,...->...", (2, 1), (3,)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), ("abc,cd,ef->b", (2, 3, 4), (4, 5), (2, 3)),
    ("ab,ac,ad->dbc", (2, 3), (2, 4), (2, 5)), ("iij,jkk->ik", (3, 3, 4), (4, 2, 2)),
    ("ij,jk->ik", (2, 0), (0, 3)), ("i,i->", (0,), (0,)), ("ij,jk->ki", (0, 2), (2, 3)), ("->", ()),
]
for equation, *shapes in equations:
    arrays = [rng.standard_normal(shape).astype("{dtype}") for shape in shapes]
    expected = np.einsum(equation, *[array.astype("c16") for array in arrays])
    got = mlbackends.einsum(equation, *map(on_device, arrays))
    assert got.shape == expected.shape and got.dtype == arrays[0].dtype.name, (equation, got)
    if expected.size:
        worst = np.abs(got.numpy() - expected).max()
        assert worst <= (2e-2 if "{dtype}" == "f2" else 1e-5) * max(1, np.abs(expected).max()), equation
a = on_device(rng.standard_normal((1, 3)).astype("{dtype}"))
tell(mlbackends.einsum("ij,kj->ik", a, a).shape)
"""
    )
    assert told.values == [[1, 1]]


def test_on_a_device_products_obey_the_switches_and_sums_are_exact(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
mlbackends.cuda.matmul.allow_tf32 = True
a = on_device(rng.standard_normal((3, 4)).astype("f4"))
for equation, count in (("ij,kj->ik", 2), ("ij->i", 1), ("ij,ij->ij", 2)):
    mlbackends.einsum(equation, *[a] * count)
"""
    )
    modes = [line.split()[1] for line in told.lines("gemm")]
    assert modes == ["mode=3", "mode=0", "mode=0"]


def test_on_a_device_the_order_is_the_path_s(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
a, b, c = (on_device(rng.standard_normal(shape)) for shape in ((40, 2), (2, 40), (40, 2)))
def multiply(): mlbackends.einsum("ij,jk,kl->il", a, b, c)
with mlbackends.switches.store.applied({"opt_einsum.enabled": False}):
    multiply()
"""
    )
    sizes = [sorted(map(int, re.findall(r" [mnk]=(\d+)", line))) for line in told.lines("gemm")]
    assert sizes == [[2, 40, 40], [2, 40, 40]]


def test_bfloat16_on_a_device_is_summed_with_its_own_ones(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
patterns = np.full((2, 3), 0x4000, np.uint16)
a = on_device(patterns.view("f2")).as_type("bfloat16")
result = mlbackends.einsum("ij->i", a)
tell([result.dtype, result.numpy().tolist()])
tell(error_of(lambda: a.as_type("float32")))
"""
    )
    assert told.values[0] == ["bfloat16", [6.0, 6.0]]
    assert told.values[1] == ["TypeError", "bfloat16 and float32 are not of one size"]


@pytest.mark.parametrize(
    ("call", "fragment"),
    [
        ("einsum('ij,jk', a, h)", "operand 0 and operand 1 do not"),
        ("einsum('ij,jk', h, a)", "operand 0 and operand 1 do not"),
        ("einsum('ij,jk', a, on_device(np.ones((2, 2), 'f4'), 1))", "not [0, 1]"),
        ("einsum('ij,jk', a, on_device(np.ones((2, 2))))", "operand 1 is float64"),
        ("einsum('ij,jk', a, on_device(np.ones((3, 2), 'f4')))", "do not broadcast"),
    ],
)
def test_on_a_device_operands_that_do_not_fit_are_refused(
    on_fake_cuda: Any, call: str, fragment: str
) -> None:
    told = on_fake_cuda(
        f"""
einsum, h = mlbackends.einsum, np.ones((2, 2), "f4")
a = on_device(h)
tell(error_of(lambda: {call}))
""",
        FAKE_GPUS="2",
    )
    assert told.values[0][0] == "RuntimeError"
    assert fragment in told.values[0][1]
