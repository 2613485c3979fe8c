"""Copies between any strides: as NumPy copies, and in few calls."""

from __future__ import annotations

from typing import Any

import pytest

np = pytest.importorskip("numpy")


def test_any_view_is_copied_as_numpy_copies_it(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
from mlbackends_kernels.cuda.copies import packed
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
from mlbackends_kernels.cuda.copies import packed
a = rng.standard_normal((5, 6, 7)).astype("{dtype}")
for axes in ((0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1), (1, 0, 2)):
    got = packed(on_device(a).permuted(axes)).numpy()
    assert np.array_equal(got, a.transpose(axes)), axes
tell("right")
"""
    )
    assert told.values == ["right"]
    assert told.lines(f"launch copy_{np.dtype(dtype).itemsize} ")


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("(64, 32), (1, 64)", 1),
        ("(4, 16, 8), (256, 1, 16)", 1),
        ("(16,), (0,)", 1),
        ("(2, 2, 2, 2, 2, 2), (1, 4, 16, 64, 256, 1024)", 1),
        ("(3, 2, 2, 2, 2, 2, 2), (0, 1, 4, 16, 64, 256, 1024)", 3),
        ("(16, 2), (2, 1)", 0),
    ],
)
def test_six_axes_take_one_launch(on_fake_cuda: Any, view: str, expected: int) -> None:
    told = on_fake_cuda(
        f"""
from mlbackends_kernels.cuda.copies import packed
packed(on_device(np.zeros(2048, "f4")).viewed({view}))
"""
    )
    assert len(told.lines("launch copy_4")) == expected
