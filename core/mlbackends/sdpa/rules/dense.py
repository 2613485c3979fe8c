"""Conditions that hold for plain tensors alone."""

from msgspec.structs import replace

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.constraints import Constraint


def where_dense(constraint: Constraint) -> Constraint:
    """Return the condition, silent for nested tensors: they have no single length or width."""

    def test(problem: AttentionProblem) -> str:
        nested = problem.query.nested or problem.key.nested or problem.value.nested
        return "" if nested else constraint.test(problem)

    return replace(constraint, test=test)
