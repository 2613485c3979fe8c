"""Versions of the system's packages that clusters depend on, from the databases of dpkg and rpm.

package_versions.json lists the packages: container runtimes, Slurm, drivers of networks and file systems.
Sources: deb-control(5); rpm, docs/manual/format_header.md, and lib/backend/sqlite.cc for the tables.
"""

import os
import struct
from contextlib import closing, suppress
from urllib.parse import quote

from mlbackends.base.mounts import NotAnswering
from mlbackends.base.quantities import one_line
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.libraries.owners import dpkg_version

_NAMES = "libraries/package_versions"
_RPM_DATABASES = ("/usr/lib/sysimage/rpm/rpmdb.sqlite", "/var/lib/rpm/rpmdb.sqlite")
_TAGS = (1001, 1002)  # RPMTAG_VERSION, RPMTAG_RELEASE


def package_versions(host: Host) -> dict[str, str]:
    """Return the versions by package; {} where no database can be read, as that of RHEL 8 and older."""
    versions = {name: dpkg_version(host, name) for name in table(_NAMES)}
    for path in _RPM_DATABASES:
        if host.exists(path):
            with suppress(OSError, ValueError, NotAnswering):
                versions |= host.extracted(path, rpm_versions, dict[str, str])
    return {name: one_line(version, 80) for name, version in sorted(versions.items()) if version}


def rpm_versions(path: str) -> dict[str, str]:
    """Return those of rpm's SQLite database, without the log of a running change. Raises ValueError."""
    import sqlite3

    names = table(_NAMES)
    query = "SELECT Name.key, blob FROM Packages JOIN Name ON Packages.hnum = Name.hnum WHERE Name.key IN "
    address = f"file:{quote(os.path.abspath(path))}?immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            rows = database.execute(f"{query} ({','.join('?' * len(names))})", names).fetchmany(256)
        return {name: _version(header) for name, header in rows}
    except (sqlite3.Error, struct.error, TypeError) as error:
        raise ValueError(f"{path} is not a database of rpm: {error}") from None


def _version(header: bytes) -> str:
    """Return VERSION-RELEASE of a header: two numbers, an index of four numbers a tag, and the data."""
    count, _ = struct.unpack_from(">II", header)
    index = {tag: at for tag, _, at, _ in struct.iter_unpack(">IIII", header[8 : 8 + 16 * count])}
    data = header[8 + 16 * count :]
    parts = (data[index[tag] :].partition(b"\0")[0] for tag in _TAGS if tag in index)
    return b"-".join(parts).decode(errors="replace")
