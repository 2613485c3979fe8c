"""`backends explain`: passages about switches, and about differences between mlbackends and torch."""

from mlbackends.switches import listing
from mlbackends.switches.deviations import DEVIATIONS, Deviation
from mlbackends.switches.files import as_data, groups, members
from mlbackends.switches.listing import read_by, set_by
from mlbackends.switches.table import NOT_IN_FLAGS, PROBED, SWITCHES, Switch
from mlbackends_cli.text.plain import setting
from mlbackends_cli.text.prose import Passage


def topics() -> list[str]:
    """Return the codes of the deviations, the groups of switches, and the switches."""
    return [*(each.code for each in DEVIATIONS), *groups(), *SWITCHES]


def passages(topic: str) -> list[Passage]:
    """Return the deviation of this code, and the switches of this name or group; [] if there are none."""
    found = [deviation(each) for each in DEVIATIONS if each.code == topic]
    names = [topic] if topic in SWITCHES else []
    return found + [switch(SWITCHES[name]) for name in (*names, *members(topic))]


def overview() -> Passage:
    """Return the switches of each module."""
    modules: dict[str, list[str]] = {}
    for switch in SWITCHES.values():
        modules.setdefault(switch.module or "mlbackends", []).append(switch.name)
    return Passage("Switches", tuple((word, ", ".join(names)) for word, names in modules.items()))


def deviations() -> list[Passage]:
    """Return every difference from torch."""
    return [deviation(each) for each in DEVIATIONS]


def deviation(each: Deviation) -> Passage:
    """Return one difference from torch."""
    modules = ", ".join(each.names) if "*" not in each.names else "every module"
    lines = (
        ("where", modules),
        ("torch", each.torch),
        ("mlbackends", each.ours),
        ("why", each.why),
    )
    return Passage(each.code, lines)


def switch(switch: Switch) -> Passage:
    """Return one switch: what it does, takes and starts with, and who reads it."""
    default = "by what is installed" if switch.default is PROBED else _value(switch, switch.default)
    lines = [
        ("", switch.doc),
        ("takes", listing.accepts(switch) or "nothing: it is an answer, not a setting"),
        ("default", default),
    ]
    newer = {"": switch.since, **getattr(switch.kind, "since", {})}
    if since := [f"torch {at}{word and f' for {word}'}" for word, at in newer.items() if at]:
        lines.append(("since", ", ".join(since)))
    if switch.inside_flags not in (NOT_IN_FLAGS, None):
        lines.append(("in flags()", f"{_value(switch, switch.inside_flags)} unless given"))
    if not switch.read_only:
        lines.append(("variable", ", ".join(switch.variables)))
    lines.append(("read by", ", ".join(switch.used_by) or "nobody yet"))
    if switch.reached == "variable":
        in_python = "read when a library is loaded; nothing in Python changes it"
    else:
        sets, reads = set_by(switch), read_by(switch)
        in_python = f"{sets}; {reads} reads it" if sets not in ("", reads) else reads
    lines.append(("in Python", in_python))
    if concerned := [each.code for each in DEVIATIONS if switch.name in each.names]:
        lines.append(("see also", ", ".join(concerned)))
    return Passage(switch.name, tuple(lines))


def _value(switch: Switch, value: object) -> str:
    return setting(as_data(switch, value), "unset: the library chooses")
