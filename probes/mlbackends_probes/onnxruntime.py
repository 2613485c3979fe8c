"""ONNX Runtime: runs ONNX models through execution providers.

Finds:    every flavour of the distribution, build_and_package_info.py as text, and the libraries
          of execution providers that lie beside the module.
Caveats:  a provider's file says that it was built, not that it starts: onnxruntime falls back to
          the CPU without an error. All flavours install the same files: the last one wins.
Source:   ONNX Runtime documentation, "Install", "Execution Providers".
"""

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import PACKAGE_FACTS, assigned_text, found, package
from mlbackends.libraries.cuda.driver import driver_release, driver_warning
from mlbackends.libraries.search import stem_of
from mlbackends.model.patterns import pattern
from mlbackends.model.records import Fact, FactValue, Finding

GROUP = "framework"
SUMMARY = ("onnxruntime {version}",)
FACTS = (
    *PACKAGE_FACTS,
    Fact("built_as", str, "The flavour whose files are there, by their own word."),
    Fact("providers", list[str], "The execution providers that have a library here."),
    Fact("cuda_version", str, "The CUDA release that it was built for."),
    Fact("cudnn_version", str, "The cuDNN release that it was built for."),
    Fact("rocm_version", str, "The ROCm release that it was built for."),
    Fact("environment", dict[str, str], "The variables that steer ONNX Runtime and are set."),
)

_FLAVOURS = (
    "gpu", "directml", "openvino", "rocm", "migraphx", "training", "training-cpu", "qnn", "cann",
    "vitisai", "webgpu", "azure", "silicon",
)  # fmt: skip
_NAMES = (
    *("onnxruntime", *(f"onnxruntime-{flavour}" for flavour in _FLAVOURS)),
    *("ort-nightly", "ort-nightly-gpu", "ort-nightly-directml"),
)
_PROVIDER = pattern(r"(?:lib)?onnxruntime_providers_(\w+)")
VARIABLES = (
    "ORT_TENSORRT_ENGINE_CACHE_ENABLE", "ORT_TENSORRT_CACHE_PATH", "ORT_TENSORRT_FP16_ENABLE",
    "ORT_TENSORRT_MAX_WORKSPACE_SIZE", "ORT_CUDA_UNAVAILABLE", "ORT_DISABLE_TELEMETRY",
    "OPENVINO_LIB_PATHS",
)  # fmt: skip


def find(host: Host) -> Finding:
    """Read what the package says of itself, and list its providers."""
    runtime = package(host, _NAMES, "onnxruntime", "capi/build_and_package_info.py")
    if runtime is None:
        return found(host, None, "onnxruntime")
    facts: dict[str, FactValue] = {}
    if at := runtime.location:
        text = host.read(f"{at}/capi/build_and_package_info.py", 1 << 16)
        for name in ("built_as", "cuda_version", "cudnn_version", "rocm_version"):
            if value := assigned_text(text, "package_name" if name == "built_as" else name):
                facts[name] = value
        stems = (_PROVIDER.fullmatch(stem_of(name)) for name in host.listdir(f"{at}/capi"))
        if providers := {match[1] for match in stems if match and match[1] != "shared"}:
            facts["providers"] = list[object](sorted(providers))
    cuda = str(facts.get("cuda_version", ""))
    what = f"onnxruntime {runtime.version}, built for CUDA {cuda},"
    warning = driver_warning(driver_release(host), cuda, what)
    return found(
        host, runtime, "onnxruntime", facts=facts, variables=VARIABLES, warnings=(warning,)
    )
