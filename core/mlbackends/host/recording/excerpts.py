"""What a recording keeps of files whose rest may name somebody, or is read by no probe.

The kernel's command line has addresses and keys in it, a list of mounts has servers and people, and a
package's metadata has its authors. Of each such file there is a function here that returns what the
probes read of it; they answer the same from that. A file that is not named here is kept whole.
"""

import re
from collections.abc import Callable

import msgspec

from mlbackends.base.patterns import bytes_pattern, pattern
from mlbackends.base.tables import table
from mlbackends.host.pci import extended_capabilities
from mlbackends.host.system.kernel import is_node_mount, known_options, known_parameters

#: Replaces the servers and addresses in a text.
Hide = Callable[[str], str]

_SECRET = re.compile(r"(?i)key|pass|secret|token|credential|auth|login|user|chap")
_METADATA = ("Metadata-Version:", "Name:", "Version:", "Requires-", "Provides-Extra:")
_SYSTEM_MOUNTS = pattern(r"/(?:dev|proc|sys|run/shm)?(?:/.*)?")
_OF_AN_OVERLAY = pattern(
    r"[\d]*|docker|overlay2?|containers|storage|[\w.-]*containerd[\w.-]*|diff|fs|snapshots|var|lib"
    r"|\.?local|share|[0-9a-f]{64}"
)
_CONTROLS = bytes_pattern(
    rb"(?:hw|machdep|vm)\.|sysctl\.proc_|kern\.(?:os\w+|boottime|bootsessionuuid|hv_vmm_present):"
)
#: The extended capability of a PCI device that is its serial number.
_SERIAL_NUMBER = 0x0003


def excerpt(path: str, data: bytes, hide: Hide) -> bytes:
    """Return what is kept of a file that a probe read under that path."""
    for fits, reduce in _FILES:
        if fits.fullmatch(path):
            return reduce(data)
    if path.endswith((".dist-info/METADATA", "/PKG-INFO", ".egg-info")):
        text = data.decode(errors="replace").split("\n\n", 1)[0]
        lines = [line for line in text.splitlines() if line.startswith(_METADATA)]
        return "".join(f"{hide(line) if '://' in line else line}\n" for line in lines).encode()
    if path.endswith("/direct_url.json"):
        return _direct_url(data, hide)
    return data


def without_secrets(path: str, data: bytes) -> bytes:
    """Return a file without what must not be kept even by one who gives away names."""
    if path != "/proc/cmdline":
        return _conda(data) if _CONDA.fullmatch(path) else data
    words = []
    for word in data.decode(errors="surrogateescape").split(" "):
        name, _, value = word.partition("=")
        words.append(f"{name}=***" if value and _SECRET.search(name) else word)
    return " ".join(words).encode(errors="surrogateescape")


def of_command(command: str, output: str) -> str:
    """Return what is kept of a command's output."""
    return _lines(_CONTROLS)(output.encode()).decode() if command == "sysctl -a" else output


def _lines(begin: re.Pattern[bytes]) -> Callable[[bytes], bytes]:
    """Return what keeps the lines that begin with a pattern."""
    return lambda data: b"".join(filter(begin.match, data.splitlines(keepends=True)))


def _mounts(data: bytes) -> bytes:
    """Keep control groups and the mounts of the system, of disks and of servers, without their sources."""
    rows = []
    for line in data.decode(errors="surrogateescape").splitlines():
        mount, _, source_text = line.partition(" - ")
        fields, source = mount.split(" "), source_text.split(" ", 2)
        if len(fields) < 6 or len(source) < 3:
            continue
        kind, is_group = source[0], source[0] in ("cgroup", "cgroup2")
        is_kept = is_group or _SYSTEM_MOUNTS.fullmatch(fields[4])
        if not is_kept and kind != "autofs" and not is_node_mount(kind, fields[4]):
            continue
        root = fields[3] if is_group else "/"
        options = source[2]
        if not is_group:  # of an overlay, which store of containers it lies in
            upper = re.search(r"(?:^|,)upperdir=([^,]*)", options)
            parts = upper[1].split("/") if upper else []
            hidden = "/".join(part if _OF_AN_OVERLAY.fullmatch(part) else "x" for part in parts)
            known = known_options(options.split(","))
            options = ",".join([*known, f"upperdir={hidden}"] if upper else known)
        place = " ".join((*fields[:3], root, fields[4], ",".join(known_options(fields[5].split(",")))))
        rows.append(f"{place} - {kind} none {options}\n")
    return "".join(rows).encode(errors="surrogateescape")


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


def _asset_tag(data: bytes) -> bytes:
    """Keep a tag that names a cloud; any other one names a machine."""
    clouds = table("host/system/virtual_machines")["clouds"]
    tags = tuple(mark.encode() for field, mark, _ in clouds if field == "chassis_asset_tag")
    return data if data.startswith(tags) else b""


def _groups(data: bytes) -> bytes:
    """Keep the groups' names and numbers, and none of their members."""
    rows = (line.split(b":") for line in data.splitlines())
    return b"".join(b"%b:x:%b:\n" % (row[0], row[2]) for row in rows if len(row) > 2)


def _configuration(data: bytes) -> bytes:
    """Blank a PCI device's serial number, which of a network card is its hardware address."""
    blanked = bytearray(data)
    for identifier, at in extended_capabilities(data):
        if identifier == _SERIAL_NUMBER:
            blanked[at + 4 : at + 12] = bytes(len(data[at + 4 : at + 12]))
    return bytes(blanked)


_CONDA = pattern(r".*/conda-meta/[^/]*\.json")
_FILES: tuple[tuple[re.Pattern[str], Callable[[bytes], bytes]], ...] = (
    (pattern(r"/proc/cmdline"),
     lambda data: known_parameters(data.decode(errors="replace")).encode() + b"\n"),
    (pattern(r"/proc/[^/]*/mountinfo"), _mounts),
    (pattern(r"/proc/[^/]*/status"), _lines(bytes_pattern(rb"Cpus_allowed_list:"))),
    (pattern(r"/proc/[^/]*/environ|/etc/passwd"), lambda _: b""),
    (pattern(r"/proc/cpuinfo"), lambda data: re.sub(rb"(?im)^(serial[ \t]*:[ \t]*).*$", rb"\g<1>0", data)),
    # The hypervisors of a mainframe; the rest is serial numbers and the names of its guests.
    (pattern(r"/proc/sysinfo"), _lines(bytes_pattern(rb".*Control Program:|LPAR Number:"))),
    (pattern(r"/proc/sys/kernel/hostname"), lambda data: b"host\n" if data else b""),
    (pattern(r"/proc/sys/kernel/domainname"), lambda _: b""),
    (pattern(r"/etc/group"), _groups),
    (pattern(r"/var/lib/dpkg/status"),
     _lines(bytes_pattern(rb"(?:Package|Status|Architecture|Multi-Arch|Version):|\n"))),
    (pattern(r"/sys/class/dmi/id/chassis_asset_tag"), _asset_tag),
    (pattern(r"/sys/.*/config"), _configuration),
    (pattern(r".*/pyvenv\.cfg"),
     _lines(bytes_pattern(rb"(?i)\s*(?:home|include-system-site-packages|version(?:_info)?|implementation|uv"
     rb"|virtualenv|relocatable)\s*="))),
    (_CONDA, _conda),
)  # fmt: skip
