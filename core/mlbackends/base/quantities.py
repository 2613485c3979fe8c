"""Numbers, sizes, durations, times, rates and lists of CPUs, as files, tools and people write them.

The kernel's K is 1024 (`size_in_bytes`); what people type has k for 1000 and Ki for 1024 (`amount`).
"""

import re
import time
from collections.abc import Iterable
from typing import NamedTuple

from mlbackends.base.patterns import pattern

LARGEST = (1 << 63) - 1

_FASTEST_CLOCK = 20_000_000_000
_KERNEL_UNITS = {"": 1, "B": 1} | {
    f"{unit}{end}": 1 << 10 * power for power, unit in enumerate("KMGT", 1) for end in ("", "B", "IB")
}
_OF_UNITS = "KMGTIBkmgtib \t"
_WITHOUT_DIGITS = str.maketrans("", "", "0123456789")

#: The factors of what people type, in small letters; "b" and "hz" may follow each.
_TYPED_UNITS = {"": 1.0} | {
    f"{letter}{end}": base**power
    for power, letter in enumerate("kmgt", 1)
    for end, base in (("", 1000.0), ("i", 1024.0))
}
#: Units of time in nanoseconds, in small letters.
TIME_UNITS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "min": 6e10}
_AMOUNT = pattern(r"([-+]?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)\s*([kmgt]i?|)(b|hz)?")
_DURATION = pattern(r"([-+]?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)\s*([a-zµμ]*)")

_MASK_WORD = pattern(r"[0-9a-f]{1,8}", re.IGNORECASE)


def to_int(text: str) -> int | None:
    """Return a whole number as the kernel writes them (decimal or 0x...), None where it is none."""
    try:
        return int(text.strip(), 0)
    except ValueError:
        pass
    try:
        return int(text.strip(), 10)  # leading zeros, as in PCI addresses
    except ValueError:
        return None


def whole_number(text: str, lowest: int = 0, highest: int = LARGEST) -> int | None:
    """Return a decimal or 0x number from `lowest` to `highest`; None for all else."""
    number = to_int(text)
    return number if number is not None and lowest <= number <= highest else None


def dotted_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version such as "12.5.0.14"; () for what is more or less than that."""
    parts = text.split(".")
    is_whole = text.isascii() and all(part.isdecimal() and len(part) < 7 for part in parts)
    return tuple(map(int, parts)) if is_whole else ()


def leading_version(text: str) -> str:
    """Return the numbers with dots that a text begins with: "12.2.0" of "12.2.0-14+deb12u1"."""
    return text[: len(text) - len(text.lstrip("0123456789."))].rstrip(".")


def decimal(text: str) -> float | None:
    """Return a number with or without a fraction, of 15 digits and 9 at most; None for all else."""
    whole, dot, fraction = text.partition(".")
    is_whole = whole.isdecimal() and len(whole) < 16 and text.isascii()
    is_number = is_whole and (not dot or (fraction.isdecimal() and len(fraction) < 10))
    return float(text) if is_number else None


def size_in_bytes(text: str) -> int | None:
    """Return "48K", "24684096 kB", "2 MB" or "4096" in bytes; None if it is none of these.

    K and kB are both 1024, as the kernel has them.
    """
    text = text.strip()
    number = text.rstrip(_OF_UNITS)
    whole, dot, fraction = number.partition(".")
    unit = _KERNEL_UNITS.get(text[len(number) :].strip().upper())
    is_number = whole.isdecimal() and whole.isascii() and len(whole) < 20
    if unit is None or not is_number or (dot and not fraction.isdecimal()):
        return None
    size = int(whole) * unit
    return size if size <= LARGEST else None


class Amount(NamedTuple):
    """A number that was typed, and its unit as typed: 16 and "GiB" of "16GiB". value: in single units."""

    number: float
    unit: str
    factor: float

    @property
    def value(self) -> float:
        """The number times the factor of its unit."""
        return self.number * self.factor


def amount(text: str) -> Amount | None:
    """Return a number of bytes, hertz or anything else: "16GiB", "2.4 GHz", "1k". None if it is not one."""
    typed = text.strip()
    match = _AMOUNT.fullmatch(typed.lower())
    if match is None:
        return None
    return Amount(float(match[1]), typed[len(match[1]) :].strip(), _TYPED_UNITS[match[2]])


def duration(text: str) -> float | None:
    """Return a time such as "1.5 ms" in nanoseconds, the unit of a bare number. None if it is not one."""
    match = _DURATION.fullmatch(text.strip().lower())
    unit = TIME_UNITS.get(match[2] or "ns") if match else None
    return float(match[1]) * unit if match and unit else None


def percentage(text: str) -> float | None:
    """Return the share that a percentage is: 0.1 for "10%". None if it is not one."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else None
    except ValueError:
        return None


def hertz(text: str, unit: int) -> int | None:
    """Return a frequency in hertz; None for zero, nonsense and what no clock reaches.

    text: a number with or without a fraction ("2299.998"). unit: how many hertz one of it is.
    """
    text = text.strip()
    text = text[:-2].rstrip("kMG") if text.endswith("Hz") else text
    frequency = round((decimal(text.rstrip()) or 0) * unit)
    return frequency if 0 < frequency < _FASTEST_CLOCK else None


def one_line(text: str, longest: int = 400) -> str:
    """Return a text's first line without what cannot be printed, cut at `longest` characters."""
    line = text[: 4 * longest].strip().partition("\n")[0]
    shown = [sign for sign in line if sign.isprintable() and sign != "\ufffd"]
    return "".join(shown[:longest]).strip()


def word(text: str) -> str:
    """Return a name such as a driver's; "" for anything else, and for "none"."""
    name = text.strip()
    is_name = name.isascii() and name[:1].isalnum() and all(sign.isalnum() or sign in "_.+-" for sign in name)
    return name if is_name and len(name) < 64 and name != "none" else ""


def numbers_by_name(text: str) -> dict[str, int]:
    """Return the numbers of lines such as "nr_periods 12", but those of more than 64 bits."""
    pairs = (line.partition(" ") for line in text.splitlines())
    numbers = {name: whole_number(value, highest=(1 << 64) - 1) for name, _, value in pairs}
    return {name: number for name, number in numbers.items() if number is not None}


def meminfo(text: str) -> dict[str, int]:
    """Return the numbers of a meminfo file by name: sizes in bytes, counts as they are."""
    numbers = {}
    for line in text.splitlines():
        name, separator, value = line.partition(":")
        number = size_in_bytes(value)
        if separator and number is not None:
            numbers[name.strip()] = number
    return numbers


#: No machine has as many CPUs; a larger number in a variable of OpenMP is an error.
MOST_OPENMP_CPUS = 1 << 16
_OPENMP_RANGE = pattern(r"(?P<first>\d{1,6})(?:-(?P<last>\d{1,6})(?::(?P<stride>\d{1,6}))?)?")
#: No kernel numbers this many CPUs; a list that names a higher one is garbage there.
HIGHEST = 16384


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the numbers of a list, sorted, each once; items that are not numbers or ranges are left out.

    Understands "0-3,8" and strides ("0-31:2/4" is 0, 1, 4, 5, 8, ...), as the kernel's bitmap lists
    have them.
    """
    found: set[int] = set()
    named = 0
    for item in text[: 16 * HIGHEST].replace(",", " ").split():
        form = item.translate(_WITHOUT_DIGITS)
        parts = item.replace("-", "/").replace(":", "/").split("/")
        if form not in ("", "-", ":/", "-:/") or not all(0 < len(part) < 7 for part in parts):
            continue
        numbers = [int(part) for part in parts]
        low, high = numbers[0], numbers[form.startswith("-")]
        used, period = numbers[-2:] if ":" in form else (1, 1)
        if not low <= high < HIGHEST or not 0 < used <= period:
            continue
        cpus = range(low, high + 1)
        if period > 1:
            found.update(cpu for cpu in cpus if (cpu - low) % period < used)
        else:
            found.update(cpus)
        named += len(cpus)
        if named > 4 * HIGHEST:  # a list that names everything over and over is garbage
            break
    return tuple(sorted(found))


def parse_openmp_list(items: Iterable[str]) -> frozenset[int]:
    """Return the CPUs of items such as "0", "3-6" and "0-14:2" (every second one); none if an item is wrong.

    GOMP_CPU_AFFINITY and proclist of KMP_AFFINITY are written so. A stride of the kernel's is another thing.
    """
    cpus: set[int] = set()
    for item in items:
        match = _OPENMP_RANGE.fullmatch(item)
        if match is None or int(match["last"] or 0) > MOST_OPENMP_CPUS:
            return frozenset()
        first = int(match["first"])
        cpus.update(range(first, int(match["last"] or first) + 1, int(match["stride"] or 1) or 1))
    return frozenset(cpus)


def parse_cpu_mask(text: str) -> tuple[int, ...]:
    """Return the numbers of the bits that are set in a mask such as "ff,00000001"; () for no mask."""
    words = text.strip().split(",")
    if not all(_MASK_WORD.fullmatch(word) for word in words) or 32 * len(words) > HIGHEST:
        return ()
    # Every word but the first has eight digits.
    mask = int("".join(word.rjust(8, "0") for word in words), 16)
    return tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Return the shortest list of the numbers: (0, 1, 2, 8) is "0-2,8"."""
    pieces: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if pieces and cpu == pieces[-1][1] + 1:
            pieces[-1][1] = cpu
        else:
            pieces.append([cpu, cpu])
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in pieces)


def utc(seconds: float | None = None) -> str:
    """Return a time as records have it, 2026-11-03T14:05:00Z. seconds: since 1970; None for now."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
