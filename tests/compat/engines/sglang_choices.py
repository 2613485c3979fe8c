"""What SGLang's own arguments resolve to, without a GPU: models as lines of JSON on stdin, answers on stdout.

All of SGLang's resolution is run, unchanged, from the release in sys.path; compiled modules and packages that
are not installed are stand-ins, and torch reports the GPU and the version of CUDA that are asked for.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import tempfile
from typing import Any

import stand_ins

#: What every configuration has that nothing here depends on.
PLAIN = {"num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 64, "max_position_embeddings": 4096}
PLAIN |= {"index_head_dim": 128, "index_n_heads": 64}


def main() -> None:
    import torch
    from transformers import AutoProcessor, PretrainedConfig  # noqa: F401, before triton has a stand-in

    logging.disable(logging.CRITICAL)
    asked: dict[str, Any] = {}
    cuda: Any = torch.cuda
    torch.compile = lambda function=None, **_options: function or (lambda decorated: decorated)
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 1
    cuda.get_device_capability = lambda _device=0: divmod(asked.get("capability", 90), 10)
    cuda.get_device_name = lambda _device=0: "GPU"
    cuda.mem_get_info = lambda _device=0: (79 << 30, 80 << 30)
    torch.version.cuda = "13.0"
    stand_ins.install("sglang", ())
    from sglang.srt.arg_groups.model_override_base import attention_backends_of, resolved_view
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.utils import common

    common.is_flashinfer_available = lambda: True
    cached = [value for value in vars(common).values() if isinstance(value, functools._lru_cache_wrapper)]
    environment, models = dict(os.environ), dict[str, str]()
    PretrainedConfig.__repr__ = object.__repr__  # for a log, and slow
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            asked.clear()
            asked.update(json.loads(line))
            for function in cached:
                function.cache_clear()
            os.environ.clear()
            os.environ.update(environment)
            torch.version.cuda = asked["cuda"]
            text = json.dumps(PLAIN | asked["config"])
            if text not in models:  # what is read of a folder is remembered
                models[text] = os.path.join(folder, str(len(models)))
                os.mkdir(models[text])
                with open(os.path.join(models[text], "config.json"), "w", encoding="utf-8") as file:
                    file.write(text)
            arguments = ServerArgs(
                model_path=models[text],
                device="cuda",
                kv_cache_dtype=asked["kv_dtype"],
                page_size=asked["block_size"] or None,
            )
            try:
                arguments.resolve_once()
            except (ValueError, RuntimeError, AssertionError) as error:
                print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
                continue
            view = resolved_view(arguments)
            print(json.dumps({"chosen": attention_backends_of(view), "block_size": view.page_size}))


if __name__ == "__main__":
    main()
