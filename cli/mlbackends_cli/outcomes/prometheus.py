"""Prometheus text, for node_exporter's textfile collector: `--output DIR/backends.prom` from a timer.

No sample has a time of its own: the collector refuses a whole file for one. Every series says which
run it is of, so that the files of several runs can lie side by side.
"""

from collections.abc import Iterable
from datetime import datetime

from mlbackends.audit.reports import LIVE, name_of
from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends_cli import checks
from mlbackends_cli.terminal import Page

_Series = dict[tuple[tuple[str, str], ...], float]
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def outcome(outcome: Outcome, page: Page) -> str:
    """Return the families of one run."""
    del page
    run = _run(outcome)
    families = (
        (
            "backends_check_failed",
            "1 where a check failed, 0 where it passed; one that does not apply or is unknown is absent.",
            _failed(outcome, run),
        ),
        (
            "backends_check_unknown",
            "1 for a check that could not be told; the others are absent.",
            {(*run, _code(each)): 1.0 for each in outcome.with_status(Status.UNKNOWN)},
        ),
        (
            "backends_checks",
            "How many checks ended so.",
            {
                (*run, ("status", str(status))): float(len(outcome.with_status(status)))
                for status in Status
            },
        ),
        (
            "backends_findings",
            "How many checks of a severity failed.",
            {
                (*run, ("severity", str(severity))): float(
                    sum(each.severity is severity for each in outcome.failed())
                )
                for severity in Severity
            },
        ),
        (
            "backends_outcome_info",
            "What judged, and by which schema; the value is always 1.",
            {(*run, _label("tool", outcome.tool), _label("schema", outcome.schema)): 1.0},
        ),
        (
            "backends_last_run_timestamp_seconds",
            "When what was judged was recorded; on a live machine, when the check ran.",
            {run: seconds} if (seconds := _seconds(outcome.created)) is not None else {},
        ),
    )
    return "".join(_family(*each) for each in families)


def _run(outcome: Outcome) -> tuple[tuple[str, str], ...]:
    """Return the labels that every series of a run has."""
    subject = "" if outcome.subject == name_of(LIVE) else outcome.subject
    told = _label("kind", outcome.kind), _label("title", outcome.title), _label("subject", subject)
    return tuple(each for each in told if each[1])


def _failed(outcome: Outcome, run: tuple[tuple[str, str], ...]) -> _Series:
    """Return one series a code: a hazard that is there twice is one, with its worst severity."""
    codes: dict[tuple[str, str], list[Check]] = {}
    for check in outcome.checks:
        if check.status in (Status.PASSED, Status.FAILED, Status.WAIVED):
            codes.setdefault(_code(check), []).append(check)
    series: _Series = {}
    for code, told in codes.items():
        failed = [each for each in told if each.status is Status.FAILED]
        waived = [each for each in told if each.status is Status.WAIVED]
        worst = max((failed or waived or told), key=lambda each: each.severity.rung)
        labels = (
            ("severity", str(worst.severity)),
            ("waived", "true" if waived and not failed else "false"),
        )
        series[*run, code, *labels] = float(bool(failed or waived))
    return series


def _code(check: Check) -> tuple[str, str]:
    return _label("code", check.code)


def _label(name: str, value: str) -> tuple[str, str]:
    return name, checks.line(value)


def _seconds(created: str) -> float | None:
    try:
        moment = datetime.fromisoformat(created)
        return moment.timestamp() if moment.tzinfo else None
    except (ValueError, OverflowError, OSError):
        return None


def _family(name: str, meaning: str, series: _Series) -> str:
    if not series:
        return ""
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
    lines += [f"{name}{{{_labels(labels)}}} {value:.15g}" for labels, value in series.items()]
    return "\n".join([*lines, ""])


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels)
