"""Draw the pictures of the README and docs/ from what the commands print: ``make.py [--write]``.

The commands read machine descriptions and logs of this repository, so that they print the same everywhere.
info.json is the report of a real machine whose copy of cuBLAS lacks libcublasLt, and is only shown here.

Without --write, exit 1 where a picture is out of date. A terminal is drawn as SVG; the page of a trace is the
page itself, as far as one screen shows it. No picture holds a script or a font.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import msgspec
from msgspec.structs import replace

from mlbackends.audit.runner import examine
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.groups import fleet_of
from mlbackends.fleet.judging import Judge
from mlbackends.fleet.nodesets import expanded
from mlbackends.fleet.reader import Reader
from mlbackends.fleet.records import united
from mlbackends.model.records import Report
from mlbackends_cli.charts.svg import style_alone
from mlbackends_cli.fleet.page import sheet
from mlbackends_cli.formats import table
from mlbackends_cli.main import guarded_main
from mlbackends_cli.terminal import Page

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

import example_fleet  # noqa: E402

ROOT = FOLDER.parents[1]
LIVE = FOLDER / "info.json"
LOG = ROOT / "tests/traces/torch-2.13-onednn-level2.log"
COLUMNS = 100

# ---- a terminal ----------------------------------------------------------------------------------

CHARACTER, LINE, MARGIN = 8.4, 19, 18  # pixels; the size of the type is 14
STYLE = """\
:root{--paper:#fbfcfd;--line:#d0d7de;--ink:#1f2328;--dim:#656d76;--red:#b3201c;--green:#13692f;\
--yellow:#7d5200;--blue:#0b57a4;--cyan:#0a6272}
@media (prefers-color-scheme:dark){:root{--paper:#0f141a;--line:#30363d;--ink:#e6edf3;--dim:#8d96a0;\
--red:#ff7b72;--green:#56d364;--yellow:#e3b341;--blue:#79c0ff;--cyan:#56d4dd}}
rect{fill:var(--paper);stroke:var(--line)}
text{fill:var(--ink);font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;\
white-space:pre}
.s1{font-weight:700}.s2{fill:var(--dim)}.s31{fill:var(--red)}.s32{fill:var(--green)}
.s33{fill:var(--yellow)}.s34{fill:var(--blue)}.s36{fill:var(--cyan)}"""


class Piece(NamedTuple):
    """Text that stands at a column, in styles of the terminal by their numbers."""

    column: int
    text: str
    styles: tuple[str, ...]


def pieces(line: str) -> list[Piece]:
    """Return a line as what stands between its wider gaps and changes of style."""
    found: list[Piece] = []
    column, styles = 0, ()
    for part in re.split(r"(\033\[[\d;]*m| {2,})", line):
        if part.startswith("\033"):
            numbers = tuple(part[2:-1].split(";"))
            styles = () if numbers in {("0",), ("",)} else (*styles, *numbers)
            continue
        if part.strip():
            found.append(Piece(column, part, styles))
        column += len(part)
    return found


def terminal(command: str, printed: str) -> str:
    """Return the picture of a terminal in which a command was run."""
    lines = [f"\033[2m$\033[0m \033[1m{command}\033[0m", *printed.rstrip("\n").split("\n")]
    shown = [pieces(line) for line in lines]
    columns = max(COLUMNS, *(span.column + len(span.text) for line in shown for span in line))
    width = round(columns * CHARACTER) + 2 * MARGIN
    height = len(lines) * LINE + 2 * MARGIN
    texts = []
    for number, line in enumerate(shown):
        spans = []
        for span in line:
            names = " ".join(f"s{style}" for style in span.styles)
            kind = f' class="{names}"' if names else ""
            x = f"{MARGIN + span.column * CHARACTER:g}"
            spans.append(f'<tspan x="{x}"{kind}>{escape(span.text, quote=False)}</tspan>')
        if spans:
            texts.append(f'<text y="{MARGIN + number * LINE + 14}">{"".join(spans)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}">\n<title>{escape(command, quote=False)}</title>\n<style>{STYLE}</style>\n'
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>\n'
        + "\n".join(texts)
        + "\n</svg>\n"
    )


def printed_by(*arguments: str, columns: int = COLUMNS) -> str:
    """Return what a command prints on a terminal with colours, run at the root of this repository."""
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    plain = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    with (
        mock.patch.dict(os.environ, {**plain, "COLUMNS": str(columns)}, clear=True),
        contextlib.chdir(ROOT),
        contextlib.redirect_stdout(stream),
    ):
        guarded_main([*arguments])
    return bytes(stream.buffer.getvalue()).decode()


def in_terminal(*arguments: str, columns: int = COLUMNS, typed: str = "") -> str:
    """Return the picture of a command of `backends`; typed: what stands at the prompt instead of it."""
    printed = printed_by(*arguments, "--color", "always", columns=columns)
    return terminal(typed or " ".join(["backends", *arguments]), printed)


def live_report() -> str:
    """Return the picture of `backends info` on the machine whose report is in info.json."""
    report = msgspec.json.decode(LIVE.read_bytes(), type=Report)
    page = Page(width=COLUMNS, color=True, terminal=True)
    return terminal("backends info", table.report(report, page))


# ---- a page --------------------------------------------------------------------------------------

SCREEN = 1120, 900  # pixels
CAPITALS = {
    "viewbox": "viewBox",
    "preserveaspectratio": "preserveAspectRatio",
}  # HTML takes any, XML not
EMPTY = {"meta", "br", "hr", "img", "input", "link", "rect", "path", "line", "circle", "use", "wbr"}


class Body(HTMLParser):
    """Writes the body of a page as XML, without what lies below the screen."""

    def __init__(self, sections: int) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.style = ""
        self._sections, self._open = sections, [""]

    @property
    def _wanted(self) -> bool:
        return "body" in self._open and self._sections >= 0 and "title" not in self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        if tag == "section":
            self._sections -= 1
        if tag not in EMPTY:
            self._open.append(tag)
        if self._wanted:
            given = "".join(f' {CAPITALS.get(name, name)}="{escape(text or "")}"' for name, text in attrs)
            if tag == "svg" and "xmlns=" not in given:
                given += ' xmlns="http://www.w3.org/2000/svg"'
            self.parts.append(f"<{tag}{given}{'/' * (tag in EMPTY)}>")

    def handle_endtag(self, tag: str) -> None:
        """Close an element."""
        if tag in EMPTY:
            return
        if self._wanted or tag in {"main", "body"}:
            self.parts.append(f"</{tag}>")
        self._open.pop()

    def handle_data(self, data: str) -> None:
        """Take in text."""
        if self._open[-1] == "style":
            self.style += data
        elif self._wanted:
            self.parts.append(escape(data, quote=False))


def trace_page() -> str:
    """Return the first screen of the page that `backends trace show` writes."""
    page = printed_by("trace", "show", str(LOG), "--format", "html")
    page = re.sub(" · as of [^<]*", "", page)  # when this was run
    body = Body(sections=2)
    body.feed(page)
    # A picture on a phone is a small picture of the page, not the page of a phone.
    style = re.sub(r"\(max-width: ?\d+px\)", "(max-width:0)", body.style)
    style += f"body{{max-width:none!important;min-height:{SCREEN[1]}px;"
    style += "border:1px solid var(--line);border-radius:8px}"
    width, height = SCREEN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" style="width:{width}px;height:{height}px">\n'
        f"<title>backends trace show {LOG.name} --format html</title>\n"
        f"<style>{escape(style, quote=False)}</style>\n"
        f'<foreignObject width="{width}" height="{height}">'
        f'<div xmlns="http://www.w3.org/1999/xhtml">{"".join(body.parts)}</div></foreignObject>\n</svg>\n'
    )


# ---- a fleet -------------------------------------------------------------------------------------


def fleet_picture() -> str:
    """Return the picture that `backends fleet summarize --plot` draws of the nodes in example_fleet.py."""
    reader, judge = Reader(), Judge(examine)
    collection = Collection(expanded("node[001-064]"))
    for envelope in reader.read(line.encode() for line in example_fleet.lines()):
        if (name := collection.add(envelope)) in collection.nodes:
            judge.visit(name, envelope)
    summary = replace(fleet_of(collection), hazards=united(judge.hazards))
    return sheet(summary, style_alone()) + "\n"


# ---- all of them ---------------------------------------------------------------------------------

PICTURES = {
    "info": live_report,
    "info-windows": lambda: in_terminal(
        *("info", "--root", "tests/hosts/windows-threadripper-geforce.machine")
    ),
    "info-wine": lambda: in_terminal("info", "--root", "tests/hosts/wine.machine"),
    "doctor": lambda: in_terminal("doctor", "tests/hosts/mig-pod.machine"),
    "trace": trace_page,
    "fleet": fleet_picture,
}


def outdated(name: str, *, write: bool) -> bool:
    """Whether a picture is not what the commands print now; it is then written anew if `write`."""
    file = FOLDER / f"{name}.svg"
    picture = PICTURES[name]()
    if file.exists() and file.read_text("utf-8") == picture:
        return False
    if write:
        file.write_text(picture, "utf-8")
    return True


def main(*options: str) -> int:
    """Write or compare all pictures."""
    changed = [name for name in PICTURES if outdated(name, write="--write" in options)]
    print(*changed or ["nothing changed"], sep="\n")
    return bool(changed) and "--write" not in options


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
