"""HTML pages and their elements. All text from a report is escaped here, and nowhere else."""

import base64
import hashlib
import os
import re
from collections.abc import Iterable
from html import escape

from mlbackends_cli.text.plain import cleaned, shortened

_SEPARATOR = re.compile(r"(?<=[/_-])(?=\w)")
_MOST_CHARACTERS = 4000
#: The CSS class of a severity; other words are their own class.
SEVERITIES = {"error": "high", "warning": "medium"}


def escaped(text: str) -> str:
    """Return text as HTML, whatever is in it, and not endlessly long."""
    return escape(cleaned(shortened(text, _MOST_CHARACTERS))).replace("\n", "&#10;")


def breakable(text: str) -> str:
    """Return text with possible line breaks after the separators of a path or a name."""
    return _SEPARATOR.sub("<wbr>", escaped(text))  # no entity has one of them


def element(tag: str, *inside: str, kind: str = "", **attributes: str) -> str:
    """Return an element. inside: HTML, not text; kind: its class."""
    everything = {"class": kind, **attributes} if kind else attributes
    pairs = (f' {name.replace("_", "-")}="{escaped(value)}"' for name, value in everything.items())
    return f"<{tag}{''.join(pairs)}>{''.join(inside)}</{tag}>"


def words(tag: str, text: str, kind: str = "") -> str:
    """Return an element with text in it."""
    return element(tag, escaped(text), kind=kind)


def section(anchor: str, title: str, *inside: str) -> str:
    """Return a section of the page with its heading; "" if it is empty."""
    if not any(inside):
        return ""
    return element("section", words("h2", title), *inside, id=anchor) + "\n"


def items(kind: str, *inside: str) -> str:
    """Return a list of items, which are HTML already; "" if there are none."""
    return element("ul", *(element("li", child) for child in inside), kind=kind) if inside else ""


def table(
    head: Iterable[str],
    body: Iterable[Iterable[str]],
    kind: str = "",
    *,
    numbers: Iterable[str] = (),
    caption: str = "",
) -> str:
    """Return a table whose cells are elements already; "" without rows.

    numbers: titles of further columns, which are aligned to the right.
    """
    rows = "".join(element("tr", *cells) for cells in body)
    if not rows:
        return ""
    titles = [element("th", escaped(title), scope="col") for title in head]
    titles += [element("th", escaped(title), kind="number", scope="col") for title in numbers]
    top = element("thead", element("tr", *titles)) if titles else ""
    name = words("caption", caption) if caption else ""
    return element("table", name, top, element("tbody", rows), kind=kind)


def bar(share: float, kind: str, text: str, **attributes: str) -> str:
    """Return a cell with a bar of a relative length, and the number that it shows.

    kind: the classes of the bar, of which "unstable" is also the number's.
    """
    width = f"{100 * min(1.0, max(0.0, share)):.1f}%"
    boxes = element("rect", kind="track", width="100%", height="100%")
    boxes += element("rect", kind=kind, width=width, height="100%")
    drawn = element("svg", boxes, kind="bar", aria_hidden="true")
    number = words("span", text, "unstable" if "unstable" in kind.split() else "")
    return element("td", drawn, number, kind="barred", **attributes)


def scrolled(content: str, title: str) -> str:
    """Return what may be wider than the page, in a box that scrolls, by keys too."""
    return element("div", content, kind="wide", role="group", tabindex="0", aria_label=title)


def row(name: str, *cells: str) -> list[str]:
    """Return the cells of a row: its name, and elements."""
    return [element("th", words("code", name), scope="row"), *cells]


def severity_badge(severity: str) -> str:
    """Return a severity in its colour and with its sign."""
    return words("span", severity, f"severity {SEVERITIES.get(severity, severity)}")


def finding(severity: str, message: str, code: str, *inside: str) -> str:
    """Return an item of a list of findings: severity, observation, code, and further text."""
    return element(
        "li",
        severity_badge(severity),
        words("strong", message),
        " ",
        words("code", f"[{code}]", "dim"),
        *inside,
        kind=f"is-{SEVERITIES.get(severity, severity)}",
    )


def folded(
    title: Iterable[str], *inside: str, anchor: str = "", is_open: bool = False, **attributes: str
) -> str:
    """Return a part that opens and closes. attributes: of the part itself."""
    # The anchor is inside, so that browsers unfold the part when they go to it.
    body = element("div", *inside, kind="inside", **({"id": anchor} if anchor else {}))
    everything = {**attributes, **({"open": ""} if is_open else {})}
    return element("details", element("summary", *title), body, **everything) + "\n"


def header(title: str, about: Iterable[str], numbers: Iterable[tuple[str, str]] = ()) -> str:
    """Return the head of a page: its title, a line about it, and numbers with what they are of."""
    line = words("p", " · ".join(filter(None, about)), "sub")
    return element("header", words("h1", title), line, key_numbers(numbers)) + "\n"


def key_numbers(numbers: Iterable[tuple[str, str]], kind: str = "key") -> str:
    """Return boxes of numbers with what they are of; "" for none. kind: "key small" for small ones."""
    boxes = [element("div", words("b", number), words("span", noun)) for number, noun in numbers]
    return element("div", *boxes, kind=kind) if boxes else ""


def footer(values: dict[str, str], *inside: str) -> str:
    """Return the end of a page: names and values, without empty ones."""
    rows = [words("dt", name) + words("dd", value) for name, value in values.items() if value]
    return element("footer", *inside, element("dl", *rows)) + "\n"


def document(title: str, body: str, styles: Iterable[str], script: str = "") -> str:
    """Return a whole page. styles, script: names of files in this folder; title: any text."""
    style = "\n".join(_file(f"{name}.css") for name in styles)
    code = _file(f"{script}.js") if script else ""
    # The policy allows only our script and style: injected text would not run.
    policy = {"style-src": style, "script-src": code}
    allowed = [
        f"{kind} 'sha256-{(base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())}'"
        for kind, text in policy.items()
        if text
    ]
    policy_text = "; ".join(["default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"])
    end = f"<script>{code}</script>\n" if code else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(policy_text)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escaped(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{body}{end}</body>\n</html>\n"
    )


def _file(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read().strip()
