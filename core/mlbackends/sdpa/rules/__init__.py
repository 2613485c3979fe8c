"""The problems that torch's own attention kernels support, as data.

They answer `can_use_*`, and `sdpa explain` for devices that this machine does not have.
"""

from msgspec.structs import replace

from mlbackends import known_wrong
from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem, KnownWrong, TensorSpec
from mlbackends.sdpa.constraints import BEYOND_TORCH, Constraint, dtype_in, unmet
from mlbackends.sdpa.rules import cpu, cuda, cuda_cudnn, rocm, wheels
from mlbackends.sdpa.rules.environment import Environment
from mlbackends.sdpa.rules.wheels import WHEELS
from mlbackends.sdpa.switches import SDPBackend

_FUSED = {
    "cpu": {SDPBackend.FLASH_ATTENTION: cpu.flash},
    "cuda": {
        SDPBackend.FLASH_ATTENTION: cuda.flash,
        SDPBackend.EFFICIENT_ATTENTION: cuda.efficient,
        SDPBackend.CUDNN_ATTENTION: cuda_cudnn.cudnn,
    },
    "rocm": {
        SDPBackend.FLASH_ATTENTION: rocm.flash,
        SDPBackend.EFFICIENT_ATTENTION: rocm.efficient,
    },
}
#: torch's order on the CPU, where it ignores the order that was set.
CPU_ORDER: tuple[SDPBackend, ...] = (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH)


def rules(kind: SDPBackend, platform: str, environment: Environment) -> tuple[Constraint, ...] | None:
    """Return torch's constraints for a kind of backend on a platform, None if torch never runs it there.

    The plain formula (MATH) supports every floating-point problem; torch raises for integers and for complex
    numbers, which have no softmax. Platforms other than CPU, CUDA and ROCm are not recorded.
    """
    if platform not in _FUSED:
        return None
    if kind is SDPBackend.MATH:
        return (dtype_in("float64", "float32", "bfloat16", "float16"),)
    constraints_of = _FUSED[platform].get(kind)
    return constraints_of(environment) if constraints_of else None


def unrecorded(problem: AttentionProblem, environment: Environment) -> str:
    """Return the device, or the part of a problem, for which torch's rules are not recorded, "" for none."""
    if problem.platform not in _FUSED:
        return problem.platform
    part = rocm.unrecorded(problem, environment) if problem.platform == "rocm" else ""
    return f"{part} with torch {'.'.join(map(str, environment.torch))}" if part else ""


def version_notes(problem: AttentionProblem, environment: Environment) -> tuple[str, ...]:
    """Return what assumed versions mean for torch on a GPU, beyond its rules; () where none is assumed."""
    if not environment.others or problem.platform not in ("cuda", "rocm"):
        return ()
    if problem.platform == "cuda":
        return wheels.notes(WHEELS[environment.torch], dict(environment.others), problem)
    row = rocm.aotriton(environment)
    title = f"torch {'.'.join(map(str, environment.torch))} is built with AOTriton {row.aotriton}"
    return (f"{title} ({row.sources[0]}), by which it decides, and not by ROCm's or the driver's version",)


def wheel_has_code(problem: AttentionProblem, environment: Environment) -> bool | None:
    """Return whether torch's wheel on PyPI has code for an NVIDIA GPU; None for others, and if not known."""
    if problem.platform != "cuda":
        return None
    wheel = WHEELS[environment.torch]
    return wheel.has_code_for(problem.device.capability, dict(environment.others))


def why_not(kind: SDPBackend, problem: AttentionProblem, environment: Environment) -> tuple[Reason, ...]:
    """Return why torch does not run a kind of backend for a problem; () if it does."""
    constraints = rules(kind, problem.platform, environment)
    if constraints is None:
        return (Reason("wrong-device", f"torch has no {kind.name} on {problem.platform}"),)
    constraints = (*constraints, *BEYOND_TORCH.values())
    driver: tuple[Reason, ...] = ()
    if problem.platform == "cuda" and environment.others:
        driver = wheels.driver_reasons(WHEELS[environment.torch], dict(environment.others))
    return (*driver, *unmet(constraints, batched(problem) if environment.torch >= (2, 14) else problem))


def wrong_numbers(
    kind: SDPBackend, problem: AttentionProblem, environment: Environment
) -> tuple[KnownWrong, ...]:
    """Return the reports that torch's result by a kind of backend is wrong."""
    return known_wrong.reports(problem, kind.name, environment.place(problem.device))


def batched(problem: AttentionProblem) -> AttentionProblem:
    """Return a 3-dimensional problem with a batch of one, as torch treats it since 2.14.

    Source: sdp_utils_cpp.h of torch 2.14, normalize_unbatched_input.
    """
    specs = (problem.query, problem.key, problem.value)
    if any(spec.nested or len(spec.shape) != 3 for spec in specs):
        return problem
    mask = problem.mask
    while mask is not None and len(mask.shape) < 4:
        mask = _unsqueezed(mask)
    query, key, value = map(_unsqueezed, specs)
    return replace(problem, query=query, key=key, value=value, mask=mask)


def _unsqueezed(spec: TensorSpec) -> TensorSpec:
    first = spec.shape[0] * spec.strides[0] if spec.shape else 1
    return replace(spec, shape=(1, *spec.shape), strides=(first, *spec.strides))
