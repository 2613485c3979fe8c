"""Numbers, sizes, words and lists of CPUs as the kernel writes them, within what a report can hold."""

import re
from collections.abc import Iterable

from mlbackends.host.host import to_int
from mlbackends.model.patterns import pattern

LARGEST = (1 << 63) - 1

_FASTEST_CLOCK = 20_000_000_000
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = pattern(r"\s*([0-9]{1,19})(?:\.[0-9]+)?\s*([BKMGT]?)(?:i?B)?\s*", re.IGNORECASE)
_ITEM = pattern(r"([0-9]{1,6})(?:-([0-9]{1,6}))?(?::([0-9]{1,6})/([0-9]{1,6}))?")

_MASK_WORD = pattern(r"[0-9a-f]{1,8}", re.IGNORECASE)


def whole_number(text: str, lowest: int = 0, highest: int = LARGEST) -> int | None:
    """Return a decimal or 0x number from `lowest` to `highest`; None for all else."""
    number = to_int(text)
    return number if number is not None and lowest <= number <= highest else None


def size_in_bytes(text: str) -> int | None:
    """Return "48K", "24684096 kB", "2 MB" or "4096" in bytes; None if it is none of these.

    K and kB are both 1024, as the kernel has them.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    size = int(match[1]) * _UNITS[match[2].upper()]
    return size if size <= LARGEST else None


def hertz(text: str, unit: int) -> int | None:
    """Return a frequency in hertz; None for zero, nonsense and what no clock reaches.

    text: a number with or without a fraction ("2299.998"). unit: how many hertz one of it is.
    """
    match = re.match(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(?:[kMG]?Hz)?\s*$", text)
    if match is None:
        return None
    frequency = round(float(match[1]) * unit)
    return frequency if 0 < frequency < _FASTEST_CLOCK else None


def one_line(text: str, longest: int = 400) -> str:
    """Return a text's first line without what cannot be printed, cut at `longest` characters."""
    line = text[: 4 * longest].strip().partition("\n")[0]
    shown = [sign for sign in line if sign.isprintable() and sign != "\ufffd"]
    return "".join(shown[:longest]).strip()


def word(text: str) -> str:
    """Return a name such as a driver's; "" for what is no such name, and for "none"."""
    name = text.strip()
    return name if re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,62}", name) and name != "none" else ""


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


HIGHEST = 16384
"""No kernel numbers this many CPUs; a list that names a higher one is garbage there."""


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the numbers of a list, sorted, each once; what is no number or range is left out.

    Understands "0-3,8" and strides ("0-31:2/4" is 0, 1, 4, 5, 8, ...), as the kernel's bitmap lists
    have them.
    """
    found: set[int] = set()
    named = 0
    for item in text[: 16 * HIGHEST].replace(",", " ").split():
        match = _ITEM.fullmatch(item)
        if match is None:
            continue
        low, high, taken, period = (int(part) if part else None for part in match.groups())
        assert low is not None
        high = low if high is None else high
        if not low <= high < HIGHEST or taken == 0 or (taken or 0) > (period or 0):
            continue
        cpus = range(low, high + 1)
        if taken and period:
            found.update(cpu for cpu in cpus if (cpu - low) % period < taken)
        else:
            found.update(cpus)
        named += len(cpus)
        if named > 4 * HIGHEST:  # a list that names everything over and over is garbage
            break
    return tuple(sorted(found))


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
