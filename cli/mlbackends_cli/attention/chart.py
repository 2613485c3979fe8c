"""A run of `sdpa bench` as one picture: speed over the length of the keys, and a roofline."""

from collections.abc import Callable, Sequence

from mlbackends.base.errors import counted
from mlbackends.model.benched import Benched, BenchedProblem
from mlbackends.model.checked import Ended, Timing
from mlbackends.sdpa.verify.outcome import summary
from mlbackends_cli.attention.tables import hardware_of
from mlbackends_cli.charts.plot import Plot, Point, Roof, Series, notes, short_number
from mlbackends_cli.charts.svg import Colours, Drawing, draw_plot, style_alone
from mlbackends_cli.text.plain import joined

#: The shape of a slide. More problems make it taller.
_WIDTH, _HEIGHT, _EDGE = 960.0, 540.0, 14.0
_LEAST_TALL = 196.0
#: Maximum number of kinds of problems that are drawn.
_MOST, _MOST_NOTES = 12, 6


def plots(benched: Benched) -> list[Plot]:
    """Return a plot of speed over length for each kind of problem, and rooflines below measured peaks."""
    kinds: dict[str, list[BenchedProblem]] = {}
    for problem in benched.problems:
        kinds.setdefault(problem.kind, []).append(problem)
    speeds = [point.gflops for problem in benched.problems for point in _timed(problem).values()]
    ends = (min(speeds), max(speeds)) if speeds else ()
    found = [
        Plot(
            title=joined(
                f"Speed by length of {short_title(kind)}"
                if len({problem.length for problem in problems}) > 1
                else f"Speed of {short_title(problems[0].checked.text)}",
                _place(problems, benched),
            ),
            across="length of the keys",
            up="GFLOP/s",
            series=_series(problems, lambda each: float(max(1, each.length)), missing=True),
            marks=tuple(float(max(1, problem.length)) for problem in problems),
            ends=ends,  # of all plots alike
        )
        for kind, problems in list(kinds.items())[:_MOST]
    ]
    moving: dict[str, list[BenchedProblem]] = {}
    for problem in benched.problems:
        if problem.least_bytes and _timed(problem):
            moving.setdefault(problem.checked.place, []).append(problem)
    rooflines = (_roofline(problems, benched, len(moving) > 1) for problems in moving.values())
    return [*found, *(plot for plot in rooflines if plot.roof)]


def _place(problems: Sequence[BenchedProblem], benched: Benched) -> str:
    return problems[0].checked.place or benched.processor


def _roofline(problems: Sequence[BenchedProblem], benched: Benched, is_named: bool) -> Plot:
    """Return a roofline plot of one device, without a roof if its peak was not measured.

    is_named: with the name of the device.
    """
    peaks = [problem.checked.peak_gflops for problem in problems if problem.checked.peak_gflops]
    speeds = problems[0].checked.speeds
    rate = speeds.bandwidth_bytes_per_second if speeds else benched.bandwidth_bytes_per_second
    traffic = (rate or 0.0) / 1e9
    roof = Roof(max(peaks), traffic, "measured here") if peaks and traffic else None
    place = f" · {_place(problems, benched)}" if is_named else ""
    return Plot(
        title=f"Roofline: below the measured peak and bandwidth{place}",
        across="FLOP per byte of inputs and result",
        up="GFLOP/s",
        series=_series(problems, lambda each: each.checked.flops / each.least_bytes),
        roof=roof,
        joined=False,
    )


def short_title(kind: str) -> str:
    """Return the words of a kind of problem without their leading dashes."""
    shape, *words = kind.removeprefix("--shape ").split(" --")
    return " · ".join((shape, *(word.removeprefix("dtype ") for word in words)))


def _series(
    problems: Sequence[BenchedProblem],
    place: Callable[[BenchedProblem], float],
    missing: bool = False,
) -> tuple[Series, ...]:
    """Return the backends of some problems, each with its points by their place."""
    points: dict[str, list[Point]] = {}
    without: dict[str, list[tuple[float, str]]] = {}
    for problem in sorted(problems, key=place):
        timed = _timed(problem)
        for result in problem.checked.results:
            points.setdefault(result.backend, [])
            if timing := timed.get(result.backend):
                rate = f"{short_number(timing.gflops)} GFLOP/s"
                hint = f"{result.backend}, {problem.checked.text}: {rate}"
                point = Point(place(problem), timing.gflops, hint, hollow=bool(timing.unstable))
                points[result.backend].append(point)
            elif missing:
                why = "; ".join(reason.message for reason in result.reasons) or str(result.ended)
                if result.ended is Ended.RAN:
                    why = "it was not timed" if result.right else f"wrong: {summary(result)}"
                without.setdefault(result.backend, []).append((place(problem), why))
    return tuple(Series(name, tuple(own), tuple(without.get(name, ()))) for name, own in points.items())


def _timed(problem: BenchedProblem) -> dict[str, Timing]:
    """Return the times that count, by backend: those of right answers."""
    return {
        result.backend: result.timing
        for result in problem.checked.results
        if result.timing is not None and result.timing.gflops > 0 and result.right
    }


def picture(benched: Benched) -> str:
    """Return the picture as SVG, light or dark as its reader's screen."""
    return sheet(benched, style_alone())


def sheet(benched: Benched, style: str = "") -> str:
    """Return all plots on one sheet of a slide's shape, or taller. style: those of a standalone picture."""
    found = plots(benched)
    texts = notes(found)
    hidden = len({problem.kind for problem in benched.problems}) - _MOST
    texts += [f"and {counted(hidden, 'more kind')} of problems"] if hidden > 0 else []
    if len(texts) > _MOST_NOTES:
        texts = [*texts[: _MOST_NOTES - 1], f"and {len(texts) - _MOST_NOTES + 1} more"]
    room = _WIDTH - 2 * _EDGE
    tall = Drawing().notes(texts, 0, room)
    across = 1 if len(found) == 1 else 2 if len(found) <= 4 else 3
    down = max(1, -(-len(found) // across))
    row = max(_LEAST_TALL, (_HEIGHT - 66 - tall - 14) / down)
    height = max(_HEIGHT, 66 + down * row + tall + 14)
    drawing = Drawing()
    drawing.box(0, 0, _WIDTH, height, "paper")
    title = f"Attention on {hardware_of(benched)}"
    drawing.words(_EDGE, 32, title, room, "headline")
    how = f"medians of {counted(benched.rounds, 'round')} in turn, higher is better"
    drawing.words(_EDGE, 53, f"{how} · {benched.tool} · {benched.created}", room, "axis")
    colours = Colours(series.name for plot in found for series in plot.series if series.points)
    column = (_WIDTH - _EDGE) / across
    for number, plot in enumerate(found):
        # The last one gets the remaining width of its row.
        span = across - number % across if number == len(found) - 1 else 1
        place = _EDGE + number % across * column, 66 + number // across * row
        draw_plot(drawing, plot, colours, place, (span * column - _EDGE, row - 8))
    drawing.notes(texts, height - tall - 10, _WIDTH - _EDGE, _EDGE)
    names = ", ".join(dict.fromkeys(curve.name for plot in found for curve in plot.series))
    about = f"{counted(len(benched.problems), 'problem')}, {names}. {' '.join(texts)}"
    return drawing.document("sdpa", _WIDTH, height, title, about, style)
