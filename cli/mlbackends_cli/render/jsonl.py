"""JSON lines: one object for each probe, with its name as "probe"."""

import msgspec

from mlbackends.model.records import Report
from mlbackends_cli.terminal import Page


def report(report: Report, page: Page) -> str:
    """Return one line a probe; each says where it comes from, so that lines can be mixed."""
    del page
    origin = {
        name: msgspec.to_builtins(getattr(report, name))
        for name in ("tool", "depth", "root", "created", "redacted")
    }
    lines = [
        {"schema": report.schema, "probe": name, **origin, **msgspec.to_builtins(probe)}
        for name, probe in report.probes.items()
    ]
    return "\n".join(msgspec.json.encode(line).decode() for line in lines)
