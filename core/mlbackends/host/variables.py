"""Environment variables that steer a library: which are set, and which hold what it cannot take.

variables.json has them by probe, each with the values that the library takes. That is null for any, or an
object: `minimum` for a whole number (for several with commas between them where `list` is true), `one_of` for
words, `pattern` for a regular expression and `meaning` for what it stands for; the value is compared in lower
case, or as it stands where `case` is true.
"""

import re
from typing import TYPE_CHECKING, Any

from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.model.records import FactValue

if TYPE_CHECKING:
    from mlbackends.host.redaction import Names


def steering(host: Host, probe: str) -> dict[str, FactValue]:
    """Return the fact `environment`: the variables of a probe that are set; {} where none is."""
    names = table("host/variables").get(probe, ())
    variables = {name: host.env(name) for name in names if host.env(name)}
    return {"environment": variables} if variables else {}


def not_valid(host: Host, probe: str) -> tuple[Reason, ...]:
    """Return a warning for each variable of a probe that holds what the library does not take."""
    return tuple(
        Reason("override-invalid", f"{name} is {host.env(name)!r}; it takes {valid}")
        for name, rule in table("host/variables").get(probe, {}).items()
        if rule and host.env(name) and (valid := valid_instead(host.env(name), rule))
    )


def valid_instead(value: str, rule: dict[str, Any]) -> str:
    """Return in words what a rule of variables.json takes instead of a value, "" where it takes that."""
    if "minimum" in rule:
        least, is_list = rule["minimum"], "list" in rule
        # C reads no other digits than these, and no more of them than fit.
        numbers = [
            re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", part)
            for part in (value.split(",") if is_list else [value])
        ]
        if all(number and int(number[0]) >= least for number in numbers):
            return ""
        several = f"whole numbers from {least} on, with commas between them"
        return several if is_list else f"a whole number from {least} on"
    if "one_of" in rule:
        words = rule["one_of"]
        fold = str.strip if "case" in rule else lambda word: word.strip().lower()
        return "" if fold(value) in map(fold, words) else "one of " + ", ".join(words)
    compared = value if "case" in rule else value.strip().lower()
    return "" if re.fullmatch(rule["pattern"], compared) else str(rule["meaning"])


def cpu_flags(host: Host) -> frozenset[str]:
    """Return the instruction sets of the first processor by Linux' names; empty where unknown."""
    if host.platform == "win32":
        from mlbackends.host.cpu.cpuinfo import read_blocks

        return frozenset(" ".join(block["flags"] for block in read_blocks(host)[:1]).split())
    for line in host.read("/proc/cpuinfo", 16 << 10).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def names_of(host: Host) -> "Names":
    """Return the host's name, the user's, and the home folder, as far as files tell them."""
    from mlbackends.host.redaction import Names

    # A service or `env -i` has no HOME; the system's list of users has this one.
    number = str(host.system("user_id"))
    entries = [line.split(":") for line in host.read("/etc/passwd").splitlines()]
    entry = next((each for each in entries if len(each) > 5 and each[2] == number), [""] * 6)
    home = host.env("HOME") or host.env("USERPROFILE") or entry[5]
    user = host.env("USER") or host.env("LOGNAME") or entry[0]
    if host.platform == "win32":
        home, user = host.env("USERPROFILE").replace("\\", "/"), host.env("USERNAME")
    node = host.uname().get("nodename", "") or host.read("/proc/sys/kernel/hostname", 256)
    return Names(node=node, user=user or home.rstrip("/").rpartition("/")[2], home=home)
