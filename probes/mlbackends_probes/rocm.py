"""ROCm: AMD's GPUs, the kernel driver for them, and the HIP runtime.

Finds:    GPUs in the KFD topology and on PCI, amdgpu, /dev/kfd and /dev/dri with their permissions,
          ROCm installations, rocm-sdk wheels, every libamdhip64, and the variables that hide GPUs.
Loadable: hipRuntimeGetVersion answers.
Usable:   device 0 of HIP fills memory, and what is copied back is right.
Caveats:  a container may hide GPUs from KFD that PCI still shows. HIP numbers the GPUs after the
          variables have been applied; here they are numbered before.
Source:   Linux uapi kfd_sysfs.h; HIP runtime API, hipRuntimeGetVersion, hipMalloc, hipMemset,
          hipDeviceGetAttribute and hipDeviceAttribute_t; ROCm documentation, "GPU isolation techniques".
"""

import re
from typing import Any

from msgspec.structs import replace

from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.base.tables import table
from mlbackends.host.declared import steering
from mlbackends.host.device_nodes import all_denied, render_node, unusable
from mlbackends.host.host import Host
from mlbackends.host.pci import FOLDER, display_driver, link_facts, link_now
from mlbackends.host.python.packages import distributions
from mlbackends.libraries import amd
from mlbackends.libraries.c_calls import CDLL, ctypes, decimal_version
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.records import Answer, Device, FactValue, Finding, Library, Presence, nonempty

GROUP = "accelerator"

_STEMS = ("libamdhip64",)
_TARGET = pattern(r"(\d{1,2})\.(\d{1,3})\.(\d{1,3})")
_NO_DEVICE = (100, 101)  # hipErrorNoDevice, hipErrorInvalidDevice, depending on the version
_DEVICES_LIMIT = 64
#: The HIP since which the numbers of hipDeviceAttribute_t are as they are.
_NUMBERED_SINCE = 5
_NAMES_FILES = ("/usr/share/libdrm/amdgpu.ids", "/opt/amdgpu/share/libdrm/amdgpu.ids")


def find(host: Host) -> Finding:
    """Look for GPUs, driver, installations and every copy of the HIP runtime."""
    libraries = libraries_named(
        host, "HIP", *_STEMS, homes=amd.HOMES, folders=amd.FOLDERS, wheels=amd.wheels(host)
    )
    cards = amd.gpus(host)
    # The folders with a version; the one that ROCM_PATH names goes first.
    rooted: dict[str, dict[str, str]] = {}
    named = filter(None, (host.env(name).rstrip("/") for name in amd.HOMES))
    for folder in (*named, "/opt/rocm", *host.glob("/opt/rocm-*")):
        version = host.read(f"{folder}/.info/version", 256).split("\n")[0].strip()
        if version and re.fullmatch(r"\d+\.\d+[\w.+~-]*", version):
            rooted.setdefault(host.realpath(folder), {"path": folder, "version": version})
    installations = list(rooted.values())
    if not libraries and not cards and not installations:
        if host.platform == "darwin":
            message = "ROCm exists for Linux and Windows; this is macOS"
            return Finding(reasons=(Reason("not-this-platform", message),))
        missing = "AMD GPU on PCI and no libamdhip64.so"
        return Finding(reasons=(absent(host, missing, amd.HOMES, _places(host)),))
    drivers = sorted({card.pci.driver for card in cards if card.pci and card.pci.driver})
    computing = [card for card in cards if card.node is not None]
    facts = {
        "gpu_count": len(cards),
        "driver": " ".join(drivers) or ("amdgpu" if computing else ""),
        "driver_version": host.read("/sys/module/amdgpu/version", 256),
        "targets": sorted({card.target for card in cards if card.target}),
        "installations": installations,
        "wheels": [
            f"{name} {dists[0].version}"
            for name, dists in sorted(distributions(host).items())
            if name in ("rocm", "amdsmi") or name.startswith("rocm-sdk")
        ],
        "links": amd.links(host),
        "unreadable_node_count": amd.unreadable_nodes(host) or None,
        **steering(host, "rocm"),
        **_ollama(host),
        "visible_gpu_count": _visible(host, computing) if computing else None,
    }
    reasons = _reasons(host, cards)
    if not libraries:
        reasons += (absent(host, "libamdhip64.so", amd.HOMES, _places(host)),)
    return Finding(
        libraries=tuple(libraries),
        devices=tuple(_device(host, index, card) for index, card in enumerate(cards)),
        facts=nonempty(facts),
        version=installations[0]["version"] if installations else "",
        presence=Presence.FOUND if installations and not libraries else None,
        reasons=reasons,
        warnings=_warnings(host, computing),
    )


def _ollama(host: Host) -> dict[str, Any]:
    """Return which libraries for GPUs an Ollama that is installed has, and the AMD GPUs they are for."""
    places = ("/usr/local/lib/ollama", "/usr/lib/ollama")
    folder = next((place for place in places if host.is_dir(place)), "")
    if not folder:
        return {}
    parts = [name for name in host.listdir(folder) if host.is_dir(f"{folder}/{name}")]
    code = " ".join(host.listdir(f"{folder}/rocm/rocblas/library"))
    return {
        "ollama_folder": folder,
        "ollama_libraries": parts or ["none"],
        "ollama_targets": sorted(set(amd.TARGET.findall(code))),
    }


def _places(host: Host) -> tuple[str, ...]:
    """Return the folder that the reason of an absence names."""
    return () if host.platform == "win32" else ("/opt/rocm/lib",)


def _device(host: Host, index: int, card: amd.AmdGpu) -> Device:
    at, properties, pci = f"{FOLDER}/{card.address}", card.properties, card.pci
    facts: dict[str, Any] = {**link_facts(pci)} if pci else {}
    if properties.get("simd_per_cu", 0) > 0:
        facts["compute_units"] = properties["simd_count"] // properties["simd_per_cu"]
    for fact, name in (("wavefront_size", "wave_front_size"), ("chiplets", "num_xcc")):
        if 0 < properties.get(name, 0) <= 1 << 16:
            facts[fact] = properties[name]
    megahertz = card.properties.get("max_engine_clk_fcompute", 0)
    facts["max_clock_hertz"] = megahertz * 1_000_000 if 0 < megahertz < 1 << 20 else None
    for fact in ("compute_partition", "memory_partition") if card.address else ():
        mode = host.read(f"{at}/current_{fact}", 64)
        facts[fact] = mode if re.fullmatch(r"[A-Z]{2,4}\d?", mode) else ""
    facts["partition"] = card.partition or None
    volatile: dict[str, FactValue] = {**link_now(pci)} if pci else {}
    used = host.read_int(f"{at}/mem_info_vram_used") if card.address else None
    if used is not None and 0 <= used < 1 << 60:
        volatile["memory_used_bytes"] = used
    unique = properties.get("unique_id", 0)
    return Device(
        kind="rocm",
        index=index,
        name=_name(host, card),
        memory_bytes=card.memory_bytes,
        capability=card.target,
        driver=pci.driver if pci else "amdgpu",
        pci_address=card.address,
        uuid=f"GPU-{unique:016x}" if unique else "",
        numa_node=pci.numa_node if pci else None,
        facts=nonempty(facts),
        volatile=volatile,
        reasons=_device_reasons(host, card),
    )


def _name(host: Host, card: amd.AmdGpu) -> str:
    """Return the product's name, from the card itself or from libdrm's list; "" without."""
    if card.pci and card.pci.registry_key:
        return str(display_driver(host, card.pci).get("name", ""))
    if not card.address:
        return ""
    if name := host.read(f"{FOLDER}/{card.address}/product_name", 256).strip():
        return name
    revision = host.read_int(f"{FOLDER}/{card.address}/revision")
    if card.pci is None or revision is None or revision < 0:
        return ""
    key = f"{card.pci.device},{revision:02x},".upper()
    for path in _NAMES_FILES:
        for line in host.read(path).splitlines():
            if line.replace("\t", "").replace(" ", "")[:8].upper() == key:
                return line.split(",", 2)[2].strip()
    return ""


def _device_reasons(host: Host, card: amd.AmdGpu) -> tuple[Reason, ...]:
    if card.node is not None:
        node = render_node(host, card.address) if card.address else ""
        return all_denied(host, [node] if node else [])
    if card.pci and card.pci.driver == "amdgpu":
        place = f"the AMD GPU at {card.address} is driven by amdgpu"
        return (Reason("unsupported-hardware", f"{place}, which lists no compute node (KFD) for it"),)
    return unusable(host, "AMD GPU", card.pci, ("amdgpu",), "") if card.pci else ()


def _reasons(host: Host, cards: tuple[amd.AmdGpu, ...]) -> tuple[Reason, ...]:
    if not cards:
        message = "no AMD GPU is on PCI or in the KFD topology; HIP needs one"
        # Below WSL the GPU is behind /dev/dxg, not on PCI.
        return () if host.exists("/dev/dxg") else (Reason("no-device", message),)
    if all(card.node is None for card in cards):
        return _device_reasons(host, cards[0])
    if not host.listdir("/dev") or host.exists("/dev/kfd"):
        return all_denied(host, ["/dev/kfd"])
    message = "the kernel lists AMD GPUs, but /dev/kfd, through which they compute, does not exist"
    hint = "pass the nodes to the container: --device=/dev/kfd --device=/dev/dri"
    return (Reason("no-device", message, hint),)


def _visible(host: Host, cards: list[amd.AmdGpu]) -> int:
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


def _warnings(host: Host, cards: list[amd.AmdGpu]) -> tuple[Reason, ...]:
    """Return warnings about variables that override targets, contradict each other, or hide all GPUs."""
    warnings = []
    value = host.env("HSA_OVERRIDE_GFX_VERSION")
    match = _TARGET.fullmatch(value)
    target = f"gfx{int(match[1])}{int(match[2]):x}{int(match[3]):x}" if match else ""
    other_targets = sorted({card.target for card in cards if card.target not in ("", target)})
    if value and not match:
        message = f"HSA_OVERRIDE_GFX_VERSION is {value!r}; ROCm wants MAJOR.MINOR.STEPPING"
        hint = "write it like 11.0.0, or unset it"
        warnings.append(Reason("override-invalid", message, hint))
    elif value and other_targets:
        message = f"HSA_OVERRIDE_GFX_VERSION={value} makes ROCm treat {', '.join(other_targets)} as {target}"
        hint = "code for another target may fail or compute wrongly; unset it where it is not needed"
        warnings.append(Reason("target-overridden", message, hint))
    hip, cuda = host.env("HIP_VISIBLE_DEVICES"), host.env("CUDA_VISIBLE_DEVICES")
    if cards and hip and cuda and hip != cuda:
        message = f"HIP_VISIBLE_DEVICES={hip} and CUDA_VISIBLE_DEVICES={cuda} differ; the first holds"
        warnings.append(Reason("conflict", message, "set one of them"))
    if cards and not _visible(host, cards):
        names = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
        shown = [f"{name}={host.environment[name]}" for name in names if name in host.environment]
        message = f"{', '.join(shown)} leaves none of {len(cards)} AMD GPUs visible"
        warnings.append(Reason("hidden-by-variable", message, "name indices from 0, or unset it"))
    return tuple(warnings)


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the runtime's version, which needs no GPU."""
    call, number = amd.rocm_calls(opened, "hipGetErrorName"), ctypes.c_int()
    status = call.status("hipRuntimeGetVersion", ctypes.byref(number))
    if status in _NO_DEVICE:  # it opens; older ones refuse even this without a GPU
        return Answer(library)
    if status or number.value <= 0:
        raise call.failed("hipRuntimeGetVersion", status)
    version = decimal_version(number.value, 10_000_000, 100_000)
    return Answer(replace(library, version=version), facts={"runtime_version": version})


def use(opened: CDLL, library: Library) -> Answer:
    """List HIP's devices, then fill memory on the first and read it back."""
    call, count = amd.rocm_calls(opened, "hipGetErrorName"), ctypes.c_int()
    status = call.status("hipGetDeviceCount", ctypes.byref(count))
    if status in _NO_DEVICE or (not status and not count.value):
        result = f"{status} ({call.name_of(status)})" if status else "0 devices"
        raise NotUsable("no-device", f"hipGetDeviceCount returned {result}: HIP sees no GPU")
    if status:
        raise call.failed("hipGetDeviceCount", status)
    version, value, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    refused = call.status("hipRuntimeGetVersion", ctypes.byref(version))
    is_numbered = not refused and version.value // 10_000_000 >= _NUMBERED_SINCE
    attributes = table("libraries/device_attributes")["hip_features"] if is_numbered else {}
    devices = []
    for index in range(min(count.value, _DEVICES_LIMIT)):
        name, address = ctypes.create_string_buffer(256), ctypes.create_string_buffer(64)
        is_named = call.status("hipDeviceGetName", name, 256, index) == 0
        is_placed = call.status("hipDeviceGetPCIBusId", address, 64, index) == 0
        is_sized = call.status("hipDeviceTotalMem", ctypes.byref(size), index) == 0
        # An old runtime refuses the attributes that it does not know.
        features = [
            word
            for word, number in attributes.items()
            if not call.status("hipDeviceGetAttribute", ctypes.byref(value), number, index)
            and value.value > 0
        ]
        device = Device(
            kind="rocm",
            index=index,
            name=name.value.decode(errors="replace") if is_named else "",
            presence=Presence.LOADABLE,
            memory_bytes=size.value if is_sized and size.value else None,
            pci_address=address.value.decode(errors="replace").lower() if is_placed else "",
            features=tuple(features),
        )
        devices.append(device)
    call.learned = Answer(library, tuple(devices))
    call.fill_and_read("hip", "HIP device 0")
    devices[0] = replace(devices[0], presence=Presence.USABLE)
    return Answer(library, tuple(devices), {"checked_device": 0})
