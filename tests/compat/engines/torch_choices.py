"""What torch's own varlen_attn chooses, without a GPU: lines of JSON on stdin, answers on stdout.

varlen.py of the torch in sys.path runs unchanged, on tensors without memory that say that they are on CUDA;
cuDNN and the GPU are as each line has them.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from typing import Any

import torch
from torch.nn.attention import varlen

#: What torch says, and our codes for it; the first rule of 2.15 is of two.
CODES = {
    "query must be on CUDA": "wrong-device",
    "9.18": "version or capability",
    "max_q": "length-unsupported",
    "dtype": "wrong-dtype",
    "divisible by 8": "head-dim-unaligned",
    "unsupported for cuDNN": "head-size",
    "KV cache requires": "combination",
    "window_size must": "window",
    "power-of-two": "block-size",
}


class OnCuda(torch.Tensor):  # type: ignore[misc]
    """A tensor without memory that says that it is on a GPU."""

    is_cuda = True
    device = torch.device("cuda", 0)


def reasons(given: dict[str, Any]) -> list[str] | bool:
    """Return what speaks against cuDNN; before 2.15 only whether it would be chosen."""
    kind = OnCuda if given["platform"] == "cuda" else torch.Tensor
    dtype, tokens, block = getattr(torch, given["dtype"]), given["tokens"], given["block_size"]

    def tensor(heads: int, size: int, page: int | None = None) -> Any:
        shape = (tokens, heads, size) if page is None else (-(-tokens // page), page, heads, size)
        made = torch.empty(shape, dtype=dtype, device="meta", requires_grad=given["backward"])
        return made.as_subclass(kind)

    query = tensor(given["heads"], given["head_size"])
    key, value = (
        tensor(given["kv_heads"], given[name], block or None) for name in ("head_size", "value_size")
    )
    lengths = torch.zeros(2, dtype=torch.int32)
    window = [given["window_size"], 0] if given["window"] else [-1, 0 if given["causal"] else -1]
    used = pages = torch.zeros(1, dtype=torch.int32) if block else None
    if hasattr(varlen, "_cudnn_rejection_reasons"):
        return list(
            varlen._cudnn_rejection_reasons(
                query, key, value, lengths, lengths, tokens, window, used, pages, None
            )
        )
    if hasattr(varlen, "_can_use_cudnn"):
        is_shared = given["heads"] != given["kv_heads"]
        return bool(varlen._can_use_cudnn(query, key, value, tokens, window, is_shared, used, pages, None))
    return bool(query.is_cuda and varlen._should_use_cudnn(0))


def main() -> None:
    names = ("_should_use_cudnn", "_cudnn_version_and_major_capability", "_cudnn_decode_disabled")
    caches = [cached for name in names if (cached := getattr(varlen, name, None))]
    has_pages = "block_table" in inspect.signature(varlen.varlen_attn).parameters
    refuses_gradient = "inference-only" in inspect.getsource(varlen._setup_context)
    if hasattr(varlen, "_cudnn_decode_disabled"):
        varlen._cudnn_decode_disabled = lambda _index: False
    for line in sys.stdin:
        given = json.loads(line)
        for cached in caches:
            getattr(
                getattr(cached, "__wrapped__", cached), "cache_clear", getattr(cached, "cache_clear", int)
            )()
        torch.cuda.get_device_capability = lambda *_index, _given=given: divmod(_given["capability"], 10)
        number = [int(part) for part in given["cudnn"].split(".")]
        torch.backends.cudnn.version = lambda _number=number: _number[0] * 10000 + _number[1] * 100
        found = reasons(given)
        codes = found
        if isinstance(found, list):
            codes = [next(code for words, code in CODES.items() if re.search(words, text)) for text in found]
        paged = bool(given["block_size"])
        answer = {
            "cudnn": sorted(codes) if isinstance(codes, list) else codes,
            "pages": has_pages or not paged,
            "gradient": not (refuses_gradient and paged and given["backward"]),
        }
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
