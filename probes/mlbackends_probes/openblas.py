"""OpenBLAS: the BLAS and LAPACK that numpy and scipy bring.

Finds:    every libopenblas, also under the names that numpy, scipy and distributions give it.
Usable:   dgemm multiplies two matrices right.
Caveats:  each package includes a copy with separate threads; the function names of a copy may have the
          prefix `scipy_` and the suffix `64_`. The kernels are chosen when it is opened; if it is not, they
          follow, on x86-64, from the processor and the kernels in the file, if all versions agree.
Source:   OpenBLAS user manual, "Extensions": openblas_get_config, openblas_get_corename,
          openblas_get_parallel; "Runtime variables"; driver/others/openblas_get_config.c and dynamic.c.
"""

import os
import re
from contextlib import suppress

from msgspec.structs import replace

from mlbackends.base.errors import NotALibrary
from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.host.cpu.cpuinfo import cpu_flags
from mlbackends.host.host import Host
from mlbackends.libraries.blas_symbols import openblas_affixes, require_product
from mlbackends.libraries.c_calls import CDLL, Calls
from mlbackends.libraries.search import SharedLibrary
from mlbackends.libraries.symbols import extract_symbols
from mlbackends.model.records import Answer, Library, nonempty

#: Sets of kernels, the best first. A build that lacks one takes the next that it has, but Zen's.
_X86 = (
    "SAPPHIRERAPIDS", "COOPERLAKE", "SKYLAKEX", "ZEN", "HASWELL", "SANDYBRIDGE", "NEHALEM", "PRESCOTT",
)  # fmt: skip
#: A function of every build, one of those with threads, one of those whose threads are its own.
_OF_THREADS = ("blas_memory_alloc", "blas_server_avail", "exec_blas_async")


def openblas_text(path: str) -> str:
    """Return the text about its build in a file, "" without one."""
    with open(path, "rb", buffering=0) as file:
        data, piece = b"", b"\0"
        while piece:
            piece = file.read(1 << 16)
            data = data[-256:] + piece
            at = data.find(b"OpenBLAS 0.")
            if at >= 0 and (at + 200 <= len(data) or not piece):
                return data[at : at + 200].split(b"\0")[0].decode(errors="replace")
    return ""


def _described(host: Host, library: Library) -> Library:
    """Add what can be read from the file without opening it: its version, threads and kernels."""
    text = _noted(host, library)
    if not text and not library.reasons:
        with suppress(OSError):
            text = host.extracted(library.path, openblas_text, str)
    words = text.split()
    if len(words) < 2:
        return library
    names = [*_OF_THREADS, *(f"dgemm_beta_{core}" for core in _X86)]
    defined: frozenset[str] = frozenset()
    with suppress(NotALibrary, OSError):
        defined = extract_symbols(host, library.path, names)
    core = next((name for name in map(_shown, _X86) if name in words), "")
    facts = {
        "architecture": _core(host, defined) if "DYNAMIC_ARCH" in words else core,
        "threading": "",
        "built_for_threads": _most_threads(text),
        "integer_bits": 64 if "USE64BITINT" in words else 32,
    }
    if _OF_THREADS[0] in defined:  # else it hides what is its own
        kinds = ("serial", "openmp", "pthreads")
        facts["threading"] = kinds[len(defined.intersection(_OF_THREADS[1:]))]
    return replace(library, version=words[1], facts=nonempty(facts))


def _most_threads(text: str) -> int | None:
    numbers = (word.removeprefix("MAX_THREADS=") for word in text.split())
    return next((int(number) for number in numbers if number.isdecimal() and len(number) < 7), None)


def _noted(host: Host, library: Library) -> str:
    """Return the build text that numpy or scipy recorded about the copy in their wheel, "" for others."""
    module = os.path.dirname(library.path).removesuffix(".libs").removesuffix("/.dylibs")
    if library.found_by == "site-packages" and module.endswith(("/numpy", "/scipy")):
        text = host.read(f"{module}/__config__.py", 1 << 18)
        _, name, rest = text.partition("OpenBLAS 0.")
        return (name + rest[:200]).partition("\n")[0].partition('"')[0].partition("'")[0]
    return ""


def _shown(core: str) -> str:
    return {"SKYLAKEX": "SkylakeX", "SAPPHIRERAPIDS": "SapphireRapids"}.get(core, core.capitalize())


def _core(host: Host, defined: frozenset[str]) -> str:
    """Return the kernels that it chooses on x86-64, "" if that differs between versions.

    It decides by family and model, and for unknown ones by instruction sets.
    """
    lines = (line.partition(":") for line in host.read("/proc/cpuinfo", 4096).splitlines()[:12])
    first = {name.strip(): value.strip() for name, _, value in lines}
    flags, family = cpu_flags(host), first.get("cpu family")
    is_amd = first.get("vendor_id") in ("AuthenticAMD", "HygonGenuine")
    if "avx2" not in flags or host.env("OPENBLAS_CORETYPE"):
        return ""
    if "avx512vl" in flags:
        required = ["COOPERLAKE" if "avx512_bf16" in flags else "SKYLAKEX"]
        required += ["SAPPHIRERAPIDS"] if "amx_bf16" in flags else []
    else:  # Zen to Zen 4; versions differ for later families
        required = ["ZEN"] if is_amd else ["HASWELL"]
        required += ["HASWELL"] if is_amd and family not in ("23", "24", "25") else []
    chosen = set()
    for name in required:
        below = (kernels for kernels in _X86[_X86.index(name) :] if kernels != "ZEN" or name == "ZEN")
        chosen.add(next((kernels for kernels in below if f"dgemm_beta_{kernels}" in defined), ""))
    core = chosen.pop() if len(chosen) == 1 else ""
    return _shown(core)


LIBRARY = SharedLibrary(
    "openblas",
    (
        "libopenblas", "libscipy_openblas64_", "libscipy_openblas", "libopenblasp", "libopenblaso",
        "libopenblas64", "libopenblas64_", "libopenblas_64", "libopenblasp64", "libopenblasp64_",
        "libopenblaso64", "libopenblaso64_", "libopenblasp-r0", "libopenblas64_p-r0",
    ),
    homes=("OPENBLAS_HOME", "OPENBLAS_ROOT"),
    folders=(
        *(
            f"/usr/lib/{{machine}}-linux-gnu/openblas{wide}-{kind}"
            for wide in ("", "64") for kind in ("pthread", "openmp", "serial")
        ),
        "/opt/OpenBLAS/lib",
    ),
    wheels=("scipy_openblas64/lib", "scipy_openblas32/lib"),
    describe=_described,
)  # fmt: skip
find = LIBRARY.find


def load(opened: CDLL, library: Library) -> Answer:
    """Ask how it was built and which kernels it chose."""
    affixes = openblas_affixes(opened)
    if affixes is None:
        raise NotUsable("missing-symbol", f"{library.path} has no function openblas_get_config")
    before, after = affixes
    call = Calls(opened)

    def has(name: str) -> bool:
        return hasattr(opened, f"{before}openblas_{name}{after}")

    def number(name: str) -> int:
        return call.status(f"{before}openblas_{name}{after}") if has(name) else -1

    text = " ".join(call.text(f"{before}openblas_get_config{after}").split())
    core = call.text(f"{before}openblas_get_corename{after}") if has("get_corename") else ""
    threads = number("get_num_threads")
    facts = {
        "config": text,
        "architecture": core,
        "threading": {0: "serial", 1: "pthreads", 2: "openmp"}.get(number("get_parallel")),
        "threads": threads if threads > 0 else None,
        "built_for_threads": _most_threads(text),
        "integer_bits": 64 if "USE64BITINT" in text or after == "64_" else 32,
        "symbol_prefix": before,
        "symbol_suffix": after,
    }
    if version := re.match(r"OpenBLAS (\S+)", text):
        library = replace(library, version=version[1])
    requested = os.environ.get("OPENBLAS_CORETYPE", "")
    if not requested or not core or requested.lower() == core.lower():
        return Answer(library, facts=nonempty(facts))
    message = f"OPENBLAS_CORETYPE is {requested!r}, and OpenBLAS uses the kernels for {core}"
    hint = "the build has no kernels of that name, or this processor cannot run them"
    warning = Reason("override-invalid", message, hint)
    return Answer(library, facts=nonempty(facts), warnings=(warning,))


def use(opened: CDLL, library: Library) -> Answer:
    """Multiply two matrices."""
    before, after = openblas_affixes(opened) or ("", "")
    # A suffix goes after the underscore that Fortran's names end with: dgemm_64_.
    require_product(opened, f"{before}dgemm_{after}", 64 if after else 32)
    return Answer(library)
