"""Python: the interpreter whose packages are looked at, and its environment.

Finds:    version, folders, who made the environment (venv, virtualenv, uv, conda, pipx, ...), the
          user's own site folder, the free-threaded build, the marker of PEP 668, and variables that
          lead Python elsewhere.
Caveats:  it is the interpreter that runs this command unless --python names another.
Source:   PEP 405 (pyvenv.cfg), PEP 668 (EXTERNALLY-MANAGED), PEP 703; Python documentation,
          "Command line and environment" and site.
"""

import sys
from collections.abc import Iterator

from mlbackends.base.quantities import dotted_numbers, leading_version
from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.declared import steering
from mlbackends.host.host import Host
from mlbackends.host.python.packages import distributions, is_user_site, python_folders
from mlbackends.model.records import Finding, Presence, nonempty

GROUP = "machine"
SUMMARY = ("{implementation} {version}", "{manager}", "{executable}")

_FREE_THREADING = (3, 13)


def find(host: Host) -> Finding:
    """Describe the interpreter that is looked at, from its folders."""
    python = {name: value for name, value in host.python.items() if isinstance(value, str)}
    prefix = python.get("prefix", "")
    if not prefix:
        message = "the recording does not contain its Python"
        if host.pid is not None:
            message = f"process {host.pid} is not a Python"
        return Finding(presence=Presence.ABSENT, reasons=(Reason("not-found", message),))
    version = _checked(python.get("version", ""))
    base = python.get("base_prefix") or prefix
    folders = python_folders(host)
    lines = host.read(f"{prefix}/pyvenv.cfg", 65536).splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    settings = {name.strip().lower(): value.strip() for name, _, value in pairs}
    manager, manager_version = _manager(host, prefix, base, settings)
    shared = settings.get("include-system-site-packages") if prefix != base else None
    site = [folder for folder in folders if folder.endswith(("/site-packages", "/dist-packages"))]
    library = [folder for folder in folders if _mark_of(folder.rpartition("/")[2]) is not None]
    is_marked = any(host.is_file(f"{folder}/EXTERNALLY-MANAGED") for folder in library)
    # Folders carry the letter of the build without the GIL.
    marks = {_mark_of(part) for folder in folders for part in folder.split("/")} - {None}
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    is_old = bool(numbers) and numbers < _FREE_THREADING
    include = f"python{'.'.join(version.split('.')[:2])}{'t' if 't' in marks else ''}"
    places = (f"{root}/include/{include}" for root in dict.fromkeys((prefix, base)))
    has_headers: bool | None = any(host.is_file(f"{place}/Python.h") for place in places)
    if not has_headers and not host.is_live and not host.is_dir(f"{base}/include"):
        has_headers = None  # older recordings do not have them
    names = ("implementation", "executable", "prefix", "base_prefix")
    facts = {
        **{name: python.get(name) for name in names},
        "is_virtual_environment": prefix != base,
        "manager": manager,
        "manager_version": manager_version,
        "library_folder_on_path": f"{prefix}/Library/bin".lower() in map(str.lower, host.folders("PATH"))
        if manager == "conda" and host.platform == "win32"
        else None,
        "sees_system_packages": shared and shared.lower() == "true",
        "site_folders": site if folders else None,
        "user_site_on_path": any(is_user_site(host, folder) for folder in site) if folders else None,
        "externally_managed": prefix == base and is_marked if folders else None,
        "distribution_count": len(distributions(host)) if folders else None,
        "has_headers": has_headers if host.platform != "win32" else None,
        "free_threaded": "t" in marks and not is_old if marks or is_old else None,
        **steering(host, "python"),
    }
    return Finding(
        presence=Presence.FOUND,
        version=version,
        facts=nonempty(facts),
        warnings=tuple(_warnings(host, prefix, base, version)),
    )


def _checked(version: str) -> str:
    """Return a version such as 3.13.0 or 3.14.0rc1; "" for anything else."""
    is_one = len(dotted_numbers(leading_version(version))) in (2, 3) and len(version) < 32
    return version if is_one and version.replace(".", "").isalnum() else ""


def _mark_of(part: str) -> str | None:
    """Return "t" for python3.13t, "" for python3.13, and None for the rest."""
    number = part.removeprefix("python").removesuffix("t")
    is_version = part.startswith("python") and len(dotted_numbers(number)) == 2
    return part[6 + len(number) :] if is_version else None


def _manager(host: Host, prefix: str, base: str, settings: dict[str, str]) -> tuple[str, str]:
    """Return who made the environment and the version of that; "" for what cannot be determined."""
    inside = f"{prefix}/"
    # Parts of the path that only one tool gives its environments, or its interpreters.
    managers: dict[str, dict[str, str]] = table("host/python/managers")
    place = next((name for part, name in managers["environments"].items() if part in inside), "")
    for name in ("uv", "virtualenv"):
        if settings.get(name):
            version = _checked(settings[name])
            return (place or name), version if place in ("", name) else ""
    if place:
        return place, ""
    if host.is_dir(f"{prefix}/conda-meta"):
        return "conda", ""
    if prefix != base:
        return ("venv", "") if settings else ("", "")
    usual = "system" if prefix == "/usr" else ""
    detected = (name for part, name in managers["interpreters"].items() if part in inside)
    return next(detected, usual), ""


def _warnings(host: Host, prefix: str, base: str, version: str) -> Iterator[Reason]:
    """Yield a warning where a variable leads to another environment or another Python version."""
    # With --python the user has chosen the environment.
    is_chosen = host.is_live and host.python.get("executable") != sys.executable
    ours = {host.realpath(path) for path in (prefix, base)}
    variables = () if is_chosen else ("VIRTUAL_ENV", "CONDA_PREFIX")
    variable = next((name for name in variables if host.env(name).rstrip("/")), "")
    named = host.env(variable).rstrip("/")
    if named and host.realpath(named) not in ours:
        programs = (f"{named}/bin/python", f"{named}/python.exe", f"{named}/Scripts/python.exe")
        program = next((path for path in programs if host.exists(path)), "")
        message = f"{variable} names {named}; the environment that is inspected is {prefix}"
        hint = f"inspect that one with --python {program}" if program else f"unset {variable}"
        yield Reason("other-environment", message, hint)
    numbers = ".".join(version.split(".")[:2])
    for folder in host.folders("PYTHONPATH") if numbers else ():
        versioned = (part for part in folder.split("/") if _mark_of(part) is not None)
        other = next(versioned, "").removeprefix("python").removesuffix("t") or numbers
        if other != numbers and folder.endswith(("/site-packages", "/dist-packages")):
            message = f"PYTHONPATH names {folder}, for Python {other}; this is Python {numbers}"
            yield Reason("other-python", message, "unset PYTHONPATH, or start that Python")
            break
