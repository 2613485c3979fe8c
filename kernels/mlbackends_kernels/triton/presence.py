"""What a launch by Triton needs beside the package, found without importing it."""

import os
import sys

from mlbackends.model.reasons import Reason

_TORCH_FREE = (3, 9)
"""From this version on Triton launches without torch."""


def missing_parts() -> tuple[Reason, ...]:
    """Return why Triton cannot launch in this process, () if it can as far as files tell."""
    missing = _missing()
    return (Reason("missing-part", *missing),) if missing else ()


def _missing() -> tuple[str, str] | None:
    from mlbackends.python_native import dsls

    missing = dsls.unavailable_reason("triton")
    if missing:
        return missing, "pip install triton" if "installed" in missing else ""
    torch = sys.modules.get("torch")
    if torch is None:
        version = dsls.version("triton")
        if version is not None and version.release < _TORCH_FREE:
            return f"triton {version} launches only beside torch", "install triton 3.9 or newer"
    elif not torch.cuda.is_available():
        return "Triton asks the torch in this process for devices, and it has none", ""
    if not _has_compiler():
        return "Triton compiles its launcher with a C compiler, and there is none", "install gcc"
    return None


def _has_compiler() -> bool:
    from shutil import which

    return bool(os.environ.get("CC") or which("clang") or which("gcc"))
