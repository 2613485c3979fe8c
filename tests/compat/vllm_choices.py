"""What vLLM's own selection chooses, without a GPU: lines of JSON on stdin, the facts; answers on stdout.

Only the files that decide are run, unchanged, from the release in sys.path; what they import besides, such as
kernels, is a stand-in. FlashInfer and its kernels count as installed.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, Protocol

#: The files that decide, and those with the constants that they use.
REAL = (
    "vllm.envs",
    "vllm.platforms.interface",
    "vllm.platforms.cuda",
    "vllm.utils.flashinfer",
    "vllm.utils.import_utils",
    "vllm.v1.attention.backend",
    "vllm.v1.attention.selector",
    "vllm.v1.attention.backends",
    "vllm.v1.attention.ops.flashmla",
    "vllm.v1.kv_cache_interface",
    "vllm.vllm_flash_attn.flash_attn_interface",
    "vllm.utils.torch_utils",
    "vllm.model_executor.layers.attention.mla_attention",
)
#: Packages that are not stood in for: they are installed, or absent on purpose.
KEPT = ("tokenspeed_mla", "torch", *sys.stdlib_module_names)


class Stand(type(Protocol)):  # type: ignore[misc]
    """The type of what stands in for a name: it can be called, subscripted, joined and inherited from."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return stand(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "stands_in" not in vars(cls):
            return super().__call__(*args, **kwargs)
        return args[0] if len(args) == 1 and callable(args[0]) else stand(cls.__name__)

    def register(cls, *_names: Any, **_options: Any) -> Any:
        return lambda decorated: decorated

    def __getitem__(cls, _key: Any) -> Any:
        return cls

    def __or__(cls, _other: Any) -> Any:
        return cls

    __ror__ = __or__

    def __iter__(cls) -> Any:
        return iter(())

    def __gt__(cls, _other: Any) -> bool:
        return False


def stand(name: str) -> Any:
    return Stand(name, (), {"stands_in": True, "__doc__": ""})


class StandModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = stand(name)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for vLLM's other modules, and as the last finder for packages that are not installed."""

    def __init__(self, *, is_last: bool, root: str = "") -> None:
        self.is_last, self.root = is_last, root

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        if name.split(".", maxsplit=1)[0] == "vllm":
            if self.is_last or name in REAL or (name.startswith("vllm.v1.attention.backends.")):
                return None
        elif not self.is_last or name.split(".", maxsplit=1)[0] in KEPT or not self.is_for_vllm():
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        folder = os.path.join(self.root, *name.split("."))
        spec.submodule_search_locations = [folder] if name.startswith("vllm") else []
        return spec

    def is_for_vllm(self) -> bool:
        """Return whether a file of vLLM imports, rather than another package that tries what is installed."""
        frame = sys._getframe(2)
        while "importlib" in frame.f_code.co_filename and frame.f_back:
            frame = frame.f_back
        return frame.f_code.co_filename.startswith(os.path.join(self.root, "vllm"))

    def create_module(self, spec: Any) -> ModuleType:
        return StandModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def selection() -> tuple[Any, SimpleNamespace, Any]:
    """Return vLLM's CUDA platform with what it reads, which the caller sets, and its selector."""
    found = importlib.util.find_spec("vllm")
    assert found, "vLLM is not installed"
    assert found.origin
    root = os.path.dirname(os.path.dirname(found.origin))

    sys.meta_path.insert(0, Finder(is_last=False, root=root))
    sys.meta_path.append(Finder(is_last=True, root=root))
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

    vllm.platforms.current_platform = Platform()
    from vllm.utils import flashinfer

    flashinfer.has_flashinfer = lambda: True
    flashinfer.has_nvidia_artifactory = lambda: True
    flashinfer.has_flashinfer_sm90_nope_mla = lambda: True
    flashinfer.has_flashinfer_sparse_mla_sm120 = lambda: True
    from vllm.v1.attention import selector

    return Platform, state, selector


def configured(facts: dict[str, Any]) -> SimpleNamespace:
    """Return what vLLM's configuration has for these facts, as far as the files above read it."""
    names = ["kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"] if facts["mla"] else []
    text = {name: facts[name] for name in names}
    if facts["sparse"]:
        text["index_topk"] = facts["index_topk"]
    if facts["softcap"]:
        text["attn_logit_softcapping"] = 50.0
    model = SimpleNamespace(
        hf_text_config=SimpleNamespace(**text),
        is_diffusion=False,
        is_mm_prefix_lm=False,
        rswa_window=None,
        get_head_size=lambda: facts["head_size"],
        get_num_attention_heads=lambda _parallel: facts["heads"],
        get_num_kv_heads=lambda _parallel: facts["kv_heads"],
    )
    return SimpleNamespace(
        model_config=model,
        cache_config=SimpleNamespace(cache_dtype=facts["kv_dtype"]),
        attention_config=SimpleNamespace(flash_attn_version=None, use_trtllm_attention=None),
        parallel_config=SimpleNamespace(prefill_context_parallel_size=1, decode_context_parallel_size=1),
    )


def main() -> None:
    platform, state, selector = selection()
    import torch
    from vllm.platforms.interface import DeviceCapability

    torch.empty = lambda *_shape, **_options: None  # the workspace of CUTLASS_MLA, made on the GPU at import
    for line in sys.stdin:
        facts = json.loads(line)
        state.config = configured(facts)
        state.capability = DeviceCapability(*divmod(facts["capability"], 10))
        config = selector.AttentionSelectorConfig(
            head_size=facts["head_size"],
            dtype=getattr(torch, facts["dtype"]),
            kv_cache_dtype=facts["kv_dtype"],
            block_size=facts["block_size"],
            use_mla=facts["mla"],
            has_sink=facts["sinks"],
            use_sparse=facts["sparse"],
            has_sliding_window=facts["window"],
        )
        heads = facts["heads"] if facts["mla"] else None
        valid, refused = platform.get_valid_backends(state.capability, config, heads)
        reasons = {backend.name: reasons for backend, (_, reasons) in refused.items()}
        order = sorted(
            [*((c.priority, c.backend.name) for c in valid), *((p, b.name) for b, (p, _) in refused.items())]
        )
        try:
            path = platform.get_attn_backend_cls(None, config, heads)
        except ValueError:
            path = ""
        names = {
            f"{c.backend_class.__module__}.{c.backend_class.__qualname__}": c.backend.name for c in valid
        }
        answer = {"chosen": names.get(path, path), "order": [name for _, name in order], "reasons": reasons}
        print(json.dumps(answer, default=repr))


if __name__ == "__main__":
    main()
