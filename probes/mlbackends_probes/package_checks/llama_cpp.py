"""Open each backend for accelerators that llama-cpp-python ships."""

import ctypes
import glob
import os
import re
from functools import partial
from typing import Any

import llama_cpp


def check(child: Any) -> None:
    child.facts["offloads"] = bool(llama_cpp.llama_supports_gpu_offload())
    folder = os.path.join(os.path.dirname(llama_cpp.__file__), "lib")
    for path in sorted(glob.glob(f"{folder}/*ggml-*")):
        match = re.search(r"ggml-(cuda|hip|vulkan|sycl|metal|opencl|musa)\.", path)
        if match:
            child.starts(match.group(1), partial(ctypes.CDLL, path))
