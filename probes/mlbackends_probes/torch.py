"""PyTorch: the machine-learning framework, as it is installed.

Finds:    the distribution, torch/version.py as text, and every libtorch_cpu.
Loadable: libtorch_cpu opens by itself, and tells its CPU capability (on x86-64 Linux).
Caveats:  MPS is told by a header that only builds with it have, else by the default of arm64 Macs;
          torch is not imported, and its CUDA, HIP and XPU libraries are never opened: that takes
          seconds and hundreds of MiB. libtorch without Python is found as well.
Source:   torch/version.py; at::get_cpu_capability in ATen/Version.h; PyTorch documentation,
          "PYTORCH ProcessGroupNCCL environment variables" and "CUDA environment variables".
"""

import os
import re

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import (
    PACKAGE_FACTS,
    Package,
    assigned_flag,
    assigned_text,
    entry_points,
    found,
    gpu_unused,
    named,
    package,
)
from mlbackends.host.python.requirements import required
from mlbackends.host.variables import anything, one_of, steering
from mlbackends.libraries.c_calls import CDLL
from mlbackends.libraries.c_runtime import returned_string
from mlbackends.libraries.cuda.driver import driver_release, driver_warning
from mlbackends.libraries.elf import NotElf, extract, read_elf, version_needs
from mlbackends.libraries.search import libraries_named, stem_of
from mlbackends.model.records import Answer, FactValue, Finding, Library, Presence
from mlbackends.model.registry import read_facts

GROUP = "framework"
SUMMARY = ("torch {version}", "CUDA {cuda_version}", "HIP {hip_version}", "XPU {xpu_version}")
FACTS = (*PACKAGE_FACTS, *read_facts(__file__))

_NAMES = ("torch", "torch-nightly", "torch-cpu", "torch-rocm", "torch-xpu", "pytorch")
_PARTNERS = (
    "torchvision", "torchaudio", "torchtext", "torch-tensorrt", "xformers", "vllm",
    "intel-extension-for-pytorch",
)  # fmt: skip
_OWN = ("libtorch", "libc10", "libshm", "torch", "c10", "shm", "libaoti", "libcaffe2")
_FIRST_WITH_MPS = (1, 12)
_FLAGS = frozenset({
    "PYTORCH_ENABLE_MPS_FALLBACK", "PYTORCH_JIT", "TORCH_BLAS_PREFER_CUBLASLT",
    "TORCH_BLAS_PREFER_HIPBLASLT", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
})  # fmt: skip
"""The variables that are 0 or 1."""
_VARIABLES = (
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NVML_BASED_CUDA_CHECK", "PYTORCH_ENABLE_MPS_FALLBACK",
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO", "PYTORCH_JIT", "TORCH_BLAS_PREFER_CUBLASLT",
    "TORCH_BLAS_PREFER_HIPBLASLT", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_CUDNN_V8_API_DISABLED",
    "TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT", "TORCH_CUDNN_SDPA_ENABLED",
    "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL", "TORCH_CUDA_ARCH_LIST",
    "TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE",
    "TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_FREEZING", "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TORCH_EXTENSIONS_DIR", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT",
    "TORCH_SHOW_CPP_STACKTRACES", "NVIDIA_TF32_OVERRIDE",
)  # fmt: skip
VARIABLES = {name: one_of("0", "1") if name in _FLAGS else anything for name in _VARIABLES}


def find(host: Host) -> Finding:
    """Read what the package says of itself, and look for libtorch_cpu."""
    torch = package(host, _NAMES, "torch", "version.py")
    libraries = [
        _with_version(host, library)
        for library in libraries_named(host, "torch", "libtorch_cpu", "torch_cpu")
    ]
    if torch is None and not libraries:
        return found(host, None, "torch")
    if torch is None:
        return Finding(libraries=tuple(libraries), facts=steering(host, VARIABLES))
    facts = _build(host, torch)
    what = f"torch {torch.version}".rstrip()
    warning = None
    if facts.get("built_for") == "cuda":
        cuda = str(facts["cuda_version"])
        warning = driver_warning(driver_release(host), cuda, f"{what}, built for CUDA {cuda},")
    elif facts.get("built_for") == "cpu" and host.platform != "darwin":
        warning = gpu_unused(host, what, "install a build of torch for CUDA")
    facts |= steering(host, VARIABLES) | _cuda_libraries(host, torch)
    # The packages that are compiled against one version of torch.
    partners: list[object] = [
        {"package": dist.name, "version": dist.version, "wanted": one.pinned}
        for dist in named(host, _PARTNERS)
        for one in required(host, dist)
        if one.name == "torch" and one.pinned
    ]
    if partners:
        facts["partners"] = partners
    if plugins := entry_points(host, "torch.backends"):
        facts["backend_plugins"] = dict[str, object](plugins)
    finding = found(host, torch, "torch", facts=facts, variables=VARIABLES, warnings=(warning,))
    # With libraries, how far they go is how far torch goes.
    presence = None if libraries else Presence.FOUND
    return replace(finding, libraries=tuple(libraries), presence=presence)


def load(opened: CDLL, library: Library) -> Answer:
    """Ask which kernels it takes on this processor."""
    capability = returned_string(opened, "_ZN2at18get_cpu_capability")
    return Answer(library, facts={"cpu_capability": capability} if capability else {})


def _build(host: Host, torch: Package) -> dict[str, FactValue]:
    """Return what version.py and the library folder tell."""
    facts: dict[str, FactValue] = {}
    if not torch.location:
        return facts
    text = host.read(f"{torch.location}/version.py", 1 << 16)
    for name in ("cuda", "hip", "rocm", "xpu"):
        if version := assigned_text(text, name):
            facts[f"{name}_version"] = version
    # Without a version.py that makes sense, nothing is known, not even that it is for the CPU.
    if assigned_text(text, "__version__"):
        kinds = (("cuda", "cuda"), ("rocm", "hip"), ("xpu", "xpu"))
        facts["built_for"] = next(
            (kind for kind, name in kinds if f"{name}_version" in facts),
            "mps" if _has_mps(host, torch) else "cpu",
        )
    if (debug := assigned_flag(text, "debug")) is not None:
        facts["debug"] = debug
    if commit := assigned_text(text, "git_version"):
        facts["git_version"] = commit
    present = [
        name
        for name in host.listdir(f"{torch.location}/lib")
        if (stem := stem_of(name)).startswith(_OWN) and "test" not in stem
    ]
    if present:
        facts["libraries_present"] = list[object](present)
    return facts


def _has_mps(host: Host, torch: Package) -> bool:
    """Tell whether a build computes on Apple's GPUs, as torch.backends.mps.is_built() would."""
    if host.platform != "darwin":
        return False
    if host.exists(f"{torch.location}/include/ATen/MPSFunctions.h"):
        return True
    release = re.match(r"(\d{1,4})\.(\d{1,4})(?!\d)", torch.version)
    numbers = (int(release[1]), int(release[2])) if release else (0, 0)
    return host.machine == "arm64" and numbers >= _FIRST_WITH_MPS


def _with_version(host: Host, library: Library) -> Library:
    """Add the version: a package's beside its lib folder, or that of libtorch without Python.

    With the newest symbols of glibc and libstdc++ that the copy needs.
    """
    above = os.path.dirname(os.path.dirname(library.path))
    version = assigned_text(host.read(f"{above}/version.py", 1 << 16), "__version__")
    if not version:
        version = host.read(f"{above}/build-version", 200).strip()
    if version and "\n" not in version and version.isprintable():
        library = replace(library, version=version)
    if host.platform != "linux" or library.reasons:
        return library
    try:
        needs = extract(host, library.path, version_needs)
    except (NotElf, OSError):
        return library
    facts: dict[str, FactValue] = {}
    for fact, prefix in (("glibc_needed", "GLIBC_"), ("libstdcxx_needed", "GLIBCXX_")):
        numbers = [
            name.removeprefix(prefix)
            for versions in needs.values()
            for name in versions
            if re.fullmatch(prefix + r"[0-9]{1,3}(\.[0-9]{1,3}){1,2}", name)
        ]
        if numbers:
            facts[fact] = max(numbers, key=lambda text: [int(part) for part in text.split(".")])
    return replace(library, facts=facts) if facts else library


def _cuda_libraries(host: Host, torch: Package) -> dict[str, FactValue]:
    """Return what libtorch_cuda needs, and whether its own folders come first; {} without one."""
    path = f"{torch.location}/lib/libtorch_cuda.so"
    if host.platform != "linux" or not torch.location or not host.is_file(path):
        return {}
    try:
        elf = extract(host, path, read_elf)
    except (NotElf, OSError):
        return {}
    # With a RUNPATH the loader takes no notice of an RPATH.
    facts: dict[str, FactValue] = {"own_folders_first": bool(elf.rpath) and not elf.runpath}
    if elf.needed:
        facts["cuda_libraries"] = list[object](elf.needed)
    return facts
