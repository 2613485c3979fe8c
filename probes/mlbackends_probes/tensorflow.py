"""TensorFlow: the machine-learning framework, as it is installed.

Finds:    every flavour of the distribution, and build_info.py as text.
Caveats:  tensorflow is not imported. Some flavours are but the way to install another one.
Source:   TensorFlow, tensorflow/python/platform/build_info.py (tf.sysconfig.get_build_info).
"""

import re

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import PACKAGE_FACTS, Package, found, gpu_unused, package
from mlbackends.host.python.packages import distribution
from mlbackends.host.variables import anything, one_of
from mlbackends.libraries.cuda.driver import driver_release, driver_warning
from mlbackends.model.records import Fact, FactValue, Finding

GROUP = "framework"
SUMMARY = ("tensorflow {version}",)
FACTS = (
    *PACKAGE_FACTS,
    Fact("is_cuda_build", bool, "Whether it was built for CUDA."),
    Fact("is_rocm_build", bool, "Whether it was built for ROCm."),
    Fact("is_tensorrt_build", bool, "Whether it was built for TensorRT."),
    Fact("cuda_version", str, "The CUDA release that it was built for."),
    Fact("cudnn_version", str, "The cuDNN release that it was built for."),
    Fact("compute_capabilities", list[str], "The GPUs that it has machine code for."),
    Fact("compiler", str, "The C++ compiler that it was built with, by its path."),
    Fact("keras_version", str, "The version of Keras that is installed."),
    Fact("environment", dict[str, str], "The variables that steer TensorFlow and are set."),
)

_NAMES = (
    "tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm", "tensorflow-macos",
    "tensorflow-intel", "tensorflow-aarch64", "tensorflow-cpu-aws", "intel-tensorflow",
    "intel-tensorflow-avx512", "tf-nightly", "tf-nightly-cpu", "tf-nightly-gpu",
)  # fmt: skip
_ITEM = r"""['"]{name}['"]\s*[,:]\s*(True\b|False\b|'[^']*'|"[^"]*"|\[[^\]]*\])"""
_FLAGS = ("is_cuda_build", "is_rocm_build", "is_tensorrt_build")
VARIABLES = {
    "TF_CPP_MIN_LOG_LEVEL": one_of("0", "1", "2", "3"),
    "TF_CPP_MAX_VLOG_LEVEL": anything,
    "TF_ENABLE_ONEDNN_OPTS": one_of("0", "1", "true", "false"),
    "TF_FORCE_GPU_ALLOW_GROWTH": one_of("0", "1", "true", "false"),
    "TF_GPU_ALLOCATOR": anything,
    "TF_GPU_THREAD_MODE": one_of("global", "gpu_private", "gpu_shared"),
    **dict.fromkeys(
        (
            "TF_DETERMINISTIC_OPS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS",
            "TF_XLA_FLAGS", "TF_USE_LEGACY_KERAS", "KERAS_BACKEND",
        ),
        anything,
    ),
}  # fmt: skip


def find(host: Host) -> Finding:
    """Read what the package says of itself and of its build."""
    tensorflow = package(host, _NAMES, "tensorflow")
    if tensorflow is None:
        return found(host, None, "tensorflow")
    facts = _build(host, tensorflow)
    if keras := distribution(host, "keras") or distribution(host, "keras-nightly"):
        facts["keras_version"] = keras.version
    what = f"{tensorflow.name} {tensorflow.version}"
    warning = None
    if facts.get("is_cuda_build"):
        cuda = str(facts.get("cuda_version", ""))
        warning = driver_warning(driver_release(host), cuda, f"{what}, built for CUDA {cuda},")
    elif facts.get("is_cuda_build") is False and not facts.get("is_rocm_build"):
        warning = gpu_unused(host, what, "install tensorflow[and-cuda]")
    return found(
        host, tensorflow, "tensorflow", facts=facts, variables=VARIABLES, warnings=(warning,)
    )


def _build(host: Host, tensorflow: Package) -> dict[str, FactValue]:
    """Return what build_info.py tells; every item may be missing."""
    if not tensorflow.location:
        return {}
    text = host.read(f"{tensorflow.location}/python/platform/build_info.py", 1 << 16)

    def item(name: str) -> str:
        match = re.search(_ITEM.format(name=name), text)
        return match[1] if match else ""

    facts: dict[str, FactValue] = {
        name: value == "True" for name in _FLAGS if (value := item(name)) in ("True", "False")
    }
    keys = {"cuda_version": "cuda_version", "cudnn_version": "cudnn_version"}
    for name, key in (keys | {"compiler": "cpu_compiler"}).items():
        value = item(key)
        if value[:1] in ("'", '"') and value[1:-1]:
            facts[name] = value[1:-1]
    if listed := re.findall(r"""['"]([^'"]+)['"]""", item("cuda_compute_capabilities")):
        facts["compute_capabilities"] = list[object](listed)
    return facts
