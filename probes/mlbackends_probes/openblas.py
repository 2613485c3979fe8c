"""OpenBLAS: the BLAS and LAPACK that numpy and scipy bring.

Finds:    every libopenblas, also under the names that numpy, scipy and distributions give it.
Usable:   dgemm multiplies two matrices right.
Caveats:  each package brings a copy with threads of its own; the function names of a copy may have
          `scipy_` before and `64_` after them. The kernels are chosen when it is opened.
Source:   OpenBLAS user manual, "Extensions": openblas_get_config, openblas_get_corename,
          openblas_get_parallel; "Runtime variables".
"""

import os
import re

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.host.variables import anything, one_of, whole
from mlbackends.libraries.blas_symbols import openblas_affixes, require_product
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.shared_library import SharedLibrary
from mlbackends.model.reasons import NotUsable, Reason
from mlbackends.model.records import Answer, Fact, FactValue, Finding, Library

GROUP = "library"
FACTS = (
    Fact("config", str, "The options that it was built with, in its own words."),
    Fact("architecture", str, "The processor whose kernels it uses, in its own words."),
    Fact("threading", str, "Where its threads come from: serial, pthreads or openmp."),
    Fact("threads", int, "The number of threads that it would use."),
    Fact("built_for_threads", int, "The largest number of threads that this build can use."),
    Fact("integer_bits", int, "The width of the integers that its functions take: 32 or 64."),
    Fact("symbol_prefix", str, "What stands before its function names, such as scipy_."),
    Fact("symbol_suffix", str, "What stands after its function names, such as 64_."),
    Fact("environment", dict[str, str], "The variables that steer OpenBLAS and are set."),
)

LIBRARY = SharedLibrary(
    "openblas",
    (
        "libopenblas", "libscipy_openblas64_", "libscipy_openblas", "libopenblasp", "libopenblaso",
        "libopenblas64", "libopenblas64_", "libopenblas_64", "libopenblasp64", "libopenblasp64_",
        "libopenblaso64", "libopenblaso64_", "libopenblasp-r0", "libopenblas64_p-r0", "openblas",
    ),
    homes=("OPENBLAS_HOME", "OPENBLAS_ROOT"),
    folders=("/opt/OpenBLAS/lib",),
    wheels=("scipy_openblas64/lib", "scipy_openblas32/lib"),
    variables={
        **dict.fromkeys(
            ("OPENBLAS_NUM_THREADS", "OPENBLAS_DEFAULT_NUM_THREADS", "GOTO_NUM_THREADS"), whole(1)
        ),
        "OPENBLAS_CORETYPE": anything,
        "OPENBLAS_VERBOSE": one_of("0", "1", "2", "3"),
        "OPENBLAS_MAIN_FREE": anything,
        **dict.fromkeys(
            ("OPENBLAS_THREAD_TIMEOUT", "OPENBLAS_LOOPS", "OPENBLAS_BLOCK_FACTOR"), whole()
        ),
    },
)  # fmt: skip


def find(host: Host) -> Finding:
    """Look for every copy, under all the names that it goes by."""
    near = f"/usr/lib/{host.machine}-linux-gnu/openblas"
    kinds = ("pthread", "openmp", "serial")
    folders = [f"{near}{wide}-{kind}" for wide in ("", "64") for kind in kinds]
    return LIBRARY.find(host, folders, searched=LIBRARY.folders)


def load(opened: CDLL, library: Library) -> Answer:
    """Ask how it was built and which kernels it chose."""
    affixes = openblas_affixes(opened)
    if affixes is None:
        raise NotUsable("missing-symbol", f"{library.path} has no function openblas_get_config")
    before, after = affixes

    def ask(name: str, kind: object) -> object:
        call = getattr(opened, f"{before}openblas_{name}{after}", None)
        if call is None:
            return None
        call.restype = kind
        return call()

    facts: dict[str, FactValue] = {}
    config, core = ask("get_config", ctypes.c_char_p), ask("get_corename", ctypes.c_char_p)
    text = " ".join(config.decode(errors="replace").split()) if isinstance(config, bytes) else ""
    architecture = core.decode(errors="replace") if isinstance(core, bytes) else ""
    if isinstance(config, bytes):
        facts["config"] = text
    if isinstance(core, bytes):
        facts["architecture"] = architecture
    threading = {0: "serial", 1: "pthreads", 2: "openmp"}.get(ask("get_parallel", ctypes.c_int))  # type: ignore[call-overload]
    if threading:
        facts["threading"] = threading
    threads = ask("get_num_threads", ctypes.c_int)
    if isinstance(threads, int) and threads > 0:
        facts["threads"] = threads
    if limit := re.search(r"MAX_THREADS=(\d+)", text):
        facts["built_for_threads"] = int(limit[1])
    facts["integer_bits"] = 64 if "USE64BITINT" in text or after == "64_" else 32
    if before:
        facts["symbol_prefix"] = before
    if after:
        facts["symbol_suffix"] = after
    if version := re.match(r"OpenBLAS (\S+)", text):
        library = replace(library, version=version[1])
    wanted = os.environ.get("OPENBLAS_CORETYPE", "")
    if not wanted or not architecture or wanted.lower() == architecture.lower():
        return Answer(library, facts=facts)
    message = f"OPENBLAS_CORETYPE is {wanted!r}, and OpenBLAS uses the kernels for {architecture}"
    hint = "the build has no kernels of that name, or this processor cannot run them"
    return Answer(library, facts=facts, warnings=(Reason("override-invalid", message, hint),))


def use(opened: CDLL, library: Library) -> Answer:
    """Multiply two matrices."""
    before, after = openblas_affixes(opened) or ("", "")
    # A suffix goes after the underscore that Fortran's names end with: dgemm_64_.
    require_product(opened, f"{before}dgemm_{after}", 64 if after else 32)
    return Answer(library)
