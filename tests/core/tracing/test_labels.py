"""Records know their log where several are read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.model.trace_views import Summary
from mlbackends.tracing.filters import where
from mlbackends.tracing.reader import records
from mlbackends.tracing.sources import joined_source, labels
from mlbackends.tracing.viewing import begin, views
from mlbackends.tracing.walk import Walk

LOG = Path(__file__).resolve().parents[2] / "traces" / "torch-2.13-onednn-level2.log"


@pytest.mark.parametrize(
    ("names", "called"),
    [
        (["a.log"], [""]),
        (["a.log", "a.log"], ["", ""]),
        (["a.log", "b.log"], ["a.log", "b.log"]),
        (["x/a.log", "y/b.log"], ["a.log", "b.log"]),
        (["x/a.log", "y/a.log", "b.log"], ["x/a.log", "y/a.log", "b.log"]),
        (["a.log", "b.log", "a.log"], ["a.log", "b.log", "a.log"]),
        (["-", "a.log"], ["standard input", "a.log"]),
        (["run-2026-11-21T16:35:59Z.log", "run-2026-11-21T16:36:00Z.log"],
         ["run-2026-11-21T16:35:59Z.log", "run-2026-11-21T16:36:00Z.log"]),
        ([], []),
    ],
)  # fmt: skip
def test_logs_are_called_by_their_shortest_distinct_names(names: list[str], called: list[str]) -> None:
    assert labels(names) == tuple(called)


@given(st.lists(st.text("ab/", min_size=1, max_size=4), max_size=6))
def test_different_logs_are_called_differently(names: list[str]) -> None:
    called = dict(zip(names, labels(names), strict=True))
    assert len(called) < 2 or len(set(called.values())) == len(called)


def test_a_rank_stands_behind_its_log() -> None:
    assert [joined_source(*pair) for pair in (("", ""), ("a", ""), ("", "0"), ("a", "0"))] == [
        *("", "a", "0", "a/0")
    ]


@pytest.mark.parametrize("expression", ["", "source=b.log/rank1", "source!=a.log"])
def test_logs_added_up_give_what_record_by_record_gives(expression: str) -> None:
    data = LOG.read_bytes()
    ranked = b"".join(b"[rank1]: " + line for line in data.splitlines(keepends=True)[::2])
    logs = {"a.log": data, "b.log": ranked + data[: len(data) // 2]}
    keep, asked = where(expression), {"summary": {"by": ("source", "operation")}}
    collector = begin("summary", by=("source", "operation"))
    walk = Walk([collector], keep)
    for name, text in logs.items():
        walk.add([text], name)
    added_up = collector.result()
    one_by_one = views(
        (record for name, text in logs.items() for record in records([text], log=name) if keep(record)),
        asked,
    )["summary"]
    assert isinstance(added_up, Summary)
    assert isinstance(one_by_one, Summary)
    assert {row.values: (row.count, row.median_ns) for row in added_up.rows} == {
        row.values: (row.count, row.median_ns) for row in one_by_one.rows
    }
    assert {row.values[0] for row in added_up.rows} <= {"a.log", "b.log", "b.log/rank1"}
    assert added_up.rows
