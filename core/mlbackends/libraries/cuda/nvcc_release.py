"""Which release a toolkit's nvcc is of, as `nvcc --version` says it, without starting it.

version.json of the toolkit tells it (since CUDA 11.1); a toolkit of wheels has the version of the wheel
nvidia-cuda-nvcc, which is the same number: V13.0.88.
"""

import os

import msgspec

from mlbackends.host.host import Host
from mlbackends.host.python.packages import distributions
from mlbackends.model.patterns import pattern

_WHEEL = pattern(r"nvidia[-_]cuda[-_]nvcc(?:[-_]cu(\d+))?")
_VERSION = pattern(r"\d{1,2}\.\d{1,3}(?:\.\d{1,6})*")


def component_versions(host: Host, root: str) -> dict[str, str]:
    """Return the versions in a toolkit's version.json by component, {} where there is none."""
    data = host.read_bytes(f"{root}/version.json", 256 << 10)
    try:
        told = msgspec.json.decode(data, type=dict[str, object]) if data else {}
    except (msgspec.DecodeError, RecursionError):
        told = {}
    found = {}
    for name, component in told.items():
        version = component.get("version") if isinstance(component, dict) else None
        if isinstance(version, str) and _VERSION.fullmatch(version):
            found[name] = version
    return found


def nvcc_release(host: Host, root: str) -> str:
    """Return the release of the nvcc in a toolkit, "" where nothing tells it."""
    return component_versions(host, root).get("cuda_nvcc", "") or _of_wheel(host, root)


def _of_wheel(host: Host, root: str) -> str:
    # A toolkit that was put together from wheels outside of an environment may keep their metadata.
    for entry in host.listdir(f"{root}/dist-info"):
        name, _, version = entry.removesuffix(".dist-info").partition("-")
        if _WHEEL.fullmatch(name) and _VERSION.fullmatch(version):
            return version
    site, slash, part = root.rpartition("/nvidia/")
    if not slash or "/" in part:
        return ""
    for name, dists in distributions(host).items():
        if not (match := _WHEEL.fullmatch(name)):
            continue
        for dist in dists:
            # Since CUDA 13 the wheels of all components share the folder nvidia/cu13.
            home = "cuda_nvcc" if match[1] else f"cu{dist.version.partition('.')[0]}"
            same = os.path.normpath(dist.folder) == os.path.normpath(site)
            if same and part == home and _VERSION.fullmatch(dist.version):
                return dist.version
    return ""
