"""What NVML tells of GPUs, as records.

A function that tells nothing leaves its fact out; a GPU that does not answer any more stays a
device, with the reason.

Source: NVML API reference.

Calling NVML: on the very file that was opened, with each refusal told apart.

nvidia-ml-py knows every structure and constant; by itself it would load whatever libnvidia-ml.so.1
the loader finds, so `bound` points it at ours. A function that is missing, not supported or not
permitted tells nothing; errors after which a GPU answers no more are raised as GpuGone.

Source: NVML API reference, nvmlReturn_t.
"""

import sys
from typing import TYPE_CHECKING, Any

from mlbackends.model.reasons import NotUsable, Reason
from mlbackends.model.records import Device, FactValue, Presence

CODES = {
    "gpu-lost": "The GPU fell off the bus and answers no more.",
    "reset-required": "The GPU must be reset before it can be used again.",
    "ecc-errors": "The GPU's memory had errors that could not be corrected.",
    "row-remap-pending": "A row of the GPU's memory is replaced at its next reset.",
    "row-remap-failed": "A broken row of the GPU's memory could not be replaced.",
    "mode-change-pending": "A mode of the GPU changes at its next reset.",
    "compute-prohibited": "The GPU's compute mode forbids compute programs.",
    "access-lost": "NVML cannot reach the GPUs, whose nodes are there: a container lost its access.",
    "fabric-not-ready": "The NVLink fabric between the GPUs is not set up yet.",
}

_COMPUTE_MODES = ("default", "exclusive-thread", "prohibited", "exclusive-process")
_PROHIBITED = 2
_VIRTUALISATION = ("none", "passthrough", "vgpu", "host-vgpu", "host-vsga")
_FABRIC_STATES = {1: "not-started", 2: "in-progress", 3: "completed"}
_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
_PATHS = {
    0: "same-board",
    10: "one-switch",
    20: "several-switches",
    30: "host-bridge",
    40: "numa-node",
    50: "system",
}
_REMOTE_SWITCH = 2
_EVENTS = {
    0x1: "idle",
    0x2: "application-clocks",
    0x4: "software-power-cap",
    0x8: "hardware-slowdown",
    0x10: "sync-boost",
    0x20: "software-thermal-slowdown",
    0x40: "hardware-thermal-slowdown",
    0x80: "hardware-power-brake",
    0x100: "display-clocks",
}
"""Why the clocks are below the highest: a bit each, as nvmlClocksEventReason* have them."""
_CLOCKS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
_AFFINITY_WORDS = 64  # 4096 CPUs

Gpu = tuple[int, Any]
"""A GPU's index, and its handle; None where it gave none."""


# ---- the GPUs ----------------------------------------------------------------------------------


def all_gpus(nvml: Any, count: int) -> list[Gpu | tuple[int, Reason]]:
    """Return the handle of each GPU, or the reason why it gave none."""
    handles: list[Gpu | tuple[int, Reason]] = []
    for index in range(count):
        try:
            handles.append((index, must(nvml, "nvmlDeviceGetHandleByIndex", index)))
        except NotUsable as stop:
            handles.append((index, stop.reason))
    return handles


def described(nvml: Any, index: int, handle: Any) -> tuple[list[Device], list[Reason]]:
    """Return a GPU and its MIG instances, and what is wrong with it."""
    known: dict[str, Any] = {"kind": "cuda", "index": index, "facts": {}, "volatile": {}}
    instances: list[Device] = []
    try:
        _identity(nvml, handle, known)
        for part in (_memory, _modes, _errors, _link, _speed, _power, _place):
            part(nvml, handle, known["facts"], known["volatile"])
        instances = _mig_instances(nvml, index, handle)
    except GpuGone as gone:
        return [Device(**known, reasons=(gone.reason,)), *instances], []
    said = "NVML answers for it; whether it computes is what cuda_driver tells"
    known["reasons"] = (Reason("no-use-check", said),)
    device = Device(**known, presence=Presence.LOADABLE)
    return [device, *instances], _health(device)


def _identity(nvml: Any, handle: Any, known: dict[str, Any]) -> None:
    for field, function in (
        ("name", "nvmlDeviceGetName"),
        ("uuid", "nvmlDeviceGetUUID"),
        ("serial", "nvmlDeviceGetSerial"),
    ):
        value = told(nvml, function, handle)
        if isinstance(value, str) and value:
            known[field] = value
    pci = told(nvml, "nvmlDeviceGetPciInfo", handle)
    if pci is not None:
        known["pci_address"] = _address(pci)
    memory = told(nvml, "nvmlDeviceGetMemoryInfo", handle)
    if memory is not None and memory.total:
        known["memory_bytes"] = memory.total
    capability = told(nvml, "nvmlDeviceGetCudaComputeCapability", handle)
    if capability and capability[0] > 0:
        known["capability"] = f"{capability[0]}.{capability[1]}"
    nodes = _numbers(told(nvml, "nvmlDeviceGetMemoryAffinity", handle, 1, 0))
    if len(nodes) == 1:
        known["numa_node"] = nodes[0]


Facts = dict[str, FactValue]


def _memory(nvml: Any, handle: Any, facts: Facts, volatile: Facts) -> None:
    memory = told(nvml, "nvmlDeviceGetMemoryInfo", handle)
    if memory is not None:
        volatile |= {"memory_free_bytes": memory.free, "memory_used_bytes": memory.used}
    bar = told(nvml, "nvmlDeviceGetBAR1MemoryInfo", handle)
    if bar is not None:
        facts["bar1_bytes"] = bar.bar1Total
    _keep(facts, "memory_bus_bits", told(nvml, "nvmlDeviceGetMemoryBusWidth", handle))
    _keep(facts, "cores", told(nvml, "nvmlDeviceGetNumGpuCores", handle))


def _modes(nvml: Any, handle: Any, facts: Facts, volatile: Facts) -> None:
    persistence = told(nvml, "nvmlDeviceGetPersistenceMode", handle)
    if persistence is not None:
        facts["persistence_mode"] = bool(persistence)
    display = told(nvml, "nvmlDeviceGetDisplayActive", handle)
    if display is not None:
        volatile["display_active"] = bool(display)
    _word(facts, "compute_mode", _COMPUTE_MODES, told(nvml, "nvmlDeviceGetComputeMode", handle))
    mode = told(nvml, "nvmlDeviceGetVirtualizationMode", handle)
    _word(facts, "virtualisation", _VIRTUALISATION, mode)
    architecture = told(nvml, "nvmlDeviceGetArchitecture", handle)
    if architecture in _ARCHITECTURES:
        facts["architecture"] = _ARCHITECTURES[architecture]
    for name, function in (("ecc", "nvmlDeviceGetEccMode"), ("mig", "nvmlDeviceGetMigMode")):
        modes = told(nvml, function, handle)
        if modes is not None:
            facts[name] = modes[0] == 1
            facts[f"{name}_pending"] = modes[1] == 1
    firmware = told(nvml, "nvmlDeviceGetGspFirmwareVersion", handle)
    if isinstance(firmware, str) and firmware:
        facts["gsp_firmware"] = firmware


def _errors(nvml: Any, handle: Any, facts: Facts, volatile: Facts) -> None:
    for kind, name in enumerate(("corrected", "uncorrected")):
        for counter, since in enumerate(("since_load", "ever")):
            count = told(nvml, "nvmlDeviceGetTotalEccErrors", handle, kind, counter)
            _keep(volatile, f"ecc_{name}_{since}", count)
    rows = told(nvml, "nvmlDeviceGetRemappedRows", handle)
    if rows is not None:
        facts["remapped_rows"] = rows[0] + rows[1]
        facts["row_remap_pending"] = bool(rows[2])
        facts["row_remap_failed"] = bool(rows[3])
    pages = [told(nvml, "nvmlDeviceGetRetiredPages", handle, cause) for cause in (0, 1)]
    if None not in pages:
        facts["retired_pages"] = sum(map(len, pages))


def _link(nvml: Any, handle: Any, facts: Facts, volatile: Facts) -> None:
    for name, function in (("generation", "LinkGeneration"), ("width", "LinkWidth")):
        _keep(facts, f"max_pcie_{name}", told(nvml, f"nvmlDeviceGetMaxPcie{function}", handle))
        _keep(volatile, f"pcie_{name}", told(nvml, f"nvmlDeviceGetCurrPcie{function}", handle))
    links = _nvlinks(nvml, handle)
    if links:
        facts["nvlinks"] = len(links)
        facts["nvlinks_active"] = sum(links)
        _keep(facts, "nvlink_version", told(nvml, "nvmlDeviceGetNvLinkVersion", handle, 0))
        kind = told(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, 0)
        if kind is not None:
            facts["nvlinks_lead_to_switch"] = kind == _REMOTE_SWITCH
    if hasattr(nvml, "c_nvmlGpuFabricInfoV_t"):
        import ctypes

        fabric = nvml.c_nvmlGpuFabricInfoV_t()
        answered = told(nvml, "nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(fabric))
        if answered is not None and fabric.state in _FABRIC_STATES:
            facts["fabric_state"] = _FABRIC_STATES[fabric.state]


def _speed(nvml: Any, handle: Any, facts: Facts, volatile: Facts) -> None:
    for name, clock in _CLOCKS.items():
        most = told(nvml, "nvmlDeviceGetMaxClockInfo", handle, clock)
        now = told(nvml, "nvmlDeviceGetClockInfo", handle, clock)
        _keep(facts, f"max_{name}_clock_hertz", most, 1_000_000)
        _keep(volatile, f"{name}_clock_hertz", now, 1_000_000)
    _keep(volatile, "temperature_celsius", told(nvml, "nvmlDeviceGetTemperature", handle, 0))
    # Drivers before 535 know the older name alone.
    for function in ("EventReasons", "ThrottleReasons"):
        events = told(nvml, f"nvmlDeviceGetCurrentClocks{function}", handle)
        if events is not None:
            volatile["clock_limits"] = [word for bit, word in _EVENTS.items() if events & bit]
            break


def _power(nvml: Any, handle: Any, facts: Facts, volatile: Facts) -> None:
    limit = told(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle)
    default = told(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", handle)
    constraints = told(nvml, "nvmlDeviceGetPowerManagementLimitConstraints", handle)
    _keep(facts, "power_limit_watts", limit, 0.001)
    _keep(facts, "power_limit_default_watts", default, 0.001)
    if constraints is not None:
        _keep(facts, "power_limit_max_watts", constraints[1], 0.001)
    _keep(volatile, "power_watts", told(nvml, "nvmlDeviceGetPowerUsage", handle), 0.001)


def _place(nvml: Any, handle: Any, facts: Facts, volatile: Facts) -> None:  # noqa: ARG001
    cpus = _numbers(told(nvml, "nvmlDeviceGetCpuAffinity", handle, _AFFINITY_WORDS))
    if cpus:
        facts["cpu_affinity"] = ranges(cpus)


def _mig_instances(nvml: Any, parent: int, handle: Any) -> list[Device]:
    """Return the MIG instances of a GPU, numbered as CUDA does: by their place on it."""
    found = []
    for slot in range(told(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        instance = told(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, slot)
        if instance is None:
            continue
        known: dict[str, Any] = {}
        facts: Facts = {"parent": parent}
        volatile: Facts = {}
        _identity(nvml, instance, known)
        for field in ("pci_address", "serial"):  # the parent's: it would pass for a GPU of its own
            known.pop(field, None)
        name = str(known.get("name", ""))
        if " MIG " in name:
            facts["profile"] = name.rpartition(" MIG ")[2]
        _keep(facts, "gpu_instance", told(nvml, "nvmlDeviceGetGpuInstanceId", instance))
        _keep(facts, "compute_instance", told(nvml, "nvmlDeviceGetComputeInstanceId", instance))
        attributes = told(nvml, "nvmlDeviceGetAttributes", instance)
        if attributes is not None:
            facts["multiprocessors"] = attributes.multiprocessorCount
            facts["gpu_slices"] = attributes.gpuInstanceSliceCount
            facts["compute_slices"] = attributes.computeInstanceSliceCount
        memory = told(nvml, "nvmlDeviceGetMemoryInfo", instance)
        if memory is not None:
            volatile = {"memory_free_bytes": memory.free, "memory_used_bytes": memory.used}
        known |= {"presence": Presence.LOADABLE, "facts": facts, "volatile": volatile}
        said = "NVML answers for it; whether it computes is what cuda_driver tells"
        found.append(Device("mig", slot, **known, reasons=(Reason("no-use-check", said),)))
    return found


def _health(device: Device) -> list[Reason]:
    """Return what is wrong with a GPU although it answers."""
    facts, gpu = device.facts, f"GPU {device.index}"
    found = []
    uncorrected = device.volatile.get("ecc_uncorrected_since_load")
    if isinstance(uncorrected, int) and uncorrected > 0:
        said = f"{gpu} had {uncorrected} memory errors since its driver was loaded, not corrected"
        found.append(Reason("ecc-errors", said, "reset it; if they come back, replace it"))
    if facts.get("row_remap_failed"):
        said = f"{gpu} could not replace a broken row of its memory"
        found.append(Reason("row-remap-failed", said, "replace the GPU"))
    if facts.get("row_remap_pending"):
        said = f"{gpu} replaces a broken row of its memory at its next reset"
        found.append(Reason("row-remap-pending", said, "drain the machine and reset the GPU"))
    for mode in ("ecc", "mig"):
        if facts.get(mode) != facts.get(f"{mode}_pending"):
            turns = "on" if facts.get(f"{mode}_pending") else "off"
            said = f"{mode.upper()} of {gpu} turns {turns} at its next reset"
            found.append(Reason("mode-change-pending", said, "reset the GPU, or reboot"))
    if facts.get("compute_mode") == _COMPUTE_MODES[_PROHIBITED]:
        said = f"the compute mode of {gpu} is prohibited: no CUDA program gets it"
        found.append(Reason("compute-prohibited", said, "nvidia-smi -c DEFAULT, as root"))
    if facts.get("fabric_state") in ("not-started", "in-progress"):
        said = f"the NVLink fabric of {gpu} is {facts['fabric_state']}: CUDA cannot start"
        hint = "start nvidia-fabricmanager in exactly the driver's version"
        found.append(Reason("fabric-not-ready", said, hint))
    return found


# ---- between the GPUs, and on them --------------------------------------------------------------


def topology(nvml: Any, gpus: list[Gpu]) -> list[dict[str, FactValue]]:
    """Return how each pair of GPUs is joined: the PCI path, and the NVLinks that are up between."""
    remote = {index: _remote_addresses(nvml, handle) for index, handle in gpus}
    pairs = []
    for place, (one, handle) in enumerate(gpus):
        for other, other_handle in gpus[place + 1 :]:
            pair: dict[str, FactValue] = {"gpus": [one, other]}
            try:
                level = told(nvml, "nvmlDeviceGetTopologyCommonAncestor", handle, other_handle)
                pci = told(nvml, "nvmlDeviceGetPciInfo", other_handle)
            except GpuGone:
                continue
            if level in _PATHS:
                pair["path"] = _PATHS[level]
            if pci is not None and (links := remote[one].count(_address(pci))):
                pair["nvlinks"] = links
            pairs.append(pair)
    return pairs


def processes(nvml: Any, gpus: list[Gpu]) -> list[dict[str, FactValue]]:
    """Return who computes on the GPUs, as far as the driver and the container let us see."""
    found = []
    for index, handle in gpus:
        try:
            for process in _running(nvml, handle):
                one: dict[str, FactValue] = {"gpu": index, "pid": process.pid}
                name = told_by_system(nvml, "nvmlSystemGetProcessName", process.pid)
                if name:
                    one["name"] = name
                if process.usedGpuMemory is not None:
                    one["memory_bytes"] = process.usedGpuMemory
                found.append(one)
        except GpuGone:
            continue
    return found


def _running(nvml: Any, handle: Any) -> list[Any]:
    # The name without a version refuses to work with drivers older than 510.
    for version in ("_v3", "_v2"):
        running = told(nvml, f"nvmlDeviceGetComputeRunningProcesses{version}", handle)
        if running is not None:
            return list(running)
    return []


def _nvlinks(nvml: Any, handle: Any) -> list[bool]:
    """Return for each NVLink whether it is up; the first that is refused is beyond the last."""
    states = []
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        state = told(nvml, "nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            break
        states.append(state == 1)
    return states


def _remote_addresses(nvml: Any, handle: Any) -> list[str]:
    try:
        active = [link for link, up in enumerate(_nvlinks(nvml, handle)) if up]
        infos = [told(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link) for link in active]
    except GpuGone:
        return []
    return [_address(info) for info in infos if info is not None]


def _address(pci: Any) -> str:
    """Return a PCI address as the kernel writes it: 00000000:17:00.0 is 0000:17:00.0."""
    domain, colon, rest = text_of(pci, "busId").lower().partition(":")
    return f"{domain[-4:] if domain.startswith('0000') else domain}{colon}{rest}"


def _keep(facts: Facts, name: str, value: Any, factor: float = 1) -> None:
    """Write a number down in the fact's unit, where one was told."""
    if isinstance(value, int) and value not in NOT_AVAILABLE:
        facts[name] = value * factor if isinstance(factor, int) else round(value * factor, 3)


def _word(facts: Facts, name: str, words: tuple[str, ...], value: Any) -> None:
    if isinstance(value, int) and 0 <= value < len(words):
        facts[name] = words[value]


def _numbers(words: Any) -> list[int]:
    """Return the numbers of the bits that are set in an array of 64-bit words."""
    if words is None:
        return []
    return [64 * i + bit for i, word in enumerate(words) for bit in range(64) if word >> bit & 1]


def ranges(numbers: list[int]) -> str:
    """Return rising numbers as the kernel writes lists of CPUs: 0-3,8."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


if TYPE_CHECKING:
    import ctypes

NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
"""What NVML writes where it has no value."""

_REFUSALS = {
    4: ("permission-denied", "this user may not ask", "look at the rights of /dev/nvidiactl"),
    9: ("no-driver", "the nvidia kernel module is not loaded", "load it, or install the driver"),
    10: ("timed-out", "the driver did not answer in its own time limit", ""),
    12: ("missing-dependency", "a library that NVML opens is not there", ""),
    13: ("missing-symbol", "the library lacks the function", ""),
    15: ("gpu-lost", "the GPU fell off the bus", "power-cycle the machine; look for Xid 79"),
    16: ("reset-required", "the GPU must be reset", "nvidia-smi --gpu-reset, or reboot"),
    17: ("access-lost", "the operating system or a cgroup refused", "restart the container"),
    18: (
        "driver-mismatch",
        "the kernel module and the library are of different versions",
        "reboot, or reload the nvidia kernel modules",
    ),
    28: ("no-device", "no GPU was found", ""),
    999: ("access-lost", "the driver does not say why", "restart the container, or reboot"),
}
_SILENT = (10, 11, 15, 16, 17, 999)
"""Errors after which a GPU is not asked on."""


def bound(opened: "ctypes.CDLL") -> Any:
    """Return nvidia-ml-py, using the library that was opened and no other."""
    import pynvml

    # The functions live in another module where the package of the old name is installed as well.
    sys.modules[pynvml.nvmlInit.__module__].nvmlLib = opened  # type: ignore[attr-defined]
    return pynvml


def refused(function: str, code: int) -> NotUsable:
    """Return what to raise where a function of NVML returned an error."""
    reason, meaning, hint = _REFUSALS.get(code, ("call-failed", "", ""))
    said = f"{function} returned {code}"
    return NotUsable(reason, f"{said}: {meaning}" if meaning else said, hint)


def must(nvml: Any, function: str, *arguments: Any) -> Any:
    """Call a function without which nothing can be told; raise NotUsable where it fails."""
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError as error:
        raise refused(function, error.value) from None


def told(nvml: Any, function: str, *arguments: Any) -> Any:
    """Return what a function says, None where it cannot tell; raises GpuGone for a lost GPU."""
    try:
        value = getattr(nvml, function)(*arguments)
    except nvml.NVMLError as error:
        if error.value in _SILENT:
            raise GpuGone(function, error.value) from None
        return None
    except (AttributeError, ValueError):
        # An nvidia-ml-py that is older than the function; a name that is no UTF-8.
        return None
    return None if value in NOT_AVAILABLE else value


def told_by_system(nvml: Any, function: str, *arguments: Any) -> Any:
    """Return what a function that asks no GPU says, None where it cannot tell."""
    try:
        return told(nvml, function, *arguments)
    except GpuGone:
        return None


class GpuGone(Exception):
    """A GPU does not answer any more."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(function)
        self.reason = refused(function, code).reason


def text_of(structure: Any, field: str) -> str:
    """Return a text field of one of nvidia-ml-py's structures, "" where it is no UTF-8."""
    try:
        value = getattr(structure, field)
        return value.decode() if isinstance(value, bytes) else str(value)
    except ValueError:
        return ""
