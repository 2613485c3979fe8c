"""The problems that torch passes to cuDNN's attention. Source: as for flash attention on CUDA."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from mlbackends.libraries.cuda import cudnn_release
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.constraints import Constraint, constraint
from mlbackends.sdpa.rules.cuda import newest_capability
from mlbackends.sdpa.rules.environment import CUDNN, Environment
from mlbackends.sdpa.rules.shared import crowd, where_dense

_NOT_DETERMINISTIC = "it is not deterministic, and deterministic algorithms are required"


def cudnn(environment: Environment) -> tuple[Constraint, ...]:
    """Return torch's constraints for cuDNN's attention, in its order."""
    release, is_newer = environment.torch, environment.torch >= (2, 14)
    # Until 2.8, torch asks for the version that it was built with.
    version = environment.cudnn_version if release >= (2, 9) else CUDNN[release]

    def with_cudnn(code: str, sentence: str, test: Callable[[AttentionProblem, int], str]) -> Constraint:
        def tested(problem: AttentionProblem) -> str:
            # For other devices the version is not looked up; `on_device` refuses them.
            return test(problem, version) if problem.platform == "cuda" else ""

        return Constraint(code, sentence, tested)

    # pytorch#163903
    broken = "for dropout, a cuDNN other than 9.11.1 to 9.13"
    broken_dropout = (with_cudnn("dropout", broken, _broken_dropout),)
    gradients = (with_cudnn("gradient", "for gradients, some head_dims", _gradient),)
    # pytorch#149976, #150337: before, torch passed any batches and heads on.
    groups = need.grouped_heads(value_may_differ=True, one_for_all=is_newer)
    grouping = (where_dense(need.equal_batch()), where_dense(groups))
    limit = next(test for since, test in _HEAD_DIMS.items() if release >= since)
    if environment.torch_version.startswith("2.9.0"):
        limit = partial(_at_most, 128)
    return (
        with_cudnn("not-built", "cuDNN 8.9.3 or newer", _there),
        *(broken_dropout if release >= (2, 9) else ()),
        _nested(environment.nested_cudnn and release >= (2, 7), longer_than=128 if is_newer else 0),
        need.on_device("cuda"),
        need.rank_is(4),
        Constraint(
            "not-deterministic",
            "deterministic algorithms not required",
            lambda _: _NOT_DETERMINISTIC if environment.deterministic else "",
        ),
        need.dtype_in("float16", "bfloat16"),
        need.mask_fixed(),
        need.mask_ranks(2, 4),
        need.capability_between((8, 0), newest_capability(environment)),
        *((dropout_in_sixteenths(),) if release >= (2, 12) else ()),  # pytorch#174245
        where_dense(need.non_empty()),
        where_dense(need.last_dim_contiguous(singleton_exempt=True, mask_too=True)),
        *(grouping if release >= (2, 8) else ()),
        *((where_dense(crowd()),) if release >= (2, 13) else ()),  # pytorch#180718
        with_cudnn("head-dim-too-large", "head_dim at most 128, more on some GPUs", limit),
        need.head_dim_multiple_of(8),
        with_cudnn("length-unsupported", "before cuDNN 9, lengths in multiples of 64", _old_lengths),
        *((where_dense(more_than_one_key()),) if release >= (2, 6) else ()),  # pytorch#138531
        *((where_dense(more_than_one_row()),) if (2, 6) <= release < (2, 9) else ()),
        *(gradients if is_newer else ()),
        *(
            where_dense(with_cudnn(fault.code, fault.sentence, fault.test))
            for fault in _FAULTS
            if environment.torch >= fault.since
        ),
    )


def _broken_decode(problem: AttentionProblem, version: int) -> str:
    """Return why the result can be wrong, "" if it is right. Source: pytorch#193893, #194927."""
    capability = problem.capability or (0, 0)
    is_broken = 91900 <= version <= 92500 and version != 92401
    if problem.query_length != 1 or capability[0] not in (10, 11) or not is_broken:
        return ""
    device = "".join(map(str, capability))
    return f"with cuDNN {cudnn_release(version)} on sm{device}, the result of a single query row can be wrong"


def _broken_tail(problem: AttentionProblem, version: int) -> str:
    """Return why the gradient of query can be NaN, "" if it is right. Source: pytorch#196678, #196861."""
    if (
        not problem.wants_gradient
        or problem.capability != (9, 0)
        or problem.is_causal
        or problem.key_length % 128 != 64
        or not 0 < version < 92600
    ):
        return ""
    return (
        f"with cuDNN {cudnn_release(version)} on sm90, gradients can be NaN if the key length is 64 more"
        f" than a multiple of 128; it is {problem.key_length}"
    )


class _Fault(NamedTuple):
    """Wrong results of cuDNN. since: the release of torch that does not run it there."""

    code: str
    sentence: str
    test: Callable[[AttentionProblem, int], str]
    since: tuple[int, int]


_DECODE = "on sm100 to sm110 from cuDNN 9.19 to 9.25.0, except 9.24.1, more than one query row"
_TAIL = "for gradients on sm90 before cuDNN 9.26, no key length of 64 more than a multiple of 128"
_FAULTS = (
    _Fault("length-unsupported", _DECODE, _broken_decode, (2, 14)),
    _Fault("gradient", _TAIL, _broken_tail, (2, 15)),
)


def _there(problem: AttentionProblem, version: int) -> str:
    if not version:
        return "cuDNN 8.9.3 or newer is needed; none is installed"
    if version < 8903:
        return f"cuDNN 8.9.3 or newer is needed; {cudnn_release(version)} is installed"
    if problem.dropout and version < 8906:
        return f"dropout needs cuDNN 8.9.6 or newer; {cudnn_release(version)} is installed"
    return ""


def _broken_dropout(problem: AttentionProblem, version: int) -> str:
    if not problem.dropout or not 91101 <= version < 91400:
        return ""
    return f"dropout is not supported from cuDNN 9.11.1 to 9.13; {cudnn_release(version)} is installed"


def _nested(enabled: bool, longer_than: int) -> Constraint:
    @constraint("nested", "no nested tensors, unless enabled")
    def nested(problem: AttentionProblem) -> str:
        if not problem.is_nested:
            return ""
        if not enabled:
            return "nested tensors need TORCH_CUDNN_SDPA_NESTED_TENSOR_ENABLED=1"
        if problem.capability and problem.capability[0] not in (9, 10):
            device = "".join(map(str, problem.capability))
            return f"nested tensors need sm90 to sm103; the device is sm{device}"
        if problem.query.nested and longer_than and 0 < problem.query_length <= longer_than:
            return f"nested tensors need a longest query above {longer_than}"
        return ""

    return nested()


@constraint("dropout", "dropout that is a multiple of 1/16")
def dropout_in_sixteenths(problem: AttentionProblem) -> str:
    """Require a dropout that is a multiple of 1/16."""
    if not problem.dropout * 16 % 1:
        return ""
    return f"dropout is {problem.dropout}; it must be a multiple of 1/16"


def _has_256(problem: AttentionProblem, version: int) -> bool:
    """Return whether cuDNN has kernels for a head_dim of 256 on the device."""
    capability = problem.capability or (0, 0)
    unsupported = capability == (10, 7) and version <= 92500
    return (capability == (9, 0) or capability[0] == 10) and version > 92200 and not unsupported


def _head_dim(problem: AttentionProblem, version: int) -> str:
    capability = problem.capability or (0, 0)
    is_pair = (problem.head_dim, problem.value_dim) == (192, 128) and version >= 91100
    if is_pair and (capability == (9, 0) or capability[0] == 10):
        return ""
    return _at_most(256 if _has_256(problem, version) else 128, problem, version)


def _head_dim_of_2_11(problem: AttentionProblem, version: int) -> str:
    widths, capability = (problem.head_dim, problem.value_dim), problem.capability or (0, 0)
    is_pair = capability[0] == 10 and version >= 91100 and widths == (192, 128)
    return "" if is_pair else _head_dim_of_2_8(problem, version)


def _head_dim_of_2_8(problem: AttentionProblem, version: int) -> str:
    is_hopper = problem.capability == (9, 0) and version >= 91000
    return _at_most(256 if is_hopper else 128, problem, version)


#: The limits of head_dim, by the releases that they are since: pytorch#149904, #161210; #172621.
_HEAD_DIMS = {(2, 14): _head_dim, (2, 11): _head_dim_of_2_11, (2, 5): _head_dim_of_2_8}


def _gradient(problem: AttentionProblem, version: int) -> str:
    if not problem.wants_gradient or not _has_256(problem, version):
        return ""
    widths = (problem.head_dim, problem.value_dim)
    if max(widths) <= 128 or widths in ((192, 128), (256, 256)):
        return ""
    supported = "gradients are supported up to 128, for 192 and 128, and for 256"
    return f"head_dim and value_dim are {widths[0]} and {widths[1]}; {supported}"


def _at_most(limit: int, problem: AttentionProblem, version: int) -> str:
    width = max(problem.head_dim, problem.value_dim)
    if width <= limit:
        return ""
    return f"head_dim is {width}; the limit of cuDNN {cudnn_release(version)} on this GPU is {limit}"


def _old_lengths(problem: AttentionProblem, version: int) -> str:
    length, keys = problem.query_length, problem.key_length
    by = f"with cuDNN {cudnn_release(version)}"
    if 0 < version < 8906 and keys % 64:
        return f"the length of key is {keys}; {by} it must be a multiple of 64"
    if 0 < version < 90000 and length < 64:
        return f"the length of query is {length}; {by} it must be 64 or more"
    if 0 < version < 90000 and problem.dropout and (length % 64 or keys % 64):
        return f"the lengths are {length} and {keys}; for dropout {by} they must be multiples of 64"
    return ""


@constraint("length-unsupported", "more than one key")
def more_than_one_key(problem: AttentionProblem) -> str:
    """Require two keys, and with dropout two rows."""
    if problem.key_length == 1:
        return "there is one key; at least two are needed"
    if problem.dropout and problem.query_length == 1:
        return "query has one row; dropout needs at least two"
    return ""


@constraint("length-unsupported", "more than one query row")
def more_than_one_row(problem: AttentionProblem) -> str:
    """Require two rows."""
    return "query has one row; at least two are needed" if problem.query_length == 1 else ""
