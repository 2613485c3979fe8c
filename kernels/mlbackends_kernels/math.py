"""math: plain attention in numpy, exact and slow, for every valid shape.

It is the reference of the other backends, and runs where none of them can.
"""

from typing import Any

from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import AttentionBackend, Gradients
from mlbackends.sdpa.constraints import dtype_in, on_device, pages_forward_only
from mlbackends.sdpa.switches import SDPBackend
from mlbackends_kernels.attention_cpu.formula import attend, gradients
from mlbackends_kernels.tensors import interchange
from mlbackends_kernels.tensors.arithmetic import without_numpy


class Math(AttentionBackend):
    """softmax(query @ transposed(key) * scale + mask) @ value, a block of rows at a time.

    Shapes:  query (..., H, L, E), key (..., Hkv, S, E), value (..., Hkv, S, Ev); the leading dimensions
             broadcast. Returns (..., H, L, Ev).
    Numbers: 16-bit elements are computed in float32 and rounded once, unless the problem has another
             inner_dtype. A row that sees no key is 0; a row whose scores all overflow is NaN. Tensors of
             a GPU are copied to the CPU and back; tensors of torch's meta device, and their result, have
             no values.
    """

    name, answers_to = "math", SDPBackend.MATH
    on_host = True
    constraints = (
        on_device("cpu", "cuda", "rocm", "mps", "xpu", "meta"),
        dtype_in("float16", "bfloat16", "float32", "float64"),
        pages_forward_only(),
    )
    takes = frozenset({
        "alibi", "dropout", "float64_inside", "gradient", "grouped_heads", "logsumexp", "lower_right", "mask",
        "pages", "sinks", "softcap", "variable_lengths", "window",
    })  # fmt: skip
    tolerance = {"float16": 1.0, "bfloat16": 1.0, "float32": 1.0, "float64": 1.0}  # noqa: RUF012

    def missing_parts(self) -> tuple[Reason, ...]:
        return without_numpy()

    def run_with_logsumexp(
        self,
        problem: AttentionProblem,
        query: Any,
        key: Any,
        value: Any,
        mask: Any = None,
        **more: Any,
    ) -> tuple[Any, Any]:
        self.require(problem)
        wide = "float64" if problem.dtype == "float64" else "float32"
        if problem.platform == "meta":
            zeros, shape = interchange.zeros_like, problem.output_shape
            return zeros(query, shape), zeros(query, shape[:-1], wide)
        problem = interchange.seeded(problem, query)
        arrays = map(_array, (query, key, value, mask))
        out, logsumexp = attend(problem, *arrays, **{name: _array(tensor) for name, tensor in more.items()})
        narrowed, like = interchange.narrowed, interchange.like
        return (
            like(query, narrowed(out, problem.dtype)),
            like(query, narrowed(logsumexp, wide), wide),
        )

    def run_backward(
        self,
        problem: AttentionProblem,
        grad_out: Any,
        *tensors: Any,
        sinks: Any = None,
        alibi_slopes: Any = None,
    ) -> Gradients:
        """Return the gradients. With the inner_dtype float64, out and logsumexp are not used."""
        self.require(problem)
        specs = (problem.query, problem.key, problem.value, problem.mask, problem.sinks)
        originals = (*tensors[:4], sinks)
        if problem.platform == "meta":
            pairs = zip(originals, specs, strict=True)
            targets = [tensor if spec and spec.requires_grad else None for tensor, spec in pairs]
            targets[:3] = tensors[:3]
            zeros = interchange.zeros_like
            return Gradients(
                *(None if target is None else zeros(target, tuple(target.shape)) for target in targets)
            )
        more = {"sinks": _array(sinks), "alibi_slopes": _array(alibi_slopes)}
        results = gradients(problem, *map(_array, (grad_out, *tensors)), **more)
        return Gradients(
            *(
                None
                if result is None or spec is None
                else interchange.like(tensor, interchange.narrowed(result, spec.dtype))
                for tensor, result, spec in zip(originals, results, specs, strict=True)
            )
        )


def _array(tensor: Any) -> Any:
    return None if tensor is None else interchange.as_array(tensor)
