"""CUDA toolkit: the compiler nvcc and the headers that programs are built with.

Finds:    every toolkit: CUDA_HOME and its like, nvcc on PATH, /usr/local/cuda*, conda, wheels; under
          Windows CUDA_PATH and the installer's folder.
Usable:   never tried; a toolkit needs no GPU, and what it builds needs a driver that is new enough.
Caveats:  a toolkit from wheels or a distribution may lack nvcc or the headers; each is reported alone.
          Build systems take CUDA_HOME, then nvcc on PATH, then /usr/local/cuda: that one is chosen.
Source:   CUDA installation guide for Linux; version.json; CUDA_VERSION in cuda.h.
"""

import os

from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import Reason
from mlbackends.host.declared import steering
from mlbackends.host.host import Host
from mlbackends.host.python.packages import conda_prefix, distributions, python_folders
from mlbackends.libraries.cuda.driver import decode, driver_release, driver_warning
from mlbackends.libraries.cuda.libraries import component_versions, nvcc_release, version_in_header
from mlbackends.model.records import Finding, Presence, nonempty

HOMES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDAToolkit_ROOT", "CUDA_TOOLKIT_ROOT_DIR")
FOLDERS = (
    *("/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda", "/usr/lib/cuda"),
    "/opt/nvidia/hpc_sdk/*/*/cuda/[0-9]*",
)
_IN_WHEELS = ("nvidia/cu[0-9]*", "nvidia/cuda_nvcc", "nvidia/cuda_runtime")
_WHEELS = ("nvidia-cuda-", "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-nvtx", "cuda-toolkit")

_VERSION = pattern(r"\d{1,2}\.\d{1,3}(?:\.\d{1,4})*")
_WRAPPED = pattern(r"(/[^\s\"']+)/bin/nvcc\b")

Toolkit = dict[str, str]


def find(host: Host) -> Finding:
    """Look for every toolkit, and for what contradicts another."""
    programs = (f"{folder.rstrip('/')}/{_nvcc(host)}" for folder in host.folders("PATH"))
    nvcc = next((path for path in programs if _is_absolute(path) and host.is_file(path)), "")
    # The folders that may be toolkits, the one that build systems take first.
    places = [(_home(host, name), name) for name in HOMES]
    places += [(_root_of(host, nvcc), "PATH")] if nvcc else []
    places += [(path, "well-known-folder") for folder in _folders(host) for path in host.glob(folder)]
    places.append((conda_prefix(host), "conda"))
    for folder in python_folders(host):
        for part in _IN_WHEELS if host.is_dir(f"{folder}/nvidia") else ():
            places += [(path, "site-packages") for path in host.glob(f"{folder}/{part}")]
    if host.is_file("/usr/include/cuda.h"):
        places.append(("/usr", "system-folder"))
    toolkits: dict[str, Toolkit] = {}
    for root, step in places:
        # An empty or relative one depends on the current folder, which need not be there.
        real = host.realpath(root) if _is_absolute(root) else ""
        if real and real not in toolkits and (toolkit := _described(host, root)):
            toolkits[real] = {"path": root, "found_by": step, **toolkit}
    everything = sorted(distributions(host).items())
    facts = {
        "nvcc": nvcc,
        "wheels": {name: dists[0].version for name, dists in everything if name.startswith(_WHEELS)},
        **steering(host, "cuda_toolkit"),
    }
    wrong = _wrong_names(host)
    if not toolkits:
        homes = [f"{name} ({host.env(name)})" for name in HOMES if host.env(name)]
        usual = [*homes, *(folder for folder in _folders(host) if "*" not in folder)]
        message = f"no nvcc on PATH, no toolkit in {', '.join(usual)}"
        return Finding(facts=nonempty(facts), reasons=(Reason("not-found", message),), warnings=tuple(wrong))
    every = list(toolkits.values())
    # The first that has a compiler, in the order of the steps.
    chosen = next((toolkit for toolkit in every if "nvcc" in toolkit), every[0])
    facts |= {"toolkits": [dict(toolkit) for toolkit in every], "chosen": chosen["path"]}
    return Finding(
        facts=nonempty(facts),
        version=chosen.get("version", ""),
        presence=Presence.FOUND,
        warnings=(*wrong, *_contradictions(host, toolkits, chosen, nvcc)),
    )


def _nvcc(host: Host) -> str:
    return "nvcc.exe" if host.platform == "win32" else "nvcc"


def _home(host: Host, variable: str) -> str:
    return next(iter(host.folders(variable)), "")


def _folders(host: Host) -> tuple[str, ...]:
    """Return where toolkits are by custom; Windows' installer has a folder for each release."""
    if host.platform != "win32":
        return FOLDERS
    top = f"{_home(host, 'PROGRAMFILES') or 'C:/Program Files'}/NVIDIA GPU Computing Toolkit/CUDA"
    return (top, *sorted(host.glob(f"{top}/v*"), reverse=True))


def _is_absolute(path: str) -> bool:
    return path.startswith("/") or path[1:3] == ":/"


def _root_of(host: Host, nvcc: str) -> str:
    """Return the toolkit of an nvcc; a script that starts another nvcc leads to that one's."""
    text = host.read(nvcc, 4096)
    if text.startswith("#!") and (match := _WRAPPED.search(text)):
        return match[1]
    return os.path.dirname(os.path.dirname(host.realpath(nvcc)))


def _described(host: Host, root: str) -> Toolkit:
    """Return what a folder has of a toolkit, {} if it is none."""
    found: Toolkit = {}
    folders = ("include", "targets/*/include")
    headers = next((path for folder in folders for path in host.glob(f"{root}/{folder}/cuda.h")), "")
    if not headers and root == "/usr/lib/nvidia-cuda-toolkit":  # Debian puts them elsewhere
        headers = "/usr/include/cuda.h" if host.is_file("/usr/include/cuda.h") else ""
    if host.is_file(program := f"{root}/bin/{_nvcc(host)}"):
        found["nvcc"] = program
    if headers:
        found["headers"] = headers
        number = version_in_header(host, headers, ("CUDA_VERSION",))
        if number and (version := decode(int(number))):
            found["headers_version"] = version
    components = component_versions(host, root)
    if not components:  # version.txt came before version.json
        text = host.read(f"{root}/version.txt", 4096)
        match = _VERSION.search(text) if text.startswith("CUDA Version") else None
        components = {"cuda": match[0]} if match else {}
    if not found and not components:
        return {}
    if "nvcc" in found and (release := nvcc_release(host, root)):
        found["nvcc_version"] = release
    version = components.get("cuda", "") or found.get("headers_version", "")
    return {"version": version, **found} if version else found


def _wrong_names(host: Host) -> list[Reason]:
    """Return the variables and links that lead to no toolkit."""
    warnings = []
    for name in HOMES:
        home = _home(host, name)
        if home and not _described(host, home):
            problem = "has neither nvcc nor cuda.h" if host.is_dir(home) else "does not exist"
            message = f"{name} is {home}, which {problem}"
            warnings.append(Reason("override-invalid", message, f"unset {name}, or correct it"))
    usual = "/usr/local/cuda"
    if host.is_link(usual) and not host.exists(usual):
        message = f"{usual} points to {host.readlink(usual)}, which does not exist"
        warnings.append(Reason("dangling-link", message, "remove the link, or point it at a toolkit"))
    return warnings


def _contradictions(host: Host, toolkits: dict[str, Toolkit], chosen: Toolkit, nvcc: str) -> list[Reason]:
    """Return warnings about a compiler, headers or driver that do not match."""
    warnings = []
    version = chosen.get("version", "")
    first = toolkits.get(host.realpath(_root_of(host, nvcc))) if nvcc else None
    if first and not _is_same_release(first.get("version", ""), version):
        message = (
            f"{chosen['found_by']} names CUDA {version} in {chosen['path']},"
            f" and the nvcc on PATH is of CUDA {first.get('version')}"
        )
        warnings.append(Reason("conflict", message, "let PATH and the variable name one toolkit"))
    for toolkit in toolkits.values():
        headers = toolkit.get("headers_version", "")
        if not _is_same_release(headers, toolkit.get("version", "")):
            message = (
                f"{toolkit['path']} has version {toolkit['version']},"
                f" and its cuda.h is that of CUDA {headers}"
            )
            warnings.append(Reason("conflict", message, "install that toolkit again"))
    release = driver_release(host)
    builds = f"what CUDA {version} in {chosen['path']} builds"
    warning = driver_warning(release, version, builds) if release and version else None
    return [*warnings, warning] if warning else warnings


def _is_same_release(one: str, other: str) -> bool:
    """Return whether two versions have the same major and minor part; True if one is unknown."""
    return not one or not other or one.split(".")[:2] == other.split(".")[:2]
