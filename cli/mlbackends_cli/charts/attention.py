"""A run of `sdpa bench` as one picture: speed over the length of the keys, and a roofline."""

import os
import re
from collections.abc import Callable, Sequence

from mlbackends.model.benched import Benched, BenchedProblem
from mlbackends.model.checked import Ended, Result, Timing
from mlbackends.model.errors import BadInput, counted, shown
from mlbackends_cli.attention.tables import where
from mlbackends_cli.charts.axes import short_number
from mlbackends_cli.charts.plot import Plot, Point, Roof, Series, notes
from mlbackends_cli.charts.svg import Colours, Drawing
from mlbackends_cli.charts.vector import Frame

_WIDTH, _HEIGHT, _EDGE = 960.0, 540.0, 14.0
"""The shape of a slide. More problems make it taller."""
_LEAST_TALL = 196.0
_MOST, _MOST_NOTES = 12, 6
"""So many kinds of problems are drawn; more would be a wall of pictures."""
_ZOOM = 2.0
"""Pixels of a PNG for each of the drawing's, as many as a projector of 1920 has."""
_FONTS = (
    'svg,text{font-family:"Arial","Helvetica","Liberation Sans","DejaVu Sans","Noto Sans","Roboto",'
    '"Segoe UI","Open Sans","Ubuntu","FreeSans",sans-serif}'
)
"""Families for those that only a desktop has: resvg takes no other for a family that is missing."""
_WORD = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">'
    '<style>{}</style><text x="2" y="14">{}</text></svg>'
)
_INSTALL = "pip install 'mlbackends[png]', or write FILE.svg"
_NO_FONT = "install a font, such as Debian's fonts-dejavu-core, or write FILE.svg"


# ---- what is drawn --------------------------------------------------------------------------


def plots(benched: Benched) -> list[Plot]:
    """Return a plot of speed over length for each kind of problem, and a roofline of all."""
    kinds: dict[str, list[BenchedProblem]] = {}
    for problem in benched.problems:
        kinds.setdefault(problem.kind, []).append(problem)
    speeds = [each.gflops for one in benched.problems for each in _timed(one).values()]
    ends = (min(speeds), max(speeds)) if speeds else ()
    found = [
        Plot(
            title=" · ".join(filter(None, (_what(kind, problems), _place(problems, benched)))),
            across="length of the keys",
            up="GFLOP/s",
            series=_series(problems, lambda each: float(max(1, each.length)), missing=True),
            marks=tuple(float(max(1, each.length)) for each in problems),
            ends=ends,  # of all plots alike
        )
        for kind, problems in list(kinds.items())[:_MOST]
    ]
    moving: dict[str, list[BenchedProblem]] = {}
    for problem in benched.problems:
        if problem.least_bytes and _timed(problem):
            moving.setdefault(problem.checked.place, []).append(problem)
    found += [_roofline(each, benched) for each in moving.values()]
    return found


def _place(problems: Sequence[BenchedProblem], benched: Benched) -> str:
    return problems[0].checked.place or benched.processor


def _roofline(problems: Sequence[BenchedProblem], benched: Benched) -> Plot:
    """Return the speeds of problems of one device over what they move."""
    peaks = [each.checked.peak_gflops for each in problems if each.checked.peak_gflops]
    speeds = problems[0].checked.speeds
    rate = speeds.bandwidth_bytes_per_second if speeds else benched.bandwidth_bytes_per_second
    traffic = (rate or 0.0) / 1e9
    roof = Roof(max(peaks), traffic, "measured here") if peaks and traffic else None
    limit = "below the measured peak and bandwidth" if roof else "the peak was not measured"
    return Plot(
        title=" · ".join(filter(None, (f"Roofline: {limit}", problems[0].checked.place))),
        across="FLOP per byte of inputs and result",
        up="GFLOP/s",
        series=_series(problems, lambda each: each.checked.flops / each.least_bytes),
        roof=roof,
        joined=False,
    )


def _what(kind: str, problems: Sequence[BenchedProblem]) -> str:
    """Return what a plot is of: one problem, or problems that differ in their length."""
    if len({each.length for each in problems}) == 1:
        return f"Speed of {short_title(problems[0].checked.text)}"
    return f"Speed by length of {short_title(kind)}"


def short_title(kind: str) -> str:
    """Return the words of a kind of problem without what says that they are options."""
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
        for each in problem.checked.results:
            points.setdefault(each.backend, [])
            if timing := timed.get(each.backend):
                rate = f"{short_number(timing.gflops)} GFLOP/s"
                hint = f"{each.backend}, {problem.checked.text}: {rate}"
                point = Point(place(problem), timing.gflops, hint, hollow=bool(timing.unstable))
                points[each.backend].append(point)
            elif missing:
                without.setdefault(each.backend, []).append((place(problem), _why(each)))
    return tuple(
        Series(name, tuple(found), tuple(without.get(name, ()))) for name, found in points.items()
    )


def _timed(problem: BenchedProblem) -> dict[str, Timing]:
    """Return the times that count, by backend: those of right answers."""
    return {
        each.backend: each.timing
        for each in problem.checked.results
        if each.timing is not None and each.timing.gflops > 0 and each.right
    }


def _why(result: Result) -> str:
    from mlbackends.sdpa.verify.outcome import summary

    if result.ended is Ended.RAN:
        return f"wrong: {summary(result)}" if not result.right else "it was not timed"
    return "; ".join(each.message for each in result.reasons) or str(result.ended)


# ---- as SVG and PNG -------------------------------------------------------------------------


def drawing(path: str) -> Callable[[Benched], str | bytes]:
    """Return what draws a run for a file of this name. Raises BadInput for a kind that nothing here draws."""
    ending = os.path.splitext(path)[1].lower()
    if ending == ".png":
        if (reason := why_no_png()) is not None:
            raise reason
        return _photograph
    if ending != ".svg" and path != "-":
        raise BadInput(f"{shown(path)} names no kind of picture", "say FILE.svg or FILE.png")
    return picture


def picture(benched: Benched) -> str:
    """Return the picture as SVG, light or dark as its reader's screen."""
    return sheet(benched, _style())


def why_no_png() -> BadInput | None:
    """Return why no PNG can be made here, None if it can.

    resvg makes it, which needs no browser and no library of the system, only a font.
    """
    try:
        import resvg_py
    except ImportError:
        return BadInput("a picture in PNG needs resvg-py, and that is not installed", _INSTALL)
    # Where no font is found, resvg leaves text out and says nothing.
    words = (_WORD.format(_FONTS, text) for text in ("", "font"))
    empty, word = (bytes(resvg_py.svg_to_bytes(svg_string=each)) for each in words)
    if empty == word:
        return BadInput("a picture in PNG needs a font, and none is installed", _NO_FONT)
    return None


def _photograph(benched: Benched) -> bytes:
    """Return the picture as PNG, light."""
    import resvg_py

    # resvg knows no variables: the first value of each is the light one.
    rules = re.sub(r"@media[^}]*\}\}", "", _style())
    colours = dict(re.findall(r"(--\w+):(#\w+)", rules))
    svg = sheet(benched, re.sub(r"var\((--\w+)\)", lambda found: colours[found[1]], rules))
    data = resvg_py.svg_to_bytes(
        svg_string=svg, style_sheet=_FONTS, zoom=_ZOOM, background=colours["--paper"]
    )
    return bytes(data)


def _style() -> str:
    """Return the rules of a picture that stands alone."""
    texts = []
    for name in ("standalone.css", "charts.css"):
        with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
            texts.append(file.read())
    return re.sub(r"/\*.*?\*/", "", "".join(texts)).replace("\n", "")


def sheet(benched: Benched, style: str = "") -> str:
    """Return all plots on one sheet of a slide's shape, or taller. style: of one that stands alone."""
    found = plots(benched)
    texts = notes(found)
    hidden = len({each.kind for each in benched.problems}) - _MOST
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
    title = f"Attention on {where(benched)}"
    drawing.words(_EDGE, 32, title, room, "headline")
    how = f"medians of {counted(benched.rounds, 'round')} in turn, higher is better"
    drawing.words(_EDGE, 53, f"{how} · {benched.tool} · {benched.created}", room, "axis")
    colours = Colours(series.name for plot in found for series in plot.series if series.points)
    column = (_WIDTH - _EDGE) / across
    for number, plot in enumerate(found):
        # The last one takes what is left of its row.
        span = across - number % across if number == len(found) - 1 else 1
        place = _EDGE + number % across * column, 66 + number // across * row
        Frame(drawing, plot, colours, place, (span * column - _EDGE, row - 8))
    drawing.notes(texts, height - tall - 10, _WIDTH - _EDGE, _EDGE)
    names = ", ".join(dict.fromkeys(each.name for plot in found for each in plot.series))
    about = f"{counted(len(benched.problems), 'problem')}, {names}. {' '.join(texts)}"
    text = drawing.document("sdpa", _WIDTH, height, title, about)
    if style:
        text = text.replace("><title", f' width="{_WIDTH:.0f}"><style>{style}</style><title', 1)
    return text
