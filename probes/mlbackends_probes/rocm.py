"""ROCm: AMD's GPUs, the kernel driver for them, and the HIP runtime.

Finds:    GPUs in the KFD topology and on PCI, amdgpu, /dev/kfd and /dev/dri with who may open them,
          ROCm installations, rocm-sdk wheels, every libamdhip64, and the variables that hide GPUs.
Loadable: hipRuntimeGetVersion answers.
Usable:   device 0 of HIP fills memory, and what is copied back is right.
Caveats:  a container may hide GPUs from KFD that PCI still shows. HIP numbers the GPUs after the
          variables have been applied; here they are numbered before.
Source:   Linux uapi kfd_sysfs.h; HIP runtime API, hipRuntimeGetVersion, hipMalloc, hipMemset,
          hipDeviceGetAttribute and hipDeviceAttribute_t; ROCm documentation, "GPU isolation techniques".
"""

import re
from collections.abc import Callable  # noqa: TC003

from msgspec.structs import replace

from mlbackends.host.device_nodes import denied, render_node
from mlbackends.host.host import Host
from mlbackends.host.pci import FOLDER, link_facts, link_now
from mlbackends.host.python.packages import distributions
from mlbackends.host.variables import steering
from mlbackends.libraries.amd import (
    FOLDERS,
    HOMES,
    AmdGpu,
    frequency_hertz,
    gpus,
    links,
    unreadable_nodes,
    wheels,
)
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.patterns import pattern
from mlbackends.model.reasons import NotUsable, Reason
from mlbackends.model.records import Answer, Device, Fact, FactValue, Finding, Library, Presence

GROUP = "accelerator"
FACTS = (
    Fact("gpu_count", int, "How many AMD GPUs the kernel lists, before variables hide any."),
    Fact("visible_gpu_count", int, "How many the variables leave visible to HIP."),
    Fact("targets", list[str], "The instruction sets of the GPUs, as compilers name them."),
    Fact("driver", str, "The kernel driver of the GPUs; amdgpu is the one that computes."),
    Fact("driver_version", str, "The version of an amdgpu that does not come with the kernel."),
    Fact("installations", list[dict[str, str]], "ROCm installations: path and version."),
    Fact("wheels", list[str], "Installed rocm-sdk wheels, with their versions."),
    Fact("links", list[dict[str, int | str]], "Direct links between GPUs, by index."),
    Fact("unreadable_node_count", int, "GPUs that the container's limits forbid."),
    Fact("environment", dict[str, str], "The variables that steer ROCm and are set."),
    Fact("runtime_version", str, "The version of the HIP runtime, by its own word."),
    Fact("checked_device", int, "The HIP device on which memory was filled and read back."),
)
CODES = {
    "target-overridden": "A variable makes ROCm take a GPU for another one than it is.",
}

_VARIABLES = (
    "ROCM_PATH",
    "ROCM_HOME",
    "HIP_PATH",
    "HIP_PLATFORM",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HSA_OVERRIDE_GFX_VERSION",
    "HSA_ENABLE_SDMA",
    "HSA_XNACK",
    "HSA_NO_SCRATCH_RECLAIM",
    "HIP_LAUNCH_BLOCKING",
    "AMD_LOG_LEVEL",
    "GPU_MAX_HW_QUEUES",
    "PYTORCH_ROCM_ARCH",
)
_TARGET = pattern(r"(\d{1,2})\.(\d{1,3})\.(\d{1,3})")
_NO_DEVICE = (100, 101)  # hipErrorNoDevice, hipErrorInvalidDevice: how versions say "none"
_DEVICES_LIMIT = 64
_CHECK_BYTES = 4096
_DEVICE_TO_HOST = 2
_ATTRIBUTES = {
    "host-pointer-for-registered-memory": 4,
    "compute-preemption": 7,
    "concurrent-managed-access": 9,
    "cooperative-launch": 10,
    "direct-managed-access-from-host": 13,
    "integrated": 16,
    "managed-memory": 24,
    "pageable-memory-access": 65,
    "memory-pools": 88,
    "virtual-memory-management": 89,
    "host-registration": 90,
    "large-bar": 10011,
    "fine-grained-memory": 10016,
}
"""Word in a device's features -> the number of its hipDeviceAttribute_t, in HIP 5 and newer."""
_NUMBERED_SINCE = 5
_NAMES_FILES = ("/usr/share/libdrm/amdgpu.ids", "/opt/amdgpu/share/libdrm/amdgpu.ids")


def find(host: Host) -> Finding:
    """Look for GPUs, driver, installations and every copy of the HIP runtime."""
    libraries = libraries_named(
        host,
        "HIP",
        "libamdhip64",
        "amdhip64",
        "amdhip64_6",
        "amdhip64_7",
        homes=HOMES,
        folders=FOLDERS,
        wheels=wheels(host),
    )
    cards = gpus(host)
    installations = _installations(host)
    if not libraries and not cards and not installations:
        return Finding(reasons=(_nothing(host),))
    facts: dict[str, FactValue] = {"gpu_count": len(cards)}
    facts |= _driver_facts(host, cards)
    if installations:
        facts["installations"] = installations
    if sdk := _sdk_wheels(host):
        facts["wheels"] = sdk
    if table := links(host):
        facts["links"] = table
    if forbidden := unreadable_nodes(host):
        facts["unreadable_node_count"] = forbidden
    facts |= steering(host, _VARIABLES)
    computing = [card for card in cards if card.node is not None]
    if computing:
        facts["visible_gpu_count"] = _visible(host, computing)
    reasons = _reasons(host, cards)
    if not libraries:
        reasons += (absent(host, "libamdhip64.so", HOMES, ("/opt/rocm/lib",)),)
    return Finding(
        libraries=tuple(libraries),
        devices=tuple(_device(host, index, card) for index, card in enumerate(cards)),
        facts=facts,
        version=installations[0]["version"] if installations else "",
        presence=Presence.FOUND if installations and not libraries else None,
        reasons=reasons,
        warnings=_override_warnings(host, computing) + _visibility_warnings(host, computing),
    )


def _nothing(host: Host) -> Reason:
    if host.platform == "darwin":
        return Reason("not-this-platform", "ROCm exists for Linux and Windows; this is macOS")
    return absent(host, "AMD GPU on PCI and no libamdhip64.so", HOMES, ("/opt/rocm/lib",))


def _installations(host: Host) -> list[dict[str, str]]:
    """Return the ROCm folders that say their version; the one that ROCM_PATH names goes first."""
    named = [host.env(name).rstrip("/") for name in HOMES]
    found: dict[str, dict[str, str]] = {}
    for folder in (*filter(None, named), "/opt/rocm", *host.glob("/opt/rocm-*")):
        version = host.read(f"{folder}/.info/version", 256).split("\n")[0].strip()
        if re.fullmatch(r"\d+\.\d+[\w.+~-]*", version):
            found.setdefault(host.realpath(folder), {"path": folder, "version": version})
    return list(found.values())


def _sdk_wheels(host: Host) -> list[str]:
    return [
        f"{name} {dists[0].version}"
        for name, dists in sorted(distributions(host).items())
        if name in ("rocm", "amdsmi") or name.startswith("rocm-sdk")
    ]


def _driver_facts(host: Host, cards: tuple[AmdGpu, ...]) -> dict[str, FactValue]:
    facts: dict[str, FactValue] = {}
    drivers = sorted({card.pci.driver for card in cards if card.pci and card.pci.driver})
    if drivers:
        facts["driver"] = " ".join(drivers)
    elif any(card.node is not None for card in cards):
        facts["driver"] = "amdgpu"
    if version := host.read("/sys/module/amdgpu/version", 256):
        facts["driver_version"] = version
    if targets := sorted({card.target for card in cards if card.target}):
        facts["targets"] = targets
    return facts


def _device(host: Host, index: int, card: AmdGpu) -> Device:
    at = f"{FOLDER}/{card.address}"
    told = card.properties
    facts: dict[str, FactValue] = dict(link_facts(card.pci)) if card.pci else {}
    if told.get("simd_per_cu", 0) > 0:
        facts["compute_units"] = told["simd_count"] // told["simd_per_cu"]
    for fact, name in (("wavefront_size", "wave_front_size"), ("chiplets", "num_xcc")):
        if 0 < told.get(name, 0) <= 1 << 16:
            facts[fact] = told[name]
    if hertz := frequency_hertz(card):
        facts["max_clock_hertz"] = hertz
    modes = {
        "compute_partition": "current_compute_partition",
        "memory_partition": "current_memory_partition",
    }
    for fact, name in modes.items() if card.address else ():
        mode = host.read(f"{at}/{name}", 64)
        if re.fullmatch(r"[A-Z]{2,4}\d?", mode):
            facts[fact] = mode
    if card.partition:
        facts["partition"] = card.partition
    volatile: dict[str, FactValue] = dict(link_now(card.pci)) if card.pci else {}
    used = host.read_int(f"{at}/mem_info_vram_used") if card.address else None
    if used is not None and 0 <= used < 1 << 60:
        volatile["memory_used_bytes"] = used
    unique = told.get("unique_id", 0)
    return Device(
        kind="rocm",
        index=index,
        name=_name(host, card),
        memory_bytes=card.memory_bytes,
        capability=card.target,
        driver=card.pci.driver if card.pci else "amdgpu",
        pci_address=card.address,
        uuid=f"GPU-{unique:016x}" if unique else "",
        numa_node=card.pci.numa_node if card.pci else None,
        facts=facts,
        volatile=volatile,
        reasons=_device_reasons(host, card),
    )


def _name(host: Host, card: AmdGpu) -> str:
    """Return the product's name, from the card itself or from libdrm's list; "" without."""
    if not card.address:
        return ""
    if name := host.read(f"{FOLDER}/{card.address}/product_name", 256).strip():
        return name
    revision = host.read_int(f"{FOLDER}/{card.address}/revision")
    if card.pci is None or revision is None or revision < 0:
        return ""
    wanted = f"{card.pci.device},{revision:02x},".upper()
    for path in _NAMES_FILES:
        for line in host.read(path).splitlines():
            if line.replace("\t", "").replace(" ", "")[:8].upper() == wanted:
                return line.split(",", 2)[2].strip()
    return ""


def _device_reasons(host: Host, card: AmdGpu) -> tuple[Reason, ...]:
    if card.node is None:
        driver = card.pci.driver if card.pci else ""
        where = f"the AMD GPU at {card.address}"
        if not driver:
            message = f"{where} has no kernel driver; computing needs amdgpu"
            return (Reason("no-driver", message, "load it (sudo modprobe amdgpu) or install it"),)
        if driver == "amdgpu":
            message = f"{where} is driven by amdgpu, which lists no compute node (KFD) for it"
            return (Reason("unsupported-hardware", message),)
        return (Reason("no-driver", f"{where} is bound to {driver}; computing needs amdgpu"),)
    node = render_node(host, card.address) if card.address else ""
    reason = denied(host, node) if node else None
    return (reason,) if reason else ()


def _reasons(host: Host, cards: tuple[AmdGpu, ...]) -> tuple[Reason, ...]:
    if not cards:
        if host.exists("/dev/dxg"):  # below WSL the GPU is behind that, not on PCI
            return ()
        message = "no AMD GPU is on PCI or in the KFD topology; HIP needs one"
        return (Reason("no-device", message),)
    if all(card.node is None for card in cards):
        return _device_reasons(host, cards[0])
    reason = denied(host, "/dev/kfd")
    if reason:
        return (reason,)
    if host.listdir("/dev") and not host.exists("/dev/kfd"):
        return (
            Reason(
                "no-device",
                "the kernel lists AMD GPUs, but /dev/kfd is not here, through which they compute",
                "give the container the nodes: --device=/dev/kfd --device=/dev/dri",
            ),
        )
    return ()


def _override_warnings(host: Host, cards: list[AmdGpu]) -> tuple[Reason, ...]:
    value = host.env("HSA_OVERRIDE_GFX_VERSION")
    if not value:
        return ()
    match = _TARGET.fullmatch(value)
    if not match:
        message = f"HSA_OVERRIDE_GFX_VERSION is {value!r}; ROCm wants MAJOR.MINOR.STEPPING"
        return (Reason("override-invalid", message, "write it like 11.0.0, or unset it"),)
    asked = f"gfx{int(match[1])}{int(match[2]):x}{int(match[3]):x}"
    others = sorted({card.target for card in cards if card.target not in ("", asked)})
    if not others:
        return ()
    message = f"HSA_OVERRIDE_GFX_VERSION={value} makes ROCm take {', '.join(others)} for {asked}"
    hint = "code for another target may fail or compute wrongly; unset it where it is not needed"
    return (Reason("target-overridden", message, hint),)


def _visible(host: Host, cards: list[AmdGpu]) -> int:
    """Return how many GPUs are left: ROCr's list is applied first, HIP's to what that leaves."""
    count = len(cards)
    uuids = [f"gpu-{card.properties.get('unique_id', 0):016x}" for card in cards]
    listed = host.environment.get("ROCR_VISIBLE_DEVICES")
    if listed is not None:
        count = len(_chosen(listed, count, uuids))
    # An empty list means no list to HIP, and then CUDA's variable is taken.
    listed = host.env("HIP_VISIBLE_DEVICES") or host.env("CUDA_VISIBLE_DEVICES")
    return len(_chosen(listed, count, uuids)) if listed else count


def _chosen(listed: str, count: int, uuids: list[str]) -> list[str]:
    """Return the items of a list up to the first that names no device, as the runtimes read it."""
    chosen: list[str] = []
    for item in (part.strip().lower() for part in listed.split(",")):
        is_index = re.fullmatch(r"\d{1,6}", item) is not None and int(item) < count
        if not is_index and not (item.startswith("gpu-") and item in uuids):
            break
        if item not in chosen:
            chosen.append(item)
    return chosen


def _visibility_warnings(host: Host, cards: list[AmdGpu]) -> tuple[Reason, ...]:
    warnings = []
    ours, cuda = host.env("HIP_VISIBLE_DEVICES"), host.env("CUDA_VISIBLE_DEVICES")
    if cards and ours and cuda and ours != cuda:
        message = (
            f"HIP_VISIBLE_DEVICES={ours} and CUDA_VISIBLE_DEVICES={cuda} differ; the first holds"
        )
        warnings.append(Reason("conflict", message, "set one of them"))
    if cards and not _visible(host, cards):
        names = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
        shown = [f"{name}={host.environment[name]}" for name in names if name in host.environment]
        message = f"{', '.join(shown)} leaves none of {len(cards)} AMD GPUs visible"
        warnings.append(Reason("hidden-by-variable", message, "name indices from 0, or unset it"))
    return tuple(warnings)


# ---- in the child ------------------------------------------------------------------------------


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the runtime's version, which needs no GPU."""
    version = ctypes.c_int()
    status = opened.hipRuntimeGetVersion(ctypes.byref(version))
    if status or version.value <= 0:
        if status in _NO_DEVICE:  # it opens; older ones refuse even this without a GPU
            return Answer(library)
        raise _failed(opened, "hipRuntimeGetVersion", status)
    major, rest = divmod(version.value, 10_000_000)
    message = f"{major}.{rest // 100_000}.{rest % 100_000}"
    return Answer(replace(library, version=message), facts={"runtime_version": message})


def use(opened: CDLL, library: Library) -> Answer:
    """List HIP's devices, then fill memory on the first and read it back."""
    count = ctypes.c_int()
    status = opened.hipGetDeviceCount(ctypes.byref(count))
    if status in _NO_DEVICE or (not status and not count.value):
        message = f"hipGetDeviceCount returned {status} and {count.value} devices: HIP sees no GPU"
        raise NotUsable("no-device", message)
    if status:
        raise _failed(opened, "hipGetDeviceCount", status)
    is_numbered = _major(opened) >= _NUMBERED_SINCE
    devices = [
        _told(opened, index, is_numbered=is_numbered)
        for index in range(min(count.value, _DEVICES_LIMIT))
    ]
    _fill_and_read(opened, Answer(library, tuple(devices)))
    devices[0] = replace(devices[0], presence=Presence.USABLE)
    return Answer(library, tuple(devices), {"checked_device": 0})


def _major(opened: CDLL) -> int:
    """Return HIP's major version, 0 where it is not told."""
    version = ctypes.c_int()
    return 0 if opened.hipRuntimeGetVersion(ctypes.byref(version)) else version.value // 10_000_000


def _has(opened: CDLL, index: int, attribute: int) -> bool:
    """Tell whether a device has an attribute; an old runtime refuses those that it does not know."""
    value = ctypes.c_int()
    return (
        opened.hipDeviceGetAttribute(ctypes.byref(value), attribute, index) == 0 and value.value > 0
    )


def _told(opened: CDLL, index: int, *, is_numbered: bool) -> Device:
    name, address = ctypes.create_string_buffer(256), ctypes.create_string_buffer(64)
    size = ctypes.c_size_t()
    named = opened.hipDeviceGetName(name, 256, index) == 0
    placed = opened.hipDeviceGetPCIBusId(address, 64, index) == 0
    sized = opened.hipDeviceTotalMem(ctypes.byref(size), index) == 0
    return Device(
        kind="rocm",
        index=index,
        name=name.value.decode(errors="replace") if named else "",
        presence=Presence.LOADABLE,
        memory_bytes=size.value if sized and size.value else None,
        pci_address=address.value.decode(errors="replace").lower() if placed else "",
        features=tuple(word for word, number in _ATTRIBUTES.items() if _has(opened, index, number))
        if is_numbered
        else (),
    )


def _fill_and_read(opened: CDLL, learned: Answer) -> None:
    opened.hipMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    opened.hipMemset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    opened.hipMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    opened.hipFree.argtypes = [ctypes.c_void_p]
    memory = ctypes.c_void_p()
    back = ctypes.create_string_buffer(_CHECK_BYTES)
    steps: tuple[tuple[str, Callable[[], int]], ...] = (
        ("hipSetDevice", lambda: opened.hipSetDevice(0)),
        ("hipMalloc", lambda: opened.hipMalloc(ctypes.byref(memory), _CHECK_BYTES)),
        ("hipMemset", lambda: opened.hipMemset(memory, 0x5A, _CHECK_BYTES)),
        ("hipMemcpy", lambda: opened.hipMemcpy(back, memory, _CHECK_BYTES, _DEVICE_TO_HOST)),
        ("hipFree", lambda: opened.hipFree(memory)),
    )
    for name, call in steps:
        if status := call():
            raise _failed(opened, name, status, learned)
    if back.raw != b"\x5a" * _CHECK_BYTES:
        message = f"HIP device 0 filled {_CHECK_BYTES} bytes with 0x5a, and other bytes came back"
        raise NotUsable("wrong-result", message, learned=learned)


def _failed(opened: CDLL, function: str, status: int, learned: Answer | None = None) -> NotUsable:
    opened.hipGetErrorName.restype = ctypes.c_char_p
    name = (opened.hipGetErrorName(status) or b"no name").decode(errors="replace")
    return NotUsable("call-failed", f"{function} returned {status} ({name})", learned=learned)
