"""Attention backends: how fast they are over the length of the keys, and below the machine's roof."""

from collections.abc import Sequence

from mlbackends.model.benched import Benched, BenchedProblem
from mlbackends_cli.charts.axes import MARGIN, Frame, short_number
from mlbackends_cli.charts.svg import Colours, Drawing

_TOP, _FOOT = 40.0, 44.0
_LENGTHS_TALL, _ROOF_TALL = 190.0, 260.0
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
    drawing.words(x + 2, y + 14, problems[0].kind, width - 4, "small")
    all_lengths = sorted({max(each.length, 1) for each in problems})
    corners = (x + MARGIN, y + _TOP, x + width - 10, y + _TOP + _LENGTHS_TALL)
    frame = Frame(drawing, corners, all_lengths, slowest_and_fastest)
    marks: list[float] = []  # those lengths whose numbers have room beside each other
    for length in all_lengths:
        if not marks or frame.across.at(length) - frame.across.at(marks[-1]) >= _MARKS_APART:
            marks.append(length)
    frame.grid(("length of the keys", "GFLOP/s"), marks)
    for name in dict.fromkeys(name for each in problems for name in speeds(each)):
        found = sorted(
            (each.length, speeds(each)[name]) for each in problems if name in speeds(each)
        )
        kind = colours.of(name)
        points = [frame.at(max(length, 1), speed) for length, speed in found]
        drawing.line(points, f"{kind} line")
        for (length, speed), point in zip(found, points, strict=True):
            hint = f"{name} at {length}: {short_number(speed)} GFLOP/s"
            drawing.circle(*point, 4, f"{kind} dot", hint)
    return _TOP + _LENGTHS_TALL + _FOOT


def machine_roof(
    drawing: Drawing, benched: Benched, colours: Colours, place: tuple[float, float], width: float
) -> float:
    """Draw every measurement below the measured peak and bandwidth; return how tall it is."""
    points = [
        (problem.checked.flops / problem.least_bytes, speed, backend, problem.checked.text)
        for problem in benched.problems
        if problem.least_bytes
        for backend, speed in speeds(problem).items()
    ]
    if not points:
        return 0.0
    peaks = [each.checked.peak_gflops for each in benched.problems if each.checked.peak_gflops]
    peak = max(peaks, default=0.0)
    traffic = (benched.bandwidth_bytes_per_second or 0.0) / 1e9
    x, y = place
    drawing.words(x + 2, y + 14, "below the measured peak and bandwidth", width - 4, "small")
    corners = (x + MARGIN, y + _TOP, x + width - 10, y + _TOP + _ROOF_TALL)
    corner = [peak / traffic] if peak and traffic else []
    top = [peak] if peak else []
    frame = Frame(
        drawing,
        corners,
        [*(each[0] for each in points), *corner],
        [*(each[1] for each in points), *top],
    )
    frame.grid(("operations a byte of inputs and result", "GFLOP/s"))
    if corner:
        hint = f"{short_number(peak)} GFLOP/s, {short_number(traffic)} GB/s"
        frame.roof(frame.across.ends(), peak, traffic, hint)
    for intensity, gflops, backend, text in points:
        hint = f"{backend}, {text}: {short_number(gflops)} GFLOP/s"
        drawing.circle(*frame.at(intensity, gflops), 4, f"{colours.of(backend)} dot", hint)
    return _TOP + _ROOF_TALL + _FOOT


def speeds(problem: BenchedProblem) -> dict[str, float]:
    """Return GFLOP/s of each backend that was timed."""
    return {
        each.backend: each.timing.gflops
        for each in problem.checked.results
        if each.timing is not None and each.timing.gflops > 0
    }
