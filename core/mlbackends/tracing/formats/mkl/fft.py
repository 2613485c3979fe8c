"""The transforms of MKL: the arguments of FFT(...).

    dcfi1024                     precision (s, d), domain (c, r), direction (f, b), placement (i, o), lengths
    scfi128x64                   two dimensions
    drfo128*64                   64 transforms of length 128
    srfo128:64:64x64:1:1         length 128 with strides 64 and 64, and one of 64 with strides 1 and 1
    dci1024:1:1                  2019: no direction

oneMKL 2026.2 prints memory that nobody set where a descriptor keeps its default strides or distances,
such as input_distance:140726803210116. The transform itself is right; such values are unknown.

Source: oneMKL 2019.0 to 2026.2 as they print. Work: 5 N log2 N for complex and half of it for real data,
as benchFFT counts (fftw.org/speed/method.html).
"""

import re
from math import log2, prod

from msgspec import structs

from mlbackends.model.signature import Derived, RoutineSignature
from mlbackends.tracing.numbers import whole_number

_LENGTH = r"\d+(?::[^x*]*)?"
_DESCRIPTOR = re.compile(rf"([sdh])([cr])[fb]?[io]({_LENGTH}(x{_LENGTH})*)(?:\*(\d*)(?::.*)?)?")
_LIMIT = 1 << 40
_PRECISION = {"h": ("f16", 2), "s": ("f32", 4), "d": ("f64", 8)}


def is_absurd(value: str) -> bool:
    """Return whether a size, stride or distance cannot be one: negative, or more than 2**40 elements."""
    number = whole_number(value)
    return value.lstrip("-").isdecimal() if number is None else not 0 <= number < _LIMIT


def derived_of_transform(signature: RoutineSignature) -> Derived:
    """Return sizes, types and work of transforms; an unknown descriptor becomes the shape."""
    descriptor, *rest = signature.values or ("",)
    arguments = {"descriptor": descriptor}
    arguments |= {name: text for name, _, text in (value.partition(":") for value in rest)}
    unknown = [
        name
        for name, value in arguments.items()
        if "?" in value or (name.endswith(("strides", "distance")) and "-" in value)
    ]
    derived = Derived(
        operation="FFT",
        shape=descriptor,
        arguments=arguments,
        unknown=tuple(sorted(unknown, key=lambda name: name == "descriptor")),
    )
    found = _DESCRIPTOR.fullmatch(descriptor)
    if found is None:
        return derived
    precision, domain, axes, _, many = found.groups()
    lengths = [whole_number(axis.partition(":")[0]) or 0 for axis in axes.split("x")]
    count, points = whole_number(many or "1") or 0, prod(lengths)
    if not all(0 < length < _LIMIT for length in (*lengths, count, points)):
        return derived
    dtype, size = _PRECISION[precision]
    flops = count * (5.0 * points * log2(points))
    traffic = 4.0 * count * points * size
    if domain == "r":  # real data, and half of a conjugate-even spectrum
        flops /= 2
        traffic = float(count * size * (points + points / lengths[-1] * (lengths[-1] // 2 + 1) * 2))
    return structs.replace(
        derived,
        shape="x".join(map(str, lengths)) + (f"*{count}" if count > 1 else ""),
        dtype=dtype if domain == "r" else f"c{16 * size}",
        flops=flops,
        bytes=traffic,
    )
