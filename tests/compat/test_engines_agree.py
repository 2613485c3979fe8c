"""Inference engines' choices of attention beside the engines' own Python, which needs no GPU for it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlbackends.base.quantities import dotted_numbers
from mlbackends.base.tables import table
from mlbackends.sdpa import engines

#: How many are drawn; each engine has a number of its own, by its speed.
CONFIGURATIONS = int(os.environ.get("MLBACKENDS_ENGINE_CONFIGURATIONS", "0"))
#: vLLM's messages, and our codes for them.
VLLM_CODES = {
    "head_size not supported": "head-size",
    "dtype not supported": "wrong-dtype",
    "kv_cache_dtype not supported": "kv-dtype",
    "block_size not supported": "block-size",
    "MLA not supported": "mla",
    "non-MLA not supported": "mla",
    "attention sinks not supported": "sinks",
    "sparse not supported": "sparse",
    "non-sparse not supported": "sparse",
    "compute capability not supported": "wrong-capability",
    "sliding window not supported": "window",
}


#: Architectures with rules of their own, each with its model_type.
SPECIAL = {
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "kimi_k2",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "GlmMoeDsaForCausalLM": "glm_moe_dsa",
    "Glm4MoeLiteForCausalLM": "glm4_moe_lite",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "Glm4ForCausalLM": "glm4",
}
SIZES: tuple[int, ...] = (
    16,
    24,
    32,
    40,
    64,
    64,
    72,
    80,
    96,
    100,
    112,
    128,
    128,
    160,
    192,
    248,
    256,
    256,
    257,
    264,
    320,
    384,
)
SIZES += (512, 512, 520, 576)


def configuration(draw: random.Random, rules: dict[str, Any]) -> dict[str, Any]:
    """Return a model and where it runs, at random."""
    name = draw.choice([*SPECIAL, *SPECIAL, *["GptOssForCausalLM"] * 6, *rules["architectures"]])
    heads = draw.choice([1, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128])
    window = draw.random() < 0.25
    config: dict[str, Any] = {
        "architectures": [name],
        "model_type": SPECIAL.get(name, "other"),
        "num_attention_heads": heads,
        "num_key_value_heads": draw.choice([n for n in (1, 2, 4, 8, 16, 32) if heads % n == 0]),
        "dtype": draw.choice(["float16", "bfloat16", "bfloat16", "bfloat16", "float32"]),
        "layer_types": ["sliding_attention" if window else "full_attention"],
    }
    size = draw.choice(SIZES)
    if name in rules["need_head_dim"] or draw.random() < 0.5:
        config["head_dim"] = size
    config["hidden_size"] = size * heads
    if draw.random() < 0.2:
        config["attn_logit_softcapping"] = 50.0
    if config["model_type"] in rules["mla_types"]:
        if draw.random() < 0.9:
            config["kv_lora_rank"] = draw.choice([256, 448, 512, 512, 512])
        config["qk_rope_head_dim"] = draw.choice([0, 32, 64, 64, 64])
        config["qk_nope_head_dim"] = draw.choice([1, 96, 128, 128, 192, 256])
        config["v_head_dim"] = draw.choice([128, 128, 128, 256])
        if name == "DeepseekV32ForCausalLM" or draw.random() < 0.5:
            config["index_topk"] = draw.choice([512, 1024, 1100, 2048, 2048])
    return {
        "config": config,
        "capability": draw.choice([70, 75, 80, 86, 87, 89, 90, 90, 100, 100, 103, 110, 120, 121]),
        "kv_dtype": draw.choice(["auto", "auto", "auto", "bfloat16", "fp8", "fp8", *rules["kv_dtypes"]]),
        "block_size": draw.choice([0, 0, 0, 1, 8, 16, 32, 48, 64, 80, 96, 128, 256, 512]),
        "window": window,
    }


def recorded(engine: str, package: str) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return an engine's rules, and the release that is installed, or skip."""
    if not importlib.util.find_spec(package):
        pytest.skip(f"{package} is not installed")
    rules, release = table(f"sdpa/engines/{engine}.toml"), dotted_numbers(importlib.metadata.version(engine))
    if not any(release[: len(known)] == known for known in map(dotted_numbers, rules["releases"])):
        pytest.skip(f"the rules of {engine} {release} are not recorded")
    return rules, release


def answers(program: str, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what an engine itself answers, in a process of its own."""
    child = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).parent / "engines" / program)],
        input="\n".join(map(json.dumps, asked)),
        capture_output=True,
        text=True,
        check=True,
        timeout=1800,
    )
    return [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]


def test_vllm_chooses_what_the_rules_say() -> None:
    rules, release = recorded("vllm", "vllm")
    draw = random.Random(28)
    asked = [configuration(draw, rules) for _ in range(CONFIGURATIONS or 10000)]
    theirs = answers("vllm_choices.py", asked)
    wrong = []
    for given, answer in zip(asked, theirs, strict=True):
        (found,) = engines.layers(
            rules,
            release,
            given["config"],
            {"platform": "cuda", **{name: given[name] for name in ("capability", "kv_dtype", "block_size")}},
        )
        codes = {v.backend: sorted({r.code for r in v.reasons}) for v in found.verdicts if v.reasons}
        expected = {
            name: sorted({VLLM_CODES.get(text, "combination") for text in texts})
            for name, texts in answer["reasons"].items()
        }
        ours = (found.chosen, [verdict.backend for verdict in found.verdicts], codes)
        if ours != (answer["chosen"], answer["order"], expected):
            differing = {name for name in {*codes, *expected} if codes.get(name) != expected.get(name)}
            reasons = [(name, codes.get(name), expected.get(name)) for name in differing]
            wrong.append((given, found.facts, found.chosen, answer["chosen"], reasons))

    assert not wrong, f"{len(wrong)} of {len(asked)} disagree, such as {wrong[:3]}"
    assert len({answer["chosen"] for answer in theirs}) > 8


#: Architectures that SGLang tells apart, or whose class has to be known, each with its model_type.
SGLANG = {
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "GlmMoeDsaForCausalLM": "glm_moe_dsa",
    "Glm4MoeLiteForCausalLM": "glm4_moe_lite",
    "GptOssForCausalLM": "gpt_oss",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Qwen3ForCausalLM": "qwen3",
    "Olmo2ForCausalLM": "olmo2",
}
SGLANG_MLA = tuple(SGLANG)[:5]


def sglang_configuration(draw: random.Random, rules: dict[str, Any]) -> dict[str, Any]:
    """Return a model and where it runs, at random."""
    name = draw.choice([*SGLANG, *SGLANG, *rules["architectures"]])
    heads, size = draw.choice([8, 16, 32, 64, 128]), draw.choice([64, 80, 128, 256])
    config: dict[str, Any] = {
        "architectures": [name],
        "model_type": SGLANG.get(name, "llama"),
        "num_attention_heads": heads,
        "num_key_value_heads": draw.choice([1, 8]),
        "head_dim": size,
        "hidden_size": heads * size,
        "dtype": draw.choice(["float16", "bfloat16", "bfloat16", "float32"]),
    }
    if name in SGLANG_MLA:
        config |= {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
        if name in rules["need_index_topk"] or draw.random() < 0.3:
            config["index_topk"] = 2048
    elif draw.random() < 0.1:
        config["v_head_dim"] = draw.choice([64, 128])
    versions = ["11.8", "12.1", "12.3", "12.6", "12.8", "12.9", *["13.0"] * 6, "13.2"]
    return {
        "config": config,
        "capability": draw.choice([70, 75, 80, 86, 89, 90, 90, 90, 100, 100, 100, 103, 110, 120, 120, 121]),
        "cuda": draw.choice(versions),
        "kv_dtype": draw.choice(["auto", "auto", *rules["kv_dtypes"]]),
        "block_size": draw.choice([0, 0, 0, 1, 8, 16, 32, 64, 128, 256, 1024]),
    }


def test_sglang_chooses_what_the_rules_say() -> None:
    rules, release = recorded("sglang", "sglang")
    draw = random.Random(28)
    asked = [sglang_configuration(draw, rules) for _ in range(CONFIGURATIONS or 200)]
    wrong, seen = [], set()
    for given, answer in zip(asked, answers("sglang_choices.py", asked), strict=True):
        place = {"platform": "cuda", "capability": given["capability"], "kv_dtype": given["kv_dtype"]}
        place["block_size"] = given["block_size"] or None
        (found,) = engines.layers(rules, release, given["config"], place, None, {"cuda": given["cuda"]})
        prefill, decode = answer.get("chosen", ("", ""))
        theirs = prefill if prefill == decode else f"{prefill}, and {decode} to decode"
        seen.add(theirs)
        sizes = (found.facts["block_size"], answer.get("block_size", found.facts["block_size"]))
        if found.chosen != theirs or len({*sizes}) > 1:
            wrong.append((given, found.chosen, sizes, answer))

    assert not wrong, f"{len(wrong)} of {len(asked)} disagree, such as {wrong[:3]}"
    assert len(seen) > 5
