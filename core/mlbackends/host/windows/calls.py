"""Windows' calls and registry, each as plain data; imported under Windows alone.

Nothing is started and no performance counter is opened. A call that this Windows does not have returns None.
Source: Microsoft, Windows API reference; Intel SDM 2A, CPUID and XGETBV.
"""

import ctypes
import os
import sys
import winreg
from collections.abc import Callable, Iterator
from ctypes import wintypes
from typing import Any

from mlbackends.host.windows import processors as decoded

assert sys.platform == "win32"  # mypy reads no further for other systems

_ROOTS = {"HKLM": winreg.HKEY_LOCAL_MACHINE, "HKCU": winreg.HKEY_CURRENT_USER}
_READ = winreg.KEY_READ | winreg.KEY_WOW64_64KEY
_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
_ntdll = ctypes.WinDLL("ntdll")
_kernel32.GetCurrentProcess.restype = wintypes.HANDLE

# ---- registry ------------------------------------------------------------------------------------


def _opened(key: str) -> winreg.HKEYType | None:
    root, _, path = key.partition("\\")
    try:
        return winreg.OpenKey(_ROOTS[root], path, 0, _READ)
    except OSError:
        return None


def registry_values(key: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Return those values of a key that are there; of binary ones the hexadecimal digits."""
    found: dict[str, Any] = {}
    if opened := _opened(key):
        with opened:
            for name in names:
                try:
                    value = winreg.QueryValueEx(opened, name)[0]
                except OSError:
                    continue
                found[name] = value.hex() if isinstance(value, bytes) else value
    return found


def registry_keys(key: str) -> list[str]:
    """Return the names of the keys below one."""
    if not (opened := _opened(key)):
        return []
    with opened:
        return [winreg.EnumKey(opened, i) for i in range(winreg.QueryInfoKey(opened)[0])]


# ---- processors ----------------------------------------------------------------------------------

_COMMIT, _READ_WRITE, _EXECUTE_READ, _RELEASE = 0x3000, 0x04, 0x20, 0x8000


def cpuid() -> dict[str, list[int]] | None:
    """Return EAX, EBX, ECX and EDX by "leaf" or "leaf.subleaf", in hexadecimal digits; XCR0 as "xcr0".

    None on another processor, in a 32-bit process, and where the process may not make code of its own.
    """
    if ctypes.sizeof(ctypes.c_void_p) != 8 or "AMD64" not in sys.version:
        return None
    code = [bytes.fromhex(text) for text in (decoded.CPUID, decoded.XGETBV)]
    place = _kernel32.VirtualAlloc
    place.restype = ctypes.c_void_p
    place.argtypes = (ctypes.c_void_p, ctypes.c_size_t, wintypes.DWORD, wintypes.DWORD)
    page = place(None, 4096, _COMMIT, _READ_WRITE)
    if not page:
        return None
    ctypes.memmove(page, b"".join(code), sum(map(len, code)))
    registers = (ctypes.c_uint32 * 4)()
    kind = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint32))

    def read(leaf: int, subleaf: int = 0) -> list[int]:
        registers[:] = [leaf, subleaf, 0, 0]
        kind(page)(registers)
        return list(registers)

    try:
        old = wintypes.DWORD()
        address, size = ctypes.c_void_p(page), ctypes.c_size_t(4096)
        if not _kernel32.VirtualProtect(address, size, _EXECUTE_READ, ctypes.byref(old)):
            return None
        _kernel32.FlushInstructionCache(
            wintypes.HANDLE(_kernel32.GetCurrentProcess()), address, size
        )
        leaves = decoded.cpuid_leaves(read)
        if leaves["1"][2] >> 27 & 1:  # OSXSAVE: the system lets programs read XCR0
            registers[:] = [0, 0, 0, 0]
            kind(page + len(code[0]))(registers)
            leaves["xcr0"] = list(registers)
        return leaves
    finally:
        _kernel32.VirtualFree(ctypes.c_void_p(page), ctypes.c_size_t(0), _RELEASE)


def processor_features() -> list[int]:
    """Return the numbers of the features that IsProcessorFeaturePresent confirms."""
    return [number for number in range(96) if _kernel32.IsProcessorFeaturePresent(number)]


_ALL_RELATIONS = 0xFFFF


def processors() -> dict[str, Any] | None:
    """Return cores, packages, dies, NUMA nodes, caches and groups, as `decoded.topology` has them."""
    length = wintypes.DWORD(0)
    query = _kernel32.GetLogicalProcessorInformationEx
    query(_ALL_RELATIONS, None, ctypes.byref(length))
    data = (ctypes.c_ubyte * length.value)()
    if not length.value or not query(_ALL_RELATIONS, data, ctypes.byref(length)):
        return None
    return decoded.topology(bytes(data))


class _ProcessorPower(ctypes.Structure):
    _fields_ = [
        (name, wintypes.ULONG)
        for name in ("number", "max", "current", "limit", "max_idle", "current_idle")
    ]


def processor_power() -> list[list[int]] | None:
    """Return the highest, current and allowed frequency in MHz of each CPU of this group."""
    count = _kernel32.GetActiveProcessorCount(0xFFFF)
    rows = (_ProcessorPower * count)()
    status = ctypes.WinDLL("powrprof").CallNtPowerInformation(
        11, None, 0, rows, ctypes.sizeof(rows)
    )
    return None if status else [[row.max, row.current, row.limit] for row in rows if row.max]


class _GroupAffinity(ctypes.Structure):
    _fields_ = [
        ("mask", ctypes.c_size_t),
        ("group", wintypes.WORD),
        ("reserved", wintypes.WORD * 3),
    ]


def process_affinity(pid: int | None = None) -> dict[str, Any] | None:
    """Return the processor groups of a process, its affinity mask and the system's in its own group."""
    process = _process(pid)
    if process is None:
        return None
    groups, count = (wintypes.WORD * 64)(), wintypes.WORD(64)
    own, system = ctypes.c_size_t(), ctypes.c_size_t()
    try:
        if not _kernel32.GetProcessAffinityMask(process, ctypes.byref(own), ctypes.byref(system)):
            return None
        has_groups = _kernel32.GetProcessGroupAffinity(process, ctypes.byref(count), groups)
    finally:
        if pid is not None:
            _kernel32.CloseHandle(process)
    return {
        "groups": list(groups[: count.value]) if has_groups else [0],
        "mask": own.value,
        "system_mask": system.value,
    }


def _process(pid: int | None) -> wintypes.HANDLE | None:
    _kernel32.OpenProcess.restype = wintypes.HANDLE
    limited = 0x1000  # PROCESS_QUERY_LIMITED_INFORMATION
    handle = (
        _kernel32.GetCurrentProcess() if pid is None else _kernel32.OpenProcess(limited, 0, pid)
    )
    return wintypes.HANDLE(handle) if handle else None


# ---- memory --------------------------------------------------------------------------------------


class _MemoryStatus(ctypes.Structure):
    _fields_ = [
        ("length", wintypes.DWORD),
        ("load", wintypes.DWORD),
        *(
            (name, ctypes.c_uint64)
            for name in ("total", "available", "commit_limit", "commit_left", "virtual", "free")
        ),
        ("extended", ctypes.c_uint64),
    ]


def memory_status() -> dict[str, int] | None:
    """Return the memory and what may be committed, in bytes; node_free is by NUMA node."""
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    if not _kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    names = ("total", "available", "commit_limit", "commit_left")
    found = {name: getattr(status, name) for name in names}
    installed = ctypes.c_uint64()
    if _kernel32.GetPhysicallyInstalledSystemMemory(ctypes.byref(installed)):
        found["installed"] = installed.value << 10
    _kernel32.GetLargePageMinimum.restype = ctypes.c_size_t
    found["large_page"] = _kernel32.GetLargePageMinimum()
    return found


def node_memory() -> list[int] | None:
    """Return the free memory of each NUMA node, in bytes."""
    highest, free = wintypes.ULONG(), ctypes.c_uint64()
    if not _kernel32.GetNumaHighestNodeNumber(ctypes.byref(highest)):
        return None
    return [
        free.value
        for node in range(highest.value + 1)
        if _kernel32.GetNumaAvailableMemoryNodeEx(wintypes.WORD(node), ctypes.byref(free))
    ]


def page_files() -> list[dict[str, Any]] | None:
    """Return path and pages (all, in use) of each page file: NtQuerySystemInformation."""
    length, needed = 1 << 14, wintypes.ULONG()
    data = ctypes.create_string_buffer(length)
    if _ntdll.NtQuerySystemInformation(18, data, length, ctypes.byref(needed)):
        return None
    return decoded.page_files(data.raw[: needed.value], ctypes.addressof(data))


def page_size() -> int:
    """Return the size of a memory page in bytes."""
    information = (ctypes.c_uint32 * 16)()
    _kernel32.GetSystemInfo(information)
    return information[1]


class _Privilege(ctypes.Structure):
    _fields_ = [("luid", ctypes.c_uint64), ("attributes", wintypes.DWORD)]
    _pack_ = 4


def may_lock_memory() -> bool | None:
    """Return whether this process holds SeLockMemoryPrivilege, which large pages need."""
    advapi32 = ctypes.WinDLL("advapi32")
    token, wanted = wintypes.HANDLE(), ctypes.c_uint64()
    process = wintypes.HANDLE(_kernel32.GetCurrentProcess())
    if not advapi32.LookupPrivilegeValueW(
        None, "SeLockMemoryPrivilege", ctypes.byref(wanted)
    ) or not advapi32.OpenProcessToken(process, 0x0008, ctypes.byref(token)):
        return None
    data, length = ctypes.create_string_buffer(4096), wintypes.DWORD()
    is_read = advapi32.GetTokenInformation(token, 3, data, 4096, ctypes.byref(length))
    _kernel32.CloseHandle(token)
    if not is_read:
        return None
    count = int.from_bytes(data.raw[:4], "little")
    held = (_Privilege * count).from_buffer_copy(data.raw[4:])
    return any(each.luid == wanted.value for each in held)


# ---- the job object of this process --------------------------------------------------------------


class _ExtendedLimits(ctypes.Structure):
    _fields_ = [
        ("process_time", ctypes.c_int64),
        ("job_time", ctypes.c_int64),
        ("flags", wintypes.DWORD),
        ("least_working_set", ctypes.c_size_t),
        ("most_working_set", ctypes.c_size_t),
        ("processes", wintypes.DWORD),
        ("affinity", ctypes.c_size_t),
        ("priority", wintypes.DWORD),
        ("scheduling", wintypes.DWORD),
        ("io", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    ]


def job() -> dict[str, Any] | None:
    """Return what the innermost job object of this process limits; {} where it is in none.

    flags, processes, process_memory, job_memory, affinity: as JOBOBJECT_EXTENDED_LIMIT_INFORMATION has them;
    cpu_flags, cpu_rate: as JOBOBJECT_CPU_RATE_CONTROL_INFORMATION; groups: group and mask of each of its own.
    """
    is_inside = wintypes.BOOL()
    process = wintypes.HANDLE(_kernel32.GetCurrentProcess())
    if not _kernel32.IsProcessInJob(process, None, ctypes.byref(is_inside)):
        return None
    if not is_inside:
        return {}

    def query(number: int, data: Any) -> int:
        """Return how many bytes were filled in; 0 where the system refuses."""
        length = wintypes.DWORD()
        size = ctypes.sizeof(data)
        done = _kernel32.QueryInformationJobObject(
            None, number, ctypes.byref(data), size, ctypes.byref(length)
        )
        return (length.value or size) if done else 0

    found: dict[str, Any] = {"flags": 0}
    limits, rate, groups = _ExtendedLimits(), (wintypes.DWORD * 2)(), (_GroupAffinity * 64)()
    if query(9, limits):
        names = ("flags", "processes", "process_memory", "job_memory", "affinity")
        found |= {name: getattr(limits, name) for name in names}
    if query(15, rate):
        found |= {"cpu_flags": rate[0], "cpu_rate": rate[1]}
    length = query(14, groups)
    if rows := groups[: length // ctypes.sizeof(_GroupAffinity)]:
        found["groups"] = [[row.group, row.mask] for row in rows if row.mask]
    return found


# ---- the system ----------------------------------------------------------------------------------


class _Version(ctypes.Structure):
    _fields_ = [
        *((name, wintypes.ULONG) for name in ("length", "major", "minor", "build", "platform")),
        ("service_pack", wintypes.WCHAR * 128),
        ("service_pack_numbers", wintypes.WORD * 2),
        ("suite", wintypes.WORD),
        ("product_type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte),
    ]


def windows_version() -> dict[str, int] | None:
    """Return major, minor, build and product_type (1: a workstation) by RtlGetVersion."""
    version = _Version(length=ctypes.sizeof(_Version))
    if _ntdll.RtlGetVersion(ctypes.byref(version)):
        return None
    names = ("major", "minor", "build", "product_type")
    return {name: getattr(version, name) for name in names}


_MACHINES = {0x8664: "AMD64", 0xAA64: "ARM64", 0x014C: "x86"}


def native_machine() -> str | None:
    """Return the processor that the system was built for, which an emulated process does not see."""
    own, native = wintypes.USHORT(), wintypes.USHORT()
    process = wintypes.HANDLE(_kernel32.GetCurrentProcess())
    if not _kernel32.IsWow64Process2(process, ctypes.byref(own), ctypes.byref(native)):
        return None
    return _MACHINES.get(native.value)


def wine_version() -> str | None:
    """Return the release of Wine; Windows itself lacks the function, and it is None."""
    version = _ntdll.wine_get_version
    version.restype = ctypes.c_char_p
    return str(version().decode())


def uptime() -> float:
    """Return the seconds since the system started."""
    _kernel32.GetTickCount64.restype = ctypes.c_uint64
    return _kernel32.GetTickCount64() / 1000  # type: ignore[no-any-return]


def affinity(pid: int | None = None) -> tuple[int, ...] | None:
    """Return the CPUs that a process may run on, by default this one; None where that is not known."""
    of_process, version = process_affinity(pid), windows_version() or {}
    if of_process is None:
        return None
    groups = (processors() or {}).get("groups", [])
    return decoded.allowed_cpus(of_process, groups, version.get("build", 0))


def names() -> tuple[str, str, str, str, str]:
    """Return what os.uname returns elsewhere; `platform.uname` would ask WMI, which takes seconds."""
    version = windows_version() or {}
    release = "11" if version.get("build", 0) >= 22000 else str(version.get("major", ""))
    numbers = ".".join(str(version[name]) for name in ("major", "minor", "build") if version)
    machine = os.environ.get("PROCESSOR_ARCHITEW6432") or os.environ.get(
        "PROCESSOR_ARCHITECTURE", ""
    )
    return "Windows", host_name(), release, numbers, machine


def host_name() -> str:
    """Return the machine's DNS name, which may be longer than COMPUTERNAME."""
    name, length = ctypes.create_unicode_buffer(256), wintypes.DWORD(256)
    is_read = _kernel32.GetComputerNameExW(1, name, ctypes.byref(length))
    return name.value if is_read else ""


def drives() -> list[str]:
    """Return the fixed drives: C:/ and so on."""
    mask = _kernel32.GetLogicalDrives()
    letters = (chr(65 + number) for number in range(26) if mask >> number & 1)
    return [f"{letter}:/" for letter in letters if _kernel32.GetDriveTypeW(f"{letter}:\\") == 3]


# ---- devices -------------------------------------------------------------------------------------


class _PropertyKey(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_ubyte * 16), ("number", wintypes.ULONG)]


_PCI_KEY = "312eb23a64824e4b9af5a8d2d8e33e62"
_NUMA_KEY = "7e940b54408bbc45a8a26a0b894cbda2"
_PROPERTIES = {
    "numa_node": (_NUMA_KEY, 3),
    "base_class": (_PCI_KEY, 3),
    "sub_class": (_PCI_KEY, 4),
    "link_speed": (_PCI_KEY, 9),
    "link_width": (_PCI_KEY, 10),
    "max_link_speed": (_PCI_KEY, 11),
    "max_link_width": (_PCI_KEY, 12),
}
"""Numbers among a device's properties (DEVPKEY_Device_Numa_Node, DEVPKEY_PciDevice_...): GUID and number."""
_PRESENT_BY_ENUMERATOR = 0x101


def present_devices() -> dict[str, dict[str, int]] | None:
    """Return the instance of each PCI device that is plugged in, with the numbers of its properties."""
    manager = ctypes.WinDLL("cfgmgr32")
    length = wintypes.ULONG()
    arguments = ("PCI", _PRESENT_BY_ENUMERATOR)
    if manager.CM_Get_Device_ID_List_SizeW(ctypes.byref(length), *arguments) or not length.value:
        return None
    names = ctypes.create_unicode_buffer(length.value)
    if manager.CM_Get_Device_ID_ListW("PCI", names, length, _PRESENT_BY_ENUMERATOR):
        return None
    return {
        name: dict(_properties(manager, name))
        for name in ctypes.wstring_at(names, length.value).split("\0")
        if name
    }


def _properties(manager: Any, name: str) -> Iterator[tuple[str, int]]:
    node = wintypes.DWORD()
    if manager.CM_Locate_DevNodeW(ctypes.byref(node), name, 0):
        return
    for fact, (kind, number) in _PROPERTIES.items():
        key = _PropertyKey((ctypes.c_ubyte * 16)(*bytes.fromhex(kind)), number)
        of_type, value, size = wintypes.ULONG(), wintypes.ULONG(), wintypes.ULONG(4)
        if not manager.CM_Get_DevNode_PropertyW(
            node, ctypes.byref(key), *map(ctypes.byref, (of_type, value, size)), 0
        ):
            yield fact, value.value


CALLS: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        cpuid,
        processor_features,
        processors,
        processor_power,
        memory_status,
        node_memory,
        page_files,
        page_size,
        may_lock_memory,
        job,
        windows_version,
        native_machine,
        wine_version,
        uptime,
        drives,
        present_devices,
    )
}
"""By their names in `system` of host.json."""
