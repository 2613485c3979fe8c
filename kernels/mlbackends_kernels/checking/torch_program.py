"""PyTorch's attention in a process of its own, for `sdpa check --peers`.

The interpreter of its environment runs this file: it imports torch and the standard library, and the file
`serving` beside it by its path.

    python torch_program.py FLASH_ATTENTION
"""

from __future__ import annotations

import ctypes
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
_TENSORS = ("query", "key", "value", "mask")


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
        self.details = {"version": torch.__version__, "threads": str(torch.get_num_threads())}

    def warm(self) -> None:
        """Compute a problem of a few rows, which also starts the threads."""
        with torch.no_grad():
            self.few()

    def few(self) -> Any:
        """Return attention of the first rows, without a mask."""
        options = {**self.options, "is_causal": False}
        return self.attend([tensor[..., :_SMALL, :] for tensor in self.tensors], None, options)

    def call(self) -> Any:
        """Compute once."""
        with torch.no_grad():
            result = self.attend(self.tensors, self.mask, self.options)
        self.output_bytes = result.numel() * result.element_size()
        return result

    def attend(self, tensors: list[Any], mask: Any, options: dict[str, Any]) -> Any:
        """Return attention by the chosen kernel."""
        from torch.nn.attention import sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention

        if options["dropout_p"]:
            torch.manual_seed(self.seed)
        with sdpa_kernel(self.kind):
            return scaled_dot_product_attention(*tensors, mask, **options)

    def save(self, result: Any, path: str) -> None:
        """Write the elements row by row."""
        flat = result.detach().contiguous().reshape(-1)
        with open(path, "wb") as file:
            if flat.numel():
                file.write(ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()))


class TorchBackward(Torch):
    """The backward pass of one of torch's kernels, through autograd."""

    def __init__(
        self, kind: str, problem: dict[str, Any], files: dict[str, str], grad_out: dict[str, Any]
    ) -> None:
        super().__init__(kind, problem, files)
        self.grad_out = _read(files["grad_out"], grad_out)
        self.wanted = dict(zip(("query", "key", "value"), self.tensors))  # noqa: B905  Python 3.8
        if problem["mask"] and problem["mask"]["requires_grad"]:
            self.wanted["mask"] = self.mask
        for tensor in self.wanted.values():
            tensor.requires_grad_()
        self.output_bytes = sum(each.numel() * each.element_size() for each in self.wanted.values())
        self.result: Any = None

    def warm(self) -> None:
        """Compute the gradients of a problem of a few rows."""
        few = self.few()
        torch.autograd.grad(few, self.tensors, torch.ones_like(few))

    def before(self) -> None:
        """Compute the result."""
        self.result = self.attend(self.tensors, self.mask, self.options)

    def call(self) -> Any:
        """Compute the gradients once, from what the forward pass has kept."""
        wanted = list(self.wanted.values())
        return torch.autograd.grad(self.result, wanted, self.grad_out, retain_graph=True)

    def save(self, result: Any, path: str) -> None:
        """Write the result, and each gradient."""
        super().save(self.result, path)
        for name, gradient in zip(self.wanted, result):  # noqa: B905
            super().save(gradient, f"{path}.{name}")


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

    def prepare(request: dict[str, Any]) -> Torch:
        problem, files = request["problem"], request["files"]
        if any((problem[name] or {}).get("requires_grad") for name in _TENSORS):
            return TorchBackward(kind, problem, files, request["grad_out"])
        return Torch(kind, problem, files)

    serving.serve(prepare)


if __name__ == "__main__":
    main(sys.argv[1])
