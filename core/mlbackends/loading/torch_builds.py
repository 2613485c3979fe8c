"""Which builds of torch define a symbol, and so which builds a file fits that does not load beside its torch.

C++ extensions of torch load beside the builds that define every function that they use: there is no stable
C++ interface between releases. torch_builds.json lists the public symbols of PyTorch's wheels on PyPI, made
by tests/loading/torch_symbols.py. What uses the stable C interface alone (aoti_torch_*, torch_*) loads beside
every release from one on, but only with one major version of CUDA.
"""

import base64
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from msgspec.structs import replace

from mlbackends.base.errors import joined
from mlbackends.base.patterns import pattern
from mlbackends.base.specifiers import satisfies
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import package
from mlbackends.host.python.packages import Distribution
from mlbackends.host.python.requirements import required
from mlbackends.loading.environment import install
from mlbackends.loading.linker import ObjectFile
from mlbackends.loading.remedies import elf
from mlbackends.model.loading import Fault

#: What torch's libraries define for extensions: C++ of its namespaces but at::native, and C.
_SYMBOL = pattern(
    r"_Z[A-Z]*(?:3c10|2at(?!6native)|5torch|6caffe2|4c10d)|_Z(?:\d+THP|lsRSoRKN3c10)|aoti_torch_|torch_|THP"
)
_STABLE = ("aoti_torch_", "torch_")
_CUDA_LIBRARY = pattern(r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink)\.so\.(\d+)")
#: What PyTorch's index has for each build of torch, and how its parts are named.
_SIBLINGS, _INDEX = ("torchvision", "torchaudio", "torchcodec"), pattern(r"cpu|cu\d+|rocm[\d.]+|xpu")
_ONLY_CUDA = frozenset(["libc10_cuda.so", "libtorch_cuda.so", "libtorch_cuda_linalg.so"])


class Build(NamedTuple):
    """A build of torch: "2.10.0", "cu128"."""

    version: str
    tag: str

    @property
    def cuda(self) -> str:
        """The major version of its CUDA, "12"; "" for a build without."""
        return self.tag[2:-1] if self.tag.startswith("cu") else ""

    def __str__(self) -> str:
        return f"{self.version}+{self.tag}"


def is_of_torch(symbol: str) -> bool:
    """Return whether a symbol is one that torch's libraries would define."""
    return _SYMBOL.match(symbol) is not None


@cache
def builds() -> tuple[Build, ...]:
    """Return the builds in the table, oldest first."""
    return tuple(Build(*row) for row in table("loading/torch_builds")["builds"])


@cache
def _masks() -> dict[int, int]:
    """Return by the CRC of each symbol the builds that define it, bit 0 for the first one."""
    masks: dict[int, int] = {}
    for mask, text in table("loading/torch_builds")["symbols"].items():
        key = shift = delta = 0
        for byte in base64.b85decode(text):
            delta |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                key += delta
                masks[key] = int(mask, 16)
                shift = delta = 0
    return masks


def defining(symbols: Iterable[str]) -> tuple[Build, ...]:
    """Return the builds in the table that define all of some symbols."""
    mask = -1
    for symbol in symbols:
        mask &= _masks().get(zlib.crc32(symbol.encode()), 0)
    return tuple(build for i, build in enumerate(builds()) if mask >> i & 1)


def stable_since(symbols: Iterable[str]) -> Build | None:
    """Return the first build from which on torch has all that a file uses, if that is the stable ABI alone.

    None for a file that uses torch's C++, or nothing of torch, or symbols that the newest build lacks.
    """
    used = []
    for symbol in filter(is_of_torch, symbols):
        if not symbol.startswith(_STABLE):
            return None
        used.append(symbol)
    lacking = [-1, *(i for i, build in enumerate(builds()) if build not in defining(used))]
    return next(iter(builds()[lacking[-1] + 1 :]), None) if used else None


def in_words(chosen: Iterable[Build]) -> str:
    """Return builds as "2.4.0, 2.9.0 to 2.10.0": neighbours in the table are a range."""
    places = set(map(builds().index, chosen))
    firsts = sorted(i for i in places if i - 1 not in places)
    lasts = sorted(i for i in places if i + 1 not in places)
    runs = [sorted({first, last}) for first, last in zip(firsts, lasts, strict=True)]
    return joined([" to ".join(builds()[i].version for i in run) for run in runs])


# ---- faults ---------------------------------------------------------------------------------------


def explained(host: Host, fault: Fault, at: str, dist: Distribution | None) -> Fault:
    """Return a fault with what torch has to do with it, or as it is. at: the file that asks, of `dist`."""
    torch, file = package(host, ("torch",), "torch", "version.py"), elf(host, at)
    if torch is None or file is None or fault.code not in ("missing-library", "missing-symbol"):
        return fault
    lacking = [name for name in (fault.name, *fault.others) if is_of_torch(name)]
    # Other libraries of a package may define symbols of torch's namespaces.
    used = filter(is_of_torch, map(str, file.symbols.lacking.values()))
    uses = [symbol for symbol in used if symbol in lacking or defining([symbol])]
    here = Build(torch.version.partition("+")[0], torch.version.partition("+")[2])
    cudas = {match[1] for needed in file.needed if (match := _CUDA_LIBRARY.fullmatch(needed))}
    fitting = [build for build in defining(uses) if not cudas or build.cuda in cudas]
    if fault.code == "missing-library":
        cause = _of_another_cuda(fault, here, file)
        if not cause or not uses or at.startswith(f"{torch.location}/"):
            return fault
    elif fault.name not in lacking:
        return fault
    elif here in defining(lacking):
        cause = f"torch {here} defines it, and is not loaded before this file."
        return replace(fault, cause=cause, hint="import torch first")
    else:
        cause = f"torch {here} does not define it; {_where(lacking, uses, fitting)}."
    own = f"use {dist.name if dist else 'a file'} built for torch {torch.version}"
    if dist and dist.name in _SIBLINGS and _INDEX.fullmatch(here.tag):
        wanted = f"torch=={torch.metadata_version or torch.version}"
        index = f"https://download.pytorch.org/whl/{here.tag}"
        command = install(host, dist.name, wanted, "--upgrade", "--index-url", index)
        return replace(fault, cause=cause, hint=own, command=command)
    if not fitting:
        return replace(fault, cause=cause, hint=own)
    needs = [need.clauses for need in required(host, dist) if need.name == "torch"] if dist else []
    allowed = [build for build in fitting if not needs or satisfies(build.version, needs[0])]
    versions = [build.version for build in allowed or fitting]
    best = here.version if here.version in versions else versions[-1]
    is_for_gpus = cudas or any("4cuda" in symbol for symbol in uses) or fault.code == "missing-library"
    options = ["--index-url", "https://download.pytorch.org/whl/cpu"]
    options *= here.tag == "cpu" and not is_for_gpus
    options += ["--force-reinstall"] * (best == here.version)
    command = install(host, f"torch=={best}", *options)
    return replace(fault, cause=cause, hint=f"{own}, or torch {best} of PyPI", command=command)


def _where(lacking: list[str], uses: list[str], fitting: list[Build]) -> str:
    """Return which builds define what a file lacks, and all that it uses."""
    if fitting and (since := stable_since(uses)):
        return f"the file uses torch's stable ABI, of torch {since.version} or newer"
    if fitting:
        return f"all that the file uses is in torch {in_words(fitting)}, as built for PyPI"
    if having := defining(lacking):
        return f"torch {in_words(having)} does, as built for PyPI, but not all else that the file needs"
    return f"no build for PyPI from torch {builds()[0].version} to {builds()[-1].version} does"


def _of_another_cuda(fault: Fault, here: Build, file: ObjectFile) -> str:
    """Return the cause of a missing library if it is that a file is for another CUDA than torch, or ""."""
    wanted = _CUDA_LIBRARY.fullmatch(fault.name)
    is_cudas = fault.name in _ONLY_CUDA or wanted
    if here.tag == "cpu" and is_cudas and not _ONLY_CUDA.isdisjoint(file.needed):
        return f"It is built for torch with CUDA; torch {here} is the build for CPUs."
    if not wanted or here.cuda in ("", wanted[1]):
        return ""
    return f"It is built for CUDA {wanted[1]}, the installed torch {here} for CUDA {here.cuda}."


def stable_notes(host: Host, paths: Iterable[str]) -> Iterator[str]:
    """Yield a note on the first torch that has all that files use, if they use its stable ABI alone."""
    files = filter(None, (elf(host, path) for path in paths))
    if since := stable_since(str(symbol) for file in files for symbol in file.symbols.lacking.values()):
        yield f"torch's stable ABI: any torch from {since.version} on that has the same major version of CUDA"
