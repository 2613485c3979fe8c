"""Which problems torch gives to cuDNN's attention. Source: as of flash attention on CUDA."""

from collections.abc import Callable

from mlbackends.libraries.cuda import cudnn_release
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.constraints import Constraint, constraint
from mlbackends.sdpa.rules.environment import Environment
from mlbackends.sdpa.rules.shared import crowd, where_dense

_NOT_DETERMINISTIC = "deterministic algorithms are demanded; it is not deterministic"


def cudnn(environment: Environment) -> tuple[Constraint, ...]:
    """Return what cuDNN's attention asks for, in torch's order."""
    version, is_newer = environment.cudnn_version, environment.torch >= (2, 14)

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
        _nested(environment.nested_cudnn, longer_than=128 if is_newer else 0),
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
        _sixteenths(),
        where_dense(need.non_empty()),
        where_dense(need.last_dim_contiguous(singleton_exempt=True)),
        where_dense(need.equal_batch()),
        where_dense(need.grouped_heads(value_may_differ=True, one_for_all=is_newer)),
        where_dense(crowd()),
        with_cudnn(
            "head-dim-too-large",
            "head_dim at most 128, more on some GPUs",
            _head_dim if is_newer else _head_dim_of_2_13,
        ),
        need.head_dim_multiple_of(8),
        with_cudnn(
            "length-unsupported", "before cuDNN 9, lengths in multiples of 64", _old_lengths
        ),
        where_dense(_more_than_one_key()),
        *(
            (with_cudnn("gradient", "for gradients, some head_dims", _gradient),)
            if is_newer
            else ()
        ),
    )


def _there(problem: AttentionProblem, version: int) -> str:
    if not version:
        return "there is no cuDNN; it needs 8.9.3 or newer"
    if version < 8903:
        return f"cuDNN is {cudnn_release(version)}; it needs 8.9.3 or newer"
    if problem.dropout and version < 8906:
        return f"cuDNN is {cudnn_release(version)}; for dropout it needs 8.9.6 or newer"
    return ""


def _broken_dropout(problem: AttentionProblem, version: int) -> str:
    if not problem.dropout or not 91101 <= version < 91400:
        return ""
    seen = f"dropout is {problem.dropout} and cuDNN {cudnn_release(version)}"
    return f"{seen}; from 9.11.1 to 9.13 it takes none"


def _nested(enabled: bool, longer_than: int) -> Constraint:
    @constraint("nested", "tensors that are not nested, unless that is enabled")
    def nested(problem: AttentionProblem) -> str:
        if not (problem.query.nested or problem.key.nested or problem.value.nested):
            return ""
        if not enabled:
            return "the tensors are nested; it takes those where TORCH_CUDNN_SDPA_NESTED_TENSOR_ENABLED is 1"
        if problem.capability and problem.capability[0] not in (9, 10):
            device = "".join(map(str, problem.capability))
            return f"the tensors are nested on sm{device}; it takes those on sm90 to sm103"
        if longer_than and problem.query_length <= longer_than:
            return (
                f"the tensors are nested; it takes those whose longest query is above {longer_than}"
            )
        return ""

    return nested()


@constraint("dropout", "dropout in sixteenths")
def _sixteenths(problem: AttentionProblem) -> str:
    if not problem.dropout * 16 % 1:
        return ""
    return f"dropout is {problem.dropout}; it must be a multiple of 1/16"


def _has_256(problem: AttentionProblem, version: int) -> bool:
    """Tell whether cuDNN has kernels for rows of 256 elements there."""
    capability = problem.capability or (0, 0)
    unsupported = capability == (10, 7) and version <= 92500
    return (capability == (9, 0) or capability[0] == 10) and version > 92200 and not unsupported


def _head_dim(problem: AttentionProblem, version: int) -> str:
    capability = problem.capability or (0, 0)
    is_pair = (problem.head_dim, problem.value_dim) == (192, 128) and version >= 91100
    if is_pair and (capability == (9, 0) or capability[0] == 10):
        return ""
    return _at_most(256 if _has_256(problem, version) else 128, problem, version)


def _head_dim_of_2_13(problem: AttentionProblem, version: int) -> str:
    widths, capability = (problem.head_dim, problem.value_dim), problem.capability or (0, 0)
    if capability[0] == 10 and version >= 91100 and widths == (192, 128):
        return ""
    is_hopper = capability == (9, 0) and version >= 91000
    return _at_most(256 if is_hopper else 128, problem, version)


def _gradient(problem: AttentionProblem, version: int) -> str:
    specs = (problem.query, problem.key, problem.value)
    if not any(spec.requires_grad for spec in specs) or not _has_256(problem, version):
        return ""
    widths = (problem.head_dim, problem.value_dim)
    if max(widths) <= 128 or widths in ((192, 128), (256, 256)):
        return ""
    allowed = "it gives one up to 128, for 192 and 128, and for 256"
    return f"head_dims are {widths[0]} and {widths[1]} and a gradient is required; {allowed}"


def _at_most(limit: int, problem: AttentionProblem, version: int) -> str:
    widths = (problem.head_dim, problem.value_dim)
    seen = max(widths)
    if seen <= limit:
        return ""
    allowed = f"with cuDNN {cudnn_release(version)} on this GPU it takes at most {limit}"
    return f"head_dim is {seen}; {allowed}"


def _old_lengths(problem: AttentionProblem, version: int) -> str:
    length, keys, by = (
        problem.query_length,
        problem.key_length,
        f"with cuDNN {cudnn_release(version)}",
    )
    if 0 < version < 8906 and keys % 64:
        return f"the length of key is {keys}; {by} it must be a multiple of 64"
    if 0 < version < 90000 and length < 64:
        return f"the length of query is {length}; {by} it must be 64 or more"
    if 0 < version < 90000 and problem.dropout and (length % 64 or keys % 64):
        return f"the lengths are {length} and {keys}; for dropout {by} they must be multiples of 64"
    return ""


@constraint("length-unsupported", "more than one key")
def _more_than_one_key(problem: AttentionProblem) -> str:
    if problem.key_length == 1:
        return "there is one key; it takes two or more"
    if problem.dropout and problem.query_length == 1:
        return "there is one row of query; with dropout it takes two or more"
    return ""
