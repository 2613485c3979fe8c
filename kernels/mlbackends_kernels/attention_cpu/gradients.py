"""The backward pass through the library."""

from ctypes import byref
from math import prod
from typing import Any

from mlbackends.model.problem import AttentionProblem, heads_of
from mlbackends.sdpa.backend import Gradients
from mlbackends_kernels.attention_cpu import forward
from mlbackends_kernels.attention_cpu.formula import summed
from mlbackends_kernels.attention_cpu.library import abi, library
from mlbackends_kernels.attention_cpu.threads import parallel_of
from mlbackends_kernels.tensors import interchange
from mlbackends_kernels.tensors.arithmetic import numpy

#: The largest log-sum-exp that float32 holds precisely enough for weights of this element type; above it,
#: an additional pass refines the sums.
FINE = {"float64": 12.0, "float32": 12.0, "float16": 256.0, "bfloat16": 2048.0}


def differentiate(problem: AttentionProblem, grad_out: Any, *tensors: Any) -> Gradients:
    """Return the gradients of query, key, value and mask, with the shapes, element types and kinds of these.

    tensors: query, key, value, mask, output and log-sum-exp, of any kind. The gradient of the mask is None
    where it requires none. Raises NotBuilt and MemoryError.
    """
    np, dtype = numpy(), problem.dtype
    wide = "float64" if dtype == "float64" else "float32"
    *arrays, is_seen = forward.read_inputs(problem, *tensors[:4])
    results = [forward.aligned(interchange.as_array(tensor)) for tensor in (grad_out, tensors[4])]
    # The library reads rows with contiguous elements.
    results = [
        array if array.shape[-1] < 2 or array.strides[-1] == array.itemsize else array.copy()
        for array in results
    ]
    sums = np.ascontiguousarray(interchange.as_array(tensors[5]))
    leading = problem.leading_shape
    # The library returns gradients of key and value for each batch, summed over the query heads of a head.
    full = [(*leading, *arrays[0].shape[-2:])]
    full += [
        (*leading[:-1], *([heads_of(spec)] if leading else ()), *spec.shape[-2:])
        for spec in (problem.key, problem.value)
    ]
    gradients: list[Any] = list(map(forward.room, arrays, full))
    mask, for_mask = problem.mask, None
    if mask is not None and mask.requires_grad and mask.dtype != "bool":
        own = (1,) * (4 - len(mask.shape)) + mask.shape[-4:]
        for_mask = np.zeros((*leading[:-2], *own), wide)
    if prod((*leading, problem.query_length, problem.key_length)):
        together = (*arrays, is_seen, *results, sums[..., None], *gradients, for_mask)
        for before, parts in forward.parts_of_four(together, leading):
            _call(problem, before, parts, parallel_of(grad_out))
    else:
        for gradient in gradients:
            gradient[...] = 0
    for place, (gradient, array) in enumerate(zip(gradients, arrays, strict=True)):
        if gradient.shape != array.shape:
            total = summed(interchange.widened(gradient, dtype, wide), array.shape)
            gradients[place] = interchange.narrowed(total, dtype)
    if mask is not None and for_mask is not None:
        for_mask = interchange.narrowed(summed(for_mask, mask.shape), mask.dtype)
    pairs = zip(tensors, (*gradients, for_mask), strict=False)
    return Gradients(*(None if g is None else interchange.like(tensor, g) for tensor, g in pairs))


def _call(problem: AttentionProblem, before: int, parts: tuple[Any, ...], parallel: int | None) -> None:
    *inputs, grad_out, out, logsumexp, for_query, for_key, for_value, for_mask = parts
    arguments = abi().structures["gradients"](
        forward=forward.packed(problem, (*inputs, out, logsumexp), before, passes=2),
        **forward.operands(of_output=grad_out, query=for_query, key=for_key, value=for_value, mask=for_mask),
    )
    arguments.forward.parallel = parallel
    np, functions = numpy(), library()
    workspace = np.empty(functions.mlbackends_attention_gradients_workspace(byref(arguments)), "uint8")
    arguments.forward.workspace = workspace.ctypes.data
    finite = np.isfinite(logsumexp)
    if np.abs(logsumexp, where=finite, out=np.zeros_like(logsumexp)).max() > FINE[problem.dtype]:
        refined = np.empty((3, logsumexp.size), logsumexp.dtype)
        arguments.refined = refined.ctypes.data
        forward.call_until_done(functions.mlbackends_attention_refine, arguments)
    forward.call_until_done(functions.mlbackends_attention_backward, arguments)
