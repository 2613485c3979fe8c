"""Text that may hold anything, made fit to be shown: no control characters, and not too long."""

import re

_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, which XML forbids and terminals obey
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what turns the direction of writing around
    "\ud800-\udfff\ufeff\ufffe\uffff]"  # halves of characters, and what is none
)


def cleaned(text: str) -> str:
    """Return the text with each character that cannot or must not be shown replaced by U+FFFD."""
    return _UNFIT.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return the text cleaned and on one line."""
    return cleaned(" ".join(text.split()))


def shortened(text: str, most: int) -> str:
    """Return the text, or its beginning and how long it is where it is longer than `most`."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text):,} characters in all)"


def without_commands(text: str, dot: str = "·") -> str:
    """Return lines of which none is a command to GitHub's runner: what would make one has a dot in it.

    The runner takes "::" at the beginning of a line, behind any blanks, and "##[" wherever it stands;
    a report's text may hold both, and wrapping puts any word at the beginning.
    """
    return _COMMAND.sub(lambda found: f"{found[1]}{dot}::" if found[2] else f"##{dot}[", text)


_COMMAND = re.compile(r"^([^\S\n]*)(::)|##\[", re.MULTILINE)
