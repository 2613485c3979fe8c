"""A run of `sdpa bench` as one picture: speed over the length of the keys, and a roofline."""

import os
import re
from collections.abc import Callable, Sequence

from mlbackends.model.benched import Benched, BenchedProblem
from mlbackends.model.errors import BadInput, counted, shown
from mlbackends_cli.charts.axes import MARGIN, Frame, short_number
from mlbackends_cli.charts.svg import Colours, Drawing

_WIDTH, _GAP = 960.0, 20.0
_TOP, _FOOT = 40.0, 44.0
_LENGTHS_TALL, _ROOF_TALL = 190.0, 260.0
_MARKS_APART = 44.0
_MOST = 12
"""So many kinds of problems are drawn; more would be a wall of pictures."""
_ZOOM = 2.0
"""Pixels of a PNG for each of the drawing's: letters of 11 pixels are hard to read on a screen of today."""
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
_FOLDER = os.path.dirname(os.path.dirname(__file__))


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
    light, dark = (f":root{{{';'.join(map(':'.join, each.items()))}}}" for each in _colours())
    return _document(benched, f"{light}@media (prefers-color-scheme:dark){{{dark}}}{_rules()}")


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

    light, _ = _colours()
    rules = re.sub(r"var\((--\w+)\)", lambda found: light[found[1]], _rules())
    svg, paper = _document(benched, rules), light["--paper"]
    data = resvg_py.svg_to_bytes(svg_string=svg, style_sheet=_FONTS, zoom=_ZOOM, background=paper)
    return bytes(data)


def _rules() -> str:
    return _text("charts", "attention.css").replace("\n", "")


def _colours() -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables of the rules as the pages have them, on a light and on a dark screen."""
    used = set(re.findall(r"--\w+", _rules()))
    light: dict[str, str] = {}
    dark: dict[str, str] = {}
    for file in ("page.css", "trace.css"):
        blocks = re.findall(r":root\{(.*?)\}", _text("web", file), re.DOTALL)
        for colours, block in zip((light, dark), blocks, strict=False):
            found = re.findall(r"(--[\w-]+):(#\w+)", block)
            colours.update((name, colour) for name, colour in found if name in used)
    return light, dark


def _text(*path: str) -> str:
    with open(os.path.join(_FOLDER, *path), encoding="utf-8") as file:
        return file.read()


def _document(benched: Benched, style: str) -> str:
    kinds: dict[str, list[BenchedProblem]] = {}
    for problem in benched.problems:
        kinds.setdefault(problem.kind, []).append(problem)
    names = dict.fromkeys(
        each.backend for one in benched.problems for each in one.checked.results if each.timing
    )
    colours = Colours(names)
    drawing = Drawing()
    y = 12.0 + colours.legend(drawing, 8, 12, _WIDTH - 16)
    all_speeds = [speed for one in benched.problems for speed in _speeds(one).values()] or [1.0]
    ends = (min(all_speeds), max(all_speeds))
    half = (_WIDTH - _GAP) / 2
    drawn = list(kinds.values())[:_MOST]
    for at in range(0, len(drawn), 2):
        width = half if len(drawn) > 1 else _WIDTH
        for number, each in enumerate(drawn[at : at + 2]):
            _draw_lengths(drawing, each, colours, (number * (half + _GAP), y), width, ends)
        y += _TOP + _LENGTHS_TALL + _FOOT
    y += _draw_roof(drawing, benched, colours, y)
    where = f"{benched.processor or 'this processor'}, {counted(benched.threads, 'thread')}"
    how = f"medians of {counted(benched.rounds, 'round')} in turn"
    notes = [f"{where}; {benched.tool}, {benched.created}; {how}"]
    if benched.bandwidth_by:
        notes.append(f"The dashed line is the measured peak, and {benched.bandwidth_by}.")
    if len(kinds) > _MOST:
        notes.append(f"and {len(kinds) - _MOST} more kinds of problems")
    y += drawing.notes(notes, y, _WIDTH)
    paper = Drawing()
    paper.box(0, 0, _WIDTH, y + 8, "paper")
    paper.add(drawing)
    summary = f"{counted(len(benched.problems), 'problem')}, {', '.join(names)}"
    text = paper.document("sdpa", _WIDTH, y + 8, "Speed of attention backends", summary)
    return text.replace("><title", f' width="{_WIDTH:.0f}"><style>{style}</style><title', 1)


def _draw_lengths(
    drawing: Drawing,
    problems: Sequence[BenchedProblem],
    colours: Colours,
    place: tuple[float, float],
    width: float,
    ends: tuple[float, float],
) -> None:
    """Draw the problems of one kind. ends: the lowest and highest GFLOP/s, of all plots alike."""
    x, y = place
    drawing.words(x + 2, y + 14, problems[0].kind, width - 4, "small")
    lengths = sorted({max(each.length, 1) for each in problems})
    corners = (x + MARGIN, y + _TOP, x + width - 10, y + _TOP + _LENGTHS_TALL)
    frame = Frame(drawing, corners, lengths, ends)
    marks: list[float] = []  # those lengths whose numbers have room beside each other
    for length in lengths:
        if not marks or frame.across.at(length) - frame.across.at(marks[-1]) >= _MARKS_APART:
            marks.append(length)
    frame.grid(("length of the keys", "GFLOP/s"), marks)
    found: dict[str, list[tuple[int, float]]] = {}
    for each in problems:
        for name, speed in _speeds(each).items():
            found.setdefault(name, []).append((each.length, speed))
    for name, measured in found.items():
        kind = colours.of(name)
        points = [frame.at(max(length, 1), speed) for length, speed in sorted(measured)]
        drawing.line(points, f"{kind} line")
        for (length, speed), point in zip(sorted(measured), points, strict=True):
            hint = f"{name} at {length}: {short_number(speed)} GFLOP/s"
            drawing.circle(*point, 4, f"{kind} dot", hint)


def _draw_roof(drawing: Drawing, benched: Benched, colours: Colours, y: float) -> float:
    """Draw every measurement below the measured peak and bandwidth; return how tall it is."""
    points = [
        (problem.checked.flops / problem.least_bytes, speed, backend, problem.checked.text)
        for problem in benched.problems
        if problem.least_bytes
        for backend, speed in _speeds(problem).items()
    ]
    if not points:
        return 0.0
    peaks = [each.checked.peak_gflops for each in benched.problems if each.checked.peak_gflops]
    peak = max(peaks, default=0.0)
    traffic = (benched.bandwidth_bytes_per_second or 0.0) / 1e9
    drawing.words(2, y + 14, "below the measured peak and bandwidth", _WIDTH - 4, "small")
    corners = (MARGIN, y + _TOP, _WIDTH - 10, y + _TOP + _ROOF_TALL)
    across, up = [each[0] for each in points], [each[1] for each in points]
    corner = [peak / traffic] if peak and traffic else []
    frame = Frame(drawing, corners, [*across, *corner], [*up, *([peak] if peak else [])])
    frame.grid(("operations a byte of inputs and result", "GFLOP/s"))
    if corner:
        hint = f"{short_number(peak)} GFLOP/s, {short_number(traffic)} GB/s"
        frame.roof(frame.across.ends(), peak, traffic, hint)
    for intensity, gflops, backend, text in points:
        hint = f"{backend}, {text}: {short_number(gflops)} GFLOP/s"
        drawing.circle(*frame.at(intensity, gflops), 4, f"{colours.of(backend)} dot", hint)
    return _TOP + _ROOF_TALL + _FOOT


def _speeds(problem: BenchedProblem) -> dict[str, float]:
    """Return GFLOP/s of each backend that was timed."""
    return {
        each.backend: each.timing.gflops
        for each in problem.checked.results
        if each.timing is not None and each.timing.gflops > 0
    }
