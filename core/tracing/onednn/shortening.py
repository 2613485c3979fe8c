"""oneDNN's lines cut to what repeats, fast: all between the stamp and the time."""

_ZERO, _NINE = b"09"
_AFTER_FORMAT = len("onednn_verbose,v1,")


def shorten(line: bytes) -> tuple[bytes, float] | None:
    """Return the line without stamp and time, and the time in nanoseconds; None without a time.

    No word that can stand behind the marker has a digit at the columns looked at, but for a stamp.
    """
    key, _, time = line.rpartition(b",")
    try:
        duration = float(time) * 1e6
        stamped = _ZERO <= line[_AFTER_FORMAT] <= _NINE
    except (ValueError, IndexError):
        return None
    if stamped:
        start = line.find(b",") + 1
        if line[start] == ord("v"):
            start = _AFTER_FORMAT
        key = key[:start] + key[key.find(b",", start) + 1 :]
    return key, duration
