"""MKL: Intel's maths kernel library.

Finds:    every libmkl_rt, in the interpreter's prefix, wheels, conda, MKLROOT and the loader's
          cache; the copy inside torch.
Usable:   dgemm multiplies two matrices right.
Caveats:  libmkl_rt opens its layers when it is first called, from its own folder; the layer of
          threads and that of integers are chosen by variables, and a wrong choice ends the process.
          The kernels that it uses are visible in its mapped files: on other vendors' processors, "def".
          On AMD Zen it has tuned code only for products of matrices, and only with AVX2.
Source:   oneMKL developer reference, MKL_Get_Version_String, MKL_Get_Max_Threads, dgemm; oneMKL
          developer guide, environment variables.
"""

import os
import re
import sys
from collections.abc import Iterable

from msgspec.structs import replace

from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import Reason
from mlbackends.host.cpu.cpuinfo import cpu_flags
from mlbackends.host.host import Host
from mlbackends.libraries.blas_symbols import require_product
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import SharedLibrary
from mlbackends.model.records import Answer, FactValue, Finding, Library, nonempty

_KERNEL = pattern(
    r"(?:lib)?mkl_(def|mc|mc3|avx|avx2|avx512|avx10|avx512_mic)\.(?:so|(?:\d+\.)?(?:dylib|dll))"
)


#: By the numbers of mkl_service.h, MKL_THREADING_INTEL to MKL_THREADING_TBB.
_LAYERS = ("intel", "sequential", "pgi", "gnu", "tbb")


def _kernels(names: Iterable[str]) -> list[str]:
    return sorted({match[1] for name in names if (match := _KERNEL.match(name))})


def _described(host: Host, library: Library) -> Library:
    kernels = _kernels(host.listdir(os.path.dirname(host.realpath(library.path))))
    package, _, version = library.owner.partition(" ")  # until it is opened, its package's
    version = version if package == "mkl" else library.version
    return replace(library, version=version, facts=nonempty({"kernel_libraries": kernels}))


LIBRARY = SharedLibrary(
    "mkl",
    ("libmkl_rt", "libmklml_intel"),
    homes=("MKLROOT",),
    folders=(
        "$MKLROOT/lib/intel64",
        "/opt/intel/oneapi/mkl/latest/lib",
        "/opt/intel/oneapi/mkl/latest/lib/intel64",
        "/opt/intel/mkl/lib/intel64",
    ),
    symbols=("MKL_Get_Version_String",),
    describe=_described,
)


def find(host: Host) -> Finding:
    """Look for every copy, and for variables that request what this processor lacks."""
    finding = LIBRARY.find(host)
    if not finding.libraries:
        return finding
    warnings = [*finding.warnings]
    if host.env("MKL_DEBUG_CPU_TYPE"):
        message = "MKL_DEBUG_CPU_TYPE is set; MKL ignores it since 2020 update 1"
        warnings.append(Reason("override-invalid", message, "unset it"))
    for name, value in (
        ("MKL_ENABLE_INSTRUCTIONS", host.env("MKL_ENABLE_INSTRUCTIONS").upper()),
        ("MKL_CBWR", host.env("MKL_CBWR").removeprefix("BRANCH=")),
    ):
        for word, flag in (("AVX512", "avx512f"), ("AVX2", "avx2")):
            if value.startswith(word) and (flags := cpu_flags(host)) and flag not in flags:
                message = f"{name} is {host.env(name)}, and this processor has no {word}"
                warnings.append(Reason("override-exceeds-hardware", message))
    return replace(finding, warnings=tuple(warnings))


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version."""
    buffer = ctypes.create_string_buffer(512)
    opened.MKL_Get_Version_String(buffer, len(buffer) - 1)
    text = buffer.value.decode(errors="replace").strip()
    build = re.search(r"Build (\d{8})", text)
    facts = nonempty({"version_text": text, "build": build and build[1]})
    version = re.search(r"Version (\d+(?:\.\d+)*(?: Update \d+)?)", text)
    return Answer(replace(library, version=version[1]) if version else library, facts=facts)


def use(opened: CDLL, library: Library) -> Answer:
    """Multiply two matrices, and see which kernels were used."""
    # mkl_rt has GNU's and Intel's Fortran names; on Windows they have no underscore.
    require_product(opened, "dgemm" if sys.platform == "win32" else "dgemm_")
    facts: dict[str, FactValue] = {}
    for name in ("MKL_Get_Max_Threads", "mkl_get_max_threads"):
        if hasattr(opened, name):
            facts["max_threads"] = int(getattr(opened, name)())
            break
    if hasattr(opened, "MKL_Set_Threading_Layer"):
        layer = int(opened.MKL_Set_Threading_Layer(-1))  # an invalid layer changes nothing
        facts |= {"threading": _LAYERS[layer]} if layer in range(len(_LAYERS)) else {}
    try:  # what this process, the child that runs the check, has mapped (Linux)
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            names = [os.path.basename(line.rstrip()) for line in file if "libmkl_" in line]
    except OSError:
        names = []
    return Answer(library, facts=nonempty({**facts, "kernels_used": _kernels(names)}))
