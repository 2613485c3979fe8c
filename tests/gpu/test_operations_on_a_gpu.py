"""On a machine with an NVIDIA GPU: products and transforms there are those of the host."""

from __future__ import annotations

from typing import Any

import pytest

import mlbackends
from mlbackends import fft
from mlbackends.switches import store

np = pytest.importorskip("numpy")
pytestmark = pytest.mark.gpu

PREFIX = "cuda.matmul."
REDUCTION = f"{PREFIX}allow_fp16_reduced_precision_reduction"


def numbers(*shape: int, dtype: str = "f4") -> Any:
    made = np.random.default_rng(sum(shape)).standard_normal(shape)
    if "c" in dtype:
        made = made + 1j * np.random.default_rng(1).standard_normal(shape)
    return made.astype(dtype)


def on_device(array: Any) -> Any:
    from mlbackends_kernels.cuda.device_array import to_device as put

    return put(array)


def worst(got: Any, expected: Any) -> float:
    """Return the largest difference, as a share of the largest number."""
    return float(np.abs(got.numpy() - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("library", ["cublas", "cublaslt"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("f2", 2e-3), ("f4", 2e-6), ("f8", 1e-14), ("c8", 2e-6), ("c16", 1e-14)],
)
def test_products_are_those_of_the_host(library: str, dtype: str, tolerance: float) -> None:
    with store.applied({"cuda.preferred_blas_library": library}):
        for a, b in (((64, 96), (96, 32)), ((3, 5, 7), (7, 9)), ((2, 1, 8, 16), (4, 16, 8))):
            left, right = numbers(*a, dtype=dtype), numbers(*b, dtype=dtype)
            wide = "f8" if "f" in dtype else "c16"
            expected = left.astype(wide) @ right.astype(wide)
            result = mlbackends.matmul(on_device(left), on_device(right))
            assert worst(result, expected) < tolerance
        turned = numbers(48, 24, dtype=dtype)
        view = on_device(turned).permuted((1, 0))
        expected = turned.T.astype(wide) @ turned.astype(wide)
        assert worst(mlbackends.matmul(view, on_device(turned)), expected) < tolerance


@pytest.mark.parametrize("library", ["cublas", "cublaslt"])
def test_tf32_is_less_exact_and_ieee_is_exact(library: str) -> None:
    a = numbers(512, 512)
    expected = a.astype("f8") @ a.astype("f8")
    found = {}
    for word in ("ieee", "tf32"):
        settings: dict[str, object] = {
            f"{PREFIX}fp32_precision": word,
            "cuda.preferred_blas_library": library,
        }
        with store.applied(settings):
            found[word] = worst(mlbackends.matmul(on_device(a), on_device(a)), expected)
    assert found["ieee"] < 1e-5 < found["tf32"] < 1e-2


@pytest.mark.parametrize("setting", [True, False, (False, True), (False, False)])
def test_every_reduction_of_float16_is_right(setting: Any) -> None:
    a = numbers(16, 8192, dtype="f2")
    expected = a.astype("f8") @ a.T.astype("f8")
    with store.applied({REDUCTION: setting}):
        result = mlbackends.matmul(on_device(a), on_device(np.ascontiguousarray(a.T)))
    assert worst(result, expected) < 2e-3


@pytest.mark.parametrize("size", [0, 1 << 16, 32 << 20])
def test_any_workspace_does(size: int) -> None:
    a = numbers(256, 256)
    with store.applied({"cuda.cublas_workspace_size": size}):
        assert worst(mlbackends.matmul(on_device(a), on_device(a)), a @ a) < 1e-5


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize(("real", "tolerance"), [("f4", 1e-5), ("f8", 1e-13)])
def test_transforms_are_those_of_the_host(name: str, real: str, tolerance: float) -> None:
    a = numbers(6, 20, 15, dtype=real)
    for axis in (0, 1, 2):
        expected = getattr(np.fft, name)(a, axis=axis)
        assert worst(getattr(fft, name)(on_device(a), axis=axis), expected) < tolerance
    for axes in ((0, 1), (2, 0), (0, 1, 2)):
        source = np.fft.rfftn(numbers(6, 20, 14, dtype=real), axes=axes) if name == "irfft" else a
        source = source.astype("c8" if real == "f4" else "c16") if name == "irfft" else source
        expected = getattr(np.fft, f"{name}n")(source, axes=axes)
        got = getattr(fft, f"{name}n")(on_device(source), axes=axes)
        assert worst(got, expected) < tolerance


def test_plans_are_kept_and_given_back() -> None:
    cache = mlbackends.cuda.cufft_plan_cache
    cache.clear()
    a = on_device(numbers(8, 64, dtype="c8"))
    for _ in range(3):
        fft.fft(a)
    assert cache.size == 1
    cache.clear()
    assert cache.size == 0


def test_torch_takes_a_result_without_a_copy_and_gives_its_own() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    a = torch.randn(32, 32, device="cuda", dtype=torch.bfloat16)
    result = mlbackends.matmul(a, a)
    back = torch.from_dlpack(result)
    assert back.data_ptr() == result.pointer
    assert torch.allclose(back.float(), (a @ a).float(), rtol=2e-2, atol=2e-1)


def test_work_on_a_stream_is_ordered_and_captured() -> None:
    from cuda.core import Device

    stream = Device(0).create_stream()
    a = numbers(256, 256)
    with mlbackends.cuda.on_stream(stream):
        left = on_device(a)
        result = mlbackends.matmul(left, left)
    assert worst(mlbackends.matmul(result, result), (a @ a) @ (a @ a)) < 1e-4
    builder = stream.create_graph_builder()
    builder.begin_building()
    with mlbackends.cuda.on_stream(builder.stream):
        captured = mlbackends.matmul(left, left)
    graph = builder.end_building().complete()
    graph.launch(stream)
    stream.sync()
    assert worst(captured, a @ a) < 1e-5


def test_out_of_memory_leaves_everything_usable() -> None:
    from mlbackends_kernels.cuda.device_array import empty

    with pytest.raises(MemoryError, match="cuda:0 has no"):
        empty((1 << 45,), "float32", 0)
    a = numbers(64, 64)
    assert worst(mlbackends.matmul(on_device(a), on_device(a)), a @ a) < 1e-5
    assert mlbackends.cuda.memory_stats()["num_ooms"] >= 1


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("causal", [False, True])
def test_the_formula_on_a_device_is_that_of_the_host(dtype: str, causal: bool) -> None:
    from mlbackends.model.problem import AttentionProblem
    from mlbackends.sdpa.describe import describe
    from mlbackends_kernels.attention_cpu.formula import attend
    from mlbackends_kernels.cuda import softmax

    tensors = [numbers(2, 3, rows, 40, dtype=dtype) for rows in (33, 70, 70)]
    there = [on_device(each) for each in tensors]
    query, key, value = map(describe, there)
    problem = AttentionProblem(query=query, key=key, value=value, is_causal=causal)
    out, logsumexp = softmax.attend(problem, *there)
    expected, logarithms = attend(problem, *tensors)
    limit = {"f2": 3e-3, "f4": 1e-5, "f8": 1e-13}[dtype]
    assert worst(out, expected) < limit
    assert worst(logsumexp, logarithms) < limit
