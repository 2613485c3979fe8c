"""What a check says of a backend in one sentence, and as an outcome for CI."""

from __future__ import annotations

from msgspec.structs import replace

from mlbackends.model.audit import Status
from mlbackends.model.checked import SCHEMA, Checked, CheckedProblem, Ended, Errors, Result
from mlbackends.model.records import Device
from mlbackends.sdpa.problem_text import parse
from mlbackends.sdpa.verify.outcome import outcome_of, summary

FINE = Errors(1e-7, 1e-5, 4e-7, 0.5)
NEAR = Errors(3e-7, 1e-5, 4e-7, 1.5)
FAR = Errors(9e-7, 1e-5, 4e-7, 4.5, worst=(0, 1))
BROKEN = Errors(0.0, 0.0, 4e-7, 0.0, misplaced=2, worst=(0, 0))
RIGHT = Result("fast", "MATH", Ended.RAN, "again", tolerance=2.0, errors=NEAR)


def test_the_worst_is_what_is_nearest_to_its_limit() -> None:
    result = replace(RIGHT, errors=FINE, gradients={"query": NEAR, "key": FINE})

    assert result.worst == ("query", NEAR)
    assert result.right
    assert summary(result) == (
        "the largest error of the gradient of query is 3e-07, 1.50 times that of plain attention"
    )


def test_what_is_no_number_is_worse_than_any_error() -> None:
    result = replace(RIGHT, errors=FAR, gradients={"value": BROKEN})

    assert result.worst == ("value", BROKEN)
    assert not result.right and not result.good
    assert summary(result).startswith("2 elements of the gradient of value are wrongly NaN")


def test_an_error_where_none_is_allowed_is_the_worst() -> None:
    exact = Errors(0.0, 0.0, 0.0, None)

    assert replace(RIGHT, errors=exact).right
    tiny = replace(exact, largest_absolute=1e-300)
    assert replace(RIGHT, gradients={"mask": tiny}).worst == ("mask", tiny)


def checked(words: str, chosen: str, *results: Result) -> Checked:
    """Return the check of one problem with these results. chosen: the backend that would be used."""
    (wording,) = parse(words)
    problem = CheckedProblem(
        text=wording.text,
        problem=wording.problem(Device("cpu", 0)),
        chosen=chosen,
        torch_chosen="MATH",
        flops=1,
        results=results,
    )
    return Checked(SCHEMA, "backends 1", "", "", 1, (problem,))


def test_ci_reads_the_errors_of_every_gradient() -> None:
    result = replace(RIGHT, gradients={"query": NEAR, "key": FAR})
    unknown = replace(RIGHT, errors=None, incomparable="it draws for itself")
    wrong, open_ = outcome_of(checked("--shape 1,2,8,4 --backward", "fast", result, unknown)).checks

    assert wrong.status is Status.FAILED
    assert wrong.evidence["gradients.key.largest_absolute"] == 9e-7
    assert wrong.evidence["gradients.query.in_reference_errors"] == 1.5
    assert open_.status is Status.UNKNOWN


def test_a_problem_that_no_backend_ran_is_neither_passed_nor_counted_as_right() -> None:
    nothing = checked("--shape 1,2,8,4", "math", replace(RIGHT, ended=Ended.CANNOT, errors=None))

    assert [(check.code, check.status) for check in outcome_of(nothing).checks] == [
        ("nothing-ran", Status.UNKNOWN),
        ("fast", Status.SKIPPED),
    ]
    assert nothing.glance() == "check of attention: 0 of 1 problems right"
