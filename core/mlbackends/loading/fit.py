"""Whether packages fit this machine's Python, C and C++ libraries and driver, and where faults come from.

Sources: PEP 425, 600 and 656; GCC, libstdc++ manual, "ABI Policy and Guidelines"; the distributions' releases
of glibc; NVIDIA, "CUDA Compatibility".
"""

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import dotted_numbers
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.host.python.packages import Distribution
from mlbackends.libraries.c_runtime import c_library, highest
from mlbackends.libraries.cuda.driver import driver_for, driver_release, too_old_for
from mlbackends.libraries.search import libraries_named
from mlbackends.libraries.symbols import symbol_versions
from mlbackends.loading import torch_builds
from mlbackends.model.loading import Fault, LoadedFile

_TAG = pattern(r"(?:\.cpython-|\.cp)(\d)(\d+)(t?)-[\w-]+\.(?:so|pyd)$")
_RUNTIME = pattern(r"libcudart\.so\.(\d+)(?:\.0)?")
_WHEEL_BYTES = 1 << 16


def explained(host: Host, faults: Iterable[Fault], dist: Distribution | None = None) -> tuple[Fault, ...]:
    """Return faults of a distribution's files with where they come from and what fixes them, where known.

    Versions of glibc's and libstdc++'s symbols that several files lack have one cause and become one fault,
    at the place of the first.
    """
    found: list[Fault] = []
    versions: list[Fault] = []
    for fault in faults:
        if fault.code == "missing-version" and fault.name.startswith(("GLIBC_", "GLIBCXX_", "CXXABI_")):
            if not versions:
                found.append(fault)
            versions.append(fault)
        elif fault.cause:
            found.append(fault)
        else:
            found.append(torch_builds.explained(host, _of_python(host, fault, dist), dist))
    return tuple(_too_old(host, versions, dist) if fault in versions else fault for fault in found)


def _too_old(host: Host, faults: list[Fault], dist: Distribution | None) -> Fault:
    """Return one fault for the versions of glibc and libstdc++ that files need and this machine lacks."""
    facts = table("loading/fit")
    name = dist.name if dist else "this file"
    # What is linked with packed relocations asks for this version, of glibc 2.36.
    names = ["GLIBC_2.36" if fault.name == "GLIBC_ABI_DT_RELR" else fault.name for fault in faults]
    causes, hint, command, code = [], "", "", faults[0].code
    if needed := highest(names, "GLIBC_"):
        code = "glibc-too-old"
        here = c_library(host)[1]
        least = dotted_numbers(needed)
        releases = [
            next((f"{system} {release}" for release, has in rows if dotted_numbers(has) >= least), "")
            for system, rows in facts["glibc"].items()
        ]
        systems = f" ({', '.join(filter(None, releases))})" if any(releases) else ""
        causes.append(f"it is built for glibc {needed} or newer{systems}; this machine has {here}")
        hint = f"run it on a newer system, as in a container, or install a {name} built for glibc {here}"
    for prefix in ("GLIBCXX_", "CXXABI_"):
        wanted = highest(names, prefix)
        if not wanted or (prefix == "CXXABI_" and causes):
            continue
        path = next(fault.path[-1] for fault in faults if fault.name.startswith(prefix))
        gcc = dict(facts["gcc"][prefix])
        has = highest(symbol_versions(host, host.realpath(path)), prefix)
        ends = f", of GCC {gcc[has]}" if has in gcc else ""
        made = f" (GCC {gcc[wanted]})" if wanted in gcc else ""
        causes.append(f"it needs the libstdc++ with {prefix}{wanted}{made}; {path} has {has} at most{ends}")
        for other in libraries_named(host, "libstdcxx", "libstdc++") if not hint else ():
            if f"{prefix}{wanted}" in symbol_versions(host, host.realpath(other.path)):
                hint, command = (
                    "let the newer libstdc++ be loaded first",
                    f"export LD_PRELOAD={shlex.quote(other.path)}",
                )
                break
        hint = hint or f"install a newer libstdc++, or a {name} built with an older GCC"
    others = tuple(dict.fromkeys(fault.name for fault in faults if fault.name != faults[0].name))
    cause = "; ".join(causes)
    return replace(faults[0], code=code, cause=cause, hint=hint, command=command, others=others)


def _of_python(host: Host, fault: Fault, dist: Distribution | None) -> Fault:
    """Return a fault with what another Python or another C library than this one's has to do with it."""
    ours = str(host.python.get("version", ""))
    short = ".".join(ours.split(".")[:2])
    again = _reinstalling(host, dist)
    asking = (
        fault.path[-1 if fault.code in ("missing-symbol", "missing-file") else -2 :][0] if fault.path else ""
    )
    tag = _TAG.search(asking)
    wanted = f"{tag[1]}.{tag[2]}" if tag else ""
    if fault.code == "missing-file" and tag and wanted != short and host.exists(asking):
        cause = f"{posixpath.basename(asking)} is compiled for Python {wanted}; this is Python {ours}"
        return replace(fault, code="wrong-python", cause=cause, **again)
    if fault.code == "missing-symbol" and re.match(r"_?Py[A-Z_]", fault.name):
        for python, abi in _tags(host, dist):
            floor = f"{python[2:3]}.{python[3:]}"
            if python.startswith("cp") and dotted_numbers(floor) != dotted_numbers(short):
                is_least = abi.startswith("abi3")
                if not is_least or dotted_numbers(floor) > dotted_numbers(short):
                    wanted = f"{floor} and newer" if is_least else floor
        made = f"Python {wanted}" if wanted and wanted != short else "another Python"
        cause = f"it is compiled for {made}; this is Python {ours}"
        return replace(fault, code="wrong-python", cause=cause, **again)
    if fault.code != "missing-library":
        return fault
    if linked := re.fullmatch(r"libpython(3\.\d+)t?\.so(\.1\.0)?", fault.name):
        if linked[1] == short:
            cause = "it is linked to Python's shared library, which this Python does not have"
            hint = f"install it (Debian and Ubuntu: libpython{short}), or use a Python that was built with it"
            return replace(fault, cause=cause, hint=hint)
        return replace(fault, cause=f"it is linked to Python {linked[1]}; this is Python {ours}", **again)
    libc = c_library(host)[0]
    is_for = (
        "musl" if "musl" in fault.name else "glibc" if re.match(r"ld-linux|libc\.so\.6", fault.name) else ""
    )
    if is_for and libc and is_for != libc:
        return replace(fault, cause=f"it is built for {is_for}; this machine's C library is {libc}", **again)
    return fault


def _tags(host: Host, dist: Distribution | None) -> Iterator[tuple[str, str]]:
    """Yield the tags of Python and of its ABI that a distribution's wheel had: ("cp312", "abi3")."""
    text = host.read(f"{dist.info}/WHEEL", _WHEEL_BYTES) if dist else ""
    for line in text.splitlines():
        key, _, tag = line.partition(":")
        python, _, rest = tag.strip().partition("-")
        if key == "Tag":
            yield python, rest.partition("-")[0]


def _reinstalling(host: Host, dist: Distribution | None) -> dict[str, str]:
    """Return the hint and the command for a distribution whose wheel is for another machine."""
    if dist is None:
        return {"hint": "use a build for this Python and this system"}
    words = [
        str(host.python.get("executable", "python")),
        "-m",
        "pip",
        "install",
        "--force-reinstall",
        "--no-deps",
    ]
    return {
        "hint": f"install the {dist.name} for this Python and this system again",
        "command": shlex.join([*words, f"{dist.name}=={dist.version}"]),
    }


def driver_faults(
    host: Host, dist: Distribution, files: Iterable[LoadedFile], own: Iterable[str], driver: str = ""
) -> Iterator[Fault]:
    """Yield a fault if a distribution's files need a CUDA for which the driver is too old.

    files: what is mapped for it. own: those of its own. driver: of another machine; "" for this one's.
    """
    driver = driver or driver_release(host)
    own = set(own)
    for file in files:
        for need in file.needs if file.path in own else ():
            runtime = _RUNTIME.fullmatch(need.name)
            if (
                runtime
                and too_old_for(driver, f"{runtime[1]}.0")
                and "/compat/" not in host.env("LD_LIBRARY_PATH")
            ):
                least = driver_for(f"{runtime[1]}.0")
                yield Fault(
                    "driver-too-old",
                    need.name,
                    "CUDA driver version is insufficient for CUDA runtime version",
                    (file.path, need.path or need.name),
                    cause=f"CUDA {runtime[1]} needs driver {least} or newer; the driver is {driver}",
                    hint=f"install driver {least} or newer, or a build of {dist.name} for an older CUDA",
                )
                return
