"""Text that is safe to print, and values as text: control characters, lengths and units."""

import re
from typing import Any

from mlbackends.base.patterns import UNFIT

_COMMAND = re.compile(r"^([^\S\n]*)(::)|##\[", re.MULTILINE)
_LONGEST_LINE = 2000
#: An integer with more bits cannot be converted to float; our own reports have none.
_MOST_BITS = 1000


def cleaned(text: str) -> str:
    """Return the text with each character that cannot or must not be shown replaced by U+FFFD."""
    return UNFIT.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return the text cleaned and on one line."""
    return cleaned(" ".join(text.split()))


def joined(*phrases: str) -> str:
    """Return the phrases that are not empty, on one line."""
    return " · ".join(filter(None, phrases))


def shortened(text: str, most: int) -> str:
    """Return the text; of one longer than `most`, its beginning and its length."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text):,} characters in all)"


def without_commands(text: str, dot: str = "·") -> str:
    """Return lines that GitHub's runner does not execute as commands: a dot breaks such a line.

    The runner takes "::" at the beginning of a line, after any blanks, and "##[" anywhere;
    a report's text may hold both, and wrapping puts any word at the beginning.
    """
    return _COMMAND.sub(lambda found: f"{found[1]}{dot}::" if found[2] else f"##{dot}[", text)


def log_line(text: str) -> str:
    """Return the text on one line, which neither a terminal nor GitHub's runner takes for a command."""
    return without_commands(one_line(shortened(text, _LONGEST_LINE)))


def amount(name: str, value: Any) -> str:
    """Return a fact's value for people: bytes and hertz by the unit in the fact's name, lists joined."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return quantity(name, value)
    if isinstance(value, list):
        return ", ".join(amount(name, each) for each in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {amount(str(key), each)}" for key, each in value.items()) or "none"
    return str(value)


def setting(value: Any, unset: str = "unset") -> str:
    """Return a switch's value as it is written, lists joined. unset: the word for no value."""
    if isinstance(value, list):
        return ", ".join(map(setting, value))
    text = unset if value is None else str(value)
    return text.lower() if isinstance(value, bool) else text


def quantity(name: str, value: float) -> str:
    """Return a number with the unit that its fact's name ends in."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"{'-' if value < 0 else ''}2^{value.bit_length() - 1} or beyond"
    if name.endswith("_bytes"):
        return binary_size(value)
    if name.endswith("_hertz") and value >= 1000:
        for scale, unit in ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz")):
            if value >= scale:
                return f"{value / scale:.4g} {unit}"
    if name.endswith("_seconds"):
        return f"{value:.4g} s"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def binary_size(value: float) -> str:
    """Return bytes as KiB, MiB, GiB or TiB with at most four digits."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if value >= 1024**power:
            return f"{value / 1024**power:.4g} {unit}"
    return f"{value:g} B"
