"""Elements of a page. Whatever comes from a report passes through `escaped` here, and nowhere else."""

from collections.abc import Iterable, Mapping
from html import escape

from mlbackends.model.reasons import Reason
from mlbackends_cli import catalogue
from mlbackends_cli.plain import cleaned, shortened
from mlbackends_cli.verdict import MARKS, MEANINGS, columns

_MOST_CHARACTERS = 4000
_MOST_ROWS = 200


def escaped(text: str) -> str:
    """Return text as HTML, whatever is in it, and not endlessly long."""
    return escape(cleaned(shortened(text, _MOST_CHARACTERS)))


def element(tag: str, *inside: str, kind: str = "", **attributes: str) -> str:
    """Return an element. inside: HTML, not text; kind: its class."""
    given = {"class": kind, **attributes} if kind else attributes
    told = "".join(f' {name.replace("_", "-")}="{escaped(value)}"' for name, value in given.items())
    return f"<{tag}{told}>{''.join(inside)}</{tag}>"


def words(tag: str, text: str, kind: str = "") -> str:
    """Return an element with text in it."""
    return element(tag, escaped(text), kind=kind)


def section(anchor: str, title: str, *inside: str) -> str:
    """Return a part of the page with its heading; "" where there is nothing in it."""
    if not any(inside):
        return ""
    return element("section", words("h2", title), *inside, id=anchor) + "\n"


def badge(state: str) -> str:
    """Return the word for how far something got; its mark is not read out."""
    mark = element("span", escaped(MARKS[state]), aria_hidden="true")
    name = "could not tell" if state == "unknown" else state
    return element("span", mark, " ", escaped(name), kind=f"badge {state}", title=MEANINGS[state])


def reasons(given: Iterable[Reason]) -> str:
    """Return reasons as a list, each with its code and what to do."""
    items = [element("li", reason(one)) for one in given]
    return element("ul", *items, kind="reasons") if items else ""


def reason(one: Reason) -> str:
    """Return one reason: its sentence, its code, and what to do."""
    hint = words("div", one.hint, "hint") if one.hint else ""
    return f"{escaped(one.message)} {words('code', f'[{one.code}]', 'dim')}{hint}"


def plain_table(head: Iterable[str], body: Iterable[Iterable[str]], kind: str = "") -> str:
    """Return a table whose cells are elements already."""
    titles = "".join(element("th", escaped(title), scope="col") for title in head)
    rows = "".join(element("tr", *cells) for cells in body)
    top = element("thead", element("tr", titles)) if titles else ""
    return element("table", top, element("tbody", rows), kind=kind)


def records(title: str, rows: list[dict[str, object]]) -> str:
    """Return a fact that is a list of records, as a table of its own."""
    names = columns(rows)[:40]
    body = [
        [words("td", catalogue.amount(name, row[name]) if name in row else "") for name in names]
        for row in rows[:_MOST_ROWS]
    ]
    more = len(rows) - _MOST_ROWS
    rest = words("p", f"and {more} more; --format json has all", "dim") if more > 0 else ""
    return words("h3", title) + element("div", plain_table(names, body), rest, kind="wide")


def known(rows: Mapping[str, object]) -> str:
    """Return names and values as a table of two columns."""
    body = [
        [
            element("th", words("code", name), scope="row"),
            words("td", catalogue.amount(name, value)),
        ]
        for name, value in rows.items()
    ]
    return plain_table((), body, "facts") if body else ""
