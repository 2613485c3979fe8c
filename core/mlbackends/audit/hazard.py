"""What a file in core/audit/hazards/ offers, and what it yields.

The file's name, with "-" for "_", is the hazard's code; it never changes once it is released. The file
has

    its docstring     first line: what is wrong, as a title. Below it "Told by: ..." says how it is told,
                      and "No alarm: ..." what is none although it looks like one
    SEVERITY          of a symptom that says nothing else
    READS             the probes without which it cannot be told; where one of them failed or is not in
                      the report, the check is unknown
    WHY               why it hurts, one or two sentences
    MEND              what to do about it in general, one or two sentences
    SOURCES           where it was seen: "pytorch/pytorch#98836", a manual, an address
    WARNINGS          optional: the warnings of probes that it speaks for, as (probe, code) pairs
    symptoms(known)   yields a Symptom for each time that it is there. It may raise NotTold or DoesNotApply

A hazard reads the report alone: no file, no variable, no clock. It never alarms on an idle state.
"""

from types import ModuleType
from typing import Any

from msgspec import Struct

from mlbackends.model import registry
from mlbackends.model.audit import Severity
from mlbackends.model.errors import UnknownName
from mlbackends.model.reasons import Reason
from mlbackends.model.records import FactValue

REGISTRY = "mlbackends.audit.hazards"
_LONGEST_WORD = 20


class Symptom(Struct, frozen=True):
    """One time that a hazard is there.

    message: what was seen and what was needed, one sentence that stands alone, with file and owner.
    hint: what to do in this case, "" for the hazard's MEND. command: exactly what to type, where a
    command mends it. evidence: what was seen, by dotted name. severity: None for the hazard's own.
    """

    message: str
    hint: str = ""
    command: str = ""
    evidence: dict[str, FactValue] = {}
    severity: Severity | None = None


def from_warning(reason: Reason, **evidence: Any) -> Symptom:
    """Return what a probe has warned of as a symptom."""
    return Symptom(reason.message, hint=reason.hint, evidence=evidence)


def codes() -> tuple[str, ...]:
    """Return the code of every hazard, sorted."""
    return tuple(name.replace("_", "-") for name in registry.names(REGISTRY))


def load(code: str) -> ModuleType:
    """Return the file of a hazard. Raises UnknownName, with the nearest code."""
    name = code.replace("-", "_")
    if name not in registry.names(REGISTRY) or "_" in code:
        raise UnknownName("hazard", code, codes(), "backends explain hazards")
    return registry.load(REGISTRY, name)


def title(hazard: ModuleType) -> str:
    """Return what is wrong, on one line; the code's words where Python keeps no docstrings."""
    words = (hazard.__doc__ or hazard.__name__.rpartition(".")[2].replace("_", " ")).splitlines()
    return words[0].rstrip(".")


def sections(hazard: ModuleType) -> list[tuple[str, str]]:
    """Return what the docstring tells below its first line, as (word, text): how it is told, and so on."""
    found: list[tuple[str, str]] = []
    for line in (hazard.__doc__ or "").splitlines()[1:]:
        word, colon, text = line.partition(":")
        if colon and line[:1].strip() and len(word) < _LONGEST_WORD:
            found.append((word.lower(), text.strip()))
        elif found and line.strip():
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
    return found
