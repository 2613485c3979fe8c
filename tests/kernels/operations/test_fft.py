"""Transforms: NumPy's in memory, and on a device those of cuFFT with its kept plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlbackends import fft

NAMES = ("fft", "ifft", "rfft", "irfft")


@pytest.mark.parametrize("name", NAMES)
def test_in_memory_it_is_numpy_s(name: str) -> None:
    a = np.random.default_rng(0).standard_normal((3, 4, 6)).astype("f4")
    ours, theirs = getattr(fft, name), getattr(np.fft, name)
    assert np.array_equal(ours(a), theirs(a))
    assert np.array_equal(ours(a, 5, 1, "ortho"), theirs(a, 5, 1, "ortho"))
    many, all_of = getattr(fft, f"{name}n"), getattr(np.fft, f"{name}n")
    assert np.array_equal(many(a), all_of(a))
    assert np.array_equal(
        many(a, (2, 5), (0, 2), norm="forward"), all_of(a, (2, 5), (0, 2), norm="forward")
    )
    assert ours(a).dtype == (np.float32 if name == "irfft" else np.complex64)


def test_sizes_without_axes_are_those_of_the_last_axes(on_fake_cuda: Any) -> None:
    a = np.random.default_rng(7).standard_normal((3, 4, 5)).astype("f4")
    expected = np.fft.fftn(a, (2, 9), (1, 2))
    assert np.array_equal(fft.fftn(a, (2, 9)), expected)
    told = on_fake_cuda(
        """
from mlbackends import fft
a = rng.standard_normal((3, 4, 5)).astype("f4")
tell(float(np.abs(fft.fftn(on_device(a), (2, 9)).numpy() - fft.fftn(a, (2, 9))).max()))
"""
    )
    assert told.values[0] < 1e-5


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda a: fft.fft(a, 0), ValueError),
        (lambda a: fft.fft(a, axis=3), IndexError),
        (lambda a: fft.fft(a, norm="no"), ValueError),
        (lambda a: fft.rfft(a * 1j), TypeError),
        (lambda a: fft.fft(a.astype("f2")), TypeError),
        (lambda a: fft.fft("abc"), TypeError),
    ],
)
def test_what_makes_no_sense_is_refused(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(np.ones((3, 4)))


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2"])
def test_two_axes_are_numpy_s_last_two(name: str) -> None:
    a = np.random.default_rng(1).standard_normal((3, 4, 6))
    ours, theirs = getattr(fft, name), getattr(np.fft, name)
    assert np.array_equal(ours(a), theirs(a))
    assert np.array_equal(ours(a, (2, 5), (0, 1), "ortho"), theirs(a, (2, 5), (0, 1), "ortho"))


def test_every_function_of_numpy_fft_is_here() -> None:
    assert set(fft.__all__) == {name for name in dir(np.fft) if callable(getattr(np.fft, name))} - {
        "test"
    }


def test_mirrored_signals_are_numpy_s() -> None:
    a = np.random.default_rng(2).standard_normal((3, 5))
    z = a + 1j * a[::-1]
    assert np.array_equal(fft.hfft(z, 7, 0, "ortho"), np.fft.hfft(z, 7, 0, "ortho"))
    assert np.array_equal(fft.ihfft(a), np.fft.ihfft(a))
    with pytest.raises(TypeError, match=r"ihfft\(\) takes real numbers, not complex128"):
        fft.ihfft(z)


@pytest.mark.parametrize("count", [1, 2, 7, 8])
def test_frequencies_and_shifts_are_numpy_s(count: int) -> None:
    assert np.array_equal(fft.fftfreq(count, 0.5), np.fft.fftfreq(count, 0.5))
    assert np.array_equal(fft.rfftfreq(count), np.fft.rfftfreq(count))
    for dtype in ("f2", "f4", "i8", "?", "c8"):
        a = np.arange(3 * count).reshape(3, count).astype(dtype)
        for axes in (None, 0, -1, (0, 1)):
            ours = fft.fftshift(a, axes)
            assert ours.dtype == a.dtype
            assert np.array_equal(ours, np.fft.fftshift(a, axes))
            assert np.array_equal(fft.ifftshift(ours, axes), a)


@pytest.mark.parametrize("bad", [0, -3, 2.0, "2", True, None])
def test_a_number_of_points_is_a_whole_number_above_zero(bad: Any) -> None:
    for function in (fft.fftfreq, fft.rfftfreq):
        with pytest.raises((TypeError, ValueError), match=r"fftfreq\(\)"):
            function(bad)


def test_torch_s_word_for_axes_is_taken() -> None:
    a = np.random.default_rng(3).standard_normal((3, 4))
    assert np.array_equal(fft.fft(a, dim=0), np.fft.fft(a, axis=0))
    assert np.array_equal(fft.rfft2(a, dim=(1, 0)), np.fft.rfft2(a, axes=(1, 0)))
    assert np.array_equal(fft.fftshift(a, dim=1), np.fft.fftshift(a, axes=1))
    with pytest.raises(TypeError, match="axis, axes and dim mean the same"):
        fft.fft(a, axis=0, dim=0)


def test_whole_numbers_are_float64_as_in_numpy() -> None:
    assert fft.rfft(np.arange(4, dtype="i4")).dtype == np.complex128


@pytest.mark.parametrize("thing", [np.array(["a"]), np.array([None]), [1.0, 2.0], 3])
def test_what_holds_no_numbers_is_refused_by_the_function_s_name(thing: Any) -> None:
    for name in ("fft", "irfftn"):
        with pytest.raises(TypeError, match=rf"^{name}\(\): a: "):
            getattr(fft, name)(thing)


COMPARED = """
from mlbackends import fft
def compared(name, a, *arguments, of=None, **options):
    expected = getattr(np.fft, name)(a, *arguments, **options)
    result = getattr(fft, name)(on_device(a) if of is None else of, *arguments, **options)
    got = result.numpy()
    assert got.dtype == expected.dtype and got.shape == expected.shape, (name, got.shape, got.dtype)
    worst, most = (np.abs(got - expected).max(), np.abs(expected).max()) if got.size else (0, 0)
    assert worst <= 1e-5 * max(1, most), (name, arguments, options, worst)
    return result
"""


@pytest.mark.parametrize("real", ["f4", "f8"])
def test_on_a_device_every_axis_and_size_gives_numpy_s_result(on_fake_cuda: Any, real: str) -> None:
    told = on_fake_cuda(
        COMPARED
        + f"""
a = rng.standard_normal((3, 4, 5)).astype("{real}")
z = (a + 1j * rng.standard_normal(a.shape)).astype("c" + str(2 * int("{real}"[1])))
for axis in (0, 1, -1):
    for n in (None, 1, 2, 7):
        compared("fft", a, n, axis), compared("fft", z, n, axis), compared("ifft", z, n, axis)
        compared("rfft", a, n, axis), compared("irfft", z, n, axis, norm="ortho")
for axes in ((0, 1), (2, 0), (1, 2), (0, 1, 2), (1,)):
    for norm in (None, "ortho", "forward", "backward"):
        compared("fftn", z, axes=axes, norm=norm), compared("ifftn", a, axes=axes, norm=norm)
        compared("rfftn", a, axes=axes, norm=norm)
        compared("irfftn", np.fft.rfftn(a, axes=axes).astype(z.dtype), axes=axes, norm=norm)
compared("fftn", a, (2, 9), (0, -1)), compared("rfftn", a, (6, -1), (1, 2))
tell("right")
"""
    )
    assert told.values == ["right"]


def test_four_axes_and_more_are_done_in_parts(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        COMPARED
        + """
a = rng.standard_normal((2, 3, 2, 3, 4)).astype("f4")
compared("fftn", a), compared("rfftn", a), compared("ifftn", a, axes=(4, 2, 0, 1))
compared("irfftn", np.fft.rfftn(a).astype("c8"))
tell("right")
"""
    )
    assert told.values == ["right"]


def test_a_view_is_read_where_it_lies_if_cufft_can(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
from mlbackends import fft
from mlbackends_kernels.cuda import devices
z = (rng.standard_normal((4, 6, 8)) + 1j).astype("c8")
array = on_device(z)
block = array.viewed((4, 6, 4), (48, 8, 1), 2)
results = [
    (fft.fft(array), np.fft.fft(z)),
    (fft.fft(array, axis=0), np.fft.fft(z, axis=0)),
    (fft.fftn(block, axes=(1, 2)), np.fft.fftn(z[:, :, 2:6], axes=(1, 2))),
    (fft.fft(array.viewed((4, 6, 4), (48, 8, 2))), np.fft.fft(z[..., ::2])),
    (fft.fft(array.permuted((2, 0, 1)), axis=0), np.fft.fft(z.transpose(2, 0, 1), axis=0)),
]
devices.call("cuStreamSynchronize", 77)
results += [
    (fft.fft(array, axis=1), np.fft.fft(z, axis=1)),
    (fft.fftn(array, axes=(1, 0)), np.fft.fftn(z, axes=(1, 0))),
]
devices.call("cuStreamSynchronize", 78)
for got, expected in results:
    assert np.abs(got.numpy() - expected).max() < 1e-4
"""
    )
    first, second = (told.log.index(f"cuStreamSynchronize {n} 0") for n in (77, 78))
    assert not [line for line in told.log[:first] if line.startswith("launch")]
    # No one stride leads through the batch of the first, and the axes of the second are turned.
    assert [line for line in told.log[first:second] if line.startswith("launch copy_8")]


def test_real_numbers_at_an_odd_address_are_moved(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        COMPARED
        + """
a = rng.standard_normal(9).astype("f4")
array = on_device(a)
compared("rfft", a[1:], of=array.viewed((8,), (1,), 1))
compared("rfft", a[:8], of=array.viewed((8,), (1,)))
"""
    )
    assert told.log.count("cuMemcpyAsync 32 1") == 1


def test_a_source_is_as_it_was_after_a_transform_that_spoils_it(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        COMPARED
        + """
z = np.fft.rfft(rng.standard_normal((3, 6))).astype("c8")
array = on_device(z)
compared("irfft", z, of=array)
tell(bool(np.array_equal(array.numpy(), z)))
"""
    )
    assert told.values == [True]


def test_a_plan_is_made_once_for_a_layout_and_destroyed_when_it_goes(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        COMPARED
        + """
cache = mlbackends.cuda.cufft_plan_cache
z = (rng.standard_normal((4, 8)) + 1j).astype("c8")
for _ in range(3):
    compared("fft", z), compared("ifft", z)      # one plan for both directions
tell(cache.size)
compared("fft", z, axis=0), compared("fft", z[:2]), compared("fft", z.astype("c16"))
tell([cache.size, cache[0].size, cache["cuda:0"].max_size])
cache.max_size = 2
tell(cache.size)
compared("fft", z.astype("c16"))                 # still there
compared("fft", z)                               # was evicted
tell(cache.size)
cache.clear()
tell(cache.size)
cache.max_size = 0
compared("fft", z)
tell(cache.size)
"""
    )
    assert told.values == [1, [4, 4, 4096], 2, 2, 0, 0]
    made = [line.split()[1] for line in told.lines("cufftCreate")]
    destroyed = [line.split()[1] for line in told.lines("cufftDestroy")]
    assert (len(made), sorted(destroyed)) == (6, sorted(made))
    # The least recently used went first.
    assert destroyed[:2] == ["0", "1"]


def test_each_device_keeps_its_own_plans(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        COMPARED
        + """
cache = mlbackends.cuda.cufft_plan_cache
z = np.ones((2, 4), "c8")
for device in (0, 1, 1):
    compared("fft", z, of=on_device(z, device))
tell([cache[0].size, cache[1].size, len([cache[i] for i in (0, 1)])])
tell(error_of(lambda: cache[2]))
""",
        FAKE_GPUS="2",
    )
    assert told.values[0] == [1, 1, 2]
    assert "expected 0 <= device index < 2, but got device with index 2" in told.values[1][1]


@pytest.mark.parametrize("variable", ["FAKE_CUFFT", "FAKE_PLAN"])
def test_a_plan_that_fails_is_destroyed_and_not_kept(on_fake_cuda: Any, variable: str) -> None:
    told = on_fake_cuda(
        """
from mlbackends import fft
tell(error_of(lambda: fft.fft(on_device(np.ones((2, 4), "c8")))))
tell(mlbackends.cuda.cufft_plan_cache.size)
""",
        **{variable: "8"},
    )
    kind, said = told.values[0]
    assert kind == "CudaError"
    assert said.endswith("returned 8 (CUFFT_INVALID_SIZE)")
    assert told.values[1] == 0
    assert len(told.lines("cufftCreate")) == len(told.lines("cufftDestroy"))


@pytest.mark.parametrize(
    ("call", "kind", "fragment"),
    [
        ("fft.fft(a, 0)", "ValueError", "Invalid number of FFT data points (0) specified."),
        ("fft.fft(a, axis=2)", "IndexError", "axis 2 is out of bounds"),
        ("fft.fft(a, norm='no')", "ValueError", "Invalid norm value"),
        ("fft.rfft(z)", "TypeError", "takes real numbers, not complex64"),
        ("fft.fft(h)", "TypeError", "not float16"),
        ("fft.fftn(a, axes=(0, 0))", "ValueError", "each axis may be given once"),
        ("fft.fftn(a, (2,), (0, 1))", "ValueError", "1 sizes for 2 axes"),
        ("fft.fftn(a, axes=())", "ValueError", "at least one axis"),
        ("fft.irfft(z1)", "ValueError", "data points (0)"),
    ],
)
def test_on_a_device_what_makes_no_sense_is_refused(
    on_fake_cuda: Any, call: str, kind: str, fragment: str
) -> None:
    told = on_fake_cuda(
        f"""
from mlbackends import fft
a, h = on_device(np.ones((2, 4), "f4")), on_device(np.ones((2, 4), "f2"))
z, z1 = on_device(np.ones((2, 4), "c8")), on_device(np.ones((2, 1), "c8"))
tell(error_of(lambda: {call}))
"""
    )
    assert told.values[0][0] == kind
    assert fragment in told.values[0][1]


def test_an_empty_batch_makes_no_plan(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        COMPARED
        + """
compared("fft", np.ones((0, 4), "c8")), compared("rfft", np.ones((3, 0, 4), "f4"))
compared("fft", np.ones((2, 0), "c8"), 4)
tell(mlbackends.cuda.cufft_plan_cache.size)
"""
    )
    assert told.values == [1]


def test_shifts_on_a_device_are_numpy_s(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
from mlbackends import fft
for shape in ((5,), (3, 4), (2, 3, 5), (0, 3), (1, 1)):
    a = rng.standard_normal(shape).astype("f4")
    for axes in (None, 0, (0,)):
        for name in ("fftshift", "ifftshift"):
            got = getattr(fft, name)(on_device(a), axes).numpy()
            assert np.array_equal(got, getattr(np.fft, name)(a, axes)), (shape, axes, name)
tell(error_of(lambda: fft.hfft(on_device(a))))
"""
    )
    kind, said = told.values[0]
    assert kind == "NotImplementedError"
    assert said.startswith("hfft() takes arrays in memory")
