"""The weights that dropout keeps, which are the same for every backend.

The weight of row i and key j in head h of batch b is kept if word j % 4 of Philox4x32-10, with the seed as
key and the counter (j // 4, i, h, b), is at least the probability times 2**32, rounded down. b counts the
dimensions before the heads as one; for packed sequences it is the sequence, within which i and j count.
Source: Salmon and others 2011, Parallel Random Numbers: As Easy as 1, 2, 3.
"""

from typing import Any

from mlbackends_kernels.tensors.arithmetic import numpy

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_WORD = 0xFFFFFFFF


def keep_mask(
    seed: int,
    probability: float,
    leading: tuple[int, ...],
    rows: range,
    keys: int,
    first_batch: int = 0,
) -> Any:
    """Return the weights that are kept, (*leading, rows, keys) of bool.

    leading: the dimensions before the rows, with the heads last; () for one head. seed: the lower 64 bits are
    used.
    """
    np = numpy()
    heads = leading[-1] if leading else 1
    batches = int(np.prod(leading[:-1], dtype=np.int64))
    shape = (batches, heads, len(rows), (keys + 3) // 4)
    counted = (
        np.arange(shape[3]),
        np.arange(rows.start, rows.stop)[:, None],
        np.arange(heads)[:, None, None],
        np.arange(first_batch, first_batch + batches)[:, None, None, None],
    )
    words = philox(seed, *(np.broadcast_to(numbers, shape).astype(np.uint64) for numbers in counted))
    dealt = np.stack(words, axis=-1).reshape(*shape[:3], 4 * shape[3])[..., :keys]
    kept = dealt >= threshold(probability)
    return kept.reshape(*leading, len(rows), keys)


def threshold(probability: float) -> int:
    """Return the smallest word that is kept; 2**32 if none is."""
    return int(probability * 4294967296.0)


def philox(seed: int, *counter: Any) -> tuple[Any, ...]:
    """Return the four words for arrays of counters, each uint64 and below 2**32."""
    np = numpy()
    word, wide = np.uint64(_WORD), np.uint64(32)
    a, b, c, d = counter
    low, high = seed & _WORD, seed >> 32 & _WORD
    for _ in range(_ROUNDS):
        first, second = a * np.uint64(_MULTIPLIERS[0]), c * np.uint64(_MULTIPLIERS[1])
        a, b, c, d = (
            (second >> wide) ^ b ^ np.uint64(low),
            second & word,
            (first >> wide) ^ d ^ np.uint64(high),
            first & word,
        )
        low, high = (low + _STEPS[0]) & _WORD, (high + _STEPS[1]) & _WORD
    return a, b, c, d
