"""Hardware and machine-learning backends, inspected: a stand-alone `torch.backends` that needs no torch.

    import mlbackends
    mlbackends.cudnn.version()                      # 91002, from the library itself
    mlbackends.cuda.matmul.allow_tf32 = True        # torch's switches, with torch's rules
    with mlbackends.sdpa_kernel(mlbackends.SDPBackend.MATH): ...
    mlbackends.report("cpu").probes["cpu"].facts    # what `backends info cpu` shows

Importing this costs nothing: each part is loaded when its name is first touched.
"""

import sys

from mlbackends.base.version import __version__ as __version__

_MODULES = (
    "cpu", "cuda", "cudnn", "cusparselt", "kleidiai", "mha", "miopen", "mkl", "mkldnn", "mps", "nnpack",
    "openmp", "opt_einsum", "python_native", "quantized", "xeon", "xnnpack", "sdpa",
)  # fmt: skip
#: Where each name is defined: a module, or a module and an attribute of it.
_LAZY = {
    **{name: f"mlbackends.{name}" for name in _MODULES},
    "ContextProp": "mlbackends.switches.modules:ContextProp",
    "PropModule": "mlbackends.switches.modules:PropModule",
    "_FP32Precision": "mlbackends.switches.modules:FP32Precision",
    "disable_global_flags": "mlbackends.switches.modules:disable_global_flags",
    "flags_frozen": "mlbackends.switches.modules:flags_frozen",
    "__allow_nonbracketed_mutation": "mlbackends.switches.store:freeze_lifted",
    "get_float32_matmul_precision": "mlbackends.switches.modules:get_float32_matmul_precision",
    "set_float32_matmul_precision": "mlbackends.switches.modules:set_float32_matmul_precision",
    "get_num_threads": "mlbackends.sdpa.threads:get_num_threads",
    "set_num_threads": "mlbackends.sdpa.threads:set_num_threads",
    "flag_store": "mlbackends.switches.store",
    "load_flags": "mlbackends.switches.store:load_file",
    "report": "mlbackends.survey:report",
    "trace": "mlbackends.tracing.session:trace",
    **{
        name: f"mlbackends.sdpa:{name}"
        for name in (
            "SDPBackend", "sdpa_kernel", "scaled_dot_product_attention",
            "scaled_dot_product_attention_backward", "CausalBias", "CausalVariant",
            "causal_lower_right", "causal_upper_left", "last_attention", "replace_attention",
        )
    },
}  # fmt: skip
#: Internal names: they can be imported, and are not shown.
_INNER = frozenset({"_FP32Precision", "__allow_nonbracketed_mutation"})
_PUBLIC = (*(name for name in _LAZY if name not in _INNER), "flags", "set_flags")
__all__ = [name for name in _PUBLIC if name not in ("ContextProp", "PropModule", "flag_store")]


class _Asleep(type(sys)):
    """The class of this module until one of its names is touched; then `switches.modules` takes over."""

    def __getattr__(self, name: str) -> object:
        # The import system looks for __path__ and others.
        if name.startswith("__") and name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in _MODULES:
            import importlib

            return importlib.import_module(f"mlbackends.{name}")
        _wake()
        return getattr(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        if not isinstance(value, type(sys)) and not name.startswith("__"):
            _wake()
            setattr(self, name, value)
        else:  # a module that has just been imported below this one
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        _wake()
        return dir(self)


def _wake() -> None:
    from mlbackends.switches.modules import install

    install(__name__, "GenericModule")


sys.modules[__name__].__class__ = _Asleep
