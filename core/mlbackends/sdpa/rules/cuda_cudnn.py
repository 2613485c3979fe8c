"""Which problems torch gives to cuDNN's attention. Source: torch 2.13.0 for CUDA 13.0, its binary."""

from collections.abc import Callable

from mlbackends.model.cudnn_version import decoded
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.constraints import Constraint
from mlbackends.sdpa.rules.environment import Environment
from mlbackends.sdpa.rules.shared import where_dense

_MOST = 65535
_NOT_DETERMINISTIC = "deterministic algorithms are demanded; it is not deterministic"


def cudnn(environment: Environment) -> tuple[Constraint, ...]:
    """Return what cuDNN's attention asks for, in torch's order."""
    version = environment.cudnn_version

    def with_cudnn(
        code: str, sentence: str, test: Callable[[AttentionProblem, int], str]
    ) -> Constraint:
        def tested(problem: AttentionProblem) -> str:
            # For other devices the version is not looked up: `on_device` is reason enough.
            return test(problem, version) if problem.platform == "cuda" else ""

        return Constraint(code, sentence, tested)

    return (
        with_cudnn("not-built", "cuDNN 8.9.3 or newer", _there),
        with_cudnn("dropout", "with dropout, a cuDNN that is not 9.11.1 to 9.13", _broken_dropout),
        _nested(environment.nested_cudnn),
        need.on_device("cuda"),
        need.rank_is(4),
        Constraint(
            "not-deterministic",
            "no demand for deterministic algorithms",
            lambda _: _NOT_DETERMINISTIC if environment.deterministic else "",
        ),
        need.dtype_in("float16", "bfloat16"),
        need.mask_fixed(),
        need.mask_ranks(2, 4),
        need.capability_between((8, 0), (12, 1)),
        Constraint("dropout", "dropout in sixteenths", _sixteenths),
        where_dense(need.non_empty()),
        where_dense(need.last_dim_contiguous(singleton_exempt=True)),
        where_dense(need.equal_batch()),
        where_dense(need.grouped_heads(value_may_differ=True)),
        where_dense(Constraint("too-many-heads", f"batch and heads at most {_MOST}", _crowd)),
        with_cudnn("head-dim-too-large", "head_dim at most 128, more on some GPUs", _head_dim),
        need.head_dim_multiple_of(8),
        with_cudnn(
            "length-unsupported", "before cuDNN 9, lengths in multiples of 64", _old_lengths
        ),
        where_dense(Constraint("length-unsupported", "more than one key", _single)),
    )


def _there(problem: AttentionProblem, version: int) -> str:
    if not version:
        return "there is no cuDNN; it needs 8.9.3 or newer"
    if version < 8903:
        return f"cuDNN is {decoded(version)}; it needs 8.9.3 or newer"
    if problem.dropout and version < 8906:
        return f"cuDNN is {decoded(version)}; for dropout it needs 8.9.6 or newer"
    return ""


def _broken_dropout(problem: AttentionProblem, version: int) -> str:
    if not problem.dropout or not 91101 <= version < 91400:
        return ""
    seen = f"dropout is {problem.dropout} and cuDNN {decoded(version)}"
    return f"{seen}; from 9.11.1 to 9.13 it takes none"


def _nested(enabled: bool) -> Constraint:
    def test(problem: AttentionProblem) -> str:
        if not (problem.query.nested or problem.key.nested or problem.value.nested):
            return ""
        if not enabled:
            return "the tensors are nested; it takes those where TORCH_CUDNN_SDPA_NESTED_TENSOR_ENABLED is 1"
        if problem.capability and problem.capability[0] not in (9, 10):
            device = "".join(map(str, problem.capability))
            return f"the tensors are nested on sm{device}; it takes those on sm90 to sm103"
        return ""

    return Constraint("nested", "tensors that are not nested, unless that is enabled", test)


def _sixteenths(problem: AttentionProblem) -> str:
    if not problem.dropout * 16 % 1:
        return ""
    return f"dropout is {problem.dropout}; it must be a multiple of 1/16"


def _crowd(problem: AttentionProblem) -> str:
    batch = problem.query.shape[0] if problem.rank > 3 else 1
    if batch <= _MOST and problem.heads <= _MOST:
        return ""
    return f"batch is {batch} and heads are {problem.heads}; it takes at most {_MOST} of each"


def _head_dim(problem: AttentionProblem, version: int) -> str:
    widths, capability = (problem.head_dim, problem.value_dim), problem.capability or (0, 0)
    if capability[0] == 10 and version >= 91100 and widths == (192, 128):
        return ""
    limit = 256 if capability == (9, 0) and version >= 91000 else 128
    seen = max(widths)
    if seen <= limit:
        return ""
    allowed = f"with cuDNN {decoded(version)} on this GPU it takes at most {limit}"
    return f"head_dim is {seen}; {allowed}"


def _old_lengths(problem: AttentionProblem, version: int) -> str:
    length, keys, by = problem.query_length, problem.key_length, f"with cuDNN {decoded(version)}"
    if 0 < version < 8906 and keys % 64:
        return f"the length of key is {keys}; {by} it must be a multiple of 64"
    if 0 < version < 90000 and length < 64:
        return f"the length of query is {length}; {by} it must be 64 or more"
    if 0 < version < 90000 and problem.dropout and (length % 64 or keys % 64):
        return f"the lengths are {length} and {keys}; for dropout {by} they must be multiples of 64"
    return ""


def _single(problem: AttentionProblem) -> str:
    if problem.key_length == 1:
        return "there is one key; it takes two or more"
    if problem.dropout and problem.query_length == 1:
        return "there is one row of query; with dropout it takes two or more"
    return ""
