"""`requires_backend`: what a test needs of the machine, and whether that is met."""

from typing import NamedTuple

from mlbackends.base.errors import BadInput, MlBackendsError
from mlbackends.survey.requirement import Requirement, check, is_decidable, unmet
from mlbackends.testing import devices
from mlbackends.testing.machine import Machine, current

ALL = "all"


class Demand(NamedTuple):
    """One marker. reason: the author's own, before ours. strict: fail where it could not be determined."""

    needs: tuple[Requirement, ...]
    reason: str = ""
    strict: bool = False


class Unmet(NamedTuple):
    """Why a test cannot run here; is_failure where that must not be a skip."""

    why: str
    is_failure: bool


def demand(texts: tuple[object, ...], options: dict[str, object]) -> Demand:
    """Read a marker's arguments. Raises BadInput or UnknownName, with what would be right."""
    rest = dict(options)
    reason, strict = rest.pop("reason", ""), rest.pop("strict", False)
    if rest:
        raise BadInput(f"requires_backend takes reason= and strict=, not {next(iter(rest))}=")
    if not isinstance(reason, str) or not isinstance(strict, bool):
        raise BadInput("requires_backend takes a text as reason= and a bool as strict=")
    if not texts:
        raise BadInput("requires_backend names nothing", "such as requires_backend('cudnn>=9.10')")
    needs = []
    for text in texts:
        if not isinstance(text, str):
            raise BadInput(f"a requirement is a text such as 'cudnn>=9.10', not {text!r}")
        needs.append(Requirement.parse(text))
        check(needs[-1])
    return Demand(tuple(needs), reason, strict)


def unmet_on(machine: Machine, needs: Demand, strict_names: tuple[str, ...]) -> Unmet | None:
    """Return why a demand is not met, None if it is.

    strict_names: the requirements whose lack is a failure: "all", a probe, or a dotted name.
    """
    for need in needs.needs:
        report = machine.report((need.probe,))
        if why := unmet(report, need):
            message = f"{needs.reason} (requires {why})" if needs.reason else f"requires {why}"
            is_named = any(
                name in (ALL, need.probe) or f"{need.name}.".startswith(f"{name}.") for name in strict_names
            )
            return Unmet(message, is_named or (needs.strict and not is_decidable(report, need)))
    return None


def why_unmet(*texts: str) -> str:
    """Return why requirements such as "cudnn>=9.10" are not met, "" if they are.

    The machine is the one that the run of pytest is judged by; without a run, this one. Raises BadInput
    or UnknownName for a wrong requirement.
    """
    found = unmet_on(current(), demand(texts, {}), ())
    return found.why.removeprefix("requires ") if found else ""


def check_strict(name: str) -> None:
    """Raise MlBackendsError for a name that no requirement could have."""
    if name not in (ALL, "device", "attention_backend"):
        need = Requirement.parse(name)
        if need.clauses:
            raise BadInput(f"{name!r} has clauses", f"the name alone: {need.name}")
        check(need)


def check_names(mark: str, names: tuple[object, ...], options: dict[str, object]) -> None:
    """Raise MlBackendsError for what `devices`, `attention_backends` or `requires_loadable` cannot take."""
    is_loadable = mark == "requires_loadable"
    if not names or options or (is_loadable and not all(isinstance(name, str) for name in names)):
        raise BadInput(f"{mark} takes one name or more, and nothing else")
    if is_loadable:
        return  # any package may be missing
    check_name = devices.check_name
    if mark != "devices":
        from mlbackends.testing.attention import check_name
    for name in names:
        check_name(name if isinstance(name, str) else repr(name))


def sentence(error: MlBackendsError) -> str:
    """Return an error and its hint on one line."""
    return f"{error}; {error.hint}" if error.hint else str(error)
