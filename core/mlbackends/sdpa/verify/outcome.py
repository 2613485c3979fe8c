"""A check of attention backends as an Outcome, which every format for CI is made of."""

from mlbackends.model.audit import SCHEMA, Check, Outcome, Severity, Status
from mlbackends.model.checked import Checked, CheckedProblem, Ended, Errors, Result
from mlbackends.model.records import FactValue

_WHY = "A result that is far from the exact one is wrong, however fast it came."


def outcome_of(checked: Checked) -> Outcome:
    """Return one check for each backend and problem, in the order of the results."""
    checks: list[Check] = []
    for problem in checked.problems:
        if problem.failure:
            checks.append(
                Check(
                    "not-computed",
                    f"a check of {problem.text}",
                    status=Status.FAILED,
                    message=problem.failure,
                    instance=problem.text,
                )
            )
        checks += [_check(problem, each) for each in problem.results]
    return Outcome(
        schema=SCHEMA,
        tool=checked.tool,
        kind="sdpa-check",
        title="Attention backends",
        subject=checked.processor,
        created=checked.created,
        checks=tuple(checks),
    )


def _check(problem: CheckedProblem, result: Result) -> Check:
    status = _status(result)
    failed = status is Status.FAILED
    return Check(
        code=result.backend,
        title=f"{result.backend} computes {problem.text}",
        severity=Severity.ERROR if not result.peer or result.required else Severity.NOTE,
        status=status,
        message=f"{problem.text}: {said(result)}",
        why=_WHY if failed and result.ended is Ended.RAN else "",
        hint=next((each.hint for each in result.reasons if each.hint), "") if failed else "",
        command=result.command if failed else "",
        evidence=_evidence(result),
        instance=problem.text,
    )


def _status(result: Result) -> Status:
    if result.ended is Ended.CANNOT:
        return Status.FAILED if result.required else Status.SKIPPED
    if result.ended is not Ended.RAN or not result.right:
        return Status.FAILED
    return Status.UNKNOWN if result.incomparable else Status.PASSED


def said(result: Result) -> str:
    """Return in one sentence what came of a backend."""
    if result.ended is not Ended.RAN:
        reasons = "; ".join(each.message for each in result.reasons)
        return f"it is required, and {reasons}" if result.required else reasons
    if result.worst is None:
        return result.incomparable
    name, errors = result.worst
    of = f" of the gradient of {name}" if name else ""
    if errors.misplaced:
        at = list(errors.worst)
        return f"{errors.misplaced} elements{of} are NaN or infinite, or should be, such as {at}"
    units = errors.in_reference_errors
    told = "" if units is None else f", {units:.2f} times that of the plain computation"
    allowed = "" if errors.within else f"; allowed is at most {errors.largest_allowed:.2g}"
    return f"the largest error{of} is {errors.largest_absolute:.2g}{told}{allowed}"


def _evidence(result: Result) -> dict[str, FactValue]:
    found: dict[str, FactValue] = {}
    if result.errors:
        found |= _told("errors", result.errors)
    for name, errors in result.gradients.items():
        found |= _told(f"gradients.{name}", errors)
    if timing := result.timing:
        found["timing.median_seconds"] = timing.median_seconds
        found["timing.gflops"] = timing.gflops
        if timing.share_of_peak is not None:
            found["timing.share_of_peak"] = timing.share_of_peak
    if result.memory:
        found["memory.extra_bytes"] = result.memory.extra_bytes
    return found


def _told(name: str, errors: Errors) -> dict[str, FactValue]:
    found: dict[str, FactValue] = {
        f"{name}.largest_absolute": errors.largest_absolute,
        f"{name}.largest_relative": errors.largest_relative,
        f"{name}.largest_allowed": errors.largest_allowed,
        f"{name}.misplaced": errors.misplaced,
    }
    if errors.in_reference_errors is not None:
        found[f"{name}.in_reference_errors"] = errors.in_reference_errors
    return found
