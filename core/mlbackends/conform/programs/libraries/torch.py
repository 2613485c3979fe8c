"""PyTorch on the CPU: MKL or OpenBLAS, oneDNN, and its own kernels."""

import os
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional

if os.environ.get("BACKENDS_TORCH_ONEDNN") == "0":  # torch has no variable for that
    torch.backends.mkldnn.set_flags(_enabled=False)
VERSION = torch.__version__
HINT = "torch.backends.mkldnn.matmul.fp32_precision = 'ieee'"
TYPES = ("float64", "float32", "bfloat16", "float16", "complex128", "complex64")


def tensor(array: Any, dtype: str) -> Any:
    """Return an array as a tensor."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(getattr(torch, dtype))


def laid_out(tensor: Any, layout: str, sizes: dict[str, int]) -> Any:
    """Return a tensor in a layout."""
    if layout == "zero-stride":
        return tensor.expand(*tensor.shape[:-1], sizes["size"])
    if layout == "strided":
        return tensor.repeat_interleave(2, -1)[..., ::2]
    order = [*range(tensor.ndim)][::-1]
    return tensor.permute(order).contiguous().permute(order)


def array(tensor: Any) -> Any:
    """Return a result as an array."""
    return (tensor if tensor.is_complex() else tensor.double()).numpy()


OPERATIONS = {
    "gemm": torch.matmul, "convolution": functional.conv2d, "softmax": partial(torch.softmax, dim=-1),
    "layer-norm": lambda x, w, b, epsilon: functional.layer_norm(x, x.shape[-1:], w, b, epsilon),
    "attention": functional.scaled_dot_product_attention, "exp": torch.exp, "log": torch.log,
    "erf": torch.erf, "sum": partial(torch.sum, dim=-1), "max": partial(torch.amax, dim=-1),
    "cast": lambda x, dtype: x.to(getattr(torch, dtype)), "fft": torch.fft.fft,
}  # fmt: skip
