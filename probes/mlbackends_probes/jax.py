"""JAX: array computing with jaxlib and its plugins for accelerators.

Finds:    jax, jaxlib, the plugins (packages and entry points of jax_plugins), libtpu.
Caveats:  jax is not imported. Without a plugin it runs on the CPU, and says so in one line only.
Source:   JAX documentation, "Installation", "Configuration options"; OpenXLA, "PJRT Plugin
          Mechanism"; Requires-Dist of jax and of the plugins.
"""

import re

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import (
    PACKAGE_FACTS,
    entry_points,
    found,
    gpu_unused,
    named,
    package,
    range_warnings,
)
from mlbackends.host.python.packages import Distribution, distribution
from mlbackends.host.variables import anything, one_of
from mlbackends.libraries.cuda.driver import driver_release, driver_warning
from mlbackends.model.patterns import pattern
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Fact, FactValue, Finding

GROUP = "framework"
SUMMARY = ("jax {version}",)
FACTS = (
    *PACKAGE_FACTS,
    Fact("jaxlib_version", str, "The version of jaxlib, which holds the compiled part."),
    Fact("plugins", dict[str, str], "The plugins for accelerators, with their versions."),
    Fact(
        "plugin_entry_points",
        dict[str, str],
        "What registers itself when jax is imported: the entry points of jax_plugins.",
    ),
    Fact("environment", dict[str, str], "The variables that steer JAX and are set."),
)

_PLUGINS = (
    "jax-cuda11-*", "jax-cuda12-*", "jax-cuda13-*", "jax-rocm*", "jax-metal", "libtpu",
    "libtpu-nightly", "intel-extension-for-openxla",
)  # fmt: skip
_CUDA = pattern(r"jax-cuda(\d+)-plugin")
_TRUTH = one_of("0", "1", "true", "false", "yes", "no", "on", "off", "y", "n", "t", "f")
_ALLOCATORS = one_of("default", "platform", "bfc", "cuda_async", "address_space", "vmm")
VARIABLES = {
    "JAX_PLATFORMS": anything,
    "JAX_PLATFORM_NAME": anything,
    "JAX_ENABLE_X64": _TRUTH,
    "JAX_DISABLE_JIT": _TRUTH,
    "JAX_DEBUG_NANS": _TRUTH,
    **dict.fromkeys(
        (
            "JAX_TRACEBACK_FILTERING", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_COMPILATION_CACHE_DIR",
            "JAX_NUM_CPU_DEVICES", "JAX_CUDA_VISIBLE_DEVICES", "JAX_ROCM_VISIBLE_DEVICES",
            "XLA_FLAGS",
        ),
        anything,
    ),
    "XLA_PYTHON_CLIENT_PREALLOCATE": one_of("0", "1", "true", "false"),
    "XLA_PYTHON_CLIENT_MEM_FRACTION": anything,
    "XLA_PYTHON_CLIENT_ALLOCATOR": _ALLOCATORS,
    "LIBTPU_INIT_ARGS": anything,
    "TPU_LIBRARY_PATH": anything,
}  # fmt: skip


def find(host: Host) -> Finding:
    """Read what jax, jaxlib and the plugins say of themselves."""
    jax = package(host, ("jax", "jax-nightly"), "jax")
    if jax is None:
        return found(host, None, "jax")
    jaxlib = distribution(host, "jaxlib") or distribution(host, "jaxlib-nightly")
    plugins = named(host, _PLUGINS)
    registered = entry_points(host, "jax_plugins")
    facts: dict[str, FactValue] = {}
    if jaxlib:
        facts["jaxlib_version"] = jaxlib.version
    if plugins:
        facts["plugins"] = {plugin.name: plugin.version for plugin in reversed(plugins)}
    if registered:
        facts["plugin_entry_points"] = dict[str, object](registered)
    why = "jax refuses to start with another jaxlib, or misses functions"
    warnings: list[Reason | None] = [*range_warnings(host, jax, ("jaxlib",), why)]
    if not jaxlib:
        message = "jax is installed without jaxlib, and cannot start"
        warnings.append(Reason("conflict", message, "install jaxlib"))
    warnings += _plugin_warnings(host, plugins, jaxlib)
    release = driver_release(host)
    warnings += [
        driver_warning(release, f"{match[1]}.0", plugin.name)
        for plugin in plugins
        if (match := _CUDA.fullmatch(plugin.name))
    ]
    if not plugins and not registered:
        warnings.append(gpu_unused(host, "jax without a plugin", "install jax[cuda13]"))
    return found(host, jax, "jax", facts=facts, variables=VARIABLES, warnings=warnings)


def _plugin_warnings(
    host: Host, plugins: list[Distribution], jaxlib: Distribution | None
) -> list[Reason]:
    """Hold each plugin to the version of jaxlib and to that of its other half, -pjrt."""
    warnings = []
    for plugin in plugins:
        pair = re.fullmatch(r"(jax-(?:cuda|rocm)\d+)-plugin", plugin.name)
        if pair is None:
            continue
        hint = f"install {plugin.name}, {pair[1]}-pjrt and jaxlib of one version"
        partner = distribution(host, f"{pair[1]}-pjrt")
        for other in (partner, jaxlib):
            if other and _minor(other.version) != _minor(plugin.version):
                message = f"{plugin.name} is {plugin.version}, and {other.name} is {other.version}"
                warnings.append(Reason("conflict", message, hint))
        if partner is None:
            message = f"{plugin.name} is installed without {pair[1]}-pjrt, and cannot start"
            warnings.append(Reason("conflict", message, hint))
    majors = sorted({match[1] for one in plugins if (match := _CUDA.fullmatch(one.name))})
    if len(majors) > 1:
        message = (
            f"plugins for CUDA {' and '.join(majors)} are installed, and both register as cuda"
        )
        warnings.append(Reason("conflict", message, "uninstall those for one of them"))
    return warnings


def _minor(version: str) -> str:
    """Return what must be the same: plugins have releases of their own within 0.x.y."""
    return ".".join(version.split("+", maxsplit=1)[0].split(".")[:3])
