"""Products on a device: what is asked of cuBLAS, and that the numbers are right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from typing import Any

COMPARED = """
def compared(a, b, of_a=None, of_b=None):
    result = mlbackends.matmul(of_a or on_device(a), of_b or on_device(b))
    expected = a @ b
    got = result.numpy()
    assert got.shape == expected.shape, (got.shape, expected.shape)
    if got.size:
        assert np.abs(got - expected).max() <= 1e-3 * max(1, np.abs(expected).max())
    return result
"""


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_every_shape_of_matmul_gives_numpy_s_product(on_fake_cuda: Any, dtype: str) -> None:
    told = on_fake_cuda(
        COMPARED
        + f"""
def numbers(*shape):
    found = rng.standard_normal(shape)
    return (found + 1j * rng.standard_normal(shape) if "c" in "{dtype}" else found).astype("{dtype}")
shapes = [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)),
          ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((2, 3, 1, 2, 4), (2, 1, 6, 4, 1)),
          ((1, 1), (1, 1)), ((3, 1), (1, 4)), ((1, 4), (4, 1)), ((6, 1, 4), (4, 3))]
for a, b in shapes:
    compared(numbers(*a), numbers(*b))
tell(len(shapes))
"""
    )
    assert told.values == [12]


def test_operands_are_read_where_they_lie_and_others_are_copied(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        COMPARED
        + """
a, b = rng.standard_normal((4, 6)).astype("f4"), rng.standard_normal((6, 8)).astype("f4")
at, bt = on_device(np.ascontiguousarray(a.T)), on_device(np.ascontiguousarray(b.T))
compared(a, b, at.permuted((1, 0)), bt.permuted((1, 0)))
compared(a[1:3], b, on_device(a).viewed((2, 6), (6, 1), 6))
compared(a[:, 1:4], b[1:4], on_device(a).viewed((4, 3), (6, 1), 1), on_device(b).viewed((3, 8), (8, 1), 8))
tell("copied from here")
compared(a[:, ::2], b[:3], on_device(a).viewed((4, 3), (6, 2)))
one = on_device(a[:1, :])
compared(np.repeat(a[:1, :], 5, 0), b, one.viewed((5, 6), (0, 1)))
compared(np.repeat(a[0, :1], 6)[None], b, one.viewed((1, 6), (6, 0)))
three = rng.standard_normal((3, 4, 6)).astype("f4")
compared(three.transpose(1, 0, 2), b, on_device(three).permuted((1, 0, 2)))
b = rng.standard_normal((3, 2)).astype("f4")
compared(three.transpose(2, 1, 0), b, on_device(three).permuted((2, 1, 0)))
"""
    )
    assert told.lines("gemm")[0].endswith("transposed=11 workspace=33554432")
    assert all("transposed=00" in line for line in told.lines("gemm")[1:3])
    # One of rows two apart, one of a repeated row, one of a repeated number.
    assert told.lines("launch copy_4")


def test_a_batch_is_one_call_and_a_broadcast_one_copies_nothing(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        COMPARED
        + """
a, b = rng.standard_normal((2, 5, 3, 4)).astype("f4"), rng.standard_normal((4, 6)).astype("f4")
compared(a, b)
compared(a, rng.standard_normal((2, 5, 4, 1)).astype("f4"))
compared(a, rng.standard_normal((5, 4, 2)).astype("f4"))
compared(a, rng.standard_normal((2, 1, 4, 2)).astype("f4"))
"""
    )
    batches = [line.split("batch=")[1].split()[0] for line in told.lines("gemm")]
    assert batches == ["10", "10", "5", "5", "5", "5"]
    assert not told.lines("launch")


def test_empty_operands_give_zeros_without_cublas(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
for a, b in [((0, 3), (3, 4)), ((2, 0), (0, 4)), ((3, 2, 0), (0, 5)), ((0, 2, 3), (3, 4)), ((0,), (0,))]:
    result = mlbackends.matmul(on_device(np.ones(a, "f4")), on_device(np.ones(b, "f4")))
    tell([result.shape, float(result.numpy().sum())])
"""
    )
    shapes = [[0, 4], [2, 4], [3, 2, 5], [0, 2, 4], []]
    assert told.values == [[shape, 0.0] for shape in shapes]
    assert not told.lines("gemm")


@pytest.mark.parametrize(
    ("switch", "dtype", "expected"),
    [
        ("pass", "f4", "mode=0 compute=68"),
        ("m.allow_tf32 = True", "f4", "mode=3 compute=77"),
        ("m.fp32_precision = 'tf32'", "f4", "mode=3 compute=77"),
        ("mlbackends.fp32_precision = 'tf32'", "c8", "mode=3 compute=77"),
        ("m.fp32_precision = 'ieee'", "f4", "mode=0 compute=68"),
        ("m.allow_tf32 = True", "f8", "mode=0 compute=70"),
        ("m.allow_tf32 = True", "f2", "mode=0 compute=68"),
        ("m.allow_fp16_reduced_precision_reduction = False", "f2", "mode=16 compute=68"),
        ("m.allow_bf16_reduced_precision_reduction = False", "f2", "mode=0 compute=68"),
        ("m.allow_fp16_accumulation = True", "f2", "mode=0 compute=64"),
        ("m.allow_fp16_accumulation = True", "f4", "mode=0 compute=68"),
    ],
)
def test_a_switch_of_cuda_matmul_reaches_cublas(
    on_fake_cuda: Any, switch: str, dtype: str, expected: str
) -> None:
    told = on_fake_cuda(
        f"""
m = mlbackends.cuda.matmul
{switch}
one = on_device(np.ones((2, 2), "{dtype}"))
mlbackends.matmul(one, one)
"""
    )
    assert told.lines("gemm")[0].startswith(f"gemm {expected} ")


def test_tf32_rounds_and_ieee_does_not(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
a = rng.standard_normal((8, 8)).astype("f4")
def worst(): return float(np.abs(mlbackends.matmul(on_device(a), on_device(a)).numpy() - a @ a).max())
exact = worst()
mlbackends.cuda.matmul.allow_tf32 = True
tell([exact, worst()])
"""
    )
    exact, rounded = told.values[0]
    assert exact < 1e-5
    assert 1e-4 < rounded < 1e-2


@pytest.mark.parametrize(
    ("setting", "schemes"),
    [("True", 7), ("False", 2), ("(False, True)", 2), ("(False, False)", 0)],
)
def test_cublaslt_is_told_how_parts_of_a_sum_may_be_put_together(
    on_fake_cuda: Any, setting: str, schemes: int
) -> None:
    told = on_fake_cuda(
        f"""
mlbackends.cuda.preferred_blas_library("cublaslt")
mlbackends.cuda.matmul.allow_fp16_reduced_precision_reduction = {setting}
a = rng.standard_normal((3, 4, 5)).astype("f2")
result = mlbackends.matmul(on_device(a), on_device(a.transpose(0, 2, 1)))
assert np.abs(result.numpy() - (a.astype("f4") @ a.astype("f4").transpose(0, 2, 1))).max() < 0.02
"""
    )
    assert f"schemes={schemes} " in told.lines("heuristic")[0]
    assert not told.lines("gemm")


def test_forbidden_split_k_takes_cublaslt_although_cublas_is_preferred(
    on_fake_cuda: Any,
) -> None:
    told = on_fake_cuda(
        """
mlbackends.cuda.matmul.allow_fp16_reduced_precision_reduction = (False, False)
for dtype in ("f2", "f4"):
    one = on_device(np.ones((2, 2), dtype))
    mlbackends.matmul(one, one)
"""
    )
    assert len(told.lines("heuristic")) == 1
    assert len(told.lines("gemm")) == 1


def test_a_product_that_cublaslt_cannot_do_says_so(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
mlbackends.cuda.preferred_blas_library("cublaslt")
one = on_device(np.ones((2, 2), "f4"))
tell(error_of(lambda: mlbackends.matmul(one, one)))
""",
        FAKE_NO_ALGORITHM="1",
    )
    kind, said = told.values[0]
    assert kind == "CudaError"
    assert "cublasLtMatmulAlgoGetHeuristic returned 15" in said


def test_the_workspace_is_given_for_each_call_since_a_stream_takes_it_away(
    on_fake_cuda: Any,
) -> None:
    told = on_fake_cuda(
        """
one = on_device(np.ones((2, 2), "f4"))
for size in (None, None, 4096, 4096, 0):
    if size is not None:
        mlbackends.cuda.cublas_workspace_size(size)
    mlbackends.matmul(one, one)
"""
    )
    sizes = [line.removeprefix("cublasSetWorkspace ") for line in told.lines("cublasSetWorkspace")]
    assert sizes == [*["33554432 given"] * 2, *["4096 given"] * 2, "0 none"]
    assert all("workspace=0" not in line for line in told.lines("gemm")[:4])


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"FAKE_CAPABILITY": "80"}, "8519680 given"),
        ({"FAKE_CAPABILITY": "100"}, "8519680 given"),
        ({"CUBLAS_WORKSPACE_CONFIG": ":128:8:64:16:32:32"}, "3145728 given"),
    ],
)
def test_the_workspace_is_the_variable_s_or_the_capability_s(
    on_fake_cuda: Any, variables: dict[str, str], expected: str
) -> None:
    told = on_fake_cuda(
        """
one = on_device(np.ones((2, 2), "f4"))
mlbackends.matmul(one, one)
""",
        **variables,
    )
    assert told.lines("cublasSetWorkspace") == [f"cublasSetWorkspace {expected}"]


def test_cublaslt_works_in_cublas_s_memory_unless_it_is_told_not_to(
    on_fake_cuda: Any,
) -> None:
    program = """
mlbackends.cuda.preferred_blas_library("cublaslt")
mlbackends.cuda.cublas_workspace_size(1 << 16)
mlbackends.cuda.cublaslt_workspace_size({size})
one = on_device(np.ones((2, 2), "f4"))
mlbackends.matmul(one, one)
"""
    shared = on_fake_cuda(program.format(size=1 << 15))
    assert "heuristic workspace=32768 " in shared.lines("heuristic")[0]
    assert "cuMemAllocFromPoolAsync 32768 1" in shared.log
    apart = on_fake_cuda(program.format(size=1 << 17), TORCH_CUBLASLT_UNIFIED_WORKSPACE="0")
    assert "heuristic workspace=131072 " in apart.lines("heuristic")[0]
    assert "cuMemAllocFromPoolAsync 131072 1" in apart.log


@pytest.mark.parametrize(
    ("call", "fragment"),
    [
        ("mm(ones(2, 3), ones(2, 3))", "the last dimension of a is 3, and b needs 2"),
        ("mm(ones(2, 2, 2), ones(3, 2, 2))", "do not broadcast"),
        ("mm(ones(2, 2), ones(2, 2, t='f8'))", "one dtype: b is float64, and a is float32"),
        ("mm(ones(2, 2), np.ones((2, 2), 'f4'))", "one is on CUDA, the other in memory"),
        ("mm(ones(), ones(2))", "at least one dimension"),
    ],
)
def test_operands_that_do_not_fit_are_refused(on_fake_cuda: Any, call: str, fragment: str) -> None:
    told = on_fake_cuda(
        f"""
mm = mlbackends.matmul
def ones(*shape, t="f4"): return on_device(np.ones(shape, t))
tell(error_of(lambda: {call}))
"""
    )
    assert told.values[0][0] == "RuntimeError"
    assert fragment in told.values[0][1]


def test_two_devices_are_refused_and_one_is_used_whatever_is_current(
    on_fake_cuda: Any,
) -> None:
    told = on_fake_cuda(
        """
from mlbackends_kernels.cuda import devices
a, b = on_device(np.ones((2, 2), "f4"), 0), on_device(np.ones((2, 2), "f4"), 1)
tell(error_of(lambda: mlbackends.matmul(a, b)))
result = mlbackends.matmul(b, b)
tell([result.device, devices.current_device()])
""",
        FAKE_GPUS="2",
    )
    assert told.values == [
        ["RuntimeError", "both must lie on one device: cuda:0 and cuda:1"],
        [1, 0],
    ]


def test_a_call_that_fails_is_named_with_its_status(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
one = on_device(np.ones((2, 2), "f4"))
tell(error_of(lambda: mlbackends.matmul(one, one)))
""",
        FAKE_CUBLAS="1",
    )
    assert told.values == [["CudaError", "cublasCreate_v2 returned 1 (NOT_INITIALIZED)"]]


def test_threads_do_not_mix_their_precisions(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
from concurrent.futures import ThreadPoolExecutor
half, single = np.full((2, 64), 0.1, "f2"), rng.standard_normal((4, 4)).astype("f4")
def work(i):
    a = half if i % 2 else single
    got = mlbackends.matmul(on_device(a), on_device(np.ascontiguousarray(a.T))).numpy()
    return bool(np.abs(got - a.astype("f4") @ a.astype("f4").T).max() < 1e-3)
with ThreadPoolExecutor(8) as pool:
    tell(list(pool.map(work, range(64))))
"""
    )
    assert told.values == [[True] * 64]
    assert len(told.lines("cublasCreate")) == 1
