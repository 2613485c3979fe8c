"""Compile kernels through the real launch, for a GPU that is not there: a line of findings for each case.

A process of its own, since it puts a driver of its own into Triton: one that answers for the GPU that a
case names, with its limits, and that takes note of a launch instead of making it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from typing import Any

import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
from triton.backends.compiler import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    GPUTarget,
)

from mlbackends_kernels.cuda.device_array import DeviceArray
from mlbackends_kernels.triton import launching, tiles


class NoDevice:
    """What Triton asks of a driver. `loaded` and `launched` hold what it was given."""

    def __init__(self, capability: tuple[int, int]) -> None:
        self.capability = capability
        self.utils = self
        self.loaded: list[tuple[str, bytes, int]] = []
        self.launched: list[tuple[Any, ...]] = []

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        assert device == 0

    def get_current_stream(self, device: int) -> int:
        return 1

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", self.capability[0] * 10 + self.capability[1], 32)

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": tiles.shared_bytes(self.capability)}

    def load_binary(self, name: str, cubin: bytes, shared: int, device: int) -> tuple[int, ...]:
        self.loaded.append((name, cubin, shared))
        return 1, 1, 0, 0, 1024

    def unload_module(self, module: int) -> None:
        pass

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        assert metadata.global_scratch_size == 0  # nobody gives Triton memory of its own
        return lambda *arguments: self.launched.append((metadata, *arguments))


def tensor(shape: list[int], dtype: str, step: int = 1) -> DeviceArray:
    """Return a tensor at an aligned address; step: of its last dimension."""
    strides, size = [], step
    for each in reversed(shape):
        strides.append(size)
        size *= each
    return DeviceArray(1 << 20, shape, strides[::-1], dtype, 0, None)


def product(case: dict[str, Any], capability: tuple[int, int]) -> tuple[Any, launching.Launch]:
    from mlbackends_kernels.triton.batched_matmul import batched_matmul

    dtype = case["dtype"]
    return batched_matmul, launching.product(
        tensor([4, 512, 256], dtype),
        tensor([4, 256, 768], dtype),
        tensor([4, 512, 768], dtype),
        precision=case.get("precision", "ieee"),
        capability=capability,
    )


def resources(cubin: bytes) -> dict[str, Any]:
    """Return registers, bytes of stack and matrix instructions, as NVIDIA's tool in Triton tells them."""
    tool = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin", "cuobjdump")
    if not os.path.exists(tool):
        return {}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = [
            subprocess.run(
                [tool, option, file.name], check=True, capture_output=True, text=True
            ).stdout
            for option in ("-res-usage", "-sass")
        ]
    found = re.search(r"REG:(\d+) STACK:(\d+)", told[0])
    assert found, told[0]
    names = ("HMMA", "HGMMA", "UTCHMMA", "UTCQMMA")
    return {
        "registers": int(found[1]),
        "stack": int(found[2]),
        "matrix": [name for name in names if re.search(rf"\b{name}\b", told[1])],
    }


def main() -> None:
    triton.knobs.compilation.disable_line_info = True
    for case in json.load(sys.stdin):
        capability = tuple(case["capability"])
        driver = NoDevice(capability)
        triton.runtime.driver.set_active(driver)
        kernel, what = product(case, capability)
        kernel.device_caches.clear()
        kernel[what.grid](**what.arguments, **what.constants, **what.options)
        (name, cubin, shared), (metadata, *arguments) = driver.loaded[0], driver.launched[0]
        found = {
            "name": name,
            "shared": shared,
            "warps": metadata.num_warps,
            "grid": arguments[:3],
            "stream": arguments[3],
            "address": arguments[9].data_ptr(),
            **resources(cubin),
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
