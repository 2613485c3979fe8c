"""The views of a trace as text: tables that fit the page, Markdown, JSON, rows for programs."""

from collections.abc import Mapping

from msgspec.structs import replace

from mlbackends.model import registry
from mlbackends.model.trace_views import (
    AnyView,
    Difference,
    DispatchView,
    Findings,
    Repro,
    Roofline,
    Summary,
    Timeline,
)
from mlbackends_cli.listing import Group, Listing
from mlbackends_cli.terminal import Page
from mlbackends_cli.trace_narrowing import narrowed

_TITLES = {
    "findings": "Look at",
    "dispatch": "Why not faster",
    "timeline": "When",
    "roofline": "Work against traffic",
    "repro": "To run again",
    "summary": "Where the time went",
}
_UNBROKEN = 100_000


def printed(
    views: Mapping[str, AnyView], form: str, page: Page, top: int = 0, *, everything: bool = False
) -> str:
    """Return views in one of the formats table, markdown, json, jsonl and csv.

    top: so many rows a group at most, in tables; 0 is all. everything: unchanged calls too.
    Several views have titles, in JSON names.
    """
    if form == "json":
        return _json(views)
    if form in ("jsonl", "csv"):
        from mlbackends_cli import trace_rows

        as_text = trace_rows.as_csv if form == "csv" else trace_rows.as_json_lines
        return "".join(as_text(view) for view in views.values())
    parts = []
    for name, view in views.items():
        text = _listed(view, form, page, top, everything=everything)
        parts.append(f"{_title(name, form, page)}\n{text}" if len(views) > 1 else text)
    return "\n".join(parts)


def _title(name: str, form: str, page: Page) -> str:
    title = _TITLES[name]
    if form == "markdown":
        return f"## {title}\n"
    return f"\033[1m{title}\033[0m" if page.color else title


def _json(views: Mapping[str, AnyView]) -> str:
    import msgspec

    from mlbackends_cli.trace_rows import as_json

    whole = next(iter(views.values())) if len(views) == 1 else dict(views)
    return msgspec.json.format(as_json(whole).encode(), indent=2).decode()


def _listed(view: AnyView, form: str, page: Page, top: int, *, everything: bool) -> str:
    from mlbackends_cli.trace_listings import listing, verdict

    made = listing(view, everything=everything)
    if isinstance(view, DispatchView | Timeline | Difference):
        made = shortened(made, top)
    elif isinstance(view, Findings):
        made = _first_groups(made, top)
    if form == "table" and isinstance(view, Summary | Roofline | Difference):
        made = narrowed(made, page)
    if isinstance(view, Difference):  # whoever looks at the end only sees how it ended
        made = replace(made, notes=(*made.notes, verdict(view)))
    if isinstance(view, Repro):  # what is to be copied stands on lines of its own length
        page = replace(page, width=_UNBROKEN)
    text: str = registry.load("mlbackends_cli.render", form).listing(made, page)
    return text.lstrip("\n")


def shortened(listing: Listing, top: int) -> Listing:
    """Leave so many rows in each group, and say how many more there are; 0 leaves all."""
    most = max((len(group.rows) for group in listing.groups), default=0)
    if not top or most <= top + 1:
        return listing
    groups = tuple(replace(group, rows=_first(group, top)) for group in listing.groups)
    return replace(listing, groups=groups, notes=(*listing.notes, "--top 0 shows all rows"))


def _first_groups(listing: Listing, top: int) -> Listing:
    left = len(listing.groups) - top
    if not top or left <= 0:
        return listing
    notes = (*listing.notes, f"{left:,} more; --top 0 shows all")
    return replace(listing, groups=listing.groups[:top], notes=notes)


def _first(group: Group, top: int) -> tuple[tuple[str, ...], ...]:
    left = len(group.rows) - top
    if left <= 1:  # a row that says so would be as long
        return group.rows
    rest = ("", *("" for _ in group.rows[0][1:]))
    return (*group.rows[:top], (f"{left:,} more", *rest[1:]))
