"""What the probes in table.json do themselves to find: find_NAME completes a finding.

describe_NAME and decode_NAME are fields of SharedLibrary and CudaLibrary.
"""

import os
import re

from msgspec.structs import replace

from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.libraries.cuda.libraries import agree
from mlbackends.libraries.library_names import stem_of
from mlbackends.libraries.search import inside, with_file_version
from mlbackends.model.records import Finding, Library, nonempty


def find_cublas(finding: Finding, _: Host) -> Finding:
    """Name the copies of cuBLASLt, and compare their versions with those of cuBLAS."""
    named = [
        replace(library, name="cublasLt") if "cublasLt" in library.soname else library
        for library in finding.libraries
    ]
    # cuBLAS goes first: it represents the probe.
    libraries = tuple(sorted(named, key=lambda library: library.name))
    warnings = [*finding.warnings]
    winners = {
        (library.name, library.soname.rpartition(".")[2]): library for library in libraries if library.wins
    }
    for (name, number), library in winners.items():
        other = winners.get(("cublasLt", number))
        if name != "cublas" or not other or not library.version or not other.version:
            continue
        if not agree(library.version, other.version):
            message = f"{library.path} is {library.version}, and {other.path} is {other.version}"
            hint = "cuBLAS needs the cuBLASLt of its version"
            warnings.append(Reason("conflict", message, hint))
    return replace(finding, libraries=libraries, warnings=tuple(warnings))


def decode_cupti(number: str) -> str:
    """Return a version as text: 130500 is 13.5. Before CUDA 13 it was a running number: ""."""
    value = int(number or 0)
    return f"{value // 10000}.{value % 10000 // 100}" if value >= 130000 else ""


def find_nccl(finding: Finding, host: Host) -> Finding:
    """Add the copies that are built into torch, and what nccl.conf sets."""
    built_in = inside(host, "nccl", "libtorch_cuda", ("ncclGetVersion",))
    reasons = () if built_in else finding.reasons
    libraries = (*finding.libraries, *built_in)
    # The first file that sets a variable holds, after the environment.
    own = host.env("NCCL_CONF_FILE") or f"{host.env('HOME')}/.nccl.conf"
    rows: dict[str, dict[str, str]] = {}
    for path in (own, "/etc/nccl.conf") if libraries else ():
        for line in host.read(path, 65536).splitlines():
            name, equals, value = line.partition("=")
            if equals and name in table("host/variables")["nccl"]:
                rows.setdefault(name, {"name": name, "value": value, "file": path})
    facts = finding.facts | nonempty({"configuration": list(rows.values())})
    return replace(finding, libraries=libraries, facts=facts, reasons=reasons)


def find_miopen(finding: Finding, host: Host) -> Finding:
    """Add the databases that are installed with the first copy."""
    if not finding.libraries:
        return finding
    prefix = host.realpath(finding.libraries[0].path).rsplit("/", 2)[0]
    names = host.listdir(host.env("MIOPEN_SYSTEM_DB_PATH") or f"{prefix}/share/miopen/db")
    databases = [name for name in names if re.search(r"\.(kdb|db|db\.txt|fdb\.txt)$", name)]
    return replace(finding, facts=nonempty({"databases": databases[:100]}) | finding.facts)


#: The prefix of each library's functions, and the type that it computes with.
FFTW_PRECISIONS = {
    "libfftw3": ("fftw", "double"),
    "libfftw3f": ("fftwf", "float"),
    "libfftw3l": ("fftwl", "long double"),
    "libfftw3q": ("fftwq", "quadruple"),
}


def describe_fftw(host: Host, library: Library) -> Library:
    """Add the precision, and the libraries for threads next to a copy."""
    folder, name = os.path.split(library.path)
    stem = stem_of(name).removesuffix("-3")  # as it ends under Windows
    beside = {stem_of(other) for other in host.listdir(folder) if other.startswith("libfftw3")}
    threads = [kind for kind in ("threads", "omp") if f"{stem}_{kind}" in beside]
    facts = {"precision": FFTW_PRECISIONS[stem][1], "threads": threads}
    return replace(library, facts=nonempty(facts))


def find_flexiblas(finding: Finding, host: Host) -> Finding:
    """Add the backend that is set."""
    if not finding.libraries:
        return finding
    facts = {**finding.facts}
    # The later file goes before the earlier one.
    for path in ("/etc/flexiblasrc", f"{host.env('HOME')}/.flexiblasrc"):
        if chosen := re.findall(r"^\s*default\s*=\s*(\S+)", host.read(path, 65536), re.MULTILINE):
            facts["default_backend"] = chosen[-1]
    return replace(finding, facts=facts)


def find_sycl(finding: Finding, host: Host) -> Finding:
    """Add the adapters next to the first copy."""
    if not finding.libraries:
        return finding
    beside = host.realpath(finding.libraries[0].path).rsplit("/", 1)[0]
    pattern = re.compile(r"lib(?:ur_adapter|pi)_(\w+)\.so")
    names = (pattern.match(name) for name in host.listdir(beside))
    adapters = sorted({match[1] for match in names if match})
    libraries = tuple(with_file_version(host, library) for library in finding.libraries)
    facts = nonempty({"adapters": adapters, **finding.facts})
    return replace(finding, libraries=libraries, facts=facts)


def find_ggml(finding: Finding, host: Host) -> Finding:
    """Add the backends next to each copy."""
    backend = re.compile(r"(?:lib)?ggml-(\w+?)(?:-\w+)?\.(?:so|dylib|dll)$")
    libraries = []
    for library in finding.libraries:
        names = host.listdir(os.path.dirname(host.realpath(library.path)))
        backends = {match[1] for name in names if (match := backend.match(name))} - {"base"}
        libraries.append(replace(library, facts=nonempty({"backends": sorted(backends)})))
    return replace(finding, libraries=tuple(libraries))
