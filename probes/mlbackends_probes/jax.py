"""JAX: array computing with jaxlib and its plugins for accelerators.

Finds:    jax, jaxlib, the plugins (packages and entry points of jax_plugins), libtpu.
Loadable: imported in a child process; each plugin is asked for its devices.
Caveats:  without a plugin it runs on the CPU, and prints only one line about it.
Source:   JAX documentation, "Installation", "Configuration options"; OpenXLA, "PJRT Plugin
          Mechanism"; Requires-Dist of jax and of the plugins.
"""

import re

from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.python import frameworks
from mlbackends.host.python.packages import Distribution, distribution
from mlbackends.libraries.cuda.driver import cuda_of_driver, driver_release, driver_warning
from mlbackends.model.records import Finding, nonempty

GROUP = "framework"

CHECK = """
from importlib.metadata import entry_points
import jax

def answers(kind):
    return jax.devices(kind)

points = entry_points()
if hasattr(points, "select"):
    points = points.select(group="jax_plugins")
else:  # before Python 3.10
    points = points.get("jax_plugins", ())
for point in points:
    for kind in ("cuda", "rocm", "tpu", "METAL", "xpu"):
        if kind.lower() in point.name.lower():
            starts(kind.lower(), lambda: answers(kind))
if deep:
    got = (jax.numpy.ones((2, 2)) @ jax.numpy.ones((2, 2))).tolist()
    if got != [[2.0, 2.0], [2.0, 2.0]]:
        fail("wrong-result", f"a product of matrices gave {got}")
    computed = True
"""
_PLUGINS = (
    "jax-cuda11-*", "jax-cuda12-*", "jax-cuda13-*", "jax-rocm*", "jax-metal", "libtpu",
    "libtpu-nightly", "intel-extension-for-openxla",
)  # fmt: skip
_CUDA = pattern(r"jax-cuda(\d+)-plugin")


def find(host: Host) -> Finding:
    """Read the metadata of jax, jaxlib and the plugins."""
    jax = frameworks.package(host, ("jax", "jax-nightly"), "jax")
    if jax is None:
        return frameworks.found(host, None, "jax")
    jaxlib = distribution(host, "jaxlib") or distribution(host, "jaxlib-nightly")
    plugins = frameworks.named(host, _PLUGINS)
    registered = frameworks.entry_points(host, "jax_plugins")
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
    cuda = {plugin.name: match[1] for plugin in plugins if (match := _CUDA.fullmatch(plugin.name))}
    if len(majors := sorted(set(cuda.values()))) > 1:
        message = (
            f"plugins for CUDA {' and '.join(majors)} are installed, and both register as cuda"
        )
        warnings.append(Reason("conflict", message, "uninstall those for one of them"))
    release = driver_release(host)
    warnings += [driver_warning(release, f"{major}.0", name) for name, major in cuda.items()]
    if not plugins and not registered:
        extra = "cuda12" if cuda_of_driver(release).startswith("12.") else "cuda13"
        hint = f"install jax[{extra}]"
        warnings.append(frameworks.gpu_unused(host, "jax without a plugin", hint))
    return frameworks.found(host, jax, "jax", nonempty(facts), warnings)


def _cudnn(host: Host, plugin: Distribution) -> str:
    """Return the oldest cuDNN that a plugin accepts, from its extra; XLA was compiled with that one."""
    lines = host.read(f"{plugin.info}/METADATA").splitlines()
    line = next((line for line in lines if line.startswith("Requires-Dist: nvidia-cudnn")), "")
    match = re.search(r">=\s*(\d+(?:\.\d+)*)", line)
    return match[1] if match else ""


def _minor(version: str) -> str:
    """Return the part of a version that must match: plugins have separate releases within 0.x.y."""
    return ".".join(version.split("+", maxsplit=1)[0].split(".")[:3])
