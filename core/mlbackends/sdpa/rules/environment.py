"""The versions and settings that torch's rules depend on, for this machine or any other."""

import os
import sys
from typing import Any

from msgspec import Struct

from mlbackends import cudnn
from mlbackends.model.problem import AttentionProblem
from mlbackends.switches import store


class Environment(Struct, frozen=True):
    """The environment of a torch.

    torch: its release, 2.13 or newer. cudnn_version: as cudnnGetVersion returns it, 91500 for 9.15.0 and
    8907 for 8.9.7; 0 without cuDNN. deterministic: deterministic algorithms are required, not only advised.
    nested_cudnn: whether TORCH_CUDNN_SDPA_NESTED_TENSOR_ENABLED is 1. composable_kernel: whether CK's kernels
    are preferred to AOTriton's on ROCm.
    """

    torch: tuple[int, int] = (2, 13)
    cudnn_version: int = 0
    deterministic: bool = False
    nested_cudnn: bool = False
    composable_kernel: bool = False


#: The newest torch with recorded rules; for questions about devices that this machine does not have.
NEWEST = Environment(torch=(2, 15), cudnn_version=92600)


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
    release = str(getattr(torch, "__version__", "")).split(".")[:2]
    return Environment(
        torch=(int(release[0]), int(release[1])) if "".join(release).isdecimal() else NEWEST.torch,
        cudnn_version=cudnn_version,
        deterministic=deterministic,
        nested_cudnn=os.environ.get("TORCH_CUDNN_SDPA_NESTED_TENSOR_ENABLED") == "1",
        composable_kernel=store.read("cuda.preferred_rocm_fa_library") == "ck",
    )
