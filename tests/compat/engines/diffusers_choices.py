"""What diffusers' own dispatcher does, without a GPU: lines of JSON on stdin, answers on stdout.

The release in sys.path runs unchanged, with its checks on, on small tensors that say they are on CUDA. The
packages that are installed are as each line has them; their functions, and kernels of the Hub, are stand-ins.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from types import SimpleNamespace
from typing import Any

import torch

#: The packages, as utils/import_utils.py calls them.
FLAGS = {
    "flash-attn": "_flash_attn",
    "flash-attn-3": "_flash_attn_3",
    "kernels": "_kernels",
    "sageattention": "_sageattention",
    "xformers": "_xformers",
    "amd-aiter": "_aiter",
}
#: What diffusers says, and our codes for it.
CODES = {
    "at least 0.12": "too-old",
    "not usable": "missing-part",
    "compute capability": "wrong-capability",
    "CUDA device": "wrong-device",
    "must be either bfloat16": "wrong-dtype",
    "must be bfloat16": "wrong-dtype",
    "head dimension of": "head-size",
    "`attn_mask` is not supported": "mask",
    "mask must be of type bool": "mask",
}


class OnCuda(torch.Tensor):  # type: ignore[misc]
    """A tensor that says that it is on a GPU."""

    device = torch.device("cuda", 0)


def returns_first(*args: Any, **options: Any) -> Any:
    return args[0] if args else options.get("query", options.get("q"))


def stand_in() -> Any:
    """Return diffusers' dispatcher with stand-ins for everything that computes."""
    from diffusers.models import attention_dispatch as dispatch
    from diffusers.utils import logging

    logging.set_verbosity(50)
    dispatch._AttentionBackendRegistry._checks_enabled = True
    for name in vars(dispatch):
        if re.match(r"flash_attn.*_func$|sageattn", name):
            setattr(dispatch, name, returns_first)
    for name in ("_wrapped_flash_attn_3", "aiter_flash_attn_func"):
        setattr(dispatch, name, lambda *args, **options: (returns_first(*args, **options), None))
    dispatch.xops = SimpleNamespace(memory_efficient_attention=returns_first)
    dispatch.flex_attention = SimpleNamespace(
        flex_attention=returns_first,
        BlockMask=int,
        create_block_mask=lambda *_args, **_options: SimpleNamespace(BLOCK_SIZE=(128, 128)),
    )
    torch.nn.functional.scaled_dot_product_attention = returns_first
    for config in dispatch._HUB_KERNELS_REGISTRY.values():
        config.kernel_fn = returns_first
    for name in vars(dispatch):
        if name.startswith("_prepare_for_flash_attn_or_sage_varlen_"):
            setattr(dispatch, name, without_device(getattr(dispatch, name)))
    return dispatch


def without_device(function: Any) -> Any:
    """Return a function that makes its tensors on the CPU, as there is no other device."""

    def call(*args: Any, **options: Any) -> Any:
        bound = inspect.signature(function).bind(*args, **options)
        return function(**{**bound.arguments, "device": "cpu"})

    return call


def main() -> None:
    dispatch = stand_in()
    from diffusers.utils import import_utils

    # The lines that find out what can be used, to run again for each set of packages.
    found = [
        node
        for node in ast.parse(inspect.getsource(dispatch)).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "").startswith("_CAN_USE_")
    ]
    can_use = compile(ast.Module(body=list(found), type_ignores=[]), dispatch.__file__, "exec")
    for line in sys.stdin:
        given = json.loads(line)
        for package, flag in FLAGS.items():
            setattr(import_utils, f"{flag}_available", package in given["packages"])
            setattr(import_utils, f"{flag}_version", given["packages"].get(package, "N/A"))
        for value in (*vars(import_utils).values(), *vars(dispatch).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()
        exec(can_use, vars(dispatch))  # diffusers' own lines
        torch.cuda.get_device_capability = lambda *_device, _given=given: divmod(_given["capability"], 10)
        config = given["config"]
        shape = (1, 8, config["num_attention_heads"], config["attention_head_dim"])
        query, key, value = (
            torch.zeros(shape, dtype=getattr(torch, given["dtype"])).as_subclass(OnCuda) for _ in range(3)
        )
        mask = None
        if given["mask"] != "none":
            mask = torch.ones((1, 1, 1, 8), dtype=torch.bool if given["mask"] == "bool" else torch.float32)
        backend = "native" if given["asked"] == "not asked" else given["asked"]
        answer = {"chosen": backend, "code": ""}
        try:
            backend = dispatch.AttentionBackendName(backend)
            dispatch._check_attention_backend_requirements(backend)
            chosen = None if given["asked"] == "not asked" else backend
            dispatch.dispatch_attention_fn(query, key, value, attn_mask=mask, backend=chosen)
        except (RuntimeError, ValueError) as error:
            code = next((code for words, code in CODES.items() if words in str(error)), repr(error))
            answer = {"chosen": "", "code": code}
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
