"""MPI: messages between the processes of a parallel program.

Finds:    every libmpi, of Open MPI, MPICH, Intel and Microsoft; the launchers on PATH.
Usable:   not tried: MPI_Init may start daemons and take part in a job.
Caveats:  a program runs only under the launcher of the implementation that it was linked with.
Source:   MPI 4.1, 9.1.1: MPI_Get_version and MPI_Get_library_version, before MPI_Init too.
"""

import os
import re

from msgspec.structs import replace

from mlbackends.base.errors import NotALibrary
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, Calls, ctypes
from mlbackends.libraries.search import SharedLibrary
from mlbackends.libraries.symbols import extract_symbols
from mlbackends.model.records import Answer, Finding, Library, nonempty

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


def _described(host: Host, library: Library) -> Library:
    """Add the implementation, by a function that only one of them has."""
    if library.reasons or host.platform != "linux":
        return library
    try:
        defined = extract_symbols(host, library.path, _SIGNS)
    except (NotALibrary, OSError):
        return library
    makers = {_SIGNS[name] for name in defined}
    return replace(library, facts={"implementation": makers.pop()}) if len(makers) == 1 else library


LIBRARY = SharedLibrary(
    "mpi",
    ("libmpi", "libmpich", "libmpi_abi", "libmpi_cray", "msmpi", "impi"),
    homes=("MPI_HOME", "I_MPI_ROOT", "OPAL_PREFIX", "MPICH_DIR"),
    folders=(
        *("/usr/lib/{machine}-linux-gnu/openmpi/lib", "/usr/lib/{machine}-linux-gnu/mpich/lib"),
        *("/usr/lib64/openmpi/lib", "/usr/lib64/mpich/lib"),
        *("/opt/intel/oneapi/mpi/latest/lib", "/opt/intel/oneapi/mpi/latest/lib/release"),
        "$I_MPI_ROOT/lib/release",
    ),
    describe=_described,
)


def find(host: Host) -> Finding:
    """Look for libraries and launchers; nothing is started."""
    finding = LIBRARY.find(host)
    ending = ".exe" if host.platform == "win32" else ""
    launchers = [
        {"name": name, "path": path, "real_path": host.realpath(path)}
        for folder in dict.fromkeys(host.folders("PATH"))
        for name in ("mpirun", "mpiexec")
        if (folder[:1] == "/" or folder[1:2] == ":")
        and host.is_file(path := f"{folder.rstrip('/')}/{name}{ending}")
    ]
    if not launchers:
        return finding
    # The first mpirun may belong to another implementation than the library that wins.
    winner = next((library for library in finding.libraries if library.wins), None)
    ours = winner.facts.get("implementation") if winner else None
    first, real = launchers[0]["path"], os.path.basename(launchers[0]["real_path"])
    is_openmpi = re.search(r"orterun|prterun|openmpi", real)
    theirs = "openmpi" if is_openmpi else "mpich" if re.search(r"hydra|mpich", real) else ""
    warnings = [*finding.warnings]
    if winner and ours and theirs and theirs != ours:
        message = f"{first} belongs to {theirs}, and {winner.path} is {ours}"
        hint = "start programs with the launcher of the library that they are linked with"
        warnings.append(Reason("conflict", message, hint))
    return replace(finding, facts={**finding.facts, "launchers": launchers}, warnings=tuple(warnings))


def load(opened: CDLL, library: Library) -> Answer:
    """Return the versions, which need no MPI_Init."""
    text_buffer, length = ctypes.create_string_buffer(_TEXT_BYTES), ctypes.c_int()
    call = Calls(opened, unnamed="MPI_SUCCESS is 0")
    call("MPI_Get_library_version", text_buffer, ctypes.byref(length))
    standard = ".".join(map(str, call.numbers("MPI_Get_version", 2)))
    text = text_buffer.value.decode(errors="replace").strip()
    facts = {
        **library.facts,
        "standard": standard,
        "library_version": text.partition("\n")[0].strip(),
    }
    for pattern, name in _VERSIONS:
        if version := re.search(pattern, text):
            facts["implementation"] = name
            library = replace(library, version=version[1])
            break
    return Answer(library, facts=nonempty(facts))
