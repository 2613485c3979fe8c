"""Versions of the packages that clusters depend on, from the databases of dpkg and rpm.

Each reads a database on the disk and returns versions by name, of the packages in package_versions.json.
Sources: deb-control(5); rpm, docs/manual/format_header.md, and lib/backend/sqlite.cc for the tables.
"""

import os
import struct
from contextlib import closing, suppress

from mlbackends.base.mounts import NotAnswering
from mlbackends.base.quantities import one_line
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host

_LIMIT = 64 << 20
#: RPMTAG_VERSION, RPMTAG_RELEASE.
_VERSION, _RELEASE = 1001, 1002


@once_per_host
def package_versions(host: Host) -> dict[str, str]:
    """Return the versions by package; {} if no database is there or readable, as RHEL 8's is not."""
    names, found = table("host/system/package_versions"), dict[str, str]()
    for path, read in (
        ("/var/lib/dpkg/status", dpkg_versions),
        ("/usr/lib/sysimage/rpm/rpmdb.sqlite", rpm_versions),
        ("/var/lib/rpm/rpmdb.sqlite", rpm_versions),
    ):
        if host.is_file(path) or not host.is_live:
            with suppress(OSError, ValueError, NotAnswering):
                found |= host.extracted(path, read, dict[str, str])
    return {name: one_line(version, 80) for name, version in sorted(found.items()) if name in names}


def dpkg_versions(path: str) -> dict[str, str]:
    """Return those of dpkg's list of packages that are installed. Raises OSError."""
    with open(path, "rb") as file:
        stanzas = file.read(_LIMIT).split(b"\n\n")
    names, found = {name.encode() for name in table("host/system/package_versions")}, {}
    for stanza in stanzas:
        name = stanza.removeprefix(b"Package: ").partition(b"\n")[0]
        version = stanza.partition(b"\nVersion: ")[2].partition(b"\n")[0] if name in names else b""
        if version and b"\nStatus: install ok installed\n" in stanza:
            found[name.decode()] = version.decode(errors="replace")
    return found


def rpm_versions(path: str) -> dict[str, str]:
    """Return those of rpm's SQLite database, which is read as it is, without the log of a running change.

    Raises ValueError, OSError.
    """
    import sqlite3

    query = "SELECT blob FROM Packages JOIN Name ON Packages.hnum = Name.hnum WHERE Name.key = ?"
    found = {}
    try:
        address = f"file:{os.path.abspath(path).replace('?', '%3f').replace('#', '%23')}?immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as database:
            for name in table("host/system/package_versions"):
                for (header,) in database.execute(query, (name,)).fetchmany(8):
                    tags = _tags(header)
                    if len(tags) == 2:
                        found[name] = f"{tags[_VERSION]}-{tags[_RELEASE]}"
    except (sqlite3.Error, struct.error, TypeError) as error:
        raise ValueError(f"{path} is not a database of rpm: {error}") from None
    return found


def _tags(header: bytes) -> dict[int, str]:
    """Return version and release of a header: two numbers, an index of four numbers a tag, and the data."""
    count, size = struct.unpack_from(">II", header)
    if 8 + 16 * count + size > len(header):
        raise ValueError("a header of rpm is cut off")
    rows = struct.iter_unpack(">IIII", header[8 : 8 + 16 * count])
    index = {tag: offset for tag, _, offset, _ in rows}
    data = header[8 + 16 * count :]
    return {
        tag: data[index[tag] :].partition(b"\0")[0].decode(errors="replace")
        for tag in (_VERSION, _RELEASE)
        if tag in index
    }
