"""AMD GPUs as the kernel lists them, and the folders of ROCm's libraries.

Source: Linux include/uapi/linux/kfd_sysfs.h and drivers/gpu/drm/amd/amdkfd/kfd_topology.c;
Documentation/gpu/amdgpu/driver-misc (memory, product and partition files).
"""

from msgspec import Struct

from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import numbers_by_name
from mlbackends.base.reasons import Reason
from mlbackends.host.declared import steering
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.pci import FOLDER, PciDevice, display_driver, of_vendor
from mlbackends.host.python.packages import distributions
from mlbackends.libraries.c_calls import CDLL, Calls
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.records import Finding, nonempty

HOMES = ("ROCM_PATH", "ROCM_HOME", "HIP_PATH")
FOLDERS = ("/opt/rocm*/lib", "/opt/rocm/core*/lib")
TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"

_NODES_LIMIT = 1024
_LINKS_LIMIT = 256
_FRAME_BUFFER = (1, 2)  # heap types of a memory bank that is on the card
_LINK_KINDS = {2: "pcie", 11: "xgmi"}
TARGET = pattern(r"gfx[0-9]{1,2}[0-9a-f]{2}(?![0-9a-f])")
_HIGHEST_TARGET = 999_999  # gfx_target_version is major * 10000 + minor * 100 + stepping


class AmdGpu(Struct, frozen=True):
    """One GPU: a KFD node with its PCI device, or a PCI device that KFD does not list.

    node: its number in the KFD topology, None without one. properties: the node's numbers.
    partition: the number of the part, if the card is split.
    """

    node: int | None
    address: str
    target: str = ""
    memory_bytes: int | None = None
    properties: dict[str, int] = {}
    pci: PciDevice | None = None
    partition: int = 0


def wheels(host: Host) -> tuple[str, ...]:
    """Return the folders of the rocm-sdk wheels below site-packages, () if none is installed."""
    return ("_rocm_sdk_*/lib",) if "rocm-sdk-core" in distributions(host) else ()


def library_finding(host: Host, name: str, stem: str, code: str = "") -> Finding:
    """Return the finding of a library of ROCm: its copies, the variables that steer it, its code.

    stem: the file's name without its ending. code: the folder with its GPU code, relative to the
    library's, such as "rocblas/library", for the fact `targets`; "" if it is in the library.
    """
    libraries = libraries_named(host, name, stem, homes=HOMES, folders=FOLDERS, wheels=wheels(host))
    if not libraries:
        return Finding(reasons=(absent(host, f"{stem}.so", HOMES, ("/opt/rocm/lib",)),))
    targets: list[str] = []
    if code:
        beside = host.realpath(libraries[0].path).rsplit("/", 1)[0]
        targets = sorted(set(TARGET.findall(" ".join(host.listdir(f"{beside}/{code}")))))
    missing = sorted({gpu.target for gpu in gpus(host)} - {*targets, ""}) if targets else []
    return Finding(
        libraries=tuple(libraries),
        facts=nonempty({"targets": targets}) | steering(host, name.lower()),
        warnings=tuple(
            Reason(
                "unsupported-hardware",
                f"{name} has code for {', '.join(targets)}, and none for this machine's {target}",
            )
            for target in missing
        ),
    )


def rocm_calls(opened: CDLL, namer: str = "") -> Calls:
    """Return the caller of a ROCm library's functions; most libraries do not name their statuses."""
    unnamed = "no name" if namer else ""
    return Calls(opened, namer=namer, unnamed=unnamed, hint="see `backends info rocm` for the GPU")


@once_per_host
def gpus(host: Host) -> tuple[AmdGpu, ...]:
    """Return the AMD GPUs: those that can compute, in HIP's order, then the rest by address."""
    cards = {
        device.address: device
        for device in of_vendor(host, "1002")
        if device.is_display or device.is_accelerator
    }
    listed = []
    for node in _nodes(host):
        properties = numbers_by_name(host.read(f"{TOPOLOGY}/{node}/properties", 65536))
        if properties.get("simd_count", 0) <= 0:
            continue
        location = properties.get("location_id", 0)
        at, domain = location & 0xFFFF, properties.get("domain", 0) & 0xFFFFFFFF
        address = f"{domain:04x}:{at >> 8:02x}:{at >> 3 & 31:02x}.{at & 7}"
        if "location_id" not in properties:
            address = ""
        version = properties.get("gfx_target_version", 0)
        has_target = 0 < version <= _HIGHEST_TARGET
        target = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
        banks = _properties(host, f"{TOPOLOGY}/{node}/mem_banks")
        memory = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in _FRAME_BUFFER)
        listed.append(
            AmdGpu(
                node,
                address,
                target if has_target else "",
                memory if 0 < memory < 1 << 60 else _video_memory(host, address),
                properties,
                cards.get(address),
                location >> 28 & 15,
            )
        )
    listed += [
        AmdGpu(
            None,
            card.address,
            memory_bytes=_video_memory(host, card.address) or display_driver(host, card).get("memory_bytes"),
            pci=card,
        )
        for card in cards.values()
        if card.address not in {gpu.address for gpu in listed}
    ]
    return tuple(listed)


def unreadable_nodes(host: Host) -> int:
    """Return how many KFD nodes cannot be read: the container may not use those GPUs."""
    return sum(not host.read(f"{TOPOLOGY}/{node}/properties", 65536) for node in _nodes(host))


def links(host: Host) -> list[dict[str, int | str]]:
    """Return the direct links between GPUs, each once: two HIP indices, the kind, and its speed."""
    index = {gpu.node: i for i, gpu in enumerate(gpus(host)) if gpu.node is not None}
    rows: dict[tuple[int, int], dict[str, int | str]] = {}
    for node, node_numbers in index.items():
        for kind in ("io_links", "p2p_links"):
            for numbers in _properties(host, f"{TOPOLOGY}/{node}/{kind}"):
                other = index.get(numbers.get("node_to", -1))
                if other is None or other <= node_numbers or (node_numbers, other) in rows:
                    continue
                row: dict[str, int | str] = {"from": node_numbers, "to": other}
                row["kind"] = _LINK_KINDS.get(numbers.get("type", 0), "other")
                if row["kind"] == "xgmi" and "weight" in numbers:
                    row["weight"] = numbers["weight"]
                if 0 < numbers.get("max_bandwidth", 0) < 1 << 31:
                    row["max_bytes_per_second"] = numbers["max_bandwidth"] * 1_000_000
                rows[node_numbers, other] = row
    return [rows[pair] for pair in sorted(rows)]


def _nodes(host: Host) -> list[int]:
    names = [name for name in host.listdir(TOPOLOGY) if name.isascii() and name.isdigit()]
    return sorted(int(name[:9]) for name in names)[:_NODES_LIMIT]


def _properties(host: Host, folder: str) -> list[dict[str, int]]:
    """Return the numbers of each thing in a folder of a node."""
    names = host.listdir(folder)[:_LINKS_LIMIT]
    return [numbers_by_name(host.read(f"{folder}/{name}/properties", 4096)) for name in names]


def _video_memory(host: Host, address: str) -> int | None:
    size = host.read_int(f"{FOLDER}/{address}/mem_info_vram_total") if address else None
    return size if size is not None and 0 < size < 1 << 60 else None
