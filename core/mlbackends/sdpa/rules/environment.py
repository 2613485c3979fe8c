"""The versions and settings that torch's rules depend on, for this machine or any other."""

import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from mlbackends import cudnn
from mlbackends.base.installed import installed_version
from mlbackends.known_wrong import Place
from mlbackends.libraries.cuda import cudnn_number, cudnn_release
from mlbackends.model.problem import AttentionProblem
from mlbackends.model.records import Device
from mlbackends.sdpa.rules.wheels import WHEELS
from mlbackends.switches import store


class Environment(Struct, frozen=True):
    """The environment of a torch.

    torch: the release whose rules apply. cudnn_version: as cudnnGetVersion returns it, 91500 for 9.15.0 and
    8907 for 8.9.7; 0 without cuDNN. deterministic: deterministic algorithms are required, not only advised.
    nested_cudnn: whether TORCH_CUDNN_SDPA_NESTED_TENSOR_ENABLED is 1. composable_kernel: whether CK's kernels
    are preferred to AOTriton's on ROCm. experimental: whether EXPERIMENTAL is 1. torch_version: the exact
    one, "" for the newest of the release. others: the versions that are assumed, by name, such as cuda.
    """

    torch: tuple[int, int] = (2, 13)
    cudnn_version: int = 0
    deterministic: bool = False
    nested_cudnn: bool = False
    composable_kernel: bool = False
    experimental: bool = False
    torch_version: str = ""
    others: tuple[tuple[str, str], ...] = ()

    def place(self, device: Device) -> Place:
        """Return where problems on a device are computed, for the reports of wrong numbers."""
        versions = {**dict(self.others), "torch": self.torch_version or "{}.{}".format(*self.torch)}
        if self.cudnn_version:
            versions["cudnn"] = cudnn_release(self.cudnn_version)
        platform = "cuda" if device.kind == "mig" else device.kind
        return Place(platform, versions, frozenset({device.capability, *device.features}), sys.platform)


#: The releases of torch whose rules are recorded, and the cuDNN of their wheels for CUDA.
CUDNN = {release: wheel.cudnn for release, wheel in WHEELS.items()}
#: The variable that lets torch use AOTriton's kernels for experimental GPUs.
EXPERIMENTAL = "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL"
_NESTED = "TORCH_CUDNN_SDPA_NESTED_TENSOR_ENABLED"
RECORDED = tuple(".".join(map(str, release)) for release in sorted(CUDNN))
NEWEST = Environment(torch=max(CUDNN), cudnn_version=CUDNN[max(CUDNN)])


def installed_torch() -> str:
    """Return the version of the torch that is loaded, else of the one that is installed, "" for none."""
    return str(getattr(sys.modules.get("torch"), "__version__", "")) or installed_version("torch")


def release_of(version: str) -> tuple[int, int]:
    """Return the recorded release of torch that is nearest to a version, the newest for ""."""
    parts = version.split(".")[:2]
    if not "".join(parts).isdecimal():
        return NEWEST.torch
    return min(max((int(parts[0]), int(parts[1])), min(CUDNN)), max(CUDNN))


def basis(version: str, is_installed: bool = True) -> str:
    """Return which torch the rules are of, and why, for a version or "" for none.

    is_installed: whether the version is that of the installed torch, not an assumed one.
    """
    release = release_of(version)
    name = "torch {}.{}".format(*release)
    if not version:
        return f"torch is not installed here; {name} is assumed"
    is_recorded = version.split(".")[:2] == [*map(str, release)]
    if not is_installed:
        return (
            "" if is_recorded else f"the rules of torch {version} are not recorded; those of {name} are used"
        )
    if is_recorded:
        return f"torch {version} is installed here"
    return f"torch {version} is installed here, whose rules are not recorded; those of {name} are used"


def environment_elsewhere(versions: Mapping[str, str] = MappingProxyType({})) -> Environment:
    """Return the environment of a device that this machine does not have: the installed torch's.

    versions: those to assume instead, of torch, cudnn and others; cuDNN is then that of torch's wheels,
    unless named.
    """
    torch = versions.get("torch") or installed_torch()
    release = release_of(torch)
    number = CUDNN[release] if "torch" in versions else int(cudnn.version() or CUDNN[release])
    if "cudnn" in versions:
        number = cudnn_number(versions["cudnn"])
    return Environment(
        torch=release,
        cudnn_version=number,
        torch_version=torch,
        others=tuple(sorted(versions.items())),
        nested_cudnn=_is_set(_NESTED),
        composable_kernel=_prefers_ck(),
        experimental=_is_set(EXPERIMENTAL),
    )


def _is_set(variable: str) -> bool:
    return os.environ.get(variable) == "1"


def _prefers_ck() -> bool:
    return bool(store.read("cuda.preferred_rocm_fa_library") == "ck")


def environment_here(problem: AttentionProblem) -> Environment:
    """Return the environment of this process; cuDNN is searched only for a problem on CUDA."""
    cudnn_version = 0
    if problem.platform == "cuda":
        cudnn_version = int(cudnn.version() or 0)
    torch: Any = sys.modules.get("torch")
    deterministic = False
    if hasattr(torch, "are_deterministic_algorithms_enabled"):
        warns = torch.is_deterministic_algorithms_warn_only_enabled()
        deterministic = bool(torch.are_deterministic_algorithms_enabled()) and not warns
    return Environment(
        torch=release_of(installed_torch()),
        cudnn_version=cudnn_version,
        deterministic=deterministic,
        nested_cudnn=_is_set(_NESTED),
        composable_kernel=_prefers_ck(),
        experimental=_is_set(EXPERIMENTAL),
        torch_version=installed_torch(),
    )
