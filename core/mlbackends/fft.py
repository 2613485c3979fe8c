"""Fast Fourier transforms, of arrays in memory by NumPy and of arrays on a CUDA device by cuFFT.

Names, arguments, results and exceptions are those of `numpy.fft`, without `out`. Where torch has
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
    from typing import Any, Protocol

    Axes = Sequence[int] | None

    class _OneAxis(Protocol):
        def __call__(
            self,
            a: Any,
            n: int | None = None,
            axis: int = -1,
            norm: str | None = None,
            *,
            dim: int | None = None,
        ) -> Any: ...

    class _SeveralAxes(Protocol):
        def __call__(
            self,
            a: Any,
            s: Sequence[int] | None = None,
            axes: Axes = ...,
            norm: str | None = None,
            *,
            dim: Axes = None,
        ) -> Any: ...


__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft",
    "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip


def _one_axis(name: str, doc: str) -> "_OneAxis":
    """Return a transform along one axis."""

    def transform(
        a: "Any",
        n: int | None = None,
        axis: int = -1,
        norm: str | None = None,
        *,
        dim: int | None = None,
    ) -> "Any":
        return _kernel().run(name, a, n, _either(axis, dim, -1), norm)

    return _named(transform, name, doc)  # type: ignore[no-any-return]


def _several_axes(name: str, doc: str, usual: "Axes" = None) -> "_SeveralAxes":
    """Return a transform along several axes, by default the `usual` ones; fft2 is fftn along two."""

    def transform(
        a: "Any",
        s: "Sequence[int] | None" = None,
        axes: "Axes" = usual,
        norm: str | None = None,
        *,
        dim: "Axes" = None,
    ) -> "Any":
        return _kernel().run(name.replace("2", "n"), a, s, _either(axes, dim, usual), norm)

    return _named(transform, name, doc)  # type: ignore[no-any-return]


def _named(function: "Any", name: str, doc: str) -> "Any":
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return untraced(function)


fft = _one_axis(
    "fft",
    "Return the transform of `n` points along an axis; a is cut off or filled with zeros to them.",
)
ifft = _one_axis("ifft", "Return the inverse of `fft`.")
rfft = _one_axis(
    "rfft",
    "Return the first n // 2 + 1 numbers of the transform of real numbers; the others mirror them.",
)
irfft = _one_axis(
    "irfft", "Return the inverse of `rfft`: n real numbers, 2 * (m - 1) of m where n is not given."
)
hfft = _one_axis(
    "hfft",
    "Return the transform, n real numbers, of a signal whose other half is its mirrored conjugate.",
)
ihfft = _one_axis(
    "ihfft", "Return the inverse of `hfft`: the first n // 2 + 1 numbers of the signal."
)
fftn = _several_axes(
    "fftn",
    "Return the transform along several axes, all of them where neither s nor axes is given.",
)
ifftn = _several_axes("ifftn", "Return the inverse of `fftn`.")
rfftn = _several_axes(
    "rfftn", "Return the transform of real numbers along several axes, half of the last."
)
irfftn = _several_axes("irfftn", "Return the inverse of `rfftn`.")
fft2 = _several_axes("fft2", "Return the transform along two axes.", (-2, -1))
ifft2 = _several_axes("ifft2", "Return the inverse of `fft2`.", (-2, -1))
rfft2 = _several_axes(
    "rfft2", "Return the transform of real numbers along two axes, half of the last.", (-2, -1)
)
irfft2 = _several_axes("irfft2", "Return the inverse of `rfft2`.", (-2, -1))


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
    """Return the axes that were given, by NumPy's keyword or torch's."""
    if dim is None:
        return axes
    if axes != usual:
        raise TypeError(f"axis, axes and dim mean the same; give one, not {axes} and {dim}")
    return dim


def _kernel() -> "Any":
    from mlbackends.base import registry

    return registry.load("mlbackends_kernels.operations", "fft")
