"""cudnn: cuDNN's fused attention, by the graph of NVIDIA's frontend and the cuDNN that it finds.

It has not run on a GPU yet: graphs were built for described devices, and cuDNN chose engines for them.
"""

import os
import sys
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from mlbackends.base.reasons import Reason
from mlbackends.known_wrong import Place, reports
from mlbackends.model.checked import Ended
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.backend import AttentionBackend, Gradients, LibraryAnswer
from mlbackends.sdpa.switches import SDPBackend

if TYPE_CHECKING:
    from mlbackends.isolation.service import Service

_SECONDS = 20.0
_FRONTEND, _LIBRARY = "nvidia-cudnn-frontend", "nvidia-cudnn-cu13"


class Cudnn(AttentionBackend):
    """cuDNN's operations sdpa and sdpa_backward, with cached plans; not run on a GPU yet.

    Shapes:  query (B, H, L, E), key (B, Hkv, S, E), value (B, Hkv, S, Ev), mask broadcastable to
             (B, H, L, S); returns (B, H, L, Ev).
    Numbers: products of 16-bit elements are summed in float32. The result of a row that sees no key is
             cuDNN's choice.
    Refuses: what cuDNN refuses, with its message; it also answers for devices that are not present.
    Source:  cudnn-frontend, docs/operations/Attention.md.
    """

    name, answers_to = "cudnn", SDPBackend.CUDNN_ATTENTION
    constraints = (
        need.on_device("cuda"),
        need.capability_between((8, 0), (12, 1)),
        need.rank_is(4),
        need.dtype_in("float16", "bfloat16"),
        need.equal_batch(),
        need.non_empty(),
        need.head_dim_multiple_of(8),
        need.last_dim_contiguous(),
        need.no_bool_mask(),
        need.mask_fixed(),
        # cudnn-frontend#1071: the process may end; #1072: NaN.
        need.refusal(
            "length-unsupported",
            "for gradients, more than one query row",
            lambda problem: problem.query_length == 1 and problem.wants_gradient,
            "cuDNN's gradients of a single query row can be NaN, or end the process",
        )(),
    )
    takes = frozenset({"gradient", "grouped_heads", "logsumexp", "lower_right", "mask"})
    tolerance = {"float16": 2.0, "bfloat16": 2.0}  # noqa: RUF012

    def missing_parts(self) -> tuple[Reason, ...]:
        """Return a reason if the frontend is not installed. It looks for cuDNN only when it runs."""
        if find_spec("cudnn"):
            return ()
        message, hint = f"{_FRONTEND} is not installed", f"pip install {_FRONTEND} {_LIBRARY}"
        return (Reason("missing-part", message, hint),)

    def library_answer(self, problem: AttentionProblem, here: bool) -> LibraryAnswer:
        """Return cuDNN's answer: here from the plans that it makes, otherwise for a described device."""
        if self.missing_parts():
            note = "only cuDNN can tell whether it supports this, and it was not asked"
            return LibraryAnswer((), note, undecided=True)
        encoded = msgspec.json.encode(problem)
        return _answer_here(encoded) if here else _answer(encoded)

    def run_with_logsumexp(
        self, problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any = None
    ) -> tuple[Any, Any]:
        """Return attention and its log-sum-exp. Raises NoBackend if it does not support the problem."""
        self.require_here(problem)
        from mlbackends_kernels.cuda import attention_plans

        return attention_plans.forward(problem, query, key, value, mask)

    def run_backward(self, problem: AttentionProblem, grad_out: Any, *tensors: Any) -> Gradients:
        """Return the gradients of query, key and value. Raises NoBackend, as above."""
        self.require_here(problem)
        from mlbackends_kernels.cuda import attention_plans

        return attention_plans.backward(problem, grad_out, *tensors)


@lru_cache(maxsize=1024)
def _answer_here(problem: bytes) -> LibraryAnswer:
    """Return cuDNN's answer for an encoded problem on a device of this process."""
    from mlbackends_kernels.cuda.attention_graph import Refused
    from mlbackends_kernels.cuda.attention_plans import check
    from mlbackends_kernels.cuda.devices import CudaError, CudaUnavailable

    code, hint = "library-refuses", ""
    try:
        decoded = msgspec.json.decode(problem, type=AttentionProblem)
        check(decoded)
        return _unless_broken(decoded, sys.modules["cudnn"].backend_version_string())
    except Refused as refused:
        message = str(refused)
    except (CudaError, CudaUnavailable) as error:
        code, message, hint = "missing-part", str(error), error.hint
    except Exception as error:  # noqa: BLE001  the frontend's error if a library of cuDNN is missing
        message = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        code, hint = "missing-part", f"pip install {_LIBRARY}"
    return LibraryAnswer((Reason(code, message, hint),))


@lru_cache(maxsize=1024)
def _answer(problem: bytes) -> LibraryAnswer:
    """Return cuDNN's answer for an encoded problem on a device that is not present, from another process."""
    from mlbackends.isolation.service import Lost

    try:
        answer = _process().send({"problem": msgspec.json.decode(problem)}, _SECONDS)
    except Lost as lost:
        if lost.ended is Ended.CANNOT:
            return LibraryAnswer((lost.reason,))
        return LibraryAnswer((), f"cuDNN could not be asked: {lost.reason.message}", undecided=True)
    return _unless_broken(msgspec.json.decode(problem, type=AttentionProblem), str(answer["version"]))


def _unless_broken(problem: AttentionProblem, version: str) -> LibraryAnswer:
    """Return that this cuDNN supports a problem, unless its results are known to be wrong."""
    place = Place("cuda", {"cudnn": version}, frozenset({problem.device.capability}), sys.platform)
    for report in reports(problem, "CUDNN_ATTENTION", place):
        return LibraryAnswer((Reason("known-wrong", report.text),))
    return LibraryAnswer((), f"cuDNN {version} supports it")


#: The process that asks cuDNN, with the file of its standard error. It ends with this process.
_processes: "list[tuple[Service, Any]]" = []


def _process() -> "Service":
    import tempfile

    from mlbackends.base.reader import python_command
    from mlbackends.isolation.service import Service

    if not _processes or not _processes[-1][0].alive:
        command = python_command(
            "from mlbackends_kernels.checking import serving;"
            " from mlbackends_kernels.cuda import attention_graph;"
            " serving.answer_all(attention_graph.answer)"
        )
        command.remove("-S")  # the frontend looks for cuDNN's wheel in site's folders
        errors = tempfile.NamedTemporaryFile(prefix="backends-cudnn-")  # noqa: SIM115  kept open
        _processes[:] = [(Service(command, os.environ, errors.name), errors)]
    return _processes[-1][0]
