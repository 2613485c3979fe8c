"""A check of attention backends as an Outcome, from which every CI format is made."""

from typing import Any

from mlbackends.model.audit import SCHEMA, Check, Outcome, Severity, Status
from mlbackends.model.checked import Checked, CheckedProblem, Ended, Result

_WHY = "A result far from the exact one is wrong, however fast it is."


def outcome_of(checked: Checked) -> Outcome:
    """Return one check for each backend and problem, in the order of the results."""
    checks: list[Check] = []
    places = [problem.place or checked.processor for problem in checked.problems]
    for problem in checked.problems:
        code, status, message = "not-computed", Status.FAILED, problem.failure
        if problem.idle:
            code, status, message = "nothing-ran", Status.UNKNOWN, "no backend ran"
        if message:
            title, text = f"a check of {problem.text}", problem.text
            checks.append(Check(code, title, status=status, message=message, instance=text))
        checks += [_check(problem, result) for result in problem.results]
    return Outcome(
        schema=SCHEMA,
        tool=checked.tool,
        kind="sdpa-check",
        title="Attention backends",
        subject="; ".join(dict.fromkeys(places)) or checked.processor,
        created=checked.created,
        checks=tuple(checks),
    )


def _check(problem: CheckedProblem, result: Result) -> Check:
    if result.ended is Ended.CANNOT:
        status = Status.FAILED if result.required else Status.SKIPPED
    elif result.ended is not Ended.RAN or not result.right:
        status = Status.FAILED
    else:
        status = Status.UNKNOWN if result.incomparable else Status.PASSED
    failed = status is Status.FAILED
    evidence: dict[str, Any] = {}
    tensors = {"errors": result.errors} if result.errors else {}
    tensors |= {f"gradients.{name}": errors for name, errors in result.gradients.items()}
    for name, errors in tensors.items():
        for field in ("largest_absolute", "largest_relative", "largest_allowed", "misplaced"):
            evidence[f"{name}.{field}"] = getattr(errors, field)
        if errors.in_reference_errors is not None:
            evidence[f"{name}.in_reference_errors"] = errors.in_reference_errors
    if timing := result.timing:
        evidence["timing.median_seconds"] = timing.median_seconds
        evidence["timing.gflops"] = timing.gflops
        if timing.share_of_peak is not None:
            evidence["timing.share_of_peak"] = timing.share_of_peak
    if result.memory:
        evidence["memory.extra_bytes"] = result.memory.extra_bytes
    return Check(
        code=result.backend,
        title=f"{result.backend} computes {problem.text}",
        severity=Severity.ERROR if not result.peer or result.required else Severity.NOTE,
        status=status,
        message=f"{problem.text}: {summary(result)}",
        why=_WHY if failed and result.ended is Ended.RAN else "",
        hint=next((reason.hint for reason in result.reasons if reason.hint), "") if failed else "",
        command=result.command if failed and result.ended is not Ended.CANNOT else "",
        evidence=evidence,
        instance=problem.text,
    )


def summary(result: Result) -> str:
    """Return the result of a backend in one sentence."""
    if result.ended is not Ended.RAN:
        reasons = "; ".join(reason.message for reason in result.reasons)
        return f"required, but {reasons}" if result.required else reasons
    if result.worst is None:
        return result.incomparable
    name, errors = result.worst
    of = f" of the gradient of {name}" if name else ""
    if errors.misplaced:
        at = list(errors.worst)
        return f"{errors.misplaced} elements{of} are wrongly NaN, infinite or finite, such as {at}"
    units = errors.in_reference_errors
    ratio = "" if units is None else f", {units:.2f} times that of plain attention"
    allowed = "" if errors.within else f"; the limit is {errors.largest_allowed:.2g}"
    return f"the largest error{of} is {errors.largest_absolute:.2g}{ratio}{allowed}"
