"""Environment variables that steer a library: which are set, and which hold what it cannot take."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from mlbackends.host.host import Host
from mlbackends.model.reasons import Reason
from mlbackends.model.records import FactValue

if TYPE_CHECKING:
    from mlbackends.model.redaction import Names

Rule = Callable[[str], str]
"""Takes a variable's value; returns in words what would be valid where it is not, else ""."""


def anything(value: str) -> str:  # noqa: ARG001  a rule like the others
    """Rule: every value is taken."""
    return ""


def whole(minimum: int = 0) -> Rule:
    """Return the rule for a whole number that is not below `minimum`."""

    def rule(value: str) -> str:
        return "" if _at_least(value, minimum) else f"a whole number from {minimum} on"

    return rule


def whole_list(minimum: int = 0) -> Rule:
    """Return the rule for whole numbers with commas between them."""

    def rule(value: str) -> str:
        fine = all(_at_least(part, minimum) for part in value.split(","))
        return "" if fine else f"whole numbers from {minimum} on, with commas between them"

    return rule


def one_of(*words: str, case: bool = False) -> Rule:
    """Return the rule for one of some words, in any letter case unless `case`."""
    known = words if case else tuple(word.lower() for word in words)

    def rule(value: str) -> str:
        word = value.strip() if case else value.strip().lower()
        return "" if word in known else "one of " + ", ".join(words)

    return rule


def matching(expression: str, words: str) -> Rule:
    """Return the rule for what matches a regular expression, in lower case; words: what it means."""

    def rule(value: str) -> str:
        return "" if re.fullmatch(expression, value.strip().lower()) else words

    return rule


def steering(host: Host, names: Iterable[str]) -> dict[str, FactValue]:
    """Return the fact `environment`: those of the variables that are set; {} where none is.

    names: also a mapping from them, such as that of their rules.
    """
    variables = {name: host.env(name) for name in names if host.env(name)}
    return {"environment": variables} if variables else {}


def not_valid(host: Host, rules: Mapping[str, Rule]) -> tuple[Reason, ...]:
    """Return a warning for each variable that holds what its rule does not take."""
    return tuple(
        Reason("override-invalid", f"{name} is {host.env(name)!r}; it takes {valid}")
        for name, rule in rules.items()
        if host.env(name) and (valid := rule(host.env(name)))
    )


def cpu_flags(host: Host) -> frozenset[str]:
    """Return the instruction sets that Linux lists for the first processor; empty where unknown."""
    for line in host.read("/proc/cpuinfo", 16 << 10).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def _at_least(value: str, minimum: int) -> bool:
    # C reads no other digits than these, and no more of them than fit.
    fits = re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", value)
    return fits is not None and int(value) >= minimum


def names_of(host: Host) -> "Names":
    """Return the host's name, the user's, and the home folder, as far as files tell them."""
    from mlbackends.model.redaction import Names

    # A service or `env -i` has no HOME; the system's list of users has this one.
    number = str(host.system("user_id"))
    entries = [line.split(":") for line in host.read("/etc/passwd").splitlines()]
    entry = next((each for each in entries if len(each) > 5 and each[2] == number), [""] * 6)
    home = host.env("HOME") or host.env("USERPROFILE") or entry[5]
    user = host.env("USER") or host.env("LOGNAME") or entry[0]
    node = host.uname().get("nodename", "") or host.read("/proc/sys/kernel/hostname", 256)
    return Names(node=node, user=user or home.rstrip("/").rpartition("/")[2], home=home)
