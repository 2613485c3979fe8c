"""A report as a hazard reads it: values by dotted name; what could not be told is not what is absent."""

from collections.abc import Iterator
from typing import Any

from mlbackends.model.dotted import is_certain
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Device, Library, ProbeReport, Report


class NotTold(Exception):
    """A hazard needs something that the report could not tell; the check is then unknown, not passed."""


class DoesNotApply(Exception):
    """The hazard cannot be on such a machine: there is no GPU of that maker, no container, ..."""


class Known:
    """What a report tells. Every method answers for absence; `need` alone raises.

    claimed: the warnings of probes that some hazard speaks for, as (probe, code).
    """

    def __init__(self, report: Report, claimed: frozenset[tuple[str, str]] = frozenset()) -> None:
        self.report = report
        self.claimed = claimed

    def probe(self, name: str) -> ProbeReport | None:
        """Return a probe's report; None where the report has none."""
        return self.report.probes.get(name)

    def fact(self, name: str, default: Any = None) -> Any:
        """Return a fact by its dotted name (`cpu.vendor`), or the default where it is not there."""
        probe, _, fact = name.partition(".")
        told = self.probe(probe)
        return default if told is None else told.facts.get(fact, default)

    def need(self, name: str) -> Any:
        """Return a fact by its dotted name. Raises NotTold where it is not there."""
        value = self.fact(name)
        if value is None:
            raise NotTold(f"{name} is not in the report")
        return value

    def only_on(self, *platforms: str) -> None:
        """Raise DoesNotApply where the machine is of none of these platforms, by Python's names."""
        platform = self.fact("host.platform", "")
        if platform and platform not in platforms:
            raise DoesNotApply(f"this is {platform}, and no {' or '.join(platforms)}")

    def version(self, probe: str) -> str:
        """Return a probe's version, "" where there is none."""
        told = self.probe(probe)
        return told.version if told is not None else ""

    def libraries(self, probe: str) -> tuple[Library, ...]:
        """Return every copy of a library that a probe has found."""
        told = self.probe(probe)
        return told.libraries if told is not None else ()

    def devices(self, probe: str) -> tuple[Device, ...]:
        """Return the devices of a probe, such as nvidia."""
        told = self.probe(probe)
        return told.devices if told is not None else ()

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
        told = self.probe(probe)
        if told is None:
            return
        yield from (reason for reason in told.warnings if reason.code == code)
        for device in told.devices:
            yield from (reason for reason in device.reasons if reason.code == code)

    def could_tell(self, probe: str) -> str:
        """Return why a probe cannot be relied on, one sentence; "" where it can."""
        told = self.probe(probe)
        if told is None:
            return f"the report has no {probe}"
        if told.failure is not None:
            return f"{probe} failed: {told.failure.message}"
        if told.presence is None and not is_certain(told):
            return f"{probe} could not be told: {told.reasons[0].message}"
        return ""
