"""mlbackends::scaled_dot_product_attention under torch's transformations, beside torch's own function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from torch import func
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend as TorchKind
from torch.nn.attention import sdpa_kernel as torch_scope

import mlbackends
from mlbackends.base.errors import NoBackend
from mlbackends.sdpa.bias import CausalVariant

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:.*deprecated.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),
]
ours: Any = mlbackends.scaled_dot_product_attention
theirs: Any = F.scaled_dot_product_attention
close = torch.testing.assert_close


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()


def drawn(*shape: int, grad: bool = False, dtype: Any = None) -> Any:
    return torch.randn(shape, dtype=dtype or torch.float64, requires_grad=grad)


def operators() -> tuple[Any, Any]:
    """Return the operators, which are registered by then."""
    tensor = drawn(1, 1, 1, 1, grad=True)
    ours(tensor, tensor, tensor)
    names = torch.ops.mlbackends
    return names.scaled_dot_product_attention.default, names.scaled_dot_product_attention_backward.default


# ---- torch's own check of an operator ----------------------------------------------------------

OPTIONS: dict[str, Any] = {
    "plain": lambda: ((), {}),
    "causal": lambda: ((), {"is_causal": True, "scale": 0.3}),
    "float mask": lambda: ((drawn(5, 7, grad=True),), {}),
    "boolean mask": lambda: ((drawn(2, 1, 5, 7) > 0,), {}),
    "sinks, window, softcap": lambda: (
        (None, drawn(4, grad=True)),
        {"window": [2, 1], "softcap": 2.0, "lower_right": True},
    ),
    "dropout": lambda: ((None, None, torch.tensor(5)), {"dropout_p": 0.5}),
}


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # of opcheck's own, in torch 2.15
@pytest.mark.parametrize("rows_first", [False, True])
@pytest.mark.parametrize("case", OPTIONS)
def test_torch_checks_the_operators(case: str, rows_first: bool) -> None:
    forward, backward = operators()
    tensors = [drawn(2, 4, 5, 8), drawn(2, 2, 7, 8), drawn(2, 2, 7, 3)]
    if rows_first:
        tensors = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in tensors]
    more, options = OPTIONS[case]()
    options["enable_gqa"] = True
    found = torch.library.opcheck(forward, (*(tensor.requires_grad_() for tensor in tensors), *more), options)
    assert set(found.values()) == {"SUCCESS"}
    with torch.no_grad():
        out, logsumexp = forward(*tensors, *more, **options)
    plain = [None if tensor is None else tensor.detach() for tensor in (*tensors, *more)]
    wants = bool(more) and more[0] is not None and more[0].is_floating_point()
    given = (torch.randn_like(out), out, logsumexp, *plain)
    found = torch.library.opcheck(backward, given, {**options, "mask_gradient": wants})
    assert set(found.values()) == {"SUCCESS"}


# ---- derivatives ---------------------------------------------------------------------------------


def everything(q: Any, k: Any, v: Any, mask: Any, sinks: Any) -> Any:
    more = {"softcap": 3.0, "sinks": sinks, "window": (2, 1), "alibi_slopes": torch.tensor([0.5, 0, 1, -2])}
    return ours(q, k, v, mask, 0.3, seed=5, enable_gqa=True, **more)


def packed(q: Any, k: Any, v: Any) -> Any:
    lengths = {"query_lengths": (5, 4), "key_lengths": (3, 6)}
    return ours(q, k, v, dropout_p=0.3, seed=5, is_causal=True, lower_right=True, **lengths)


FUNCTIONS: dict[str, Any] = {
    "plain": (ours, [(2, 4, 5, 8)] * 3),
    "broadcast": (ours, [(2, 1, 3, 4), (1, 2, 5, 4), (5, 2)]),
    "everything": (everything, [(2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 2), (4, 3, 5), (4,)]),
    "one tensor": (lambda q: ours(q, q, q), [(1, 2, 4, 4)]),
    "packed": (packed, [(1, 2, 9, 4)] * 3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_order_gradients_are_right(name: str) -> None:
    function, shapes = FUNCTIONS[name]
    inputs = tuple(drawn(*shape, grad=True) for shape in shapes)
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


def test_batched_gradients_and_tangents_are_right() -> None:
    inputs = tuple(drawn(2, 2, 3, 4, grad=True) for _ in "qkv")
    checks = ("check_batched_grad", "check_forward_ad", "check_batched_forward_grad")
    assert torch.autograd.gradcheck(ours, inputs, **dict.fromkeys(checks, True))
    out = ours(*inputs)
    several = drawn(3, *out.shape)
    found = torch.autograd.grad(out, inputs, several, is_grads_batched=True, retain_graph=True)
    wanted = [torch.autograd.grad(out, inputs, one, retain_graph=True) for one in several]
    close(list(found), [torch.stack(parts) for parts in zip(*wanted, strict=True)])


def test_third_order_gradients_are_torchs() -> None:
    inputs = [drawn(1, 1, 3, 2) for _ in "qkv"]

    def third(function: Any) -> Any:
        once = func.grad(lambda q: function(q, *inputs[1:]).square().sum())
        return func.grad(lambda q: func.grad(lambda x: once(x).square().sum())(q).sum())(inputs[0])

    with torch_scope(TorchKind.MATH):
        close(third(ours), third(theirs))


# ---- torch.func ----------------------------------------------------------------------------------

A = [(3, 2, 5, 8), (3, 2, 5, 8), (3, 2, 5, 8)]
TRANSFORMED: dict[str, Any] = {
    "vmap": lambda f, q, k, v: func.vmap(f)(q, k, v),
    "vmap of heads": lambda f, q, k, v: func.vmap(func.vmap(f))(q, k, v),
    "vmap of queries": lambda f, q, k, v: func.vmap(f, (0, None, None))(q, k[0], v[0]),
    "vmap elsewhere": lambda f, q, k, v: func.vmap(f, (1, None, 2), 1)(
        q.movedim(0, 1), k[0], v.movedim(0, 2)
    ),
    "vmap of masks": lambda f, q, k, v: func.vmap(f, (None, None, None, 0))(q, k, v, drawn(4, 5, 5)),
    "vmap with groups": lambda f, q, k, v: func.vmap(lambda *t: f(*t, enable_gqa=True))(
        q, k[:, :1], v[:, :1]
    ),
    "grad": lambda f, q, k, v: func.grad(lambda *t: f(*t).square().sum(), (0, 1, 2))(q, k, v),
    "vmap of grad": lambda f, q, k, v: func.vmap(
        func.grad(lambda *t: f(*t).square().sum(), (0, 1, 2)), (0, None, 0)
    )(q, k[0], v),
    "vmap of a mask's grad": lambda f, q, k, v: func.vmap(
        func.grad(lambda m, *t: f(*t, m).square().sum()), (0, None, None, 0)
    )(drawn(3, 5, 5), q, k, v),
    "grad of vmap": lambda f, q, k, v: func.grad(lambda *t: func.vmap(f)(*t).square().sum())(q, k, v),
    "jvp": lambda f, q, k, v: func.jvp(lambda x: f(x, k, v), (q,), (v,)),
    "vjp": lambda f, q, k, v: func.vjp(f, q, k, v)[1](q),
    "hessian": lambda f, q, k, v: func.hessian(lambda x: f(x, k[:1, :1, :3], v[:1, :1, :3]).square().sum())(
        q[:1, :1, :3]
    ),
    "jacobian of a jacobian": lambda f, q, k, v: func.jacrev(
        func.jacrev(lambda x: f(x, k[:1, :1, :3], v[:1, :1, :3]).square().sum())
    )(q[:1, :1, :3]),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_torch_func_transforms_ours_as_theirs(name: str) -> None:
    tensors = [drawn(*shape) for shape in A]
    with torch_scope(TorchKind.MATH):
        torch.manual_seed(1)
        wanted = TRANSFORMED[name](theirs, *tensors)
    torch.manual_seed(1)
    close(TRANSFORMED[name](ours, *tensors), wanted)
    call = mlbackends.last_attention()
    assert call is not None
    assert call.backend == ("torch" if name in ("jvp", "hessian") else "flash_cpu")


def test_dropout_below_vmap_is_as_random_as_vmap_says() -> None:
    one = drawn(1, 2, 5, 8)
    rows = one.expand(3, 2, 5, 8)

    def dropped(x: Any) -> Any:
        return ours(x, x, x, dropout_p=0.5)

    same = func.vmap(dropped, randomness="same")(rows)
    different = func.vmap(dropped, randomness="different")(rows)
    assert torch.equal(same[0], same[1]) and not torch.equal(different[0], different[1])
    with pytest.raises(RuntimeError, match="random"):
        func.vmap(dropped)(rows)
    found = func.grad(lambda x: func.vmap(dropped, randomness="same")(x).square().sum())(rows)
    close(found[0], found[1])


def test_packed_sequences_are_batched_one_after_another() -> None:
    tensors = [drawn(2, 1, 2, 9, 4) for _ in "qkv"]
    close(func.vmap(packed)(*tensors), torch.stack([packed(*one) for one in zip(*tensors, strict=True)]))


# ---- compilers -----------------------------------------------------------------------------------


def direct(q: Any, k: Any, v: Any) -> Any:
    return ours(q * 1, k, v, is_causal=True).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_direct_call_is_a_part_of_one_graph(backend: str) -> None:
    inputs = [drawn(2, 4, 6, 8, grad=True, dtype=torch.float32) for _ in "qkv"]
    compiled = torch.compile(direct, backend=backend, fullgraph=True)

    found, wanted = compiled(*inputs), direct(*inputs)

    close(found, wanted)
    close(torch.autograd.grad(found.sum(), inputs), torch.autograd.grad(wanted.sum(), inputs))
    call = mlbackends.last_attention()
    assert call is not None and (call.backend, call.direction) == ("flash_cpu", "backward")


def test_dynamic_shapes_are_compiled_once() -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(direct, backend=counter, fullgraph=True, dynamic=True)
    for length in (3, 5, 9):
        inputs = [drawn(2, length, 4, 8).transpose(1, 2).requires_grad_() for _ in "qkv"]
        found = compiled(*inputs)
        close(found, direct(*inputs))
        found.sum().backward()
    assert sum("scaled_dot_product_attention" in graph.code for graph in counter.graphs) == 1


class Direct(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return ours(q, k, v, is_causal=True)


@pytest.mark.parametrize("strict", [False, True])
def test_a_direct_call_is_exported_with_and_without_decompositions(strict: bool) -> None:
    inputs = tuple(drawn(2, 4, 6, 8) for _ in "qkv")
    length = {2: torch.export.Dim("length", min=2, max=99)}
    program = torch.export.export(Direct(), inputs, strict=strict, dynamic_shapes=(length,) * 3)
    others = tuple(drawn(2, 4, 9, 8) for _ in "qkv")
    for exported in (program, program.run_decompositions()):
        assert "mlbackends.scaled_dot_product_attention" in str(exported.graph)
        close(exported.module()(*others), ours(*others, is_causal=True))


def test_dropout_in_a_graph_follows_torchs_seed() -> None:
    q = drawn(1, 2, 8, 4, grad=True)
    compiled = torch.compile(lambda x: ours(x, x, x, dropout_p=0.5), backend="aot_eager", fullgraph=True)
    torch.manual_seed(1)
    found = compiled(q)
    torch.manual_seed(1)
    wanted = ours(q, q, q, dropout_p=0.5)
    close(found, wanted)
    close(*(torch.autograd.grad(out.square().sum(), q)[0] for out in (found, wanted)))


@pytest.mark.parametrize("variant", CausalVariant)
def test_causal_biases_are_compiled(variant: CausalVariant) -> None:
    from torch.nn.attention import bias as of_torch

    q, k = drawn(1, 2, 5, 4), drawn(1, 2, 7, 4)
    name = f"causal_{variant.name.lower()}"
    wanted = ours(q, k, k, torch.ones(5, 7).tril(2 if variant is CausalVariant.LOWER_RIGHT else 0).bool())
    made = torch.compile(
        lambda q, k: ours(q, k, k, getattr(mlbackends, name)(5, 7)), backend="aot_eager", fullgraph=True
    )
    close(made(q, k), wanted)
    given = torch.compile(lambda q, k, bias: ours(q, k, k, bias), backend="aot_eager", fullgraph=True)
    close(given(q, k, getattr(of_torch, name)(5, 7)), wanted)


def test_options_beyond_torchs_are_compiled() -> None:
    q, sinks = drawn(1, 2, 9, 4), drawn(2)

    def packed_too(q: Any, sinks: Any) -> Any:
        lengths = {"query_lengths": (4, 5), "key_lengths": (4, 5)}
        return ours(q, q, q, sinks=sinks, window=(2, 0), softcap=2.0, **lengths)

    close(torch.compile(packed_too, backend="aot_eager", fullgraph=True)(q, sinks), packed_too(q, sinks))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_scope_around_a_direct_call_is_a_part_of_the_graph(backend: str) -> None:
    def scoped(q: Any) -> Any:
        with mlbackends.sdpa_kernel(mlbackends.SDPBackend.MATH):
            return ours(q, q, q)

    q = drawn(1, 2, 4, 8)
    torch.compile(scoped, backend=backend, fullgraph=True)(q)
    call = mlbackends.last_attention()
    assert call is not None and call.backend == "math"
    with mlbackends.sdpa_kernel([]), pytest.raises(NoBackend):
        torch.compile(lambda q: ours(q, q, q), backend=backend, fullgraph=True)(q)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_as_for_torch(dtype: Any) -> None:
    inputs = [drawn(1, 2, 6, 8, grad=True, dtype=torch.float32) for _ in "qkv"]
    with torch.autocast("cpu", dtype=dtype):
        found, wanted = ours(*inputs), theirs(*inputs)
    close(found, wanted, atol=2e-2, rtol=2e-2)
    found, wanted = (torch.autograd.grad(out.sum(), inputs) for out in (found, wanted))
    close(found, wanted, atol=0.05, rtol=0.05)


def test_gradients_where_no_backend_may_compute_are_the_formulas() -> None:
    forward, backward = operators()
    q, k, v = (drawn(1, 2, 4, 8) for _ in "qkv")
    out, logsumexp = forward(q, k, v)
    wanted = backward(out, out, logsumexp, q, k, v)
    with mlbackends.sdpa_kernel([]):
        found = backward(out, out, logsumexp, q, k, v)
    close(found[:3], wanted[:3])
    call = mlbackends.last_attention()
    assert call is not None and (call.backend, call.direction) == ("torch", "backward")


def test_types_are_refused_as_without_gradients() -> None:
    q = drawn(1, 2, 4, 8, grad=True)
    for wrong in ({"is_causal": 1}, {"scale": "x"}, {"attn_mask": 3}, {"seed": True}):
        (name,) = wrong
        with pytest.raises(TypeError, match=f"argument '{name}'"):
            ours(q, q, q, **wrong)
