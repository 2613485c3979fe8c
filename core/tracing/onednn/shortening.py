"""oneDNN's lines cut to what repeats, fast: all between the stamp and the time."""

_ZERO, _NINE = b"09"
_AFTER_FORMAT = len("onednn_verbose,v1,")
_FORMAT = ord("v")
_NUMBER = b"0123456789.e+-"
_UNTIMED = b"\n"
"""Ends the key of a line without time: no other key can be the same."""


def shorten(line: bytes) -> tuple[bytes, float | None] | None:
    """Return the line without stamp and time, and the time in nanoseconds.

    A line that ends in no number is whole but for its stamp, and has no time.
    """
    key, _, time = line.rpartition(b",")
    duration: float | None
    # float() takes more than C prints, such as "nan" and "1_0".
    if time and not time.translate(None, _NUMBER):
        try:
            duration = float(time) * 1e6
        except ValueError:
            return None
    else:
        key, duration = line + _UNTIMED, None
    try:
        # No word that can stand behind the marker has a digit at this column, but for a stamp.
        if _ZERO <= line[_AFTER_FORMAT] <= _NINE:
            start = line.find(b",") + 1
            if line[start] == _FORMAT:
                start = _AFTER_FORMAT
            key = key[:start] + key[key.find(b",", start) + 1 :]
    except IndexError:
        return None
    return key, duration
