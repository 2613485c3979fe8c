"""MPI: messages between the processes of a parallel program.

Finds:    every libmpi, of Open MPI, MPICH, Intel and Microsoft; the launchers on PATH.
Usable:   not tried: MPI_Init may start daemons and take part in a job.
Caveats:  a program runs only under the launcher of the implementation that it was linked with.
Source:   MPI 4.1, 9.1.1: MPI_Get_version and MPI_Get_library_version, before MPI_Init too.
"""

import os
import re

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.elf import NotElf, extract_symbols
from mlbackends.libraries.shared_library import SharedLibrary
from mlbackends.model.reasons import NotUsable, Reason
from mlbackends.model.records import Answer, Fact, FactValue, Finding, Library

GROUP = "library"
FACTS = (
    Fact("implementation", str, "Whose it is: openmpi, mpich (and what descends from it), intel."),
    Fact("library_version", str, "What the library says of itself, its first line."),
    Fact("standard", str, "The version of the MPI standard, such as 4.1."),
    Fact("launchers", list[dict[str, str]], "mpirun and mpiexec on PATH: name, path, real path."),
    Fact("environment", dict[str, str], "The variables that an MPI launcher or job has set."),
)

LIBRARY = SharedLibrary(
    "mpi",
    ("libmpi", "libmpich", "libmpi_abi", "libmpi_cray", "msmpi", "impi"),
    homes=("MPI_HOME", "I_MPI_ROOT", "OPAL_PREFIX", "MPICH_DIR"),
    variables=(
        "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS",
        "I_MPI_FABRICS", "I_MPI_PMI_LIBRARY", "OMPI_MCA_btl", "OMPI_MCA_pml", "FI_PROVIDER",
        "MV2_USE_CUDA", "MPICH_GPU_SUPPORT_ENABLED",
    ),
)  # fmt: skip
_SIGNS = {
    "ompi_mpi_comm_world": "openmpi",
    "MPIR_Process": "mpich",
    "MPIR_Err_create_code": "mpich",
}
_VERSIONS = (
    (r"Open MPI v?(\d[\w.]*)", "openmpi"),
    (r"Intel\(R\) MPI Library (\d[\w.]*)", "intel"),
    (r"MPICH Version:\s*(\d[\w.]*)", "mpich"),
    (r"MVAPICH\d? Version\s*:\s*(\d[\w.]*)", "mpich"),
)
_TEXT_BYTES = 16384  # MPICH's limit for the text is 8192, Open MPI's 256


def find(host: Host) -> Finding:
    """Look for libraries and launchers; nothing is started."""
    root, intel = host.env("I_MPI_ROOT").rstrip("/"), "/opt/intel/oneapi/mpi/latest/lib"
    near = (f"/usr/lib/{host.machine}-linux-gnu", "/usr/lib64")
    folders = [f"{base}/{name}/lib" for base in near for name in ("openmpi", "mpich")]
    folders += [intel, f"{intel}/release", *([f"{root}/lib/release"] if root else [])]
    found = LIBRARY.find(host, folders, describe=_recognised)
    launchers = [
        {"name": name, "path": path, "real_path": host.realpath(path)}
        for folder in dict.fromkeys(host.env("PATH").split(":"))
        for name in ("mpirun", "mpiexec")
        if folder.startswith("/") and host.is_file(path := f"{folder.rstrip('/')}/{name}")
    ]
    if not launchers:
        return found
    warnings = _strangers(found.libraries, launchers[0])
    return replace(found, facts={**found.facts, "launchers": launchers}, warnings=warnings)


def _recognised(host: Host, library: Library) -> Library:
    """Add whose it is, by a function that only one of them has."""
    if library.reasons or host.platform != "linux":
        return library
    try:
        defined = extract_symbols(host, library.path, _SIGNS)
    except (NotElf, OSError):
        return library
    found = {_SIGNS[name] for name in defined}
    return replace(library, facts={"implementation": found.pop()}) if len(found) == 1 else library


def _strangers(libraries: tuple[Library, ...], launcher: dict[str, str]) -> tuple[Reason, ...]:
    """Warn where the first mpirun is plainly not of the implementation that wins."""
    winner = next((library for library in libraries if library.wins), None)
    ours = winner.facts.get("implementation") if winner else None
    real = os.path.basename(launcher["real_path"])
    is_openmpi = re.search(r"orterun|prterun|openmpi", real)
    theirs = "openmpi" if is_openmpi else "mpich" if re.search(r"hydra|mpich", real) else ""
    if winner is None or ours is None or not theirs or theirs == ours:
        return ()
    message = f"{launcher['path']} belongs to {theirs}, and {winner.path} is {ours}"
    hint = "start programs with the launcher of the library that they are linked with"
    return (Reason("conflict", message, hint),)


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the versions, which MPI_Init need not precede."""
    buffer, length = ctypes.create_string_buffer(_TEXT_BYTES), ctypes.c_int()
    major, minor = ctypes.c_int(), ctypes.c_int()
    for function, arguments in (
        ("MPI_Get_library_version", (buffer, ctypes.byref(length))),
        ("MPI_Get_version", (ctypes.byref(major), ctypes.byref(minor))),
    ):
        if status := getattr(opened, function)(*arguments):
            message = f"{function} returned {status}; MPI_SUCCESS is 0"
            raise NotUsable("call-failed", message)
    text = buffer.value.decode(errors="replace").strip()
    standard = f"{major.value}.{minor.value}"
    facts: dict[str, FactValue] = {**library.facts, "standard": standard}
    if text:
        facts["library_version"] = text.splitlines()[0].strip()
    for pattern, name in _VERSIONS:
        if version := re.search(pattern, text):
            facts["implementation"] = name
            return Answer(replace(library, version=version[1]), facts=facts)
    return Answer(library, facts=facts)
