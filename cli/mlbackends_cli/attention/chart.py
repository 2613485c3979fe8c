"""A run of `sdpa bench` as one picture: speed over length, and a roofline."""

import os
from collections.abc import Callable

from mlbackends.model.benched import Benched, BenchedProblem
from mlbackends.model.errors import BadInput, counted, shown
from mlbackends_cli.charts.attention import lengths, machine_roof, speeds
from mlbackends_cli.charts.svg import Colours, Drawing

_WIDTH = 960.0
_GAP = 20.0
_MOST = 12
"""So many kinds of problems are drawn; more would be a wall of pictures."""
_LIGHT = {
    "paper": "#fff", "ink": "#1c2128", "dim": "#59636e", "line": "#d5dae0", "soft": "#f3f5f8",
    "s0": "#2f6fb0", "s1": "#d1711b", "s2": "#2b8a66", "s3": "#a8508a", "s4": "#b59a00", "s5": "#4aa5c4",
    "s6": "#b5483a", "s7": "#6c5fb5", "other": "#8a939d",
}  # fmt: skip
_DARK = {
    "paper": "#14181d", "ink": "#e2e7ec", "dim": "#97a1ac", "line": "#353c45", "soft": "#1d232a",
    "s0": "#6ba4de", "s1": "#e9954a", "s2": "#56bb93", "s3": "#d084b6", "s4": "#d6bf45", "s5": "#74c6e2",
    "s6": "#e37f72", "s7": "#9f94e4", "other": "#7b858f",
}  # fmt: skip
_SERIES = [name for name in _LIGHT if name[0] == "s" and name != "soft"] + ["other"]
_RULES = """
svg{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;background:var(--paper)}
text{fill:var(--ink)}.small{font-size:11px}.bold{font-weight:600;font-size:13px}
.paper{fill:var(--paper)}.plot{fill:var(--soft)}.grid{fill:none;stroke:var(--line)}
.roof{fill:none;stroke:var(--dim);stroke-width:1.5;stroke-dasharray:5 4}
""".replace("\n", "")
_RULES += "".join(f".{each}{{fill:var(--{each});stroke:var(--{each})}}" for each in _SERIES)
_RULES += ".line{fill:none;stroke-width:2}.dot{stroke:var(--paper);stroke-width:1}"


def drawing(path: str) -> Callable[[Benched], str | bytes]:
    """Return what draws a run for a file of this name. Raises BadInput for a kind that nothing here draws."""
    ending = os.path.splitext(path)[1].lower()
    if ending == ".png":
        from mlbackends_cli.charts.png import why_not

        if (reason := why_not()) is not None:
            raise reason
        return photograph
    if ending != ".svg" and path != "-":
        raise BadInput(f"{shown(path)} names no kind of picture", "say FILE.svg or FILE.png")
    return picture


def picture(benched: Benched) -> str:
    """Return the picture as SVG, light or dark as its reader's screen."""
    dark = f"@media (prefers-color-scheme:dark){{:root{{{_variables(_DARK)}}}}}"
    return _document(benched, f":root{{{_variables(_LIGHT)}}}{dark}{_RULES}")


def photograph(benched: Benched) -> bytes:
    """Return the picture as PNG, light. Raises BadInput where this installation cannot make one."""
    from mlbackends_cli.charts.png import rendered

    rules = _RULES
    for name, colour in _LIGHT.items():
        rules = rules.replace(f"var(--{name})", colour)
    return rendered(_document(benched, rules), _LIGHT["paper"])


def _variables(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())


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
    all_speeds = [speed for one in benched.problems for speed in speeds(one).values()] or [1.0]
    range_of_all = (min(all_speeds), max(all_speeds))
    half = (_WIDTH - _GAP) / 2
    shown = list(kinds.values())[:_MOST]
    for at in range(0, len(shown), 2):
        pair = shown[at : at + 2]
        width = half if len(shown) > 1 else _WIDTH
        y += max(
            lengths(drawing, each, colours, (number * (half + _GAP), y), width, range_of_all)
            for number, each in enumerate(pair)
        )
    y += machine_roof(drawing, benched, colours, (0.0, y), _WIDTH)
    y += drawing.notes(_notes(benched, len(kinds)), y, _WIDTH)
    paper = Drawing()
    paper.box(0, 0, _WIDTH, y + 8, "paper")
    paper.add(drawing)
    summary = f"{counted(len(benched.problems), 'problem')}, {', '.join(names)}"
    text = paper.document("sdpa", _WIDTH, y + 8, "Speed of attention backends", summary)
    return text.replace("><title", f' width="{_WIDTH:.0f}"><style>{style}</style><title', 1)


def _notes(benched: Benched, kinds: int) -> list[str]:
    where = f"{benched.processor or 'this processor'}, {counted(benched.threads, 'thread')}"
    how = f"medians of {counted(benched.rounds, 'round')} in turn"
    found = [f"{where}; {benched.tool}, {benched.created}; {how}"]
    if benched.bandwidth_by:
        found.append(f"The dashed line is the measured peak, and {benched.bandwidth_by}.")
    if kinds > _MOST:
        found.append(f"and {kinds - _MOST} more kinds of problems")
    return found
