"""Random views of random arrays: copies, products and transforms on a device are NumPy's."""

from __future__ import annotations

from typing import Any

import pytest

PROGRAM = """
from mlbackends import fft, flag_store
from mlbackends_kernels.cuda.copies import packed
rng = np.random.default_rng({seed})

def one_of(*things): return things[int(rng.integers(len(things)))]

def part(size):
    first = int(rng.integers(size))
    every = slice(None), slice(first, size), slice(0, first + 1), slice(first, None, 2)
    return one_of(*every, slice(None, None, -1))

def a_view(array):
    view = array.transpose(rng.permutation(array.ndim))
    view = view[tuple(part(size) for size in view.shape)]
    if one_of(0, 0, 1):
        place = int(rng.integers(view.ndim))
        first = tuple(slice(0, 1) if axis == place else slice(None) for axis in range(view.ndim))
        view = np.broadcast_to(view[first], [3 if axis == place else n for axis, n in enumerate(view.shape)])
    address = lambda of: of.__array_interface__["data"][0]
    offset = (address(view) - address(array)) // array.itemsize
    steps = tuple(step // array.itemsize for step in view.strides)
    return view, on_device(array).viewed(view.shape, steps, offset)

def near(got, expected, tolerance):
    assert got.shape == expected.shape
    assert np.abs(got.numpy() - expected).max() <= tolerance * max(1, np.abs(expected).max())

for _ in range(150):
    dtype = one_of("f2", "f4", "f8", "c8")
    shape = tuple(map(int, rng.integers(1, 6, int(rng.integers(1, 5)))))
    view, there = a_view(rng.standard_normal(shape).astype(dtype))
    assert np.array_equal(packed(there).numpy(), view)
    batch = tuple(one_of(1, size) for size in view.shape[:-2])
    other = rng.standard_normal((*batch, view.shape[-1], int(rng.integers(1, 5)))).astype(dtype)
    turned = [*range(other.ndim - 2), other.ndim - 1, other.ndim - 2]
    theirs = on_device(other)
    if one_of(0, 1):
        theirs = on_device(np.ascontiguousarray(other.transpose(turned))).permuted(turned)
    with flag_store.applied(dict([("cuda.preferred_blas_library", one_of("cublas", "cublaslt"))])):
        wide = view.astype("c16") @ other.astype("c16")
        near(mlbackends.matmul(there, theirs), wide, 2e-2 if dtype == "f2" else 1e-4)
    if dtype != "f2":
        name = one_of("fftn", "ifftn", *(() if dtype == "c8" else ("rfftn",)))
        axes = tuple(map(int, rng.permutation(view.ndim)[: int(rng.integers(1, view.ndim + 1))]))
        sizes = one_of(None, tuple(map(int, rng.integers(1, 6, len(axes)))))
        near(getattr(fft, name)(there, sizes, axes), getattr(np.fft, name)(view, sizes, axes), 1e-4)
tell("right")
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_any_view_is_copied_multiplied_and_transformed_as_numpy_does(
    on_fake_cuda: Any, seed: int
) -> None:
    assert on_fake_cuda(PROGRAM.format(seed=seed)).values == ["right"]
