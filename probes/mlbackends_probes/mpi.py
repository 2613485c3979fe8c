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
from mlbackends.host.variables import anything, steering
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.elf import NotElf, extract_symbols
from mlbackends.libraries.search import absent, libraries_named
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

HOMES = ("MPI_HOME", "I_MPI_ROOT", "OPAL_PREFIX", "MPICH_DIR")
VARIABLES = dict.fromkeys(
    (
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMI_SIZE",
        "MPI_LOCALNRANKS",
        "I_MPI_FABRICS",
        "I_MPI_PMI_LIBRARY",
        "OMPI_MCA_btl",
        "OMPI_MCA_pml",
        "FI_PROVIDER",
        "MV2_USE_CUDA",
        "MPICH_GPU_SUPPORT_ENABLED",
    ),
    anything,
)
_STEMS = ("libmpi", "libmpich", "libmpi_abi", "libmpi_cray", "msmpi", "impi")
_LAUNCHERS = ("mpirun", "mpiexec")
_TEXT_BYTES = 16384  # MPICH's limit for the text is 8192, Open MPI's 256


def find(host: Host) -> Finding:
    """Look for libraries and launchers; nothing is started."""
    near = f"/usr/lib/{host.machine}-linux-gnu"
    folders = [
        f"{near}/openmpi/lib",
        f"{near}/mpich/lib",
        "/usr/lib64/openmpi/lib",
        "/usr/lib64/mpich/lib",
        "/opt/intel/oneapi/mpi/latest/lib",
        "/opt/intel/oneapi/mpi/latest/lib/release",
    ]
    if root := host.env("I_MPI_ROOT").rstrip("/"):
        folders.append(f"{root}/lib/release")
    libraries = libraries_named(host, "mpi", *_STEMS, homes=HOMES, folders=folders)
    libraries = [_recognised(host, library) for library in libraries]
    facts = steering(host, VARIABLES)
    launchers = _launchers(host)
    if launchers:
        facts["launchers"] = launchers
    if not libraries:
        return Finding(facts=facts, reasons=(absent(host, "libmpi", HOMES),))
    return Finding(tuple(libraries), facts=facts, warnings=_strangers(libraries, launchers))


def _recognised(host: Host, library: Library) -> Library:
    """Add whose it is, by a function that only one of them has."""
    if library.reasons or host.platform != "linux":
        return library
    signs = {
        "ompi_mpi_comm_world": "openmpi",
        "MPIR_Process": "mpich",
        "MPIR_Err_create_code": "mpich",
    }
    try:
        defined = extract_symbols(host, library.path, signs)
    except (NotElf, OSError):
        return library
    found = {signs[name] for name in defined}
    return replace(library, facts={"implementation": found.pop()}) if len(found) == 1 else library


def _launchers(host: Host) -> list[dict[str, str]]:
    found = []
    for folder in dict.fromkeys(host.env("PATH").split(":")):
        for name in _LAUNCHERS:
            path = f"{folder.rstrip('/')}/{name}"
            if folder.startswith("/") and host.is_file(path):
                found.append({"name": name, "path": path, "real_path": host.realpath(path)})
    return found


def _strangers(libraries: list[Library], launchers: list[dict[str, str]]) -> tuple[Reason, ...]:
    """Warn where the first mpirun is plainly not of the implementation that wins."""
    owner = next((library for library in libraries if library.wins), None)
    ours = owner.facts.get("implementation") if owner else None
    if owner is None or ours is None or not launchers:
        return ()
    real = os.path.basename(launchers[0]["real_path"])
    if re.search(r"orterun|prterun|openmpi", real):
        theirs = "openmpi"
    elif re.search(r"hydra|mpich", real):
        theirs = "mpich"
    else:
        return ()
    if theirs == ours:
        return ()
    message = f"{launchers[0]['path']} belongs to {theirs}, and {owner.path} is {ours}"
    hint = "start programs with the launcher of the library that they are linked with"
    return (Reason("conflict", message, hint),)


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the versions, which MPI_Init need not precede."""

    def require(function: str, status: int) -> None:
        if status:
            raise NotUsable("call-failed", f"{function} returned {status}; MPI_SUCCESS is 0")

    text, length = ctypes.create_string_buffer(_TEXT_BYTES), ctypes.c_int()
    function = "MPI_Get_library_version"
    require(function, opened.MPI_Get_library_version(text, ctypes.byref(length)))
    told = text.value.decode(errors="replace").strip()
    major, minor = ctypes.c_int(), ctypes.c_int()
    require("MPI_Get_version", opened.MPI_Get_version(ctypes.byref(major), ctypes.byref(minor)))
    facts: dict[str, FactValue] = {**library.facts, "standard": f"{major.value}.{minor.value}"}
    if told:
        facts["library_version"] = told.splitlines()[0].strip()
    for pattern, name in (
        (r"Open MPI v?(\d[\w.]*)", "openmpi"),
        (r"Intel\(R\) MPI Library (\d[\w.]*)", "intel"),
        (r"MPICH Version:\s*(\d[\w.]*)", "mpich"),
        (r"MVAPICH\d? Version\s*:\s*(\d[\w.]*)", "mpich"),
    ):
        if version := re.search(pattern, told):
            facts["implementation"] = name
            library = replace(library, version=version[1])
            break
    return Answer(library, facts=facts)
