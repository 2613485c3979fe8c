"""Windows' calls and registry as plain data; imported on Windows only.

Nothing is started and no performance counter is opened. A call that this Windows does not have, or that
fails, returns None. Structures are laid out by `struct`, with the alignment of the processor.
Source: Microsoft, Windows API reference; Intel SDM 2A, CPUID and XGETBV.
"""

import ctypes
import os
import struct
import sys
import winreg
from collections.abc import Callable, Iterator
from ctypes import byref, c_uint64, c_void_p, wintypes
from typing import Any

from mlbackends.host.windows import processors as decoded

assert sys.platform == "win32"  # mypy reads no further for other systems

_ROOTS = {"HKLM": winreg.HKEY_LOCAL_MACHINE, "HKCU": winreg.HKEY_CURRENT_USER}
_READ = winreg.KEY_READ | winreg.KEY_WOW64_64KEY
#: What GetCurrentProcess returns.
_OURSELVES = wintypes.HANDLE(-1)
_AFFINITY = "@PH6x"  # GROUP_AFFINITY

_kernel32, _ntdll = ctypes.WinDLL("kernel32"), ctypes.WinDLL("ntdll")
_kernel32.OpenProcess.restype = wintypes.HANDLE
_kernel32.GetLargePageMinimum.restype = ctypes.c_size_t
_kernel32.GetTickCount64.restype = c_uint64
_kernel32.VirtualAlloc.restype = c_void_p


def _number(function: Any, *arguments: Any) -> int | None:
    """Return the 64-bit number that a function writes at its last argument; None if it fails."""
    number = c_uint64()
    return number.value if function(*arguments, byref(number)) else None


# ---- registry ------------------------------------------------------------------------------------


def _opened(key: str) -> Any:
    root, _, path = key.partition("\\")
    return winreg.OpenKey(_ROOTS[root], path, 0, _READ)


def registry_values(key: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Return those values of a key that are there, all without names; of binary ones the digits."""
    values: dict[str, Any] = {}
    by_name = {name.lower(): name for name in names}
    try:
        with _opened(key) as opened:
            for number in range(winreg.QueryInfoKey(opened)[1]):
                name, value, _ = winreg.EnumValue(opened, number)
                if name.lower() in by_name or not names:
                    name = by_name.get(name.lower(), name)  # the registry ignores case
                    values[name] = value.hex() if isinstance(value, bytes) else value
    except OSError:
        pass
    return {name: value for name, value in values.items() if value is not None}


def registry_keys(key: str) -> list[str]:
    """Return the names of the keys below one."""
    try:
        with _opened(key) as opened:
            return [winreg.EnumKey(opened, i) for i in range(winreg.QueryInfoKey(opened)[0])]
    except OSError:
        return []


# ---- processors ----------------------------------------------------------------------------------


def cpuid() -> dict[str, list[int]] | None:
    """Return EAX, EBX, ECX and EDX by "leaf" or "leaf.subleaf", in hexadecimal digits; XCR0 as "xcr0".

    None on another processor, in a 32-bit process, and if the process may not create code.
    """
    if "AMD64" not in sys.version:  # what the interpreter was compiled for
        return None
    codes = [bytes.fromhex(text) for text in (decoded.CPUID, decoded.XGETBV)]
    size, old = ctypes.c_size_t(4096), wintypes.DWORD()
    commit, read_write, execute_read, release = 0x3000, 0x04, 0x20, 0x8000
    page = c_void_p(_kernel32.VirtualAlloc(None, size, commit, read_write))
    if not page.value:
        return None
    ctypes.memmove(page, b"".join(codes), sum(map(len, codes)))
    at, registers = page.value, (ctypes.c_uint32 * 4)()
    run = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint32))

    def read(leaf: int, subleaf: int) -> list[int]:
        registers[:] = [leaf, subleaf, 0, 0]
        run(at)(registers)
        return list(registers)

    try:
        if not _kernel32.VirtualProtect(page, size, execute_read, byref(old)):
            return None
        _kernel32.FlushInstructionCache(_OURSELVES, page, size)
        leaves = decoded.cpuid_leaves(read)
        if leaves["1"][2] >> 27 & 1:  # OSXSAVE: the system lets programs read XCR0
            run(at + len(codes[0]))(registers)
            leaves["xcr0"] = [*registers[:2], 0, 0]
        return leaves
    finally:
        _kernel32.VirtualFree(page, ctypes.c_size_t(0), release)


def processor_features() -> list[int]:
    """Return the numbers of the features that IsProcessorFeaturePresent confirms."""
    return [number for number in range(96) if _kernel32.IsProcessorFeaturePresent(number)]


def processors() -> dict[str, Any] | None:
    """Return cores, packages, dies, NUMA nodes, caches and groups, as `decoded.topology` has them."""
    data = b""
    # Only the last relation has all CPUs of a NUMA node in several groups, and older systems lack it.
    for relation in (0xFFFF, 6):
        length, query = wintypes.DWORD(0), _kernel32.GetLogicalProcessorInformationEx
        query(relation, None, byref(length))
        part = ctypes.create_string_buffer(length.value)
        if query(relation, part, byref(length)):
            data += part.raw
    return decoded.topology(data) if data else None


def processor_power() -> list[list[int]] | None:
    """Return the highest, current and allowed frequency in MHz of each CPU of this group."""
    data = ctypes.create_string_buffer(24 * _kernel32.GetActiveProcessorCount(0xFFFF))
    if ctypes.WinDLL("powrprof").CallNtPowerInformation(11, None, 0, data, len(data)):
        return None
    rows = struct.iter_unpack("@6L", data.raw)
    return [[most, now, limit] for _, most, now, limit, *_ in rows if most]


def affinity(pid: int | None = None) -> tuple[int, ...] | None:
    """Return the CPUs that a process may run on, by default this one; None if that is not known."""
    limited = 0x1000  # PROCESS_QUERY_LIMITED_INFORMATION
    process = _OURSELVES if pid is None else wintypes.HANDLE(_kernel32.OpenProcess(limited, 0, pid))
    groups, count = (wintypes.WORD * 64)(), wintypes.WORD(64)
    own, system = ctypes.c_size_t(), ctypes.c_size_t()
    has_mask = _kernel32.GetProcessAffinityMask(process, byref(own), byref(system))
    has_groups = _kernel32.GetProcessGroupAffinity(process, byref(count), groups)
    if pid is not None:
        _kernel32.CloseHandle(process)
    if not has_mask:
        return None
    known = {
        "groups": list(groups[: count.value]) if has_groups else [0],
        "mask": own.value,
        "system_mask": system.value,
    }
    build = (windows_version() or {}).get("build", 0)
    return decoded.allowed_cpus(known, (processors() or {}).get("groups", []), build)


# ---- memory --------------------------------------------------------------------------------------


def memory_status() -> dict[str, int] | None:
    """Return the memory, what may be committed, what is plugged in and a large page, in bytes."""
    layout = "@LL7Q"
    data = ctypes.create_string_buffer(struct.pack("@L60x", 64), struct.calcsize(layout))
    if not _kernel32.GlobalMemoryStatusEx(data):
        return None
    _, _, total, available, limit, left, *_ = struct.unpack(layout, data.raw)
    sizes = {"total": total, "available": available, "commit_limit": limit, "commit_left": left}
    kilobytes = _number(_kernel32.GetPhysicallyInstalledSystemMemory)
    large = _kernel32.GetLargePageMinimum()
    return {**sizes, "installed": (kilobytes or 0) << 10, "large_page": large}


def node_memory() -> list[int]:
    """Return the free memory of each NUMA node, in bytes."""
    nodes = range((_number(_kernel32.GetNumaHighestNodeNumber) or 0) + 1)
    free = (_number(_kernel32.GetNumaAvailableMemoryNodeEx, wintypes.WORD(node)) for node in nodes)
    return [call for call in free if call is not None]


def page_files() -> list[dict[str, Any]] | None:
    """Return path and pages (all, in use) of each page file: NtQuerySystemInformation."""
    data, needed = ctypes.create_string_buffer(1 << 14), wintypes.ULONG()
    if _ntdll.NtQuerySystemInformation(18, data, len(data), byref(needed)):
        return None
    return decoded.page_files(data.raw[: needed.value], ctypes.addressof(data))


def page_size() -> int:
    """Return the size of a memory page in bytes."""
    information = (ctypes.c_uint32 * 16)()
    _kernel32.GetSystemInfo(information)
    return information[1]


def may_lock_memory() -> bool | None:
    """Return whether this process holds SeLockMemoryPrivilege, which large pages need."""
    advapi32, token, length = ctypes.WinDLL("advapi32"), wintypes.HANDLE(), wintypes.DWORD()
    lock_memory = _number(advapi32.LookupPrivilegeValueW, None, "SeLockMemoryPrivilege")
    if lock_memory is None or not advapi32.OpenProcessToken(_OURSELVES, 0x0008, byref(token)):
        return None
    data = ctypes.create_string_buffer(4096)
    is_read = advapi32.GetTokenInformation(token, 3, data, len(data), byref(length))
    _kernel32.CloseHandle(token)
    rows = struct.iter_unpack("<QL", data.raw[4 : 4 + 12 * int.from_bytes(data.raw[:4], "little")])
    return any(privilege == lock_memory for privilege, _ in rows) if is_read else None


# ---- the job object of this process --------------------------------------------------------------


def job() -> dict[str, Any] | None:
    """Return the limits of the innermost job object of this process; {} if it is in none.

    flags, processes, process_memory, job_memory, affinity: as in JOBOBJECT_EXTENDED_LIMIT_INFORMATION;
    cpu_flags, cpu_rate: as in JOBOBJECT_CPU_RATE_CONTROL_INFORMATION; groups: number and mask of each.
    """
    is_inside = wintypes.BOOL()
    if not _kernel32.IsProcessInJob(_OURSELVES, None, byref(is_inside)):
        return None
    if not is_inside.value:
        return {}

    def query(number: int, layout: str, most: int = 1) -> list[tuple[Any, ...]]:
        """Return the structures that were filled in; none where the system refuses."""
        size, length = struct.calcsize(layout), wintypes.DWORD()
        data = ctypes.create_string_buffer(size * most)
        done = _kernel32.QueryInformationJobObject(None, number, data, len(data), byref(length))
        filled = (length.value or size) // size * size if done else 0
        return list(struct.iter_unpack(layout, data.raw[:filled]))

    limits: dict[str, Any] = {"flags": 0}
    for row in query(9, "@qqLPPLPLL6QPPPP"):
        names = {"flags": 2, "processes": 5, "affinity": 6, "process_memory": 15, "job_memory": 16}
        limits |= {name: row[at] for name, at in names.items()}
    for cpu_flags, rate in query(15, "@LL"):
        limits |= {"cpu_flags": cpu_flags, "cpu_rate": rate}
    if groups := [[group, mask] for mask, group in query(14, _AFFINITY, 64) if mask]:
        limits["groups"] = groups
    return limits


# ---- the system ----------------------------------------------------------------------------------


def windows_version() -> dict[str, int] | None:
    """Return major, minor, build and product_type (1: a workstation) by RtlGetVersion."""
    layout = "@5L256s3HBB"
    size = struct.calcsize(layout)
    data = ctypes.create_string_buffer(struct.pack("@L", size), size)
    if _ntdll.RtlGetVersion(data):
        return None
    _, major, minor, build, *_, product_type, _ = struct.unpack(layout, data.raw)
    return {"major": major, "minor": minor, "build": build, "product_type": product_type}


def native_machine() -> str | None:
    """Return the processor that the system was built for, which an emulated process does not see."""
    own, native = wintypes.USHORT(), wintypes.USHORT()
    if not _kernel32.IsWow64Process2(_OURSELVES, byref(own), byref(native)):
        return None
    return {0x8664: "AMD64", 0xAA64: "ARM64", 0x014C: "x86"}.get(native.value)


def wine_version() -> str | None:
    """Return the release of Wine; None on Windows itself, which lacks the function."""
    version = _ntdll.wine_get_version
    version.restype = ctypes.c_char_p
    return str(version().decode())


def uptime() -> float:
    """Return the seconds since the system started."""
    return _kernel32.GetTickCount64() / 1000  # type: ignore[no-any-return]


def names() -> tuple[str, str, str, str, str]:
    """Return what os.uname returns on other systems; `platform.uname` queries WMI, which takes seconds."""
    version, name = windows_version() or {}, ctypes.create_unicode_buffer(256)
    # The DNS name, which may be longer than COMPUTERNAME.
    has_name = _kernel32.GetComputerNameExW(1, name, byref(wintypes.DWORD(256)))
    release = "11" if version.get("build", 0) >= 22000 else str(version.get("major", ""))
    numbers = ".".join(str(version[call]) for call in ("major", "minor", "build") if version)
    machine = os.environ.get("PROCESSOR_ARCHITEW6432") or os.environ.get("PROCESSOR_ARCHITECTURE")
    return "Windows", name.value if has_name else "", release, numbers, machine or ""


def drives() -> list[str]:
    """Return the fixed drives: C:/ and so on."""
    mask = _kernel32.GetLogicalDrives()
    letters = (chr(65 + number) for number in range(26) if mask >> number & 1)
    return [f"{letter}:/" for letter in letters if _kernel32.GetDriveTypeW(f"{letter}:\\") == 3]


def disk(path: str) -> tuple[int, int] | None:
    """Return a drive's bytes, and those of them that this user may still fill."""
    # shutil does the same, and its import loads every library of compression.
    numbers = [c_uint64() for _ in range(3)]
    is_readable = _kernel32.GetDiskFreeSpaceExW(path, *map(byref, numbers))
    return (numbers[1].value, numbers[0].value) if is_readable else None


# ---- devices -------------------------------------------------------------------------------------


_PCI, _NUMA = ("312eb23a64824e4b9af5a8d2d8e33e62", "7e940b54408bbc45a8a26a0b894cbda2")
#: Numbers among a device's properties (DEVPKEY_Device_Numa_Node, DEVPKEY_PciDevice_...): GUID and number.
_PROPERTIES = {
    "numa_node": (_NUMA, 3), "base_class": (_PCI, 3), "sub_class": (_PCI, 4), "link_speed": (_PCI, 9),
    "link_width": (_PCI, 10), "max_link_speed": (_PCI, 11), "max_link_width": (_PCI, 12),
}  # fmt: skip


def present_devices() -> dict[str, dict[str, int]] | None:
    """Return the instance of each PCI device that is plugged in, with the numbers of its properties."""
    manager, length = ctypes.WinDLL("cfgmgr32"), wintypes.ULONG()
    chosen = ("PCI", 0x101)  # CM_GETIDLIST_FILTER_ENUMERATOR and _PRESENT
    if manager.CM_Get_Device_ID_List_SizeW(byref(length), *chosen) or not length.value:
        return None
    listed = ctypes.create_unicode_buffer(length.value)
    if manager.CM_Get_Device_ID_ListW(chosen[0], listed, length, chosen[1]):
        return None
    instances = ctypes.wstring_at(listed, length.value).split("\0")
    return {name: dict(_properties(manager, name)) for name in instances if name}


def _properties(manager: Any, name: str) -> Iterator[tuple[str, int]]:
    node = wintypes.DWORD()
    if manager.CM_Locate_DevNodeW(byref(node), name, 0):
        return
    for fact, (kind, number) in _PROPERTIES.items():
        key = struct.pack("@16sL", bytes.fromhex(kind), number)
        of_type, value, size = wintypes.ULONG(), wintypes.ULONG(), wintypes.ULONG(4)
        numbers = map(byref, (of_type, value, size))
        if not manager.CM_Get_DevNode_PropertyW(node, key, *numbers, 0):
            yield fact, value.value


_EVERY = (
    cpuid, processor_features, processors, processor_power, memory_status, node_memory, page_files,
    page_size, may_lock_memory, job, windows_version, native_machine, wine_version, uptime, drives,
    present_devices,
)  # fmt: skip
#: By their names in `system` of host.json.
CALLS: dict[str, Callable[[], Any]] = {call.__name__: call for call in _EVERY}
