"""`backends run` with the installed torch: the program sees each value, and so do its children."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from builds import IS_NEWEST

from mlbackends import inject
from mlbackends.inject.steps import Step, plan
from mlbackends.switches.cells import lost
from mlbackends.switches.files import settings
from mlbackends.switches.table import SWITCHES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

B = "torch.backends."
M = f"{B}cuda.matmul."
BACKWARDS = "overrideable,cudnn_attention,math,efficient_attention,flash_attention"
HOOK = os.path.join(os.path.dirname(inject.__file__), "hook", "applying.py")
#: Beside each setting, where the program finds it and what must stand there: not from our table.
SEEN: tuple[tuple[str, str, object], ...] = (
    ("fp32_precision=ieee", f"{B}fp32_precision", "ieee"),
    ("float32_matmul_precision=high", "torch.get_float32_matmul_precision()", "high"),
    ("cuda.matmul.allow_tf32=true", f"{B}cuda.matmul.allow_tf32", True),
    ("cuda.matmul.fp32_precision=tf32", f"{B}cuda.matmul.fp32_precision", "tf32"),
    ("cuda.matmul.allow_fp16_reduced_precision_reduction=false,false",
     f"[{M}allow_fp16_reduced_precision_reduction, {M}allow_fp16_reduced_precision_reduction_split_k]",
     [False, False]),
    ("cuda.matmul.allow_bf16_reduced_precision_reduction=false",
     f"[{M}allow_bf16_reduced_precision_reduction, {M}allow_bf16_reduced_precision_reduction_split_k]",
     [False, True]),
    ("cuda.matmul.allow_fp16_accumulation=true", f"{B}cuda.matmul.allow_fp16_accumulation", True),
    ("cuda.preferred_linalg_library=cusolver", f"{B}cuda.preferred_linalg_library().name", "Cusolver"),
    ("cuda.preferred_blas_library=cublaslt", f"{B}cuda.preferred_blas_library().name", "Cublaslt"),
    ("cuda.preferred_rocm_fa_library=aotriton", f"{B}cuda.preferred_rocm_fa_library().name", "AOTriton"),
    ("cuda.flash_sdp=false", f"{B}cuda.flash_sdp_enabled()", False),
    ("cuda.mem_efficient_sdp=false", f"{B}cuda.mem_efficient_sdp_enabled()", False),
    ("cuda.math_sdp=false", f"{B}cuda.math_sdp_enabled()", False),
    ("cuda.cudnn_sdp=false", f"{B}cuda.cudnn_sdp_enabled()", False),
    ("cuda.overrideable_sdp=false", "torch._C._get_overrideable_sdp_enabled()", False),
    ("cuda.fp16_bf16_reduction_math_sdp=true", f"{B}cuda.fp16_bf16_reduction_math_sdp_allowed()", True),
    (f"cuda.sdp_priority_order={BACKWARDS}", "torch._C._get_sdp_priority_order()", [4, 3, 0, 2, 1]),
    ("cuda.cudnn_sdp_deprioritized=false", "os.environ['TORCH_CUDNN_SDPA_DEPRIORITIZED']", "0"),
    ("cudnn.enabled=false", f"{B}cudnn.enabled", False),
    ("cudnn.benchmark=true", f"{B}cudnn.benchmark", True),
    ("cudnn.deterministic=true", f"{B}cudnn.deterministic", True),
    ("cudnn.allow_tf32=true", f"{B}cudnn.allow_tf32", True),
    ("cudnn.fp32_precision=ieee", f"{B}cudnn.fp32_precision", "ieee"),
    ("cudnn.depthwise_kernel=native", f"{B}cudnn.depthwise_kernel", "native"),
    ("cudnn.conv.fp32_precision=tf32", f"{B}cudnn.conv.fp32_precision", "tf32"),
    ("cudnn.rnn.fp32_precision=tf32", f"{B}cudnn.rnn.fp32_precision", "tf32"),
    ("cudnn.skip_compatibility_check=true", "os.environ['PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK']", "1"),
    ("cpu.capability=default", f"{B}cpu.get_cpu_capability()", "DEFAULT"),
    ("mkldnn.enabled=false", f"{B}mkldnn.enabled", False),
    ("mkldnn.deterministic=true", f"{B}mkldnn.deterministic", True),
    ("mkldnn.fp32_precision=bf16", "torch._C._get_fp32_precision_getter('mkldnn', 'all')", "bf16"),
    ("mkldnn.matmul.fp32_precision=tf32", f"{B}mkldnn.matmul.fp32_precision", "tf32"),
    ("mkldnn.conv.fp32_precision=ieee", f"{B}mkldnn.conv.fp32_precision", "ieee"),
    ("mkldnn.rnn.fp32_precision=tf32", f"{B}mkldnn.rnn.fp32_precision", "tf32"),
    ("mkldnn.verbose_level=none", "os.environ['ONEDNN_VERBOSE']", "none"),
    ("mkldnn.default_fpmath_mode=BF16", "os.environ['ONEDNN_DEFAULT_FPMATH_MODE']", "BF16"),
    ("mkldnn.max_cpu_isa=AVX2", "os.environ['ONEDNN_MAX_CPU_ISA']", "AVX2"),
    ("mkl.verbose_level=0", "os.environ['MKL_VERBOSE']", "0"),
    ("mkl.num_threads=1", "os.environ['MKL_NUM_THREADS']", "1"),
    ("mkl.conditional_numerical_reproducibility=COMPATIBLE", "os.environ['MKL_CBWR']", "COMPATIBLE"),
    ("openmp.num_threads=1", "torch.get_num_threads()", 1),
    ("nnpack.enabled=false", "torch._C._get_nnpack_enabled()", False),
    ("mha.fastpath_enabled=false", f"{B}mha.get_fastpath_enabled()", False),
    ("miopen.immediate=true", f"{B}miopen.immediate", True),
    ("opt_einsum.enabled=true", f"{B}opt_einsum.enabled", True),
    ("opt_einsum.strategy=greedy", f"{B}opt_einsum.strategy", "greedy"),
    ("quantized.engine=onednn", f"{B}quantized.engine", "onednn"),
    ("python_native.disabled=true", "torch._native.common_utils.check_native_jit_disabled()", True),
    ("python_native.skip_version_check=true", "torch._native.common_utils.check_native_version_skip()", True),
)  # fmt: skip
#: The same, of what came after torch 2.13.
LATER: tuple[tuple[str, str, object], ...] = (
    ("cuda.matmul.prefer_cublaslt_grouped_gemm=true", f"{M}prefer_cublaslt_grouped_gemm", True),
    ("cuda.cublas_workspace_cache=true", "os.environ['TORCH_CUBLAS_WORKSPACE_CACHE']", "1"),
    ("python_native.aot_disabled=true", "os.environ['TORCH_DISABLE_NATIVE_AOT']", "1"),
)
#: What only a build for CUDA, cuDNN or Intel GPUs takes.
ELSEWHERE = (
    "cuda.cublas_workspace_size=:4096:8",
    "cuda.cublaslt_workspace_size=1048576",
    "cudnn.benchmark_limit=4",
    "mkldnn.allow_tf32=true",
)
ALONE = (
    ("cuda.matmul.allow_tf32=false", f"{B}cuda.matmul.fp32_precision", "ieee"),
    ("float32_matmul_precision=medium", f"{B}mkldnn.matmul.fp32_precision", "bf16"),
    ("mkldnn.fp32_precision=bf16", f"{B}fp32_precision", "none"),
    ("cudnn.allow_tf32=false", f"{B}cudnn.conv.fp32_precision", "none"),
    ("cudnn.conv.fp32_precision=none", f"{B}cudnn.conv.fp32_precision", "none"),
    ("cuda.preferred_linalg_library=default", f"{B}cuda.preferred_linalg_library().name", "Default"),
    ("cuda.preferred_blas_library=default", f"{B}cuda.preferred_blas_library().name", "Cublas"),
    ("cuda.preferred_blas_library=ck", f"{B}cuda.preferred_blas_library().name", "Ck"),
    ("cuda.preferred_rocm_fa_library=ck", f"{B}cuda.preferred_rocm_fa_library().name", "Ck"),
    ("opt_einsum.enabled=false", f"{B}opt_einsum.enabled", False),
    ("opt_einsum.strategy=dynamic-programming", f"{B}opt_einsum.strategy", "dynamic-programming"),
    ("quantized.engine=qnnpack", f"{B}quantized.engine", "qnnpack"),
    ("python_native.disabled=false", "torch._native.common_utils.check_native_jit_disabled()", False),
)  # fmt: skip


def run(settings: tuple[str, ...], *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Start a command under `backends run`, with nothing of our own switches in its environment."""
    options = [word for text in settings for word in ("--set", text)]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("MLBACKENDS_")}
    return subprocess.run(
        [sys.executable, "-m", "mlbackends", "run", *options, "--", *command],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**kept, **environment},
    )


def seen(settings: tuple[str, ...], *expressions: str, **environment: str) -> list[Any]:
    """Return what a program under `backends run` finds."""
    code = f"import json, os, torch; print(json.dumps([{', '.join(expressions)}]))"
    done = run(settings, sys.executable, "-c", code, **environment)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


def test_every_settable_switch_is_tried_here() -> None:
    texts = (*(row[0] for row in (*SEEN, *LATER)), *ELSEWHERE)
    tried = {text.partition("=")[0] for text in texts}
    assert tried == {name for name, flag in SWITCHES.items() if not flag.read_only}


@pytest.mark.parametrize("row", [*LATER, ("cuda.matmul.fp32_precision=bfx9", "", "")])
@pytest.mark.skipif(IS_NEWEST, reason="this torch has them")
def test_what_came_later_is_refused_for_an_older_torch(row: tuple[str, str, object]) -> None:
    done = run((row[0],), sys.executable, "-c", "print(1)")
    assert (done.returncode, done.stdout) == (2, "")
    assert "or newer; " in done.stderr and f"is torch {torch.__version__}" in done.stderr


def test_all_together_are_seen() -> None:
    settings, expressions, wanted = zip(*SEEN, *(LATER if IS_NEWEST else ()), strict=True)
    found = seen(settings, *expressions)
    assert dict(zip(settings, found, strict=True)) == dict(zip(settings, wanted, strict=True))


def steps_of(setting: str) -> tuple[Step, ...]:
    return plan(settings((setting,))).steps


#: What the hook sets in the torch that is there; of the others a variable tells torch before.
APPLIED = [row for row in (*SEEN, *ALONE) if any(step.writes for step in steps_of(row[0]))]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [SEEN, ALONE], ids=["each", "other values"])
def test_variables_are_seen_where_nothing_is_applied(
    rows: tuple[tuple[str, str, object], ...],
) -> None:
    """The program then starts without our hook."""
    settings, expressions, wanted = zip(*(row for row in rows if row not in APPLIED), strict=True)
    found = seen(settings, *expressions)
    assert dict(zip(settings, found, strict=True)) == dict(zip(settings, wanted, strict=True))


def test_each_that_is_applied_alone_is_seen() -> None:
    """Each in a fork of one fresh torch: how it gets there, test_all_together_are_seen has seen."""
    asked = [(steps_of(setting), expression) for setting, expression, _ in APPLIED]
    found = [(setting, seen) for (setting, *_), seen in zip(APPLIED, in_forks(asked), strict=True)]
    assert len(found) > 30
    assert found == [(setting, [wanted]) for setting, _, wanted in APPLIED]


def test_a_variable_of_torchs_own_that_is_set_already_gives_way() -> None:
    environment = {"TORCH_LINALG_PREFER_CUSOLVER": "1", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
    settings = ("cuda.preferred_linalg_library=default", "cuda.matmul.allow_tf32=false")
    expressions = (
        f"{B}cuda.preferred_linalg_library().name",
        f"{B}cuda.matmul.allow_tf32",
        "torch.get_float32_matmul_precision()",
    )
    assert seen(settings, *expressions, **environment) == ["Default", False, "highest"]


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch is built for CUDA")
@pytest.mark.parametrize("setting", ELSEWHERE)
def test_what_this_build_has_not_is_refused_before_the_start(setting: str) -> None:
    done = run((setting,), sys.executable, "-c", "print(1)")
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs a torch that was built with" in done.stderr


def test_what_torch_refuses_ends_the_program_at_the_import_with_its_reason() -> None:
    code = "import sys; sys.modules['opt_einsum'] = None; import torch; print(1)"
    done = run(("opt_einsum.enabled=true",), sys.executable, "-c", code)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "opt_einsum.enabled=true cannot be applied to torch" in done.stderr
    assert "ValueError: opt_einsum is not available" in done.stderr


def test_a_module_of_torch_that_runs_as_the_program_sees_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch; print(torch.backends.cudnn.benchmark)\n")
    arguments = ("-m", "torch.distributed.run", "--nproc-per-node=1", "--standalone", str(script))
    done = run(("cudnn.benchmark=true", "openmp.num_threads=1"), sys.executable, *arguments)
    assert done.stdout.split() == ["True"]


PAIRS = (
    ("fp32_precision", ("ieee", "tf32", "bf16")),
    ("float32_matmul_precision", ("highest", "high", "medium")),
    ("cuda.matmul.allow_tf32", (False, True)),
    ("cuda.matmul.fp32_precision", ("none", "ieee", "tf32")),
    ("cudnn.allow_tf32", (False, True)),
    ("cudnn.fp32_precision", ("ieee", "tf32")),
    ("cudnn.conv.fp32_precision", ("none", "ieee", "tf32")),
    ("mkldnn.fp32_precision", ("ieee", "tf32", "bf16")),
    ("mkldnn.matmul.fp32_precision", ("none", "ieee", "tf32", "bf16")),
)


def test_pairs_contradict_each_other_before_the_start_exactly_where_they_do_in_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every pair of precision switches, set and read back in a fork of a fresh torch."""
    monkeypatch.setattr("mlbackends.inject.steps.refuse_contradictions", lambda values: None)
    cases = [
        {pair: first, other: second}
        for at, (pair, values) in enumerate(PAIRS)
        for other, others in PAIRS[at + 1 :]
        for first in values
        for second in others
    ]
    steps = [[dict(step) for step in _steps(case)] for case in cases]
    held = [seen is not None for seen in in_forks([(name, "None") for name in steps])]
    said = [not lost(case) for case in cases]
    assert [case for case, a, b in zip(cases, held, said, strict=True) if a != b] == []


def _steps(case: dict[str, object]) -> list[dict[str, object]]:
    import msgspec

    made: list[dict[str, object]] = msgspec.to_builtins(plan(case).steps)
    for step in made:  # here no variable has been set
        if not step.get("attribute") and not step.get("call"):
            step.update(attribute=f"torch.backends.{step['name']}", argument=step["value"])
    return made


FORKS = f"""
import json, os, sys, torch
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("applying", {HOOK!r})
applying = module_from_spec(spec)
spec.loader.exec_module(applying)
for steps, expression in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        os.close(2)
        applying.apply(torch, json.dumps(steps))
        print(json.dumps([eval(expression)]), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("null", flush=True)
"""


def in_forks(asked: Sequence[tuple[object, str]]) -> list[list[Any] | None]:
    """Apply steps in a fork of a fresh torch for each, and return [what an expression gives] there.

    None where the steps were refused.
    """
    import msgspec

    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        input=msgspec.json.encode(asked),
        capture_output=True,
        timeout=300,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]
