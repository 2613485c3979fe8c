"""math_cuda: the plain formula on NVIDIA GPUs: products by cuBLASLt or cuBLAS, and our masked softmax.

It has been tested with NVIDIA's bindings over stand-in libraries that compute on the host; it has not run
on a GPU yet. It needs the extra `cuda`, cuBLAS, and NVRTC, which compiles the softmax at first use.
"""

from functools import partial
from typing import Any

from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.backend import AttentionBackend, Gradients, Prepared
from mlbackends.sdpa.describe import is_torch
from mlbackends.sdpa.switches import SDPBackend


class MathCuda(AttentionBackend):
    """softmax(query @ transposed(key) * scale + mask) @ value, where the tensors are; not run on a GPU yet.

    Shapes:  query (B, H, L, E), key (B, Hkv, S, E), value (B, Hkv, S, Ev); returns (B, H, L, Ev). B and H
             may be 1 where the others' are not. A mask broadcasts to (B, H, L, S). Any strides.
    Numbers: the products obey cuda.matmul's switches (TF32, reduced precision, split-K), the preferred
             BLAS and its workspace. Scores and softmax are of float32, or of float64 for float64;
             weights are rounded to the elements' type. A row that sees no key is 0, one whose
             scores all overflow is NaN. The scores of all rows are held at once; gradients hold two
             more of their size.
    """

    name, answers_to = "math_cuda", SDPBackend.MATH
    constraints = (
        need.on_device("cuda"),
        need.capability_between((7, 5), (12, 1)),
        need.rank_is(4),
        need.dtype_in("float16", "bfloat16", "float32", "float64"),
        need.grouped_heads(one_for_all=True),
    )
    takes = frozenset({"gradient", "logsumexp", "lower_right", "mask"})
    tolerance = {"float16": 2.0, "bfloat16": 2.0, "float32": 2.0, "float64": 2.0}  # noqa: RUF012

    def missing_parts(self) -> tuple[Reason, ...]:
        from mlbackends_kernels.attention_cuda.requirements import missing_parts

        return missing_parts(binding="nvmath", libraries=("nvrtc", "cublas", "cublasLt"))

    def run_with_logsumexp(
        self, problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any = None
    ) -> tuple[Any, Any]:
        self.require_here(problem)
        return _attend(problem, query, key, value, mask)

    def run_backward(self, problem: AttentionProblem, grad_out: Any, *tensors: Any) -> Gradients:
        self.require_here(problem)
        return _differentiate(problem, grad_out, *tensors)

    def prepared(self, problem: AttentionProblem, *tensors: Any, **more: Any) -> Prepared | None:
        del more
        from mlbackends_kernels.cuda.prepared_calls import repeated

        return repeated(partial(_attend, problem), *tensors)

    def prepared_backward(
        self, problem: AttentionProblem, *tensors: Any, **more: Any
    ) -> Prepared | None:
        del more
        from mlbackends_kernels.cuda.prepared_calls import repeated_backward

        return repeated_backward(partial(_differentiate, problem), *tensors)


def _attend(problem: AttentionProblem, *inputs: Any) -> tuple[Any, Any]:
    from mlbackends_kernels.cuda.device_array import on_one_stream
    from mlbackends_kernels.cuda.softmax import attend

    named = dict(zip(("query", "key", "value", "mask"), inputs, strict=True))
    out, logsumexp = attend(problem, **on_one_stream(named))
    return _beside(inputs[0], out), _beside(inputs[0], logsumexp)


def _differentiate(problem: AttentionProblem, grad_out: Any, *tensors: Any) -> Gradients:
    from mlbackends_kernels.cuda.device_array import on_one_stream
    from mlbackends_kernels.cuda.softmax import differentiate

    names = ("query", "key", "value", "mask", "out", "logsumexp")
    arrays = on_one_stream(dict(zip(names, tensors, strict=True)) | {"grad_out": grad_out})
    found = differentiate(problem, arrays)
    return Gradients(*(each and _beside(tensors[0], each) for each in found))


def _beside(query: Any, array: Any) -> Any:
    """Return an array as what it is beside a query: a tensor of torch beside one."""
    return array.owner.view(array.shape) if is_torch(query) else array
