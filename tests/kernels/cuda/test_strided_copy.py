"""Copies between any strides: as NumPy copies, and in few calls."""

from __future__ import annotations

from typing import Any

import pytest


def test_any_view_is_copied_as_numpy_copies_it(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
from mlbackends_kernels.cuda.strided_copy import packed
a = rng.standard_normal((3, 4, 5, 2)).astype("f4")
array = on_device(a)
step = lambda view: tuple(by // 4 for by in view.strides)
views = [a, a.transpose(3, 1, 0, 2), a[::2, 1:3, ::3], a[:, :, :, :1], a[:, :, 1], a[1], a[:0],
         np.broadcast_to(a[:, :1], (3, 6, 5, 2)), a[..., 1:, :].swapaxes(0, 2), a[::-1, :, ::-2]]
for view in views:
    offset = (view.__array_interface__["data"][0] - a.__array_interface__["data"][0]) // 4
    got = packed(array.viewed(view.shape, step(view), offset)).numpy()
    assert np.array_equal(got, view), (view.shape, view.strides)
tell(packed(array) is array)
"""
    )
    assert told.values == [True]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
def test_a_transposed_batch_is_copied_for_every_type(on_fake_cuda: Any, dtype: str) -> None:
    told = on_fake_cuda(
        f"""
from mlbackends_kernels.cuda.strided_copy import packed
a = rng.standard_normal((5, 6, 7)).astype("{dtype}")
for axes in ((0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1), (1, 0, 2)):
    got = packed(on_device(a).permuted(axes)).numpy()
    assert np.array_equal(got, a.transpose(axes)), axes
tell("right")
"""
    )
    assert told.values == ["right"]
    by_cublas = [line for line in told.log if "geam" in line]
    assert bool(by_cublas) == (dtype != "f2")


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("(64, 32), (1, 64)", ["cublasSgeam"]),
        ("(64, 16), (32, 1)", ["cudaMemcpy2D 64 64"]),
        ("(4, 16, 8), (256, 1, 16)", ["cublasSgeam"] * 4),
        ("(4, 8, 16), (256, 32, 1)", ["cudaMemcpy2D 64 8"] * 4),
        ("(16,), (2,)", ["cudaMemcpy2D 4 16"]),
        ("(16, 2), (2, 1)", []),
    ],
)
def test_what_is_regular_takes_few_calls(on_fake_cuda: Any, view: str, expected: list[str]) -> None:
    told = on_fake_cuda(
        f"""
from mlbackends_kernels.cuda.strided_copy import packed
packed(on_device(np.zeros(2048, "f4")).viewed({view}))
"""
    )
    copies = [line for line in told.log if line.startswith(("cudaMemcpy2D", "cublasSgeam"))]
    assert copies == expected
