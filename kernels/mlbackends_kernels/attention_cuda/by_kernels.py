"""What the backends have in common whose kernels `DeviceAttention` launches."""

from typing import TYPE_CHECKING, Any

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import Gradients, Prepared

if TYPE_CHECKING:
    from mlbackends_kernels.attention_cuda.device import DeviceAttention


class ByKernels:
    """The computing half of an AttentionBackend, which comes before it among the bases of a class."""

    def run(self, problem: AttentionProblem, *tensors: Any, **more: Any) -> Any:
        return self._device(problem).attend(problem, *tensors, **more, logsumexp=False)[0]

    def run_with_logsumexp(
        self, problem: AttentionProblem, *tensors: Any, **more: Any
    ) -> tuple[Any, Any]:
        return self._device(problem).attend(problem, *tensors, **more, logsumexp=True)

    def run_backward(
        self, problem: AttentionProblem, grad_out: Any, *tensors: Any, **more: Any
    ) -> Gradients:
        return self._device(problem).differentiate(problem, grad_out, *tensors, **more)

    def prepared(self, problem: AttentionProblem, *tensors: Any, **more: Any) -> Prepared | None:
        return self._device(problem).prepare_forward(problem, *tensors, **more)

    def prepared_backward(
        self, problem: AttentionProblem, *tensors: Any, **more: Any
    ) -> Prepared | None:
        return self._device(problem).prepare_backward(problem, *tensors, **more)

    def _device(self, problem: AttentionProblem) -> "DeviceAttention":
        """Return what computes a problem. Raises NoBackend where this backend does not, or not here."""
        raise NotImplementedError
