"""math_cuda: the numbers are those of float64, the switches reach the products, what is missing is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.host.host import Host
from mlbackends_kernels.attention_cuda import requirements

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kernels.conftest import OnFakeCuda

ATTENTION = """
from mlbackends.model.problem import AttentionProblem
from mlbackends.model.records import Device
from mlbackends.sdpa.describe import describe
from mlbackends_kernels.attention_cpu import formula
from mlbackends_kernels.cuda.softmax import attend
from mlbackends_kernels.tensors import bfloat16

LIMITS = {"float16": 3e-3, "bfloat16": 2e-2, "float32": 2e-6, "float64": 1e-13}
def numbers(*shape, dtype):
    made = rng.standard_normal(shape)
    return bfloat16.from_float32(made.astype("f4")) if dtype == "bfloat16" else made.astype(dtype)
def put(array, dtype):
    if dtype == "bfloat16":
        return on_device(array.view("f2")).as_type("bfloat16")
    return on_device(array)
def attended(dtype, q, k, v, mask=None, **options):
    tensors = [numbers(*shape, dtype=dtype) for shape in (q, k, v)]
    device = Device("cuda", 0, capability="9.0")
    given = [put(each, dtype) for each in tensors]
    specs = [describe(each) for each in given]
    there = None
    if mask is not None:
        there = put(mask, "bfloat16" if mask.dtype == "u2" else mask.dtype.name)
        options["mask"] = describe(there)
    options |= zip(("query", "key", "value"), specs)
    problem = AttentionProblem(device=device, **options)
    out, logarithms = attend(problem, *given, there)
    expected, logs = formula.attend(problem, *tensors, mask)
    scale = max(1, np.abs(expected[np.isfinite(expected)]).max(initial=0))
    near = lambda a, b, most: bool(np.allclose(a, b, rtol=0, atol=most, equal_nan=True))
    assert out.shape == expected.shape and out.dtype == dtype, (out, expected.shape)
    assert near(out.numpy(), expected, LIMITS[dtype] * scale), (dtype, q, options)
    assert near(logarithms.numpy(), logs, LIMITS[dtype]), (dtype, q, options)
    return out.numpy()
"""


@pytest.mark.parametrize("library", ["cublas", "cublaslt"])
def test_every_kind_of_problem_is_the_formula_s(on_fake_cuda: OnFakeCuda, library: str) -> None:
    told = on_fake_cuda(
        ATTENTION
        + f"""
mlbackends.cuda.preferred_blas_library("{library}")
for dtype in LIMITS:
    q, k, v = (2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 3)
    attended(dtype, q, k, v)
    attended(dtype, q, k, v, is_causal=True)
    attended(dtype, q, k, v, is_causal=True, lower_right=True)
    attended(dtype, (2, 4, 9, 8), (2, 4, 7, 8), (2, 4, 7, 8), is_causal=True, lower_right=True)
    attended(dtype, q, (1, 2, 7, 8), (1, 2, 7, 3), enable_gqa=True, scale=-0.3)
    attended(dtype, (2, 1, 5, 8), (1, 4, 7, 8), (1, 4, 7, 3))
    attended(dtype, (2, 4, 5, 8), (2, 4, 0, 8), (2, 4, 0, 3))
    for shape in ((5, 7), (1, 7), (4, 5, 1), (2, 1, 5, 7)):
        hidden = rng.random(shape) > 0.5
        attended(dtype, q, k, v, hidden)
        attended(dtype, q, k, v, numbers(*shape, dtype=dtype))
    added = np.where(rng.random((5, 7)) > 0.5, 0, -np.inf).astype("f4")
    added[2] = -np.inf
    assert not attended("float32", q, k, v, added)[:, :, 2].any()
tell("right")
"""
    )
    assert told.values == ["right"]
    assert told.lines("matmul" if library == "cublaslt" else "gemm")
    assert not told.lines("gemm" if library == "cublaslt" else "matmul")


GRADIENTS = (
    ATTENTION
    + """
from mlbackends.sdpa import SDPBackend
backward = mlbackends.scaled_dot_product_attention_backward
forward = mlbackends.scaled_dot_product_attention
def plain(array):
    return (bfloat16.to_float32(array) if array.dtype == "u2" else array).astype("f8")
def differentiated(dtype, q, k, v, mask=None, size=1, **options):
    tensors = [numbers(*shape, dtype=dtype) for shape in (q, k, v)]
    if size != 1:
        tensors[0] = tensors[0] * tensors[0].dtype.type(size)
    there, extra, wide = [put(each, dtype) for each in tensors], {}, {}
    if mask is not None:
        adds = mask.dtype != "bool"
        name = "bfloat16" if mask.dtype == "u2" else mask.dtype.name
        extra = {"attn_mask": put(mask, name), "attn_mask_gradient": adds}
        wide = {"attn_mask": plain(mask) if adds else mask, "attn_mask_gradient": adds}
    given = {name: each for name, each in extra.items() if name == "attn_mask"}
    also = {name: each for name, each in wide.items() if name == "attn_mask"}
    with mlbackends.sdpa_kernel(SDPBackend.MATH):
        out, logs = forward(*there, return_logsumexp=True, **given, **options)
        coming = numbers(*out.shape, dtype=dtype)
        found = backward(put(coming, dtype), *there, out, logs, **extra, **options)
        exact = [plain(each) for each in tensors]
        right = forward(*exact, return_logsumexp=True, **also, **options)
        wanted = backward(plain(coming), *exact, *right, **wide, **options)
    assert type(found[0]).__name__ == "DeviceArray"
    largest = max(1e-3, *(abs(each).max(initial=0) for each in wanted if each is not None))
    for name, one, other in zip(found._fields, found, wanted):
        assert (one is None) == (other is None), name
        if other is not None:
            assert one.shape == other.shape, (name, one.shape, other.shape)
            error = abs(one.numpy() - other).max(initial=0) / largest
            assert error < 2 * LIMITS[dtype], (name, dtype, q, k, options, error)
    return found
"""
)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gradients_are_the_formula_s(on_fake_cuda: OnFakeCuda, dtype: str) -> None:
    told = on_fake_cuda(
        GRADIENTS
        + f"""
dtype = "{dtype}"
q, k, v = (2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 3)
differentiated(dtype, q, k, v)
differentiated(dtype, q, k, v, is_causal=True, scale=-0.3)
differentiated(dtype, (2, 4, 9, 8), (2, 4, 7, 8), (2, 4, 7, 8), is_causal=True)
differentiated(dtype, q, (2, 2, 7, 8), (2, 2, 7, 3), enable_gqa=True)
differentiated(dtype, q, (1, 2, 7, 8), (2, 2, 7, 3), enable_gqa=True)
differentiated(dtype, q, (2, 1, 7, 8), (2, 1, 7, 3), enable_gqa=True)
differentiated(dtype, (1, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 3))
differentiated(dtype, (1, 4, 5, 8), (2, 2, 7, 8), (1, 2, 7, 3), enable_gqa=True)
differentiated(dtype, (2, 4, 5, 8), (2, 4, 0, 8), (2, 4, 0, 3))
differentiated(dtype, q, k, v, rng.random((5, 7)) > 0.3)
for shape in ((5, 7), (1, 7), (4, 5, 1), (2, 1, 5, 7), (1, 1, 1, 1), (2, 4, 5, 7)):
    added = numbers(*shape, dtype=dtype)
    differentiated(dtype, q, k, v, added)
    if dtype == "float32":
        differentiated(dtype, q, (1, 2, 7, 8), (1, 2, 7, 3), added, enable_gqa=True)
if dtype in ("float32", "float16"):
    added = rng.standard_normal((4, 5, 7)).astype("f4")
    added[:, 2] = -np.inf
    found = differentiated(dtype, q, k, v, added)
    assert not found.query.numpy()[:, :, 2].any() and not found.mask.numpy()[:, 2].any()
    differentiated(dtype, q, k, v, np.full((5, 7), -1e9, "f4"), size=0)
again = [differentiated(dtype, q, k, v, numbers(1, 7, dtype=dtype)) for _ in range(2)]
tell("right")
"""
    )
    assert told.values == ["right"]
    assert told.lines(f"launch differentiate_{dtype}") and told.lines(f"launch sum_{dtype}")


def test_the_switches_reach_both_products(on_fake_cuda: OnFakeCuda) -> None:
    told = on_fake_cuda(
        ATTENTION
        + """
shape = (1, 1, 4, 8)
m = mlbackends.cuda.matmul
m.allow_tf32 = True
try:
    attended("float32", shape, shape, shape)
except AssertionError:
    tell("tf32 rounds")
m.allow_fp16_reduced_precision_reduction = (False, False)
attended("float16", shape, shape, shape)
m.allow_fp16_reduced_precision_reduction = True
m.allow_fp16_accumulation = True
mlbackends.cuda.cublas_workspace_size(4096)
attended("float16", shape, shape, shape)
"""
    )
    assert told.values == ["tf32 rounds"]
    tf32, halves = told.lines("gemm")[:2], told.lines("gemm")[2:]
    assert all(line.startswith("gemm mode=3 compute=77 ") for line in tf32)
    assert ["schemes=0 " in line for line in told.lines("heuristic")] == [True, True]
    assert all("compute=68" in line and line.endswith("workspace=4096") for line in halves)


def test_the_switches_reach_the_five_products_of_gradients(on_fake_cuda: OnFakeCuda) -> None:
    told = on_fake_cuda(
        GRADIENTS
        + """
shape, m = (1, 1, 4, 8), mlbackends.cuda.matmul
m.fp32_precision = "tf32"
LIMITS["float32"] = 1
differentiated("float32", shape, shape, shape)
m.allow_bf16_reduced_precision_reduction = False
differentiated("bfloat16", shape, shape, shape)
mlbackends.cuda.preferred_blas_library("cublaslt")
differentiated("float16", shape, shape, shape)
"""
    )
    lines = told.lines("gemm")  # two of the forward pass, then five
    assert len(lines) == 14 and len(told.lines("matmul")) == 7
    assert all(line.startswith("gemm mode=3 compute=77 ") for line in lines[:7])
    assert all(line.startswith("gemm mode=16 compute=68 ") for line in lines[7:])


def test_a_row_whose_scores_overflow_is_nan_and_one_without_keys_is_0(
    on_fake_cuda: OnFakeCuda,
) -> None:
    told = on_fake_cuda(
        ATTENTION
        + """
huge = np.full((1, 1, 2, 4), 1e20, "f4")
spec = describe(on_device(huge))
problem = AttentionProblem(query=spec, key=spec, value=spec, device=Device("cuda", 0, capability="9.0"))
out, logs = attend(problem, on_device(huge), on_device(-huge), on_device(huge))
tell([bool(np.isnan(out.numpy()).all()), bool(np.isnan(logs.numpy()).all())])
tell(float(np.abs(attended("float32", (1, 1, 3, 4), (1, 1, 2, 4), (1, 1, 2, 4), is_causal=True,
                           lower_right=True)[0, 0, 0]).max()))
"""
    )
    assert told.values == [[True, True], 0.0]


def test_the_dispatcher_takes_it_before_the_host_s_formula(on_fake_cuda: OnFakeCuda) -> None:
    told = on_fake_cuda(
        ATTENTION
        + """
from mlbackends.sdpa import SDPBackend, attend
requested = attend.requested
mlbackends.scaled_dot_product_attention(*3 * [np.ones((1, 1, 1, 1))])  # switches are there
for call in range(3):  # the third is not looked at
    attend.requested = requested if call < 2 else None
    q, k, v, coming = (numbers(1, 2, 5, 8, dtype="float64") for _ in range(4))
    arrays = [on_device(each) for each in (q, k, v)]
    with mlbackends.sdpa_kernel(SDPBackend.MATH):
        out, sums = mlbackends.scaled_dot_product_attention(*arrays, return_logsumexp=True)
        found = mlbackends.scaled_dot_product_attention_backward(
            on_device(coming), *arrays, out, sums
        )
scores = q @ k.swapaxes(-1, -2) / 8**0.5
weights = np.exp(scores - scores.max(-1, keepdims=True))
weights /= weights.sum(-1, keepdims=True)
expected = weights @ v
of_value = weights.swapaxes(-1, -2) @ coming
pairs = (out, expected), (found.value, of_value)
tell([type(out).__name__, max(float(abs(a.numpy() - b).max()) for a, b in pairs) < 1e-12])
"""
    )
    assert told.values == [["DeviceArray", True]]
    assert told.lines("launch softmax_float64")


def test_what_is_missing_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    wanted: dict[str, Any] = {"binding": "nvmath", "libraries": ("nvrtc", "cublas", "cublasLt")}
    reasons = requirements.missing_parts(Host(str(tmp_path)), **wanted)
    words = (
        "cuda.core",
        "by nvmath",
        "libnvrtc.so",
        "libcublas.so",
        "libcublasLt.so",
        "libcuda.so.1",
    )
    assert all(word in each.message for word, each in zip(words, reasons, strict=True))
