"""JSON: the whole report as one object, indented."""

from mlbackends.model.records import Report
from mlbackends_cli.output import indented
from mlbackends_cli.terminal import Page


def report(report: Report, page: Page) -> str:
    """Return the report; it validates against `backends schema report`."""
    del page
    return indented(report)
