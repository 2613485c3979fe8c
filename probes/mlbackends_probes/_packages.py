"""What the package probes in table.json read besides metadata: facts_NAME returns facts, and warnings.

Each gets the host and the package, which is installed. The sources are those that table.json names.
"""

import contextlib
import os
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import Reason
from mlbackends.base.specifiers import same_public_version
from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import (
    Package,
    assigned_text,
    built_for_torch,
    cache_folder,
    config_facts,
    entry_points,
    gpu_unused,
    named,
    torch_version_file,
)
from mlbackends.host.python.packages import Distribution, distribution, metadata
from mlbackends.host.system.kernel import mounted_above
from mlbackends.libraries.cuda.driver import cuda_of_driver, decode, driver_release, driver_warning
from mlbackends.libraries.library_names import stem_of

_Read = tuple[dict[str, Any], Sequence[Reason | None]]


def facts_numpy(host: Host, package: Package) -> _Read:
    """Read the configuration of NumPy's or SciPy's build."""
    name = os.path.basename(package.location)
    return config_facts(host, package.location, name) if package.location else {}, ()


facts_scipy = facts_numpy

# ---- frameworks ----------------------------------------------------------------------------------

_JAX_PLUGINS = (
    "jax-cuda11-*", "jax-cuda12-*", "jax-cuda13-*", "jax-rocm*", "jax-metal", "libtpu",
    "libtpu-nightly", "intel-extension-for-openxla",
)  # fmt: skip
_JAX_CUDA = pattern(r"jax-cuda(\d+)-plugin")


def facts_jax(host: Host, _: Package) -> _Read:
    """Read the metadata of jaxlib and the plugins."""
    jaxlib = distribution(host, "jaxlib") or distribution(host, "jaxlib-nightly")
    plugins = named(host, _JAX_PLUGINS)
    registered = entry_points(host, "jax_plugins")
    facts = {
        "jaxlib_version": jaxlib and jaxlib.version,
        "plugins": {plugin.name: plugin.version for plugin in reversed(plugins)},
        "plugin_entry_points": registered,
        "cudnn_needed": next(filter(None, (_cudnn(host, plugin) for plugin in plugins)), ""),
    }
    warnings: list[Reason | None] = []
    for plugin in plugins:  # its metadata names its pjrt, and not jaxlib
        is_plugin = re.fullmatch(r"jax-(?:cuda|rocm)\d+-plugin", plugin.name)
        if is_plugin and jaxlib and _minor(jaxlib.version) != _minor(plugin.version):
            message = f"{plugin.name} is {plugin.version}, and {jaxlib.name} is {jaxlib.version}"
            hint = f"install {plugin.name} and jaxlib of one version"
            warnings.append(Reason("conflict", message, hint))
    cuda = {plugin.name: match[1] for plugin in plugins if (match := _JAX_CUDA.fullmatch(plugin.name))}
    if len(majors := sorted(set(cuda.values()))) > 1:
        message = f"plugins for CUDA {' and '.join(majors)} are installed, and both register as cuda"
        warnings.append(Reason("conflict", message, "uninstall those for one of them"))
    release = driver_release(host)
    warnings += [driver_warning(release, f"{major}.0", name) for name, major in cuda.items()]
    if not plugins and not registered:
        extra = "cuda12" if cuda_of_driver(release).startswith("12.") else "cuda13"
        hint = f"install jax[{extra}]"
        warnings.append(gpu_unused(host, "jax without a plugin", hint))
    return facts, warnings


def _cudnn(host: Host, plugin: Distribution) -> str:
    """Return the oldest cuDNN that a plugin accepts, from its extra; XLA was compiled with that one."""
    match = re.search(r"\nRequires-Dist: nvidia-cudnn.*?>=\s*(\d+(?:\.\d+)*)", metadata(host, plugin))
    return match[1] if match else ""


def _minor(version: str) -> str:
    """Return the part of a version that must match: plugins have separate releases within 0.x.y."""
    return ".".join(version.split("+", maxsplit=1)[0].split(".")[:3])


_ITEM = r"""['"]{name}['"]\s*[,:]\s*(True\b|False\b|'[^']*'|"[^"]*"|\[[^\]]*\])"""
_FLAGS = ("is_cuda_build", "is_rocm_build", "is_tensorrt_build")


def facts_tensorflow(host: Host, tensorflow: Package) -> _Read:
    """Read build_info.py."""
    at, text = tensorflow.location, ""
    if at:
        text = host.read(f"{at}/python/platform/build_info.py", 1 << 16)

    def item(name: str) -> str:
        match = re.search(_ITEM.format(name=name), text)
        return match[1] if match else ""

    def quoted(name: str) -> str:
        return item(name)[1:-1] if item(name)[:1] in ("'", '"') else ""

    keras = distribution(host, "keras") or distribution(host, "keras-nightly")
    facts = {
        **{name: {"True": True, "False": False}.get(item(name)) for name in _FLAGS},
        "cuda_version": quoted("cuda_version"),
        "cudnn_version": quoted("cudnn_version"),
        "compiler": quoted("cpu_compiler"),
        "compute_capabilities": re.findall(r"""['"]([^'"]+)['"]""", item("cuda_compute_capabilities")),
        "keras_version": keras and keras.version,
    }
    build = f"{tensorflow.name} {tensorflow.version}"
    warning = None
    if facts.get("is_cuda_build"):
        cuda = quoted("cuda_version")
        warning = driver_warning(driver_release(host), cuda, f"{build}, built for CUDA {cuda},")
    elif facts.get("is_cuda_build") is False and not facts.get("is_rocm_build"):
        # PyPI's tensorflow is built with CUDA for x86-64 alone: tensorflow.org/install/pip.
        hint = f"uninstall {tensorflow.name}, then install tensorflow[and-cuda]"
        if host.machine == "aarch64":
            hint = "PyPI has no build with CUDA for aarch64: build one, or use a container that has it"
        warning = gpu_unused(host, build, hint)
    return facts, (warning,)


_PROVIDER = pattern(r"(?:lib)?onnxruntime_providers_(\w+)")


def facts_onnxruntime(host: Host, runtime: Package) -> _Read:
    """Read the build's description, and list the files of providers."""
    facts: dict[str, Any] = {}
    if at := runtime.location:
        text = host.read(f"{at}/capi/build_and_package_info.py", 1 << 16)
        for name in ("built_as", "cuda_version", "cudnn_version", "rocm_version"):
            facts[name] = assigned_text(text, "package_name" if name == "built_as" else name)
        stems = (_PROVIDER.fullmatch(stem_of(name)) for name in host.listdir(f"{at}/capi"))
        providers = {match[1] for match in stems if match} - {"shared"}
        facts["provider_files"] = sorted(providers)
    cuda = str(facts.get("cuda_version", ""))
    build = f"onnxruntime {runtime.version}, built for CUDA {cuda},"
    return facts, (driver_warning(driver_release(host), cuda, build),)


_CUPY_CUDA = pattern(r"cupy-cuda(\d{2})(\d|x)")
_CUPY_ROCM = pattern(r"cupy-rocm-(\d+)-(\d+|x)")


def facts_cupy(host: Host, cupy: Package) -> _Read:
    """Return the CUDA or ROCm in the distribution's name."""
    if match := _CUPY_CUDA.fullmatch(cupy.name):
        least = f"{match[1]}.{match[2] if match[2] != 'x' else 0}"
        warning = driver_warning(driver_release(host), least, f"{cupy.name} {cupy.version}")
        return {"cuda_version": f"{match[1]}.{match[2]}"}, (warning,)
    rocm = _CUPY_ROCM.fullmatch(cupy.name)
    return {"rocm_version": f"{rocm[1]}.{rocm[2]}"} if rocm else {}, ()


# ---- kernels -------------------------------------------------------------------------------------

_TOOLS = ("ptxas", "ptxas-blackwell", "cuobjdump", "nvdisasm")
_TOOL_FOLDERS = ("backends/nvidia/bin", "third_party/cuda/bin", "common/bin")
_PROGRAMS = (
    "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_CUOBJDUMP_PATH",
    "TRITON_NVDISASM_PATH", "TRITON_LIBCUDA_PATH", "TRITON_LIBHIP_PATH",
)  # fmt: skip


def facts_triton(host: Host, triton: Package) -> _Read:
    """List its back ends and tools, and check its variables."""
    backends, tools = set(entry_points(host, "triton.backends")), []
    if at := triton.location:
        names = host.listdir(f"{at}/backends")
        backends |= {name for name in names if host.is_file(f"{at}/backends/{name}/compiler.py")}
        tools = [
            tool for tool in _TOOLS if any(host.is_file(f"{at}/{folder}/{tool}") for folder in _TOOL_FOLDERS)
        ]
    paths = {name: host.env(name) for name in _PROGRAMS}
    warnings = [
        Reason("override-invalid", f"{name} is {path}, which does not exist", f"unset {name}")
        for name, path in paths.items()
        if path.startswith("/") and not host.exists(path)
    ]
    home = host.env("TRITON_HOME") or host.env("HOME")
    cache = host.env("TRITON_CACHE_DIR") or (f"{home}/.triton/cache" if home else "")
    mount = mounted_above(host, host.realpath(cache)) if cache.startswith("/") else None
    facts = {
        "bundled_tools": tools,
        "backends": sorted(backends),
        "cache_file_system": mount.kind if mount else "",
    }
    return facts, warnings


_ENGINE_PARTS = (
    "transformer-engine-cu*", "transformer-engine-torch", "transformer-engine-jax",
    "transformer-engine-paddle",
)  # fmt: skip
_ENGINE_CUDA = pattern(r"transformer-engine-cu(\d+)")


def facts_transformer_engine(host: Host, engine: Package) -> _Read:
    """Check that its parts match, and that they match torch."""
    parts = named(host, _ENGINE_PARTS)
    majors = sorted({match[1] for part in parts if (match := _ENGINE_CUDA.fullmatch(part.name))})
    facts = {
        "parts": {part.name: part.version for part in reversed(parts)},
        "cuda_major": majors[0] if len(majors) == 1 else "",
    }
    version = engine.metadata_version
    warnings: list[Reason | None] = [
        Reason(
            "conflict",
            f"transformer-engine is {version}, and {part.name} is {part.version}",
            f"install {part.name}=={version}",
        )
        for part in parts
        if version and not same_public_version(part.version, version)
    ]
    cuda = assigned_text(torch_version_file(host), "cuda")
    of_torch = cuda.partition(".")[0]
    if len(majors) > 1:
        message = f"transformer-engine is installed for CUDA {' and '.join(majors)}"
        warnings.append(Reason("conflict", message, "uninstall the parts for one of them"))
    elif majors and cuda and of_torch != majors[0]:
        message = f"transformer-engine is for CUDA {majors[0]}, and torch is built for CUDA {cuda}"
        warnings.append(Reason("conflict", message, f"install transformer-engine[core-cu{of_torch}]"))
    return facts, warnings


def facts_xformers(host: Host, xformers: Package) -> _Read:
    """Read what its build wrote: every item may be missing, or of another type."""
    build: dict[str, Any] = {}
    if xformers.location:
        with contextlib.suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            data = host.read_bytes(f"{xformers.location}/cpp_lib.json")
            build = msgspec.json.decode(data, type=dict[str, Any])
    version, environment = (
        part if isinstance(part, dict) else {} for part in (build.get("version"), build.get("env"))
    )
    # 1208 here is 12.8; the CUDA runtime would write 12080.
    cuda, own = version.get("cuda"), version.get("use_torch_flash")
    cuda = cuda if isinstance(cuda, int) else 0
    texts = {
        "built_for_torch": version.get("torch"),
        "built_for_cuda": decode(cuda // 100 * 1000 + cuda % 100 * 10),
        "built_for_python": version.get("python"),
        "built_for_architectures": environment.get("TORCH_CUDA_ARCH_LIST"),
        "flash_attention_version": version.get("flash"),
    }
    facts: dict[str, Any] = {name: text for name, text in texts.items() if isinstance(text, str)}
    if isinstance(own, bool):
        facts["uses_flash_attention_of_torch"] = own
    torch = facts.get("built_for_torch")
    warning = built_for_torch(host, "xformers", torch) if isinstance(torch, str) else None
    return facts, (warning,)


def facts_hf_kernels(host: Host, _: Package) -> _Read:
    """List the kernels in the cache, with their builds."""
    home = host.env("HF_HOME") or cache_folder(host, "huggingface")
    cache = host.env("KERNELS_CACHE") or host.env("HF_HUB_CACHE") or (f"{home}/hub" if home else "")
    builds: dict[str, list[str]] = {}
    for folder in host.listdir(cache) if cache else ():
        kind, *name = folder.split("--")
        for path in host.glob(f"{cache}/{folder}/snapshots/*/build/*") if name else ():
            if kind in ("kernels", "models"):
                builds.setdefault("/".join(name), []).append(os.path.basename(path))
    kernels = {name: sorted(set(names)) for name, names in builds.items()}
    return {"cache": cache if builds else "", "kernels": kernels}, ()


def facts_cutlass(host: Host, _: Sequence[Package | None]) -> _Read:
    """Read which libraries the DSL is made of."""
    return {
        "dsl_libraries": {dist.name: dist.version for dist in named(host, ("nvidia-cutlass-dsl-libs-*",))}
    }, ()


_FLASH_LOCAL = pattern(r"cu(\d{2,3})[.-]?torch(\d+\.\d+(?:\.\d+)?)", re.IGNORECASE)
_FLASHINFER_PARTS = ("flashinfer-cubin", "flashinfer-jit-cache")


def facts_flash_attention(host: Host, packages: Sequence[Package | None]) -> _Read:
    """Read what flash-attn's wheel was built for, and the parts of FlashInfer."""
    flash, *_, flashinfer = packages
    local = flash.metadata_version.partition("+")[2] if flash else ""
    built = _FLASH_LOCAL.search(local)
    cuda, torch = built.groups() if built else ("", "")
    folder = flash.location.rpartition("/")[0] if flash else ""
    names = host.listdir(folder) if folder else []
    stems = {stem_of(name).partition(".")[0] for name in names if name.startswith("flash_attn")}
    parts = {name: dist.version for name in _FLASHINFER_PARTS if (dist := distribution(host, name))}
    facts = {
        "built_for_cuda": cuda if len(cuda) < 3 else f"{cuda[:2]}.{cuda[2:]}",
        "built_for_torch": torch,
        "extension_modules": sorted(stems - {""}),
        "flashinfer_parts": parts,
    }
    warnings = [built_for_torch(host, flash.name, torch)] if flash and torch else []
    # FlashInfer refuses to start with kernels of another release.
    if flashinfer and "FLASHINFER_DISABLE_VERSION_CHECK" not in host.environment:
        warnings += [
            Reason(
                "conflict",
                f"{name} is {version}, and {flashinfer.name} is {flashinfer.version}",
                f"install {name}=={flashinfer.version}",
            )
            for name, version in parts.items()
            if not same_public_version(version, flashinfer.version)
        ]
    return facts, warnings
