"""MKL: Intel's maths kernel library.

Finds:    every libmkl_rt, in the interpreter's prefix, wheels, conda, MKLROOT and the loader's
          cache; the copy inside torch.
Usable:   dgemm multiplies two matrices right.
Caveats:  libmkl_rt opens its layers when it is first called, from its own folder; the layer of
          threads and that of integers are chosen by variables, and a wrong choice ends the process.
          Which kernels it takes is seen in what it has mapped: on processors of others, "def".
Source:   oneMKL developer reference, MKL_Get_Version_String, MKL_Get_Max_Threads, dgemm; oneMKL
          developer guide, environment variables.
"""

import os
import re
import sys

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.host.variables import anything, cpu_flags, not_valid, one_of, steering, whole
from mlbackends.libraries.blas_symbols import require_product
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import absent, inside, libraries_named
from mlbackends.model.patterns import pattern
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Answer, Fact, FactValue, Finding, Library

GROUP = "library"
FACTS = (
    Fact("version_text", str, "What MKL says of its version, with the build's date."),
    Fact("build", str, "The date of the build, as YYYYMMDD."),
    Fact("max_threads", int, "The number of threads that MKL would use."),
    Fact("kernel_libraries", list[str], "The kernels for one processor that lie beside libmkl_rt."),
    Fact("kernels_used", list[str], "The kernels that were mapped after a product was computed."),
    Fact("environment", dict[str, str], "The variables that steer MKL and are set."),
)

HOMES = ("MKLROOT",)
_STEMS = ("libmkl_rt", "mkl_rt", "mkl_rt.1", "mkl_rt.2", "mkl_rt.3", "libmklml_intel")
_KERNEL = pattern(r"libmkl_(def|mc|mc3|avx|avx2|avx512|avx10|avx512_mic)\.(?:so|\d+\.dylib|dylib)")
_TRUTH = one_of("0", "1", "true", "false", "yes", "no", "on", "off")


def _interface(value: str) -> str:
    known = ("lp64", "ilp64", "gnu", "gnu,lp64", "gnu,ilp64")
    return "" if value.replace(" ", "").lower() in known else "LP64 or ILP64, after GNU, if need be"


def _reproducible(value: str) -> str:
    branch = value.upper().removeprefix("BRANCH=").split(",")[0].strip()
    known = r"AUTO|COMPATIBLE|SSE2|SSE3|SSSE3|SSE4_1|SSE4_2|AVX|AVX2|AVX512\w*|AVX10\w*|OFF|\d+"
    return (
        ""
        if re.fullmatch(known, branch)
        else "a branch such as COMPATIBLE, AVX2 or AVX512, or AUTO"
    )


def _instructions(value: str) -> str:
    fine = re.fullmatch(r"SSE4_2|AVX|AVX2\w*|AVX512\w*|AVX10\w*|\d+", value.strip().upper())
    return "" if fine else "SSE4_2, AVX, AVX2, AVX512 or one of their extensions"


VARIABLES = {
    "MKL_THREADING_LAYER": one_of("INTEL", "SEQUENTIAL", "GNU", "TBB"),
    "MKL_INTERFACE_LAYER": _interface,
    "MKL_ENABLE_INSTRUCTIONS": _instructions,
    "MKL_CBWR": _reproducible,
    "MKL_NUM_THREADS": whole(1),
    "MKL_DOMAIN_NUM_THREADS": anything,
    "MKL_DYNAMIC": _TRUTH,
    "MKL_VERBOSE": one_of("0", "1", "2"),
    "MKL_DISABLE_FAST_MM": anything,
    "MKL_DEBUG_CPU_TYPE": anything,
    "MKL_SERVICE_FORCE_INTEL": anything,
}


def find(host: Host) -> Finding:
    """Look for every copy, and what the variables ask of it."""
    root = host.env("MKLROOT").rstrip("/")
    folders = [
        *([f"{root}/lib/intel64"] if root else []),
        "/opt/intel/oneapi/mkl/latest/lib",
        "/opt/intel/oneapi/mkl/latest/lib/intel64",
        "/opt/intel/mkl/lib/intel64",
    ]
    libraries = libraries_named(host, "mkl", *_STEMS, homes=HOMES, folders=folders)
    libraries = [_with_kernels(host, library) for library in libraries]
    libraries += inside(host, "mkl", "libtorch_cpu", ("MKL_Get_Version_String",))
    facts = steering(host, VARIABLES)
    if not libraries:
        return Finding(facts=facts, reasons=(absent(host, "libmkl_rt", HOMES, folders),))
    return Finding(libraries=tuple(libraries), facts=facts, warnings=_warnings(host))


def _with_kernels(host: Host, library: Library) -> Library:
    names = host.listdir(os.path.dirname(host.realpath(library.path)))
    kernels = sorted({match[1] for name in names if (match := _KERNEL.match(name))})
    return replace(library, facts={"kernel_libraries": kernels}) if kernels else library


def _warnings(host: Host) -> tuple[Reason, ...]:
    warnings = not_valid(host, VARIABLES)
    if host.env("MKL_DEBUG_CPU_TYPE"):
        message = "MKL_DEBUG_CPU_TYPE is set; MKL takes no notice of it since 2020 update 1"
        warnings += (Reason("override-invalid", message, "unset it"),)
    for name in ("MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR"):
        value = host.env(name).upper().removeprefix("BRANCH=")
        for word, flag in (("AVX512", "avx512f"), ("AVX2", "avx2")):
            if value.startswith(word) and (flags := cpu_flags(host)) and flag not in flags:
                message = f"{name} is {host.env(name)}, and this processor has no {word}"
                warnings += (Reason("override-exceeds-hardware", message),)
    return warnings


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version."""
    text = ctypes.create_string_buffer(512)
    ask = opened.MKL_Get_Version_String
    ask.restype = None
    ask.argtypes = [ctypes.c_char_p, ctypes.c_int]
    ask(text, len(text) - 1)
    told = text.value.decode(errors="replace").strip()
    facts: dict[str, FactValue] = {"version_text": told} if told else {}
    if build := re.search(r"Build (\d{8})", told):
        facts["build"] = build[1]
    version = re.search(r"Version (\d+(?:\.\d+)*(?: Update \d+)?)", told)
    return Answer(replace(library, version=version[1]) if version else library, facts=facts)


def use(opened: CDLL, library: Library) -> Answer:
    """Multiply, and see which kernels that took."""
    # mkl_rt takes GNU's or Intel's names for Fortran; Windows has them without the underscore.
    function = "dgemm" if sys.platform == "win32" else "dgemm_"
    if hasattr(opened, function):
        require_product(opened, function)
    else:
        from mlbackends.libraries.blas_symbols import require_cblas_product

        require_cblas_product(opened)
    facts: dict[str, FactValue] = {}
    for name in ("MKL_Get_Max_Threads", "mkl_get_max_threads"):
        if hasattr(opened, name):
            facts["max_threads"] = int(getattr(opened, name)())
            break
    if kernels := _mapped_kernels():
        facts["kernels_used"] = kernels
    return Answer(library, facts=facts)


def _mapped_kernels() -> list[str]:
    """Return the kernel libraries that this process, the child that asks, has mapped (Linux)."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            names = {os.path.basename(line.rstrip()) for line in file if "libmkl_" in line}
    except OSError:
        return []
    return sorted({match[1] for name in names if (match := _KERNEL.match(name))})
