"""What a survey finds, as records.

A record has the highest presence level that was really reached, and `reasons` state why the next one was
not. "Available" is not a level: people have used it for all of them.

Roles. Every field and every fact has one, written here or in the probe's FACTS, and put into the
JSON Schema as `x-role`:

    fact      what the machine is; compared by diffs and policies
    metric    a number that varies; two are equal if they differ by 1 % or less
    identity  names this machine or its user; shown, never compared, hidden by --redact
    volatile  differs between two runs; never compared
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from mlbackends.base.display import Displayed
from mlbackends.base.reasons import Reason

SCHEMA = "backends.report/1"

#: What the fact `imports` has for a module that was imported, and for one whose extension module was opened.
IMPORTED, OPENED = "imported", "opened"

FactValue = bool | int | float | str | list[Any] | dict[str, Any]


def nonempty(facts: Mapping[str, Any]) -> dict[str, FactValue]:
    """Return the facts that have a value: neither None nor an empty text, list or table."""
    return {name: value for name, value in facts.items() if value not in (None, "", (), [], {})}


class Presence(StrEnum):
    """How far a thing was seen to go; the order of the members is that of the levels."""

    #: Looked for and not there; the reason lists where it was looked for.
    ABSENT = "absent"
    #: A file, a package or a device is there.
    FOUND = "found"
    #: It opens in a process and answers questions about itself.
    LOADABLE = "loadable"
    #: It computed something right, on a device if it needs one.
    USABLE = "usable"

    @property
    def level(self) -> int:
        """The presence level as a number: 0 for absent to 3 for usable."""
        return list(Presence).index(self)


_Identity = Meta(extra_json_schema={"x-role": "identity"})
_Volatile = Meta(extra_json_schema={"x-role": "volatile"})


class Fact(Struct, frozen=True):
    """The declaration of one fact: its name below the probe, its type, and what it means.

    kind: the Python type of the value (`int`, `str`, `bool`, `float`, `list[str]`, `dict[str, int]`, ...).
    doc: one sentence, with the unit where there is one.
    role: fact, metric, identity or volatile; see the head of this module.
    order: for a text whose values are ordered, the values from the lowest to the highest.
    label: what pages for people call it, where the name alone would be misread.
    """

    name: str
    kind: Any
    doc: str
    role: str = "fact"
    order: tuple[str, ...] = ()
    label: str = ""


class Library(Struct, frozen=True, omit_defaults=True):
    """One copy of a library, on disk or mapped.

    found_by: the search step that found it. owner: the package that installed it, "" if unknown.
    wins: whether a package of this environment loads this copy, or, if none loads any, whether the loader
    finds it first under its soname. wins_because: the rule that decided.
    """

    name: str
    path: Annotated[str, Meta(extra_json_schema={"x-role": "fact", "x-redact": "home"})]
    soname: str = ""
    version: str = ""
    # A factory, since what equals a plain default is left out of the JSON; this never is.
    presence: Presence = field(default_factory=lambda: Presence.FOUND)
    found_by: str = ""
    owner: str = ""
    wins: bool = False
    wins_because: str = ""
    #: With --pid: whether that process has this file mapped now.
    used: bool | UnsetType = UNSET
    #: The packages of this environment that take this copy of a BLAS or an OpenMP runtime.
    used_by: tuple[str, ...] = ()
    facts: dict[str, FactValue] = {}
    reasons: tuple[Reason, ...] = ()


class Device(Struct, frozen=True, omit_defaults=True):
    """One accelerator, or a part of one (a MIG instance).

    kind: cuda, mig (an instance on a cuda device, which the fact `parent` names), rocm, xpu, mps,
    mtia, tpu, hpu, neuron, npu, opencl, vulkan.
    capability: what the vendor calls its instruction level: (9, 0), "gfx942", "Apple9".
    """

    kind: str
    index: int
    name: str = ""
    presence: Presence = field(default_factory=lambda: Presence.FOUND)
    memory_bytes: Annotated[int, Meta(ge=0)] | None = None
    capability: str = ""
    driver: str = ""
    pci_address: str = ""
    uuid: Annotated[str, _Identity] = ""
    serial: Annotated[str, _Identity] = ""
    numa_node: int | None = None
    features: tuple[str, ...] = ()
    facts: dict[str, FactValue] = {}
    volatile: Annotated[dict[str, FactValue], _Volatile] = {}
    reasons: tuple[Reason, ...] = ()


class Failure(Struct, frozen=True, omit_defaults=True):
    """The probe failed; that never means absent."""

    message: str
    traceback: Annotated[str, _Volatile] = ""


class Finding(Struct, frozen=True):
    """What a probe's `find` saw: files and environment only.

    presence: set if no library determines it (a CPU, a driver without files). Otherwise the survey uses the
    highest level among libraries and devices; without any, it is found if there are facts or a version and
    no reason against it, else absent. imports: the modules of its package, which a child imports.
    """

    libraries: tuple[Library, ...] = ()
    devices: tuple[Device, ...] = ()
    facts: dict[str, FactValue] = {}
    version: str = ""
    presence: Presence | None = None
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()
    imports: tuple[str, ...] = ()


class Answer(Struct, frozen=True):
    """What a probe's `load` or `use` learned from one opened library, in the child."""

    library: Library
    devices: tuple[Device, ...] = ()
    facts: dict[str, FactValue] = {}
    warnings: tuple[Reason, ...] = ()


class ProbeReport(Struct, frozen=True, omit_defaults=True):
    """The report of one probe.

    presence: None if it could not be determined; `failure` or a reason states why.
    reasons: why it is not on the next level. warnings: what is wrong although it is present.
    """

    presence: Presence | None
    version: str = ""
    facts: dict[str, FactValue] = {}
    libraries: tuple[Library, ...] = ()
    devices: tuple[Device, ...] = ()
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()
    failure: Failure | None = None
    source: str = ""
    duration_seconds: Annotated[float, _Volatile] = 0.0


def speaking_copy(name: str, libraries: Sequence[Library]) -> Library | None:
    """Return the copy that a probe's presence, version and facts are of.

    One that the process has mapped, then one that wins, then the highest presence level. Some probes report
    what goes with their library too, under its own name: cublasLt, cudnn_ops.
    """
    own = [library for library in libraries if library.name == name] or libraries
    return max(own, key=lambda one: (one.used is True, one.wins, one.presence.level), default=None)


class Report(Displayed, Struct, frozen=True):
    """A whole survey: one ProbeReport for each probe, under the probe's name.

    depth: the highest level that was tried. root: "/" for the live machine, else the recorded one.
    redacted: whether identifying values were replaced.
    """

    schema: str
    tool: str
    depth: Presence
    root: Annotated[str, _Volatile]
    created: Annotated[str, _Volatile]
    duration_seconds: Annotated[float, _Volatile]
    redacted: bool
    probes: dict[str, ProbeReport]

    def glance(self) -> str:
        """Return how many probes reached each presence level."""
        levels = [probe.presence or "not determined" for probe in self.probes.values()]
        counts = ", ".join(f"{levels.count(level)} {level}" for level in sorted({*levels}, reverse=True))
        return f"report of {self.root}: {counts or 'no probes'}"
