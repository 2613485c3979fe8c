"""torch.compile(model, backend="mlbackends") beside torch alone: results, gradients, and who computed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend as TorchKind
from torch.nn.attention import sdpa_kernel as torch_scope
from torch.nn.attention.flex_attention import flex_attention

import mlbackends
from mlbackends.base.errors import NoBackend
from mlbackends.sdpa import attend, switches
from mlbackends_kernels.bridges.torch_compile import compile_graph
from mlbackends_kernels.bridges.torch_function import attention

pytestmark = [
    pytest.mark.torch,
    # torch's own, while it traces.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:.*deprecated.*:FutureWarning"),
]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Return the query's shape for each problem that a backend of ours has computed."""
    seen: list[tuple[int, ...]] = []
    real = mlbackends.scaled_dot_product_attention  # loaded before it is replaced in its module

    def counted(query: Any, *args: Any, **kwargs: Any) -> Any:
        result = real(query, *args, **kwargs)
        seen.append(tuple(query.shape))
        return result

    monkeypatch.setattr(attend, "scaled_dot_product_attention", counted)
    return seen


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend=compile_graph, **options)


def qkv(*shape: int, dtype: Any = None, grad: bool = False) -> list[Any]:
    return [torch.randn(*shape, dtype=dtype or torch.float32, requires_grad=grad) for _ in "qkv"]


def close(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours, theirs)
    assert ours.stride() == theirs.stride()


LOWER = torch.ones(5, 7).tril().bool()
WAYS: dict[str, Any] = {
    "plain": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),  # noqa: PLW0108
    "keywords": lambda q, k, v: F.scaled_dot_product_attention(value=v, key=k, query=q),
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "positional": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, None, 0.0, True),
    "scale": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3),
    "boolean mask": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, LOWER),
    "float mask": lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, attn_mask=torch.linspace(-1, 1, 35).view(5, 7)
    ),
    "mask that broadcasts": lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, attn_mask=LOWER.expand(2, 1, 5, 7), dropout_p=0.0, is_causal=False
    ),
    "rows that see nothing": lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, torch.zeros(5, 7, dtype=torch.bool)
    ),
    "builtin": lambda q, k, v: torch._C._nn.scaled_dot_product_attention(
        q, k, v, None, 0.0, False, scale=0.3
    ),
    "aten": lambda q, k, v: torch.ops.aten.scaled_dot_product_attention(q, k, value=v),
    "aten overload": lambda q, k, v: torch.ops.aten.scaled_dot_product_attention.default(
        q, k, v, None, 0.0, True
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_attention_is_ours_however_it_is_called(way: str, calls: list[Any]) -> None:
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 8)

    close(compiled(WAYS[way], fullgraph=True)(q, k, v), WAYS[way](q, k, v))

    assert calls == [(2, 4, 5, 8)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_floating_point_type_is_served(dtype: Any, calls: list[Any]) -> None:
    q, k, v = qkv(2, 4, 6, 16, dtype=dtype)

    ours = compiled(WAYS["causal"])(q, k, v)

    theirs = WAYS["causal"](q.double(), k.double(), v.double())
    error = (ours.double() - theirs).abs().max()
    # Weights of bfloat16 are rounded where the CPU multiplies them.
    assert error <= 2 * torch.finfo(dtype).eps * theirs.abs().max()
    assert len(calls) == 1 and ours.dtype == dtype


@pytest.mark.parametrize("heads", [8, 4, 2, 1])
def test_grouped_heads_are_ours(heads: int, calls: list[Any]) -> None:
    def grouped(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    q, k, v = torch.randn(2, 8, 5, 16), torch.randn(2, heads, 6, 16), torch.randn(2, heads, 6, 16)

    close(compiled(grouped)(q, k, v), grouped(q, k, v))
    assert len(calls) == 1


@pytest.mark.parametrize("way", ["plain", "causal", "scale", "boolean mask", "rows that see nothing"])
def test_gradients_are_right_in_double_precision(way: str, calls: list[Any]) -> None:
    q = torch.randn(1, 2, 5, 4, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(1, 2, 7, 4, dtype=torch.float64, requires_grad=True) for _ in "kv")

    assert torch.autograd.gradcheck(compiled(WAYS[way]), (q, k, v))
    assert calls


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("mask_shape", [(5, 7), (2, 1, 5, 1)])
def test_a_mask_of_float32_beside_doubles_is_ours(
    mask_shape: tuple[int, ...], grad: bool, calls: list[Any]
) -> None:
    def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, mask.expand(*mask.shape[:-1], 7))

    shapes = ((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8))
    inputs = [torch.randn(*s, dtype=torch.float64, requires_grad=grad) for s in shapes]
    inputs.append(torch.randn(mask_shape, requires_grad=grad))

    ours, theirs = compiled(masked)(*inputs), masked(*inputs)
    close(ours, theirs)
    assert calls
    if grad:
        found, wanted = (torch.autograd.grad(result.sum(), inputs) for result in (ours, theirs))
        torch.testing.assert_close(found, wanted)


class Block(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """A small transformer block: the view at its end relies on the layout of what attention returns."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = torch.nn.Linear(16, 48)
        self.outside = torch.nn.Linear(16, 16)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = self.inside(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (tensor.view(batch, length, 4, 4).transpose(1, 2) for tensor in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.outside(mixed.transpose(1, 2).view(batch, length, width))


def test_a_bigger_model_trains_as_with_torch(calls: list[Any]) -> None:
    model = torch.nn.Sequential(Block(), Block(), torch.nn.Linear(16, 1))
    x = torch.randn(3, 6, 16)
    theirs = model(x)
    theirs.square().mean().backward()
    wanted = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()

    ours = compiled(model)(x)
    ours.square().mean().backward()

    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], wanted)
    assert calls == [(3, 4, 6, 4)] * 2


def test_activation_checkpoints_keep_our_attention_inside(calls: list[Any]) -> None:
    from torch.utils.checkpoint import checkpoint

    block = Block()
    x = torch.randn(2, 4, 16, requires_grad=True)

    def run(x: Any) -> Any:
        return checkpoint(block, x, use_reentrant=False)

    theirs = run(x)
    theirs.sum().backward()
    wanted, x.grad = x.grad, None
    ours = compiled(run)(x)
    ours.sum().backward()

    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(x.grad, wanted)
    assert calls


def test_dynamic_shapes_are_compiled_once(calls: list[Any]) -> None:
    graphs = []

    def counted(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return compile_graph(graph, inputs)

    function = torch.compile(WAYS["causal"], backend=counted, dynamic=True)
    for length in (3, 4, 9, 17):
        q, k, v = qkv(2, 2, length, 8)
        close(function(q, k, v), WAYS["causal"](q, k, v))

    assert len(calls) == 4 and len(graphs) == 1


def test_autocast_computes_in_its_type(calls: list[Any]) -> None:
    q, k, v = qkv(1, 2, 4, 8, grad=True)
    mask = torch.randn(4, 4)

    def cast(q: Any, k: Any, v: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.scaled_dot_product_attention(q, k, v, mask)

    theirs = cast(q, k, v)
    ours = compiled(cast)(q, k, v)

    assert ours.dtype == theirs.dtype == torch.bfloat16
    torch.testing.assert_close(ours, theirs, atol=2e-2, rtol=2e-2)
    wanted = torch.autograd.grad(theirs.sum(), (q, k, v))
    torch.testing.assert_close(torch.autograd.grad(ours.sum(), (q, k, v)), wanted, atol=0.05, rtol=0.05)
    assert calls == [(1, 2, 4, 8)]


LAYOUTS = {
    "contiguous": lambda: torch.randn(2, 4, 6, 8),
    "heads behind": lambda: torch.randn(2, 6, 4, 8).transpose(1, 2),
    "every other": lambda: torch.randn(2, 4, 12, 8)[:, :, ::2],
    "heads first": lambda: torch.randn(4, 2, 6, 8).transpose(0, 1),
    "expanded": lambda: torch.randn(1, 4, 6, 8).expand(2, 4, 6, 8),
    "last not dense": lambda: torch.randn(2, 4, 8, 6).transpose(2, 3),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", ["flash", "math"])
def test_the_result_lies_in_memory_as_torch_s_does(layout: str, kernel: str) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = LAYOUTS[layout]()
    kinds = [SDPBackend.MATH] if kernel == "math" else [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(kinds):
        close(attention(q, q, q), F.scaled_dot_product_attention(q, q, q))


def test_dropout_is_ours_and_repeats_with_torchs_seed(calls: list[Any]) -> None:
    q, k, v = qkv(1, 2, 4, 8, grad=True)

    def dropped(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, None, 0.5)

    torch.manual_seed(3)
    direct = mlbackends.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    torch.manual_seed(3)
    ours = compiled(dropped)(q, k, v)
    torch.testing.assert_close(ours, direct)
    found, wanted = (torch.autograd.grad(out.square().sum(), (q, k, v)) for out in (ours, direct))
    torch.testing.assert_close(found, wanted)
    assert calls == [(1, 2, 4, 8)]


Kinds = list[tuple[str, ...]]


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> Kinds:
    """Return which of flash and math are allowed at each call that comes to our dispatcher."""
    seen: Kinds = []
    real = attend.scaled_dot_product_attention
    kinds = (mlbackends.SDPBackend.FLASH_ATTENTION, mlbackends.SDPBackend.MATH)

    def noted(*args: Any, **kwargs: Any) -> Any:
        seen.append(tuple(kind.name for kind in kinds if switches.allowed(kind)))
        return real(*args, **kwargs)

    monkeypatch.setattr(attend, "scaled_dot_product_attention", noted)
    return seen


SCOPES: dict[str, Any] = {
    "ours": lambda *kinds: mlbackends.sdpa_kernel([mlbackends.SDPBackend[kind] for kind in kinds]),
    "torch's": lambda *kinds: torch_scope([getattr(TorchKind, kind) for kind in kinds]),
}


def inside(scope: Any, *kinds: str) -> Any:
    """Return compiled attention within a scope, and once more behind it."""

    def scoped(q: Any, k: Any, v: Any) -> Any:
        with scope(*kinds):
            first = F.scaled_dot_product_attention(q, k, v)
        return first + F.scaled_dot_product_attention(q, k, v)

    return compiled(scoped, fullgraph=True)


def around(scope: Any, *kinds: str) -> Any:
    """Return compiled attention, called within a scope and once more behind it."""
    plain = compiled(WAYS["plain"], fullgraph=True)

    def scoped(*qkv: Any) -> Any:
        with scope(*kinds):
            first = plain(*qkv)
        return first + plain(*qkv)

    return scoped


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
@pytest.mark.parametrize("scoped", [inside, around])
def test_a_scope_governs_compiled_code(scoped: Any, scope: Any, allowed: Kinds) -> None:
    tensors = qkv(1, 2, 4, 8)

    scoped(scope, "MATH")(*tensors)

    assert allowed == [("MATH",), ("FLASH_ATTENTION", "MATH")]
    with pytest.raises(RuntimeError, match=r"No viable backend|fake tensor"):
        scoped(scope)(*tensors)
    assert all(map(switches.allowed, switches.SWITCHES)), "nothing is left switched off"


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
def test_what_is_left_to_torch_is_in_the_scope_too(scope: Any) -> None:
    plain = compiled(lambda q: F.scaled_dot_product_attention(q, q, q))
    q = torch.randn(1, 2, 4, 8)

    plain(q)
    with scope("EFFICIENT_ATTENTION"), pytest.raises(RuntimeError, match=r"No available kernel|No viable"):
        plain(q)


def test_scopes_of_compiled_code_nest(allowed: Kinds) -> None:
    flash, math = mlbackends.SDPBackend.FLASH_ATTENTION, mlbackends.SDPBackend.MATH

    def nested(q: Any) -> Any:
        with mlbackends.sdpa_kernel([math, flash], set_priority=True):
            found = F.scaled_dot_product_attention(q, q, q)
            with mlbackends.cuda.sdp_kernel(enable_flash=False):
                found = found + F.scaled_dot_product_attention(q, q, q)
        return found + F.scaled_dot_product_attention(q, q, q)

    q = torch.randn(1, 2, 4, 8)
    ours = compiled(nested, fullgraph=True)
    ours(q)
    assert allowed == [("FLASH_ATTENTION", "MATH"), ("MATH",), ("FLASH_ATTENTION", "MATH")]
    assert all(map(switches.allowed, switches.SWITCHES))


@pytest.mark.parametrize("backend", ["eager", compile_graph])
def test_a_scope_governs_direct_calls_in_compiled_code(backend: Any) -> None:
    def direct(q: Any) -> Any:
        with mlbackends.sdpa_kernel([]):
            return mlbackends.scaled_dot_product_attention(q, q, q) + 1

    with pytest.raises(NoBackend):
        torch.compile(direct, backend=backend)(torch.randn(1, 2, 4, 8))


def test_tensors_without_values_are_torch_s(calls: list[Any]) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    meta = torch.empty(1, 2, 4, 8, device="meta")
    assert attention(meta, meta, meta).device.type == "meta"
    with FakeTensorMode():
        fake = torch.empty(1, 2, 4, 8)
        assert attention(fake, fake, fake).shape == (1, 2, 4, 8)
    calls.clear()
    assert compiled(WAYS["plain"])(meta, meta, meta).shape == (1, 2, 4, 8)
    assert calls == []


def test_the_backend_is_found_by_its_name(tmp_path: Path) -> None:
    """As pip installs it: torch looks for the entry point, and a word is all that the user writes."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    points = project["project"]["entry-points"]["torch_dynamo_backends"]
    info = tmp_path / "mlbackends-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mlbackends\nVersion: 0\n")
    lines = [f"{name} = {target}" for name, target in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[torch_dynamo_backends]", *lines, ""]))
    program = """
import torch, mlbackends
from mlbackends.sdpa import attend
seen, real = [], attend.scaled_dot_product_attention
attend.scaled_dot_product_attention = lambda *a, **k: seen.append(1) or real(*a, **k)
assert "mlbackends" in torch._dynamo.list_backends()
q = torch.randn(1, 2, 4, 8)
attention = torch.nn.functional.scaled_dot_product_attention
torch.compile(lambda q: attention(q, q, q), backend="mlbackends")(q)
print(seen)
"""
    path = os.pathsep.join([str(tmp_path), str(Path(str(mlbackends.__file__)).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, cwd="/", env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip

    assert done.stdout.strip() == "[1]"


# ---- calls of ours in somebody's compiled function --------------------------------


def with_a_block(a: Any) -> Any:
    with mlbackends.sdpa_kernel(mlbackends.SDPBackend.MATH):
        return mlbackends.scaled_dot_product_attention(a + 1, a, a) * 2


CALLS: dict[str, Any] = {
    "attention": lambda a: mlbackends.scaled_dot_product_attention(a, a, a) + 1,
    "block": with_a_block,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.filterwarnings("ignore:.*deprecated.*:FutureWarning")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CALLS)
def test_a_compiled_function_may_call_us(name: str, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    function = CALLS[name]
    ours = torch.compile(function, backend=backend)
    for a in (torch.randn(4, 4), torch.randn(4, 4), torch.randn(4, 4, dtype=torch.float64)):
        torch.testing.assert_close(ours(a), function(a))
    assert "recompile_limit" not in caplog.text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"options": {"fast": True}}, "takes no options; it was given 'fast'"),
        ({"mode": "max-autotune"}, "has no modes; mode='max-autotune' is for 'inductor'"),
    ],
    ids=str,
)
def test_what_the_backend_has_no_use_for_is_refused_in_words(given: dict[str, Any], said: str) -> None:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=said):
        compiled(WAYS["plain"], **given)(*qkv(1, 2, 3, 4))


# ---- which backend computed ------------------------------------------------------------------


def written(q: Any) -> Any:
    scores = torch.matmul(q, q.transpose(-1, -2)) / 4.0
    scores = scores.masked_fill(torch.ones(8, 8, dtype=torch.bool).triu(1), float("-inf"))
    weights = F.softmax(scores, -1, dtype=torch.float32).to(q.dtype)
    return F.dropout(weights, 0.0) @ q


@pytest.mark.parametrize(
    ("function", "backend", "why"),
    [
        (lambda q: F.scaled_dot_product_attention(q, q, q), "flash_cpu", ""),
        (lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5), "flash_cpu", ""),
        (torch.vmap(lambda one: F.scaled_dot_product_attention(one, one, one)), "flash_cpu", ""),
        (written, "torch", "is written out"),
        (lambda q: (q @ q.mT).softmax(-1) @ q, "torch", "is written out"),
        (lambda q: torch.softmax(input=q @ q.mT, dim=-1) @ q, "torch", "is written out"),
        (lambda q: flex_attention(q, q, q), "torch", "flex_attention"),
        (lambda q: F.scaled_dot_product_attention(*3 * [q.to("meta")]), "torch", "on meta"),
    ],
)
@pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")
@pytest.mark.filterwarnings("ignore:torch computes this attention:UserWarning")
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_the_last_call_names_its_backend_and_why_it_is_torch(function: Any, backend: str, why: str) -> None:
    x = torch.randn(1, 2, 8, 16)
    assert compiled(function)(x).shape == function(x).shape
    call = mlbackends.last_attention()

    assert call is not None
    assert call.backend == backend
    assert why in call.why and bool(why) == bool(call.why)
    assert call.shape[-2:] == (8, 16)  # the query's, not that of the scores


def test_attention_that_is_written_out_gets_a_word() -> None:
    with pytest.warns(UserWarning, match="torch computes this attention: softmax"):
        compiled(written)(torch.randn(1, 2, 8, 16))


def test_a_softmax_of_no_scores_is_not_taken_for_attention() -> None:
    x = torch.randn(1, 2, 8, 16)
    mlbackends.scaled_dot_product_attention(x, x, x)
    before = mlbackends.last_attention()
    compiled(lambda q: F.softmax(q, -1) @ q.mT)(x)
    compiled(lambda q: (q @ q.mT).softmax(-1).sum())(x)
    gate, rows = (torch.nn.Parameter(torch.randn(4, 16)) for _ in range(2))
    compiled(lambda q: torch.softmax(q @ gate.t(), -1) @ rows)(x)

    assert mlbackends.last_attention() is before


def test_weights_that_are_returned_are_torchs() -> None:
    module = torch.nn.MultiheadAttention(32, 2, batch_first=True)
    for needed, backend in ((False, "flash_cpu"), (True, "torch")):
        compiled(module)(*3 * [torch.randn(1, 8, 32)], need_weights=needed)
        call = mlbackends.last_attention()
        assert call is not None and call.backend == backend


def test_weights_that_are_refused_by_position_are_not_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mlbackends.sdpa.calls._IS_LOGGED", True)
    x, weights, out = torch.randn(8, 1, 32), torch.randn(96, 32), torch.randn(32, 32)
    given = (32, 2, weights, None, None, None, False, 0.0, out, None, False, None)
    for needed in (False, True):
        compiled(lambda q, needed=needed: F.multi_head_attention_forward(q, q, q, *given, needed)[0])(x)
        logged = capsys.readouterr().err.splitlines()
        assert ("need_weights=True" in logged[0]) is needed
        assert len(logged) == 1


def test_the_fast_path_of_torchs_layers_is_named() -> None:
    layer = torch.nn.TransformerEncoderLayer(32, 2, batch_first=True).eval().requires_grad_(False)
    with pytest.warns(UserWarning, match="torch computes this attention: the fast path"):
        compiled(layer)(torch.randn(1, 8, 32))
    call = mlbackends.last_attention()
    assert call is not None and (call.backend, call.shape) == ("torch", (1, 8, 32))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_are_named_as_the_reason() -> None:
    parts = [torch.randn(length, 2, 16) for length in (5, 3)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)
    attention(nested, nested, nested)
    call = mlbackends.last_attention()
    assert call is not None and (call.backend, call.why) == ("torch", "nested tensors")


def test_gradients_without_a_compiler_are_calls_too() -> None:
    x = torch.randn(1, 2, 8, 16, requires_grad=True)
    mlbackends.scaled_dot_product_attention(x, x, x).sum().backward()
    call = mlbackends.last_attention()
    assert call is not None and (call.backend, call.direction) == ("flash_cpu", "backward")


def test_gradients_of_gradients_are_torchs() -> None:
    x = torch.randn(1, 2, 8, 16, requires_grad=True)
    attend_ = compiled(lambda q: F.scaled_dot_product_attention(q, q, q))
    attend_(x).sum().backward()
    first = mlbackends.last_attention()
    torch.autograd.grad(torch.autograd.grad(attend_(x).sum(), x, create_graph=True)[0].sum(), x)
    second = mlbackends.last_attention()

    assert first is not None and (first.backend, first.direction) == ("flash_cpu", "backward")
    assert second is not None and (second.backend, second.direction) == ("torch", "backward")
