"""PyTorch: the machine-learning framework, as it is installed.

Finds:    the distribution, torch/version.py as text, and every libtorch_cpu.
Loadable: libtorch_cpu opens by itself, and reports its CPU capability and its build (on x86-64 Linux).
Usable:   imported in a child process, it multiplies two matrices correctly on the CPU and on each device that
          it offers. That takes seconds, so only if torch is named, or with --deep; it is always imported.
Caveats:  MPS is known from a header that only builds with it have, else by the default of arm64 Macs.
          libtorch without Python is found as well.
Source:   torch/version.py; at::get_cpu_capability in ATen/Version.h; PyTorch documentation,
          "PYTORCH ProcessGroupNCCL environment variables" and "CUDA environment variables".
"""

import contextlib
import os
import re
from collections.abc import Iterator

from msgspec.structs import replace

from mlbackends.base.errors import NotALibrary
from mlbackends.base.patterns import pattern
from mlbackends.host.declared import steering
from mlbackends.host.host import Host
from mlbackends.host.python import frameworks
from mlbackends.host.python.packages import module_location
from mlbackends.host.python.requirements import required
from mlbackends.libraries.c_calls import CDLL
from mlbackends.libraries.c_runtime import highest, returned_string
from mlbackends.libraries.consumers import marked
from mlbackends.libraries.cuda.driver import driver_release, driver_warning
from mlbackends.libraries.elf import elf_headers
from mlbackends.libraries.library_names import native_names, stem_of
from mlbackends.libraries.search import libraries_named
from mlbackends.libraries.symbols import version_needs
from mlbackends.model.records import Answer, FactValue, Finding, Library, Presence, nonempty

GROUP = "framework"
SUMMARY = (
    "CUDA {cuda_version}",
    "HIP {hip_version}",
    "XPU {xpu_version}",
    "{cpu_capability} kernels",
)

_NAMES = ("torch", "torch-nightly", "torch-cpu", "torch-rocm", "torch-xpu", "pytorch")
_PARTNERS = (
    "torchvision", "torchaudio", "torchtext", "torch-tensorrt", "xformers", "vllm",
    "intel-extension-for-pytorch",
)  # fmt: skip
_OWN = ("libtorch", "libc10", "libshm", "torch", "c10", "shm", "libaoti", "libcaffe2")
_FIRST_WITH_MPS = (1, 12)
#: Where packages next to torch have a file that is compiled for its CUDA.
_EXTENSIONS = (
    "vllm/_C*.so", "sgl_kernel/*.so", "sgl_kernel/sm*/*.so", "flash_attn_2_cuda*.so", "xformers/_C*.so",
    "torchvision/_C.so", "causal_conv1d_cuda*.so", "selective_scan_cuda*.so", "fused_layer_norm_cuda*.so",
)  # fmt: skip
_CUDA_RUNTIME = pattern(r"libcudart\.so\.(\d{2})(?:\.0)?")


def find(host: Host) -> Finding:
    """Read the package's metadata and files, and look for libtorch_cpu."""
    torch = frameworks.package(host, _NAMES, "torch", "version.py")
    copies = marked(host, libraries_named(host, "torch", "libtorch_cpu"))
    libraries = [_described(host, library) for library in copies]
    if torch is None:
        if not libraries:
            return frameworks.found(host, None, "torch")
        return Finding(tuple(libraries), facts=steering(host, "torch"))
    facts = _build(host, torch)
    build = f"torch {torch.version}".rstrip()
    warning = None
    if facts.get("built_for") == "cuda":
        cuda = str(facts["cuda_version"])
        warning = driver_warning(driver_release(host), cuda, f"{build}, built for CUDA {cuda},")
    elif facts.get("built_for") == "cpu" and host.platform != "darwin":
        warning = frameworks.gpu_unused(host, build, "install a build of torch for CUDA")
    # torchcodec needs one of these versions of libavutil.
    place = module_location(host, "torchcodec") if host.platform == "linux" else ""
    names = [name for name in host.listdir(place) if name.startswith("libtorchcodec")] if place else []
    needed = {
        library
        for name in names
        for library in _needed(host, f"{place}/{name}")
        if library.startswith("libavutil.so.")
    }
    present = {copy.soname for copy in libraries_named(host, "ffmpeg", "libavutil")} if needed else ()
    # AMD's wheels of torch have the code for the GPU in another package.
    info = torch.installed[0].info if torch.installed else ""
    has_extras = "\nProvides-Extra: device-gfx" in host.read(f"{info}/METADATA") if info else False
    partners = {
        # The packages that are compiled against one version of torch.
        "partners": [
            {"package": dist.name, "version": dist.version, "wanted": requirement.pinned}
            for dist in frameworks.named(host, _PARTNERS)
            for requirement in required(host, dist)
            if requirement.name == "torch" and requirement.pinned
        ],
        "backend_plugins": frameworks.entry_points(host, "torch.backends"),
        "other_cuda_extensions": list(_for_other_cuda(host, str(facts.get("cuda_version", "")))),
        "missing_ffmpeg": sorted(needed) if needed.isdisjoint(present) else [],
        "lacks_device_wheel": (has_extras and not frameworks.named(host, ("amd-torch-device-*",))) or None,
    }
    finding = frameworks.found(host, torch, "torch", facts | nonempty(partners), (warning,))
    # If there are libraries, torch's presence is theirs.
    presence = None if libraries else Presence.FOUND
    return replace(finding, libraries=tuple(libraries), presence=presence)


def learned(facts: dict[str, FactValue]) -> dict[str, FactValue]:
    """Return what the check of the package left as facts."""
    return facts | _configuration(str(facts.pop("configuration", "")))


def load(opened: CDLL, library: Library) -> Answer:
    """Return the kernels that it uses on this processor, its threads, and how it was built."""
    facts = _configuration(returned_string(opened, "_ZN2at11show_config") or "")
    if capability := returned_string(opened, "_ZN2at18get_cpu_capability"):
        facts["cpu_capability"] = capability
    for fact, name in (("threads", "num_threads"), ("interop_threads", "num_interop_threads")):
        if function := getattr(opened, f"_ZN2at{len(name) + 4}get_{name}Ev", None):
            facts[fact] = int(function())
    return Answer(library, facts=facts)


def _configuration(text: str) -> dict[str, FactValue]:
    """Return the facts in what torch.__config__.show() prints."""
    settings = dict(
        part.split("=", 1) for part in text.partition("Build settings: ")[2].split(", ") if "=" in part
    )
    openmp = re.search(r"OpenMP (\d{6})", text)
    compiler = re.search(r"- ((?:GCC|Clang|clang|MSVC) [\w.]+)", text)
    capability = re.search(r"CPU capability usage: (\w+)", text)
    return nonempty(
        {
            "cpu_capability": capability and capability[1],
            "compiler": compiler and compiler[1],
            "blas": settings.get("BLAS_INFO"),
            "lapack": settings.get("LAPACK_INFO"),
            "openmp_date": int(openmp[1]) if openmp else None,
            "build_settings": settings,
        }
    )


def _build(host: Host, torch: frameworks.Package) -> dict[str, FactValue]:
    """Return the facts in version.py and the library folder."""
    at = torch.location
    if not at:
        return {}
    text = host.read(f"{at}/version.py", 1 << 16)
    versions = {name: frameworks.assigned_text(text, name) for name in ("cuda", "hip", "rocm", "xpu")}
    kinds = (("cuda", "cuda"), ("rocm", "hip"), ("xpu", "xpu"))
    built_for = next((kind for kind, name in kinds if versions[name]), "cpu")
    if built_for == "cpu" and host.platform == "darwin":
        # As torch.backends.mps.is_built() would have it.
        release = re.match(r"(\d{1,4})\.(\d{1,4})(?!\d)", torch.version)
        is_new = release and (int(release[1]), int(release[2])) >= _FIRST_WITH_MPS
        has_header = host.exists(f"{at}/include/ATen/MPSFunctions.h")
        built_for = "mps" if has_header or (host.machine == "arm64" and is_new) else "cpu"
    facts = {
        **{f"{name}_version": version for name, version in versions.items()},
        # Without a version.py that makes sense, nothing is known, not even that it is for the CPU.
        "built_for": built_for if frameworks.assigned_text(text, "__version__") else "",
        "debug": frameworks.assigned_flag(text, "debug"),
        "git_version": frameworks.assigned_text(text, "git_version"),
        "libraries_present": [
            name
            for name in host.listdir(f"{at}/lib")
            if (stem := stem_of(name)).startswith(_OWN) and "test" not in stem
        ],
    }
    path = f"{at}/lib/{native_names(host, 'libtorch_cuda.so')}"
    if host.platform == "win32":
        from mlbackends.libraries.pe import pe_headers

        with contextlib.suppress(NotALibrary, OSError):
            facts["cuda_libraries"] = list(pe_headers(host, path).needed)
    elif host.platform == "linux" and host.is_file(path):
        with contextlib.suppress(NotALibrary, OSError):
            elf = elf_headers(host, path)
            # With a RUNPATH the loader takes no notice of an RPATH.
            facts["own_folders_first"] = bool(elf.rpath) and not elf.runpath
            facts["cuda_libraries"] = list(elf.needed)
    return nonempty(facts)


def _needed(host: Host, path: str) -> tuple[str, ...]:
    """Return the libraries that an ELF file needs, () for another file."""
    try:
        return elf_headers(host, path).needed
    except (NotALibrary, OSError):
        return ()


def _for_other_cuda(host: Host, cuda: str) -> Iterator[dict[str, str]]:
    """Yield each extension of torch that needs the CUDA runtime of another major version than torch does."""
    place = os.path.dirname(module_location(host, "torch"))
    for name in _EXTENSIONS if cuda and place and host.platform == "linux" else ():
        for path in host.glob(f"{place}/{name}")[:1]:
            runtimes = [_CUDA_RUNTIME.fullmatch(library) for library in _needed(host, path)]
            for match in filter(None, runtimes):
                if match[1] != cuda.partition(".")[0]:
                    yield {"path": path, "needs": match[0]}


def _described(host: Host, library: Library) -> Library:
    """Add the version, from the package around the lib folder or from libtorch without Python.

    The newest symbols of glibc and libstdc++ that the copy needs are added too.
    """
    above = os.path.dirname(os.path.dirname(library.path))
    version = frameworks.assigned_text(host.read(f"{above}/version.py", 1 << 16), "__version__")
    if not version:
        version = host.read(f"{above}/build-version", 200).strip()
    if version and "\n" not in version and version.isprintable():
        library = replace(library, version=version)
    if host.platform == "win32" and not library.reasons:
        from mlbackends.libraries.windows import cxx_runtime_facts

        return replace(library, facts=nonempty(cxx_runtime_facts(host, library.path)))
    if host.platform != "linux" or library.reasons:
        return library
    try:
        needs = host.extracted(library.path, version_needs, dict[str, tuple[str, ...]])
    except (NotALibrary, OSError):
        return library
    names = [name for versions in needs.values() for name in versions]
    facts = {"glibc_needed": highest(names, "GLIBC_")}
    facts["libstdcxx_needed"] = highest(names, "GLIBCXX_")
    return replace(library, facts=nonempty(facts))
