"""Whether packages fit this machine's Python, C and C++ libraries and driver, and where faults come from.

Sources: PEP 425, 600 and 656; GCC, libstdc++ manual, "ABI Policy and Guidelines"; the distributions' releases
of glibc; NVIDIA, "CUDA Compatibility".
"""

import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import dotted_numbers
from mlbackends.host.host import Host
from mlbackends.host.python.installing import quoted
from mlbackends.host.python.packages import Distribution, python_release
from mlbackends.libraries.c_runtime import c_library, highest
from mlbackends.libraries.cuda.driver import driver_for, too_old_for
from mlbackends.libraries.search import libraries_named
from mlbackends.libraries.symbols import symbol_versions
from mlbackends.loading import torch_builds
from mlbackends.loading.environment import providers
from mlbackends.loading.remedies import altered, elf, owner, owners, reinstall
from mlbackends.model.loading import Fault, LoadedFile

_TAG = pattern(r"\.cpython-(\d)(\d+t?)-[\w-]+\.so$")
_RUNTIME = pattern(r"libcudart\.so\.(\d+)")
_NEWER_SYSTEM = "use a newer system, as in a container, or a build for an older glibc"
_WHEEL_BYTES = 1 << 16


def explained(host: Host, faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return faults with where they come from and what fixes them, where they have not yet and it is known.

    Versions of glibc's and libstdc++'s symbols that several files lack have one cause and become one fault,
    at the place of the first.
    """
    found: list[Fault] = []
    versions: list[Fault] = []
    for fault in faults:
        known = providers(host).get(fault.name, ("", ""))[1] if fault.code == "missing-library" else ""
        if known and not host.exists(known) and host.closed_above(known):
            found.append(replace(fault, code="not-read", path=(*fault.path[:-1], known)))
        elif fault.code == "missing-version" and fault.name.startswith(("GLIBC_", "GLIBCXX_", "CXXABI_")):
            found += [fault] * (not versions)
            versions.append(fault)
        elif fault.hint or fault.command or not fault.path:
            found.append(fault)
        else:
            at = fault.path[-2 if fault.code == "missing-library" and len(fault.path) > 1 else -1]
            dist, bare = owner(host, at), replace(fault, cause="")
            if len(owners(host, at)) > 1 and (changed := altered(host, [at])):
                found.append(replace(fault, cause=changed[0], command=changed[2]))
                continue
            answer = torch_builds.explained(host, _for_another(host, bare, at, dist), at, dist)
            found.append(replace(answer, cause=" ".join(filter(None, (answer.cause, fault.cause)))))
    return tuple(_too_old(host, versions) if fault in versions else fault for fault in found)


def _too_old(host: Host, faults: list[Fault]) -> Fault:
    """Return one fault for the versions of glibc and libstdc++ that files need and this machine lacks."""
    # What is linked with packed relocations asks for a version without a number, which is that of glibc 2.36.
    names = ["GLIBC_2.36" if fault.name == "GLIBC_ABI_DT_RELR" else fault.name for fault in faults]
    others = tuple(dict.fromkeys(fault.name for fault in faults if fault.name != faults[0].name))
    prefix = next((its for its in ("GLIBC_", "GLIBCXX_", "CXXABI_") if highest(names, its)), "")
    if prefix == "GLIBC_":
        needed, here = highest(names, prefix), c_library(host)[1]
        cause = f"It is built for glibc {needed} or newer; this machine has {here}."
        return replace(faults[0], code="glibc-too-old", cause=cause, hint=_NEWER_SYSTEM, others=others)
    if not prefix:  # GLIBC_PRIVATE
        return replace(faults[0], others=others)
    path = next(fault.path[-1] for fault in faults if fault.name.startswith(prefix))
    wanted = prefix + highest(names, prefix)
    has = prefix + highest(symbol_versions(host, host.realpath(path)), prefix)
    libraries = (library.path for library in libraries_named(host, "libstdcxx", "libstdc++"))
    newer = (at for at in libraries if wanted in symbol_versions(host, host.realpath(at)))
    hint, library = "put a newer libstdc++ first on the search path, or use an older build", next(newer, "")
    command = f"export LD_PRELOAD={quoted(library)}" if library else ""
    cause = f"It needs {wanted}; {path} ends at {has}."
    return replace(faults[0], cause=cause, hint=hint, command=command, others=others)


def _for_another(host: Host, fault: Fault, at: str, dist: Distribution | None) -> Fault:
    """Return a fault with the other Python or C library that its file, at a path, is made for."""
    made, code, own, libc = "", fault.code, python_release(host), c_library(host)[0]
    if code == "missing-file" and (tag := _TAG.search(at)) and host.exists(at):
        made, code = f"Python {tag[1]}.{tag[2]}", "wrong-python"
    elif code == "missing-symbol" and re.match(r"_?Py(?!Init_)[A-Z_]", fault.name):
        made, code = "another Python", "wrong-python"
        wheel = host.read(f"{dist.info}/WHEEL", _WHEEL_BYTES) if dist else ""
        for minor, abi in re.findall(r"(?m)^Tag:\s*cp3(\d+)-(abi3|cp3\d+t?)-", wheel):
            if abi == "abi3" and dotted_numbers(f"3.{minor}") > dotted_numbers(own):
                made = f"Python 3.{minor} and newer"
            elif abi not in ("abi3", f"cp{own.replace('.', '')}"):
                made = f"Python 3.{abi[3:]}"
    elif code == "missing-library" and (linked := re.match(r"libpython(3\.\d+t?)\.so", fault.name)):
        made = f"Python {linked[1]}"
    elif code == "missing-library" and libc:
        is_glibc = re.match(r"ld-linux|libc\.so\.6", fault.name)
        made = "musl" if "libc.musl" in fault.name else "glibc" if is_glibc else ""
    if made in ("", libc, f"Python {own}"):
        return fault
    here = f"this is Python {own}" if "Python" in made else f"this machine's C library is {libc}"
    command, hint = reinstall(host, dist) if dist else "", "use a build for this Python and this system"
    return replace(fault, code=code, cause=f"It is built for {made}; {here}.", hint=hint, command=command)


def driver_faults(dist: Distribution, files: Iterable[LoadedFile], driver: str) -> Iterator[Fault]:
    """Yield a fault if files of a distribution need a CUDA for which a driver is too old; "" for none."""
    for path, need in ((file.path, need) for file in files for need in file.needs):
        runtime = _RUNTIME.fullmatch(need.name)
        if runtime and too_old_for(driver, f"{runtime[1]}.0"):
            least = driver_for(f"{runtime[1]}.0")
            words = "CUDA driver version is insufficient for CUDA runtime version"
            cause = f"CUDA {runtime[1]} needs driver {least} or newer; the driver is {driver}."
            hint = f"install driver {least} or newer, or a build of {dist.name} for an older CUDA"
            yield Fault("driver-too-old", need.name, words, (path, need.path or need.name), cause, hint)
            return


def glibc_faults(files: Iterable[LoadedFile], glibc: str, host: Host) -> Iterator[Fault]:
    """Yield the first of some files that needs a newer glibc than that of another machine; "" for none."""
    for path in (file.path for file in files if glibc):
        file = elf(host, path)
        versions = file.symbols.needs.values() if file else ()
        needed = highest([name for names in versions for name in names], "GLIBC_")
        if dotted_numbers(needed) > dotted_numbers(glibc):
            message = f"libc.so.6: version `GLIBC_{needed}' not found (required by {path})"
            cause = f"It is built for glibc {needed} or newer, not {glibc}."
            yield Fault("glibc-too-old", f"GLIBC_{needed}", message, (path,), cause, _NEWER_SYSTEM)
            return
