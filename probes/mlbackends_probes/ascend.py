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

from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.base.tables import table
from mlbackends.host.declared import steering
from mlbackends.host.device_nodes import all_denied, device_nodes
from mlbackends.host.host import Host
from mlbackends.host.pci import link_facts, of_vendor, pci_record
from mlbackends.host.python.packages import distribution
from mlbackends.libraries.c_calls import CDLL, Calls, ctypes
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.records import Answer, Device, Finding, Library, Presence, nonempty

GROUP = "accelerator"

_ROOT = "/usr/local/Ascend"
_HOMES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
_FOLDERS = (f"{_ROOT}/ascend-toolkit/latest/lib64", f"{_ROOT}/cann/lib64")
_VERSION = pattern(r"^(?:runtime_running_)?version\s*=\s*\[?([0-9][\w.]*)", re.IGNORECASE | re.MULTILINE)
_REPEATED = 100002  # ACL_ERROR_REPEAT_INITIALIZE
_NO_DEVICE = (107001, 507000, 507008, 507033)
_TO_HOST = 2
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
    nodes = device_nodes(host, "davinci")
    if not libraries and not cards and not nodes:
        return Finding(reasons=(absent(host, "Ascend NPU on PCI and no libascendcl.so", _HOMES),))
    machine = "aarch64" if host.machine in ("aarch64", "arm64") else "x86_64"
    homes = [host.env(name).rstrip("/") for name in _HOMES]
    toolkits = (
        _version_in(host, f"{home}/{file}")
        for home in (*filter(None, homes), f"{_ROOT}/ascend-toolkit/latest", f"{_ROOT}/cann")
        for file in (f"{machine}-linux/ascend_toolkit_install.info", "version.cfg")
    )
    toolkit, plugin = next(filter(None, toolkits), ""), distribution(host, "torch-npu")
    facts = {
        "npu_count": len(cards),
        "nodes": nodes,
        "driver_version": _version_in(host, f"{_ROOT}/driver/version.info"),
        "toolkit_version": toolkit,
        "torch_npu": plugin and plugin.version,
        **steering(host, "ascend"),
    }
    devices = []
    for i, card in enumerate(cards):
        lacking: tuple[Reason, ...] = ()
        if not card.driver:
            message = f"the Ascend NPU at {card.address} has no kernel driver"
            lacking = (Reason("no-driver", message, "install the Ascend driver and firmware"),)
        name = table("host/pci_names")["ascend"].get(card.device, "Ascend NPU")
        devices.append(pci_record(host, card, "npu", i, name, link_facts(card), lacking))
    if not cards:  # a container or a board whose NPU is not on PCI
        devices = [Device("npu", i, "Ascend NPU", facts={"node": node}) for i, node in enumerate(nodes)]
    reasons = all_denied(host, nodes)
    if not cards and not nodes:
        reasons = (Reason("no-device", "CANN is installed, and no Ascend NPU is on PCI"),)
    elif cards and not any(card.driver for card in cards):
        reasons = devices[0].reasons
    elif not nodes and host.listdir("/dev"):
        message = "Ascend NPUs are on PCI, but /dev/davinci*, through which they compute, does not exist"
        hint = "give the container the nodes: --device=/dev/davinci0 --device=/dev/davinci_manager"
        reasons = (Reason("no-device", message, hint),)
    if not libraries:
        reasons += (absent(host, "libascendcl.so", _HOMES, _FOLDERS),)
    return Finding(tuple(libraries), tuple(devices), nonempty(facts), version=toolkit, reasons=reasons)


def _version_in(host: Host, path: str) -> str:
    match = _VERSION.search(host.read(path, 1 << 16))
    return match[1] if match else ""


def use(opened: CDLL, library: Library) -> Answer:
    """Count the devices, then fill memory on the first and read it back."""
    call = Calls(opened, unnamed="see aclError")
    if (status := call.status("aclInit", None)) not in (0, _REPEATED):
        raise call.failed("aclInit", status)
    count = ctypes.c_uint32()
    status = call.status("aclrtGetDeviceCount", ctypes.byref(count))
    if status in _NO_DEVICE or (not status and not count.value):
        message = f"aclrtGetDeviceCount returned {status} and {count.value} devices"
        raise NotUsable("no-device", message)
    if status:
        raise call.failed("aclrtGetDeviceCount", status)
    size, back = ctypes.c_size_t(4096), ctypes.create_string_buffer(4096)
    call("aclrtSetDevice", 0)
    memory = call.create("aclrtMalloc", size, 0)
    call("aclrtMemset", memory, size, 0x5A, size)
    call("aclrtMemcpy", back, size, memory, size, _TO_HOST)
    call("aclrtFree", memory)
    call.require_filled("NPU 0", back.raw, b"\x5a")
    soc = call.text("aclrtGetSocName")
    opened.aclrtResetDevice(0)
    opened.aclFinalize()
    devices = [
        Device(kind="npu", index=i, presence=Presence.LOADABLE, capability=soc)
        for i in range(min(count.value, _LIMIT))
    ]
    devices[0] = replace(devices[0], presence=Presence.USABLE)
    return Answer(library, tuple(devices), nonempty({"checked_device": 0, "soc": soc}))
