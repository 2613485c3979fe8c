"""A run of `conform` as an Outcome, from which the exit code and every CI format are made."""

import shlex
from collections.abc import Iterator

from mlbackends.conform.problems import parse
from mlbackends.model.audit import SCHEMA, Check, Outcome, Severity, Status
from mlbackends.model.conformity import Answer, Conformities, Conformity, LibraryConformity


def outcome_of(found: Conformities) -> Outcome:
    """Return one check for each answer, in the order of the libraries."""
    return Outcome(
        schema=SCHEMA,
        tool=found.tool,
        kind="conform",
        title="Numbers of installed libraries",
        subject=f"{found.processor}, {found.python}",
        created=found.created,
        checks=tuple(check for library in found.libraries for check in _checks(library, found.python)),
    )


def title_of(library: LibraryConformity) -> str:
    """Return a library with its version and the variables that it ran with."""
    variables = "".join(f" {name}={value}" for name, value in library.variables.items())
    return f"{library.library} {library.version}".strip() + variables


def severity_of(library: LibraryConformity, one: Conformity) -> Severity:
    """Return how bad a wrong answer is: an error for ordinary values and settings, else a warning."""
    return Severity.WARNING if library.variables or parse(one.problem).is_edge else Severity.ERROR


def _checks(library: LibraryConformity, python: str) -> Iterator[Check]:
    title = title_of(library)
    command = f"backends conform {library.library} --python {shlex.quote(python)}"
    if library.failure:
        yield Check(library.library, f"{title} can be asked", status=Status.UNKNOWN, message=library.failure)
    for one in library.answers:
        status = Status.SKIPPED if one.answer is Answer.REFUSED else Status.PASSED
        yield Check(
            code=f"{library.library}-{one.operation}",
            title=f"{title} computes {one.operation} in {one.dtype}",
            severity=severity_of(library, one),
            status=Status.FAILED if one.is_wrong else status,
            message=f"{title}: {one.problem}: {one.message or f'{one.units:.2g} units'}",
            hint=one.hint,
            command=f"{command} --problem '{one.problem}'" if one.is_wrong else "",
            evidence={"units": one.units, "relative": one.relative, "repeats": one.repeats},
            instance=f"{title}: {one.problem}",
        )
