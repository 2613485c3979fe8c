"""How fast attention backends are over the length of the keys: one plot for each kind of problem."""

from collections.abc import Sequence

from mlbackends.model.benched import BenchedProblem
from mlbackends_cli.picture.svg import Drawing
from mlbackends_cli.plots.colours import Colours
from mlbackends_cli.plots.scale import MARGIN, Logarithmic, amount, grid

_TOP, _FOOT, _TALL = 40.0, 44.0, 190.0
_MARKS_APART = 44.0


def lengths(
    drawing: Drawing,
    problems: Sequence[BenchedProblem],
    colours: Colours,
    place: tuple[float, float],
    width: float,
    slowest_and_fastest: tuple[float, float],
) -> float:
    """Draw the plot of one kind at a place; return how tall it is.

    problems: all of that kind. slowest_and_fastest: in GFLOP/s, the same for all plots beside it.
    """
    x, y = place
    frame = (x + MARGIN, y + _TOP, x + width - 10, y + _TOP + _TALL)
    drawing.words(x + 2, y + 14, problems[0].kind, width - 4, "small")
    across = _axis([max(each.length, 1) for each in problems], frame[0], frame[2])
    up = _axis(slowest_and_fastest, frame[3], frame[1])
    drawing.box(frame[0], frame[1], frame[2] - frame[0], _TALL, "plot")
    marks = _apart(sorted({max(each.length, 1) for each in problems}), across)
    grid(drawing, across, up, frame, ("length of the keys", "GFLOP/s"), marks)
    names = dict.fromkeys(name for each in problems for name in speeds(each))
    for name in names:
        found = sorted(
            (each.length, speeds(each)[name]) for each in problems if name in speeds(each)
        )
        places = [(across.at(max(length, 1)), up.at(speed)) for length, speed in found]
        kind = colours.of(name)
        drawing.path("M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places), f"{kind} line")
        for (length, speed), (a, b) in zip(found, places, strict=True):
            dot(drawing, a, b, kind, f"{name} at {length}: {amount(speed)} GFLOP/s")
    return _TOP + _TALL + _FOOT


def dot(drawing: Drawing, x: float, y: float, kind: str, said: str) -> None:
    """Draw a small circle that says what it is."""
    step = f"M{x - 4:.1f} {y:.1f}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"
    drawing.path(step, f"{kind} dot", said)


def _axis(numbers: Sequence[float], start: float, end: float) -> Logarithmic:
    return Logarithmic(min(numbers), max(numbers), start, end)


def _apart(numbers: Sequence[int], across: Logarithmic) -> list[float]:
    """Return those lengths whose numbers have room beside each other."""
    found: list[float] = []
    for length in numbers:
        if not found or across.at(length) - across.at(found[-1]) >= _MARKS_APART:
            found.append(length)
    return found


def speeds(problem: BenchedProblem) -> dict[str, float]:
    """Return GFLOP/s of each backend that was timed."""
    return {
        each.backend: each.timing.gflops
        for each in problem.checked.results
        if each.timing is not None and each.timing.gflops > 0
    }
