"""What a kind of device cannot do, what it may offer, and which values of a report decide that.

A kind is a file of `mlbackends/audit/device_kinds/`, by the word that people type: cpu, cuda, mps.
`mlbackends.audit.device_limits` reads it, and checks a report against it.
"""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, field

from mlbackends.model.records import FactValue

SCHEMA = "backends.devices/1"


class Concern(StrEnum):
    """What a limit is about."""

    #: An element type that tensors cannot have, or that nothing is computed in.
    DTYPE = "dtype"
    #: Something that cannot be computed, or only elsewhere.
    OPERATION = "operation"
    #: How memory is given and shared.
    MEMORY = "memory"
    #: What the device cannot be used with or without.
    SYSTEM = "system"


class Yardstick(Struct, frozen=True):
    """Something that has a value in a report, and is needed at some value.

    names: dotted names of single values, or `PROBE.devices`; the first that the report has counts.
    field: what to read of each device: capability, features, or one of its facts.
    """

    names: tuple[str, ...]
    field: str = ""


class Need(Struct, frozen=True):
    """One thing that must be there.

    property: a name in YARDSTICKS. at_least: the lowest version or capability. one_of: words, one of which
    must be the value or among the values; a trailing * matches any ending. With neither, the value must be
    true or not empty.
    """

    property: str
    at_least: str = ""
    one_of: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.at_least:
            return f"{self.property} {self.at_least}"
        *first, last = self.one_of or ("",)
        words = f"{', '.join(first)} or {last}" if first else last
        return f"{self.property} {words}".rstrip()


class Limit(Struct, frozen=True):
    """Something that a kind of device cannot do.

    what: for a dtype its name in torch, else an operation or a thing in a few words.
    lifted_by: all of these together end it; () means that nothing does.
    source: where that can be looked up. emulated: it is computed all the same, by way of another type.
    """

    what: str
    concern: Concern
    detail: str
    source: str
    lifted_by: tuple[Need, ...] = ()
    emulated: bool = False


class Feature(Struct, frozen=True):
    """Something that not every device of a kind, or not every driver, offers. It takes all of `needs`."""

    what: str
    detail: str
    source: str
    needs: tuple[Need, ...]


class Shown(Struct, frozen=True):
    """A value of a report, under a label for people: what an added module has in SHOWN."""

    label: str
    name: str


class DeviceKind(Struct, frozen=True, forbid_unknown_fields=True):
    """The data of one kind.

    title: what it is, in a phrase. kind: as devices in a report have it. devices: the probes that have
    such devices, () where every machine has one. probes: all that the page of the kind needs. shown:
    the labels of the report's values on that page, by dotted name.
    """

    title: str
    kind: str
    devices: tuple[str, ...]
    probes: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    features: tuple[Feature, ...] = ()
    shown: dict[str, str] = {}


class Here(Struct, frozen=True, omit_defaults=True):
    """Whether a limit or feature applies to the machine of a report.

    holds: None if that could not be determined or differs between devices. because: what was seen.
    on, not_on: the numbers of the devices, if it depends on them.
    """

    holds: bool | None = field(default_factory=lambda: None)
    because: str = ""
    on: tuple[int, ...] = ()
    not_on: tuple[int, ...] = ()


class JudgedLimit(Struct, frozen=True):
    """A limit, and whether it applies to this machine; here is null if the machine has no such device."""

    limit: Limit
    here: Here | None


class JudgedFeature(Struct, frozen=True):
    """A feature, and whether this machine has it; here is null if the machine has no such device."""

    feature: Feature
    here: Here | None


class KindPage(Struct, frozen=True):
    """All that is known of one kind of device.

    present: whether the report has such a device; null where that could not be determined, for the reason in
    `because`. values: the report's values about it, by dotted name.
    """

    kind: str
    title: str
    present: bool | None
    because: str
    devices: tuple[str, ...]
    limits: tuple[JudgedLimit, ...]
    features: tuple[JudgedFeature, ...]
    values: dict[str, FactValue]


class KindPages(Struct, frozen=True):
    """What `backends explain device --format json` prints."""

    schema: Annotated[str, Meta(description="backends.devices/1")]
    tool: str
    kinds: tuple[KindPage, ...]
