"""JSON: the whole report as one object, indented."""

from mlbackends.cli.output import indented
from mlbackends.cli.terminal import Page
from mlbackends.model.records import Report


def report(report: Report, page: Page) -> str:
    """Return the report; it validates against `backends schema report`."""
    del page
    return indented(report)
