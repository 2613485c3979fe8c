"""The sequences of a problem, each a plain problem of its own."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from mlbackends.model.problem import AttentionProblem, TensorSpec

#: Slices of a tensor.
Place = tuple[Any, ...]
_WHOLE: Place = (...,)


class Sequence(NamedTuple):
    """Several rows and the keys that they may see.

    number: its place in the batch. rows: where the query, and the result, has them. keys: where key and
    value do. pages: of key and value, which they fill in this order, None where these are no pages.
    """

    problem: AttentionProblem
    number: int = 0
    rows: Place = _WHOLE
    keys: Place = _WHOLE
    pages: Any = None

    def keys_of(self, tensor: Any) -> Any:
        """Return its part of key or value, (..., keys, width)."""
        if self.pages is None:
            return tensor[self.keys]
        heads, width = tensor.shape[1], tensor.shape[-1]
        gathered = tensor[self.pages].swapaxes(0, 1).reshape(1, heads, -1, width)
        return gathered[..., : self.problem.key_length, :]


def sequences(problem: AttentionProblem, page_table: Any = None) -> Iterator[Sequence]:
    """Return every sequence of a problem; the problem itself where all have one length.

    Raises IndexError for a page that is not there.
    """
    if not problem.key_lengths:
        yield Sequence(problem)
        return
    row = key = 0
    for number, (length, keys) in enumerate(problem.sequences):
        place: Place = (slice(number, number + 1),)
        if problem.query_lengths:
            place = (slice(None), slice(None), slice(row, row + length))
        found = Sequence(_alone(problem, length, keys), number, place)
        if page_table is None:
            yield found._replace(keys=(slice(None), slice(None), slice(key, key + keys)))
        else:
            size = problem.key.shape[-2]
            pages = page_table[number, : -(-keys // size) if size else 0]
            _refuse_missing(pages, problem.key.shape[0], number)
            yield found._replace(pages=pages)
        row, key = row + length, key + keys


def _refuse_missing(pages: Any, count: int, number: int) -> None:
    missing = pages[(pages < 0) | (pages >= count)]
    if missing.size:
        message = f"page_table names page {missing[0]} for sequence {number}; there are {count}"
        raise IndexError(message)


def _alone(problem: AttentionProblem, length: int, keys: int) -> AttentionProblem:
    """Return the problem of one sequence."""

    def spec(like: TensorSpec, rows: int) -> TensorSpec:
        shape = (1, like.shape[1], rows, like.shape[3])
        return TensorSpec(shape, like.dtype, requires_grad=like.requires_grad)

    return replace(
        problem,
        query=spec(problem.query, length),
        key=spec(problem.key, keys),
        value=spec(problem.value, keys),
        query_lengths=(),
        key_lengths=(),
        page_table=None,
    )
