"""ONNX Runtime: runs ONNX models through execution providers.

Finds:    every flavour of the distribution, build_and_package_info.py as text, and the libraries
          of execution providers next to the module.
Caveats:  a provider's file shows that it was built, not that it starts: onnxruntime falls back to the CPU
          without an error. All flavours install the same files: the last one wins.
Source:   ONNX Runtime documentation, "Install", "Execution Providers".
"""

from typing import Any

from mlbackends.base.patterns import pattern
from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import assigned_text, found, package
from mlbackends.libraries.cuda.driver import driver_release, driver_warning
from mlbackends.libraries.library_names import stem_of
from mlbackends.model.records import Finding, nonempty

GROUP = "framework"

_FLAVOURS = (
    "gpu", "directml", "openvino", "rocm", "migraphx", "training", "training-cpu", "qnn", "cann",
    "vitisai", "webgpu", "azure", "silicon",
)  # fmt: skip
_NAMES = (
    *("onnxruntime", *(f"onnxruntime-{flavour}" for flavour in _FLAVOURS)),
    *("ort-nightly", "ort-nightly-gpu", "ort-nightly-directml"),
)
_PROVIDER = pattern(r"(?:lib)?onnxruntime_providers_(\w+)")


def find(host: Host) -> Finding:
    """Read the package's metadata and files, and list its providers."""
    runtime = package(host, _NAMES, "onnxruntime", "capi/build_and_package_info.py")
    if runtime is None:
        return found(host, None, "onnxruntime")
    facts: dict[str, Any] = {}
    if at := runtime.location:
        text = host.read(f"{at}/capi/build_and_package_info.py", 1 << 16)
        for name in ("built_as", "cuda_version", "cudnn_version", "rocm_version"):
            facts[name] = assigned_text(text, "package_name" if name == "built_as" else name)
        stems = (_PROVIDER.fullmatch(stem_of(name)) for name in host.listdir(f"{at}/capi"))
        providers = {match[1] for match in stems if match} - {"shared"}
        facts["providers"] = sorted(providers)
    cuda = str(facts.get("cuda_version", ""))
    build = f"onnxruntime {runtime.version}, built for CUDA {cuda},"
    warning = driver_warning(driver_release(host), cuda, build)
    return found(host, runtime, "onnxruntime", nonempty(facts), (warning,))
