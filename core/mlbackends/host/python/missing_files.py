"""Files that a distribution's RECORD names and that are not there.

Two packages that own the same files leave this behind: when one of them is uninstalled, the files of
the other go with it, and no package manager says so. Only libraries are looked for: a module's text
that is missing tells its own story when it is imported, and a file system answers for hundreds of
libraries in a few milliseconds, not for tens of thousands of texts.

Source: PyPA, "Recording installed projects", RECORD.
"""

import os
import re
from collections.abc import Sequence
from typing import Any

from mlbackends.host.host import Host
from mlbackends.host.python.packages import Distribution, record_bytes
from mlbackends.model.patterns import bytes_pattern

_LIBRARY = bytes_pattern(
    rb'^"?([^",\n]+\.(?:so(?:\.[0-9][0-9.]*)?|pyd|dylib|dll))"?,', re.MULTILINE
)


def missing_files(host: Host, dists: Sequence[Distribution]) -> list[dict[str, Any]]:
    """Return name, version, files (how many) and example for each that lacks libraries of its own.

    A distribution without a RECORD owns nothing.
    """
    found: list[dict[str, Any]] = []
    for dist in dists:
        paths = [
            os.path.normpath(f"{dist.folder}/{name.decode(errors='replace')}")
            for name in _LIBRARY.findall(record_bytes(host, dist))
        ]
        gone = [path for path in paths if not host.exists(path)]
        if gone:
            found.append(
                {
                    "name": dist.name,
                    "version": dist.version,
                    "files": len(gone),
                    "example": gone[0],
                }
            )
    return found
