"""What a recording keeps of files whose rest may name somebody, or is read by no probe.

The kernel's command line has addresses and keys in it, a list of mounts has servers and people, and a
package's metadata has its authors. Of each such file there is a function here that returns what the
probes read of it; they answer the same from that. A file that is not named here is kept whole.
"""

import re
from collections.abc import Callable

import msgspec

from mlbackends.host.system.kernel import kept_parameters
from mlbackends.host.system.virtual_machines import asset_tags
from mlbackends.model.patterns import bytes_pattern, pattern

Hide = Callable[[str], str]
"""Replaces the servers and addresses in a text."""

_SECRET = re.compile(r"(?i)key|pass|secret|token|credential|auth|login|user|chap")
_SERIAL = bytes_pattern(rb"(?im)^(serial[ \t]*:[ \t]*).*$")
_DPKG = (b"Package:", b"Status:", b"Architecture:", b"Multi-Arch:", b"Version:")
_METADATA = ("Metadata-Version:", "Name:", "Version:", "Requires-", "Provides-Extra:")
_ENVIRONMENT = frozenset({
    "home", "include-system-site-packages", "version", "version_info", "implementation", "uv",
    "virtualenv", "relocatable",
})  # fmt: skip
_SYSTEM_MOUNTS = pattern(r"/(?:dev|proc|sys|run/shm)?(?:/.*)?")
_OF_AN_OVERLAY = pattern(
    r"[\d]*|docker|overlay2?|containers|storage|[\w.-]*containerd[\w.-]*|diff|fs|snapshots|var|lib"
    r"|\.?local|share|[0-9a-f]{64}"
)
_CONTROLS = pattern(
    r"(?:hw|machdep|vm)\.|sysctl\.proc_|kern\.(?:os\w+|boottime|bootsessionuuid|hv_vmm_present):"
)
_EXTENDED, _SERIAL_NUMBER = 0x100, 0x0003
"""Where a PCI device's extended capabilities begin, and the one that is its serial number."""


def excerpt(path: str, data: bytes, hide: Hide) -> bytes:
    """Return what is kept of a file that a probe read under that path."""
    for fits, keep in _FILES:
        if fits.fullmatch(path):
            return keep(data)
    if path.endswith((".dist-info/METADATA", "/PKG-INFO", ".egg-info")):
        return _metadata(data, hide)
    if path.endswith("/direct_url.json"):
        return _direct_url(data, hide)
    return data


def without_secrets(path: str, data: bytes) -> bytes:
    """Return a file without what must not be kept even by one who gives away names."""
    if path != "/proc/cmdline":
        return _conda(data) if _CONDA.fullmatch(path) else data
    kept = []
    for word in data.decode(errors="surrogateescape").split(" "):
        name, _, value = word.partition("=")
        kept.append(f"{name}=***" if value and _SECRET.search(name) else word)
    return " ".join(kept).encode(errors="surrogateescape")


def of_command(command: str, output: str) -> str:
    """Return what is kept of a command's output."""
    if command != "sysctl -a":
        return output
    return "".join(line for line in output.splitlines(keepends=True) if _CONTROLS.match(line))


def _command_line(data: bytes) -> bytes:
    return kept_parameters(data.decode(errors="replace")).encode() + b"\n"


def _mounts(data: bytes) -> bytes:
    """Keep the control groups and what is mounted on the system's own places, without their sources."""
    kept = []
    for line in data.decode(errors="surrogateescape").splitlines():
        where, _, what = line.partition(" - ")
        fields, source = where.split(" "), what.split(" ", 2)
        if len(fields) < 6 or len(source) < 3:
            continue
        kind, is_group = source[0], source[0] in ("cgroup", "cgroup2")
        if not is_group and not _SYSTEM_MOUNTS.fullmatch(fields[4]):
            continue
        root = fields[3] if is_group else "/"
        options = source[2] if is_group else _overlay(source[2])
        place = " ".join((*fields[:3], root, fields[4], "rw"))
        kept.append(f"{place} - {kind} none {options}\n")
    return "".join(kept).encode(errors="surrogateescape")


def _overlay(options: str) -> str:
    """Keep which store of containers an overlay lies in."""
    for option in options.split(","):
        name, _, path = option.partition("=")
        if name == "upperdir":
            parts = [part if _OF_AN_OVERLAY.fullmatch(part) else "x" for part in path.split("/")]
            return f"rw,upperdir={'/'.join(parts)}"
    return "rw"


def _dpkg(data: bytes) -> bytes:
    paragraphs = (
        b"\n".join(line for line in paragraph.split(b"\n") if line.startswith(_DPKG))
        for paragraph in data.split(b"\n\n")
    )
    return b"\n\n".join(each for each in paragraphs if each) + b"\n"


def _conda(data: bytes) -> bytes:
    """Keep a package's name and files; the address that it came from may hold a token."""

    class Package(msgspec.Struct):
        name: str = ""
        version: str = ""
        build: str = ""
        files: list[str] = []

    try:
        return msgspec.json.encode(msgspec.json.decode(data, type=Package))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return b""


def _metadata(data: bytes, hide: Hide) -> bytes:
    text = data.decode(errors="replace").split("\n\n", 1)[0]
    lines = [line for line in text.splitlines() if line.startswith(_METADATA)]
    return "".join(f"{hide(line) if '://' in line else line}\n" for line in lines).encode()


def _direct_url(data: bytes, hide: Hide) -> bytes:
    class Folder(msgspec.Struct, omit_defaults=True):
        editable: bool = False

    class Origin(msgspec.Struct, omit_defaults=True):
        url: str = ""
        dir_info: Folder | None = None

    try:
        origin = msgspec.json.decode(data, type=Origin)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return data[:1] and b"{"
    origin.url = hide(origin.url)
    return msgspec.json.encode(origin)


def _environment(data: bytes) -> bytes:
    lines = data.decode(errors="replace").splitlines()
    kept = (line for line in lines if line.partition("=")[0].strip().lower() in _ENVIRONMENT)
    return "".join(f"{line}\n" for line in kept).encode()


def _asset_tag(data: bytes) -> bytes:
    return data if data.startswith(tuple(tag.encode() for tag in asset_tags())) else b""


def _groups(data: bytes) -> bytes:
    """Keep the groups' names and numbers, and none of their members."""
    rows = (line.split(b":") for line in data.splitlines())
    return b"".join(b"%b:x:%b:\n" % (row[0], row[2]) for row in rows if len(row) > 2)


def _configuration(data: bytes) -> bytes:
    """Blank a PCI device's serial number, which of a network card is its hardware address."""
    kept, at, seen = bytearray(data), _EXTENDED, set[int]()
    while at >= _EXTENDED and at + 12 <= len(data) and at not in seen:
        seen.add(at)
        header = int.from_bytes(data[at : at + 4], "little")
        if header & 0xFFFF == _SERIAL_NUMBER:
            kept[at + 4 : at + 12] = bytes(8)
        at = header >> 20 & 0xFFC
    return bytes(kept)


def _lines(*beginnings: bytes) -> Callable[[bytes], bytes]:
    def keep(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        return b"".join(line for line in lines if line.startswith(beginnings))

    return keep


def _control_programs(data: bytes) -> bytes:
    """Keep the hypervisors of a mainframe; the rest is serial numbers and the names of its guests."""
    lines = data.splitlines(keepends=True)
    return b"".join(line for line in lines if b"Control Program:" in line)


_CONDA = pattern(r".*/conda-meta/[^/]*\.json")
_FILES: tuple[tuple[re.Pattern[str], Callable[[bytes], bytes]], ...] = (
    (pattern(r"/proc/cmdline"), _command_line),
    (pattern(r"/proc/[^/]*/mountinfo"), _mounts),
    (pattern(r"/proc/[^/]*/status"), _lines(b"Cpus_allowed_list:")),
    (pattern(r"/proc/[^/]*/environ|/etc/passwd"), lambda _: b""),
    (pattern(r"/proc/cpuinfo"), lambda data: _SERIAL.sub(rb"\g<1>0", data)),
    (pattern(r"/proc/sysinfo"), _control_programs),
    (pattern(r"/proc/sys/kernel/hostname"), lambda data: b"host\n" if data else b""),
    (pattern(r"/proc/sys/kernel/domainname"), lambda _: b""),
    (pattern(r"/etc/group"), _groups),
    (pattern(r"/var/lib/dpkg/status"), _dpkg),
    (pattern(r"/sys/class/dmi/id/chassis_asset_tag"), _asset_tag),
    (pattern(r"/sys/.*/config"), _configuration),
    (pattern(r".*/pyvenv\.cfg"), _environment),
    (_CONDA, _conda),
)
