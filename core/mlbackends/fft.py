"""Fast Fourier transforms, of arrays in memory by NumPy and of arrays on a CUDA device by cuFFT.

Names, arguments, results and exceptions are those of `numpy.fft`, without `out`. Where torch says
`dim`, `dim=` is taken too, in the place of `axis` and `axes`.

In memory: the arrays and tensors of any library, no lists. float32 and complex64 give results of 32
bits, float64 and complex128 of 64; so do integers and booleans, as in NumPy (torch gives 32). float16,
bfloat16 and what is no number are a TypeError, and so are complex numbers where real ones are needed.
A tensor of torch gives a tensor; one that requires a gradient is refused, for this has no backward.
On a device: float32, float64, complex64 and complex128, and the result is a DeviceArray; hfft and ihfft
are not there. Plans are kept in `cuda.cufft_plan_cache`.
"""

from mlbackends.switches.dynamo import untraced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Axes = Sequence[int] | None

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]


@untraced
def fft(
    a: "Any",
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    dim: int | None = None,
) -> "Any":
    """Return the transform of `n` points along an axis; a is cut off or filled with zeros to them."""
    return _run("fft", a, n, _either(axis, dim, -1), norm)


@untraced
def ifft(
    a: "Any",
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    dim: int | None = None,
) -> "Any":
    """Return the inverse of `fft`."""
    return _run("ifft", a, n, _either(axis, dim, -1), norm)


@untraced
def rfft(
    a: "Any",
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    dim: int | None = None,
) -> "Any":
    """Return the first n // 2 + 1 numbers of the transform of real numbers; the others mirror them."""
    return _run("rfft", a, n, _either(axis, dim, -1), norm)


@untraced
def irfft(
    a: "Any",
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    dim: int | None = None,
) -> "Any":
    """Return the inverse of `rfft`: n real numbers, 2 * (m - 1) of m where n is not given."""
    return _run("irfft", a, n, _either(axis, dim, -1), norm)


@untraced
def hfft(
    a: "Any",
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    dim: int | None = None,
) -> "Any":
    """Return the transform, n real numbers, of a signal whose other half is its mirrored conjugate."""
    return _run("hfft", a, n, _either(axis, dim, -1), norm)


@untraced
def ihfft(
    a: "Any",
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    dim: int | None = None,
) -> "Any":
    """Return the inverse of `hfft`: the first n // 2 + 1 numbers of the signal."""
    return _run("ihfft", a, n, _either(axis, dim, -1), norm)


@untraced
def fftn(
    a: "Any",
    s: "Sequence[int] | None" = None,
    axes: "Axes" = None,
    norm: str | None = None,
    *,
    dim: "Axes" = None,
) -> "Any":
    """Return the transform along several axes, all of them where neither s nor axes is given."""
    return _run("fftn", a, s, _either(axes, dim, None), norm)


@untraced
def ifftn(
    a: "Any",
    s: "Sequence[int] | None" = None,
    axes: "Axes" = None,
    norm: str | None = None,
    *,
    dim: "Axes" = None,
) -> "Any":
    """Return the inverse of `fftn`."""
    return _run("ifftn", a, s, _either(axes, dim, None), norm)


@untraced
def rfftn(
    a: "Any",
    s: "Sequence[int] | None" = None,
    axes: "Axes" = None,
    norm: str | None = None,
    *,
    dim: "Axes" = None,
) -> "Any":
    """Return the transform of real numbers along several axes, half of the last."""
    return _run("rfftn", a, s, _either(axes, dim, None), norm)


@untraced
def irfftn(
    a: "Any",
    s: "Sequence[int] | None" = None,
    axes: "Axes" = None,
    norm: str | None = None,
    *,
    dim: "Axes" = None,
) -> "Any":
    """Return the inverse of `rfftn`."""
    return _run("irfftn", a, s, _either(axes, dim, None), norm)


@untraced
def fft2(
    a: "Any",
    s: "Sequence[int] | None" = None,
    axes: "Axes" = (-2, -1),
    norm: str | None = None,
    *,
    dim: "Axes" = None,
) -> "Any":
    """Return the transform along two axes."""
    return _run("fftn", a, s, _either(axes, dim, (-2, -1)), norm)


@untraced
def ifft2(
    a: "Any",
    s: "Sequence[int] | None" = None,
    axes: "Axes" = (-2, -1),
    norm: str | None = None,
    *,
    dim: "Axes" = None,
) -> "Any":
    """Return the inverse of `fft2`."""
    return _run("ifftn", a, s, _either(axes, dim, (-2, -1)), norm)


@untraced
def rfft2(
    a: "Any",
    s: "Sequence[int] | None" = None,
    axes: "Axes" = (-2, -1),
    norm: str | None = None,
    *,
    dim: "Axes" = None,
) -> "Any":
    """Return the transform of real numbers along two axes, half of the last."""
    return _run("rfftn", a, s, _either(axes, dim, (-2, -1)), norm)


@untraced
def irfft2(
    a: "Any",
    s: "Sequence[int] | None" = None,
    axes: "Axes" = (-2, -1),
    norm: str | None = None,
    *,
    dim: "Axes" = None,
) -> "Any":
    """Return the inverse of `rfft2`."""
    return _run("irfftn", a, s, _either(axes, dim, (-2, -1)), norm)


@untraced
def fftfreq(n: int, d: float = 1.0) -> "Any":
    """Return the frequency of each number of `fft`, in cycles per unit of d: a NumPy array of float64.

    d: from one sample to the next. Raises ValueError for n below 1.
    """
    return _kernel().frequencies("fftfreq", n, d)


@untraced
def rfftfreq(n: int, d: float = 1.0) -> "Any":
    """Return the frequency of each number of `rfft`, as `fftfreq` does."""
    return _kernel().frequencies("rfftfreq", n, d)


@untraced
def fftshift(
    x: "Any", axes: "int | Sequence[int] | None" = None, *, dim: "int | Sequence[int] | None" = None
) -> "Any":
    """Return the numbers with frequency 0 in the middle of some axes, of all where none is given."""
    return _kernel().shifted("fftshift", x, _either(axes, dim, None))


@untraced
def ifftshift(
    x: "Any", axes: "int | Sequence[int] | None" = None, *, dim: "int | Sequence[int] | None" = None
) -> "Any":
    """Return the inverse of `fftshift`."""
    return _kernel().shifted("ifftshift", x, _either(axes, dim, None))


def _either(axes: object, dim: object, usual: object) -> object:
    """Return what was given: NumPy's word or torch's."""
    if dim is None:
        return axes
    if axes != usual:
        raise TypeError(f"axis, axes and dim mean the same; give one, not {axes} and {dim}")
    return dim


def _run(name: str, a: "Any", sizes: object, axes: object, norm: str | None) -> "Any":
    return _kernel().run(name, a, sizes, axes, norm)


def _kernel() -> "Any":
    from mlbackends.model import registry

    return registry.load("mlbackends_kernels.operations", "fft")
