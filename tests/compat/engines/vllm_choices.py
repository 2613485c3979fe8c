"""What vLLM's own selection chooses, without a GPU: models as lines of JSON on stdin, answers on stdout.

Only the files that decide are run, unchanged, from the release in sys.path; what they import besides, such as
kernels, is a stand-in. FlashInfer with its kernels and tokenspeed-mla count as installed.
"""

from __future__ import annotations

import importlib
import json
import sys
from types import SimpleNamespace
from typing import Any

import stand_ins

#: The files that decide, and those with the constants that they use.
REAL = (
    "vllm.config.model",
    "vllm.envs",
    "vllm.model_executor.models.config",
    "vllm.transformers_utils.deepseek_v4_utils",
    "vllm.transformers_utils.model_arch_config_convertor",
    "vllm.platforms.interface",
    "vllm.platforms.cuda",
    "vllm.utils.flashinfer",
    "vllm.utils.import_utils",
    "vllm.v1.attention.backend",
    "vllm.v1.attention.selector",
    "vllm.v1.attention.backends",
    "vllm.v1.attention.backends.",
    "vllm.v1.attention.ops.flashmla",
    "vllm.v1.kv_cache_interface",
    "vllm.vllm_flash_attn.flash_attn_interface",
    "vllm.utils.torch_utils",
    "vllm.model_executor.layers.attention.mla_attention",
)


def selection() -> tuple[Any, SimpleNamespace, Any]:
    """Return vLLM's CUDA platform with what it reads, which the caller sets, and its selector."""
    stand_ins.install("vllm", REAL)
    import vllm.config
    import vllm.platforms
    import vllm.platforms.interface

    state = SimpleNamespace(config=None, capability=None)
    vllm.config.get_current_vllm_config = lambda: state.config
    vllm.config.get_current_vllm_config_or_none = lambda: state.config
    import vllm.config.cache

    vllm.config.cache.get_kv_cache_dtype_handler = lambda _name: None  # no plugin has registered one
    import vllm.platforms.cuda

    class Platform(vllm.platforms.cuda.CudaPlatformBase):  # type: ignore[misc]
        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            del device_id
            return state.capability

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return f"GPU {device_id}"

    vllm.platforms.current_platform = Platform()
    # By import_module, as a stand-in for a package has every name.
    flashinfer: Any = importlib.import_module("vllm.utils.flashinfer")

    flashinfer.has_flashinfer = lambda: True
    flashinfer.has_nvidia_artifactory = lambda: True
    flashinfer.has_flashinfer_sm90_nope_mla = lambda: True
    flashinfer.has_flashinfer_sparse_mla_sm120 = lambda: True
    return Platform, state, importlib.import_module("vllm.v1.attention.selector")


def configured(asked: dict[str, Any], model: SimpleNamespace, head_size: int) -> SimpleNamespace:
    """Return what vLLM's configuration has for a model, as far as the files above read it."""
    config = SimpleNamespace(
        hf_config=model,
        hf_text_config=model,
        is_diffusion=False,
        is_mm_prefix_lm=False,
        rswa_window=None,
        get_head_size=lambda: head_size,
        get_num_attention_heads=lambda _parallel: model.num_attention_heads,
        get_num_kv_heads=lambda _parallel: model.num_key_value_heads,
    )
    parallel = SimpleNamespace(
        prefill_context_parallel_size=1,
        decode_context_parallel_size=1,
        set_dcp_defaults=lambda **_defaults: None,
    )
    return SimpleNamespace(
        model_config=config,
        cache_config=SimpleNamespace(cache_dtype=asked["kv_dtype"]),
        attention_config=SimpleNamespace(flash_attn_version=None, use_trtllm_attention=None, backend=None),
        parallel_config=parallel,
        speculative_config=None,
    )


#: Whose own settings change the type of the KV cache.
SETTING = ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")


def main() -> None:
    platform, state, selector = selection()
    import torch
    from vllm.config.model import _resolve_auto_dtype
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP
    from vllm.platforms.interface import DeviceCapability
    from vllm.transformers_utils.model_arch_config_convertor import ModelArchConfigConvertorBase

    torch.empty = lambda *_shape, **_options: None  # the workspace of CUTLASS_MLA, made on the GPU at import
    for line in sys.stdin:
        asked = json.loads(line)
        model = SimpleNamespace(**asked["config"])
        state.capability = DeviceCapability(*divmod(asked["capability"], 10))
        converter = ModelArchConfigConvertorBase(model, model)
        mla, head_size = converter.is_deepseek_mla(), converter.get_head_size()
        state.config = configured(asked, model, head_size)
        if (name := model.architectures[0]) in SETTING and name in MODELS_CONFIG_MAP:
            MODELS_CONFIG_MAP[name].verify_and_update_config(state.config)
        dtype = _resolve_auto_dtype(model.model_type, getattr(torch, model.dtype), is_pooling_model=False)
        config = selector.AttentionSelectorConfig(
            head_size=head_size,
            dtype=dtype,
            kv_cache_dtype=state.config.cache_config.cache_dtype,
            block_size=asked["block_size"] or None,
            use_mla=mla,
            has_sink=name == "GptOssForCausalLM",
            use_sparse=mla and hasattr(model, "index_topk"),
            has_sliding_window=asked["window"] and not mla,
        )
        heads = model.num_attention_heads if mla else None
        valid, refused = platform.get_valid_backends(state.capability, config, heads)
        order = [(candidate.priority, candidate.backend.name) for candidate in valid]
        order += [(priority, backend.name) for backend, (priority, _) in refused.items()]
        try:
            path = platform.get_attn_backend_cls(None, config, heads)
        except ValueError:
            path = ""
        names = {
            f"{c.backend_class.__module__}.{c.backend_class.__qualname__}": c.backend.name for c in valid
        }
        answer = {
            "chosen": names.get(path, path),
            "order": [name for _, name in sorted(order)],
            "reasons": {backend.name: reasons for backend, (_, reasons) in refused.items()},
        }
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
