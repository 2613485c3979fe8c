"""MKL's lines cut to what repeats, fast: the addresses in them change from call to call.

Two thirds of a line's cost is its addresses. Programs that reuse their buffers print the same ones
again, so calls already seen are kept whole. Where a program does not, the addresses at least stand
at the same columns as in the last call that began alike, so the columns between them are compared.
That cannot confuse two calls: the columns hold each comma and each "0x" around every address, and
calls that begin alike have the same number of arguments.
"""

import re
from collections.abc import Callable
from operator import itemgetter

from mlbackends.tracing.mkl.fft import is_absurd

_ADDRESS = re.compile(rb"(?<!\d)0x([0-9a-fA-F]+)")
_LONG = re.compile(rb"-?\d{10,}")
_UNITS = {b"ns": 1.0, b"us": 1e3, b"ms": 1e6}
_LIMIT = 20_000
Key = tuple[bytes, bytes]


def shortener() -> Callable[[bytes], tuple[Key, float] | None]:
    """Return a function that cuts lines and remembers what it has seen, at most about 15 MB of it."""
    whole: dict[bytes, bytes] = {}
    columns: dict[bytes, Callable[[bytes], tuple[bytes, ...]]] = {}
    between: dict[tuple[bytes, ...], bytes] = {}

    def masked(call: bytes) -> bytes:
        at = call.find(b"0x")
        if at < 0:
            return _LONG.sub(_doubted, call)
        head = call[:at]
        cut = columns.get(head)
        if cut is not None:
            found = between.get(cut(call))
            if found is not None:
                return found
        result = _LONG.sub(_doubted, _ADDRESS.sub(b"0x*", call))
        if len(between) >= _LIMIT or len(columns) >= _LIMIT:
            between.clear()
            columns.clear()
        cut = columns[head] = _columns(call)
        between[cut(call)] = result
        return result

    def shorten(line: bytes) -> tuple[Key, float] | None:
        call, _, rest = line.rpartition(b") ")
        time, _, state = rest.partition(b" ")
        try:
            duration = float(time[:-2]) * _UNITS[time[-2:]]
        except (ValueError, KeyError):
            return None
        key = whole.get(call)
        if key is None:
            key = masked(call)
            if len(whole) >= _LIMIT:
                whole.clear()
            whole[call] = key
        return (key, state), duration

    return shorten


def _columns(call: bytes) -> Callable[[bytes], tuple[bytes, ...]]:
    """Return a function that takes from a call what stands between its addresses, as a tuple."""
    ends = [0]
    for found in _ADDRESS.finditer(call):
        ends += found.span(1)
    slices = [slice(start, stop) for start, stop in zip(ends[::2], ends[1::2], strict=False)]
    return itemgetter(*slices, slice(ends[-1], None))


def _doubted(found: re.Match[bytes]) -> bytes:
    return b"?" if is_absurd(found[0].decode()) else found[0]
