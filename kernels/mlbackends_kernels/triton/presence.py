"""What a launch by Triton needs beside the package, found without importing it."""

import os
import sys

from mlbackends.model.reasons import Reason

_TORCH_FREE = (3, 9)
"""From this version on Triton launches without torch."""


def missing_parts() -> tuple[Reason, ...]:
    """Return why Triton cannot launch in this process, () if it can as far as files tell."""
    from shutil import which

    from mlbackends.python_native import dsls

    torch, version = sys.modules.get("torch"), dsls.version("triton")
    message = hint = ""
    if missing := dsls.unavailable_reason("triton"):
        message, hint = missing, "pip install triton" if "installed" in missing else ""
    elif torch is None and version is not None and version.release < _TORCH_FREE:
        message = f"triton {version} launches only beside torch"
        hint = "install triton 3.9 or newer"
    elif torch is not None and not torch.cuda.is_available():
        message = "Triton asks the torch in this process for devices, and it has none"
    elif not (os.environ.get("CC") or which("clang") or which("gcc")):
        message = "Triton compiles its launcher with a C compiler, and there is none"
        hint = "install gcc"
    return (Reason("missing-part", message, hint),) if message else ()
