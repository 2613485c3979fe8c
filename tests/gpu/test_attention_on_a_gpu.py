"""On an NVIDIA GPU: each attention backend compared with the formula on the host, and with streams.

`sdpa check --device cuda` compares more problems with float64; these tests cover what it does not see.
"""

from __future__ import annotations

from typing import Any

import pytest

import mlbackends
from mlbackends.sdpa.describe import describe, device_of
from mlbackends.sdpa.dispatch import backends

np = pytest.importorskip("numpy")
pytestmark = [pytest.mark.gpu, pytest.mark.slow]
NAMES = [kind.name for kind in backends() if not kind.on_host and kind.name != "flash_cpu"]


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest) -> Any:
    (found,) = [kind for kind in backends() if kind.name == request.param]
    if reasons := found.missing_parts():
        pytest.skip(reasons[0].message)
    return found


def inputs(*shape: int) -> list[Any]:
    random = np.random.default_rng(3)
    return [random.standard_normal(shape).astype("f2") for _ in range(3)]


def on_device(arrays: list[Any], index: int = 0) -> list[Any]:
    from mlbackends_kernels.cuda.device_array import to_device

    return [to_device(array, index) for array in arrays]


def problem_of(arrays: list[Any], **options: Any) -> Any:
    from mlbackends.model.problem import AttentionProblem

    query, key, value = map(describe, arrays)
    device = device_of(arrays[0], query)
    return AttentionProblem(query=query, key=key, value=value, device=device, **options)


def right(arrays: list[Any], **options: Any) -> Any:
    from mlbackends_kernels.attention_cpu import formula

    problem = problem_of(arrays, inner_dtype="float64", **options)
    return formula.attend(problem, *arrays)[0]


def worst(got: Any, expected: Any) -> float:
    return float(np.abs(got.numpy().astype("f8") - expected).max())


@pytest.mark.parametrize("shape", [(2, 4, 128, 64), (1, 2, 77, 128), (1, 1, 1, 64)])
@pytest.mark.parametrize("causal", [False, True])
def test_a_backend_agrees_with_the_host(backend: Any, shape: Any, causal: bool) -> None:
    arrays = inputs(*shape)
    there = on_device(arrays)
    found = backend.run(problem_of(there, is_causal=causal), *there)
    assert worst(found, right(arrays, is_causal=causal)) < 4e-3


def test_a_backend_works_on_the_caller_s_stream_in_order(backend: Any) -> None:
    from cuda.core import Device

    Device(0).set_current()
    stream, arrays = Device(0).create_stream(), inputs(2, 4, 256, 64)
    with mlbackends.cuda.on_stream(stream):
        there = on_device(arrays)
        problem = problem_of(there)
        first = backend.run(problem, *there)
        second = backend.run(problem, first, *there[1:])
    expected = right([right(arrays).astype("f2"), *arrays[1:]])
    assert worst(second, expected) < 6e-3


def test_a_backend_is_captured_into_a_graph_and_computes_again(backend: Any) -> None:
    """With torch's tensors, whose allocator keeps the result for every launch."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    arrays, others = inputs(1, 4, 128, 64), inputs(1, 4, 128, 64)[::-1]
    there = [torch.from_numpy(array).cuda() for array in arrays]
    problem, graph = problem_of(there), torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        backend.run(problem, *there)  # compiles and plans, which cannot be captured
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        captured = backend.run(problem, *there)
    for wanted in (arrays, others):
        for tensor, array in zip(there, wanted, strict=True):
            tensor.copy_(torch.from_numpy(array))
        graph.replay()
        torch.cuda.synchronize()
        assert np.abs(captured.cpu().numpy().astype("f8") - right(wanted)).max() < 4e-3


def test_a_result_of_ours_in_a_graph_is_refused(backend: Any) -> None:
    from cuda.core import Device

    from mlbackends_kernels.cuda.devices import CudaUnavailable

    Device(0).set_current()
    there = on_device(inputs(1, 4, 128, 64))
    problem = problem_of(there)
    backend.run(problem, *there).numpy()
    builder = Device(0).create_stream().create_graph_builder()
    builder.begin_building()
    try:
        with (
            mlbackends.cuda.on_stream(builder.stream),
            pytest.raises(CudaUnavailable, match="one launch"),
        ):
            backend.run(problem, *there)
    finally:
        builder.end_building()


def test_a_backend_gives_back_what_it_allocates(backend: Any) -> None:
    from mlbackends_kernels.cuda.devices import call, core_device

    there = on_device(inputs(2, 4, 256, 64))
    problem = problem_of(there)
    backend.run(problem, *there).numpy()
    call("cuCtxSynchronize")
    pool = core_device(0).memory_resource
    before = pool.attributes.used_mem_current
    for _ in range(3):
        backend.run(problem, *there).numpy()
    call("cuCtxSynchronize")
    assert pool.attributes.used_mem_current == before


def test_arrays_of_cupy_come_and_go_by_dlpack(backend: Any) -> None:
    cupy = pytest.importorskip("cupy")
    arrays = inputs(2, 4, 128, 64)
    there = [cupy.asarray(array) for array in arrays]
    found = cupy.from_dlpack(backend.run(problem_of(there), *there))
    assert np.abs(found.get().astype("f8") - right(arrays)).max() < 4e-3


def test_out_of_memory_is_an_error_that_leaves_the_device_usable() -> None:
    from mlbackends_kernels.cuda.device_array import empty, to_device

    kept = to_device(np.ones(3, "f4"))
    with pytest.raises(MemoryError, match="on cuda:0 returned CUDA_ERROR_OUT_OF_MEMORY"):
        empty((1 << 45,), "float16", 0)
    assert kept.numpy().tolist() == [1, 1, 1]


def test_attention_chooses_a_backend_for_tensors_on_a_device() -> None:
    arrays = inputs(1, 2, 64, 64)
    found = mlbackends.scaled_dot_product_attention(*on_device(arrays))
    assert worst(found, right(arrays)) < 4e-3


def test_a_backend_computes_where_its_tensors_are(backend: Any) -> None:
    from mlbackends_kernels.cuda.devices import device_count

    if device_count() < 2:
        pytest.skip("there is one device")
    arrays = inputs(1, 2, 64, 64)
    there = on_device(arrays, 1)
    found = backend.run(problem_of(there), *there)
    assert found.device == 1
    assert worst(found, right(arrays)) < 4e-3


def test_tensors_of_torch_stay_on_its_stream(backend: Any) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    arrays = inputs(2, 4, 128, 64)
    with torch.cuda.stream(torch.cuda.Stream()):
        there = [torch.from_numpy(array).cuda() for array in arrays]
        found = backend.run(problem_of(there), *there)
        twice = found + found
    torch.cuda.synchronize()
    assert np.abs(twice.cpu().numpy().astype("f8") / 2 - right(arrays)).max() < 4e-3
