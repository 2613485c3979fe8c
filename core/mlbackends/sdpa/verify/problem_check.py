"""One problem: every backend that supports it computes, is compared with float64, and is timed in turn."""

import glob
import os
import statistics
import time
from collections.abc import Sequence
from shutil import disk_usage
from typing import Any

import msgspec
from msgspec.structs import replace

from mlbackends.base.errors import counted
from mlbackends.base.reasons import Reason
from mlbackends.base.shells import command_line
from mlbackends.isolation.service import Lost
from mlbackends.model.checked import (
    CheckedProblem,
    DeviceSpeeds,
    Ended,
    Errors,
    Memory,
    Result,
    Timing,
)
from mlbackends.model.explanation import Explained
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.dispatch import unloaded
from mlbackends.sdpa.problem_text import Wording
from mlbackends.sdpa.verify.peer import Peer
from mlbackends.sdpa.verify.problem_size import flops, free_bytes, too_large
from mlbackends.sdpa.verify.processes import PEAK, VALUES, Processes

#: How many times the plain computation's error a result may have whose backend names no number.
USUAL_TOLERANCE = 2.0

#: ATEN_CPU_CAPABILITY, in the processes that compute, for a processor of less than this one.
LOWERED = {"cpu:baseline": "default", "cpu:avx2": "avx2", "cpu:avx512": "avx512"}

#: By backend and round, the seconds of the calls; without the rounds that were disturbed.
Rounds = dict[str, dict[int, list[float]]]

_SAMPLE = {"do": "time", "seconds": 0.05, "calls": 10_000}
#: How long the threads of a backend, all together, may wait for a CPU, for a second that it computes.
#:
#: Undisturbed it is 0.03 and less. A pool whose last thread waits for a CPU makes all others wait: medians
#: of a call of 0.3 ms were 8 ms where this was 1.
_LARGEST_WAIT = 0.1
#: How long a round is repeated that was disturbed.
_PATIENCE_SECONDS = 0.25
#: Of the third to the first quartile of the rounds' medians: beyond it, they are of no use.
_LARGEST_RATIO = 1.25


class ProblemCheck:
    """One problem while it is checked, with the results and the rounds so far."""

    def __init__(
        self,
        processes: Processes,
        wording: Wording,
        explained: Explained,
        speeds: DeviceSpeeds | None = None,
    ) -> None:
        self.processes, self.wording, self.explained = processes, wording, explained
        self.speeds = speeds
        self.plan, self.problem = processes.plan, explained.problem
        self.lowered = LOWERED.get(explained.device, "")
        self.results: dict[str, Result] = {}
        self.rounds: Rounds = {}
        self.disturbed: Rounds = {}
        self.host_seconds: dict[str, list[float]] = {}
        self.timed_by: dict[str, str] = {}
        self.sample = ""

    def run(self, ours: Sequence[AttentionBackend], others: Sequence[Peer]) -> CheckedProblem:
        """Return the results of these of our backends and these peers."""
        self._add_results(ours, others)
        able = [name for name, each in self.results.items() if each.ended is Ended.RAN]
        failure, errors = "", {}
        peaks: dict[int, float] = {}
        peak_by = ""
        if able:
            try:
                errors = self._compute_all(able)
            except Lost as lost:
                failure = lost.reason.message
        if not failure:
            peaks, peak_by = self._time()
        results = self.results.values()
        return CheckedProblem(
            text=self.wording.text,
            problem=self.problem,
            chosen=self.explained.chosen,
            torch_chosen=self.explained.torch_chosen,
            flops=flops(self.problem),
            results=() if failure else tuple(self._timed(each, peaks) for each in results),
            reference_error=errors.pop("", None),
            gradient_errors=errors,
            peak_gflops=statistics.median(peaks.values()) / 1e9 if peaks else None,
            peak_by=peak_by,
            failure=failure,
            sample=self.sample,
            speeds=self.speeds,
        )

    def _add_results(self, ours: Sequence[AttentionBackend], others: Sequence[Peer]) -> None:
        """Begin with a result for each, and with the reasons of those that cannot."""
        on_cpu = self.problem.platform == "cpu"
        tolerances = {
            each.name: each.tolerance
            for each in ours
            if on_cpu or not each.on_host or each.name in self.plan.named
        }
        if not self.plan.names:
            tolerances |= {each.backend: {} for each in unloaded()}
        found: list[tuple[Any, ...]] = []
        for verdict in self.explained.verdicts:
            if verdict.backend in tolerances:
                limit = tolerances[verdict.backend].get(self.problem.dtype, USUAL_TOLERANCE)
                found.append((verdict.backend, verdict.answers_to, verdict.reasons, limit))
        for peer in others:
            if not (peer.takes_device(self.problem) or peer.name in self.plan.named):
                continue
            reasons = peer.unsupported_reasons(self.problem)
            reasons = reasons or peer.why_missing(self.plan.python_of(peer.name))
            found.append((peer.name, peer.answers_to, reasons, None))
        for name, kind, reasons, tolerance in found:
            words = ["backends", "sdpa", "check", *self.wording.words, "--backend", name]
            if tolerance is None and (python := self.plan.python_of(name)):
                words += ["--python", python]
            self.results[name] = Result(
                backend=name,
                answers_to=kind,
                ended=Ended.CANNOT if reasons else Ended.RAN,
                command=command_line(words),
                peer=tolerance is None,
                required=name in self.plan.required,
                reasons=reasons,
                tolerance=tolerance,
            )

    def _compute_all(self, able: Sequence[str]) -> dict[str, float]:
        """Have inputs and exact results made, every backend compute, and its results compared with them.

        Returns the errors of the plain computation: of the result by the name "", of the gradients by
        theirs. Raises Lost where there can be no exact result.
        """
        folder = self.processes.folder
        parent = os.path.dirname(folder)
        if why := too_large(self.problem, free_bytes(), disk_usage(folder).free, parent):
            raise Lost(Ended.CANNOT, Reason("not-asked", why))
        for name in able:  # they load their libraries while the values are made
            self.processes.start(name, self.lowered)
        problem = msgspec.to_builtins(self.problem)
        request = {"do": "prepare", "problem": problem, "folder": folder, "seed": self.wording.seed}
        try:
            reply = self.processes.send(VALUES, "", request)
        except Lost as lost:
            longer = "; --timeout gives it longer" if lost.ended is Ended.TIMED_OUT else ""
            message = f"the exact result could not be computed: {lost}{longer}"
            raise Lost(lost.ended, Reason(lost.reason.code, message)) from None
        self.sample = reply.pop("sample", "")
        for name in able:
            prepare = {"do": "prepare", "problem": problem, **reply}
            self.results[name] = self._compute(self.results[name], prepare)
        errors: dict[str, float] = reply["errors"]
        return errors

    def _compute(self, result: Result, prepare: dict[str, Any]) -> Result:
        """Have one backend compute, and return its result compared with the exact one."""
        name, ask = result.backend, self.processes.send
        path = os.path.join(self.processes.folder, "result.bin")
        for each in glob.glob(f"{glob.escape(path)}*"):  # of the backend before
            os.unlink(each)
        try:
            details = ask(name, self.lowered, prepare)["details"]
            answer = ask(name, self.lowered, {"do": "compute", "into": path})
        except Lost as lost:
            return replace(result, ended=lost.ended, reasons=(lost.reason,))
        if "extra_bytes" in answer:
            result = replace(result, memory=Memory(answer["extra_bytes"], answer["measured_by"]))
        result = replace(result, details=details)
        if 0 < self.problem.dropout < 1 and result.peer:
            return replace(result, incomparable="it draws for itself which weights it drops")
        tolerance = USUAL_TOLERANCE if result.tolerance is None else result.tolerance
        try:
            answer = ask(VALUES, "", {"do": "judge", "path": path, "tolerance": tolerance})
        except Lost as lost:
            return replace(result, ended=Ended.RAISED, reasons=(lost.reason,))
        errors = msgspec.convert(answer, dict[str, Errors])
        return replace(result, errors=errors.pop(""), gradients=errors)

    def _time(self) -> tuple[dict[int, float], str]:
        """Time all that gave a result in turn, and the machine's peak beside them.

        Returns the peak of each round in operations a second, and what it is measured by; {} without one.
        """
        runners = [name for name, each in self.results.items() if each.ended is Ended.RAN]
        if not self.plan.rounds or not runners:
            return {}, ""
        peak: dict[str, str] = {}
        try:
            peak = self.processes.send(PEAK, "", measure_request(self.problem))["details"]
            runners.append(PEAK)
        except Lost as lost:  # then no share of it is reported
            peak = {"failure": str(lost)} if self.speeds else {}
        for turn in range(self.plan.rounds + 1):
            for name in list(runners):
                try:
                    self._time_round(name, turn)
                except Lost as lost:
                    runners.remove(name)
                    if name != PEAK:
                        result = self.results[name]
                        result = replace(result, ended=lost.ended, reasons=(lost.reason,))
                        self.results[name] = result
        # The best of a round: a peak is what can be reached.
        rounds = self.rounds.pop(PEAK, {})
        peaks = {turn: int(peak["flops"]) / min(each) for turn, each in rounds.items()}
        return peaks, peak.get("by", "") if peaks else peak.get("failure", "")

    def _time_round(self, name: str, turn: int) -> None:
        """Time one backend while the others are stopped, again where it was disturbed; round 0 warms up."""
        lowered = "" if name == PEAK else self.lowered
        end = time.monotonic() + (_PATIENCE_SECONDS if turn else 0.0)
        while True:
            answer = self.processes.send_alone(name, lowered, _SAMPLE)
            is_disturbed = answer.get("waited", 0.0) > _LARGEST_WAIT
            if not is_disturbed or time.monotonic() >= end:
                break
        if turn:
            rounds = self.disturbed if is_disturbed else self.rounds
            rounds.setdefault(name, {})[turn] = answer["seconds"]
            self.timed_by[name] = answer.get("timed_by", "")
            if "host_seconds" in answer:
                self.host_seconds.setdefault(name, []).append(answer["host_seconds"])

    def _timed(self, result: Result, peaks: dict[int, float]) -> Result:
        steady = self.rounds.get(result.backend, {})
        disturbed = self.disturbed.get(result.backend, {})
        rounds = steady if len(steady) > len(disturbed) else disturbed | steady
        if result.ended is not Ended.RAN or not rounds:
            return result
        unstable = ""
        if rounds is not steady:
            count = f"{len(disturbed)} of {counted(len(rounds), 'round')}"
            unstable = f"threads waited for a CPU in {count}"
        medians = {turn: statistics.median(samples) for turn, samples in rounds.items()}
        first, third = quarters(list(medians.values()))
        if third > first * _LARGEST_RATIO:
            unstable = (
                unstable
                or f"a quarter of its rounds took {third / first:.2g} times as long as another"
            )
        seconds = [each for samples in rounds.values() for each in samples]
        median = statistics.median(seconds)
        lower, upper = quarters(seconds)
        operations = flops(self.problem)
        on_host = self.host_seconds.get(result.backend)
        # Of each round with its own peak: the speed of a shared machine moves from one to the next.
        shares = [
            operations / medians[turn] / peak for turn, peak in peaks.items() if turn in medians
        ]
        timing = Timing(
            calls=len(seconds),
            median_seconds=median,
            lower_seconds=lower,
            upper_seconds=upper,
            gflops=operations / median / 1e9,
            share_of_peak=statistics.median(shares) if shares and not unstable else None,
            unstable=unstable,
            host_seconds=statistics.median(on_host) if on_host else None,
            timed_by=self.timed_by.get(result.backend, ""),
        )
        return replace(result, timing=timing)


def measure_request(problem: AttentionProblem) -> dict[str, Any]:
    """Return what asks for a measure of the processor that computes a problem."""
    if problem.platform == "cpu":
        return {"do": "prepare"}
    return {"do": "prepare", "device": problem.device.index, "dtype": problem.dtype}


def quarters(values: Sequence[float]) -> tuple[float, float]:
    """Return the lower and the upper quartile of what was measured, never beyond it."""
    if len(values) < 2:
        return values[0], values[0]
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, upper
