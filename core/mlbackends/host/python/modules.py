"""Where a Python module is imported from, and what it was installed from.

Source: PyPA, "Recording the Direct URL Origin of installed distributions"; setuptools, "Development
mode" (the finder of an editable install).
"""

import re
from typing import Any

from mlbackends.host.host import Host
from mlbackends.host.python.packages import Distribution, python_folders
from mlbackends.model.patterns import pattern

_CREDENTIALS = pattern(r"^(\w[\w+.-]*://)[^/@]*@")
_FINDERS_LIMIT = 200


def module_location(host: Host, module: str, *, require_init: bool = True) -> str:
    """Return the folder or file that `import module` takes; "" where there is none.

    module: with "/" for the dots, such as "cuda/tile".

    require_init: whether a folder counts only with an __init__.py in it. Without one it may be
    what an uninstall left behind.
    """
    bare, top = "", module.partition("/")[0]
    for folder in python_folders(host):
        names = _entries(host, folder)
        if top in names and host.is_dir(f"{folder}/{module}"):
            inside = host.listdir(f"{folder}/{module}")
            if any(name.startswith("__init__.") for name in inside):
                return f"{folder}/{module}"
            if not require_init and any(name != "__pycache__" for name in inside):
                bare = bare or f"{folder}/{module}"
        elif f"{module}.py" in names:
            return f"{folder}/{module}.py"
    return bare


def editable_location(host: Host, module: str) -> str:
    """Return where the finder of an editable install maps a module to."""
    finders = [
        f"{folder}/{name}"
        for folder in python_folders(host)
        for name in _entries(host, folder)
        if name.startswith("__editable__") and name.endswith("_finder.py")
    ]
    pattern = re.compile(rf"""['"]{re.escape(module)}['"]\s*:\s*(['"])(.+?)\1""")
    for path in sorted(finders)[:_FINDERS_LIMIT]:
        match = pattern.search(host.read(path, 1 << 20))
        if match and host.exists(match[2]):
            return match[2]
    return ""


def origin_of(host: Host, dist: Distribution) -> dict[str, Any]:
    """Return `url` and `editable` of a distribution that came from no index; {} for others."""
    text = host.read_bytes(f"{dist.info}/direct_url.json", 1 << 16)
    if text:
        import msgspec

        try:
            told = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return {}
        folder, url = told.get("dir_info"), told.get("url")
        origin: dict[str, Any] = {}
        if isinstance(url, str):
            origin["url"] = _CREDENTIALS.sub(r"\1", url)
        if isinstance(folder, dict) and folder.get("editable") is True:
            origin["editable"] = True
        return origin
    links = {f"{dist.name}.egg-link", f"{dist.name.replace('-', '_')}.egg-link"}
    if any(links & _entries(host, folder) for folder in python_folders(host)):
        return {"url": f"file://{dist.folder}", "editable": True}
    return {}


def _entries(host: Host, folder: str) -> frozenset[str]:
    """Return the names in a folder of the import path, read once a host."""
    cached: dict[str, frozenset[str]] = host.__dict__.setdefault("_import_folders", {})
    if folder not in cached:
        cached[folder] = frozenset(host.listdir(folder))
    return cached[folder]
