"""What `can_use_*` and `is_flash_attention_available` answer, with the reasons."""

from mlbackends.model.errors import InvalidProblem
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Device
from mlbackends.sdpa.constraints import unmet
from mlbackends.sdpa.dispatch import backends, switch_reasons
from mlbackends.sdpa.params import SDPAParams, problem_of
from mlbackends.sdpa.rules import cuda_rules
from mlbackends.sdpa.rules.environment import environment_here
from mlbackends.sdpa.sdp_backend import SDPBackend

_GENERATIONS = ("7.5", "8.0", "8.9", "9.0", "10.0", "12.0")


def why_not_on_cuda(kind: SDPBackend, params: SDPAParams) -> tuple[Reason, ...]:
    """Return everything that keeps torch's kernel for CUDA from taking it; () if it does."""
    switched = switch_reasons(kind)
    try:
        problem = problem_of(params)
    except InvalidProblem as error:
        return (*switched, Reason("invalid-problem", str(error), error.hint))
    constraints = cuda_rules(kind, environment_here(problem))
    return (*switched, *unmet(constraints, problem))


def answers_on_cuda(kind: SDPBackend) -> bool:
    """Tell whether an installed backend of a kind takes an easy problem on some CUDA device."""
    wanted = [backend for backend in backends() if backend.answers_to is kind]
    return any(
        not backend.unsupported_reasons(_easy(capability)) and not backend.missing_parts()
        for backend in wanted
        for capability in _GENERATIONS
    )


def _easy(capability: str) -> AttentionProblem:
    spec = TensorSpec((2, 4, 128, 64), "float16")
    return AttentionProblem(
        query=spec, key=spec, value=spec, device=Device("cuda", 0, capability=capability)
    )
