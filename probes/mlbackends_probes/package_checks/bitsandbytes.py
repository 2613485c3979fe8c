"""Start bitsandbytes' own library, which fails at its first use."""

from typing import Any

import torch
from bitsandbytes import cextension


def check(child: Any) -> None:
    if torch.cuda.is_available():
        child.starts("rocm" if torch.version.hip else "cuda", _opens)


def _opens() -> bool:
    if hasattr(cextension.lib, "error_msg"):
        raise OSError(cextension.lib.error_msg)
    return True
