"""What the probes in table.json do themselves to find: find_NAME completes a finding.

describe_NAME and decode_NAME are fields of SharedLibrary and CudaLibrary.
"""

import os
import re
from collections.abc import Iterable
from contextlib import suppress

from msgspec.structs import replace

from mlbackends.base.errors import NotALibrary
from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.cpu.cpuinfo import cpu_flags
from mlbackends.host.declared import valid_instead
from mlbackends.host.host import Host
from mlbackends.host.python.packages import distribution
from mlbackends.libraries.blas_symbols import implementation_of
from mlbackends.libraries.c_runtime import highest
from mlbackends.libraries.consumers import needed_of_the_system
from mlbackends.libraries.cuda.libraries import agree
from mlbackends.libraries.library_names import stem_of
from mlbackends.libraries.search import inside, with_file_version
from mlbackends.libraries.symbols import extract_symbols, symbol_versions
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
            warnings.append(Reason("conflict", message, "cuBLAS needs the cuBLASLt of its version"))
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


_NEURON_WHEELS = ("neuronx-cc", "libneuronxla", "torch-neuronx", "jax-neuronx", "neuron-cc")


def find_neuron(finding: Finding, host: Host) -> Finding:
    """Add the wheels of the compiler and of frameworks."""
    if not (finding.libraries or finding.devices):
        return finding
    wheels = [wheel for name in _NEURON_WHEELS if (wheel := distribution(host, name))]
    listed = [f"{wheel.name} {wheel.version}" for wheel in wheels]
    return replace(finding, facts=finding.facts | nonempty({"wheels": listed}))


def find_tpu(finding: Finding, host: Host) -> Finding:
    """Add the generation and the wheel's version; without chips, variables only where one is libtpu's."""
    facts, names = {**finding.facts}, finding.facts.get("environment")
    is_own = isinstance(names, dict) and any(name.startswith(("TPU_", "LIBTPU_")) for name in names)
    if not finding.devices and not is_own:
        facts.pop("environment", None)
    generations = sorted({device.name.removeprefix("TPU ") for device in finding.devices})
    facts |= nonempty({"generation": ", ".join(generations)})
    wheel = distribution(host, "libtpu") or distribution(host, "libtpu-nightly")
    return replace(finding, facts=facts, version=wheel.version if wheel and finding.libraries else "")


_ASCEND_VERSION = pattern(
    r"^(?:runtime_running_)?version\s*=\s*\[?([0-9][\w.]*)", re.IGNORECASE | re.MULTILINE
)


def find_ascend(finding: Finding, host: Host) -> Finding:
    """Add the versions of driver and toolkit."""
    if not (finding.libraries or finding.devices):
        return finding

    def version_in(path: str) -> str:
        match = _ASCEND_VERSION.search(host.read(path, 1 << 16))
        return match[1] if match else ""

    root, machine = "/usr/local/Ascend", "aarch64" if host.machine in ("aarch64", "arm64") else "x86_64"
    homes = [host.env(name).rstrip("/") for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")]
    versions = (
        version_in(f"{home}/{file}")
        for home in (*filter(None, homes), f"{root}/ascend-toolkit/latest", f"{root}/cann")
        for file in (f"{machine}-linux/ascend_toolkit_install.info", "version.cfg")
    )
    toolkit, driver = next(filter(None, versions), ""), version_in(f"{root}/driver/version.info")
    facts = nonempty({"driver_version": driver, "toolkit_version": toolkit})
    return replace(finding, facts=finding.facts | facts, version=toolkit)


def describe_blas(host: Host, library: Library) -> Library:
    """Add what a name resolves to, and which implementation that is."""
    real = host.realpath(library.path)
    facts = {
        "real_path": real if real != library.path else "",
        "implementation": "" if library.reasons else implementation_of(host, library),
    }
    return replace(library, facts=nonempty(facts))


def find_blas(finding: Finding, _: Host) -> Finding:
    """Add what the names that programs ask for lead to."""
    facts = {**finding.facts}
    for library in finding.libraries:
        name = stem_of(os.path.basename(library.path)).removeprefix("lib")
        if name in ("blas", "cblas", "lapack") and "implementation" in library.facts:
            facts.setdefault(name, library.facts["implementation"])
    return replace(finding, facts=facts)


_MKL_KERNEL = pattern(
    r"(?:lib)?mkl_(def|mc|mc3|avx|avx2|avx512|avx10|avx512_mic)\.(?:so|(?:\d+\.)?(?:dylib|dll))"
)


def mkl_kernels(names: Iterable[str]) -> list[str]:
    """Return the sets of kernels in files of these names."""
    return sorted({match[1] for name in names if (match := _MKL_KERNEL.match(name))})


def describe_mkl(host: Host, library: Library) -> Library:
    """Add the kernels next to a copy, and its package's version."""
    kernels = mkl_kernels(host.listdir(os.path.dirname(host.realpath(library.path))))
    package, _, version = library.owner.partition(" ")  # until it is opened, its package's
    version = version if package == "mkl" else library.version
    return replace(library, version=version, facts=nonempty({"kernel_libraries": kernels}))


def find_mkl(finding: Finding, host: Host) -> Finding:
    """Warn of variables that request what this processor lacks."""
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


_MPI_SIGNS = {
    "ompi_mpi_comm_world": "openmpi",
    "MPIR_Process": "mpich",
    "MPIR_Err_create_code": "mpich",
}


def describe_mpi(host: Host, library: Library) -> Library:
    """Add the implementation, by a function that only one of them has."""
    if library.reasons or host.platform != "linux":
        return library
    try:
        defined = extract_symbols(host, library.path, _MPI_SIGNS)
    except (NotALibrary, OSError):
        return library
    makers = {_MPI_SIGNS[name] for name in defined}
    return replace(library, facts={"implementation": makers.pop()}) if len(makers) == 1 else library


def find_mpi(finding: Finding, host: Host) -> Finding:
    """Add the launchers on PATH; nothing is started."""
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


#: Sets of kernels, the best first. A build that lacks one takes the next that it has, but Zen's.
_OPENBLAS_X86 = (
    "SAPPHIRERAPIDS", "COOPERLAKE", "SKYLAKEX", "ZEN", "HASWELL", "SANDYBRIDGE", "NEHALEM", "PRESCOTT",
)  # fmt: skip
#: A function of every build, one of those with threads, one of those whose threads are its own.
_OPENBLAS_THREADS = ("blas_memory_alloc", "blas_server_avail", "exec_blas_async")


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


def describe_openblas(host: Host, library: Library) -> Library:
    """Add what can be read from the file without opening it: its version, threads and kernels."""
    text = _noted_openblas(host, library)
    if not text and not library.reasons:
        with suppress(OSError):
            text = host.extracted(library.path, openblas_text, str)
    words = text.split()
    if len(words) < 2:
        return library
    names = [*_OPENBLAS_THREADS, *(f"dgemm_beta_{core}" for core in _OPENBLAS_X86)]
    defined: frozenset[str] = frozenset()
    with suppress(NotALibrary, OSError):
        defined = extract_symbols(host, library.path, names)
    core = next((name for name in map(_shown_kernels, _OPENBLAS_X86) if name in words), "")
    facts = {
        "architecture": _openblas_kernels(host, defined) if "DYNAMIC_ARCH" in words else core,
        "threading": "",
        "built_for_threads": most_openblas_threads(text),
        "integer_bits": 64 if "USE64BITINT" in words else 32,
    }
    if _OPENBLAS_THREADS[0] in defined:  # else it hides what is its own
        kinds = ("serial", "openmp", "pthreads")
        facts["threading"] = kinds[len(defined.intersection(_OPENBLAS_THREADS[1:]))]
    return replace(library, version=words[1], facts=nonempty(facts))


def most_openblas_threads(text: str) -> int | None:
    """Return the number in the text about a build, None without one."""
    numbers = (word.removeprefix("MAX_THREADS=") for word in text.split())
    return next((int(number) for number in numbers if number.isdecimal() and len(number) < 7), None)


def _noted_openblas(host: Host, library: Library) -> str:
    """Return the build text that numpy or scipy recorded about the copy in their wheel, "" for others."""
    module = os.path.dirname(library.path).removesuffix(".libs").removesuffix("/.dylibs")
    if library.found_by == "site-packages" and module.endswith(("/numpy", "/scipy")):
        _, name, rest = host.read(f"{module}/__config__.py", 1 << 18).partition("OpenBLAS 0.")
        return (name + rest[:200]).partition("\n")[0].partition('"')[0].partition("'")[0]
    return ""


def _shown_kernels(core: str) -> str:
    return {"SKYLAKEX": "SkylakeX", "SAPPHIRERAPIDS": "SapphireRapids"}.get(core, core.capitalize())


def _openblas_kernels(host: Host, defined: frozenset[str]) -> str:
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
        below = (
            kernels
            for kernels in _OPENBLAS_X86[_OPENBLAS_X86.index(name) :]
            if kernels != "ZEN" or name == "ZEN"
        )
        chosen.add(next((kernels for kernels in below if f"dgemm_beta_{kernels}" in defined), ""))
    return _shown_kernels(chosen.pop()) if len(chosen) == 1 else ""


_OUTSIDE = ("LD_LIBRARY_PATH", "conda", "python-prefix", "ld.so.cache", "system-folder")
#: Beginning of a file's name -> the runtime's maker.
_OPENMP_MAKERS = {
    "vcomp": "microsoft", "libiomp5": "intel", "libomp": "llvm", "libgomp-1": "gnu",
}  # fmt: skip


def describe_openmp(host: Host, library: Library) -> Library:
    """Add the maker of a copy, by its functions, since one maker's may have another's name."""
    stem = stem_of(os.path.basename(library.soname)) or stem_of(os.path.basename(library.path))
    maker = next((maker for begin, maker in _OPENMP_MAKERS.items() if stem.startswith(begin)), "")
    facts = {"runtime": maker}
    if host.platform == "linux" and not library.reasons:
        with suppress(NotALibrary, OSError):
            names = ("__kmpc_fork_call", "GOMP_parallel", "GOMP_barrier")
            defined = extract_symbols(host, library.path, names)
            if defined and "__kmpc_fork_call" not in defined:
                facts["runtime"] = "gnu"
                number = highest(symbol_versions(host, library.path), "GOMP_")
                version = f"GOMP_{number}" if number else ""
                facts["symbol_version"] = version
                facts["gcc_interface"] = table("libraries/openmp")["gcc"].get(version, "")
    return replace(library, facts=nonempty(facts))


_ONE_COPY = "install both packages from one channel of conda, or both with pip"


def find_openmp(finding: Finding, host: Host) -> Finding:
    """Warn of a number of threads beyond the CPUs, and of copies that would be in one process."""
    if not finding.libraries:
        return finding
    facts, warnings = {**finding.facts}, [*finding.warnings]
    first = host.env("OMP_NUM_THREADS").split(",")[0].strip()
    allowed = host.affinity()
    if first and allowed and not valid_instead(first, {"minimum": len(allowed) + 1}):
        message = (
            f"OMP_NUM_THREADS is {first}, and this process may use only"
            f" {len(allowed)} CPU{'' if len(allowed) == 1 else 's'}"
        )
        warnings.append(Reason("override-exceeds-hardware", message))
    copies, evidence = _copies_in_one_process(host, finding.libraries)
    if copies:
        facts["conflicting_copies"] = [library.path for library in copies]
        kinds = {str(library.facts.get("runtime", "")) for library in copies}
        why = f"these runtimes are of different makers ({', '.join(sorted(kinds))})"
        if len(kinds) == 1:
            why = "each copy has separate threads, and a limit set in one does not apply to the other"
        hint = "set OMP_NUM_THREADS, which all runtimes read; omp_set_num_threads reaches one"
        own = [copy for copy in copies if copy.facts.get("runtime") in ("intel", "llvm")]
        if host.platform == "win32" and len(own) > 1:
            why = "the second of Intel's or LLVM's that starts ends the process (OMP: Error #15)"
            hint = _ONE_COPY
            if any(copy.used_by[:1] == ("torch",) for copy in own) and host.pid is None:
                why += "; torch opens its own by its path, the others use what is loaded by then"
                hint = f"import torch first, so that the others use its copy; or {_ONE_COPY}"
        if kinds == {"intel", "llvm"}:
            hint = "install both packages from one source, so that they share a runtime"
        warnings.append(Reason("conflict", f"{evidence}: {why}", hint))
    return replace(finding, facts=facts, warnings=tuple(warnings))


def _copies_in_one_process(host: Host, libraries: tuple[Library, ...]) -> tuple[list[Library], str]:
    """Return the different copies that are, or would be, in one process, and how that was seen."""
    if host.pid is not None:
        mapped = [library for library in libraries if library.used is True]
        if len(mapped) <= 1:
            return [], ""
        paths = " and ".join(library.path for library in mapped)
        return mapped, f"process {host.pid} has mapped {paths}"
    brought: dict[str, Library] = {}
    is_windows = host.platform == "win32"
    for library in libraries:
        is_brought = is_windows or library.found_by == "site-packages"
        if is_brought and library.used_by and not library.reasons:
            # The loader takes a second file of the same soname for the first one; that of Windows does
            # not where a package opens its own by the path, as torch and scikit-learn do.
            brought.setdefault(library.path if is_windows else library.soname, library)
    copies, packages, pairs = [], [], []
    for library in brought.values():
        copies.append(library)
        packages.append(library.used_by[0])
        name = library.path if is_windows else os.path.basename(library.path)
        pairs.append(f"{packages[-1]} includes {name}")
    # Copies outside of wheels that a wheel's file needs. Whoever needs a soname that a wheel brings
    # may get that wheel's copy: those share one.
    first = {library.soname: library for library in reversed(libraries) if not library.reasons}
    outside = {
        soname: library
        for soname, library in first.items()
        if library.found_by in _OUTSIDE and soname not in brought
    }
    if brought and outside and host.platform == "linux":
        for soname, needing in needed_of_the_system(host, frozenset(outside)).items():
            copies.append(outside[soname])
            packages.append(needing[0])
            pairs.append(f"{needing[0]} uses {outside[soname].path}")
    if len(set(packages)) <= 1:
        return [], ""
    return copies, f"{' and '.join(pairs)}; both are in a process that imports both"
