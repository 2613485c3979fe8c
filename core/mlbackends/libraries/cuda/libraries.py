"""NVIDIA's libraries: their folders, and the sources of their version.

The version of a copy is read, in this order of trust, from its file's name (libcufft.so.12.5.0.14), the
header next to it and the package that installed it; the opened library overrides them. A warning is given if
two of them differ: two packages may have written one folder.

The release of a toolkit's nvcc, which `nvcc --version` prints, is read without starting it: from the
toolkit's version.json (since CUDA 11.1), or from the version of the wheel nvidia-cuda-nvcc, which is the same
number: V13.0.88.
"""

import os
import posixpath
import re
from collections.abc import Callable, Sequence
from itertools import takewhile

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import dotted_numbers, leading_version
from mlbackends.base.reasons import Reason
from mlbackends.host.declared import not_valid, steering
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import distributions
from mlbackends.libraries.c_calls import CDLL, Calls, ctypes
from mlbackends.libraries.library_names import key_of, stem_of
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.records import Answer, Finding, Library, nonempty

HOMES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")

#: The parents of toolkits' folders, whose names begin with "cuda".
_PREFIXES = ("/usr/local", "/opt")

#: Below the folder of programs: toolkits, and cuDNN, which has a folder for each CUDA version.
_OF_WINDOWS = (
    "NVIDIA GPU Computing Toolkit/CUDA/*/bin", "NVIDIA GPU Computing Toolkit/CUDA/*/bin/x64",
    "NVIDIA GPU Computing Toolkit/CUDA/*/extras/CUPTI/lib64", "NVIDIA/CUDNN/*/bin/*",
)  # fmt: skip

_HPC_SDK = "/opt/nvidia/hpc_sdk"
_HPC_SDK_PARTS = ("cuda/*/lib64", "math_libs/*/lib64", "comm_libs/*/lib")

#: Below the system's library folder: those that have a folder for each CUDA version.
_VERSIONED = ("libcusparseLt", "libcutensor", "nvshmem")

_HEADER_READ = 1 << 16
#: A macro that is a number; a comment may follow, and an expression is not a number.
_DEFINED = pattern(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(?(\d{1,6})\)?\s*?(?:/[/*].*)?$", re.MULTILINE)
_CONFLICT_HINT = "two packages may have written the same folder; reinstall the one you want"


class CudaLibrary(Struct, frozen=True):
    """One of NVIDIA's libraries, as its probe declares it.

    stems, wheels: as in `mlbackends.libraries.search.libraries_named`. homes: variables that name its
    folder, in addition to those of every CUDA toolkit. below: its folders below these. headers: files of
    an include folder that define `macros` as the parts of the version; the first that does counts.
    decode: converts what they define, if that is one number. parts: how many numbers the library itself
    returns. property_function: returns each number of the version, without a handle. namer: the function
    that names a status; without one the names are in statuses.json.
    """

    name: str
    stems: tuple[str, ...]
    headers: tuple[str, ...] = ()
    macros: tuple[str, ...] = ()
    decode: Callable[[str], str] = str
    parts: int = 3
    homes: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    property_function: str = ""
    namer: str = ""

    def find(self, host: Host) -> Finding:
        """Find every copy, with its version from the files around it, and the variables that are set."""
        homes = (*self.homes, *HOMES)
        roots = [root for name in HOMES if (root := host.env(name).rstrip("/"))]
        below = (f"{root}/{folder}" for root in roots for folder in self.below)
        keys = {key_of(host, stem) for stem in self.stems}
        toolkits = (folder for folder, held in _toolkits(host).items() if not held.isdisjoint(keys))
        searched = (*below, *toolkits)
        copies = libraries_named(
            host, self.name, *self.stems, homes=homes, folders=searched, wheels=self.wheels
        )
        facts, invalid = steering(host, self.name), not_valid(host, self.name)
        if not copies:
            # Each installed wheel of the library lacks its file.
            lacking = (
                Reason(
                    "metadata-only",
                    f"{dists[0].name} {dists[0].version} is installed, and {self.stems[0]} is not"
                    " where it puts it",
                    f"reinstall {dists[0].name}",
                )
                for name, dists in distributions(host).items()
                if self.name in name and re.fullmatch(rf"(nvidia-)?(cuda-)?{self.name}(-jit)?(-cu\d+)?", name)
            )
            reason = absent(host, f"{self.stems[0]}.so", homes, ("/usr/local/cuda", "/opt/cuda"))
            return Finding(facts=facts, reasons=(*lacking, reason), warnings=invalid)
        libraries, warnings = [], [*invalid]
        for library in copies:
            described, doubts = self.versioned(host, library)
            libraries.append(described)
            warnings += doubts
        winner = next((library for library in libraries if library.wins), libraries[0])
        return Finding(tuple(libraries), (), facts, winner.version, warnings=tuple(warnings))

    def calls(self, opened: CDLL) -> Calls:
        """Return the caller of the library's functions, which checks their statuses."""
        return Calls(opened, self.name, self.namer)

    def load(self, opened: CDLL, library: Library) -> Answer:
        """Return the version, which needs neither a handle nor a device."""
        call, number = self.calls(opened), ctypes.c_int(-1)
        function = self.property_function.replace(self.name, library.name, 1)  # cublasLt has its own
        numbers = []
        for kind in range(3):  # libraryPropertyType: major, minor, patch
            call(function, kind, ctypes.byref(number))
            numbers.append(str(number.value))
        return versioned(library, ".".join(numbers))

    def versioned(self, host: Host, library: Library) -> tuple[Library, list[Reason]]:
        """Add the version from the files around a copy, with a warning if they disagree."""
        if library.reasons:
            return library, []
        real = host.realpath(library.path)
        above, last = os.path.split(os.path.dirname(real))
        includes = [f"{above}/include"]
        if "-linux-" in last:  # Debian's /usr/lib/x86_64-linux-gnu
            parent = os.path.dirname(above)
            includes = [f"{parent}/include/{last}", f"{parent}/include"]
        paths = (f"{include}/{header}" for header in self.headers for include in includes)
        in_headers = (version_in_header(host, path, self.macros) for path in paths)
        versions = {
            "file name": version_in_file_name(os.path.basename(real)),
            "resource": library.version,
            "header": self.decode(next(filter(None, in_headers), "")),
            "package": package_version(library, self.name),
        }
        # A header or a package of another major version is there for another copy.
        major = library.soname.rpartition(".so.")[2].split(".")[0]
        versions = {
            source: version
            for source, version in versions.items()
            if version and (not major.isdecimal() or version.split(".")[0] == major)
        }
        if not versions:
            return library, []
        source, version = next(iter(versions.items()))
        facts = {**library.facts, "version_source": source}
        if "package" in versions:
            facts["package_version"] = versions["package"]
        doubts = [
            Reason(
                "conflict",
                f"{library.path} is {version} by its {source}, and {other} by its {origin}",
                _CONFLICT_HINT,
            )
            for origin, other in versions.items()
            if not agree(version, other, origin)
        ]
        short = ".".join(version.split(".")[: self.parts])
        return replace(library, version=short, facts=facts), doubts


@once_per_host
def _toolkits(host: Host) -> dict[str, set[str]]:
    """Return the stems of the libraries in each customary folder."""
    roots = [
        f"{prefix}/{name}" for prefix in _PREFIXES for name in host.listdir(prefix) if name.startswith("cuda")
    ]
    folders: list[str] = []
    for programs in host.folders("PROGRAMFILES") if host.platform == "win32" else ():
        folders += [at for part in _OF_WINDOWS for at in host.glob(f"{programs}/{part}")]
    for root in (*roots, "/usr/lib/cuda"):
        folders += [f"{root}/lib64", f"{root}/extras/CUPTI/lib64"]
        folders += [f"{root}/targets/{name}/lib" for name in host.listdir(f"{root}/targets")]
    if host.is_dir(_HPC_SDK):
        folders += [at for part in _HPC_SDK_PARTS for at in host.glob(f"{_HPC_SDK}/*/*/{part}")]
    for name in _VERSIONED:
        above = f"/usr/lib/{host.machine}-linux-gnu/{name}"
        folders += [f"{above}/{version}" for version in host.listdir(above)]
    # /usr/local/cuda, cuda-13 and cuda-13.0 are often one folder.
    once = {host.realpath(at): at for at in reversed(folders) if host.is_dir(at)}
    return {at: {key_of(host, stem_of(name)) for name in host.listdir(at)} for at in reversed(once.values())}


# ---- versions in files -----------------------------------------------------------------------


def version_in_file_name(file_name: str) -> str:
    """Return the version after ".so." if it has three numbers or more; "" otherwise.

    One or two numbers are the soname's, which stays the same over many versions.
    """
    number = file_name.rpartition(".so.")[2]
    return number if len(dotted_numbers(number)) > 2 else ""


def version_in_header(host: Host, path: str, macros: Sequence[str]) -> str:
    """Return the numbers that a header defines for `macros`, joined by dots; "" without any."""
    # Of several definitions the first counts.
    numbers = dict(reversed(_DEFINED.findall(host.read(path, _HEADER_READ))))
    return ".".join(numbers[macro] for macro in takewhile(numbers.__contains__, macros))


def package_version(library: Library, word: str) -> str:
    """Return the numbers of the owning package's version, "" if it is not the library's own package.

    The version of a framework that includes a copy is not that of the library.
    """
    name, _, version = library.owner.partition(" ")
    return leading_version(version) if word in name.lower() else ""


def agree(one: str, other: str, source: str = "") -> bool:
    """Return whether two versions are the same up to the length of the shorter one.

    source: of the other one. A package's third number may count its own revisions: the wheel cutensor-cu13
    2.8.1 contains cuTENSOR 2.8.0.
    """
    compared = 2 if source == "package" else None
    pairs = zip(one.split(".")[:compared], other.split("."), strict=False)
    return all(int(a) == int(b) for a, b in pairs)


def runtime_version(number: int) -> str:
    """Return the CUDA release that a library was built with: 12090 is 12.9; "" for 0."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


def versioned(library: Library, version: str, **facts: object) -> Answer:
    """Return the version that an opened library returned, with a warning if files have another."""
    warnings: tuple[Reason, ...] = ()
    source = str(library.facts.get("version_source", "file"))
    if library.version and not agree(version, library.version, source):
        message = f"{library.path} reports version {version}; its {source} has {library.version}"
        warnings = (Reason("conflict", message, _CONFLICT_HINT),)
    library = replace(library, version=version, facts={**library.facts, "version_source": "library"})
    return Answer(library, facts=nonempty(facts), warnings=warnings)


_WHEEL = pattern(r"nvidia[-_]cuda[-_]nvcc(?:[-_]cu(\d+))?")


def component_versions(host: Host, root: str) -> dict[str, str]:
    """Return the versions in a toolkit's version.json by component, {} if there is none."""
    data = host.read_bytes(f"{root}/version.json", 256 << 10)
    try:
        components = msgspec.json.decode(data, type=dict[str, object]) if data else {}
    except (msgspec.DecodeError, RecursionError):
        components = {}
    versions = {}
    for name, component in components.items():
        version = component.get("version") if isinstance(component, dict) else None
        if isinstance(version, str) and _is_release(version):
            versions[name] = version
    return versions


def nvcc_release(host: Host, root: str) -> str:
    """Return the release of the nvcc in a toolkit, "" if it is not known."""
    if version := component_versions(host, root).get("cuda_nvcc"):
        return version
    # A toolkit assembled from wheels outside of an environment may keep their metadata.
    for entry in host.listdir(f"{root}/dist-info"):
        name, _, version = entry.removesuffix(".dist-info").partition("-")
        if _WHEEL.fullmatch(name) and _is_release(version):
            return version
    site, slash, part = root.rpartition("/nvidia/")
    for name, dists in distributions(host).items() if slash and "/" not in part else ():
        match = _WHEEL.fullmatch(name) if name.startswith("nvidia") else None
        for dist in dists if match else ():
            # Since CUDA 13 the wheels of all components share the folder nvidia/cu13.
            home = "cuda_nvcc" if match and match[1] else f"cu{dist.version.partition('.')[0]}"
            is_own = posixpath.normpath(dist.folder) == posixpath.normpath(site)
            if is_own and part == home and _is_release(dist.version):
                return dist.version
    return ""


def _is_release(version: str) -> bool:
    return len(dotted_numbers(version)) > 1
