"""The transforms of MKL: what stands in the brackets of FFT(...).

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

from msgspec import Struct

_DESCRIPTOR = re.compile(r"([sdh])([cr])([fb]?)([io])(\d.*)")
_LIMIT = 1 << 40
PRECISION = {"h": ("f16", 2), "s": ("f32", 4), "d": ("f64", 8)}


class Transform(Struct, frozen=True):
    """A transform; direction "f", "b" or "" if not known. count: how many at once."""

    precision: str
    domain: str
    direction: str
    in_place: bool
    lengths: tuple[int, ...]
    count: int

    @property
    def flops(self) -> float:
        """The operations of all of them."""
        points = prod(self.lengths)
        each = 5.0 * points * log2(points) if points > 1 else 0.0
        return self.count * each * (0.5 if self.domain == "r" else 1.0)

    @property
    def bytes(self) -> float:
        """What is read and written: real data, or half of a conjugate-even spectrum, or complex."""
        size = PRECISION[self.precision][1]
        points = float(prod(self.lengths))
        if self.domain == "c":
            return self.count * points * size * 4
        spectrum = points / self.lengths[-1] * (self.lengths[-1] // 2 + 1) * 2
        return self.count * size * (points + spectrum)


def is_absurd(value: str) -> bool:
    """Tell whether a size, stride or distance cannot be one: negative, or more than 2**40 elements."""
    try:
        return not 0 <= int(value) < _LIMIT
    except ValueError:
        return False


def transform(text: str) -> Transform | None:
    """Read a descriptor, with "?" where a value was never set; None if it is none."""
    found = _DESCRIPTOR.fullmatch(text)
    if found is None:
        return None
    precision, domain, direction, placement, shape = found.groups()
    lengths_text, _, count = shape.partition("*")
    lengths = []
    for part in lengths_text.split("x"):
        length = part.partition(":")[0]
        if not length.isdecimal() or not int(length) or is_absurd(length):
            return None
        lengths.append(int(length))
    many = count.partition(":")[0] or "1"
    if not many.isdecimal():
        return None
    return Transform(precision, domain, direction, placement == "i", tuple(lengths), int(many))


def unknown_values(arguments: dict[str, str]) -> tuple[str, ...]:
    """Return the names of arguments that hold values nobody set: "?", or negative strides."""
    found = [
        name
        for name, value in arguments.items()
        if "?" in value or (name.endswith(("strides", "distance")) and "-" in value)
    ]
    return tuple(sorted(found, key=lambda name: name == "descriptor"))
