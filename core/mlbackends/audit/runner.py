"""Check every hazard against a report."""

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from mlbackends.audit import catalogue
from mlbackends.audit.catalogue import Hazard
from mlbackends.audit.gpus import of_all_gpus
from mlbackends.audit.hazard import DoesNotApply, NotReported, ReportView, Symptom
from mlbackends.base.shells import in_powershell
from mlbackends.base.version import __version__
from mlbackends.model.audit import SCHEMA, Check, Outcome, Severity, Status
from mlbackends.model.records import Report

_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def examine(
    report: Report, *, only: Sequence[str] = (), ignored: Sequence[str] = (), subject: str = ""
) -> Outcome:
    """Return the result of each hazard: failed once for each symptom, passed, skipped or unknown.

    only, ignored: codes of hazards. Raises UnknownName for an unknown code.
    """
    for code in (*only, *ignored):
        catalogue.load(code)
    codes = dict.fromkeys(code for code in only or catalogue.codes() if code not in ignored)
    view = ReportView(report, claimed())
    return Outcome(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        kind="doctor",
        title="Known hazards",
        subject=subject,
        created=report.created,
        checks=tuple(check for code in codes for check in _checks(catalogue.load(code), view)),
    )


def claimed() -> frozenset[tuple[str, str]]:
    """Return the warnings of probes that some hazard reports, as (probe, code)."""
    return frozenset(pair for code in catalogue.codes() for pair in catalogue.load(code).warnings)


def _checks(hazard: Hazard, report: ReportView) -> Iterator[Check]:
    problem = hazard.problem
    if hazard.in_container and report.fact("host.container", "none") != "none":
        problem = hazard.in_container
    check = partial(Check, hazard.code, hazard.title, problem=problem)
    if error := hazard.error:
        message = f"not checked: the addition cannot be imported: {type(error).__name__}: {error}"
        yield check(Severity.WARNING, Status.UNKNOWN, message)
        return
    if unreliable := [why for probe in hazard.reads if (why := report.why_uncertain(probe))]:
        message = f"not checked: {'; '.join(unreliable)}"
        yield check(hazard.severity, Status.UNKNOWN, message)
        return
    symptoms: list[Symptom] = []
    unfinished: tuple[Status, str] | None = None
    try:
        symptoms.extend(hazard.symptoms(report))
    except NotReported as error:
        unfinished = Status.UNKNOWN, f"not checked: {error}"
    except DoesNotApply as error:
        unfinished = Status.SKIPPED, str(error)
    except _MALFORMED as error:
        # A foreign report may hold any JSON; that costs this check, not the others.
        text = f"not checked: the report has values of unexpected types ({type(error).__name__})"
        unfinished = Status.UNKNOWN, text
    is_windows = report.fact("host.platform") == "win32"
    for symptom in _of_one_remedy(of_all_gpus(symptoms)):
        yield check(
            severity=symptom.severity or hazard.severity,
            status=Status.FAILED,
            message=symptom.message,
            why=hazard.why,
            hint=symptom.hint or hazard.fix,
            command=in_powershell(symptom.command) if is_windows else symptom.command,
            evidence=symptom.evidence,
            problem=symptom.problem or problem,
        )
    if unfinished or not symptoms:
        yield check(hazard.severity, *(unfinished or ()))


def _of_one_remedy(symptoms: Iterator[Symptom]) -> Iterator[Symptom]:
    """Yield the symptoms; those that the same command or hint fixes are one, with all messages."""
    groups: dict[object, list[Symptom]] = {}
    for number, symptom in enumerate(symptoms):
        remedy = symptom.command or symptom.hint or number
        groups.setdefault((remedy, symptom.severity), []).append(symptom)
    for group in groups.values():
        yield replace(
            group[0],
            message="; ".join(dict.fromkeys(one.message for one in group)),
            evidence={name: value for one in group for name, value in one.evidence.items()},
        )
