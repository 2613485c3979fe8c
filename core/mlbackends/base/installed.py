"""What is installed next to this process's own code, for messages; the survey reads other environments too.

Only folders of the import path are listed: `importlib.metadata` takes 40 ms for that.
"""

import os
import re
import sys
from functools import cache


@cache
def installed_version(name: str) -> str:
    """Return the version of a distribution, "" if it is not installed. name: as its wheel is named."""
    return _metadata(name).rpartition(os.sep)[2].removesuffix(".dist-info").partition("-")[2]


@cache
def install_command(extra: str, *packages: str) -> str:
    """Return the command that installs what one of our extras needs, and more packages.

    It names the packages themselves: mlbackends is on no package index yet, and may have been installed from
    a clone, a wheel or a URL. Without metadata this runs from a clone.
    """
    import shlex  # for a message

    try:
        with open(os.path.join(_metadata("mlbackends"), "METADATA"), encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return " ".join([f"pip install -e '.[{extra}]'", *packages, "in the clone"])
    line = rf"""^Requires-Dist: ([^;\n]+);[^\n]*extra == ["']{extra}["']"""
    needed = [shlex.quote(requirement.strip()) for requirement in re.findall(line, text, re.MULTILINE)]
    return " ".join(["pip install", *needed, *packages])


def _metadata(name: str) -> str:
    """Return the folder of a distribution's metadata, "" if it is not installed."""
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:  # a zip file, or a folder that does not exist
            continue
        for entry in entries:
            if entry.startswith(f"{name}-") and entry.endswith(".dist-info"):
                return os.path.join(folder, entry)
    return ""
