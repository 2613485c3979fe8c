"""JSON Lines: each line stands alone."""

from __future__ import annotations

import msgspec
from running import backends

from mlbackends.base import registry
from mlbackends.model.records import Presence, ProbeReport, Report
from mlbackends_cli.terminal import Page


def test_each_line_says_where_it_comes_from() -> None:
    probes = {name: ProbeReport(Presence.FOUND) for name in ("cpu", "mkl")}
    origin = ("backends 1.2.3", Presence.FOUND, "/", "2026-01-02T03:04:05Z", 0.5, True)
    report = Report("backends.report/1", *origin, probes)

    text = registry.load("mlbackends_cli.formats", "jsonl").report(report, Page())

    first, second = (msgspec.json.decode(line) for line in text.splitlines())
    assert first == {
        "schema": "backends.report/1",
        "probe": "cpu",
        "tool": "backends 1.2.3",
        "depth": "found",
        "root": "/",
        "created": "2026-01-02T03:04:05Z",
        "redacted": True,
        "presence": "found",
    }
    assert list(first)[:2] == ["schema", "probe"]
    assert second == {**first, "probe": "mkl"}


def test_the_command_prints_them() -> None:
    (line,) = backends("info", "host", "--depth", "found", "--format", "jsonl").stdout.splitlines()

    assert msgspec.json.decode(line)["tool"].startswith("backends ")
