"""ONNX Runtime: runs ONNX models through execution providers.

Finds:    every flavour of the distribution, build_and_package_info.py as text, and the libraries
          of execution providers that lie beside the module.
Caveats:  a provider's file says that it was built, not that it starts: onnxruntime falls back to
          the CPU without an error. All flavours install the same files: the last one wins.
Source:   ONNX Runtime documentation, "Install", "Execution Providers".
"""

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import PACKAGE_FACTS, Package, assigned_text, found, package
from mlbackends.host.variables import anything, steering
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

_NAMES = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-directml",
    "onnxruntime-openvino",
    "onnxruntime-rocm",
    "onnxruntime-migraphx",
    "onnxruntime-training",
    "onnxruntime-training-cpu",
    "onnxruntime-qnn",
    "onnxruntime-cann",
    "onnxruntime-vitisai",
    "onnxruntime-webgpu",
    "onnxruntime-azure",
    "onnxruntime-silicon",
    "ort-nightly",
    "ort-nightly-gpu",
    "ort-nightly-directml",
)
_PROVIDER = pattern(r"(?:lib)?onnxruntime_providers_(\w+)")
_RULES = {
    "ORT_TENSORRT_ENGINE_CACHE_ENABLE": anything,
    "ORT_TENSORRT_CACHE_PATH": anything,
    "ORT_TENSORRT_FP16_ENABLE": anything,
    "ORT_TENSORRT_MAX_WORKSPACE_SIZE": anything,
    "ORT_CUDA_UNAVAILABLE": anything,
    "ORT_DISABLE_TELEMETRY": anything,
    "OPENVINO_LIB_PATHS": anything,
}


def find(host: Host) -> Finding:
    """Read what the package says of itself, and list its providers."""
    runtime = package(host, _NAMES, "onnxruntime", "capi/build_and_package_info.py")
    if runtime is None:
        return found(host, None, "onnxruntime")
    told = _build(host, runtime)
    cuda = str(told.get("cuda_version", ""))
    what = f"onnxruntime {runtime.version}, built for CUDA {cuda},"
    return found(
        host,
        runtime,
        "onnxruntime",
        facts=told | steering(host, _RULES),
        warnings=(driver_warning(driver_release(host), cuda, what),),
    )


def _build(host: Host, runtime: Package) -> dict[str, FactValue]:
    facts: dict[str, FactValue] = {}
    if not runtime.location:
        return facts
    text = host.read(f"{runtime.location}/capi/build_and_package_info.py", 1 << 16)
    for name, key in (
        ("built_as", "package_name"),
        ("cuda_version", "cuda_version"),
        ("cudnn_version", "cudnn_version"),
        ("rocm_version", "rocm_version"),
    ):
        if told := assigned_text(text, key):
            facts[name] = told
    providers = {
        match[1]
        for name in host.listdir(f"{runtime.location}/capi")
        if (match := _PROVIDER.fullmatch(stem_of(name))) and match[1] != "shared"
    }
    if providers:
        facts["providers"] = list[object](sorted(providers))
    return facts
