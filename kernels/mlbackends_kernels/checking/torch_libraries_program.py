"""Attention of libraries for torch's tensors, each in a separate process.

The interpreter of its environment runs this file, which imports the library, torch and the standard library.

    python torch_libraries_program.py flash_attn_2

Sources: the docstrings of flash_attn.flash_attn_func (2.8), flash_attn_interface.flash_attn_func (3),
flash_attn.cute.flash_attn_func (4.0), xformers.ops.memory_efficient_attention (0.0.3x), the wrappers of
flashinfer (0.7), and torch.nn.attention.flex_attention (2.13).
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))
torch_program: Any = SimpleNamespace(**runpy.run_path(os.path.join(_FOLDER, "torch_program.py")))
serving, torch = torch_program.serving, torch_program.torch
#: Keys of a page of FlashInfer's cache.
_PAGE = 16
#: More than FlashInfer's documentation advises.
_WORKSPACE = 256 << 20


class Library(torch_program.Torch):  # type: ignore[misc]
    """A library for tensors (B, L, H, E).

    module: the module that is imported. function: what it must have. packages: where its version is read.
    """

    module = function = ""
    packages: tuple[str, ...] = ()

    def facts(self) -> dict[str, str]:
        try:
            self.library = import_module(self.module)
        except ImportError as error:
            raise serving.Refused(f"{self.module} cannot be imported: {error}") from None
        if not hasattr(self.library, self.function):
            raise serving.Refused(f"{self.module} has no {self.function}")
        for package in self.packages:
            try:
                return {"version": version(package), "torch": torch.__version__}
            except PackageNotFoundError:
                continue
        return {"torch": torch.__version__}

    def attend(self, tensors: list[Any], mask: Any, options: dict[str, Any]) -> Any:
        query, key, value = (tensor.transpose(1, 2) for tensor in tensors)
        return self.by_rows(query, key, value, mask, options).transpose(1, 2)

    def by_rows(self, query: Any, key: Any, value: Any, mask: Any, options: dict[str, Any]) -> Any:
        """Return attention of tensors (B, L, H, E), which may be views, in the same order."""
        raise NotImplementedError


class FlashAttention2(Library):
    """flash-attn: causal masks and windows are aligned bottom-right."""

    module = "flash_attn"
    packages: tuple[str, ...] = ("flash-attn",)
    function = "flash_attn_func"
    #: Arguments that only this version has, and what stands for all keys in a window.
    more: dict[str, Any] = {}  # noqa: RUF012  Python 3.8
    unbounded: int | None = -1

    def by_rows(self, query: Any, key: Any, value: Any, mask: Any, options: dict[str, Any]) -> Any:
        del mask
        window = self.problem.get("window", (-1, -1))
        result = self.library.flash_attn_func(
            query,
            key,
            value,
            softmax_scale=options["scale"],
            causal=options["is_causal"],
            window_size=tuple(self.unbounded if side < 0 else side for side in window),
            softcap=self.problem.get("softcap", 0.0),
            **self.more,
        )
        return result[0] if isinstance(result, tuple) else result  # with the logsumexp


class FlashAttention3(FlashAttention2):
    """flash-attn-3, for Hopper."""

    module, packages = "flash_attn_interface", ("flash-attn-3", "flash_attn_3")
    more = {"num_splits": 0}  # noqa: RUF012  it chooses the number of splits of the keys


class FlashAttention4(FlashAttention2):
    """flash-attn-4, in CuTe DSL."""

    module, packages = "flash_attn.cute", ("flash-attn-4", "flash-attn-cute")
    unbounded = None


class Xformers(Library):
    """xFormers' dispatcher over its operators."""

    module, packages = "xformers.ops", ("xformers",)
    function = "memory_efficient_attention"

    def by_rows(self, query: Any, key: Any, value: Any, mask: Any, options: dict[str, Any]) -> Any:
        bias: Any = None
        shape = query.shape
        groups = shape[2] // key.shape[2]
        if options["is_causal"]:
            biases = import_module("xformers.ops.fmha.attn_bias")
            is_lower_right = self.problem["lower_right"]
            names = "LowerTriangularMask", "LowerTriangularFromBottomRightMask"
            bias = getattr(biases, names[is_lower_right])()
        elif mask is not None:
            bias = mask.expand(shape[0], shape[2], shape[1], key.shape[1])
        if groups > 1:  # (B, L, heads of key, heads that share one, E)
            query = query.unflatten(2, (-1, groups))
            key, value = (tensor.unsqueeze(3).expand(-1, -1, -1, groups, -1) for tensor in (key, value))
        found = self.library.memory_efficient_attention(
            query, key, value, attn_bias=bias, p=0.0, scale=options["scale"]
        )
        return found.reshape(*shape[:3], -1)


class FlashInfer(Library):
    """FlashInfer: batches of whole sequences, and one row over pages; causal masks are bottom-right."""

    module, packages = "flashinfer", ("flashinfer-python", "flashinfer")
    function = "BatchPrefillWithRaggedKVCacheWrapper"

    def __init__(self, request: dict[str, Any]) -> None:
        self._planned: dict[Any, Any] = {}
        super().__init__(request)

    def by_rows(self, query: Any, key: Any, value: Any, mask: Any, options: dict[str, Any]) -> Any:
        del mask
        batch, rows, heads, width = query.shape
        keys, key_heads = key.shape[1:3]
        in_pages = rows == 1 and keys % _PAGE == 0 and value.shape[3] == width
        size = (rows, keys, options["is_causal"])
        if size not in self._planned:
            plan = self._plan_decode if in_pages else self._plan_prefill
            self._planned[size] = plan(query, key, value, options)
        wrapper = self._planned[size]
        if in_pages:
            pages = (batch * keys // _PAGE, _PAGE, key_heads, width)
            return wrapper.run(query[:, 0], (key.reshape(pages), value.reshape(pages)))[:, None]
        found = wrapper.run(
            query.reshape(batch * rows, heads, width),
            key.reshape(batch * keys, key_heads, width),
            value.reshape(batch * keys, key_heads, -1),
        )
        return found.reshape(batch, rows, heads, -1)

    def _steps(self, count: int, step: int, like: Any) -> Any:
        return torch.arange(0, (count + 1) * step, step, dtype=torch.int32, device=like.device)

    def _options(self, query: Any, key: Any, options: dict[str, Any]) -> dict[str, Any]:
        """Return what both plans are given."""
        cap, types = self.problem.get("softcap") or None, {"q_data_type": query.dtype}
        return {
            **types,
            "kv_data_type": key.dtype,
            "logits_soft_cap": cap,
            "sm_scale": options["scale"],
        }

    def _workspace(self, like: Any) -> Any:
        return torch.empty(_WORKSPACE, dtype=torch.uint8, device=like.device)

    def _plan_prefill(self, query: Any, key: Any, value: Any, options: dict[str, Any]) -> Any:
        wrapper = self.library.BatchPrefillWithRaggedKVCacheWrapper(self._workspace(query), "NHD")
        batch, rows, heads, width = query.shape
        wrapper.plan(
            self._steps(batch, rows, query),
            self._steps(batch, key.shape[1], query),
            heads,
            key.shape[2],
            width,
            head_dim_vo=value.shape[3],
            causal=options["is_causal"],
            **self._options(query, key, options),
        )
        return wrapper

    def _plan_decode(self, query: Any, key: Any, value: Any, options: dict[str, Any]) -> Any:
        del value
        batch, _, heads, width = query.shape
        pages = key.shape[1] // _PAGE
        wrapper = self.library.BatchDecodeWithPagedKVCacheWrapper(
            self._workspace(query), "NHD", use_tensor_cores=heads // key.shape[2] >= 4
        )
        wrapper.plan(
            self._steps(batch, pages, query),
            torch.arange(batch * pages, dtype=torch.int32, device=query.device),
            torch.full((batch,), _PAGE, dtype=torch.int32, device=query.device),
            heads,
            key.shape[2],
            width,
            _PAGE,
            **self._options(query, key, options),
        )
        return wrapper


class Flex(torch_program.Torch):  # type: ignore[misc]
    """torch's flex_attention, compiled: masks as functions of positions."""

    def facts(self) -> dict[str, str]:
        self._flex = import_module("torch.nn.attention.flex_attention")
        self._compiled = torch.compile(self._flex.flex_attention)
        self._masks: dict[Any, Any] = {}
        return {}

    def attend(self, tensors: list[Any], mask: Any, options: dict[str, Any]) -> Any:
        del mask
        rows, keys = tensors[0].shape[-2], tensors[1].shape[-2]
        block_mask = None
        if options["is_causal"]:
            shift = keys - rows if self.problem["lower_right"] else 0
            if (rows, keys) not in self._masks:
                self._masks[rows, keys] = self._flex.create_block_mask(
                    lambda _batch, _head, row, column: column <= row + shift,
                    B=None,
                    H=None,
                    Q_LEN=rows,
                    KV_LEN=keys,
                    device=tensors[0].device,
                )
            block_mask = self._masks[rows, keys]
        return self._compiled(
            *tensors,
            block_mask=block_mask,
            scale=options["scale"],
            enable_gqa=options["enable_gqa"],
        )


PROGRAMS = {
    "flash_attn_2": FlashAttention2,
    "flash_attn_3": FlashAttention3,
    "flash_attn_4": FlashAttention4,
    "xformers": Xformers,
    "flashinfer": FlashInfer,
    "flex": Flex,
}

if __name__ == "__main__":
    serving.serve(PROGRAMS[sys.argv[1]])
