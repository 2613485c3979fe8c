"""How small models of transformers call torch's attention: lines of JSON on stdin, the calls on stdout."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import transformers

SMALL = {
    "num_hidden_layers": 2,
    "intermediate_size": 32,
    "moe_intermediate_size": 16,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "q_lora_rank": None,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "num_local_experts": 2,
}


def main() -> None:
    transformers.logging.set_verbosity(50)
    calls: list[str] = []
    real = torch.nn.functional.scaled_dot_product_attention

    def called(query: Any, key: Any, value: Any, **options: Any) -> Any:
        mask, heads = options.get("attn_mask"), key.shape[1]
        words = [f"--shape {','.join(map(str, query.shape))}"]
        words += [f"--kv-heads {heads}"] if heads != query.shape[1] else []
        words += [f"--value-dim {value.shape[-1]}"] if value.shape[-1] != query.shape[-1] else []
        words += ["--causal"] if options.get("is_causal") else []
        words += [f"--mask bool:{','.join(map(str, mask.shape))}"] if mask is not None else []
        # Of equal numbers of heads it says nothing; 5.0 passes it all the same.
        words += ["--gqa"] if options.get("enable_gqa") and heads != query.shape[1] else []
        calls.append(" ".join(words))
        return real(query, key, value, **options)

    torch.nn.functional.scaled_dot_product_attention = called
    for line in sys.stdin:
        given = json.loads(line)
        config = {
            name: value for name, value in given["config"].items() if name not in ("architectures", "dtype")
        }
        made = transformers.AutoConfig.for_model(config.pop("model_type"), **SMALL, **config)
        model = getattr(transformers, given["config"]["architectures"][0])(made).eval()
        calls.clear()
        with torch.no_grad():
            model(input_ids=torch.ones((1, given["tokens"]), dtype=torch.int64))
        print(json.dumps(sorted({*calls})))


if __name__ == "__main__":
    main()
