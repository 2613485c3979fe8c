"""Fast Fourier transforms, of arrays in memory by NumPy and of arrays on a CUDA device by cuFFT.

Names, arguments and results are those of `numpy.fft`; on a device the type must be float32, float64,
complex64 or complex128, and the result is a DeviceArray. Plans are kept in `cuda.cufft_plan_cache`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["fft", "fftn", "ifft", "ifftn", "irfft", "irfftn", "rfft", "rfftn"]


def fft(a: "Any", n: int | None = None, axis: int = -1, norm: str | None = None) -> "Any":
    """Return the transform of `n` points along an axis; a is cut off or filled with zeros to them."""
    return _run("fft", a, n, axis, norm)


def ifft(a: "Any", n: int | None = None, axis: int = -1, norm: str | None = None) -> "Any":
    """Return the inverse of `fft`."""
    return _run("ifft", a, n, axis, norm)


def rfft(a: "Any", n: int | None = None, axis: int = -1, norm: str | None = None) -> "Any":
    """Return the first n // 2 + 1 numbers of the transform of real numbers; the others mirror them."""
    return _run("rfft", a, n, axis, norm)


def irfft(a: "Any", n: int | None = None, axis: int = -1, norm: str | None = None) -> "Any":
    """Return the inverse of `rfft`: n real numbers, 2 * (m - 1) of m where n is not given."""
    return _run("irfft", a, n, axis, norm)


def fftn(
    a: "Any",
    s: "Sequence[int] | None" = None,
    axes: "Sequence[int] | None" = None,
    norm: str | None = None,
) -> "Any":
    """Return the transform along several axes, all of them where neither s nor axes is given."""
    return _run("fftn", a, s, axes, norm)


def ifftn(
    a: "Any",
    s: "Sequence[int] | None" = None,
    axes: "Sequence[int] | None" = None,
    norm: str | None = None,
) -> "Any":
    """Return the inverse of `fftn`."""
    return _run("ifftn", a, s, axes, norm)


def rfftn(
    a: "Any",
    s: "Sequence[int] | None" = None,
    axes: "Sequence[int] | None" = None,
    norm: str | None = None,
) -> "Any":
    """Return the transform of real numbers along several axes, half of the last."""
    return _run("rfftn", a, s, axes, norm)


def irfftn(
    a: "Any",
    s: "Sequence[int] | None" = None,
    axes: "Sequence[int] | None" = None,
    norm: str | None = None,
) -> "Any":
    """Return the inverse of `rfftn`."""
    return _run("irfftn", a, s, axes, norm)


def _run(name: str, a: "Any", sizes: object, axes: object, norm: str | None) -> "Any":
    from mlbackends.model import registry

    return registry.load("kernels.operations", "fft").run(name, a, sizes, axes, norm)
