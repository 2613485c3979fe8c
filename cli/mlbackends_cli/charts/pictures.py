"""A record drawn into a file: SVG, light or dark as its reader's screen, or PNG."""

import os
import re
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from mlbackends.base.errors import BadInput, shown
from mlbackends.base.version import install_command

Record = TypeVar("Record")

#: Pixels of a PNG for each of the drawing's, as many as a projector of 1920 has.
_ZOOM = 2.0
#: Families for those that only a desktop has: resvg takes no other for a family that is missing.
_FONTS = (
    'svg,text{font-family:"Arial","Helvetica","Liberation Sans","DejaVu Sans","Noto Sans","Roboto",'
    '"Segoe UI","Open Sans","Ubuntu","FreeSans",sans-serif}'
)
_WORD = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">'
    '<style>{}</style><text x="2" y="14">{}</text></svg>'
)
_INSTALL = f"{install_command('png')}, or write FILE.svg"
_NO_FONT = "install a font, such as Debian's fonts-dejavu-core, or write FILE.svg"


#: Draws a record as SVG, with the style rules of a standalone picture.
Sheet = Callable[[Record, str], str]


def drawing(path: str, sheet: Sheet[Record]) -> Callable[[Record], str | bytes]:
    """Return the function that draws a record for a file. Raises BadInput for an unknown image type."""
    ending = os.path.splitext(path)[1].lower()
    if ending == ".png":
        if (reason := why_no_png()) is not None:
            raise reason
        return partial(_photograph, sheet)
    if ending != ".svg" and path != "-":
        raise BadInput(
            f"{shown(path)} is not an image type that can be written", "use FILE.svg or FILE.png"
        )
    return lambda record: sheet(record, style_alone())


def why_no_png() -> BadInput | None:
    """Return why a PNG cannot be made here, None if it can.

    resvg makes it, which needs no browser and no library of the system, only a font.
    """
    try:
        import resvg_py
    except ImportError:
        return BadInput("PNG needs resvg-py, which is not installed", _INSTALL)
    # Without a font, resvg omits text silently.
    words = (_WORD.format(_FONTS, text) for text in ("", "font"))
    empty, word = (bytes(resvg_py.svg_to_bytes(svg_string=word)) for word in words)
    if empty == word:
        return BadInput("PNG needs a font, and no font is installed", _NO_FONT)
    return None


def _photograph(sheet: Sheet[Record], record: Record) -> bytes:
    """Return the picture as PNG, light."""
    import resvg_py

    # resvg knows no variables: the first value of each is the light one.
    rules = re.sub(r"@media[^}]*\}\}", "", style_alone())
    colours = dict(re.findall(r"(--\w+):(#\w+)", rules))
    svg = sheet(record, re.sub(r"var\((--\w+)\)", lambda found: colours[found[1]], rules))
    data = resvg_py.svg_to_bytes(
        svg_string=svg, style_sheet=_FONTS, zoom=_ZOOM, background=colours["--paper"]
    )
    return bytes(data)


def style_alone() -> str:
    """Return the style rules of a standalone picture."""
    texts = []
    for name in ("standalone.css", "charts.css"):
        with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
            texts.append(file.read())
    return re.sub(r"/\*.*?\*/", "", "".join(texts)).replace("\n", "")
