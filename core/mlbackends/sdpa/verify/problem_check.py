"""Check one problem: every backend that supports it computes, is compared with float64, and is timed."""

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

#: The tolerance of a backend that declares none: its error as a multiple of plain attention's.
USUAL_TOLERANCE = 2.0

#: ATEN_CPU_CAPABILITY of the processes that compute for a lesser processor than this one.
LOWERED = {"cpu:baseline": "default", "cpu:avx2": "avx2", "cpu:avx512": "avx512"}

#: By backend and round, the seconds of the calls; disturbed rounds are left out.
Rounds = dict[str, dict[int, list[float]]]

_SAMPLE = {"do": "time", "seconds": 0.05, "calls": 10_000}
#: The seconds that a backend's threads together may wait for a CPU in each second of computing.
#:
#: On a quiet machine it is at most 0.03. A thread that waits for a CPU makes its whole pool wait: at a value
#: of 1 the median of a call of 0.3 ms was 8 ms.
LARGEST_WAIT = 0.1
#: How long a disturbed round is repeated.
_PATIENCE_SECONDS = 0.25
#: The largest useful ratio of the third to the first quartile of the rounds' medians.
_LARGEST_RATIO = 1.25


class ProblemCheck:
    """The check of one problem, with the results and rounds so far."""

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
        """Return the results of these backends and peers."""
        self._add_results(ours, others)
        able = [name for name, result in self.results.items() if result.ended is Ended.RAN]
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
            results=() if failure else tuple(self._timed(result, peaks) for result in results),
            reference_error=errors.pop("", None),
            gradient_errors=errors,
            peak_gflops=statistics.median(peaks.values()) / 1e9 if peaks else None,
            peak_by=peak_by,
            failure=failure,
            sample=self.sample,
            speeds=self.speeds,
        )

    def _add_results(self, ours: Sequence[AttentionBackend], others: Sequence[Peer]) -> None:
        """Add a result for each backend and peer, with the reasons of those that cannot run."""
        on_cpu = self.problem.platform == "cpu"
        tolerances = {
            backend.name: backend.tolerance
            for backend in ours
            if on_cpu or not backend.on_host or backend.name in self.plan.named
        }
        if not self.plan.names:
            tolerances |= {verdict.backend: {} for verdict in unloaded()}
        entries: list[tuple[Any, ...]] = []
        for verdict in self.explained.verdicts:
            if verdict.backend in tolerances:
                limit = tolerances[verdict.backend].get(self.problem.dtype, USUAL_TOLERANCE)
                entries.append((verdict.backend, verdict.answers_to, verdict.reasons, limit))
        for peer in others:
            if not (peer.takes_device(self.problem) or peer.name in self.plan.named):
                continue
            reasons = peer.unsupported_reasons(self.problem)
            reasons = reasons or peer.why_missing(self.plan.python_of(peer.name))
            entries.append((peer.name, peer.answers_to, reasons, None))
        for name, kind, reasons, tolerance in entries:
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
        """Make the inputs and exact results, let every backend compute, and compare its results.

        Returns the errors of plain attention: that of the result under "", those of gradients under their
        names. Raises Lost where no exact result can be computed.
        """
        folder = self.processes.folder
        parent = os.path.dirname(folder)
        if why := too_large(self.problem, free_bytes(), disk_usage(folder).free, parent):
            raise Lost(Ended.CANNOT, Reason("not-asked", why))
        for name in able:  # they load their libraries in the meantime
            self.processes.start(name, self.lowered)
        problem = msgspec.to_builtins(self.problem)
        request = {"do": "prepare", "problem": problem, "folder": folder, "seed": self.wording.seed}
        try:
            reply = self.processes.send(VALUES, "", request)
        except Lost as lost:
            longer = "; use a longer --timeout" if lost.ended is Ended.TIMED_OUT else ""
            message = f"the exact result could not be computed: {lost}{longer}"
            raise Lost(lost.ended, Reason(lost.reason.code, message)) from None
        self.sample = reply.pop("sample", "")
        for name in able:
            prepare = {"do": "prepare", "problem": problem, **reply}
            self.results[name] = self._compute(self.results[name], prepare)
        errors: dict[str, float] = reply["errors"]
        return errors

    def _compute(self, result: Result, prepare: dict[str, Any]) -> Result:
        """Let one backend compute, and return its result with its errors."""
        name, send = result.backend, self.processes.send
        path = os.path.join(self.processes.folder, "result.bin")
        for file in glob.glob(f"{glob.escape(path)}*"):  # of the previous backend
            os.unlink(file)
        try:
            details = send(name, self.lowered, prepare)["details"]
            answer = send(name, self.lowered, {"do": "compute", "into": path})
        except Lost as lost:
            return replace(result, ended=lost.ended, reasons=(lost.reason,))
        if "extra_bytes" in answer:
            result = replace(result, memory=Memory(answer["extra_bytes"], answer["measured_by"]))
        result = replace(result, details=details)
        if 0 < self.problem.dropout < 1 and result.peer:
            return replace(result, incomparable="it draws its own dropout")
        tolerance = USUAL_TOLERANCE if result.tolerance is None else result.tolerance
        try:
            answer = send(VALUES, "", {"do": "judge", "path": path, "tolerance": tolerance})
        except Lost as lost:
            return replace(result, ended=Ended.RAISED, reasons=(lost.reason,))
        errors = msgspec.convert(answer, dict[str, Errors])
        return replace(result, errors=errors.pop(""), gradients=errors)

    def _time(self) -> tuple[dict[int, float], str]:
        """Time everything that gave a result in turn, and in each round the machine's peak.

        Returns the peak of each round in operations a second, and how it was measured; {} without one.
        """
        runners = [name for name, result in self.results.items() if result.ended is Ended.RAN]
        if not self.plan.rounds or not runners:
            return {}, ""
        peak: dict[str, str] = {}
        try:
            peak = self.processes.send(PEAK, "", measure_request(self.problem))["details"]
            runners.append(PEAK)
        except Lost as lost:  # then no share of the peak is reported
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
        # The best call of a round: a peak is the speed that can be reached.
        rounds = self.rounds.pop(PEAK, {})
        peaks = {turn: int(peak["flops"]) / min(samples) for turn, samples in rounds.items()}
        return peaks, peak.get("by", "") if peaks else peak.get("failure", "")

    def _time_round(self, name: str, turn: int) -> None:
        """Time one backend while the others are paused, again if it was disturbed; round 0 warms up."""
        lowered = "" if name == PEAK else self.lowered
        end = time.monotonic() + (_PATIENCE_SECONDS if turn else 0.0)
        while True:
            answer = self.processes.send_alone(name, lowered, _SAMPLE)
            is_disturbed = answer.get("waited", 0.0) > LARGEST_WAIT
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
            unstable = unstable or f"the quartiles of its rounds differ by a factor of {third / first:.2g}"
        seconds = [sample for samples in rounds.values() for sample in samples]
        median = statistics.median(seconds)
        lower, upper = quarters(seconds)
        operations = flops(self.problem)
        on_host = self.host_seconds.get(result.backend)
        # Each round is divided by its own peak: the speed of a shared machine changes between rounds.
        shares = [operations / medians[turn] / peak for turn, peak in peaks.items() if turn in medians]
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
    """Return the request to measure the processor that computes a problem."""
    if problem.platform == "cpu":
        return {"do": "prepare"}
    return {"do": "prepare", "device": problem.device.index, "dtype": problem.dtype}


def quarters(values: Sequence[float]) -> tuple[float, float]:
    """Return the lower and the upper quartile of samples, within their range."""
    if len(values) < 2:
        return values[0], values[0]
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, upper
