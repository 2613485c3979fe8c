"""JSON lines: one object for each probe, with its name as "probe"."""

import msgspec

from mlbackends.cli.terminal import Page
from mlbackends.model.records import Report


def report(report: Report, page: Page) -> str:
    """Return one line a probe; the schema's name stands in each, so that lines can be mixed."""
    del page
    lines = [
        {"schema": report.schema, "probe": name, **msgspec.to_builtins(probe)}
        for name, probe in report.probes.items()
    ]
    return "\n".join(msgspec.json.encode(line).decode() for line in lines)
