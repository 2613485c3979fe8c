"""Our operations beside torch's: products, einsum, attention with projections, and the CUDA settings."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from typing import Any

import pytest
from builds import without_cuda

import mlbackends
from mlbackends import fft
from mlbackends.switches import store

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

GENERATOR = torch.Generator().manual_seed(5)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def numbers(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(shape, generator=GENERATOR, dtype=torch.float64).to(dtype)


def close(ours: Any, theirs: Any) -> None:
    """Ours is a tensor of the same type, as near as that type's numbers lie."""
    assert isinstance(ours, torch.Tensor)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    if ours.numel() and ours.dtype in TOLERANCE:
        worst = (ours.double() - theirs.double()).abs().max()
        assert worst <= TOLERANCE[ours.dtype] * max(1, theirs.double().abs().max()) * 4
    else:
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("a", "b"),
    [((3, 4), (4, 5)), ((4,), (4,)), ((2, 1, 3, 4), (5, 4, 2)), ((4,), (4, 5)), ((2, 3, 4), (4,)),
     ((0, 3), (3, 2)), ((2, 0), (0, 3))],
)  # fmt: skip
def test_matmul_gives_a_tensor_like_torch_s(a: Any, b: Any, dtype: Any) -> None:
    left, right = numbers(*a, dtype=dtype), numbers(*b, dtype=dtype)
    close(mlbackends.matmul(left, right), left @ right)


def test_matmul_takes_views_and_whole_numbers() -> None:
    a = numbers(4, 6)
    close(mlbackends.matmul(a.T, a), a.T @ a)
    close(mlbackends.matmul(a[:, ::2], a[:3, :3]), a[:, ::2] @ a[:3, :3])
    whole = torch.arange(6).reshape(2, 3)
    close(mlbackends.matmul(whole, whole.T), whole @ whole.T)


@pytest.mark.parametrize(
    ("a", "b"), [((2, 3), (2, 3)), ((2, 2, 2), (3, 2, 2)), ((), (2,)), ((3,), (2, 3))]
)
def test_matmul_refuses_shapes_with_torch_s_exception(a: Any, b: Any) -> None:
    for multiply in (torch.matmul, mlbackends.matmul):
        with pytest.raises(RuntimeError):
            multiply(numbers(*a), numbers(*b))


def test_matmul_refuses_two_types_as_torch_does() -> None:
    for multiply in (torch.matmul, mlbackends.matmul):
        with pytest.raises(RuntimeError):
            multiply(numbers(2, 2), numbers(2, 2, dtype=torch.float64))


def test_lowered_precision_is_that_of_rounded_operands() -> None:
    a, b = numbers(33, 65), numbers(65, 17)
    with store.applied({"mkldnn.matmul.fp32_precision": "bf16"}):
        ours = mlbackends.matmul(a, b)
    theirs = a.bfloat16().float().double() @ b.bfloat16().float().double()
    assert (ours.double() - theirs).abs().max() < 1e-5


def test_precision_is_lowered_where_the_cpu_can_in_torch_and_always_here() -> None:
    program = (
        "import torch\na, b = torch.linspace(1, 2, 64 * 64).view(2, 64, 32).unbind()\n"
        "before = {0}.matmul(a, b.mT)\n"
        "{1}.mkldnn.matmul.fp32_precision = 'bf16'\n"
        "print(torch.equal({0}.matmul(a, b.mT), before))\n"
    )
    # oneDNN's own limit: as on a CPU that has no instructions for bfloat16.
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "ONEDNN_MAX_CPU_ISA": "AVX2"}
    same = [
        subprocess.run(
            [sys.executable, "-c", f"import mlbackends, torch.backends\n{program.format(*names)}"],
            capture_output=True, text=True, check=True, env={**os.environ, **environment},
        ).stdout.strip()
        for names in (("torch", "torch.backends"), ("mlbackends", "mlbackends"))
    ]  # fmt: skip
    assert same == ["True", "False"]


def test_a_gradient_is_not_lost_in_silence() -> None:
    a = numbers(2, 2).requires_grad_()
    with pytest.raises(RuntimeError, match=r"a requires grad, and .+ has no backward"):
        mlbackends.matmul(a, a)
    with torch.no_grad():
        close(mlbackends.matmul(a, a), a @ a)


# ---- einsum -------------------------------------------------------------------

EQUATIONS = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("ij,jk", [(3, 4), (4, 5)]),
    ("bA", [(3, 4)]),
    ("ii", [(3, 3)]),
    ("ii->i", [(3, 3)]),
    ("ii...->...i", [(3, 3, 2)]),
    ("ij,jk->ik", [(3, 1), (4, 5)]),
    ("i,i->i", [(1,), (3,)]),
    ("i,i->", [(0,), (0,)]),
    ("...ij,...jk->...ik", [(6, 2, 3, 4), (2, 4, 5)]),
    ("...ij->ij", [(4, 2, 3)]),
    ("ij->...ij", [(2, 3)]),
    ("i->i...", [(3,)]),
    ("ij...,...jk->ik...", [(2, 3, 5), (5, 3, 4)]),
    ("...,...", [(2, 1), (1, 3)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("ab,ac,ad->bcd", [(2, 3), (2, 4), (2, 5)]),
    ("i,j,k->", [(2,), (3,), (4,)]),
    ("ij,->ij", [(2, 3), ()]),
    ("a b -> b a", [(2, 3)]),
    ("", [()]),
    ("->", [()]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_einsum_is_torch_s(equation: str, shapes: list[tuple[int, ...]], dtype: Any) -> None:
    operands = [numbers(*shape, dtype=dtype) for shape in shapes]
    close(mlbackends.einsum(equation, *operands), torch.einsum(equation, *operands))


def test_einsum_takes_lists_of_subscripts_as_torch_does() -> None:
    a, b = numbers(2, 3), numbers(3, 4)
    for arguments in (
        (a, [0, 1], b, [1, 2], [0, 2]),
        (a, [0, 1], b, [1, 2]),
        (a, [30, 2]),
        (a, [..., 0], [0, ...]),
        ("ij,jk", [a, b]),
    ):
        close(mlbackends.einsum(*arguments), torch.einsum(*arguments))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_einsum_of_whole_numbers_has_torch_s_type(dtype: Any) -> None:
    a = torch.arange(3, dtype=dtype)
    for equation, count in (("i->i", 1), ("i->", 1), ("i,i->", 2), ("i,i->i", 2)):
        arguments = [a] * count
        close(mlbackends.einsum(equation, *arguments), torch.einsum(equation, *arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (3,),
        ("i",),
        (numbers(2, 3),),
        ("ij,jk", numbers(2, 3)),
        ("i", numbers(2), numbers(2)),
        ("ij", numbers(2)),
        ("i", numbers(2, 3)),
        ("ij,jk", numbers(2, 3), numbers(4, 2)),
        ("ii", numbers(3, 1)),
        ("i->ij", numbers(2)),
        ("i->ii", numbers(2)),
        ("i1", numbers(2, 3)),
        ("i..", numbers(2)),
        ("...i...", numbers(2)),
        ("i->.i", numbers(2)),
        ("i - > i", numbers(2)),
        ("i->->", numbers(2)),
        (numbers(2), [52]),
        (numbers(2), ["a"]),
        (numbers(2), 0),
        ("i", 3),
        ("i,i->", numbers(3).half(), numbers(3)),
    ],
    ids=str,
)
def test_einsum_refuses_with_torch_s_exception(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011  whichever it is, ours is the same
        torch.einsum(*arguments)
    with pytest.raises(theirs.type):
        mlbackends.einsum(*arguments)


def test_einsum_of_two_types_is_a_third_in_torch_and_refused_here() -> None:
    arguments = ("i,j->ij", numbers(2), numbers(3, dtype=torch.float64))
    assert torch.einsum(*arguments).dtype == torch.float64
    with pytest.raises(RuntimeError, match="one dtype"):
        mlbackends.einsum(*arguments)


def test_sizes_that_differ_among_three_are_a_value_error_in_torch_and_as_of_two_here() -> None:
    pytest.importorskip("opt_einsum")
    arguments = ("ij,jk,kl->il", numbers(2, 3), numbers(4, 5), numbers(5, 6))
    with pytest.raises(ValueError, match="Size of label"):
        torch.einsum(*arguments)
    with pytest.raises(RuntimeError, match="do not broadcast"):
        mlbackends.einsum(*arguments)


@pytest.mark.parametrize("strategy", ["auto", "greedy", "optimal"])
def test_einsum_takes_opt_einsum_s_path(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("opt_einsum")
    found: list[Any] = []
    real = package.contract_path

    def watched(*arguments: Any, **options: Any) -> Any:
        path = real(*arguments, **options)
        found.append((options["optimize"], path[0]))
        return path

    monkeypatch.setattr(package, "contract_path", watched)
    # From left to right this would make a matrix of 200 by 200 numbers.
    operands = [numbers(200, 2), numbers(2, 200), numbers(200, 2)]
    with store.applied({"opt_einsum.enabled": True, "opt_einsum.strategy": strategy}):
        ours = mlbackends.einsum("ij,jk,kl->il", *operands)
    assert found == [(strategy, [(1, 2), (0, 1)])]
    assert (ours - torch.einsum("ij,jk,kl->il", *operands)).abs().max() < 1e-2


# ---- attention ----------------------------------------------------------------

WIDTH, HEADS, LENGTH, BATCH = 8, 2, 5, 3


def theirs_of(x: Any, y: Any, parameters: Any, **options: Any) -> tuple[Any, Any]:
    causal = options.pop("is_causal", False)
    if causal and options.get("attn_mask") is None:
        options["attn_mask"] = torch.ones(x.shape[1], y.shape[1], dtype=torch.bool).triu(1)
    output, weights = torch.nn.functional.multi_head_attention_forward(
        x.transpose(0, 1),
        y.transpose(0, 1),
        y.transpose(0, 1),
        WIDTH,
        HEADS,
        parameters[0],
        parameters[1],
        None,
        None,
        False,
        0.0,
        parameters[2],
        parameters[3],
        training=False,
        **options,
    )
    return output.transpose(0, 1), weights


PADDING = torch.tensor([[False] * LENGTH, [False, True, False, True, True], [False] * 4 + [True]])
HIDDEN = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"key_padding_mask": PADDING},
        {"attn_mask": HIDDEN},
        {"attn_mask": numbers(LENGTH, LENGTH)},
        {"attn_mask": numbers(BATCH * HEADS, LENGTH, LENGTH)},
        {"attn_mask": HIDDEN, "key_padding_mask": PADDING},
        {"is_causal": True},
        {"average_attn_weights": False},
    ],
    ids=str,
)
def test_multi_head_attention_is_torch_s(dtype: Any, bias: bool, options: dict[str, Any]) -> None:
    x = numbers(BATCH, LENGTH, WIDTH, dtype=dtype)
    into, out = numbers(3 * WIDTH, WIDTH, dtype=dtype), numbers(WIDTH, WIDTH, dtype=dtype)
    in_bias, out_bias = numbers(3 * WIDTH, dtype=dtype), numbers(WIDTH, dtype=dtype)
    parameters = (into, in_bias if bias else None, out, out_bias if bias else None)
    options = {
        name: value.to(dtype) if torch.is_tensor(value) and value.is_floating_point() else value
        for name, value in options.items()
    }
    output, weights = theirs_of(x, x, parameters, **options)
    ours, shares = mlbackends.multi_head_attention(x, x, x, HEADS, *parameters, **options)
    close(ours, output)
    close(shares, weights)
    for enabled in (True, False):
        with store.applied({"mha.fastpath_enabled": enabled}):
            one, none = mlbackends.multi_head_attention(
                x, x, x, HEADS, *parameters, need_weights=False, **options
            )
        close(one, output)
        assert none is None


def test_attention_to_another_sequence_is_torch_s() -> None:
    x, y = numbers(BATCH, LENGTH, WIDTH), numbers(BATCH, 7, WIDTH)
    parameters = (
        numbers(3 * WIDTH, WIDTH), numbers(3 * WIDTH), numbers(WIDTH, WIDTH), numbers(WIDTH),
    )  # fmt: skip
    output, weights = theirs_of(x, y, parameters)
    ours, shares = mlbackends.multi_head_attention(x, y, y, HEADS, *parameters)
    close(ours, output)
    close(shares, weights)


def test_a_row_that_sees_no_key_is_zero_here_and_no_number_there() -> None:
    x = numbers(1, 2, WIDTH)
    parameters = (numbers(3 * WIDTH, WIDTH), None, numbers(WIDTH, WIDTH), None)
    nothing = torch.ones(1, 2, dtype=torch.bool)
    output, _ = theirs_of(x, x, parameters, key_padding_mask=nothing)
    assert output.isnan().all()
    ours, weights = mlbackends.multi_head_attention(
        x, x, x, HEADS, *parameters, key_padding_mask=nothing
    )
    assert not ours.any()
    assert not weights.any()


def test_causal_attention_needs_a_mask_in_torch_and_none_here() -> None:
    x = numbers(1, 4, WIDTH)
    parameters = (numbers(3 * WIDTH, WIDTH), None, numbers(WIDTH, WIDTH), None)
    layer = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    with pytest.raises(RuntimeError, match="Need attn_mask"):
        layer(x, x, x, is_causal=True)
    mask = torch.ones(4, 4, dtype=torch.bool).triu(1)
    wanted, _ = theirs_of(x, x, parameters, attn_mask=mask)
    ours, _ = mlbackends.multi_head_attention(x, x, x, HEADS, *parameters, is_causal=True)
    close(ours, wanted)


# ---- transforms ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
def test_transforms_take_and_give_tensors(name: str) -> None:
    a = numbers(3, 4, 6)
    for ours, theirs in (
        (getattr(fft, name)(a, 5, 1, "ortho"), getattr(torch.fft, name)(a, 5, 1, "ortho")),
        (getattr(fft, f"{name}n")(a), getattr(torch.fft, f"{name}n")(a)),
        (getattr(fft, f"{name}n")(a, (2, 5)), getattr(torch.fft, f"{name}n")(a, (2, 5))),
    ):
        assert ours.dtype == theirs.dtype
        assert torch.allclose(ours, theirs, atol=1e-5)


# ---- settings -----------------------------------------------------------------

SETTINGS = (
    "preferred_linalg_library",
    "preferred_blas_library",
    "preferred_rocm_fa_library",
    "cublas_workspace_size",
    "cublaslt_workspace_size",
    "blas_workspace_size",
)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_s_function_has_torch_s_parameters(name: str) -> None:
    theirs = inspect.signature(getattr(torch.backends.cuda, name)).parameters
    ours = inspect.signature(getattr(mlbackends.cuda, name)).parameters
    assert [(each.name, each.default, each.kind) for each in ours.values()] == [
        (each.name, each.default, each.kind) for each in theirs.values()
    ]


@pytest.mark.parametrize(
    "name", ["cuFFTPlanCache", "cuFFTPlanCacheManager", "cuFFTPlanCacheAttrContextProp"]
)
def test_the_classes_of_plan_caches_have_torch_s_methods(name: str) -> None:
    theirs, ours = getattr(torch.backends.cuda, name), getattr(mlbackends.cuda, name)
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
    for method in ("__getitem__", "__get__", "__set__", "clear"):
        if method in vars(theirs):
            expected = inspect.signature(getattr(theirs, method)).parameters
            assert list(inspect.signature(getattr(ours, method)).parameters) == list(expected)
    for attribute in ("size", "max_size"):
        assert (attribute in vars(theirs)) == (attribute in vars(ours))


@pytest.mark.parametrize("name", ["_LinalgBackend", "_BlasBackend", "_ROCmFABackend"])
def test_the_members_have_torch_s_names_and_numbers(name: str) -> None:
    from mlbackends.cuda import preferences

    theirs, ours = getattr(torch._C, name), getattr(preferences, name)
    assert {each.name: int(each) for each in ours} == {
        each: int(member) for each, member in theirs.__members__.items()
    }
    assert repr(ours.Default) == repr(theirs.Default)
    assert {str(each) for each in ours} == {str(member) for member in theirs.__members__.values()}


@pytest.mark.parametrize(
    "call",
    [
        lambda cuda: cuda.preferred_linalg_library("bogus"),
        lambda cuda: cuda.preferred_linalg_library(3),
        lambda cuda: cuda.preferred_blas_library("bogus"),
        lambda cuda: cuda.preferred_blas_library(3),
        lambda cuda: cuda.preferred_rocm_fa_library("bogus"),
        lambda cuda: cuda.preferred_rocm_fa_library(3),
        lambda cuda: cuda.blas_workspace_size(backend="ck"),
        lambda cuda: cuda.blas_workspace_size(backend="bogus"),
        lambda cuda: cuda.blas_workspace_size(backend=3),
    ],
)
def test_a_setting_is_refused_with_torch_s_exception(call: Any) -> None:
    with pytest.raises((RuntimeError, ValueError)) as theirs:
        call(torch.backends.cuda)
    with pytest.raises(theirs.type) as ours:
        call(mlbackends.cuda)
    # The start is what a program may look for; torch's text for a wrong type on ROCm is a misnomer.
    start = str(theirs.value).rstrip(".").partition(" value.")[0]
    assert str(ours.value).startswith(start)


@without_cuda
@pytest.mark.parametrize(
    "call",
    [
        lambda cuda: cuda.cufft_plan_cache.size,
        lambda cuda: cuda.cufft_plan_cache.max_size,
        lambda cuda: cuda.cufft_plan_cache.clear(),
        lambda cuda: cuda.cufft_plan_cache[0],
        lambda cuda: cuda.cufft_plan_cache[-1],
        lambda cuda: cuda.cufft_plan_cache["cuda:0"],
        lambda cuda: cuda.cufft_plan_cache["cpu"],
        lambda cuda: cuda.cufft_plan_cache["cuda"],
        lambda cuda: cuda.cufft_plan_cache["bogus"],
        lambda cuda: cuda.cufft_plan_cache[1.5],
        lambda cuda: cuda.cufft_plan_cache[None],
        lambda cuda: cuda.cufft_plan_cache[torch.device("cpu")],
        lambda cuda: cuda.cufft_plan_cache[torch.device("cuda")],
        lambda cuda: cuda.cufft_plan_cache[torch.device("cuda:1")],
        lambda cuda: cuda.cuFFTPlanCache(0).size,
        lambda cuda: cuda.cuFFTPlanCache(0).max_size,
        lambda cuda: cuda.cuFFTPlanCache(0).clear(),
        lambda cuda: setattr(cuda.cuFFTPlanCache(0), "size", 3),
        lambda cuda: setattr(cuda.cuFFTPlanCache(0), "max_size", -1),
    ],
)
def test_a_plan_cache_without_a_device_raises_torch_s_exception(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlbackends_kernels.cuda.devices.device_count", lambda: 0)
    with pytest.raises(Exception) as theirs:  # noqa: PT011  whichever it is, ours is the same
        call(torch.backends.cuda)
    with pytest.raises(theirs.type):
        call(mlbackends.cuda)


@without_cuda
def test_a_library_is_that_of_the_build_in_torch_and_that_of_this_machine_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mlbackends.cuda.preferences._found_by_probe", lambda *_: True)
    with pytest.raises(RuntimeError, match="compiled with cuBLASLt"):
        torch.backends.cuda.preferred_blas_library("cublaslt")
    with store.restored("cuda.preferred_blas_library"):
        assert mlbackends.cuda.preferred_blas_library("cublaslt").name == "Cublaslt"


@without_cuda
def test_an_unknown_name_of_plan_caches_asks_for_a_device_in_torch_and_is_unknown_here() -> None:
    for error, backends in ((AssertionError, torch.backends), (AttributeError, mlbackends)):
        with pytest.raises(error):
            _ = backends.cuda.cufft_plan_cache.nosuch
        with pytest.raises(error):
            backends.cuda.cufft_plan_cache.max_sise = 3


@without_cuda
def test_torch_stores_a_solver_that_it_then_refuses_and_we_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if torch.cuda.is_available():
        pytest.skip("torch refuses cuSOLVER on builds without CUDA alone")
    from mlbackends.cuda import preferences

    monkeypatch.setattr(preferences, "_found_by_probe", lambda *_: False)
    before = torch.backends.cuda.preferred_linalg_library()
    for cuda in (torch.backends.cuda, mlbackends.cuda):
        with pytest.raises(RuntimeError, match="Cannot set preferred backend to cuSOLVER"):
            cuda.preferred_linalg_library("cusolver")
    try:
        assert str(torch.backends.cuda.preferred_linalg_library()) == "_LinalgBackend.Cusolver"
        assert str(mlbackends.cuda.preferred_linalg_library()) == "_LinalgBackend.Default"
    finally:
        torch.backends.cuda.preferred_linalg_library(before)


# ---- tensors whose numbers cannot be read ---------------------------------------

INTO, OUT = numbers(9, 3), numbers(3, 3)
OPERATIONS: dict[str, Any] = {
    "matmul": lambda a: mlbackends.matmul(a, a),
    "einsum": lambda a: mlbackends.einsum("ij,jk->ik", a, a),
    "fft": lambda a: fft.fft(a).real,
    "fftshift": lambda a: fft.fftshift(a),  # noqa: PLW0108
    "scaled_dot_product_attention": lambda a: mlbackends.scaled_dot_product_attention(a, a, a),
    "multi_head_attention": lambda a: mlbackends.multi_head_attention(
        a, a, a, 1, INTO, None, OUT, None
    )[0],
}


@pytest.fixture(params=OPERATIONS)
def refused(request: pytest.FixtureRequest) -> Any:
    """Return a function that checks how one operation refuses what `around` hands to it."""

    def check(around: Any, said: str) -> None:
        with pytest.raises(RuntimeError, match=rf"^{request.param}\(\): .*{said}"):
            around(OPERATIONS[request.param])

    return check


def test_a_fake_tensor_is_refused_inside_and_outside_its_mode(refused: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.randn(3, 3)
        refused(lambda call: call(fake), "FakeTensor: it has no storage of its own")
    refused(lambda call: call(fake), "FakeTensor: it has no storage of its own")


def test_a_tensor_of_a_subclass_that_answers_for_others_is_refused(refused: Any) -> None:
    two = pytest.importorskip("torch.testing._internal.two_tensor").TwoTensor(
        numbers(3, 3), numbers(3, 3)
    )
    refused(lambda call: call(two), "TwoTensor: it has no storage of its own")


def test_who_writes_a_graph_gets_no_constant(refused: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    a = numbers(3, 3)
    for options in ({}, {"pre_dispatch": True}):
        refused(lambda call, options=options: make_fx(call, **options)(a), "is being traced")
    refused(lambda call: make_fx(call, tracing_mode="fake")(a), "no storage of its own")
    refused(lambda call: torch.jit.trace(call, (a,)), "is being traced by torch.jit.trace")
    refused(lambda call: torch.func.functionalize(call)(a), "is being traced by torch.func")
    with FakeTensorMode():
        refused(lambda call: call(a), "is being traced")


@pytest.mark.parametrize("name", ["matmul", "fft", "scaled_dot_product_attention"])
def test_a_proxy_of_fx_is_refused(name: str) -> None:
    with pytest.raises(RuntimeError, match=rf"^{name}\(\): .* is being traced by torch.fx"):
        torch.fx.symbolic_trace(OPERATIONS[name])


def test_a_tangent_is_not_lost_in_silence(refused: Any) -> None:
    from torch.autograd import forward_ad

    a = numbers(3, 3)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(a, a)
        refused(lambda call: call(dual), "carries a tangent of forward-mode")
        with torch.no_grad():
            refused(lambda call: call(dual), "carries a tangent of forward-mode")
        primal = forward_ad.unpack_dual(dual).primal
        close(mlbackends.matmul(primal, primal), a @ a)


def test_the_transforms_of_torch_func_are_refused(refused: Any) -> None:
    a, many = numbers(3, 3), numbers(2, 3, 3)
    func = torch.func
    refused(lambda call: func.jvp(call, (a,), (a,)), "a tangent of torch.func")
    refused(lambda call: func.grad(lambda x: call(x).sum())(a), "a gradient or a tangent")
    refused(lambda call: func.jacrev(call)(a), "a gradient or a tangent")
    refused(lambda call: func.vmap(call)(many), "is batched by vmap")
    # What vmap closes over is a plain tensor.
    close(func.vmap(lambda x: x + mlbackends.matmul(a, a))(many), many + a @ a)


@pytest.mark.parametrize("name", ["matmul", "einsum", "fft", "fftshift", "multi_head_attention"])
def test_a_tensor_without_values_is_refused(name: str) -> None:
    with pytest.raises(RuntimeError, match=rf"^{name}\(\): .* lies on torch's meta device"):
        OPERATIONS[name](torch.empty(3, 3, device="meta"))


def test_parameters_subclasses_and_views_of_plain_tensors_are_read() -> None:
    named = type("Named", (torch.Tensor,), {})
    a = numbers(3, 3)
    for kind in (torch.nn.Parameter(a, requires_grad=False), a.as_subclass(named), a.T.T):
        close(mlbackends.matmul(kind, a), a @ a)
    z = torch.complex(a, a.T)
    for seen in (z.conj(), z.conj().imag, z.T):
        theirs = seen @ seen
        assert torch.allclose(mlbackends.matmul(seen, seen), theirs, atol=1e-5)


# ---- element types ------------------------------------------------------------


def test_a_product_of_booleans_is_refused_as_torch_refuses_it() -> None:
    a = torch.ones(2, 2, dtype=torch.bool)
    multiply: Any
    for multiply in (torch.matmul, mlbackends.matmul):
        for operand in (a, a[0]):
            with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
                multiply(operand, operand)
    for multiply in (torch.einsum, mlbackends.einsum):
        with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
            multiply("ij,jk", a, a)
    for equation, operands in (("ij,ij->ij", (a, a)), ("ij->", (a,)), ("ij->ji", (a,))):
        close(mlbackends.einsum(equation, *operands), torch.einsum(equation, *operands))


@pytest.mark.parametrize("name", OPERATIONS)
def test_elements_that_nothing_computes_with_are_refused_by_name(name: str) -> None:
    start = rf"^{name}\(\): \w+( 0)?: "
    quantized = torch.quantize_per_tensor(numbers(3, 3), 0.1, 0, torch.qint8)
    with pytest.raises(TypeError, match=start + "elements of type qint8"):
        OPERATIONS[name](quantized)
    if name != "scaled_dot_product_attention":
        with pytest.raises(TypeError, match=start + "nothing here computes with float8_e4m3fn"):
            OPERATIONS[name](numbers(3, 3).to(torch.float8_e4m3fn))


# ---- more transforms ------------------------------------------------------------


def test_all_transforms_of_torch_that_numpy_has_agree_by_torch_s_word() -> None:
    a = numbers(4, 6, dtype=torch.float64)
    for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
        for dim in (0, 1):
            ours = getattr(fft, name)(a, dim=dim)
            assert torch.allclose(ours, getattr(torch.fft, name)(a, dim=dim))
    for name in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "rfftn"):
        ours = getattr(fft, name)(a, dim=(1, 0))
        assert torch.allclose(ours, getattr(torch.fft, name)(a, dim=(1, 0)))
    for name in ("fftshift", "ifftshift"):
        close(getattr(fft, name)(a, dim=1), getattr(torch.fft, name)(a, dim=1))
    for name in ("fftfreq", "rfftfreq"):
        theirs = getattr(torch.fft, name)(7, 0.5, dtype=torch.float64)
        assert np.array_equal(getattr(fft, name)(7, 0.5), theirs.numpy())


def test_transforms_of_whole_numbers_have_64_bits_as_in_numpy_and_32_in_torch() -> None:
    a = torch.arange(4)
    assert (fft.fft(a).dtype, torch.fft.fft(a).dtype) == (torch.complex128, torch.complex64)
    for transform in (torch.fft.rfft, fft.rfft):
        for bad in (a.half(), a + 1j):
            with pytest.raises((RuntimeError, TypeError)):
                transform(bad)


def test_caches_are_a_list_that_is_made_at_the_first_use_as_in_torch() -> None:
    for cuda in (torch.backends.cuda, mlbackends.cuda):
        manager = cuda.cuFFTPlanCacheManager()
        assert manager.caches == []
        if torch.cuda.is_available():
            assert manager[0] is manager.caches[0]
            assert len(manager.caches) == torch.cuda.device_count()
