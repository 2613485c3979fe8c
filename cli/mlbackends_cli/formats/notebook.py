"""Notebooks: the page of a report, check or trace in a frame of its own, and its table as plain text.

No `--format`: `mlbackends.model.display` calls it. A frame keeps the page's styles from the notebook's,
and follows the notebook between light and dark, where the browser hands that on.
"""

from functools import singledispatch
from html import escape
from itertools import chain
from typing import Any

from mlbackends.model.checked import Checked
from mlbackends.model.records import Report
from mlbackends.sdpa.verify.outcome import outcome_of
from mlbackends.tracing import viewing
from mlbackends.tracing.aggregate import Aggregate
from mlbackends.tracing.machine import this_machine
from mlbackends.tracing.session.session import Session
from mlbackends_cli import formats
from mlbackends_cli.attention import check_table
from mlbackends_cli.terminal import Page
from mlbackends_cli.traces.listings import printed
from mlbackends_cli.web.trace_page import Contents, trace_page

_FRAME = """\
<style>
body[data-jp-theme-light=false] .mlbackends, .vscode-dark .mlbackends {{ color-scheme: dark }}
body[data-jp-theme-light=true] .mlbackends, .vscode-light .mlbackends {{ color-scheme: light }}
</style>
<iframe class="mlbackends" title="{title}" srcdoc="{page}" onload="this.style.height=\
Math.min(this.contentDocument.documentElement.scrollHeight + 4, 640) + 'px'"\
 style="width: 100%; height: 480px; border: 0; resize: vertical"></iframe>"""


def framed(thing: Any) -> str:
    """Return an object's page as HTML that can stand in another page."""
    return _FRAME.format(title=escape(thing.glance()), page=escape(_page(thing)))


@singledispatch
def plain(thing: Any) -> str:
    """Return an object's table."""
    return repr(thing)


@singledispatch
def _page(thing: Any) -> str:
    return f"<pre>{escape(plain(thing))}</pre>"


@plain.register
def _(report: Report) -> str:
    return formats.text("table", "report", report, Page(100))


@_page.register
def _(report: Report) -> str:
    return formats.text("html", "report", report, Page())


@plain.register
def _(checked: Checked) -> str:
    return check_table.printed(checked, Page(120))


@_page.register
def _(checked: Checked) -> str:
    return formats.text("html", "outcome", outcome_of(checked), Page(details=True))


@plain.register
def _(session: Session) -> str:
    return printed({"summary": session.summary()}, "table", Page(120), top=20)


@_page.register
def _(session: Session) -> str:
    contents = Contents(this_machine())
    for record in session:
        contents.add(record)
    return trace_page(contents.result(session.glance()))


@plain.register
def _(aggregate: Aggregate) -> str:
    views = viewing.from_aggregates([aggregate], {"summary": {}})
    return printed(views, "table", Page(120), top=20)


@_page.register
def _(aggregate: Aggregate) -> str:
    contents = Contents(this_machine())
    for group in chain(aggregate.groups, aggregate.notes):
        for each in contents.takers:
            if hasattr(each, "add_many"):  # the timeline needs the order of the calls
                each.add_many(group.record, group.count, group.durations)
    contents.text_lines = aggregate.texts
    return trace_page(contents.result(aggregate.glance()))
