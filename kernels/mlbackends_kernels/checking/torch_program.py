"""PyTorch's attention in a separate process, for `sdpa check --peers`.

The interpreter of its environment runs this file, which imports torch, the standard library, and the files
`serving` and `device_timing` next to it by their paths.

    python torch_program.py FLASH_ATTENTION
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys
from types import SimpleNamespace
from typing import Any

import torch

_FOLDER = os.path.dirname(os.path.abspath(__file__))
serving: Any = SimpleNamespace(**runpy.run_path(os.path.join(_FOLDER, "serving.py")))
_timing: Any = SimpleNamespace(**runpy.run_path(os.path.join(_FOLDER, "device_timing.py")))
_SMALL = 8
_INPUTS = ("query", "key", "value")


class _Memory:
    """The memory of a device, by torch's allocator."""

    by = "torch.cuda.max_memory_allocated"

    def __init__(self, index: int) -> None:
        self._index = index

    def reset(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._index)

    def held(self) -> int:
        return int(torch.cuda.memory_allocated(self._index))

    def peak(self) -> int:
        return int(torch.cuda.max_memory_allocated(self._index))


class Torch(serving.Prepared):  # type: ignore[misc]
    """One of torch's kernels and one problem, in the JSON of `mlbackends.model.problem`.

    If a tensor requires a gradient, the backward pass through autograd is computed.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        problem, files = request["problem"], request["files"]
        self.problem, self.seed = problem, problem["seed"]
        self.details = {"version": torch.__version__, **self.facts()}
        place = "cpu"
        if problem["device"]["kind"] == "cpu":
            self.details["threads"] = str(torch.get_num_threads())
        else:
            index = problem["device"]["index"]
            place = f"cuda:{index}"
            if not torch.cuda.is_available():
                raise serving.Refused(f"torch {torch.__version__} sees no CUDA device")
            torch.cuda.set_device(index)
            torch.cuda.empty_cache()  # memory of the previous problem
            torch.empty(1, device=place)  # creates the context
            self.measure = _timing.OnDevice(_Memory(index))
        named = {name: _read(files[name], problem[name]).to(place) for name in _INPUTS}
        if problem.get("mask"):
            named["mask"] = _read(files["mask"], problem["mask"]).to(place)
        self.tensors, self.mask = [named[name] for name in _INPUTS], named.get("mask")
        self.options = {name: problem[name] for name in ("is_causal", "scale", "enable_gqa")}
        self.options["dropout_p"] = problem["dropout"]
        self.differentiated: dict[str, Any] = {}
        required = {name for name in named if problem[name]["requires_grad"]}
        if required:  # the gradients of all inputs, whichever requires one
            names = required.union(_INPUTS)
            self.differentiated = {name: tensor for name, tensor in named.items() if name in names}
        self.grad_out: Any = None
        self.result: Any = None
        if self.differentiated:
            self.grad_out = _read(files["grad_out"], request["grad_out"]).to(place)
            for tensor in self.differentiated.values():
                tensor.requires_grad_()
            sizes = [tensor.numel() * tensor.element_size() for tensor in self.differentiated.values()]
            self.output_bytes = sum(sizes)

    def facts(self) -> dict[str, str]:
        """Return facts about the library that computes, if it is not torch.

        Raises Refused where it is missing.
        """
        return {}

    def warm(self) -> None:
        """Compute a few rows without a mask, which also starts the threads."""
        options = {**self.options, "is_causal": False}
        with torch.set_grad_enabled(bool(self.differentiated)):
            few = self.attend([tensor[..., :_SMALL, :] for tensor in self.tensors], None, options)
            if self.differentiated:
                torch.autograd.grad(few, self.tensors, torch.ones_like(few))

    def before(self) -> None:
        if self.differentiated:
            self.result = self.attend(self.tensors, self.mask, self.options)

    def call(self) -> Any:
        """Compute once: the result, or the gradients of the forward pass in `before`."""
        if self.differentiated:
            inputs = list(self.differentiated.values())
            return torch.autograd.grad(self.result, inputs, self.grad_out, retain_graph=True)
        with torch.no_grad():
            result = self.attend(self.tensors, self.mask, self.options)
        self.output_bytes = result.numel() * result.element_size()
        return result

    def attend(self, tensors: list[Any], mask: Any, options: dict[str, Any]) -> Any:
        """Return attention by the kernel of this process."""
        if options["dropout_p"]:
            torch.manual_seed(self.seed)
        try:
            return torch.nn.functional.scaled_dot_product_attention(*tensors, mask, **options)
        except RuntimeError as error:
            if "No available kernel" in str(error) or "No viable backend" in str(error):
                raise serving.Refused(f"torch {torch.__version__}: {error}") from None
            raise

    def save(self, result: Any, path: str) -> None:
        files = {path: result}
        if self.differentiated:
            files = {f"{path}.{name}": tensor for name, tensor in zip(self.differentiated, result)}  # noqa: B905  Python 3.8
            files[path] = self.result
        for name, tensor in files.items():
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            with open(name, "wb") as file:
                if flat.numel():
                    file.write(ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()))


def _read(path: str, spec: dict[str, Any]) -> Any:
    """Return the tensor of a file in its layout."""
    dtype = getattr(torch, spec["dtype"])
    if not os.path.getsize(path):
        return torch.empty(spec["shape"], dtype=dtype)
    with open(path, "rb") as file:
        flat = torch.frombuffer(bytearray(file.read()), dtype=dtype)
    return flat.as_strided(spec["shape"], spec["strides"])


if __name__ == "__main__":
    from torch.nn.attention import SDPBackend, sdpa_kernel

    # Around all calls: entering the block takes 25 us, as long as a small problem.
    with sdpa_kernel(getattr(SDPBackend, sys.argv[1])):
        serving.serve(Torch)
