"""An SVG drawing as PNG, by resvg: it needs no browser and no library of the system, only a font."""

from mlbackends.model.errors import BadInput

_ZOOM = 2.0
"""Pixels for each of the drawing's: letters of 11 pixels are hard to read on a screen of today."""
_FONTS = (
    "Arial",
    "Helvetica",
    "Liberation Sans",
    "DejaVu Sans",
    "Noto Sans",
    "Roboto",
    "Segoe UI",
    "Open Sans",
    "Ubuntu",
    "FreeSans",
)
"""Who stand for the families that only a desktop has: resvg asks no other for a family that is missing."""
_INSTALL = "pip install 'mlbackends[png]', or write FILE.svg"
_FONT = "install a font, such as Debian's fonts-dejavu-core, or write FILE.svg"
_WORD = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">'
    '<style>{}</style><text x="2" y="14">{}</text></svg>'
)


def why_not() -> BadInput | None:
    """Return why no PNG can be made here, None if it can."""
    try:
        import resvg_py
    except ImportError:
        return BadInput("a picture in PNG needs resvg-py, and that is not installed", _INSTALL)
    # Where no font is found, resvg leaves text out and says nothing.
    empty, word = (
        resvg_py.svg_to_bytes(svg_string=_WORD.format(_style(), text)) for text in ("", "font")
    )
    if bytes(empty) == bytes(word):
        return BadInput("a picture in PNG needs a font, and none is installed", _FONT)
    return None


def rendered(svg: str, background: str) -> bytes:
    """Return a drawing as the bytes of a PNG file. Raises BadInput where `why_not` tells why."""
    if (reason := why_not()) is not None:
        raise reason
    import resvg_py

    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=svg, style_sheet=_style(), zoom=_ZOOM, background=background
        )
    )


def _style() -> str:
    families = ",".join(f'"{each}"' for each in _FONTS)
    return f"svg,text{{font-family:{families},sans-serif}}"
