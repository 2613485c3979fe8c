"""Notebooks: the page of a report, check or trace in a frame, and its table as plain text.

No `--format`: `mlbackends.base.display` calls it. A frame keeps the page's styles from the notebook's,
and follows the notebook between light and dark, where the browser hands that on.
"""

from html import escape
from typing import TYPE_CHECKING, Any

from mlbackends.host.host import Host
from mlbackends.host.redaction import names_of, redacted
from mlbackends.model.checked import Checked
from mlbackends.model.records import Report
from mlbackends.tracing import viewing
from mlbackends.tracing.machine import this_machine
from mlbackends.tracing.session import Session
from mlbackends.tracing.viewing import SavedTrace
from mlbackends_cli import formats
from mlbackends_cli.attention import tables
from mlbackends_cli.attention.page import check_page
from mlbackends_cli.terminal import Page
from mlbackends_cli.trace.listings import printed
from mlbackends_cli.trace.page import Contents, trace_page

if TYPE_CHECKING:
    from mlbackends.model.trace_views import AnyView

#: In an untrusted notebook, style and frame are removed, and only the table remains.
_FRAME = """\
<style>
body[data-jp-theme-light=false] .mlbackends, .vscode-dark .mlbackends {{ color-scheme: dark }}
body[data-jp-theme-light=true] .mlbackends, .vscode-light .mlbackends {{ color-scheme: light }}
pre.mlbackends {{ display: none }}
</style>
<iframe class="mlbackends" title="{title}" srcdoc='{page}' onload="this.style.height=\
Math.min(this.contentDocument.documentElement.scrollHeight + 4, 640) + 'px'"\
 style="width: 100%; height: 480px; border: 0; resize: vertical"></iframe>
<pre class="mlbackends">{table}</pre>"""


def framed(shown: Any) -> str:
    """Return an object's page as HTML that can be part of another page."""
    if isinstance(shown, Report):
        page = formats.text("html", "report", _without_names(shown), Page())
    elif isinstance(shown, Checked):
        page = check_page(shown, Page())
    else:
        contents = Contents(shown.glance(), this_machine())
        if isinstance(shown, Session):
            for record in shown:
                contents.add(record)
        else:
            shown.walk(contents.collectors)
        page = trace_page(contents)
    # A page is full of double quotes: in single ones it is a third smaller.
    page = page.replace("&", "&amp;").replace("'", "&#39;")
    return _FRAME.format(title=escape(shown.glance()), page=page, table=escape(plain(shown)))


def plain(shown: Report | Checked | Session | SavedTrace) -> str:
    """Return an object's table."""
    match shown:
        case Report():
            return formats.text("table", "report", _without_names(shown), Page(100))
        case Checked():
            return tables.check_text(shown, Page(120))
        case Session():
            views: dict[str, AnyView] = {"summary": shown.summary()}
        case SavedTrace():
            summary = viewing.begin("summary")
            shown.walk([summary])
            views = {"summary": summary.result()}
    return printed(views, "table", Page(120), top=20)


def _without_names(report: Report) -> Report:
    """Return the report as `backends info` shows it: notebooks are saved and shared."""
    return report if report.redacted else redacted(report, names_of(Host()))
