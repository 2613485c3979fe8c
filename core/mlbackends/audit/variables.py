"""Environment variables as hazards read them: which are set to something, and what that does."""

from collections.abc import Callable, Iterator, Mapping

from mlbackends.audit.hazard import Symptom
from mlbackends.audit.known import Known

Effect = tuple[Callable[[str], bool], str]
"""Whether a value has the effect, and the effect in words that go on after "it is set: "."""


def settings(known: Known) -> dict[str, str]:
    """Return the variables that are set to something, an empty one left out.

    Raises NotTold where the report does not tell the environment.
    """
    told = known.need("environment.variables")
    return {
        name: value.strip()
        for name, value in told.items()
        if isinstance(value, str) and value.strip()
    }


def is_on(value: str) -> bool:
    """Tell whether a value means yes to most programs."""
    return value.lower() in ("1", "true", "t", "yes", "y", "on")


def is_off(value: str) -> bool:
    """Tell whether a value means no to most programs."""
    return value.lower() in ("0", "false", "f", "no", "n", "off")


def is_anything(value: str) -> bool:
    """Tell that every value has the effect."""
    return bool(value)


def effects(known: Known, table: Mapping[str, Effect]) -> Iterator[Symptom]:
    """Yield a symptom for each variable of the table whose value has the effect."""
    for name, value in settings(known).items():
        has_effect, effect = table.get(name, (bool, ""))
        if effect and has_effect(value):
            yield Symptom(
                f"{name} is {value[:80]!r}: {effect}",
                command=f"unset {name}",
                evidence={f"environment.variables.{name}": value},
            )
