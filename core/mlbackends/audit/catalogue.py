"""The catalogue of known hazards: the rows of the tables, with the functions of those that have logic."""

from collections.abc import Callable
from functools import cache, partial

from msgspec import Struct

from mlbackends.audit import hazard_table
from mlbackends.audit.hazard import ReportView, Symptoms
from mlbackends.audit.hazards import _devices, _libraries, _machine, _numbers, _nvidia, _packages
from mlbackends.base import registry
from mlbackends.base.errors import UnknownName
from mlbackends.model.audit import Problem, Severity

REGISTRY = "mlbackends.audit.hazards"
#: The files whose functions are named by the codes of hazards.
WITH_LOGIC = (_devices, _libraries, _machine, _numbers, _nvidia, _packages)
_LONGEST_WORD = 20


class Hazard(Struct, frozen=True):
    """One known hazard. `mlbackends.audit.hazard` explains the fields, which are those of a file.

    title: without a full stop. sections: how it is found and so on, as (word, text). error: why the module
    of another distribution could not be imported; the other fields are then empty.
    """

    code: str
    title: str
    severity: Severity
    problem: Problem
    in_container: Problem | None
    reads: tuple[str, ...]
    why: str
    fix: str
    sources: tuple[str, ...]
    sections: tuple[tuple[str, str], ...]
    warnings: tuple[tuple[str, str], ...]
    symptoms: Callable[[ReportView], Symptoms]
    error: BaseException | None = None


@cache
def codes() -> tuple[str, ...]:
    """Return the code of every hazard, sorted."""
    added = (name.replace("_", "-") for name in registry.names(REGISTRY))
    return tuple(sorted({*added, *hazard_table.rows()}))


@cache
def load(code: str) -> Hazard:
    """Return a hazard. Raises UnknownName, with the nearest code."""
    if code not in codes():
        raise UnknownName("hazard", code, codes(), "backends explain hazards")
    name = code.replace("-", "_")
    row = hazard_table.rows().get(code)
    if row is None:  # another distribution's, which may lack the optional attributes
        file = registry.load(REGISTRY, name)
        # Without docstrings (python -OO) the words of the code have to do.
        lines = (file.__doc__ or code.replace("-", " ")).splitlines()
        sections: list[tuple[str, str]] = []
        for line in lines[1:]:
            word, colon, text = line.partition(":")
            if colon and line[:1].strip() and len(word) < _LONGEST_WORD:
                sections.append((word.lower(), text.strip()))
            elif sections and line.strip():
                sections[-1] = (sections[-1][0], f"{sections[-1][1]} {line.strip()}")
        return Hazard(
            code=code,
            title=lines[0].rstrip("."),
            severity=getattr(file, "SEVERITY", Severity.WARNING),
            problem=getattr(file, "PROBLEM", Problem.USER),
            in_container=getattr(file, "IN_CONTAINER", None),
            reads=getattr(file, "READS", ()),
            why=getattr(file, "WHY", ""),
            fix=getattr(file, "FIX", ""),
            sources=getattr(file, "SOURCES", ()),
            sections=tuple(sections),
            warnings=getattr(file, "WARNINGS", ()),
            symptoms=getattr(file, "symptoms", lambda _report: iter(())),
            error=registry.import_error(file),
        )
    functions = (found for module in WITH_LOGIC if (found := getattr(module, name, None)))
    return Hazard(
        code=code,
        title=row.title.rstrip("."),
        severity=row.severity,
        problem=row.problem,
        in_container=row.in_container,
        reads=row.reads,
        why=row.why,
        fix=row.fix,
        sources=row.sources,
        sections=tuple(hazard_table.sections(row)),
        warnings=row.claimed,
        symptoms=next(functions, partial(hazard_table.symptoms, row)),
    )
