"""Attention backends below the roof of this machine: GFLOP/s against operations a byte."""

from mlbackends.model.benched import Benched
from mlbackends_cli.picture.svg import Drawing
from mlbackends_cli.plots.colours import Colours
from mlbackends_cli.plots.lengths import dot
from mlbackends_cli.plots.scale import MARGIN, Logarithmic, amount, grid

_TOP, _FOOT, _TALL = 40.0, 44.0, 260.0


def machine_roof(
    drawing: Drawing, benched: Benched, colours: Colours, place: tuple[float, float], width: float
) -> float:
    """Draw every measurement below the measured peak and bandwidth; return how tall it is."""
    points = [
        (problem.checked.flops / problem.least_bytes, each.timing.gflops, each.backend, problem)
        for problem in benched.problems
        for each in problem.checked.results
        if each.timing is not None and each.timing.gflops > 0 and problem.least_bytes
    ]
    if not points:
        return 0.0
    peaks = [each.checked.peak_gflops for each in benched.problems if each.checked.peak_gflops]
    peak = max(peaks, default=0.0)
    traffic = (benched.bandwidth_bytes_per_second or 0.0) / 1e9
    x, y = place
    frame = (x + MARGIN, y + _TOP, x + width - 10, y + _TOP + _TALL)
    drawing.words(x + 2, y + 14, "below the measured peak and bandwidth", width - 4, "small")
    low, high = min(each[0] for each in points), max(each[0] for each in points)
    corner = [peak / traffic] if peak and traffic else []
    across = Logarithmic(min([low, *corner]), max([high, *corner]), frame[0], frame[2])
    speeds = [each[1] for each in points] + ([peak] if peak else [])
    up = Logarithmic(min(speeds), max(speeds), frame[3], frame[1])
    drawing.box(frame[0], frame[1], frame[2] - frame[0], _TALL, "plot")
    grid(drawing, across, up, frame, ("operations a byte of inputs and result", "GFLOP/s"))
    if peak and traffic:
        _roof(drawing, across, up, peak, traffic)
    for intensity, gflops, backend, problem in points:
        said = f"{backend}, {problem.checked.text}: {amount(gflops)} GFLOP/s"
        dot(drawing, across.at(intensity), up.at(gflops), colours.of(backend), said)
    return _TOP + _TALL + _FOOT


def _roof(
    drawing: Drawing, across: Logarithmic, up: Logarithmic, peak: float, traffic: float
) -> None:
    """Draw bytes a second as a slope, operations a second as a level."""
    ends = across.ends()
    corner = peak / traffic
    steps = [(ends[0], min(peak, ends[0] * traffic)), (corner, peak), (ends[1], peak)]
    path = "L".join(f"{across.at(a):.1f} {up.at(b):.1f}" for a, b in steps)
    drawing.path(f"M{path}", "roof", f"{amount(peak)} GFLOP/s, {amount(traffic)} GB/s")
