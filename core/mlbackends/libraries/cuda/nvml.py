"""NVML's data about GPUs, as records. Calls are made on the very file that was opened.

nvidia-ml-py would load whatever libnvidia-ml.so.1 the loader finds, so `bound` points it at ours. A
function that is missing, not supported or not permitted leaves its fact out; a GPU that does not answer any
more stays a device, with the reason. nvml.json has the words for NVML's numbers, and the functions that
return one number each. Source: NVML API reference.
"""

import sys
from typing import Any

from msgspec.structs import replace

from mlbackends.base.errors import counted
from mlbackends.base.quantities import format_cpu_list
from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.base.tables import table
from mlbackends.libraries.c_calls import CDLL
from mlbackends.model.records import Device, FactValue, Presence

#: What NVML writes where it has no value.
NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)

#: Errors after which a GPU is not queried further.
_LOST = (10, 11, 15, 16, 17, 999)
_RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; drivers from 560 on have it
_REMOTE_SWITCH = 2
_AFFINITY_WORDS = 64  # 4096 CPUs

#: A GPU's index, and its handle; None if it gave none.
Gpu = tuple[int, Any]

Facts = dict[str, FactValue]


def _words(name: str) -> Any:
    return table("libraries/cuda/nvml")[name]


# ---- calls --------------------------------------------------------------------------------------


class GpuGone(Exception):
    """A GPU does not answer any more."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(function)
        self.reason = refused(function, code).reason


def bound(opened: CDLL) -> Any:
    """Return nvidia-ml-py, using the library that was opened and no other."""
    import pynvml

    # The functions live in another module where the package of the old name is installed as well.
    sys.modules[pynvml.nvmlInit.__module__].nvmlLib = opened  # type: ignore[attr-defined]
    return pynvml


def refused(function: str, code: int) -> NotUsable:
    """Return what to raise where a function of NVML returned an error."""
    reason, meaning, hint = _words("refusals").get(str(code), ("call-failed", "", ""))
    message = f"{function} returned {code}"
    return NotUsable(reason, f"{message}: {meaning}" if meaning else message, hint)


def must(nvml: Any, function: str, *arguments: Any) -> Any:
    """Call a function without which nothing is known; raise NotUsable where it fails."""
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError as error:
        raise refused(function, error.value) from None


def query(nvml: Any, function: str, *arguments: Any) -> Any:
    """Return what a function returns, None if the value is unavailable; raises GpuGone for a lost GPU."""
    try:
        value = getattr(nvml, function)(*arguments)
        value = value.decode() if isinstance(value, bytes) else value
    except nvml.NVMLError as error:
        if error.value in _LOST:
            raise GpuGone(function, error.value) from None
        return None
    except (AttributeError, ValueError):
        # An nvidia-ml-py that is older than the function; a name that is not UTF-8.
        return None
    return None if value in NOT_AVAILABLE else value


def query_system(nvml: Any, function: str, *arguments: Any) -> Any:
    """Return what a function returns, None if the value is unavailable, also for a lost GPU."""
    try:
        return query(nvml, function, *arguments)
    except GpuGone:
        return None


def text_of(structure: Any, field: str) -> str:
    """Return a text field of one of nvidia-ml-py's structures, "" if it is not UTF-8."""
    try:
        value = getattr(structure, field)
        return value.decode() if isinstance(value, bytes) else str(value)
    except ValueError:
        return ""


# ---- the GPUs -----------------------------------------------------------------------------------


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
    """Return a GPU and its MIG instances, and what is wrong with it, for `of_several`."""
    gpu = _Gpu(nvml, handle)
    instances: list[Device] = []
    try:
        gpu.read_identity()
        gpu.read_facts()
        instances = _mig_instances(nvml, index, handle)
    except GpuGone as gone:
        return [gpu.device("cuda", index, Presence.FOUND, gone.reason), *instances], []
    return [gpu.device("cuda", index), *instances], _problems(gpu)


def of_several(problems: list[tuple[int, Reason]]) -> list[Reason]:
    """Return what is wrong with GPUs, what several have in common once: of GPU 0-2,5."""
    indices: dict[Reason, list[int]] = {}
    for index, reason in problems:
        indices.setdefault(reason, []).append(index)
    return [
        replace(reason, message=reason.message.replace(_ANY, f"GPU {format_cpu_list(gpus)}"))
        for reason, gpus in indices.items()
    ]


#: The placeholder of the GPU in a message.
_ANY = "{gpu}"
_NO_USE_CHECK = Reason("no-use-check", "NVML answers for it; cuda_driver reports whether it computes")


class _Gpu:
    """Reads one GPU, or a part of one, into the fields, facts and volatile facts of a device."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml = nvml
        self.handle = handle
        self.fields: dict[str, Any] = {}
        self.facts: Facts = {}
        self.volatile: Facts = {}

    def get(self, function: str, *arguments: Any) -> Any:
        return query(self.nvml, f"nvmlDeviceGet{function}", self.handle, *arguments)

    def device(
        self,
        kind: str,
        index: int,
        presence: Presence = Presence.LOADABLE,
        reason: Reason = _NO_USE_CHECK,
    ) -> Device:
        return Device(
            kind,
            index,
            presence=presence,
            facts=self.facts,
            volatile=self.volatile,
            reasons=(reason,),
            **self.fields,
        )

    def read_identity(self) -> None:
        """Read what MIG instances have too: names, memory, capability, NUMA node."""
        for field, function in (("name", "Name"), ("uuid", "UUID"), ("serial", "Serial")):
            value = self.get(function)
            if isinstance(value, str) and value:
                self.fields[field] = value
        pci = self.get("PciInfo")
        if pci is not None:
            self.fields["pci_address"] = _address(pci)
        memory = self.get("MemoryInfo")
        if memory is not None:
            if memory.total:
                self.fields["memory_bytes"] = memory.total
            self.volatile |= {"memory_free_bytes": memory.free, "memory_used_bytes": memory.used}
        capability = self.get("CudaComputeCapability")
        if capability and capability[0] > 0:
            self.fields["capability"] = f"{capability[0]}.{capability[1]}"
        nodes = _bits(self.get("MemoryAffinity", 1, 0))
        if len(nodes) == 1:
            self.fields["numa_node"] = nodes[0]

    def read_facts(self) -> None:
        bar = self.get("BAR1MemoryInfo")
        if bar is not None:
            self.facts["bar1_bytes"] = bar.bar1Total
        # nvml.json has the function of each number, its arguments and its unit.
        for holder, rows in ((self.facts, "numbers"), (self.volatile, "volatile_numbers")):
            for name, (factor, function, *arguments) in _words(rows).items():
                value = self.get(function, *arguments)
                if isinstance(value, int):
                    is_whole = isinstance(factor, int)
                    holder[name] = value * factor if is_whole else round(value * factor, 3)
        for holder, name, function in (
            (self.facts, "persistence_mode", "PersistenceMode"),
            (self.volatile, "display_active", "DisplayActive"),
        ):
            if (value := self.get(function)) is not None:
                holder[name] = bool(value)
        for name, function in _words("worded").items():
            if word := _words(name).get(str(self.get(function))):
                self.facts[name] = word
        for name, function in (("ecc", "EccMode"), ("mig", "MigMode")):
            modes = self.get(function)
            if modes is not None:
                self.facts |= {name: modes[0] == 1, f"{name}_pending": modes[1] == 1}
        models = self.get("DriverModel")  # of Windows: now, and after the next start
        if models and (word := _words("driver_model").get(str(models[0]))):
            self.facts["driver_model"] = word
        if self.facts.get("virtualisation") == "vgpu":
            licences = self.get("GridLicensableFeatures")
            count = licences.licensableFeaturesCount if licences is not None else 0
            if features := licences.gridLicensableFeatures[:count] if count else ():
                self.facts["licensed"] = any(feature.featureState for feature in features)
        for name, function in (("gsp_firmware", "GspFirmwareVersion"), ("vbios", "VbiosVersion")):
            if version := self.get(function):
                self.facts[name] = version
        rows = self.get("RemappedRows")
        if rows is not None:
            self.facts["remapped_rows"] = rows[0] + rows[1]
            self.facts["row_remap_pending"] = bool(rows[2])
            self.facts["row_remap_failed"] = bool(rows[3])
        fields = self.get("FieldValues", [_RECOVERY_ACTION])
        if fields is not None and fields[0].nvmlReturn == 0:
            number = str(fields[0].value.uiVal)
            self.facts["recovery_action"] = _words("recovery_actions").get(number, number)
        pages = [self.get("RetiredPages", cause) for cause in (0, 1)]
        if None not in pages:
            self.facts["retired_pages"] = sum(map(len, pages))
        # Drivers before 535 know the older name alone. A bit each, as nvmlClocksEventReason* have them.
        for function in ("CurrentClocksEventReasons", "CurrentClocksThrottleReasons"):
            if (events := self.get(function)) is not None:
                limits = _words("clock_limits").items()
                self.volatile["clock_limits"] = [word for bit, word in limits if events & int(bit, 16)]
                break
        constraints = self.get("PowerManagementLimitConstraints")
        if constraints is not None:
            self.facts["power_limit_max_watts"] = round(constraints[1] * 0.001, 3)
        self.read_nvlinks()
        if cpus := _bits(self.get("CpuAffinity", _AFFINITY_WORDS)):
            self.facts["cpu_affinity"] = format_cpu_list(cpus)

    def read_nvlinks(self) -> None:
        if links := _nvlinks(self.nvml, self.handle):
            self.facts |= {"nvlinks": len(links), "nvlinks_active": sum(links)}
            if (version := self.get("NvLinkVersion", 0)) is not None:
                self.facts["nvlink_version"] = version
            kind = self.get("NvLinkRemoteDeviceType", 0)
            if kind is not None:
                self.facts["nvlinks_lead_to_switch"] = kind == _REMOTE_SWITCH
        if hasattr(self.nvml, "c_nvmlGpuFabricInfoV_t"):
            import ctypes

            fabric = self.nvml.c_nvmlGpuFabricInfoV_t()
            found = self.get("GpuFabricInfoV", ctypes.byref(fabric))
            state = _words("fabric_states").get(str(fabric.state))
            if found is not None and state:
                self.facts["fabric_state"] = state


def _mig_instances(nvml: Any, parent: int, handle: Any) -> list[Device]:
    """Return the MIG instances of a GPU, numbered as CUDA does: by their place on it."""
    devices = []
    for slot in range(query(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        instance = query(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, slot)
        if instance is None:
            continue
        part = _Gpu(nvml, instance)
        part.facts["parent"] = parent
        part.read_identity()
        for field in ("pci_address", "serial"):  # the parent's: it would count as another GPU
            part.fields.pop(field, None)
        name = str(part.fields.get("name", ""))
        if " MIG " in name:
            part.facts["profile"] = name.rpartition(" MIG ")[2]
        for fact, function in _words("mig_numbers").items():
            if (number := part.get(function)) is not None:
                part.facts[fact] = number
        if (attributes := part.get("Attributes")) is not None:
            part.facts |= {fact: getattr(attributes, name) for fact, name in _words("mig_attributes").items()}
        devices.append(part.device("mig", slot))
    return devices


def _problems(gpu: _Gpu) -> list[Reason]:
    """Return the problems of a GPU that answers; `_ANY` is the placeholder of its name."""
    facts = gpu.facts | gpu.volatile
    count = facts.get("ecc_uncorrected_since_load")
    errors = counted(count, "memory error") if isinstance(count, int) else ""
    action = facts.get("recovery_action")
    advice = {"ecc-errors": f"its recovery action is {action}"} if action else {}
    reasons = [
        Reason(code, message.format(gpu=_ANY, value=facts[fact], errors=errors), advice.get(code, hint))
        for fact, values, code, message, hint in _words("problems")
        if facts.get(fact) and (not values or facts[fact] in values)
    ]
    if action not in (None, "none") and not facts.get("ecc_uncorrected_since_load"):
        message = f"{_ANY} needs recovery ({action}) after a fault"
        reasons.append(Reason("reset-required", message, "drain the machine first"))
    for mode in ("ecc", "mig"):
        if facts.get(mode) != facts.get(f"{mode}_pending"):
            turns = "on" if facts.get(f"{mode}_pending") else "off"
            message = f"{mode.upper()} of {_ANY} turns {turns} at its next reset"
            reasons.append(Reason("mode-change-pending", message, "reset the GPU, or reboot"))
    return reasons


# ---- between the GPUs, and on them --------------------------------------------------------------


def topology(nvml: Any, gpus: list[Gpu]) -> list[dict[str, FactValue]]:
    """Return how each pair of GPUs is connected: the PCI path, and the active NVLinks between them.

    Through NVSwitches, which connect all GPUs, that is the smaller number of the two GPUs' links.
    """
    remote: dict[int, list[str]] = {}
    switched: dict[int, int] = {}
    for index, handle in gpus:
        active = [link for link, up in enumerate(_nvlinks(nvml, handle)) if up]
        function = "nvmlDeviceGetNvLinkRemote"
        kinds = [query_system(nvml, f"{function}DeviceType", handle, link) for link in active]
        switched[index] = kinds.count(_REMOTE_SWITCH)
        infos = [query_system(nvml, f"{function}PciInfo", handle, link) for link in active]
        remote[index] = [_address(info) for info in infos if info is not None]
    pairs = []
    for place, (index, handle) in enumerate(gpus):
        for other, other_handle in gpus[place + 1 :]:
            pair: dict[str, FactValue] = {"gpus": [index, other]}
            level = query_system(nvml, "nvmlDeviceGetTopologyCommonAncestor", handle, other_handle)
            pci = query_system(nvml, "nvmlDeviceGetPciInfo", other_handle)
            if path := _words("paths").get(str(level)):
                pair["path"] = path
            direct = remote[index].count(_address(pci)) if pci is not None else 0
            if links := direct or min(switched[index], switched[other]):
                pair["nvlinks"] = links
            pairs.append(pair)
    return pairs


def processes(nvml: Any, gpus: list[Gpu]) -> list[dict[str, FactValue]]:
    """Return the processes that compute on the GPUs, those that the driver and the container show."""
    rows = []
    for index, handle in gpus:
        # The name without a version refuses to work with drivers older than 510.
        running = query_system(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", handle)
        if running is None:
            running = query_system(nvml, "nvmlDeviceGetComputeRunningProcesses_v2", handle)
        for process in running or ():
            row: dict[str, FactValue] = {"gpu": index, "pid": process.pid}
            if name := query_system(nvml, "nvmlSystemGetProcessName", process.pid):
                row["name"] = name
            if process.usedGpuMemory is not None:
                row["memory_bytes"] = process.usedGpuMemory
            rows.append(row)
    return rows


def _nvlinks(nvml: Any, handle: Any) -> list[bool]:
    """Return for each NVLink whether it is active; the first that is refused is after the last one."""
    states = []
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        state = query_system(nvml, "nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            break
        states.append(state == 1)
    return states


def _address(pci: Any) -> str:
    """Return a PCI address as the kernel writes it: 00000000:17:00.0 is 0000:17:00.0."""
    domain, colon, rest = text_of(pci, "busId").lower().partition(":")
    return f"{domain[-4:] if domain.startswith('0000') else domain}{colon}{rest}"


def _bits(words: Any) -> list[int]:
    """Return the numbers of the bits that are set in an array of 64-bit words."""
    words = words if words is not None else ()
    return [64 * i + bit for i, word in enumerate(words) for bit in range(64) if word >> bit & 1]
