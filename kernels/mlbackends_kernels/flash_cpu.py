"""flash_cpu: flash attention on the CPU, compiled for each instruction set and chosen at run time.

Its memory does not grow with the lengths, and its result does not depend on the number of threads.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from mlbackends.model.errors import NoBackend
from mlbackends.model.reasons import Reason
from mlbackends.sdpa.backend import AttentionBackend, Gradients, Prepared
from mlbackends.sdpa.constraints import dtype_in, last_dim_contiguous, on_device
from mlbackends.sdpa.sdp_backend import SDPBackend

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlbackends.model.problem import AttentionProblem

Result = TypeVar("Result")

_BUILD = (
    "install a C++ compiler, then: pip install --force-reinstall --no-cache-dir"
    " --no-binary mlbackends mlbackends (MLBACKENDS_NATIVE=require says why it fails)"
)


class FlashCpu(AttentionBackend):
    """One pass over the keys with an online softmax; no score is ever stored.

    Shapes:  query (..., H, L, E), key (..., Hkv, S, E), value (..., Hkv, S, Ev); what is before the
             last two broadcasts. Returns (..., H, L, Ev), laid out in memory as the query.
    Numbers: 16-bit elements are summed in float32. With AVX-512 BF16, AMX or Arm's BF16, the weights of
             bfloat16 tensors are rounded to bfloat16, and numbers below 2^-126 in size (subnormal ones) are
             taken for zero: so do the instructions, whatever the CPU's control register says.
             A row that sees no key is 0. A mask of float32 beside float64 is copied.
    Source:  Dao 2023, FlashAttention-2, algorithm 1; Milakov and Gimelshein 2018, algorithm 3.
    """

    name, answers_to = "flash_cpu", SDPBackend.FLASH_ATTENTION
    constraints = (
        on_device("cpu"),
        dtype_in("float16", "bfloat16", "float32", "float64"),
        last_dim_contiguous(),
    )
    takes = frozenset({"dropout", "gradient", "grouped_heads", "logsumexp", "lower_right", "mask"})
    tolerance = {"float16": 2.0, "bfloat16": 2.0, "float32": 2.0, "float64": 2.0}  # noqa: RUF012

    def missing_parts(self) -> tuple[Reason, ...]:
        """Return that numpy is not installed or the library was not built, if so."""
        from mlbackends_kernels.attention_cpu.library import NotBuilt, library
        from mlbackends_kernels.tensors.arithmetic import INSTALL

        reasons = []
        if sys.modules.get("numpy") is None and importlib.util.find_spec("numpy") is None:
            message = "it reads tensors with numpy, and numpy is not installed"
            reasons.append(Reason("missing-part", message, INSTALL))
        try:
            library()
        except NotBuilt as error:
            reasons.append(Reason("missing-part", str(error), _BUILD))
        return tuple(reasons)

    def details(self) -> dict[str, str]:
        """Return the instruction set and the threads that it uses."""
        from mlbackends_kernels.attention_cpu.library import compiled_levels, level
        from mlbackends_kernels.attention_cpu.threads import get_num_threads

        return {"instruction set": compiled_levels()[level()], "threads": str(get_num_threads())}

    def run(
        self, problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any = None
    ) -> Any:
        """Compute it. Raises NoBackend where a constraint is not met or its library is not there."""
        return self._attended(problem, query, key, value, mask, logsumexp=False)[0]

    def run_with_logsumexp(
        self, problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any = None
    ) -> tuple[Any, Any]:
        """Compute it, and for each row the logarithm of the sum of its exponentials."""
        from mlbackends_kernels.tensors.interchange import like

        out, logsumexp = self._attended(problem, query, key, value, mask, logsumexp=True)
        return out, like(query, logsumexp, logsumexp.dtype.name)

    def run_backward(
        self,
        problem: AttentionProblem,
        grad_out: Any,
        query: Any,
        key: Any,
        value: Any,
        mask: Any,
        out: Any,
        logsumexp: Any,
    ) -> Gradients:
        """Compute them. Raises NoBackend where a constraint is not met or its library is not there."""
        from mlbackends_kernels.attention_cpu.gradients import differentiate
        from mlbackends_kernels.tensors.interchange import like, narrowed

        self.require(problem)
        wide, wide_mask = _with_wide_mask(problem, mask)
        tensors = (query, key, value, wide_mask, out, logsumexp)
        found = _with_library(lambda: differentiate(wide, grad_out, *tensors))
        if wide is not problem and found[3] is not None:
            found = (*found[:3], narrowed(found[3], "float32"))
        originals = (query, key, value, mask)
        return Gradients(
            *(
                None if each is None else like(of, each)
                for of, each in zip(originals, found, strict=True)
            )
        )

    def prepared(
        self,
        problem: AttentionProblem,
        query: Any,
        key: Any,
        value: Any,
        mask: Any,
        out: Any,
        logsumexp: Any = None,
    ) -> Prepared | None:
        """Return what computes calls like this one that are read in place, None where none can."""
        from mlbackends_kernels.attention_cpu.prepared_calls import prepare_forward

        if _is_mask_narrow(problem):
            return None
        return prepare_forward(problem, query, key, value, mask, out, logsumexp)

    def prepared_backward(
        self,
        problem: AttentionProblem,
        query: Any,
        key: Any,
        value: Any,
        mask: Any,
        out: Any,
        logsumexp: Any,
    ) -> Prepared | None:
        """Return what computes the gradients of such calls in place, None where none can."""
        from mlbackends_kernels.attention_cpu.prepared_calls import prepare_backward

        if _is_mask_narrow(problem):
            return None
        return prepare_backward(problem, query, key, value, mask, out, logsumexp)

    def _attended(
        self,
        problem: AttentionProblem,
        query: Any,
        key: Any,
        value: Any,
        mask: Any,
        *,
        logsumexp: bool,
    ) -> tuple[Any, Any]:
        from mlbackends_kernels.attention_cpu.forward import attend
        from mlbackends_kernels.tensors.interchange import drawn_seed

        self.require(problem)
        if 0 < problem.dropout < 1 and problem.seed is None:
            problem = replace(problem, seed=drawn_seed(query))
        problem, mask = _with_wide_mask(problem, mask)
        return _with_library(lambda: attend(problem, query, key, value, mask, logsumexp=logsumexp))


def _is_mask_narrow(problem: AttentionProblem) -> bool:
    """Tell whether the mask is of float32 beside float64, which the library does not read."""
    return (
        problem.mask is not None and problem.mask.dtype == "float32" and problem.dtype == "float64"
    )


def _with_wide_mask(problem: AttentionProblem, mask: Any) -> tuple[AttentionProblem, Any]:
    """Return problem and mask as the library takes them: a mask that is too narrow as a wider copy."""
    if problem.mask is None or not _is_mask_narrow(problem):
        return problem, mask
    from mlbackends_kernels.tensors.arithmetic import numpy
    from mlbackends_kernels.tensors.interchange import as_array

    given = as_array(mask)
    once = tuple(slice(None) if stride else slice(1) for stride in given.strides)
    wide = numpy().broadcast_to(given[once].astype("float64"), given.shape)
    return replace(problem, mask=replace(problem.mask, dtype="float64")), wide


def _with_library(compute: Callable[[], Result]) -> Result:
    """Compute. Raises NoBackend where the library is not there."""
    from mlbackends_kernels.attention_cpu.library import NotBuilt

    try:
        return compute()
    except NotBuilt as error:
        reason = Reason("missing-part", str(error), _BUILD)
        raise NoBackend(f"flash_cpu cannot run here: {error}", (reason,), _BUILD) from None
