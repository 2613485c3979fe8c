"""What inference engines choose, by their rules as data: tests/compat asks the engines themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.tables import table
from mlbackends.sdpa import engines

if TYPE_CHECKING:
    from pathlib import Path

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "torch_dtype": "bfloat16",
}
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "head_dim": 64,
    "num_attention_heads": 64,
    "dtype": "bfloat16",
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"],
}
DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "torch_dtype": "bfloat16",
}
SPARSE = DEEPSEEK | {
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "index_topk": 2048,
    "num_attention_heads": 16,
}


@pytest.fixture
def asked(tmp_path: Path) -> Any:
    def ask(config: Any, device: str, engine: str = "vllm", **given: Any) -> Any:
        path = tmp_path / "config.json"
        path.write_bytes(config if isinstance(config, bytes) else msgspec.json.encode(config))
        return engines.explain(engine, str(path), device, **given)

    return ask


@pytest.mark.parametrize(
    ("config", "device", "given", "chosen"),
    [
        (LLAMA, "h100", {}, "FLASH_ATTN"),
        (LLAMA | {"quantization_config": None}, "b200", {}, "FLASHINFER"),
        (LLAMA, "t4", {}, "TRITON_ATTN"),
        (LLAMA, "a100", {"kv_dtype": "fp8"}, "FLASHINFER"),
        (LLAMA, "h100", {"kv_dtype": "turboquant_4bit_nc"}, "TURBOQUANT"),
        (LLAMA, "h100", {"block_size": 8}, ""),
        (LLAMA | {"head_dim": 80}, "b200", {}, "FLASH_ATTN"),
        (LLAMA | {"head_dim": 20}, "h100", {}, "FLEX_ATTENTION"),
        (LLAMA | {"head_dim": 512}, "a100", {}, "FLASHINFER"),
        (LLAMA | {"head_dim": 512}, "h100", {"kv_dtype": "fp8", "engine": "vllm==0.30"}, "FLASHINFER"),
        (LLAMA | {"head_dim": 512}, "h100", {"kv_dtype": "fp8", "engine": "vllm==0.31.0"}, "FLASH_ATTN"),
        (GPT_OSS, "a100", {}, "TRITON_ATTN"),
        (GPT_OSS, "h100", {}, "FLASH_ATTN"),
        (GPT_OSS, "h100", {"kv_dtype": "fp8_e5m2"}, "FLASHINFER"),
        (GPT_OSS, "h100", {"kv_dtype": "fp8_e5m2", "engine": "vllm==0.29"}, "TRITON_ATTN"),
        (DEEPSEEK, "h100", {}, "FLASH_ATTN_MLA"),
        (DEEPSEEK, "h100", {"kv_dtype": "fp8"}, "FLASHMLA"),
        (DEEPSEEK, "b200", {}, "FLASHINFER_MLA"),
        (DEEPSEEK, "b200", {"block_size": 16}, "TRITON_MLA"),
        (DEEPSEEK, "a100", {}, "TRITON_MLA"),
        (DEEPSEEK | {"sliding_window": 4096}, "a100", {}, "TRITON_MLA"),
        (SPARSE, "b200", {}, "FLASH_ATTN_MLA_SPARSE_FA4"),
        (SPARSE, "b200", {"engine": "vllm==0.32"}, "FLASHINFER_MLA_SPARSE"),
        (SPARSE, "b200", {"kv_dtype": "fp8"}, "FLASHINFER_MLA_SPARSE"),
    ],
)
def test_what_vllm_would_choose(asked: Any, config: Any, device: str, given: Any, chosen: str) -> None:
    found = asked(config, device, **given)

    assert {layers.chosen for layers in found.layers} == {chosen}
    assert found.answered == bool(chosen)


@pytest.mark.parametrize(
    ("config", "device", "given", "chosen", "block_size"),
    [
        (LLAMA, "h100", {}, "fa3", 1),
        (LLAMA, "h100", {"versions": {"cuda": "12.1"}}, "flashinfer", 1),
        (LLAMA, "h100", {"kv_dtype": "fp8_e5m2"}, "triton", 1),
        (LLAMA, "a100", {"block_size": 16}, "flashinfer", 16),
        (LLAMA, "b200", {"block_size": 16}, "trtllm_mha", 16),
        (LLAMA, "b200", {"block_size": 48}, "trtllm_mha", 64),
        (LLAMA, "b200", {"kv_dtype": "nvfp4", "engine": "sglang==0.5.20"}, "trtllm_mha", 64),
        (LLAMA, "rtx-5090", {"kv_dtype": "nvfp4"}, "flashinfer, and trtllm_mha to decode", 64),
        (LLAMA, "rtx-5090", {"kv_dtype": "nvfp4", "engine": "sglang==0.5.20"}, "", 1),
        (LLAMA, "h100", {"kv_dtype": "nvfp4"}, "", 64),
        (LLAMA, "h100", {"kv_dtype": "mxfp8"}, "", 1),
        (LLAMA | {"v_head_dim": 64}, "b200", {}, "fa4", 128),
        (GPT_OSS, "a100", {}, "triton", 1),
        (GPT_OSS, "h100", {"kv_dtype": "fp4_mx_block16"}, "", 1),
        (DEEPSEEK, "h100", {}, "fa3", 1),
        (DEEPSEEK, "b200", {"block_size": 32}, "trtllm_mla", 32),
        (DEEPSEEK, "b200", {"kv_dtype": "fp8_e5m2"}, "", 64),
        (DEEPSEEK, "a100", {}, "triton", 1),
        (SPARSE, "a100", {}, "dsa", 64),
        (SPARSE, "b200", {"kv_dtype": "fp8_e5m2"}, "", 64),
    ],
)
def test_what_sglang_would_choose(
    asked: Any, config: Any, device: str, given: Any, chosen: str, block_size: int
) -> None:
    (layers,) = asked(config, device, **{"engine": "sglang", **given}).layers

    assert (layers.chosen, layers.facts["block_size"]) == (chosen, block_size)
    assert bool(chosen) or all(verdict.reasons for verdict in layers.verdicts)


FLASH = {"flash-attn": "2.8.3", "flash-attn-3": "3.0.0", "flash-attn-4": "4.0.0b11"}
V3 = DEEPSEEK | {"v_head_dim": 128}


@pytest.mark.parametrize(
    ("config", "device", "given", "chosen"),
    [
        (LLAMA, "h100", {"backward": True}, "FusedAttention"),
        (LLAMA, "a100", {}, "FusedAttention"),
        (LLAMA, "a100", {"packages": FLASH}, "FlashAttention 2"),
        (LLAMA, "a100", {"packages": FLASH, "engine": "transformer-engine==2.18"}, "FlashAttention 4"),
        (LLAMA, "a100", {"packages": {"flash-attn": "2.1"}}, "FusedAttention"),
        (LLAMA, "a100", {"packages": {"flash-attn": ""}}, "FlashAttention 2"),
        (LLAMA, "t4", {"packages": FLASH}, "UnfusedDotProductAttention"),
        (LLAMA | {"torch_dtype": "float32"}, "h100", {"packages": FLASH}, "UnfusedDotProductAttention"),
        (LLAMA, "h100", {"mask": "bool", "packages": FLASH}, "UnfusedDotProductAttention"),
        (LLAMA, "b200", {"versions": {"cudnn": "9.6"}}, "UnfusedDotProductAttention"),
        (LLAMA, "b200", {"versions": {"cudnn": "9.7"}}, "FusedAttention"),
        (LLAMA, "h100", {"versions": {"cudnn": "9.10.1"}, "packages": FLASH}, "FlashAttention 3"),
        (GPT_OSS, "h100", {"versions": {"cudnn": "9.13.0"}, "packages": FLASH}, "UnfusedDotProductAttention"),
        (GPT_OSS, "h100", {"versions": {"cudnn": "9.13.1"}}, "FusedAttention"),
        (V3, "h100", {"backward": True}, "FusedAttention"),
        (V3, "a100", {"backward": True}, "UnfusedDotProductAttention"),
        (LLAMA | {"head_dim": 256}, "b200", {"backward": True}, "FusedAttention"),
        (
            LLAMA | {"head_dim": 256},
            "b200",
            {"backward": True, "engine": "transformer-engine==2.17.1"},
            "UnfusedDotProductAttention",
        ),
    ],
)
def test_what_transformer_engine_would_choose(
    asked: Any, config: Any, device: str, given: Any, chosen: str
) -> None:
    found = asked(config, device, **{"engine": "transformer-engine==2.19", **given})

    assert {layers.chosen for layers in found.layers} == {chosen}
    assert not any(layers.unknown_reason for layers in found.layers)


@pytest.mark.parametrize(
    ("config", "engine", "given", "why"),
    [
        (LLAMA, "transformer-engine==2.20", {}, "FusedAttention: from 2.20 on, cuDNN itself is asked"),
        (LLAMA, "transformer-engine==2.19", {"block_size": 64}, "a KV cache is not recorded"),
        (LLAMA, "transformer-engine==2.19", {"mask": "float"}, "a bias is not recorded"),
        (LLAMA | {"is_causal": False}, "transformer-engine==2.19", {}, "a causal mask is not recorded"),
        (LLAMA, "transformer-engine==2.19", {"versions": {"cudnn": "8.9.7"}}, "before 9.0 are not recorded"),
    ],
)
def test_what_cannot_be_determined_is_not_guessed(
    asked: Any, config: Any, engine: str, given: Any, why: str
) -> None:
    (layers,) = asked(config, "h100", engine=engine, **given).layers

    assert not layers.chosen
    assert why in layers.unknown_reason


def test_what_is_asked_first_decides_though_another_is_not_known(asked: Any) -> None:
    (layers,) = asked(LLAMA, "a100", engine="transformer-engine==2.20", packages=FLASH).layers

    assert (layers.chosen, layers.unknown_reason) == ("FlashAttention 2", "")
    assert [verdict.backend for verdict in layers.verdicts if verdict.undecided] == ["FusedAttention"]


def test_a_softcap_that_an_engine_does_not_have_is_refused_by_all(asked: Any) -> None:
    softcap = LLAMA | {"attn_logit_softcapping": 50.0}
    (before,) = asked(softcap, "a100", engine="transformer-engine==2.19", packages=FLASH).layers
    (after,) = asked(softcap, "a100", engine="transformer-engine==2.20", packages=FLASH).layers

    assert not before.chosen
    assert all(verdict.reasons for verdict in before.verdicts)
    assert after.chosen == "FlashAttention 2"


def test_kinds_of_layers_have_an_answer_each(asked: Any) -> None:
    window, full = asked(GPT_OSS, "a100").layers

    assert (window.kind, full.kind) == ("sliding window", "full attention")
    codes = {verdict.backend: {reason.code for reason in verdict.reasons} for verdict in window.verdicts}
    assert "window" in codes["TURBOQUANT"]
    assert codes["FLEX_ATTENTION"] == {"sinks"}
    assert not codes["TRITON_ATTN"]


@pytest.mark.parametrize(("engine", "can"), [("vllm==0.28", True), ("vllm==0.29", False)])
def test_a_row_is_for_some_releases(asked: Any, engine: str, can: bool) -> None:
    (layers,) = asked(LLAMA | {"head_dim": 256}, "b200", engine=engine, block_size=16).layers

    assert any(verdict.backend == "FLASH_ATTN" and not verdict.reasons for verdict in layers.verdicts) == can


@pytest.mark.parametrize(("width", "code"), [(128, set()), (192, {"combination"})])
def test_what_vllm_requires_counts_as_installed(asked: Any, width: int, code: set[str]) -> None:
    (layers,) = asked(DEEPSEEK | {"v_head_dim": width}, "b200", kv_dtype="fp8").layers
    verdict = next(verdict for verdict in layers.verdicts if verdict.backend == "TOKENSPEED_MLA")

    assert {reason.code for reason in verdict.reasons} == code


def test_a_reason_states_what_was_seen_and_what_is_needed(asked: Any) -> None:
    (layers,) = asked(LLAMA | {"head_dim": 80}, "t4", block_size=24).layers
    reasons = {verdict.backend: [reason.message for reason in verdict.reasons] for verdict in layers.verdicts}

    assert reasons["FLASHINFER"] == [
        "head size 80; supported: 64, 128, 256, 512",
        "block size 24; needs a multiple of 16",
        "compute capability 7.5; needs 8.0 to 12.1",
    ]
    assert layers.facts["dtype"] == "float16"  # vLLM computes bfloat16 from compute capability 8.0


@pytest.mark.parametrize(
    ("config", "device", "given", "text"),
    [
        (LLAMA | {"architectures": ["OwnForCausalLM"]}, "h100", {}, "OwnForCausalLM is not recorded"),
        (LLAMA | {"rswa_window": 128}, "h100", {}, "with rswa_window is not recorded"),
        (LLAMA | {"is_causal": False}, "h100", {}, "with is_causal is not recorded"),
        (LLAMA | {"torch_dtype": None}, "h100", {}, "has no dtype"),
        (LLAMA | {"hidden_size": 0}, "h100", {}, "has no head_dim"),
        (LLAMA | {"architectures": ["Qwen3ForCausalLM"]}, "h100", {}, "has no head_dim"),
        (LLAMA | {"num_attention_heads": 0}, "h100", {}, "not the config.json of a model"),
        (LLAMA | {"head_dim": "64"}, "h100", {}, "not the config.json of a model"),
        (
            LLAMA | {"quantization_config": {"kv_cache_scheme": {"num_bits": 8}}},
            "h100",
            {},
            "quantized KV cache",
        ),
        ([], "h100", {}, "not the config.json of a model"),
        ({"text_config": LLAMA}, "h100", {}, "in its text_config, and which attention vLLM chooses"),
        ({"_class_name": "FluxTransformer2DModel"}, "h100", {}, "of a model of diffusers"),
        (b"{", "h100", {}, "not the config.json of a model"),
        (LLAMA, "mi300x", {}, "rules of vLLM are for others"),
        (LLAMA, "cpu", {}, "rules of vLLM are for others"),
        (LLAMA, "h100", {"engine": "vllm==0.1"}, "not recorded"),
        (LLAMA, "h100", {"engine": "sglang==0.5"}, "not recorded"),
        (LLAMA, "h100", {"engine": "sglang==0.5.2"}, "not recorded"),
        (SPARSE | {"index_topk": None}, "h100", {"engine": "sglang"}, "has no index_topk"),
        (DEEPSEEK, "h100", {"engine": "transformer-engine"}, "has no v_head_dim"),
        (LLAMA, "h100", {"versions": {"cuda": "new"}, "engine": "sglang"}, "is not a version of CUDA"),
        (
            LLAMA,
            "h100",
            {"packages": {"flash-attn": "x"}, "engine": "transformer-engine"},
            "is not a version of flash-attn",
        ),
        (LLAMA, "h100", {"engine": "vllm==newest"}, "not recorded"),
    ],
)
def test_what_the_rules_do_not_cover_is_refused(
    asked: Any, config: Any, device: str, given: Any, text: str
) -> None:
    with pytest.raises(BadInput, match=text):
        asked(config, device, **given)


def test_unknown_words_are_refused(asked: Any) -> None:
    with pytest.raises(UnknownName, match="engine"):
        asked(LLAMA, "h100", engine="ollama")
    with pytest.raises(UnknownName, match="KV cache"):
        asked(LLAMA, "h100", kv_dtype="fp7")
    with pytest.raises(UnknownName, match="package"):
        asked(LLAMA, "h100", packages={"flash-attn": ""}, engine="sglang")
    with pytest.raises(UnknownName, match="element type"):
        asked(LLAMA | {"torch_dtype": "int3"}, "h100")


@pytest.mark.parametrize("name", engines.NAMES)
def test_every_name_in_the_rules_is_one(name: str) -> None:
    rules = table(f"sdpa/engines/{name}.toml")
    backends = [row["name"] for row in rules["backend"]]
    orders = [row["backends"] for row in rules["order"] if row["backends"] != "asked"]
    ordered = {backend for order in orders for backend in order}
    named = [row.get("backend", []) for row in rules["refusal"]]
    refused = {name for names in named for name in ([names] if isinstance(names, str) else names)}

    assert len(backends) == len({*backends})
    assert ordered == {*backends} or (rules["asks"] and ordered < {*backends})
    assert refused <= {*backends}


GEMMA_2 = LLAMA | {"architectures": ["Gemma2ForCausalLM"], "head_dim": 256}
FLUX = {"_class_name": "FluxTransformer2DModel", "num_attention_heads": 24, "attention_head_dim": 128}
FLASH_2 = {"packages": {"flash-attn": "2.8.3"}}


@pytest.mark.parametrize(
    ("config", "device", "given", "chosen"),
    [
        (LLAMA, "h100", {}, "sdpa"),
        (LLAMA, "h100", FLASH_2, "sdpa"),
        (LLAMA, "h100", {**FLASH_2, "asked": "flash_attention_2"}, "flash_attention_2"),
        (LLAMA, "cpu", {**FLASH_2, "asked": "flash_attention_2"}, ""),
        (LLAMA, "h100", {"packages": {"flash-attn": "2.3.2"}, "asked": "flash_attention_2"}, ""),
        (
            LLAMA,
            "h100",
            {"engine": "5.3", "packages": {"flash-attn": "2.3.2"}, "asked": "flash_attention_2"},
            "flash_attention_2",
        ),
        (
            LLAMA,
            "h100",
            {"packages": {"kernels": "0.18.2"}, "asked": "flash_attention_3"},
            "kernels-community/vllm-flash-attn3",
        ),
        (LLAMA, "h100", {"packages": {"kernels": "0.16"}, "asked": "flash_attention_3"}, ""),
        (
            LLAMA,
            "h100",
            {"packages": {"kernels": ""}, "asked": "flash_attention_4"},
            "kernels-community/flash-attn4",
        ),
        (GPT_OSS, "h100", {}, "eager"),
        (GPT_OSS, "h100", {"asked": "sdpa"}, ""),
        (
            GPT_OSS,
            "h100",
            {"packages": {"kernels": ""}, "asked": "flash_attention_2"},
            "kernels-community/vllm-flash-attn3",
        ),
        (GEMMA_2, "h100", {"engine": "4.57"}, "sdpa"),
        (GEMMA_2, "h100", {}, "eager"),
    ],
)
def test_what_transformers_would_choose(
    asked: Any, config: Any, device: str, given: dict[str, Any], chosen: str
) -> None:
    engine = f"transformers=={given['engine']}" if "engine" in given else "transformers"
    rest = {name: value for name, value in given.items() if name != "engine"}

    assert {layers.chosen for layers in asked(config, device, engine, **rest).layers} == {chosen}


def test_transformers_loads_float32_before_version_5(asked: Any) -> None:
    dtypes = [
        asked(LLAMA, "h100", engine, **given).layers[0].facts["dtype"]
        for engine, given in (
            ("transformers==4.57", {}),
            ("transformers==4.57", {"dtype": "float16"}),
            ("transformers==5.0", {}),
        )
    ]

    assert dtypes == ["float32", "float16", "bfloat16"]


def test_what_is_not_asked_for_has_that_reason_as_well(asked: Any) -> None:
    (layers,) = asked(LLAMA, "h100", "transformers").layers
    codes = {verdict.backend: [reason.code for reason in verdict.reasons] for verdict in layers.verdicts}

    assert codes["eager"] == []
    assert codes["flex_attention"] == ["not-asked"]
    assert codes["flash_attention_2"] == ["missing-part", "not-asked"]


def test_what_torch_does_is_said_where_an_engine_calls_it(asked: Any) -> None:
    window, full = asked(GPT_OSS | {"num_key_value_heads": 8}, "h100", "torch==2.13", tokens=256).layers[::2]
    (slow,) = asked(GEMMA_2, "rtx-4090", "transformers", tokens=1024).layers
    (old,) = asked(LLAMA, "t4", "transformers").layers
    (half,) = asked(LLAMA, "t4", "transformers", dtype="float16").layers

    assert "--mask bool:1,1,256,256" in window.call.text
    assert "--kv-heads" not in window.call.text  # with a mask, key and value are repeated
    assert "--causal --gqa" in full.call.text
    assert (slow.call.chosen, slow.call.torch, slow.call.score_bytes) == ("MATH", "", 32 * 1024**2 * 2)
    assert slow.call.bound.math_seconds >= slow.call.bound.seconds
    assert (old.call.chosen, old.call.score_bytes) == ("MATH", 32 * 4096**2 * 2)  # bfloat16 on a T4
    assert (half.call.chosen, half.call.score_bytes) == ("EFFICIENT_ATTENTION", 0)


@pytest.mark.parametrize(
    ("engine", "device", "given", "chosen"),
    [
        ("torch==2.13", "h100", {}, "FLASH_ATTENTION"),
        ("torch==2.14", "h100", {}, "FLASH_ATTENTION"),  # cuDNN has no causal mask there
        ("torch==2.15", "h100", {}, "CUDNN_ATTENTION"),
        ("torch==2.15", "h100", {"versions": {"cudnn": "9.17"}}, "FLASH_ATTENTION"),
        ("torch==2.15", "h100", {"tokens": 128, "versions": {"cudnn": "9.20"}}, "FLASH_ATTENTION"),
        ("torch==2.15", "a100", {}, "FLASH_ATTENTION"),
        ("torch==2.15", "a100", {"block_size": 64}, ""),
        ("torch==2.15", "t4", {}, ""),
        ("torch==2.15", "cpu", {}, ""),
    ],
)
def test_what_torch_would_choose_for_packed_prompts(
    asked: Any, engine: str, device: str, given: dict[str, Any], chosen: str
) -> None:
    whole, packed = asked(LLAMA, device, engine, **given).layers

    assert whole.kind == "full attention by scaled_dot_product_attention"
    assert whole.chosen == whole.call.chosen != ""
    assert (packed.kind, packed.chosen) == ("full attention by varlen_attn", chosen)


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, "native"),
        ({"asked": "flash"}, ""),
        ({"asked": "flash", "dtype": "bfloat16", **FLASH_2}, "flash"),
        ({"asked": "flash", "dtype": "bfloat16", "mask": "bool", **FLASH_2}, ""),
        ({"asked": "flash", **FLASH_2}, ""),
        ({"asked": "_native_math"}, "_native_math"),
        ({"asked": "flash_4_hub", "dtype": "float16", "packages": {"kernels": "0.12.2"}}, ""),
        ({"asked": "flash_4_hub", "dtype": "float16", "packages": {"kernels": "0.12.3"}}, "flash_4_hub"),
    ],
)
def test_what_diffusers_would_choose(asked: Any, given: dict[str, Any], chosen: str) -> None:
    (layers,) = asked(FLUX, "h100", "diffusers", **given).layers

    assert layers.chosen == chosen
    assert layers.facts["dtype"] == given.get("dtype", "float32")
    assert (layers.call is not None) == (chosen in ("native", "_native_math"))


@pytest.mark.parametrize(("device", "torch_chooses"), [("a100", "FLASH_ATTENTION"), ("t4", "")])
def test_of_a_backend_of_torch_the_engine_names_torch_may_refuse(
    asked: Any, device: str, torch_chooses: str
) -> None:
    found = asked(FLUX, device, "diffusers", asked="_native_flash", dtype="float16")
    (layers,) = found.layers

    assert layers.chosen == "_native_flash"
    assert [verdict.backend for verdict in layers.call.verdicts] == ["FLASH_ATTENTION"]
    assert (layers.call.chosen, found.answered) == (torch_chooses, bool(torch_chooses))


@pytest.mark.parametrize(
    ("config", "device", "engine", "given", "text"),
    [
        (FLUX, "cpu", "diffusers", {}, "rules of diffusers are for others"),
        (
            FLUX | {"_class_name": "UNet2DConditionModel"},
            "h100",
            "diffusers",
            {},
            "UNet2DConditionModel is not",
        ),
        (FLUX | {"_class_name": "Flux3Transformer2DModel"}, "h100", "diffusers==0.41", {}, "Flux3"),
        (LLAMA | {"_attn_implementation": "sdpa"}, "h100", "transformers", {}, "with _attn_implementation"),
        (LLAMA, "h100", "transformers", {"packages": {"flash": ""}}, "'flash'"),
        (
            LLAMA,
            "h100",
            "transformers",
            {"packages": {"Flash_Attn": "new"}},
            "is not a version of flash-attn",
        ),
        (LLAMA, "h100", "transformers", {"asked": "xformers"}, "attention of transformers"),
        (LLAMA, "h100", "vllm", {"asked": "TRITON_ATTN"}, "attention of vLLM"),
        (LLAMA, "h100", "vllm", {"packages": {"flashinfer": ""}}, "package"),
        (LLAMA, "h100", "torch", {"kv_dtype": "fp8"}, "KV cache"),
        (DEEPSEEK, "h100", "torch", {}, "has no v_head_dim"),
        (LLAMA | {"hidden_size": 31}, "h100", "torch", {}, "has no head_dim"),
    ],
)
def test_what_these_rules_do_not_cover_is_refused(
    asked: Any, config: Any, device: str, engine: str, given: dict[str, Any], text: str
) -> None:
    with pytest.raises((BadInput, UnknownName), match=text):
        asked(config, device, engine, **given)


@pytest.mark.parametrize(
    ("config", "device", "engine", "codes"),
    [
        (LLAMA, "h100", "transformers", []),
        (LLAMA, "t4", "transformers", ["wrong-capability"]),
        (
            LLAMA | {"head_dim": 512, "dtype": "float32"},
            "t4",
            "transformers",
            ["wrong-dtype", "wrong-capability", "head-size"],
        ),
        (LLAMA, "h100", "transformers==4.57", ["wrong-dtype"]),
    ],
)
def test_what_an_engine_does_not_refuse_is_a_warning(
    asked: Any, config: Any, device: str, engine: str, codes: list[str]
) -> None:
    (layers,) = asked(config, device, engine, asked="flash_attention_2", **FLASH_2).layers

    assert layers.chosen == "flash_attention_2"
    assert [warning.code for warning in layers.verdicts[0].warnings] == codes
