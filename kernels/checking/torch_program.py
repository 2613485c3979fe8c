"""PyTorch's attention in a process of its own, for `sdpa check --peers`.

The interpreter of its environment runs this file: it imports torch and the standard library, and the file
`serving` beside it by its path.

    python torch_program.py FLASH_ATTENTION
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

import torch

_HERE = os.path.dirname(os.path.abspath(__file__))
_spec = importlib.util.spec_from_file_location("serving", os.path.join(_HERE, "serving.py"))
assert _spec is not None
assert _spec.loader is not None
serving: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(serving)
_SMALL = 8


class Torch(serving.Prepared):  # type: ignore[misc]
    """One of torch's kernels and one problem, as `mlbackends.model.problem` writes it in JSON."""

    def __init__(self, kind: str, problem: dict[str, Any], files: dict[str, str]) -> None:
        from torch.nn.attention import SDPBackend

        self.kind = getattr(SDPBackend, kind)
        names = ("query", "key", "value")
        self.tensors = [_read(files[name], problem[name]) for name in names]
        mask = problem.get("mask")
        self.mask = _read(files["mask"], mask) if mask else None
        self.options = {
            "dropout_p": problem["dropout"],
            "is_causal": problem["is_causal"],
            "scale": problem["scale"],
            "enable_gqa": problem["enable_gqa"],
        }
        self.seed = problem["seed"]
        self.told = {"version": torch.__version__, "threads": str(torch.get_num_threads())}

    def warm(self) -> None:
        """Compute a problem of a few rows, which also starts the threads."""
        options = {**self.options, "is_causal": False}
        rows = [tensor[..., :_SMALL, :] for tensor in self.tensors]
        self._attend(rows, None, options)

    def call(self) -> Any:
        """Compute once."""
        return self._attend(self.tensors, self.mask, self.options)

    def _attend(self, tensors: list[Any], mask: Any, options: dict[str, Any]) -> Any:
        from torch.nn.attention import sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention

        if options["dropout_p"]:
            torch.manual_seed(self.seed)
        with torch.no_grad(), sdpa_kernel(self.kind):
            result = scaled_dot_product_attention(*tensors, mask, **options)
        self.output_bytes = result.numel() * result.element_size()
        return result

    def save(self, result: Any, path: str) -> None:
        """Write the elements row by row."""
        flat = result.contiguous().reshape(-1)
        with open(path, "wb") as file:
            if flat.numel():
                file.write(memoryview(bytes(flat.view(torch.uint8).untyped_storage())))


def _read(path: str, spec: dict[str, Any]) -> Any:
    """Return the tensor of a file, lying in memory as the record says."""
    dtype = getattr(torch, spec["dtype"])
    if not os.path.getsize(path):
        return torch.empty(spec["shape"], dtype=dtype)
    with open(path, "rb") as file:
        flat = torch.frombuffer(bytearray(file.read()), dtype=dtype)
    return flat.as_strided(spec["shape"], spec["strides"])


def main(kind: str) -> None:
    """Answer requests for one of torch's kernels until standard input ends."""
    serving.serve(lambda request: Torch(kind, request["problem"], request["files"]))


if __name__ == "__main__":
    main(sys.argv[1])
