"""A feature file of node-feature-discovery: labels of a Kubernetes node, for an hour.

    backends info --format nfd     facts, the cards and the fingerprint
    backends doctor --format nfd   how bad the worst problem of the node and of the user is, each code that
                                   failed, and the fingerprint

Write it into features.d by --output, which renames a whole file. What is older than an hour is ignored there.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from mlbackends.fleet import fingerprint
from mlbackends.model.audit import Outcome, Problem, Severity, Status
from mlbackends.model.records import Report
from mlbackends_cli.report import checks
from mlbackends_cli.report.checks import features, moment, word
from mlbackends_cli.terminal import Page

FOR_COLLECTORS = True
_NAMESPACE = "feature.node.kubernetes.io/"
_HOURS = 1
#: Of a file of more than 65,536 none is read.
_MOST_BYTES = 60_000
_LONGEST_NAME = 63


def report(report: Report, _page: Page) -> str:
    """Return what a node can be chosen by."""
    return _file(report.created, report.tool, features(report).items())


def outcome(outcome: Outcome, _page: Page) -> str:
    """Return what is wrong with a node."""
    labels = []
    for problem in Problem:
        own = [check for check in outcome.checks if check.problem is problem]
        failed_levels = [check.severity.level for check in own if check.status is Status.FAILED]
        worst = str([*Severity][max(failed_levels)]) if failed_levels else "none"
        # A note does not outdo what could not be determined.
        if worst in ("none", "note") and any(check.status is Status.UNKNOWN for check in own):
            worst = "unknown"
        if own:
            labels.append((f"{problem}-problem", worst))
    if outcome.fingerprints:
        labels.append(("fingerprint", word(fingerprint.whole(outcome.fingerprints))))
    failed: dict[str, str] = {}
    for check in outcome.failed():
        failed.setdefault(f"failed.{word(checks.code(check))}", str(check.severity))
    return _file(outcome.created, outcome.tool, [*labels, *failed.items()])


def _file(created: str, tool: str, labels: Iterable[tuple[str, str]]) -> str:
    """Return a file that holds from when the machine was looked at; without that time it never does."""
    date = moment(created)
    try:
        end = (date or datetime.fromtimestamp(0, UTC)).astimezone(UTC) + timedelta(hours=_HOURS)
    except OverflowError:
        end = datetime.fromtimestamp(0, UTC)
    lines = [f"# by {checks.line(tool)}", f"# +expiry-time={end:%Y-%m-%dT%H:%M:%SZ}"]
    size = 0
    for name, value in labels:
        text = f"{_NAMESPACE}backends.{name}={value}"
        size += len(text) + 1
        if len(name) + len("backends.") > _LONGEST_NAME:
            lines.append(f"# too long for a label: {text}")
        elif size > _MOST_BYTES:
            lines.append("# and more, which exceed the size of the file")
            break
        else:
            lines.append(text)
    return "\n".join([*lines, ""])
