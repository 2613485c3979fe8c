"""What failed in one line of at most 80 bytes: for drain reasons, conditions of nodes, and statuses.

    [node_problem] nvidia-gpu-lost: GPU 3 does not answer (+2)
    [user_problem] openmp-two-runtimes: libgomp of numpy and libiomp5 of torch are ...
    unknown: 1 not checked, 60 passed: nvidia-gpu-lost: the report has no nvidia
    ok: 2 warnings, 61 passed

It has the worst finding that --fail-on counts; anything less is "ok", so that the line agrees with the exit
code. Tools match the reasons of drained nodes by their beginning, so node or user comes first.
node-problem-detector cuts its message at 80 bytes.
"""

from mlbackends.model.audit import Outcome, Problem, Severity, Status
from mlbackends_cli.report import checks
from mlbackends_cli.terminal import Page


def outcome(outcome: Outcome, page: Page) -> str:
    """Return the line."""
    failed = sorted(
        outcome.failed(Severity(page.fail_on)),
        key=lambda check: (-check.severity.level, check.problem is not Problem.NODE),
    )
    if not failed:
        count = ", ".join(f"{number} {word}" for number, word in checks.counts(outcome))
        for check in outcome.with_status(Status.UNKNOWN)[:1]:
            return checks.unknown_line(f"{count}: {checks.code(check)}: {checks.cause(check)}")
        return checks.short_line(f"ok: {count or 'there is nothing to check'}")
    worst = failed[0]
    prefix = f"[{worst.problem}_problem] " if worst.problem else ""
    more = f" (+{len(failed) - 1})" if failed[1:] else ""
    return checks.short_line(f"{prefix}{checks.code(worst)}: {checks.sentence(worst)}", more)
