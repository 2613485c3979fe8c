"""Holding every hazard to a report."""

from collections.abc import Iterator, Sequence
from types import ModuleType

from mlbackends import __version__
from mlbackends.audit import hazard
from mlbackends.audit.known import DoesNotApply, Known, NotTold
from mlbackends.model import registry
from mlbackends.model.audit import SCHEMA, Check, Outcome, Status
from mlbackends.model.records import Report

_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def examine(
    report: Report, *, only: Sequence[str] = (), ignored: Sequence[str] = (), subject: str = ""
) -> Outcome:
    """Return how each hazard stands: failed once for each symptom, passed, skipped or unknown.

    only, ignored: codes of hazards. Raises UnknownName for a code that is none.
    """
    for code in (*only, *ignored):
        hazard.load(code)
    wanted = [code for code in only or hazard.codes() if code not in ignored]
    known = Known(report, claimed())
    return Outcome(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        kind="doctor",
        title="Known hazards",
        subject=subject,
        created=report.created,
        checks=tuple(check for code in dict.fromkeys(wanted) for check in _checks(code, known)),
    )


def claimed() -> frozenset[tuple[str, str]]:
    """Return the warnings of probes that some hazard speaks for, as (probe, code)."""
    files = [registry.load(hazard.REGISTRY, name) for name in registry.names(hazard.REGISTRY)]
    return frozenset(pair for file in files for pair in getattr(file, "WARNINGS", ()))


def _checks(code: str, known: Known) -> Iterator[Check]:
    file = hazard.load(code)
    untold = [why for probe in file.READS if (why := known.could_tell(probe))]
    if untold:
        yield _check(code, file, Status.UNKNOWN, f"not checked: {'; '.join(untold)}")
        return
    seen = False
    try:
        for symptom in file.symptoms(known):
            seen = True
            yield Check(
                code=code,
                title=hazard.title(file),
                severity=symptom.severity or file.SEVERITY,
                status=Status.FAILED,
                message=symptom.message,
                why=file.WHY,
                hint=symptom.hint or file.MEND,
                command=symptom.command,
                evidence=symptom.evidence,
            )
    except NotTold as told:
        yield _check(code, file, Status.UNKNOWN, f"not checked: {told}")
        return
    except DoesNotApply as told:
        yield _check(code, file, Status.SKIPPED, str(told))
        return
    except _MALFORMED as error:
        # A report from elsewhere may hold anything that is JSON; it costs the check, not the others.
        said = f"not checked: the report is not what a probe tells ({type(error).__name__})"
        yield _check(code, file, Status.UNKNOWN, said)
        return
    if not seen:
        yield _check(code, file, Status.PASSED)


def _check(code: str, file: ModuleType, status: Status, message: str = "") -> Check:
    return Check(code, hazard.title(file), file.SEVERITY, status, message)
