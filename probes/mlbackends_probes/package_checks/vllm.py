"""Import vLLM's operators, which it does without where they do not load."""

import glob
import os
from typing import Any

import torch  # noqa: F401  the operators need its libraries
import vllm


def check(child: Any) -> None:
    for name in ("_C", "_rocm_C", "_moe_C"):
        if glob.glob(f"{os.path.dirname(vllm.__file__)}/{name}.*"):
            child.imports(f"vllm.{name}")
