"""What is made of the times of some rounds."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mlbackends.model.benched import SCHEMA, Benched
from mlbackends.model.checked import CheckedProblem, Ended, Result
from mlbackends.model.explanation import Explained
from mlbackends.model.records import Device
from mlbackends.sdpa.problem_text import parse
from mlbackends.sdpa.verify import problem_check, speed
from mlbackends.sdpa.verify.problem_check import ProblemCheck, quarters
from mlbackends.sdpa.verify.processes import PEAK, Plan


@pytest.mark.parametrize("values", [[2.0], [1.0, 3.0], [1.0, 1.5, 9.0], [4.0, 4.0, 4.0, 8.0]])
def test_quarters_of_few_rounds_are_within_what_was_measured(values: list[float]) -> None:
    lower, upper = quarters(values)

    assert min(values) <= lower <= upper <= max(values)


def test_quarters_of_two_rounds_are_between_them() -> None:
    assert quarters([3.0, 1.0]) == (1.5, 2.5)


class Scripted:
    """Processes whose samples are given: pairs of seconds and of what their threads waited."""

    def __init__(self, rounds: int, **samples: list[tuple[float, float]]) -> None:
        self.plan, self.folder = Plan(rounds=rounds), ""
        self.samples = {name: iter([(9.0, 0.0), *sample]) for name, sample in samples.items()}

    def send(self, name: str, lowered: str, request: dict[str, Any]) -> dict[str, Any]:
        assert (name, lowered, request) == (PEAK, "", {"do": "prepare"})
        return {"details": {"flops": "1000", "by": "a product"}}

    def send_alone(self, name: str, lowered: str, request: dict[str, Any]) -> dict[str, Any]:
        assert request["do"] == "time"
        if name == PEAK:
            return {"seconds": [1.0], "waited": 0.0}
        seconds, waited = next(self.samples[name])
        return {"seconds": [seconds], "waited": waited}


def timed(processes: Any) -> tuple[dict[str, Any], dict[tuple[str, str], float]]:
    """Return the timings of scripted processes, and the ratios that `sdpa bench` makes of them."""
    (wording,) = parse("--shape 1,1,8,8")
    problem = wording.problem(Device("cpu", 0))
    explained = Explained("", problem, "cpu", "cpu", True, "math", (), "MATH", ())
    check = ProblemCheck(processes, wording, explained)
    check.results = {name: Result(name, "MATH", Ended.RAN, "") for name in processes.samples}
    peaks, _ = check._time()
    results = tuple(check._timed(result, peaks) for result in check.results.values())
    checked = CheckedProblem("", problem, "math", "MATH", 1000, results)
    benched = speed.of_problem(wording, checked, check.rounds)
    ratios = {(ratio.backend, ratio.to): ratio.median for ratio in benched.ratios}
    return {result.backend: result.timing for result in results}, ratios


def test_a_round_in_which_threads_waited_for_a_cpu_is_repeated() -> None:
    slow = (8.0, 1.2)
    timings, ratios = timed(Scripted(3, a=[(1.0, 0.0)] * 3, b=[(2.0, 0.0), slow, slow, *[(2.0, 0.01)] * 2]))

    assert timings["b"].median_seconds == 2.0
    assert not timings["b"].unstable
    assert ratios == {("a", "b"): 2.0, ("b", "a"): 0.5}


def test_what_stays_disturbed_is_unstable_and_compared_with_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(problem_check, "_PATIENCE_SECONDS", 0.0)
    samples = {
        "a": [(1.0, 0.0)] * 3,
        "b": [(8.0, 1.2), (9.0, 1.1), (2.0, 0.0)],
        "c": [(3.0, 0.0)] * 3,
    }
    timings, ratios = timed(Scripted(3, **samples))

    assert timings["b"].unstable == "threads waited for a CPU in 2 of 3 rounds"
    assert timings["b"].share_of_peak is None
    assert timings["a"].share_of_peak is not None
    assert ratios == {("a", "c"): 3.0, ("c", "a"): pytest.approx(1 / 3)}


def test_rounds_that_differ_by_themselves_are_unstable() -> None:
    timings, ratios = timed(
        Scripted(4, a=[(1.0, 0.0), (1.0, 0.0), (2.0, 0.0), (2.0, 0.0)], b=[(1.0, 0.0)] * 4)
    )

    assert "by a factor of 2" in timings["a"].unstable
    assert not timings["b"].unstable
    assert not ratios


def test_an_unstable_time_is_not_compared_with_a_saved_one() -> None:
    timings, _ = timed(Scripted(1, a=[(1.0, 0.0)]))
    (wording,) = parse("--shape 1,1,8,8")
    problem = wording.problem(Device("cpu", 0))

    def run(unstable: str) -> Any:
        result = Result("a", "MATH", Ended.RAN, "", timing=replace(timings["a"], unstable=unstable))
        checked = CheckedProblem("", problem, "math", "MATH", 1000, (result,))
        one = speed.of_problem(wording, checked, {})
        return Benched(SCHEMA, "", "", "", 2, 1, (one,))

    assert speed.compared(run(""), run("")).problems[0].changes
    assert not speed.compared(run("why"), run("")).problems[0].changes
    assert not speed.compared(run(""), run("why")).problems[0].changes
