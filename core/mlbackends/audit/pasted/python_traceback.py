"""a Python traceback."""

import re
from collections.abc import Iterator

from mlbackends.audit.pasted._stated import Stated

_FRAME = re.compile(r'File "([^"\n]+)", line \d+|File ([\w/\\.:-]+\.py):\d+')
_PYTHON = re.compile(r"[/\\](?:python|Python)(3)\.?(\d{1,2})[/\\]")


def matches(text: str) -> bool:
    """Return whether the text has a traceback's head or a frame."""
    return "Traceback (most recent call last)" in text or bool(_FRAME.search(text))


def read(text: str) -> Iterator[Stated]:
    """Read what the paths of its frames state: the system, and the Python."""
    for match in _FRAME.finditer(text):
        path = match[1] or match[2]
        if re.match(r"[A-Za-z]:[\\/]", path):
            yield Stated("host.platform", "win32", match.start())
        elif path.startswith("/Users/"):
            yield Stated("host.platform", "darwin", match.start())
        elif path.startswith(("/home/", "/root/", "/usr/local/lib/python", "/usr/lib/python", "/opt/conda/")):
            yield Stated("host.platform", "linux", match.start())
        else:
            continue
        if python := _PYTHON.search(path):
            yield Stated("python.version", f"{python[1]}.{python[2]}", match.start())
        return
