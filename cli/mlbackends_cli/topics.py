"""What `backends explain` knows, as passages: devices, switches, hazards, reason codes, deviations."""

from mlbackends.audit import hazard
from mlbackends.model.errors import UnknownName
from mlbackends.switches import listing
from mlbackends.switches.deviations import DEVIATIONS, Deviation
from mlbackends.switches.files import as_data, groups, members
from mlbackends.switches.listing import read_by, set_by
from mlbackends.switches.table import FLAGS, NOT_IN_FLAGS, PROBED, Flag
from mlbackends_cli import device_pages
from mlbackends_cli.prose import Passage

DEVIATIONS_TOPIC = "deviations"
HAZARDS_TOPIC = "hazards"
DEVICE_TOPIC = "device"


def names() -> list[str]:
    """Return every topic."""
    return [
        DEVICE_TOPIC,
        DEVIATIONS_TOPIC,
        *(each.code for each in DEVIATIONS),
        HAZARDS_TOPIC,
        *hazard.codes(),
        *groups(),
        *FLAGS,
        *_codes(),
    ]


def explained(topic: str) -> list[Passage]:
    """Return what there is to say of a topic: of a group every switch; of "", which topics there are.

    Raises UnknownName, with the nearest topic.
    """
    if not topic:
        return _overview()
    if topic == DEVICE_TOPIC:
        return [device_pages.overview()]
    if topic == DEVIATIONS_TOPIC:
        return [deviation(each) for each in DEVIATIONS]
    if topic == HAZARDS_TOPIC:
        return [hazard_page(code) for code in hazard.codes()]
    found = [deviation(each) for each in DEVIATIONS if each.code == topic]
    if topic in hazard.codes():
        found.append(hazard_page(topic))
    if topic in FLAGS:
        found.append(switch(FLAGS[topic]))
    found += [switch(FLAGS[name]) for name in members(topic)]
    if topic in _codes():
        found.append(Passage(topic, (("", _codes()[topic]),)))
    if not found:
        raise UnknownName("topic", topic, tuple(names()), "backends explain")
    return found


def deviation(each: Deviation) -> Passage:
    """Return one difference from torch."""
    where = ", ".join(each.names) if "*" not in each.names else "every module"
    lines = (
        ("where", where),
        ("torch 2.13", each.torch),
        ("mlbackends", each.ours),
        ("why", each.why),
    )
    return Passage(each.code, lines)


def hazard_page(code: str) -> Passage:
    """Return one hazard: what it is, why it hurts, what to do, how it is told, and who met it."""
    file = hazard.load(code)
    lines = [
        ("", hazard.title(file) + "."),
        ("severity", str(file.SEVERITY)),
        ("why", file.WHY),
        ("do", file.MEND),
        *hazard.sections(file),
        ("reads", ", ".join(file.READS) or "every probe"),
        ("met in", ", ".join(file.SOURCES)),
    ]
    return Passage(code, tuple(lines))


def switch(flag: Flag) -> Passage:
    """Return one switch: what it does, takes and starts with, and who obeys it."""
    lines = [("", flag.doc)]
    accepts = listing.accepts(flag)
    lines.append(("takes", accepts or "nothing: it is an answer, not a setting"))
    default = "by what is installed" if flag.default is PROBED else _word(flag, flag.default)
    lines.append(("default", default))
    if flag.inside_flags not in (NOT_IN_FLAGS, None):
        lines.append(("in flags()", f"{_word(flag, flag.inside_flags)} unless given"))
    if not flag.read_only:
        lines.append(("variable", ", ".join(flag.variables)))
    lines.append(("read by", ", ".join(flag.obeyed_by) or "nobody yet"))
    lines.append(("in Python", _in_python(flag)))
    concerned = [each.code for each in DEVIATIONS if flag.name in each.names]
    if concerned:
        lines.append(("see also", ", ".join(concerned)))
    return Passage(flag.name, tuple(lines))


def _codes() -> dict[str, str]:
    from mlbackends.survey import all_codes

    return all_codes()


def _overview() -> list[Passage]:
    modules = dict.fromkeys(flag.module for flag in FLAGS.values())
    return [
        Passage(
            "Where mlbackends and torch.backends differ",
            (
                (DEVIATIONS_TOPIC, "all of them"),
                *((each.code, ", ".join(each.names)) for each in DEVIATIONS),
            ),
        ),
        Passage(
            "Switches",
            tuple(
                (
                    module or "mlbackends",
                    ", ".join(flag.name for flag in FLAGS.values() if flag.module == module),
                )
                for module in modules
            ),
        ),
        Passage(
            "Hazards that backends doctor knows",
            tuple((code, hazard.title(hazard.load(code))) for code in hazard.codes()),
        ),
        device_pages.overview(),
        Passage("Reason codes", tuple(sorted(_codes().items()))),
    ]


def _word(flag: Flag, value: object) -> str:
    data = as_data(flag, value)
    if data is None:
        return "unset: the library chooses"
    parts = data if isinstance(data, list) else [data]
    return ", ".join(str(part).lower() if isinstance(part, bool) else str(part) for part in parts)


def _in_python(flag: Flag) -> str:
    sets, reads = set_by(flag), read_by(flag)
    if flag.reached == "variable":
        return "read when a library is loaded; nothing in Python changes it"
    return f"{sets}; {reads} reads it" if sets not in ("", reads) else reads
