"""What Transformer Engine's own selection chooses, without a GPU: problems as lines of JSON on stdin.

The file that decides is run as it is, and the function of the library that it asks: the libraries of CUDA and
cuDNN are stand-ins that report the GPU and the version that are asked for. flash-attn-4's own check of head
sizes is run where its files are in sys.path; flash-attn 2 and 3 are stand-ins.
"""

from __future__ import annotations

import ast
import ctypes
import enum
import importlib
import importlib.util
import inspect
import json
import logging
import os
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError
from types import ModuleType, SimpleNamespace
from typing import Any

import stand_ins

#: What the library asks before it decides: the GPU by number, which stands for its compute capability.
ANSWERS = {
    "cudaGetDeviceCount": "int cudaGetDeviceCount(int *n) { *n = 200; return 0; }",
    "cudaGetDeviceProperties": """int cudaGetDeviceProperties(char *to, int number) {
        *(int *)(to + 360) = number / 10; *(int *)(to + 364) = number % 10; return 0; }""",
    "cudaGetDevice": 'int cudaGetDevice(int *to) { *to = atoi(getenv("ASKED_DEVICE")); return 0; }',
    "cudaGetDriverEntryPointByVersion": """int context(void **to) { *to = (void *)1; return 0; }
        int cudaGetDriverEntryPointByVersion(char *name, void **to, int v, long f, int *state) {
            *to = (void *)context; return *state = 0; }""",
    "cudnnGetVersion": 'unsigned long cudnnGetVersion(void) { return atol(getenv("ASKED_CUDNN")); }',
    "__cudaRegisterFatBinary": "void *handle[4]; void **__cudaRegisterFatBinary(void *f) { return handle; }",
}
SYSTEM = ("libdl.", "libpthread.", "librt.", "libstdc++.", "libm.", "libgcc_s.", "libc.", "ld-linux")
#: Numbers of transformer_engine.h and fused_attn.h.
DTYPES = {"float32": 4, "float16": 5, "bfloat16": 6}
MASKS = {"no_mask": 0, "causal": 2, "arbitrary": 6}


class Fused(enum.IntEnum):
    No_Backend = -1
    F16_arbitrary_seqlen = 1
    FP8 = 2


def library(path: str) -> Any:
    """Return the library's function, of a process in which stand-ins for CUDA's libraries are loaded."""
    needed = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout
    missing = subprocess.run(["nm", "-D", "-u", path], capture_output=True, text=True, check=True).stdout
    symbols = [line.split()[-1].partition("@") for line in missing.splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        for name in (line.split("[")[1].strip("]") for line in needed.splitlines() if "(NEEDED)" in line):
            if name.startswith(SYSTEM):
                continue
            own = [symbol for symbol, _, version in symbols if version.strip("@") == name]
            also = [s for s, _, v in symbols if not v and s.startswith(("nccl", "nvrtc")) and "nccl" in name]
            code = (ANSWERS.get(symbol, f"long {symbol}(void) {{ return 0; }}") for symbol in own + also)
            source, versions = os.path.join(folder, "s.c"), os.path.join(folder, "s.map")
            with open(source, "w", encoding="utf-8") as file:
                file.write("#include <stdlib.h>\n#include <string.h>\n" + "\n".join(code))
            with open(versions, "w", encoding="utf-8") as file:
                file.write(f"{name} {{ global: *; }};")
            built, script = os.path.join(folder, name), [f"-Wl,--version-script={versions}"] if own else []
            command = ["gcc", "-w", "-shared", "-fPIC", source, f"-Wl,-soname,{name}", *script, "-o", built]
            subprocess.run(command, check=True)
            ctypes.CDLL(built, mode=ctypes.RTLD_GLOBAL)
        function = ctypes.CDLL(path, mode=os.RTLD_LAZY).nvte_get_fused_attn_backend
    size, number, flag = ctypes.c_size_t, ctypes.c_int, ctypes.c_bool
    function.argtypes = [flag, *[number] * 6, ctypes.c_float, *[size] * 6, *[ctypes.c_int64] * 2, *[flag] * 3]
    function.restype = number
    return function


def check_of_head_sizes() -> Any:
    """Return flash-attn-4's own check, or None if its files are not in sys.path."""
    for folder in sys.path:
        path = os.path.join(folder, "flash_attn", "cute", "interface.py")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                tree = ast.parse(file.read())
            (found,) = (n for n in tree.body if getattr(n, "name", "") == "_validate_head_dims")
            names: dict[str, Any] = {}
            exec(compile(ast.Module([found], []), path, "exec"), names)
            return names["_validate_head_dims"]
    return None


def installing(dpa: Any, folder: str, asked: dict[str, Any]) -> Any:
    """Return what sets the versions of flash-attn that are seen: lines of its own backends.py."""
    with open(os.path.join(folder, "backends.py"), encoding="utf-8") as file:
        text = file.read()
    start, end = text.index("# Try to import Flash Attention v2"), text.index("# Float8CurrentScaling")
    code = compile(text[start:end], "backends.py", "exec")
    untouched = {name: value for name, value in vars(dpa.FlashAttentionUtils).items() if name[:2] != "__"}
    for name in ("flash_attn_2_cuda", "flash_attn", "flash_attn.flash_attn_interface", "flash_attn.cute"):
        sys.modules[name] = stand_ins.StandModule(name)
    for name in ("flash_attn_interface", "flash_attn.cute.interface"):
        module: Any = ModuleType(name)
        for function in ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache"):
            setattr(module, function, lambda softcap=0.0: softcap)
        module._flash_attn_forward = module._flash_attn_backward = None
        module._flash_attn_fwd = module._flash_attn_bwd = None
        module._validate_head_dims = check_of_head_sizes()
        sys.modules[name] = module

    def version(name: str) -> str:
        if name == "nvidia-cutlass-dsl":
            return "5"
        if not asked.get(name):
            raise PackageNotFoundError(name)
        return str(asked[name])

    import torch

    names = {
        "PkgVersion": dpa.PkgVersion,
        "get_pkg_version": version,
        "PackageNotFoundError": PackageNotFoundError,
        "get_device_compute_capability": dpa.get_device_compute_capability,
        "no_torch_dynamo": lambda: lambda function: function,
        "fa_utils": dpa.FlashAttentionUtils,
        "attn_log": SimpleNamespace(fa_logger=logging.getLogger()),
        "dpa_utils": dpa,
        "inspect": inspect,
        "torch": torch,
        "warnings": SimpleNamespace(warn=lambda *_args, **_options: None),
    }

    def install() -> None:
        for name, value in untouched.items():
            setattr(dpa.FlashAttentionUtils, name, value)
        exec(code, dict(names))

    return install


def parameters(dpa: Any, asked: dict[str, Any]) -> Any:
    """Return the problem as Transformer Engine describes it."""
    import torch

    given = {"softcap": asked["softcap"]} if asked["softcap"] else {}
    return dpa.AttentionParams(
        qkv_type=torch.Tensor,
        qkv_dtype=getattr(torch, asked["dtype"]),
        qkv_layout="bshd_bshd_bshd",
        batch_size=2,
        num_heads=asked["heads"],
        num_gqa_groups=asked["kv_heads"],
        max_seqlen_q=asked["tokens"],
        max_seqlen_kv=asked["tokens"],
        head_dim_qk=asked["head_size"],
        head_dim_v=asked["value_size"],
        attn_mask_type="arbitrary" if asked["mask"] == "bool" else "causal",
        window_size=None if asked["mask"] == "bool" else (asked["window"] or -1, 0),
        bottom_right_diagonal=False,
        core_attention_bias_type="alibi" if asked["alibi"] else "no_bias",
        core_attention_bias_shape=None,
        core_attention_bias_requires_grad=False,
        attention_dropout=0.1 if asked["dropout"] else 0.0,
        is_training=asked["backward"],
        softmax_type="learnable" if asked["sinks"] else "vanilla",
        **given,
    )


def main() -> None:
    import torch

    logging.disable(logging.CRITICAL)
    written = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the library prints warnings
    spec = importlib.util.find_spec("transformer_engine")
    assert spec, "Transformer Engine is not installed"
    assert spec.origin
    root = os.path.dirname(spec.origin)
    package = "transformer_engine.pytorch.attention.dot_product_attention"
    parents = [package.rsplit(".", count)[0] for count in range(1, 4)]
    stand_ins.install("transformer_engine", (f"{package}.utils",))
    for name in (*parents, package):
        importlib.import_module(name)
    dpa: Any = importlib.import_module(f"{package}.utils")
    asked: dict[str, Any] = {}
    torch.cuda.is_available = lambda: True
    torch.cuda.current_device = lambda: 0
    dpa.get_device_compute_capability = lambda: divmod(asked["capability"], 10)
    dpa.get_cudnn_version = lambda: tuple(map(int, asked["cudnn"].split(".")))
    dpa.te = SimpleNamespace(__version__="")
    dpa.FusedAttnBackend = Fused
    dpa.QKVLayout = {"bshd_bshd_bshd": 9}
    dpa.AttnMaskType = MASKS
    dpa.AttnBiasType = {"no_bias": 0, "alibi": 3}
    dpa.SoftmaxType = {"vanilla": 0, "learnable": 2}
    dpa.QKVFormat = {"bshd": 0, None: None}
    dpa.TE_DType = {getattr(torch, name): number for name, number in DTYPES.items()}
    dpa.Float8Tensor = dpa.Float8TensorStorage = dpa.MXFP8Tensor = dpa.MXFP8TensorStorage = type(None)
    install = installing(dpa, os.path.join(root, *package.split(".")[1:]), asked)
    by_params = hasattr(dpa, "FusedAttentionParams")
    libc = ctypes.CDLL(None)
    ask = None if by_params else library(os.path.join(root, "wheel_lib", "libtransformer_engine.so"))
    for line in sys.stdin:
        asked.clear()
        asked.update(json.loads(line))
        major, minor, patch = map(int, asked["cudnn"].split("."))
        libc.setenv(b"ASKED_DEVICE", str(asked["capability"]).encode(), 1)
        libc.setenv(b"ASKED_CUDNN", str(major * 10000 + minor * 100 + patch).encode(), 1)
        install()
        params = parameters(dpa, asked)
        chosen = []
        for fused in (Fused.F16_arbitrary_seqlen, Fused.No_Backend) if by_params else (None,):
            answer = ask if fused is None else lambda _params, fused=fused: (fused, "")
            dpa.tex = SimpleNamespace(get_fused_attn_backend=answer, NVTEScalingMode=stand_ins.stand("modes"))
            flash, version, use_fused, _, unfused, _ = dpa.get_attention_backend(params)
            utils = dpa.FlashAttentionUtils
            versions = ((utils.fa3_version, "FlashAttention 3"), (utils.fa4_version, "FlashAttention 4"))
            if flash:
                chosen.append(next((name for own, name in versions if own is version), "FlashAttention 2"))
            else:
                chosen.append("FusedAttention" if use_fused else "UnfusedDotProductAttention" * bool(unfused))
        print(json.dumps({"chosen": chosen}), file=written, flush=True)


if __name__ == "__main__":
    main()
