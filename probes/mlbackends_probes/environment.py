"""Environment: the variables that steer machine-learning libraries.

Finds:    variables of a list of names and beginnings that are set; nothing else of the environment
          is read into the report, and no name that looks like a secret.
Caveats:  they are those of this process, or of the one that --pid names; what a launcher or a
          container sets later is not seen. What is wrong with a variable is reported by the probe of
          the thing that it steers, and here only where there is none.
Source:   the documentation of each library; ld.so(8) for LD_PRELOAD.
"""

from collections.abc import Iterator

from mlbackends.base.patterns import pattern, without_secrets
from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.host.system.thread_counts import thread_counts
from mlbackends.libraries.library_names import library_path
from mlbackends.model.records import Finding, Presence

GROUP = "machine"

_PYTHONS = pattern(r"PYTHON[A-Z0-9]*[A-Z][A-Z0-9]*")
_OF_CONTAINERS = ("/usr/local/nvidia/", "/usr/local/cuda/compat")
#: On the list by their beginning; what they hold is an address.
_NAMES_OF_MACHINES = frozenset({
    "NCCL_COMM_ID", "JAX_COORDINATOR_ADDRESS", "NVSHMEM_BOOTSTRAP_UID_SESSION_ID",
})  # fmt: skip
#: On the list by their beginning; set by Open MPI's mpirun, for each process its own.
_OF_A_RUN = ("OMPI_MCA_orte_", "OMPI_MCA_ess_")
_SECRETS = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "AUTH")

# The others are reported by the probe of what they steer: openmp, mkl, openblas, blis, accelerate, and
# cuda_toolkit for CUDA's folders.
_COUNTS = ("NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS")
_HOMES = ("CUDNN_PATH", "ROCM_PATH", "ROCM_HOME", "HIP_PATH", "ONEAPI_ROOT", "MKLROOT")


def find(host: Host) -> Finding:
    """Read the variables on the list, and warn of mistakes that no other probe looks for."""
    listed = table("host/environment")
    names = {*listed["names"]}
    beginnings = tuple(start for group in listed["beginnings"].values() for start in group)
    variables = {
        name: host.environment[name]
        for name in sorted(host.environment)
        if not any(word in name.upper() for word in _SECRETS) and name not in _NAMES_OF_MACHINES
        if not name.startswith(_OF_A_RUN)
        if name in names
        or name.startswith(beginnings)
        or (name.startswith("PYTHON") and _PYTHONS.fullmatch(name))
    }
    is_known = host.environment or (host.is_live and host.pid is None)
    return Finding(
        presence=Presence.FOUND,
        facts={"variables": variables} if is_known else {},
        warnings=tuple(_warnings(host)),
    )


def _warnings(host: Host) -> Iterator[Reason]:
    """Yield a warning for what holds nonsense, what names nothing, and what contradicts another."""
    for name in _COUNTS:
        value = host.env(name).strip()
        if value and not thread_counts(value):
            message = f'{name} is "{without_secrets(value)[:80]}", which is not a number of threads'
            yield Reason("override-invalid", message)
    for path in host.env("LD_PRELOAD").replace(":", " ").split():
        # A bare name is searched for, and variables such as $LIB are folders of the loader.
        if path.startswith("/") and "$" not in path and not host.exists(path):
            message = f"LD_PRELOAD names {path}, which does not exist; the loader ignores it"
            yield Reason("override-invalid", message, "correct or unset LD_PRELOAD")
    variable, listed = library_path(host)
    if variable == "PATH":  # a list for programs first; much of it is usually not there
        listed = []
    if any(not folder for folder in listed):
        message = (
            f"{variable} has an empty element, which means the current folder, "
            "whatever that is when a program starts"
        )
        hint = "remove the colon at its beginning or end, or one of two in a row"
        yield Reason("override-invalid", message, hint)
    for folder in dict.fromkeys(listed):
        # Variables such as $ORIGIN are folders of the loader. CUDA's images list folders that exist only
        # if the container is given a GPU.
        if not folder.startswith("/") or "$" in folder or folder.startswith(_OF_CONTAINERS):
            continue
        if not host.is_dir(folder):
            problem = "is not a folder" if host.exists(folder) else "does not exist"
            message = f"{variable} names {folder}, which {problem}; the loader ignores it"
            yield Reason("override-invalid", message, f"correct or unset {variable}")
    for name in _HOMES:
        path = host.env(name)
        if path.startswith("/") and not host.is_dir(path):
            message = f"{name} names {path}, which is not a folder"
            yield Reason("override-invalid", message, f"correct or unset {name}")
    home, path = host.env("CUDA_HOME"), host.env("CUDA_PATH")
    both_exist = home and path and host.is_dir(home) and host.is_dir(path)
    if both_exist and host.realpath(home) != host.realpath(path):
        message = f"CUDA_HOME is {home} and CUDA_PATH is {path}"
        hint = "set both to the same toolkit: some programs read one, some the other"
        yield Reason("conflict", message, hint)
