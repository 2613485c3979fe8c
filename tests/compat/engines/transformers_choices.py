"""What transformers' own dispatch chooses, without a GPU: lines of JSON on stdin, answers on stdout.

The release in sys.path runs unchanged; the packages that are installed, and what torch says of the GPU, are
as each line has them. Kernels of the Hub count as there, and nothing is loaded.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import json
import sys
from types import SimpleNamespace
from typing import Any

import torch

#: The packages, each with its module before and since transformers 5.4.
MODULES = {
    "flash-attn": ("flash_attn", "flash_attn"),
    "flash-attn-3": ("flash_attn_3", "flash_attn_interface"),
    "flash-attn-4": ("flash_attn", "flash_attn"),
    "kernels": ("kernels", "kernels"),
}
#: What transformers' messages say, and our codes for them.
CODES = {
    "does not support": "architecture",
    "not be installed": "missing-part",
    "be not installed": "missing-part",
    "be installed": "missing-part",
    "either not installed": "missing-part",
    "`kernels`": "missing-part",
    "version to be greater": "too-old",
    "at least version": "too-old",
    "on CPU": "wrong-device",
    "ALiBi": "combination",
    "attention_dropout": "dropout",
}
WARNINGS = {"only supports torch.float16": "wrong-dtype", "with dropout": "dropout"}
state: dict[str, Any] = {"packages": {}, "modules": set(), "platform": "cpu"}


def stand_in() -> None:
    """Let the packages of `state` be those that are installed, and only those."""
    names = {name for pair in MODULES.values() for name in pair}
    real_spec, real_version = importlib.util.find_spec, importlib.metadata.version

    def find_spec(name: str, package: str | None = None) -> Any:
        if name.split(".", maxsplit=1)[0] in names:
            return importlib.machinery.ModuleSpec(name, None) if name in state["modules"] else None
        return real_spec(name, package)

    def version(distribution_name: str) -> str:
        name = distribution_name
        if (dashed := name.replace("_", "-")) in MODULES:
            if dashed not in state["packages"]:
                raise importlib.metadata.PackageNotFoundError(name)
            return str(state["packages"][dashed])
        return real_version(name)

    importlib.util.find_spec, importlib.metadata.version = find_spec, version
    torch.cuda.is_available = lambda: state["platform"] == "cuda"
    torch.cuda.get_device_capability = lambda *_device: divmod(state["capability"], 10)
    torch.version.cuda = "12.8"


def main() -> None:
    stand_in()
    import transformers
    from transformers import modeling_utils
    from transformers.utils import import_utils

    transformers.logging.set_verbosity(50)
    # By import_module, as what these files have differs between the releases.
    hub: Any = importlib.import_module("transformers.integrations.hub_kernels")
    flash: Any = importlib.import_module("transformers.modeling_flash_attention_utils")
    is_new = hasattr(modeling_utils.PreTrainedModel, "_flash_attn_can_dispatch")
    hub.get_kernel = lambda *_name, **_options: SimpleNamespace(
        flash_attn_func=len, flash_attn_varlen_func=len, flash_attn_with_kvcache=None
    )
    for module in (modeling_utils, flash):
        if hasattr(module, "lazy_import_flash_attention"):
            real = flash.lazy_import_flash_attention
            module.lazy_import_flash_attention = lambda name, *rest, _real=real, **more: (
                None if name.startswith("flash_attention_") else _real(name, *rest, **more)
            )
    caches = [
        value
        for module in (import_utils, modeling_utils, flash)
        for value in vars(module).values()
        if hasattr(value, "cache_clear")
    ]
    classes: dict[str, Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        state.update(asked)
        state["modules"] = {MODULES[name][is_new] for name in asked["packages"]}
        mapping: dict[str, list[str]] = {}
        for name in asked["packages"]:
            mapping.setdefault(MODULES[name][is_new], []).append(name)
        for module in (import_utils, flash, modeling_utils):
            if hasattr(module, "PACKAGE_DISTRIBUTION_MAPPING"):
                module.PACKAGE_DISTRIBUTION_MAPPING = mapping
            if hasattr(module, "_package_distribution_mapping"):
                module._package_distribution_mapping = lambda _mapping=mapping: _mapping
            if hasattr(module, "_candidate_distribution_names"):
                module._candidate_distribution_names = lambda name, _mapping=mapping: _mapping.get(name, [])
        for cached in caches:
            cached.cache_clear()
        for module in (import_utils, hub):
            if hasattr(module, "_kernels_available"):
                module._kernels_available = "kernels" in asked["packages"]
        flash._loaded_implementation = None
        warned: list[str] = []
        modeling_utils.logger.warning_once = lambda text, *_rest, _warned=warned: _warned.append(text)
        name = asked["config"]["architectures"][0]
        if name not in classes:
            classes[name] = type(name, (getattr(transformers, name),), {"__init__": torch.nn.Module.__init__})
        model = classes[name]()
        config = SimpleNamespace(_name_or_path="", **asked["config"])
        config.dtype = getattr(torch, config.dtype)
        model.config = config
        wanted = None if asked["asked"] == "not asked" else asked["asked"]
        try:
            answer = {
                "chosen": model._check_and_adjust_attn_implementation(wanted, is_init_check=True),
                "code": "",
            }
        except (ValueError, ImportError) as error:
            code = next((code for words, code in CODES.items() if words in str(error)), str(error))
            answer = {"chosen": "", "code": code}
        codes = {code for words, code in WARNINGS.items() if any(words in text for text in warned)}
        print(json.dumps({**answer, "warned": sorted(codes)}))


if __name__ == "__main__":
    main()
