"""The record of `backends top`: what uses the GPUs, cores and memory of a machine now."""

from typing import Annotated

from msgspec import Meta, Struct

from mlbackends.base.reasons import Reason

SCHEMA = "backends.top/1"

_Percent = Annotated[float, Meta(ge=0)]
_Identity = Meta(extra_json_schema={"x-role": "identity"})


class MappedLibrary(Struct, frozen=True, omit_defaults=True):
    """A backend library of which a process has a file mapped.

    name: of the probe that knows it. version, owner: from files, "" if unknown; owner is the
    package that installed it. replaced: whether that file is no longer there, or is another one by now.
    """

    name: str
    path: str
    version: str = ""
    owner: str = ""
    replaced: bool = False


class ProcessUsage(Struct, frozen=True):
    """One process; None is what could not be determined, as of another user's.

    cpu_percent: 100 is one CPU. cpus: how many it may use, by affinity and CPU quota. state: the kernel's
    letter. command: its arguments, "" where the record is redacted. libraries: backend libraries that it
    has mapped. gpus, gpu_memory_bytes: those that it computes on, and what it has there of all of them.
    running_threads: those that ran or waited for a CPU at that moment, counted where a library that starts
    pools is mapped and there are more threads than CPUs. oversubscribed: they are more than its CPUs.
    """

    pid: int
    name: str
    user: Annotated[str, _Identity] = ""
    command: Annotated[str, _Identity] = ""
    state: str = ""
    cpu_percent: _Percent | None = None
    threads: int | None = None
    running_threads: int | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: tuple[int, ...] = ()
    gpu_memory_bytes: int | None = None
    libraries: tuple[MappedLibrary, ...] | None = None
    oversubscribed: bool = False


class GpuProcess(Struct, frozen=True):
    """A process that computes on a GPU, by the driver's number, which need not be that of a container."""

    pid: int
    name: str = ""
    memory_bytes: int | None = None


class GpuUsage(Struct, frozen=True):
    """One GPU; None if NVML does not report a value. reasons: why it reports no more."""

    index: int
    name: str = ""
    mig: bool | None = None
    utilisation_percent: _Percent | None = None
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    processes: tuple[GpuProcess, ...] = ()
    reasons: tuple[Reason, ...] = ()


class MachineUsage(Struct, frozen=True):
    """The whole machine, whatever a container leaves of it.

    core_percents: of each CPU, in the order of their numbers. load: over 1, 5 and 15 minutes.
    memory_used_bytes: what could not be given to a new program without swapping.
    """

    cpus: int
    cpu_percent: _Percent | None = None
    core_percents: tuple[_Percent, ...] = ()
    load: tuple[float, ...] = ()
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    swap_bytes: int | None = None
    swap_used_bytes: int | None = None


class GroupUsage(Struct, frozen=True):
    """The control group of `backends` itself, so the container's where it runs in one.

    cpus: its CPU quota, None without one. cpu_percent: 100 is one CPU. throttled_percent: of the periods
    since the last sample, those in which the quota stopped it; None where no period was counted.
    pressure: the share of the last ten seconds, in percent, in which some process waited for cpu,
    memory or io.
    """

    cpus: float | None = None
    cpu_percent: _Percent | None = None
    throttled_percent: _Percent | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    pressure: dict[str, float] = {}


class Usage(Struct, frozen=True):
    """One sample. interval_seconds: the time over which shares and rates were measured.

    process_count: how many processes there are; `processes` has those that were asked for, sorted.
    notes: what could not be determined, and why. redacted: whether identifying values were replaced.
    """

    schema: str
    tool: str
    created: str
    interval_seconds: float
    redacted: bool
    machine: MachineUsage
    group: GroupUsage
    gpus: tuple[GpuUsage, ...]
    process_count: int
    processes: tuple[ProcessUsage, ...]
    notes: tuple[Reason, ...] = ()
