"""Prometheus text, for node_exporter's textfile collector: `--output DIR/backends.prom` from a timer.

Samples have no timestamps: the collector rejects a file that has one. Every series has the labels
of its run, so that the files of several runs can lie side by side.
"""

from contextlib import suppress

from mlbackends.audit.reports import LIVE, name_of
from mlbackends.fleet import fingerprint
from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends_cli.report import checks
from mlbackends_cli.report.checks import moment
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.exposition import Labels, exposition

FOR_COLLECTORS = True


def outcome(outcome: Outcome, _page: Page) -> str:
    """Return the families of one run."""
    subject = "" if outcome.subject == name_of(LIVE) else outcome.subject
    labels = (("kind", outcome.kind), ("title", outcome.title), ("subject", subject))
    run = tuple((name, line) for name, value in labels if (line := checks.line(value)))
    failed = outcome.failed()
    unknown = outcome.with_status(Status.UNKNOWN)
    info = (("tool", checks.line(outcome.tool)), ("schema", checks.line(outcome.schema)))
    prints = dict(outcome.fingerprints)
    if prints:
        prints["machine"] = fingerprint.whole(outcome.fingerprints)
    time: dict[Labels, float] = {}
    with suppress(OverflowError, OSError):
        time = {(): date.timestamp()} if (date := moment(outcome.created)) else {}
    families: dict[str, dict[Labels, float]] = {
        "backends_check_failed": _failed(outcome),
        "backends_check_unknown": {(("code", checks.code(check)),): 1 for check in unknown},
        "backends_checks": {
            (("status", str(status)),): len(outcome.with_status(status)) for status in Status
        },
        "backends_findings": {
            (("severity", str(severity)),): sum(check.severity is severity for check in failed)
            for severity in Severity
        },
        "backends_fingerprint_info": {
            (("probe", checks.line(name)), ("fp", value)): 1 for name, value in prints.items()
        },
        "backends_outcome_info": {info: 1},
        "backends_last_run_timestamp_seconds": time,
    }
    return exposition(families, run)


def _failed(outcome: Outcome) -> dict[Labels, float]:
    """Return one series per code: a hazard that occurs twice is one, with its worst severity."""
    codes: dict[tuple[str, str], list[Check]] = {}
    for check in outcome.checks:
        if check.status in (Status.PASSED, Status.FAILED, Status.WAIVED):
            codes.setdefault(("code", checks.code(check)), []).append(check)
    series: dict[Labels, float] = {}
    for code, own_checks in codes.items():
        failed = [check for check in own_checks if check.status is Status.FAILED]
        waived = [check for check in own_checks if check.status is Status.WAIVED]
        worst = max((failed or waived or own_checks), key=lambda each: each.severity.level)
        is_waived = "true" if waived and not failed else "false"
        labels: Labels = (code, ("severity", str(worst.severity)), ("waived", is_waived))
        if worst.problem:
            labels = (*labels, ("problem", str(worst.problem)))
        series[labels] = bool(failed or waived)
    return series
