"""The kernel's lists of CPUs and nodes: "0-3,8,10-11" and back."""

from collections.abc import Iterable, Sequence

HIGHEST = 16384
"""No kernel numbers this many CPUs; a list that names a higher one is garbage there."""

_ENOUGH = 4 * HIGHEST


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the numbers of a list, sorted, each once; what is no number or range is left out.

    Understands "0-3,8" and strides ("0-31:2/4" is 0, 1, 4, 5, 8, ...), as the kernel's bitmap lists
    have them.
    """
    found: set[int] = set()
    named = 0
    for item in text[: 16 * HIGHEST].replace(",", " ").split():
        cpus = _item(item)
        found.update(cpus)
        named += len(cpus)
        if named > _ENOUGH:  # a list that names everything over and over is garbage
            break
    return tuple(sorted(found))


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Return the shortest list of the numbers: (0, 1, 2, 8) is "0-2,8"."""
    pieces: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if pieces and cpu == pieces[-1][1] + 1:
            pieces[-1][1] = cpu
        else:
            pieces.append([cpu, cpu])
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in pieces)


def _item(item: str) -> Sequence[int]:
    span, _, stride = item.partition(":")
    first, dash, last = span.partition("-")
    low = _number(first)
    high = _number(last) if dash else low
    if low is None or high is None or high < low:
        return ()
    if not stride:
        return range(low, high + 1)
    used, _, group = stride.partition("/")
    taken, period = _number(used), _number(group)
    if not taken or not period or taken > period:
        return ()
    return [cpu for cpu in range(low, high + 1) if (cpu - low) % period < taken]


def _number(text: str) -> int | None:
    # isdecimal alone would let other scripts' digits pass.
    if not (text.isascii() and text.isdecimal() and len(text) < len("1000000")):
        return None
    number = int(text)
    return number if number < HIGHEST else None
