"""One problem: every backend that supports it computes, is compared with float64, and is timed in turn."""

import glob
import os
import shlex
import statistics
import time
from collections.abc import Sequence
from shutil import disk_usage
from typing import Any

import msgspec

from mlbackends.isolation.service import Lost
from mlbackends.model.checked import CheckedProblem, Ended, Errors, Memory, Result, Timing
from mlbackends.model.explanation import Explained
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.dispatch import backends
from mlbackends.sdpa.problem_text import Wording
from mlbackends.sdpa.verify.peer import Peer
from mlbackends.sdpa.verify.problem_size import flops, free_bytes, too_large
from mlbackends.sdpa.verify.processes import PEAK, VALUES, Processes

USUAL_TOLERANCE = 2.0
"""How many times the plain computation's error a result may have whose backend names no number."""

LOWERED = {"cpu:baseline": "default", "cpu:avx2": "avx2", "cpu:avx512": "avx512"}
"""ATEN_CPU_CAPABILITY, in the processes that compute, for a processor of less than this one."""

Rounds = dict[str, list[list[float]]]
"""By backend, the seconds of the calls of each round."""

_SAMPLE_SECONDS = 0.05
_MOST_CALLS = 200
_REST_SECONDS = 0.005
"""Between two backends: the threads of the one that has just computed may still spin."""


class Case:
    """One problem while it is checked."""

    def __init__(self, processes: Processes, wording: Wording, explained: Explained) -> None:
        self.processes, self.wording, self.explained = processes, wording, explained
        self.plan, self.problem = processes.plan, explained.problem
        self.lowered = LOWERED.get(explained.device, "")
        self.results: dict[str, Result] = {}
        self.rounds: Rounds = {}
        self.peaks: list[float] = []
        self.peak_by = ""
        self.inputs: dict[str, Any] = {}
        self.reference_errors: dict[str, float] = {}

    def run(self, ours: Sequence[AttentionBackend], others: Sequence[Peer]) -> CheckedProblem:
        """Return the results of these of our backends and these peers."""
        self._begin(ours, others)
        able = [name for name, each in self.results.items() if each.ended is Ended.RAN]
        failure = self._make_values(able) if able else ""
        if not failure:
            for name in able:
                self._compute(name)
            self._time()
        return CheckedProblem(
            text=self.wording.text,
            problem=self.problem,
            chosen=self.explained.chosen,
            torch_chosen=self.explained.torch_chosen,
            flops=flops(self.problem),
            results=() if failure else tuple(self._timed(each) for each in self.results.values()),
            reference_error=self.reference_errors.get(""),
            gradient_errors={name: each for name, each in self.reference_errors.items() if name},
            peak_gflops=statistics.median(self.peaks) / 1e9 if self.peaks else None,
            peak_by=self.peak_by,
            failure=failure,
        )

    def _begin(self, ours: Sequence[AttentionBackend], others: Sequence[Peer]) -> None:
        """Begin with a result for each, and with the reasons of those that cannot."""
        tolerances = {each.name: each.tolerance for each in ours}
        known = {each.name for each in backends()}
        found: list[tuple[Any, ...]] = []
        for verdict in self.explained.verdicts:
            is_broken = not self.plan.names and verdict.backend not in known
            if verdict.backend in tolerances or is_broken:
                limits = tolerances.get(verdict.backend, {})
                limit = limits.get(self.problem.dtype, USUAL_TOLERANCE)
                found.append((verdict.backend, verdict.answers_to, verdict.reasons, limit))
        for peer in others:
            reasons = peer.why_missing(self.plan.python) or peer.unsupported_reasons(self.problem)
            found.append((peer.name, peer.answers_to, reasons, None))
        for name, kind, reasons, tolerance in found:
            words = ["backends", "sdpa", "check", *self.wording.words, "--backend", name]
            if tolerance is None and self.plan.python:
                words += ["--python", self.plan.python]
            self.results[name] = Result(
                backend=name,
                answers_to=kind,
                ended=Ended.CANNOT if reasons else Ended.RAN,
                command=shlex.join(words),
                peer=tolerance is None,
                required=name in self.plan.required,
                reasons=reasons,
                tolerance=tolerance,
            )

    def _make_values(self, able: Sequence[str]) -> str:
        """Have the inputs and the exact result made; return why that is not possible, "" if it is."""
        folder = self.processes.folder
        parent = os.path.dirname(folder)
        if reason := too_large(self.problem, free_bytes(), disk_usage(folder).free, parent):
            return reason
        for name in able:  # they load their libraries while the values are made
            self.processes.start(name, self.lowered)
        request = {
            "do": "prepare",
            "problem": msgspec.to_builtins(self.problem),
            "folder": folder,
            "seed": self.wording.seed,
        }
        try:
            answer = self.processes.ask(VALUES, "", request)
        except Lost as lost:
            return f"the exact result could not be computed: {lost}"
        self.inputs = {"files": answer["files"], "grad_out": answer["grad_out"]}
        self.reference_errors = answer["errors"]
        return ""

    def _compute(self, name: str) -> None:
        """Have one backend compute, and compare its result with the exact one."""
        path = os.path.join(self.processes.folder, "result.bin")
        for each in glob.glob(f"{glob.escape(path)}*"):  # of the backend before
            os.unlink(each)
        problem = msgspec.to_builtins(self.problem)
        result = self.results[name]
        try:
            prepare = {"do": "prepare", "problem": problem, **self.inputs}
            details = self.processes.ask(name, self.lowered, prepare)["details"]
            answer = self.processes.ask(name, self.lowered, {"do": "compute", "into": path})
        except Lost as lost:
            self._replace(name, ended=lost.ended, reasons=(lost.reason,))
            return
        memory = None
        if "extra_bytes" in answer:
            memory = Memory(answer["extra_bytes"], answer["measured_by"])
        self._replace(name, told=details, memory=memory)
        if 0 < self.problem.dropout < 1 and result.peer:
            self._replace(name, incomparable="it draws for itself which weights it drops")
            return
        tolerance = USUAL_TOLERANCE if result.tolerance is None else result.tolerance
        request = {"do": "judge", "path": path, "tolerance": tolerance}
        try:
            answer = self.processes.ask(VALUES, "", request)
        except Lost as lost:
            self._replace(name, ended=Ended.RAISED, reasons=(lost.reason,))
            return
        errors = msgspec.convert(answer, dict[str, Errors])
        self._replace(name, errors=errors.pop(""), gradients=errors)

    def _time(self) -> None:
        """Time all that gave a result in turn, and the machine's peak beside them."""
        runners = [name for name, each in self.results.items() if each.ended is Ended.RAN]
        if not self.plan.rounds or not runners:
            return
        peak: dict[str, str] = {}
        try:
            peak = self.processes.ask(PEAK, "", {"do": "prepare"})["details"]
            runners.append(PEAK)
        except Lost:  # then no share of it is reported
            pass
        request = {"do": "time", "seconds": _SAMPLE_SECONDS, "calls": _MOST_CALLS}
        for turn in range(self.plan.rounds + 1):
            for name in list(runners):
                seconds: list[float] = []
                try:
                    lowered = "" if name == PEAK else self.lowered
                    seconds = self.processes.ask(name, lowered, request)["seconds"]
                except Lost as lost:
                    if name != PEAK:
                        self._replace(name, ended=lost.ended, reasons=(lost.reason,))
                if not seconds:
                    runners.remove(name)
                elif turn:  # the first one warms up
                    self.rounds.setdefault(name, []).append(seconds)
                time.sleep(_REST_SECONDS)
        # The best of a round: a peak is what can be reached.
        self.peaks = [int(peak["flops"]) / min(each) for each in self.rounds.pop(PEAK, ())]
        self.peak_by = peak.get("by", "") if self.peaks else ""

    def _timed(self, result: Result) -> Result:
        rounds = self.rounds.get(result.backend)
        if result.ended is not Ended.RAN or not rounds:
            return result
        seconds = [each for samples in rounds for each in samples]
        median = statistics.median(seconds)
        lower, upper = quarters(seconds)
        count = flops(self.problem)
        # Of each round with its own peak: the speed of a shared machine moves from one to the next.
        pairs = zip(rounds, self.peaks, strict=False)
        shares = [count / statistics.median(samples) / peak for samples, peak in pairs]
        timing = Timing(
            calls=len(seconds),
            median_seconds=median,
            lower_seconds=lower,
            upper_seconds=upper,
            gflops=count / median / 1e9,
            share_of_peak=statistics.median(shares) if shares else None,
        )
        return msgspec.structs.replace(result, timing=timing)

    def _replace(self, name: str, **changes: Any) -> None:
        self.results[name] = msgspec.structs.replace(self.results[name], **changes)


def quarters(values: Sequence[float]) -> tuple[float, float]:
    """Return the lower and the upper quartile of what was measured, never beyond it."""
    if len(values) < 2:
        return values[0], values[0]
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, upper
