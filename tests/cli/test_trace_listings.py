"""The views of a trace as tables: what they say, at any width, and in Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.base import registry
from mlbackends.tracing import reader, viewing
from mlbackends.tracing.viewing import REGISTRY, view
from mlbackends_cli.terminal import Page
from mlbackends_cli.trace.listings import listing, narrowed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlbackends.model.trace import Record
    from mlbackends.model.trace_views import Difference

TRACES = Path(__file__).resolve().parents[1] / "traces"
LOGS = sorted(path.name for path in TRACES.glob("*.log"))


def table(log: str, name: str, width: int = 160, **options: Any) -> str:
    found = view(name, reader.read(str(TRACES / log)), **options)
    page = Page(width=width, terminal=True)
    return str(registry.load("mlbackends_cli.formats", "table").listing(listing(found), page))


@pytest.mark.parametrize("name", registry.names(REGISTRY))
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("width", [40, 200])
def test_every_view_of_every_log_is_a_table(log: str, name: str, width: int) -> None:
    text = table(log, name, width)
    assert text.endswith("\n")
    assert max(len(line) for line in text.splitlines()) <= width


def test_a_summary_shows_times_shares_and_rates() -> None:
    text = table("torch-2.13-onednn-level2.log", "summary", by=("operation",), top=2)
    lines = text.splitlines()
    assert lines[0].split()[:5] == ["operation", "calls", "time", "share", "cumulative"]
    assert lines[1].split()[:8] == ["matmul", "5", "2.25", "ms", "39%", "39%", "449", "us"]
    assert lines[3].startswith("7 more")
    assert "not counted: primitive creations: 36 lines, 4.46 ms" in text


def difference(before: Iterable[Record], after: Iterable[Record], **options: Any) -> Difference:
    collector: Any = viewing.begin("diff", **options)
    for records, trace in ((before, collector.before), (after, collector)):
        for record in records:
            trace.add(record)
    found: Difference = collector.result()
    return found


def test_a_difference_shows_what_is_slower_first() -> None:
    before, after = (
        reader.read(str(TRACES / f"torch-2.13-onednn-{name}.log")) for name in ("level2", "all-timestamp")
    )
    shown = listing(difference(before, after))
    assert shown.groups[0].title == "slower (3)"
    assert shown.marked == {(0, 0), (0, 1), (0, 2)}
    assert shown.columns[-4:] == ("before", "after", "ratio", "implementation")


def test_a_difference_tells_the_direction_behind_the_operation_even_on_a_narrow_page() -> None:
    log = str(TRACES / "torch-2.13-onednn-level2.log")
    found = difference(reader.read(log), reader.read(log))
    shown = listing(found, everything=True)
    assert shown.columns[:4] == ("tracer", "call", "shape", "dtype")
    calls = [row[1] for group in shown.groups for row in group.rows]
    assert {"convolution bia fwd_t", "convolution bwd_d", "convolution bwd_w"} <= set(calls)
    rows = [row for group in narrowed(shown, Page(width=80)).groups for row in group.rows]
    assert "convolu… bwd_w" in {row[0].strip() for row in rows}
    by_operation = difference(reader.read(log), reader.read(log), by=("operation",))
    assert listing(by_operation).columns[0] == "operation"
