"""Huawei Ascend: NPUs, their driver, and CANN.

Finds:    Ascend NPUs on PCI, /dev/davinci*, the versions of driver and toolkit, every libascendcl,
          and the variables that choose devices.
Loadable: it opens.
Usable:   device 0 fills memory, and what is copied back is right.
Caveats:  PCI names of the 910 family are not documented publicly; the runtime names the chip.
Source:   CANN AscendCL API reference: aclInit, aclrtGetDeviceCount, aclrtGetSocName, aclrtMemset;
          CANN installation guide (version files).
"""

import re

from msgspec.structs import replace

from mlbackends.host.device_nodes import all_denied, device_nodes
from mlbackends.host.host import Host
from mlbackends.host.pci import PciDevice, link_facts, of_vendor, pci_record
from mlbackends.host.python.packages import distribution
from mlbackends.host.variables import steering
from mlbackends.libraries.c_calls import CDLL, Calls, ctypes
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.patterns import pattern
from mlbackends.model.reasons import NotUsable, Reason
from mlbackends.model.records import Answer, Device, Fact, FactValue, Finding, Library, Presence
from mlbackends.model.tables import table

GROUP = "accelerator"
FACTS = (
    Fact("npu_count", int, "How many NPUs are on PCI."),
    Fact("nodes", list[str], "The device nodes of the NPUs."),
    Fact("driver_version", str, "The version of the driver, by its own file."),
    Fact("toolkit_version", str, "The version of the CANN toolkit, by its own file."),
    Fact("torch_npu", str, "The installed version of torch-npu."),
    Fact("environment", dict[str, str], "The variables that steer CANN and are set."),
    Fact("soc", str, "The chip, as the runtime names it."),
    Fact("checked_device", int, "The device on which memory was filled and read back."),
)

_ROOT = "/usr/local/Ascend"
_HOMES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
_FOLDERS = (f"{_ROOT}/ascend-toolkit/latest/lib64", f"{_ROOT}/cann/lib64")
VARIABLES = (
    *_HOMES, "ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES", "ASCEND_OPP_PATH",
    "ASCEND_AICPU_PATH", "ASCEND_LAUNCH_BLOCKING", "ASCEND_GLOBAL_LOG_LEVEL",
    "PYTORCH_NPU_ALLOC_CONF", "TASK_QUEUE_ENABLE", "HCCL_CONNECT_TIMEOUT",
)  # fmt: skip
_VERSION = pattern(
    r"^(?:runtime_running_)?version\s*=\s*\[?([0-9][\w.]*)", re.IGNORECASE | re.MULTILINE
)
_REPEATED = 100002  # ACL_ERROR_REPEAT_INITIALIZE
_NO_DEVICE = (107001, 507000, 507008, 507033)
_TO_HOST = 2
_CHECK_BYTES = 4096
_LIMIT = 64


def find(host: Host) -> Finding:
    """Look for NPUs, driver, toolkit and every copy of AscendCL."""
    libraries = libraries_named(host, "AscendCL", "libascendcl", homes=_HOMES, folders=_FOLDERS)
    # Kunpeng's compression and cipher engines have the same class and other device numbers.
    cards = [
        card
        for card in of_vendor(host, "19e5")
        if card.is_accelerator and card.device.startswith("d") and not card.is_virtual_function
    ]
    nodes = device_nodes(host, r"davinci\d+")
    if not libraries and not cards and not nodes:
        return Finding(reasons=(absent(host, "Ascend NPU on PCI and no libascendcl.so", _HOMES),))
    toolkit, plugin = _toolkit_version(host), distribution(host, "torch-npu")
    optional: dict[str, FactValue] = {
        "nodes": list(nodes),
        "driver_version": _version_in(host, f"{_ROOT}/driver/version.info"),
        "toolkit_version": toolkit,
    }
    facts: dict[str, FactValue] = {"npu_count": len(cards)}
    facts |= {name: value for name, value in optional.items() if value}
    if plugin:
        facts["torch_npu"] = plugin.version
    facts |= steering(host, VARIABLES)
    devices = tuple(_device(i, card) for i, card in enumerate(cards))
    if not cards:  # a container or a board whose NPU is not on PCI
        devices = tuple(
            Device(kind="npu", index=i, name="Ascend NPU", facts={"node": node})
            for i, node in enumerate(nodes)
        )
    reasons = _reasons(host, cards, nodes)
    if not libraries:
        reasons += (absent(host, "libascendcl.so", _HOMES, _FOLDERS),)
    return Finding(tuple(libraries), devices, facts, version=toolkit, reasons=reasons)


def _version_in(host: Host, path: str) -> str:
    match = _VERSION.search(host.read(path, 1 << 16))
    return match[1] if match else ""


def _toolkit_version(host: Host) -> str:
    machine = "aarch64" if host.machine in ("aarch64", "arm64") else "x86_64"
    homes = [host.env(name).rstrip("/") for name in _HOMES]
    for home in (*filter(None, homes), f"{_ROOT}/ascend-toolkit/latest", f"{_ROOT}/cann"):
        for file in (f"{machine}-linux/ascend_toolkit_install.info", "version.cfg"):
            if version := _version_in(host, f"{home}/{file}"):
                return version
    return ""


def _device(index: int, card: PciDevice) -> Device:
    reasons: tuple[Reason, ...] = ()
    if not card.driver:
        message = f"the Ascend NPU at {card.address} has no kernel driver"
        reasons = (Reason("no-driver", message, "install the Ascend driver and firmware"),)
    name = table("host/pci_names")["ascend"].get(card.device, "Ascend NPU")
    return pci_record(card, "npu", index, name, link_facts(card), reasons)


def _reasons(host: Host, cards: list[PciDevice], nodes: list[str]) -> tuple[Reason, ...]:
    if not cards and not nodes:
        return (Reason("no-device", "CANN is here, and no Ascend NPU is on PCI"),)
    if cards and not any(card.driver for card in cards):
        return _device(0, cards[0]).reasons
    if not nodes and host.listdir("/dev"):
        message = (
            "Ascend NPUs are on PCI, but no /dev/davinci* is there, through which they compute"
        )
        hint = "give the container the nodes: --device=/dev/davinci0 --device=/dev/davinci_manager"
        return (Reason("no-device", message, hint),)
    return all_denied(host, nodes)


# ---- in the child ------------------------------------------------------------------------------


def use(opened: CDLL, library: Library) -> Answer:
    """Count the devices, then fill memory on the first and read it back."""
    call = Calls(opened, unnamed="see aclError")
    if (status := call.status("aclInit", None)) not in (0, _REPEATED):
        raise call.failed("aclInit", status)
    count, memory = ctypes.c_uint32(), ctypes.c_void_p()
    status = call.status("aclrtGetDeviceCount", ctypes.byref(count))
    if status in _NO_DEVICE or (not status and not count.value):
        message = f"aclrtGetDeviceCount returned {status} and {count.value} devices"
        raise NotUsable("no-device", message)
    if status:
        raise call.failed("aclrtGetDeviceCount", status)
    size, back = ctypes.c_size_t(_CHECK_BYTES), ctypes.create_string_buffer(_CHECK_BYTES)
    call("aclrtSetDevice", 0)
    call("aclrtMalloc", ctypes.byref(memory), size, 0)
    call("aclrtMemset", memory, size, 0x5A, size)
    call("aclrtMemcpy", back, size, memory, size, _TO_HOST)
    call("aclrtFree", memory)
    if back.raw != b"\x5a" * _CHECK_BYTES:
        message = f"NPU 0 filled {_CHECK_BYTES} bytes with 0x5a, and other bytes came back"
        raise NotUsable("wrong-result", message)
    facts: dict[str, FactValue] = {"checked_device": 0}
    if soc := call.text("aclrtGetSocName"):
        facts["soc"] = soc
    opened.aclrtResetDevice(0)
    opened.aclFinalize()
    devices = [
        Device(kind="npu", index=i, presence=Presence.LOADABLE, capability=soc)
        for i in range(min(count.value, _LIMIT))
    ]
    devices[0] = replace(devices[0], presence=Presence.USABLE)
    return Answer(library, tuple(devices), facts)
