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
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.base.quantities import dotted_numbers
from mlbackends.base.tables import table
from mlbackends.sdpa import engines, named_devices

if TYPE_CHECKING:
    from mlbackends.model.explanation import EngineLayers

#: How many are drawn; each engine has a number of its own, by its speed.
CONFIGURATIONS = int(os.environ.get("ENGINE_CONFIGURATIONS", "0"))
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
    rules, version = table(f"sdpa/engines/{engine}.toml"), importlib.metadata.version(engine)
    release = dotted_numbers(version.partition("+")[0])
    if not any(release[: len(known)] == known for known in map(dotted_numbers, rules["releases"])):
        pytest.skip(f"the rules of {engine} {version} are not recorded")
    return rules, release


def first_code(found: EngineLayers) -> str:
    """Return the code of the first reason against what was asked for, "" where something is chosen."""
    codes = (reason.code for verdict in found.verdicts for reason in verdict.reasons)
    return "" if found.chosen else next(code for code in codes if code != "not-asked")


def answers(program: str, asked: list[dict[str, Any]]) -> list[Any]:
    """Return what an engine itself answers, in a process of its own."""
    child = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).parent / "engines" / program)],
        input="\n".join(map(json.dumps, asked)),
        capture_output=True,
        text=True,
        check=True,
        timeout=1800,
    )
    return [json.loads(line) for line in child.stdout.splitlines() if line[:1] in ("{", "[")]


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
    heads, size = draw.choice([16, 64]), draw.choice([64, 128])
    config: dict[str, Any] = {
        "architectures": [name],
        "model_type": SGLANG.get(name, "llama"),
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": size,
        "hidden_size": heads * size,
        "dtype": draw.choice(["float16", "bfloat16"]),
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


def given_transformers(
    draw: random.Random, rules: dict[str, Any], release: tuple[int, ...]
) -> dict[str, Any]:
    """Return a model, what is installed, and what is asked, at random."""
    there = [name for name, since in rules["architectures"].items() if release >= dotted_numbers(since)]
    special = [
        name for name in ("GptOssForCausalLM", "Gemma2ForCausalLM", "LlamaForCausalLM") if name in there
    ]
    packages = {
        "flash-attn": ["2.0.9", "2.1.0", "2.2.1", "2.3.3", "2.8.3"],
        "flash-attn-3": ["3.0.0"],
        "flash-attn-4": ["4.0.0"] if release >= (5, 4) else [],
        "kernels": [
            "0.8.1",
            "0.9.0",
            "0.10.2",
            "0.12.0",
            "0.15.2",
            "0.16.0",
            "0.17.0",
            "0.17.2",
            "0.18.2",
            "0.19.0",
        ],
    }
    names = [row["name"] for row in rules["backend"] if engines._applies(row, release, {})]
    return {
        "config": {
            "architectures": [draw.choice([*there, *special * 8])],
            "num_attention_heads": 8,
            "head_dim": 64,
            "dtype": draw.choice(["float16", "bfloat16", "float32"]),
            "attention_dropout": draw.choice([0.0, 0.0, 0.1]),
            "alibi": draw.random() < 0.1,
        },
        "asked": draw.choice(["not asked", *names]),
        "platform": draw.choice(["cuda", "cuda", "cuda", "cpu"]),
        "capability": draw.choice([70, 75, 80, 86, 89, 90, 100, 120]),
        "packages": {
            name: draw.choice(versions)
            for name, versions in packages.items()
            if versions and draw.random() < 0.4
        },
    }


def test_transformers_chooses_what_the_rules_say() -> None:
    rules, release = recorded("transformers", "transformers")
    draw = random.Random(28)
    asked = [given_transformers(draw, rules, release) for _ in range(CONFIGURATIONS or 300)]
    wrong = []
    for given, answer in zip(asked, answers("transformers_choices.py", asked), strict=True):
        facts = {name: given[name] for name in ("asked", "platform", "capability")} | given["packages"]
        facts["dtype"] = given["config"]["dtype"]  # the one that is loaded
        (found,) = engines.layers(
            rules, release, given["config"], facts, versions={"torch": "2.15", "cudnn": "9.26"}
        )
        first = first_code(found)
        same = (found.chosen, first) == (answer["chosen"], answer["code"])
        if found.chosen.startswith("flash_attention_"):  # of others transformers warns of nothing
            (warnings,) = ({r.code for r in v.warnings} for v in found.verdicts if v.backend == found.chosen)
            same &= warnings & {"wrong-dtype", "dropout"} == {*answer["warned"]}
        if not same:
            wrong.append((given, (found.chosen, first), answer))

    assert not wrong, f"{len(wrong)} of {len(asked)} disagree, such as {wrong[:3]}"


#: Classes whose calls of torch are watched, each with its model_type.
WATCHED = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Phi3ForCausalLM": "phi3",
    "Olmo2ForCausalLM": "olmo2",
    "Starcoder2ForCausalLM": "starcoder2",
    "GraniteForCausalLM": "granite",
    "MixtralForCausalLM": "mixtral",
    "DeepseekV3ForCausalLM": "deepseek_v3",
}


def watched(draw: random.Random) -> dict[str, Any]:
    """Return a small model that calls torch, and the length of its prompt, at random."""
    name, size = draw.choice([*WATCHED]), draw.choice([8, 16, 32])
    heads = draw.choice([2, 4, 8])
    is_mla = name == "DeepseekV3ForCausalLM"
    config: dict[str, Any] = {
        "architectures": [name],
        "model_type": WATCHED[name],
        "num_attention_heads": heads,
        "num_key_value_heads": heads if is_mla else draw.choice([1, 2, heads]),
        "head_dim": size,
        "hidden_size": size * heads,
        "dtype": "float32",
    }
    if is_mla:
        config |= {"kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": size, "v_head_dim": 16}
        config["head_dim"] = 8
    elif name in ("MistralForCausalLM", "Phi3ForCausalLM", "Starcoder2ForCausalLM", "MixtralForCausalLM"):
        config["sliding_window"] = draw.choice([None, 16, 64])
    return {"config": config, "tokens": draw.choice([8, 15, 16, 17, 40, 64, 65])}


def test_transformers_calls_torch_as_stated() -> None:
    rules, release = recorded("transformers", "transformers")
    draw = random.Random(28)
    asked = [watched(draw) for _ in range(min(CONFIGURATIONS or 30, 500))]
    place, wrong = named_devices.device("h100"), []
    for given, calls in zip(asked, answers("transformers_calls.py", asked), strict=True):
        facts = {"platform": "cuda", "capability": 90, "tokens": given["tokens"], "dtype": "float32"}
        (found,) = engines.layers(rules, release, given["config"], facts, place, {"torch": "2.15"})
        assert found.call
        text = found.call.text.partition(" --device")[0].replace("--dtype float32 ", "")
        if [text] != calls:
            wrong.append((given, text, calls))

    assert not wrong, f"{len(wrong)} of {len(asked)} disagree, such as {wrong[:3]}"


def given_torch(draw: random.Random) -> dict[str, Any]:
    """Return a model's layers and where they run, at random."""
    heads, mla = draw.choice([4, 8, 16, 32]), draw.random() < 0.2
    sizes = draw.choice([(192, 128), (192, 128), (192, 192), (256, 128), (128, 64), (136, 100), (100, 128)])
    size = draw.choice([32, 64, 72, 96, 100, 128, 128, 129, 136, 192, 256, 256, 264, 512])
    return {
        "platform": draw.choice(["cuda", "cuda", "cuda", "cuda", "cpu"]),
        "capability": draw.choice([70, 75, 80, 86, 89, 90, 90, 100, 100, 103, 110, 120]),
        "cudnn": draw.choice(["9.10", "9.17", "9.18", "9.19", "9.20", "9.23", "9.24", "9.26"]),
        "dtype": draw.choice(["float16", "bfloat16", "bfloat16", "float32"]),
        "tokens": draw.choice([2, 100, 128, 129, 512, 4096]),
        "block_size": draw.choice([0, 0, 0, 0, 16, 24, 64, 100, 256, 768]),
        "backward": draw.random() < 0.3,
        "heads": heads,
        "kv_heads": heads if mla else draw.choice([2, 4, heads, heads]),
        "head_size": sizes[0] if mla else size,
        "value_size": sizes[1] if mla else size,
        "mla": mla,
        "causal": draw.random() < 0.8,
        "window": (window := draw.random() < 0.2),
        "window_size": 64 if window else 0,
    }


def test_torch_chooses_what_the_rules_say() -> None:
    rules, release = recorded("torch", "torch")
    draw = random.Random(28)
    asked = [given_torch(draw) for _ in range(CONFIGURATIONS or 300)]
    for given in asked:
        given["causal"] |= given["window"]
        given["capability"] *= given["platform"] == "cuda"
    wrong = []
    for given, answer in zip(asked, answers("torch_choices.py", asked), strict=True):
        config: dict[str, Any] = {
            "architectures": ["Any"],
            "num_attention_heads": given["heads"],
            "num_key_value_heads": given["kv_heads"],
            "head_dim": given["head_size"],
            "dtype": given["dtype"],
            "is_causal": given["causal"],
            "sliding_window": given["window_size"] or None,
        }
        if given["mla"]:
            config |= {"kv_lora_rank": 512, "v_head_dim": given["value_size"], "qk_rope_head_dim": 64}
            config |= {"qk_nope_head_dim": given["head_size"] - 64}
        facts = {name: given[name] for name in ("platform", "capability", "tokens", "backward")}
        facts["block_size"] = given["block_size"] or None
        versions = {"torch": ".".join(map(str, release)), "cudnn": given["cudnn"]}
        (found,) = engines.layers(rules, release, config, facts, versions=versions)
        codes = {v.backend: {reason.code for reason in v.reasons} for v in found.verdicts}
        of_pages = {
            code
            for code, holds in (("block-size", answer["pages"]), ("gradient", answer["gradient"]))
            if not holds
        }
        ours = codes["CUDNN_ATTENTION"]
        if isinstance(answer["cudnn"], bool):
            same = (not ours - of_pages) == answer["cudnn"]
        else:
            either = {"too-old": "version or capability", "wrong-capability": "version or capability"}
            same = {either.get(code, code) for code in ours} == {*answer["cudnn"], *of_pages}
        if not same or not of_pages <= codes["FLASH_ATTENTION"]:
            wrong.append((given, codes, answer))

    assert not wrong, f"{len(wrong)} of {len(asked)} disagree, such as {wrong[:3]}"


def given_diffusers(draw: random.Random, rules: dict[str, Any], release: tuple[int, ...]) -> dict[str, Any]:
    """Return a model, what is installed, and what is asked, at random."""
    names = [row["name"] for row in rules["backend"] if engines._applies(row, release, {})]
    packages = {
        "flash-attn": ["2.5.9", "2.6.3", "2.8.3"],
        "flash-attn-3": ["3.0.0"],
        "kernels": ["0.10.2", "0.12.0", "0.12.3", "0.18.2"],
        "sageattention": ["1.0.6", "2.1.1", "2.2.0"],
        "xformers": ["0.0.28", "0.0.29", "0.0.35"],
        "amd-aiter": ["0.1.4", "0.1.5"],
    }
    return {
        "config": {
            "_class_name": draw.choice(
                [name for name, since in rules["architectures"].items() if release >= dotted_numbers(since)]
            ),
            "num_attention_heads": draw.choice([2, 3]),
            "attention_head_dim": draw.choice([32, 64, 96, 128, 128, 256]),
        },
        "asked": draw.choice(["not asked", *names]),
        "dtype": draw.choice(["float16", "bfloat16", "bfloat16", "float32"]),
        "mask": draw.choice(["none", "none", "bool", "float"]),
        "capability": draw.choice([75, 80, 86, 89, 90, 100, 120]),
        "packages": {name: draw.choice(some) for name, some in packages.items() if draw.random() < 0.7},
    }


def test_diffusers_chooses_what_the_rules_say() -> None:
    rules, release = recorded("diffusers", "diffusers")
    draw = random.Random(28)
    asked = [given_diffusers(draw, rules, release) for _ in range(CONFIGURATIONS or 300)]
    wrong = []
    for given, answer in zip(asked, answers("diffusers_choices.py", asked), strict=True):
        facts = {name: given[name] for name in ("asked", "dtype", "mask", "capability")} | given["packages"]
        versions = {"torch": "2.15", "cudnn": "9.26"}
        (found,) = engines.layers(
            rules, release, given["config"], {"platform": "cuda", **facts}, versions=versions
        )
        first = first_code(found)
        is_package = (
            first == "too-old" and answer["code"] == "missing-part"
        )  # of packages one message for both
        if found.chosen != answer["chosen"] or (first != answer["code"] and not is_package):
            wrong.append((given, (found.chosen, first), answer))

    assert not wrong, f"{len(wrong)} of {len(asked)} disagree, such as {wrong[:3]}"


def te_configuration(draw: random.Random, release: tuple[int, ...]) -> dict[str, Any]:
    """Return a problem of DotProductAttention and where it runs, at random."""
    size = draw.choice([32, 64, 96, 100, 120, 128, 128, 160, 192, 192, 200, 256, 256, 264, 512])
    others = [size, size, size, 48, 56, 64, 72, 96, 112, 128, 128, 256, 512]
    heads = draw.choice([1, 8, 16, 32, 64])
    flash = ["", "2.0.9", "2.1.1", "2.2.0", "2.3.6", "2.4.0", "2.5.8", "2.6.3", "2.7.2", "2.7.3", "2.8.3"]
    nines = ["0.0", "1.0", "1.1", "2.1", "4.0", "5.0", "5.1", "6.0", "7.0", "8.0", "9.0", "10.0", "10.1"]
    nines += ["10.2", "11.0", "12.0", "13.0", "13.1", "14.0", "15.1", "18.0", "18.1", "20.0", "21.0", "22.0"]
    return {
        "capability": draw.choice([70, 75, 80, 80, 86, 89, 90, 90, 90, 100, 100, 103, 110, 120, 120, 121]),
        "cudnn": "9." + draw.choice([*nines, "23.0", "24.0", "26.0", "26.0"]),
        "dtype": draw.choice(["float16", "bfloat16", "bfloat16", "float32"]),
        "heads": heads,
        "kv_heads": draw.choice([n for n in (1, 2, 8) if heads % n == 0]),
        "tokens": draw.choice([1, 2, 100, 1024, 4096, 4096]),
        "head_size": size,
        "value_size": draw.choice(others),
        "mask": draw.choice(["none"] * 9 + ["bool"]),
        "window": draw.choice([0, 0, 0, 128, 4096]),
        "softcap": draw.choice([0.0, 0.0, 0.0, 50.0]) if release >= (2, 20) else 0.0,
        "alibi": draw.random() < 0.1,
        "dropout": draw.random() < 0.1,
        "sinks": draw.random() < 0.1,
        "backward": draw.random() < 0.5,
        "flash-attn": draw.choice([*flash, "2.8.3", "2.8.3", "2.8.4"]),
        "flash-attn-3": draw.choice(["", "3.0.0"]),
        "flash-attn-4": draw.choice(["", "4.0.0b11"]),
    }


def te_answers(rules: dict[str, Any], release: tuple[int, ...], given: dict[str, Any]) -> list[str]:
    """Return what the rules say; from 2.20 on, if cuDNN can and if it cannot."""
    config: dict[str, Any] = {
        "architectures": ["GptOssForCausalLM" if given["sinks"] else "LlamaForCausalLM"],
        "num_attention_heads": given["heads"],
        "num_key_value_heads": given["kv_heads"],
        "head_dim": given["head_size"],
        "v_head_dim": given["value_size"],
        "dtype": given["dtype"],
        "layer_types": ["sliding_attention" if given["window"] else "full_attention"],
        "sliding_window": given["window"] or None,
        "attn_logit_softcapping": given["softcap"] or None,
        "alibi": given["alibi"],
        "attention_dropout": 0.1 if given["dropout"] else 0.0,
    }
    if given["head_size"] != given["value_size"]:
        rope = min(64, given["head_size"] - 1)
        config |= {"kv_lora_rank": 512, "qk_rope_head_dim": rope}
        config["qk_nope_head_dim"] = given["head_size"] - rope
    place = {name: given[name] for name in ("capability", "tokens", "mask", "backward")}
    place |= {"platform": "cuda"} | {name: given[name] or False for name in rules["packages"]}
    (found,) = engines.layers(rules, release, config, place, None, {"cudnn": given["cudnn"]})
    can = [verdict for verdict in found.verdicts if not verdict.reasons]
    assert bool(found.unknown_reason) == bool(can[0].undecided)
    assert found.chosen == ("" if can[0].undecided else can[0].backend)
    known = next(verdict.backend for verdict in can if not verdict.undecided)
    return [can[0].backend, known] if release >= (2, 20) else [can[0].backend]


def test_transformer_engine_chooses_what_the_rules_say() -> None:
    rules, release = recorded("transformer-engine", "transformer_engine")
    folders = [Path(folder) for folder in sys.path]
    if release < (2, 20) and not any(
        (folder / "transformer_engine/wheel_lib/libtransformer_engine.so").exists() for folder in folders
    ):
        pytest.skip("the library of transformer_engine is not installed")
    draw = random.Random(28)
    asked = [te_configuration(draw, release) for _ in range(CONFIGURATIONS or 2000)]
    if not any((folder / "flash_attn/cute/interface.py").exists() for folder in folders):
        asked = [given | {"flash-attn-4": ""} for given in asked]
    theirs = [answer["chosen"] for answer in answers("te_choices.py", asked)]
    ours = [te_answers(rules, release, given) for given in asked]
    wrong = [found for found in zip(asked, ours, theirs, strict=True) if found[1] != found[2]]

    assert not wrong, f"{len(wrong)} of {len(asked)} disagree, such as {wrong[:3]}"
    assert len({chosen for answer in theirs for chosen in answer}) > 3
