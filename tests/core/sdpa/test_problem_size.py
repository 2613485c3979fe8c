"""How much there is to compute: counted one by one for small problems."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.sdpa.checking.problem_size import flops, seen_scores

SIZES = st.integers(0, 9)


@given(SIZES, SIZES, st.sampled_from([None, False, True]))
def test_the_scores_that_a_causal_mask_shows(rows: int, columns: int, corner: bool | None) -> None:
    query, key = TensorSpec((rows, 4), "float32"), TensorSpec((columns, 4), "float32")
    problem = AttentionProblem(
        query=query, key=key, value=key, is_causal=corner is not None, lower_right=bool(corner)
    )
    offset = columns - rows if corner else 0
    seen = [
        (row, column)
        for row in range(rows)
        for column in range(columns)
        if corner is None or column <= row + offset
    ]

    assert seen_scores(problem) == len(seen)


def test_operations_are_of_both_products_and_all_heads() -> None:
    query, key = TensorSpec((2, 8, 16, 32), "float32"), TensorSpec((2, 2, 24, 32), "float32")
    value = TensorSpec((2, 2, 24, 8), "float32")
    problem = AttentionProblem(query=query, key=key, value=value, enable_gqa=True)

    assert flops(problem) == 2 * 8 * 16 * 24 * 2 * (32 + 8)
