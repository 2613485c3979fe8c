"""What the compiled libraries of a wheel must be, for the platform that the wheel's tag names.

LIEF reads them, whatever the system is that they are for; nothing is loaded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FOLDER = "mlbackends_kernels/lib/"
HEADER = f"{FOLDER}attention.h"
#: What a wheel of each system holds beside the header of attention.
LIBRARIES = {
    "linux": ("attention.so", "no_driver.so", "trace_shim.so"),
    "macosx": ("attention.dylib",),
    "win": ("attention.dll",),
}
#: The functions that are looked up in each; of the library of attention those that its header declares.
SYMBOLS = {
    "no_driver": {"cuInit", "cuLibraryLoadData", "cuTensorMapEncodeTiled"},
    "trace_shim": {"mlbackends_listen", "mlbackends_listen_no_more", "printf", "fwrite", "fopen"},
}
#: Streams are listened to by what glibc alone has.
NOT_WITH_MUSL = {"mlbackends_listen", "mlbackends_listen_no_more"}
#: What a library calls itself that stands in for another one.
NAMES = {"no_driver.so": "libcuda.so.1"}
#: What LIEF calls the processors of tags.
PROCESSORS = {
    "aarch64": "AARCH64",
    "amd64": "AMD64",
    "arm64": "ARM64",
    "ppc64le": "PPC64",
    "riscv64": "RISCV",
    "s390x": "S390",
    "x86_64": "X86_64",
}
#: Every system of the platform has these.
SYSTEM_LIBRARIES = {
    "linux": re.compile(r"(libc|libm|libdl|librt|libpthread|ld[\w-]*)\.so\.\d+"),
    "musllinux": re.compile(r"libc(\.musl-\w+)?\.so(\.1)?"),
    "macosx": re.compile(r"/usr/lib/libSystem\.B\.dylib"),
    "win": re.compile(r"(kernel32|ntdll|api-ms-win-(core|crt)-[\w-]+)\.dll", re.IGNORECASE),
}
#: musl's symbols have no versions: these came after 1.2.0.
AFTER_MUSL_1_2 = frozenset(
    [
        "_Fork",
        "gettid",
        "pthread_getname_np",
        "preadv2",
        "pwritev2",
        "qsort_r",
        "reallocarray",
        "statx",
        "tcgetwinsize",
        "tcsetwinsize",
    ]
)


class Platform(NamedTuple):
    """A platform's tag: the kind of system, the oldest version of its libc or of macOS, the processor."""

    tag: str
    oldest: tuple[int, ...]
    processor: str

    @property
    def system(self) -> str:
        """linux, macosx or win."""
        return "linux" if "linux" in self.tag else self.tag

    def names(self) -> set[str]:
        """Return what a wheel of the platform holds and one for any does not."""
        return {HEADER, *(FOLDER + name for name in LIBRARIES[self.system])}


def platform_of(tag: str) -> Platform:
    """Take the tag of a platform apart: oldest is empty where it names no version. Raises ValueError."""
    found = re.fullmatch(r"(manylinux|musllinux|macosx|linux|win)_(\d+_\d+_)?(\w+)", tag)
    if not found:
        raise ValueError(f"{tag} is no platform of ours")
    numbers = (found[2] or "").strip("_")
    return Platform(found[1], tuple(map(int, numbers.split("_"))) if numbers else (), found[3])


class Library(NamedTuple):
    """What was read of a library, and what is wrong with it wherever it is to run."""

    processor: str
    name: str
    needed: list[str]
    exported: set[str]
    faults: list[str]


def library_faults(platform: Platform, files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield what is wrong with the libraries among a wheel's files."""
    declared = set(re.findall(r"\b(mlbackends_\w+)\(", files.get(HEADER, b"").decode()))
    if not declared:
        yield f"{HEADER} declares no function"
    for short in LIBRARIES[platform.system]:
        if not (content := files.get(FOLDER + short)):
            continue  # that it is missing is said elsewhere
        if (library := read_library(platform, content)) is None:
            yield f"{short} is no library of {platform.system} for one processor"
            continue
        if library.processor != PROCESSORS[platform.processor]:
            yield f"{short} is for {library.processor}, the tag for {platform.processor}"
        if library.name.removeprefix("@loader_path/") not in (NAMES.get(short, short), ""):
            yield f"{short} calls itself {library.name}"
        wanted = SYMBOLS.get(short.partition(".")[0], declared)
        if platform.tag == "musllinux":
            wanted = wanted - NOT_WITH_MUSL
        if missing := wanted - library.exported:
            yield f"{short} does not export {', '.join(sorted(missing))}"
        usual = SYSTEM_LIBRARIES.get(platform.tag) or SYSTEM_LIBRARIES[platform.system]
        own = LIBRARIES[platform.system]
        for name in library.needed:
            if name.removeprefix("@loader_path/") not in own and not usual.fullmatch(name):
                yield f"{short} needs {name}, which is no part of the system"
        yield from (f"{short} {fault}" for fault in library.faults)


def read_library(platform: Platform, content: bytes) -> Library | None:
    """Return what LIEF reads of a library, None where it is none of the platform's system."""
    return _READERS[platform.system](platform, content)


def _read_elf(platform: Platform, content: bytes) -> Library | None:
    from lief import ELF

    file: Any = ELF.parse(list(content))
    if file is None:
        return None
    tags, faults = ELF.DynamicEntry.TAG, []
    folders = [path for entry in file.dynamic_entries if entry.tag == tags.RUNPATH for path in entry.paths]
    if file.get(tags.RPATH) or set(folders) - {"$ORIGIN"}:
        faults.append(f"looks for libraries in {folders or 'its RPATH'}")
    if file.get(tags.TEXTREL):
        faults.append("has relocations in its code")
    stack = file.get(ELF.Segment.TYPE.GNU_STACK)
    if stack is None or stack.has(ELF.Segment.FLAGS.X):
        faults.append("asks for an executable stack")
    versions = [
        version.name
        for required in file.symbols_version_requirement
        for version in required.get_auxiliary_symbols()
    ]
    if platform.tag == "musllinux":
        foreign = {symbol.name for symbol in file.dynamic_symbols if not symbol.shndx}
        faults += [f"needs {name}, which musl 1.2.0 lacks" for name in sorted(foreign & AFTER_MUSL_1_2)]
        faults += [f"needs {name}, which is glibc's" for name in versions]
    elif platform.oldest:
        faults += [
            f"needs {name}, newer than the tag"
            for name in sorted(set(versions))
            if tuple(map(int, re.findall(r"\d+", name))) > platform.oldest or not name.startswith("GLIBC_")
        ]
    exported = {str(symbol.name) for symbol in file.exported_functions}
    name = next((str(entry.name) for entry in file.dynamic_entries if entry.tag == tags.SONAME), "")
    return Library(_word(file.header.machine_type), name, list(file.libraries), exported, faults)


def _read_pe(platform: Platform, content: bytes) -> Library | None:
    from lief import PE

    file: Any = PE.parse(list(content))
    if file is None:
        return None
    exported = {str(symbol.name) for symbol in file.exported_functions}
    needed = [str(name.name) for name in (*file.imports, *file.delay_imports)]
    # The linker's own sign that no time is in the file.
    is_repeatable = any(entry.type == PE.Debug.TYPES.REPRO for entry in file.debug)
    faults = [] if is_repeatable else ["holds the time at which it was linked"]
    table = file.get_export()
    name = str(table.name) if table else ""
    return Library(_word(file.header.machine), name, needed, exported, faults)


def _read_mach_o(platform: Platform, content: bytes) -> Library | None:
    from lief import MachO

    files = MachO.parse(list(content))
    file: Any = files.at(0) if files is not None and files.size == 1 else None
    if file is None:
        return None
    faults = []
    oldest = tuple(file.build_version.minos) if file.build_version else ()
    if not oldest or oldest[:2] > platform.oldest:
        faults.append(f"is for macOS {oldest or 'of no version'}, the tag for {platform.oldest}")
    own = [library for library in file.libraries if library.command == MachO.LoadCommand.TYPE.ID_DYLIB]
    if platform.processor == "arm64" and not file.has_code_signature:
        faults.append("is not signed, and macOS loads no such code on this processor")
    name = str(own[0].name) if own else ""
    needed = [str(library.name) for library in file.libraries if library not in own]
    exported = {str(symbol.name).removeprefix("_") for symbol in file.exported_functions}
    return Library(_word(file.header.cpu_type), name, needed, exported, faults)


def _word(value: Any) -> str:
    """Return the last word of one of LIEF's enumerations."""
    return str(value).rpartition(".")[2]


_READERS: dict[str, Callable[[Platform, bytes], Library | None]] = {
    "linux": _read_elf,
    "macosx": _read_mach_o,
    "win": _read_pe,
}
