"""Prepared calls with torch's tensors: the same as calls that are looked at, whatever the tensors carry."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

torch: Any = pytest.importorskip("torch")

import mlbackends  # noqa: E402
from mlbackends.sdpa import call_cache, dispatch  # noqa: E402
from mlbackends.switches import store  # noqa: E402
from mlbackends_kernels.attention_cpu import library, prepared_calls  # noqa: E402
from mlbackends_kernels.tensors import watching  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import FirstArguments

    from mlbackends.model.problem import AttentionProblem


def is_built() -> bool:
    try:
        return prepared_calls.native_module() is not None
    except library.NotBuilt:
        return False


pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not is_built(), reason="the module of prepared calls was not built"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:.*deprecated.*:FutureWarning"),
]
attend: Any = mlbackends.scaled_dot_product_attention
torch.manual_seed(3)
Q, K, V = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)


def joins(problem: AttentionProblem) -> bool:
    """Tell whether a problem wants the logarithms, which gradients need."""
    return problem.wants_gradient or problem.logsumexp


@pytest.fixture(autouse=True)
def warm() -> Iterator[None]:
    attend(Q, K, V)  # backends and switches are there
    call_cache._kept.clear()
    for _ in range(2):
        attend(Q, K, V)
    yield
    call_cache._kept.clear()


@pytest.fixture
def looked_at(first_arguments: FirstArguments) -> list[AttentionProblem]:
    """Return the problems that were decided anew, in a list that grows."""
    return first_arguments(dispatch, "chosen_backend", lambda problem: not joins(problem))


def anew(*tensors: Any, **options: Any) -> Any:
    store.changed()
    return attend(*tensors, **options)


def same(seen: Any, wanted: Any) -> None:
    assert type(seen) is type(wanted)
    for fact in ("dtype", "shape", "device", "requires_grad", "layout"):
        assert getattr(seen, fact) == getattr(wanted, fact), fact
    assert seen.stride() == wanted.stride()
    assert (seen.is_inference(), seen.is_neg()) == (wanted.is_inference(), wanted.is_neg())
    assert torch.equal(seen, wanted)


def test_plain_tensors_are_computed_without_a_look(looked_at: list[AttentionProblem]) -> None:
    seen = attend(Q.clone(), K.clone(), V.clone())

    assert not looked_at
    same(seen, anew(Q, K, V))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("mask", ["none", "causal", "bool", "number"])
def test_of_every_type_and_mask_it_is_the_same_to_the_bit(
    dtype: str, mask: str, looked_at: list[AttentionProblem]
) -> None:
    tensors = [each.to(getattr(torch, dtype)) for each in (Q, K, V)]
    options: dict[str, Any] = {"is_causal": mask == "causal"}
    if mask == "bool":
        options["attn_mask"] = torch.ones(4, 6, dtype=torch.bool).tril()
    if mask == "number":
        options["attn_mask"] = torch.randn(1, 2, 4, 6).to(tensors[0].dtype)
    wanted = anew(*tensors, **options)
    attend(*tensors, **options)
    decided = len(looked_at)

    same(attend(*tensors, **options), wanted)
    assert len(looked_at) == decided


def test_large_ones_too(looked_at: list[AttentionProblem]) -> None:
    large = torch.randn(1, 2, 300, 64)
    wanted = [attend(large, large, large) for _ in range(2)][1]

    same(attend(large, large, large), wanted)
    assert len(looked_at) == 2


@pytest.mark.parametrize(
    "laid_out",
    [
        lambda tensor: tensor.transpose(1, 2).contiguous().transpose(1, 2),
        lambda tensor: torch.cat([tensor, tensor], -1)[..., :8],
        lambda tensor: torch.cat([tensor, tensor], 2)[:, :, ::2],
        lambda tensor: tensor[:, :1].expand(-1, 2, -1, -1),
        lambda tensor: torch.cat([tensor, tensor])[1:],
        lambda tensor: tensor.transpose(-1, -2).contiguous().transpose(-1, -2),
        torch._lazy_clone,
        lambda tensor: torch.nn.Parameter(tensor, requires_grad=False),
    ],
    ids=["bshd", "part", "gaps", "expanded", "offset", "columns", "lazy", "parameter"],
)
def test_however_tensors_lie_it_is_the_same(laid_out: Callable[[Any], Any]) -> None:
    tensors = [laid_out(each) for each in (Q, K, V)]
    wanted = anew(*tensors)
    for _ in range(3):
        same(attend(*tensors), wanted)


@pytest.mark.parametrize(
    "cached",
    [
        lambda cache, keys: cache[:, :, :keys].contiguous(),
        lambda cache, keys: cache[:, :, :keys],
        lambda cache, keys: cache.transpose(1, 2).contiguous()[:, :keys].transpose(1, 2),
    ],
    ids=["joined", "part", "rows first"],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_cache_that_grows_is_looked_at_twice(
    cached: Callable[[Any, int], Any], dtype: str, looked_at: list[AttentionProblem]
) -> None:
    kind = getattr(torch, dtype)
    key, value = torch.randn(2, 2, 2, 1100, 8).to(kind)
    queries = torch.randn(2, 1, 4, 8).to(kind).transpose(1, 2)
    steps = [*range(1, 6), 1023, 1024, 1100]
    found = [attend(queries, cached(key, n), cached(value, n), enable_gqa=True) for n in steps]

    assert len(looked_at) == 2
    for keys, seen in zip(steps, found, strict=True):
        same(seen, anew(queries, cached(key, keys), cached(value, keys), enable_gqa=True))


def test_the_logarithms_are_the_same_too() -> None:
    for length in (1, 2, 3, 4):
        tensors = Q[:, :, :length], K, V
        seen = attend(*tensors, return_logsumexp=True)
        for one, other in zip(seen, anew(*tensors, return_logsumexp=True), strict=True):
            same(one, other)
        attend(*tensors, return_logsumexp=True)


def test_what_is_dropped_is_drawn_once_a_call_from_torchs_generator(
    looked_at: list[AttentionProblem],
) -> None:
    torch.manual_seed(1)
    wanted = [anew(Q, K, V, dropout_p=0.5) for _ in range(3)]
    for _ in range(2):
        attend(Q, K, V, dropout_p=0.5)
    decided = len(looked_at)
    torch.manual_seed(1)
    for each in wanted:
        same(attend(Q, K, V, dropout_p=0.5), each)
    assert len(looked_at) == decided
    same(attend(Q, K, V, dropout_p=0.5, seed=5), anew(Q, K, V, dropout_p=0.5, seed=5))


def test_a_value_of_another_width_has_room_of_its_own() -> None:
    value = torch.randn(1, 6, 2, 3).transpose(1, 2)
    for query in (Q, Q.transpose(1, 2).contiguous().transpose(1, 2), Q[0]):
        tensors = query, *(each[0] if query.dim() == 3 else each for each in (K, value))
        for _ in range(3):
            same(attend(*tensors), anew(*tensors))
            attend(*tensors)
            attend(*tensors)


def test_a_tensor_that_requires_a_gradient_gets_one() -> None:
    for place in range(3):
        tensors = [each.clone().requires_grad_(place == n) for n, each in enumerate((Q, K, V))]
        for _ in range(3):
            out = attend(*tensors)
            assert out.requires_grad
        out.sum().backward()
        assert tensors[place].grad is not None
        with torch.no_grad():
            wanted = anew(Q, K, V)
            for _ in range(3):
                same(attend(*tensors), wanted)
        assert attend(*tensors).requires_grad


@pytest.fixture
def joined(first_arguments: FirstArguments) -> list[AttentionProblem]:
    """Return the problems with gradients that were decided anew, in a list that grows."""
    return first_arguments(dispatch, "chosen_backend", joins)


def learned(*tensors: Any, **options: Any) -> list[Any]:
    """Return the result, and the gradients of a sum that weighs it."""
    tensors = tuple(each.detach().requires_grad_() for each in tensors)
    found = attend(*tensors, **options)
    out = found[0] if options.get("return_logsumexp") else found
    assert out.requires_grad
    weights = torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(out.dtype)
    (out * weights).sum().backward()
    return [out.detach(), *(each.grad for each in tensors)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"return_logsumexp": True}, {"dropout_p": 0.5, "seed": 9}],
    ids=["plain", "causal", "logsumexp", "dropout"],
)
def test_gradients_of_any_lengths_are_the_same_to_the_bit(
    dtype: str, options: dict[str, Any], joined: list[AttentionProblem]
) -> None:
    calls = [
        [torch.randn(2, 2, rows, 8).to(getattr(torch, dtype)) for rows in (length, keys, keys)]
        for length, keys in [(4, 6), (3, 9), (4, 6), (7, 2), (1, 1), (90, 130)]
    ]
    found = [learned(*tensors, **options) for tensors in calls]
    assert len(joined) == 2
    for tensors, seen in zip(calls, found, strict=True):
        store.changed()
        for one, other in zip(seen, learned(*tensors, **options), strict=True):
            same(one, other)


def test_what_is_dropped_is_the_same_forth_and_back(joined: list[AttentionProblem]) -> None:
    torch.manual_seed(6)
    wanted = []
    for _ in range(3):
        store.changed()
        wanted.append(learned(Q, K, V, dropout_p=0.5))
    for _ in range(2):
        learned(Q, K, V, dropout_p=0.5)
    decided = len(joined)
    torch.manual_seed(6)
    for each in wanted:
        for one, other in zip(learned(Q, K, V, dropout_p=0.5), each, strict=True):
            same(one, other)
    assert len(joined) == decided


def test_the_backend_that_computed_it_differentiates_it_whatever_is_switched_since() -> None:
    def late() -> list[Any]:
        tensors = [each.clone().requires_grad_() for each in (Q, K, V)]
        out = attend(*tensors)
        with mlbackends.sdpa_kernel([]):
            out.sum().backward()
        return [each.grad for each in tensors]

    store.changed()
    wanted = late()
    for _ in range(3):
        for one, other in zip(late(), wanted, strict=True):
            same(one, other)
        tensors = [each.clone().requires_grad_() for each in (Q, K, V)]
        attend(*tensors).sum().backward()


def test_a_backward_pass_uses_the_instruction_set_that_counts_when_it_runs() -> None:
    def late() -> Any:
        query = torch.linspace(-2, 2, 2 * 9 * 67).reshape(1, 2, 9, 67).requires_grad_()
        with library.lowered("baseline"):
            for _ in range(3):
                out = attend(query, query.detach(), query.detach())
        (out * out.detach()).sum().backward()
        return query.grad

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call_cache, "_MOST_FORMS", 0)
        wanted = late()
    same(late(), wanted)


@pytest.mark.parametrize(
    "tensors",
    [
        (Q, K[:, :1], V[:, :1]),
        (torch.cat([Q, Q]), K, V),
        (Q[0], K[0], V[0]),
        (Q[0, 0], K[0, 0], V[0, 0]),
        (torch._neg_view(Q), K, V),
    ],
    ids=["heads", "batches", "three", "two", "negative"],
)
def test_whatever_is_broadcast_or_carried_the_gradients_are_the_same(
    tensors: tuple[Any, ...],
) -> None:
    store.changed()
    wanted = learned(*tensors)
    for _ in range(3):
        learned(Q, K, V)
    for _ in range(3):
        for one, other in zip(learned(*tensors), wanted, strict=True):
            same(one, other)


def test_gradients_of_gradients_are_refused_as_before() -> None:
    for _ in range(4):
        query = Q.clone().requires_grad_()
        (first,) = torch.autograd.grad(attend(query, K, V).sum(), query, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiated once already"):
            first.sum().backward()


def test_a_gradient_may_be_asked_for_twice_and_of_some_alone() -> None:
    def twice() -> Any:
        key = K.clone().requires_grad_()
        out, logsumexp = attend(Q, key, V, return_logsumexp=True)
        assert not logsumexp.requires_grad
        for _ in range(2):
            out.backward(torch.ones_like(out), retain_graph=True)
        return key.grad

    wanted = twice()
    for _ in range(3):
        same(twice(), wanted)


def test_gradients_by_the_function_are_the_same_and_are_not_recorded() -> None:
    backward: Any = mlbackends.scaled_dot_product_attention_backward
    out, logsumexp = attend(Q, K, V, return_logsumexp=True)
    given = torch.randn(out.shape)
    store.changed()
    wanted = backward(given, Q, K, V, out, logsumexp)
    for _ in range(4):
        for one, other in zip(backward(given, Q, K, V, out, logsumexp), wanted, strict=True):
            assert one is other is None or torch.equal(one, other)
    for place in range(6):
        tensors = [given, Q, K, V, out, logsumexp]
        tensors[place] = tensors[place].clone().requires_grad_()
        with pytest.raises(RuntimeError, match="requires a gradient"):
            backward(*tensors)
        with torch.no_grad():
            same(backward(*tensors).query, wanted.query)
    for place in (0, 4):
        tensors = [given, Q, K, V, out, logsumexp]
        tensors[place] = torch._neg_view(tensors[place])
        turned = [each.resolve_neg() for each in tensors]
        store.changed()
        expected = backward(*turned).query
        for _ in range(3):
            backward(*turned)
        same(backward(*tensors).query, expected)


def test_a_mask_that_requires_a_gradient_gets_one() -> None:
    mask = torch.randn(4, 6)
    for _ in range(3):
        attend(Q, K, V, mask)
    mask.requires_grad_()
    attend(Q, K, V, mask).sum().backward()
    assert mask.grad is not None


def test_in_inference_mode_results_are_as_before() -> None:
    with torch.inference_mode():
        made = [each.clone() for each in (Q, K, V)]
        wanted = anew(*made)
        for _ in range(3):
            same(attend(*made), wanted)
    same(attend(*made), anew(*made))


def test_a_sign_that_is_not_applied_yet_counts() -> None:
    negative = torch._neg_view(Q)
    assert negative.is_neg()
    same(attend(negative, K, V), anew(-Q, K, V))
    same(attend(Q, torch._neg_view(K), V), anew(Q, -K, V))
    same(attend(Q, K, torch._neg_view(V)), anew(Q, K, -V))
    mask = torch.randn(4, 6)
    for _ in range(3):
        attend(Q, K, V, mask)
    same(attend(Q, K, V, torch._neg_view(mask)), anew(Q, K, V, -mask))


def outcome(*tensors: Any) -> Any:
    try:
        return attend(*tensors)
    except Exception as error:  # noqa: BLE001  it is compared
        return type(error), str(error)


def nested(tensor: Any) -> Any:
    return torch.nested.nested_tensor([tensor[0]])


class Mine(torch.Tensor):  # type: ignore[misc,unused-ignore]
    """A subclass that changes nothing."""


def test_a_tensor_without_memory_is_looked_at(looked_at: list[AttentionProblem]) -> None:
    outcome(torch._efficientzerotensor(Q.shape), K, V)
    assert len(looked_at) == 1


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("length", [4, 64])
def test_a_tensor_whose_storage_was_freed_is_refused(length: int, offset: int, place: int) -> None:
    def tensors() -> list[Any]:
        shapes = [*[(3, 1, 4, length, 8)] * 3, (3, 1, 1, length, length)]
        return [torch.rand(shape)[offset] for shape in shapes]

    for _ in range(4):
        attend(*tensors())
        attend(*tensors()[:3])
    given = tensors()
    given[place].untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="storage has been freed"):
        attend(*given)
    if place < 3:
        with pytest.raises(RuntimeError, match="storage has been freed"):
            attend(*given[:3])


def test_a_tensor_of_zeros_without_memory_is_one_of_zeros() -> None:
    zeros = torch.zeros(Q.shape)
    same(attend(torch._efficientzerotensor(Q.shape), K, V), attend(zeros, K, V))


def test_a_tensor_that_is_made_functional_has_nothing_to_read() -> None:
    with pytest.raises(RuntimeError, match="functionalization"):
        attend(torch._to_functional_tensor(Q), K, V)


def test_under_autocast_it_is_as_before() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = anew(Q, K, V)
        for _ in range(3):
            same(attend(Q, K, V), wanted)


def test_what_is_traced_or_transformed_is_refused_as_before() -> None:
    def refused(call: Callable[[], Any]) -> str:
        with pytest.raises(RuntimeError) as caught:
            call()
        return str(caught.value)

    assert "vmap" in refused(lambda: torch.func.vmap(lambda each: attend(each, K[0], V[0]))(Q))
    single = torch.func.grad(lambda each: attend(each, K, V).sum())
    assert "torch.func" in refused(lambda: single(Q))
    assert "traced" in refused(lambda: torch.func.functionalize(lambda x: attend(x, K, V))(Q))
    tangent = torch.autograd.forward_ad

    def dual() -> Any:
        with tangent.dual_level():
            return attend(tangent.make_dual(Q, Q), K, V)

    assert "tangent" in refused(dual)
    from torch._subclasses import FakeTensorMode

    def fake() -> Any:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return attend(Q, K, V)

    assert "traced" in refused(fake)
    from torch.fx.experimental.proxy_tensor import make_fx

    for before_autograd in (False, True):
        graph = make_fx(lambda x: attend(x, K, V), pre_dispatch=before_autograd)
        assert "traced" in refused(partial(graph, Q))
    assert "traced" in refused(lambda: torch.jit.trace(lambda x: attend(x, K, V), (Q,)))


def test_plain_tensors_inside_of_a_transform_are_as_before() -> None:
    seen: list[Any] = []

    def inside(each: Any) -> Any:
        for _ in range(2):
            seen.append(outcome(Q, K, V))
            store.changed()
        return each * 2

    torch.func.vmap(inside)(torch.ones(3))
    for _ in range(3):
        attend(Q, K, V)
    torch.func.grad(lambda each: inside(each).sum())(torch.ones(3))
    assert torch.equal(seen[0], seen[1])
    assert str(seen[2])[:80] == str(seen[3])[:80]


def test_a_mode_that_watches_functions_sees_as_much_as_before() -> None:
    class Watching(torch.overrides.TorchFunctionMode):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Watching() as first:
        anew(Q, K, V)
    for _ in range(3):
        attend(Q, K, V)
    with Watching() as second:
        seen = attend(Q, K, V)
    assert {"detach"} <= {each.split("'")[1] for each in second.seen if "'detach'" in each}
    assert second.seen and first.seen
    assert torch.equal(seen, anew(Q, K, V))


def test_another_default_device_or_element_type_changes_nothing() -> None:
    wanted = anew(Q, K, V)
    with torch.device("meta"):
        same(attend(Q, K, V), wanted)
    torch.set_default_dtype(torch.float64)
    try:
        same(attend(Q, K, V), wanted)
        apart = torch.cat([Q, Q], -1)[..., :8]
        for _ in range(3):
            seen = attend(apart, K, V)
        same(seen, anew(apart, K, V))
    finally:
        torch.set_default_dtype(torch.float32)


def test_inside_of_a_compiled_function_it_is_called_whole() -> None:
    wanted = attend(Q + 1, K, V) * 2
    compiled = torch.compile(lambda query: attend(query + 1, K, V) * 2, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for _ in range(4):
            assert torch.equal(compiled(Q), wanted)
    assert torch.equal(attend(Q + 1, K, V) * 2, wanted)


def test_to_drop_everything_draws_no_seed() -> None:
    before = torch.get_rng_state()
    for _ in range(4):
        assert not attend(Q, K, V, dropout_p=1.0).any()
    assert torch.equal(torch.get_rng_state(), before)


def test_numpy_beside_torch_is_of_another_kind(looked_at: list[AttentionProblem]) -> None:
    arrays = [each.numpy() for each in (Q, K, V)]
    for _ in range(3):
        seen = attend(*arrays)
    assert len(looked_at) == 2
    assert (seen == attend(Q, K, V).numpy()).all()
    for _ in range(3):
        assert torch.equal(attend(Q, arrays[1], V), attend(Q, K, V))


def test_a_torch_that_cannot_tell_what_tensors_carry_prepares_nothing(
    monkeypatch: pytest.MonkeyPatch, looked_at: list[AttentionProblem]
) -> None:
    watching.watches.cache_clear()
    monkeypatch.setattr(torch.Tensor, "has_names", lambda _: False, raising=False)
    try:
        for _ in range(3):
            anew(Q, K, V)
            attend(Q, K, V)
            attend(Q, K, V)
        assert len(looked_at) == 9
    finally:
        watching.watches.cache_clear()
