"""Check every hazard against a report."""

from collections.abc import Iterator, Sequence
from functools import partial

from mlbackends.audit import hazard
from mlbackends.audit.hazard import DoesNotApply, NotReported, ReportView
from mlbackends.base import registry
from mlbackends.base.shells import in_powershell
from mlbackends.base.version import __version__
from mlbackends.model.audit import SCHEMA, Check, Outcome, Problem, Severity, Status
from mlbackends.model.records import Report

_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def examine(
    report: Report, *, only: Sequence[str] = (), ignored: Sequence[str] = (), subject: str = ""
) -> Outcome:
    """Return the result of each hazard: failed once for each symptom, passed, skipped or unknown.

    only, ignored: codes of hazards. Raises UnknownName for a code that is none.
    """
    for code in (*only, *ignored):
        hazard.load(code)
    codes = dict.fromkeys(code for code in only or hazard.codes() if code not in ignored)
    view = ReportView(report, claimed())
    return Outcome(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        kind="doctor",
        title="Known hazards",
        subject=subject,
        created=report.created,
        checks=tuple(check for code in codes for check in _checks(code, view)),
    )


def claimed() -> frozenset[tuple[str, str]]:
    """Return the warnings of probes that some hazard reports, as (probe, code)."""
    files = [registry.load(hazard.REGISTRY, name) for name in registry.names(hazard.REGISTRY)]
    return frozenset(pair for file in files for pair in getattr(file, "WARNINGS", ()))


def _checks(code: str, report: ReportView) -> Iterator[Check]:
    file = hazard.load(code)
    problem = getattr(file, "PROBLEM", Problem.USER)  # another distribution's may lack it
    if report.fact("host.container", "none") != "none":
        problem = getattr(file, "IN_CONTAINER", problem)
    check = partial(Check, code, hazard.title(file), problem=problem)
    if error := registry.import_error(file):
        message = f"not checked: the addition cannot be imported: {type(error).__name__}: {error}"
        yield check(Severity.WARNING, Status.UNKNOWN, message)
        return
    if unreliable := [why for probe in file.READS if (why := report.why_uncertain(probe))]:
        message = f"not checked: {'; '.join(unreliable)}"
        yield check(file.SEVERITY, Status.UNKNOWN, message)
        return
    is_found, is_windows = False, report.fact("host.platform") == "win32"
    try:
        for symptom in file.symptoms(report):
            is_found = True
            yield check(
                severity=symptom.severity or file.SEVERITY,
                status=Status.FAILED,
                message=symptom.message,
                why=file.WHY,
                hint=symptom.hint or file.MEND,
                command=in_powershell(symptom.command) if is_windows else symptom.command,
                evidence=symptom.evidence,
                problem=symptom.problem or problem,
            )
    except NotReported as error:
        yield check(file.SEVERITY, Status.UNKNOWN, f"not checked: {error}")
    except DoesNotApply as error:
        yield check(file.SEVERITY, Status.SKIPPED, str(error))
    except _MALFORMED as error:
        # A report from elsewhere may hold anything that is JSON; it costs the check, not the others.
        message = f"not checked: the report is not what a probe tells ({type(error).__name__})"
        yield check(file.SEVERITY, Status.UNKNOWN, message)
    else:
        if not is_found:
            yield check(file.SEVERITY)
