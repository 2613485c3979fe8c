"""What a file in core/audit/hazards/ offers, and what it yields.

The file's name, with "-" for "_", is the hazard's code; it never changes once it is released. The file
has

    its docstring     first line: what is wrong, as a title. Below it "Found by: ..." states how it is found,
                      and "No alarm: ..." what is none although it looks like one
    SEVERITY          of a symptom that has no severity
    PROBLEM           who can fix it: NODE for hardware, driver, kernel and limits of the host; USER for
                      packages, variables and containers. Only those of the node drain a node
    IN_CONTAINER      optional: PROBLEM in a container, if that differs
    READS             the probes without which it cannot be determined; where one of them failed or is not in
                      the report, the check is unknown
    WHY               why it hurts, one or two sentences
    MEND              what to do about it in general, one or two sentences
    SOURCES           where it was seen: "pytorch/pytorch#98836", a manual, an address
    WARNINGS          optional: the warnings of probes that it speaks for, as (probe, code) pairs
    symptoms(report)  yields a Symptom for each time that it is there; it may raise NotReported,
                      DoesNotApply
    CODE.toml         optional: a table next to the file, read by `table`

A hazard reads the report alone: no file, no variable, no clock. It never alarms on an idle state.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from msgspec import Struct

from mlbackends.base import registry
from mlbackends.base.errors import UnknownName
from mlbackends.base.reasons import Reason
from mlbackends.model.audit import Problem, Severity
from mlbackends.model.records import Device, FactValue, Library, ProbeReport, Report
from mlbackends.survey.dotted import is_certain

__all__ = [
    "DoesNotApply",
    "NotReported",
    "Problem",
    "ReportView",
    "Severity",
    "Symptom",
    "Symptoms",
    "codes",
    "from_warning",
    "load",
    "sections",
    "title",
]


class NotReported(Exception):
    """The report lacks what a hazard needs; the check is then unknown, not passed."""


class DoesNotApply(Exception):
    """The hazard is impossible on this machine: it has no such GPU, is not a container, ..."""


class ReportView:
    """A report as a hazard reads it, by dotted name. Only `need` and `only_on` raise.

    record: the report itself. claimed: the warnings of probes that some hazard speaks for, as (probe, code).
    """

    def __init__(self, report: Report, claimed: frozenset[tuple[str, str]] = frozenset()) -> None:
        self.record = report
        self.claimed = claimed

    def probe(self, name: str) -> ProbeReport | None:
        """Return a probe's report; None if the report lacks it."""
        return self.record.probes.get(name)

    def _report_of(self, name: str) -> ProbeReport:
        return self.record.probes.get(name) or ProbeReport(None)

    def fact(self, name: str, default: Any = None) -> Any:
        """Return a fact by its dotted name (`cpu.vendor`), or the default where it is not there."""
        probe, _, fact = name.partition(".")
        return self._report_of(probe).facts.get(fact, default)

    def need(self, name: str) -> Any:
        """Return a fact by its dotted name. Raises NotReported where it is not there."""
        value = self.fact(name)
        if value is None:
            raise NotReported(f"{name} is not in the report")
        return value

    def only_on(self, *platforms: str) -> None:
        """Raise DoesNotApply where the machine is of none of these platforms, by Python's names."""
        platform = self.fact("host.platform", "")
        if platform and platform not in platforms:
            raise DoesNotApply(f"this is {platform}, and no {' or '.join(platforms)}")

    def version(self, probe: str) -> str:
        """Return a probe's version, "" where there is none."""
        return self._report_of(probe).version

    def libraries(self, probe: str) -> tuple[Library, ...]:
        """Return every copy of a library that a probe has found."""
        return self._report_of(probe).libraries

    def devices(self, probe: str) -> tuple[Device, ...]:
        """Return the devices of a probe, such as nvidia."""
        return self._report_of(probe).devices

    def variable(self, name: str) -> str | None:
        """Return an environment variable that steers ML libraries; None where it is not set.

        Only those that the environment probe keeps are there; a secret never is.
        """
        value = self.fact("environment.variables", {}).get(name)
        return value if isinstance(value, str) else None

    def package(self, name: str) -> str:
        """Return the version of an installed distribution by its normalised name, "" without one."""
        value = self.fact("packages.distributions", {}).get(name, "")
        return value if isinstance(value, str) else ""

    def warnings(self, probe: str, code: str) -> Iterator[Reason]:
        """Yield what a probe warns of with that code, its devices' reasons among them."""
        found = self._report_of(probe)
        for reasons in (found.warnings, *(device.reasons for device in found.devices)):
            yield from (reason for reason in reasons if reason.code == code)

    def why_uncertain(self, probe: str) -> str:
        """Return why a probe cannot be relied on, one sentence; "" where it can."""
        found = self.probe(probe)
        if found is None:
            return f"the report has no {probe}"
        if found.failure is not None:
            return f"{probe} failed: {found.failure.message}"
        if found.presence is None and not is_certain(found):
            return f"{probe} could not be determined: {found.reasons[0].message}"
        return ""


REGISTRY = "mlbackends.audit.hazards"
_LONGEST_WORD = 20


class Symptom(Struct, frozen=True):
    """One time that a hazard is there.

    message: what was seen and what was needed, in one sentence with file and owner.
    hint: what to do in this case, "" for the hazard's MEND. command: exactly what to type, where a
    command mends it. evidence: what was seen, by dotted name. severity, problem: None for the hazard's own.
    """

    message: str
    hint: str = ""
    command: str = ""
    evidence: dict[str, FactValue] = {}
    severity: Severity | None = None
    problem: Problem | None = None


#: What `symptoms` yields.
Symptoms = Iterator[Symptom]


def from_warning(reason: Reason, **fields: Any) -> Symptom:
    """Return the warning of a probe as a symptom. fields: of Symptom, in addition to message and hint."""
    return Symptom(reason.message, reason.hint, **fields)


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
    """Return what the docstring has below its first line, as (word, text): how it is found, and so on."""
    found: list[tuple[str, str]] = []
    for line in (hazard.__doc__ or "").splitlines()[1:]:
        word, colon, text = line.partition(":")
        if colon and line[:1].strip() and len(word) < _LONGEST_WORD:
            found.append((word.lower(), text.strip()))
        elif found and line.strip():
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
    return found
