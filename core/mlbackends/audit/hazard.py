"""The interface of a hazard: what it yields, and what a file of another distribution defines.

Every hazard of ours has a row in a table (hazard_table.py) with its texts. One that is more than conditions
has a function too, in a file of hazards/. Its name, with "-" for "_", is the hazard's code, which never
changes once it is released. A file of another distribution, whose name is the code, defines

    its docstring     first line: what is wrong, as a title. Below it "Found by: ..." says how it is
                      detected, and "No alarm: ..." which similar conditions are harmless
    SEVERITY          of a symptom without its own
    PROBLEM           who must act: NODE for hardware, driver, kernel and limits of the host; USER for
                      packages, variables and containers. Only a problem of the node drains a node
    IN_CONTAINER      optional: who must act in a container, if that differs
    READS             the required probes; if one failed or is not in the report, the check is unknown
    WHY               the consequences, one or two sentences
    FIX               the remedy in general, one or two sentences
    SOURCES           where it was seen: "pytorch/pytorch#98836", a manual, an address
    WARNINGS          optional: the warnings of probes that it reports, as (probe, code) pairs
    symptoms(report)  yields a Symptom for each occurrence; may raise NotReported and DoesNotApply
    CODE.toml         optional: data next to the file, read by `table`

A hazard depends on the report alone: no file, no variable, no clock. It never alarms on an idle state.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

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
    "from_warning",
]


class NotReported(Exception):
    """The report lacks a required value; the check is then unknown, not passed."""


class DoesNotApply(Exception):
    """The hazard is impossible on this machine: it has no GPU of that vendor, is not a container, ..."""


class ReportView:
    """A report as hazards read it, by dotted name. Only `need` and `only_on` raise.

    record: the report itself. claimed: the warnings of probes that some hazard reports, as (probe, code).
    """

    def __init__(self, report: Report, claimed: frozenset[tuple[str, str]] = frozenset()) -> None:
        self.record = report
        self.claimed = claimed

    def probe(self, name: str) -> ProbeReport | None:
        """Return a probe's report, None if it is missing."""
        return self.record.probes.get(name)

    def _report_of(self, name: str) -> ProbeReport:
        return self.record.probes.get(name) or ProbeReport(None)

    def fact(self, name: str, default: Any = None) -> Any:
        """Return a fact by its dotted name (`cpu.vendor`), or the default if it is missing."""
        probe, _, fact = name.partition(".")
        return self._report_of(probe).facts.get(fact, default)

    def need(self, name: str) -> Any:
        """Return a fact by its dotted name. Raises NotReported if it is missing."""
        value = self.fact(name)
        if value is None:
            raise NotReported(f"{name} is not in the report")
        return value

    def only_on(self, *platforms: str) -> None:
        """Raise DoesNotApply unless the platform is one of these, by Python's names."""
        platform = self.fact("host.platform", "")
        if platform and platform not in platforms:
            raise DoesNotApply(f"this is {platform}, not {' or '.join(platforms)}")

    def version(self, probe: str) -> str:
        """Return a probe's version, "" without one."""
        return self._report_of(probe).version

    def libraries(self, probe: str) -> tuple[Library, ...]:
        """Return every copy of a library that a probe found."""
        return self._report_of(probe).libraries

    def devices(self, probe: str) -> tuple[Device, ...]:
        """Return the devices of a probe, such as nvidia."""
        return self._report_of(probe).devices

    def variable(self, name: str) -> str | None:
        """Return an environment variable that affects ML libraries, None if it is not set.

        The environment probe keeps only these variables, and never a secret.
        """
        value = self.fact("environment.variables", {}).get(name)
        return value if isinstance(value, str) else None

    def package(self, name: str) -> str:
        """Return the version of an installed distribution by its normalised name, "" without one."""
        value = self.fact("packages.distributions", {}).get(name, "")
        return value if isinstance(value, str) else ""

    def warnings(self, probe: str, code: str) -> Iterator[Reason]:
        """Yield a probe's warnings with that code, including the reasons of its devices."""
        found = self._report_of(probe)
        for reasons in (found.warnings, *(device.reasons for device in found.devices)):
            yield from (reason for reason in reasons if reason.code == code)

    def why_uncertain(self, probe: str) -> str:
        """Return why a probe's report is not reliable, one sentence; "" if it is."""
        found = self.probe(probe)
        if found is None:
            return f"the report has no {probe}"
        if found.failure is not None:
            return f"{probe} failed: {found.failure.message}"
        if found.presence is None and not is_certain(found):
            return f"{probe} could not be determined: {found.reasons[0].message}"
        return ""


class Symptom(Struct, frozen=True):
    """One occurrence of a hazard.

    message: what was seen and what was needed, one self-contained sentence, with file and owner. hint: what
    to do in this case, "" for the hazard's FIX. command: exactly what to type, if a command fixes it.
    evidence: the values that were seen, by dotted name. severity, problem: None for the hazard's own.
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
    """Return the warning of a probe as a symptom. fields: of Symptom, besides message and hint."""
    return Symptom(reason.message, reason.hint, **fields)
