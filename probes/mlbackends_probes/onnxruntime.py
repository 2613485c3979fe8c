"""ONNX Runtime: runs ONNX models through execution providers.

Finds:    every flavour of the distribution, build_and_package_info.py as text, and the libraries
          of execution providers next to the module.
Usable:   imported in a child process, it runs a model of one operator with each provider that it offers.
Caveats:  a provider's file shows that it was built, not that it starts: onnxruntime falls back to the CPU
          and only logs why. All flavours install the same files: the last one wins.
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
CHECK = """
import onnxruntime

def field(number, text):
    return bytes([number << 3 | 2, len(text)]) + text

def value(name):
    return field(1, name) + field(2, field(1, b"\\x08\\x01" + field(2, field(1, b"\\x08\\x01"))))

node = field(1, b"x") + field(2, b"y") + field(4, b"Identity")
graph = field(1, node) + field(2, b"g") + field(11, value(b"x")) + field(12, value(b"y"))
model = b"\\x08\\x08" + field(7, graph) + field(8, b"\\x10\\x0d")

def runs(provider):
    session = onnxruntime.InferenceSession(model, providers=[provider])
    import numpy

    if session.run(None, {"x": numpy.ones(1, numpy.float32)})[0].tolist() != [1.0]:
        fail("wrong-result", f"{provider} did not return its input")
    return provider in session.get_providers()

offered = {
    name.replace("ExecutionProvider", "").lower(): name
    for name in onnxruntime.get_available_providers()
}
for short, provider in offered.items():
    if short not in ("cpu", "azure"):
        starts(short, lambda: runs(provider))
        why = facts["accelerators"][short]
        if "cannot open" in why and hasattr(onnxruntime, "preload_dlls"):
            starts(short, lambda: (onnxruntime.preload_dlls(), runs(provider))[1])
            if facts["accelerators"][short] == STARTS:
                why += "; it starts after onnxruntime.preload_dlls()"
            facts["accelerators"][short] = why
computed = runs(offered["cpu"])
started = [short for short, why in facts.get("accelerators", {}).items() if why == STARTS]
facts["providers"] = sorted([*started, "cpu"])
"""
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
        facts["provider_files"] = sorted(providers)
    cuda = str(facts.get("cuda_version", ""))
    build = f"onnxruntime {runtime.version}, built for CUDA {cuda},"
    warning = driver_warning(driver_release(host), cuda, build)
    return found(host, runtime, "onnxruntime", nonempty(facts), (warning,))
