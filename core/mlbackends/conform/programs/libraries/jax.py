"""JAX on the CPU."""

import os
from functools import partial
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_X64"] = "1"

import jax
import jax.numpy as jnp

VERSION = jax.__version__
TYPES = ("float64", "float32", "bfloat16", "float16", "complex128", "complex64")


def tensor(array: Any, dtype: str) -> Any:
    """Return an array of JAX."""
    return jnp.asarray(array).astype(dtype)


def _convolution(x: Any, w: Any, stride: int, padding: int) -> Any:
    return jax.lax.conv_general_dilated(x, w, (stride, stride), [(padding, padding)] * 2)


def _layer_norm(x: Any, weight: Any, bias: Any, epsilon: float) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + epsilon) * weight + bias


def _attention(*tensors: Any) -> Any:
    return jax.nn.dot_product_attention(*(one.swapaxes(1, 2) for one in tensors)).swapaxes(1, 2)


_COMPILED = {
    "gemm": jnp.matmul, "convolution": _convolution, "softmax": partial(jax.nn.softmax, axis=-1),
    "layer-norm": _layer_norm, "attention": _attention, "exp": jnp.exp, "log": jnp.log, "erf": jax.lax.erf,
    "sum": partial(jnp.sum, axis=-1), "max": partial(jnp.max, axis=-1), "fft": jnp.fft.fft,
    "cast": lambda x, dtype: x.astype(dtype),
}  # fmt: skip
_KEYWORDS = {"convolution": ("stride", "padding"), "layer-norm": ("epsilon",), "cast": ("dtype",)}
OPERATIONS = {name: jax.jit(call, static_argnames=_KEYWORDS.get(name)) for name, call in _COMPILED.items()}
