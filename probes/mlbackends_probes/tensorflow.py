"""TensorFlow: the machine-learning framework, as it is installed.

Finds:    every flavour of the distribution, and build_info.py as text.
Loadable: imported in a child process; a build for GPUs lists them.
Caveats:  some flavours are but the way to install another one.
Source:   TensorFlow, tensorflow/python/platform/build_info.py (tf.sysconfig.get_build_info).
"""

import re

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import found, gpu_unused, package
from mlbackends.host.python.packages import distribution
from mlbackends.libraries.cuda.driver import driver_release, driver_warning
from mlbackends.model.records import Finding, nonempty

GROUP = "framework"

_NAMES = (
    "tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm", "tensorflow-macos",
    "tensorflow-intel", "tensorflow-aarch64", "tensorflow-cpu-aws", "intel-tensorflow",
    "intel-tensorflow-avx512", "tf-nightly", "tf-nightly-cpu", "tf-nightly-gpu",
)  # fmt: skip
CHECK = """
import tensorflow

if tensorflow.test.is_built_with_cuda() or tensorflow.test.is_built_with_rocm():
    starts("gpu", lambda: tensorflow.config.list_physical_devices("GPU"))
if deep:
    got = tensorflow.linalg.matmul([[1.0, 2.0]], [[3.0], [4.0]]).numpy().tolist()
    if got != [[11.0]]:
        fail("wrong-result", f"a product of matrices gave {got}")
    computed = True
"""
_ITEM = r"""['"]{name}['"]\s*[,:]\s*(True\b|False\b|'[^']*'|"[^"]*"|\[[^\]]*\])"""
_FLAGS = ("is_cuda_build", "is_rocm_build", "is_tensorrt_build")


def find(host: Host) -> Finding:
    """Read the package's metadata and files and of its build."""
    tensorflow = package(host, _NAMES, "tensorflow")
    if tensorflow is None:
        return found(host, None, "tensorflow")
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
        "compute_capabilities": re.findall(
            r"""['"]([^'"]+)['"]""", item("cuda_compute_capabilities")
        ),
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
            hint = (
                "PyPI has no build with CUDA for aarch64: build one, or use a container that has it"
            )
        warning = gpu_unused(host, build, hint)
    return found(host, tensorflow, "tensorflow", nonempty(facts), (warning,))
