"""One problem while it is checked: who can computes, is held to float64, and is timed in turn."""

import glob
import os
import shlex
import statistics
import time
from collections.abc import Sequence
from shutil import disk_usage
from typing import Any

import msgspec

from mlbackends.model.checked import CheckedProblem, Ended, Errors, Memory, Result, Timing
from mlbackends.model.explanation import Explained
from mlbackends.model.reasons import Reason
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.dispatch import backends
from mlbackends.sdpa.problem_text import Wording
from mlbackends.sdpa.verify import peer_presence
from mlbackends.sdpa.verify.bench import PEAK, VALUES, Bench
from mlbackends.sdpa.verify.peer import Peer
from mlbackends.sdpa.verify.problem_size import flops, free_bytes, too_large
from mlbackends.sdpa.verify.served import Lost

USUAL_TOLERANCE = 2.0
"""How many times the plain computation's error a result may have whose backend names no number."""

LOWERED = {"cpu:baseline": "default", "cpu:avx2": "avx2", "cpu:avx512": "avx512"}
"""What ATEN_CPU_CAPABILITY says, in the processes that compute, for a processor of less than this one."""

_SAMPLE_SECONDS = 0.05
_MOST_CALLS = 200
_REST_SECONDS = 0.005
"""Between two backends: the threads of the one that has just computed may still spin."""


class Case:
    """One problem while it is checked."""

    def __init__(self, bench: Bench, wording: Wording, told: Explained) -> None:
        self.bench, self.wording, self.told = bench, wording, told
        self.plan, self.problem = bench.plan, told.problem
        self.known = {each.name for each in backends()}
        self.lowered = LOWERED.get(told.device, "")
        self.results: dict[str, Result] = {}
        self.rounds: dict[str, list[list[float]]] = {}
        self.peaks: list[float] = []
        self.peak_by = ""
        self.given: dict[str, Any] = {}
        self.reference_errors: dict[str, float] = {}

    def run(self, ours: Sequence[AttentionBackend], others: Sequence[Peer]) -> CheckedProblem:
        """Return what came of it, with these of our backends and these peers."""
        self._refuse(ours, others)
        able = [name for name, each in self.results.items() if each.ended is Ended.RAN]
        failure = self._make_values(able) if able else ""
        if not failure:
            for name in able:
                self._compute(name)
            self._time()
        return CheckedProblem(
            text=self.wording.text,
            problem=self.problem,
            chosen=self.told.chosen,
            torch_chosen=self.told.torch_chosen,
            flops=flops(self.problem),
            results=() if failure else tuple(self._timed(each) for each in self.results.values()),
            reference_error=self.reference_errors.get(""),
            gradient_errors={name: each for name, each in self.reference_errors.items() if name},
            peak_gflops=statistics.median(self.peaks) / 1e9 if self.peaks else None,
            peak_by=self.peak_by,
            failure=failure,
        )

    def _refuse(self, ours: Sequence[AttentionBackend], others: Sequence[Peer]) -> None:
        """Begin with a result for everybody, and with the reasons of those who cannot."""
        wanted = {each.name: each for each in ours}
        for verdict in self.told.verdicts:
            if verdict.backend in wanted:
                tolerance = wanted[verdict.backend].tolerance
                allowed = tolerance.get(self.problem.dtype, USUAL_TOLERANCE)
                self._begin(verdict.backend, verdict.answers_to, verdict.reasons, allowed)
            elif not self.plan.names and verdict.backend not in self.known:
                self._begin(verdict.backend, verdict.answers_to, verdict.reasons, USUAL_TOLERANCE)
        for peer in others:
            missing = peer_presence.why_missing(peer, self.plan.python)
            reasons = missing or peer.unsupported_reasons(self.problem)
            self._begin(peer.name, peer.answers_to, reasons, None)

    def _begin(
        self, name: str, kind: str, reasons: tuple[Reason, ...], tolerance: float | None
    ) -> None:
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
        folder = self.bench.folder
        if told := too_large(
            self.problem, free_bytes(), disk_usage(folder).free, os.path.dirname(folder)
        ):
            return told
        for name in able:  # they load their libraries while the values are made
            self.bench.start(name, self.lowered)
        request = {
            "do": "prepare",
            "problem": msgspec.to_builtins(self.problem),
            "folder": folder,
            "seed": self.wording.seed,
        }
        try:
            answer = self.bench.ask(VALUES, "", request)
        except Lost as lost:
            return f"the exact result could not be computed: {lost}"
        self.given = {"files": answer["files"], "grad_out": answer["grad_out"]}
        self.reference_errors = answer["errors"]
        return ""

    def _compute(self, name: str) -> None:
        """Have one backend compute, and judge what it says."""
        path = os.path.join(self.bench.folder, "result.bin")
        for each in glob.glob(
            f"{glob.escape(path)}*"
        ):  # of the one before: not to be taken for this one's
            os.unlink(each)
        problem = msgspec.to_builtins(self.problem)
        result = self.results[name]
        try:
            prepare = {"do": "prepare", "problem": problem, **self.given}
            told = self.bench.ask(name, self.lowered, prepare)["told"]
            answer = self.bench.ask(name, self.lowered, {"do": "compute", "into": path})
        except Lost as lost:
            self._replace(result, ended=lost.ended, reasons=(lost.reason,))
            return
        memory = None
        if "extra_bytes" in answer:
            memory = Memory(answer["extra_bytes"], answer["measured_by"])
        self._replace(result, told=told, memory=memory)
        self._judge(name, path)

    def _judge(self, name: str, path: str) -> None:
        result = self.results[name]
        if 0 < self.problem.dropout < 1 and result.peer:
            said = "it draws for itself which weights it drops"
            self._replace(result, incomparable=said)
            return
        tolerance = USUAL_TOLERANCE if result.tolerance is None else result.tolerance
        request = {"do": "judge", "path": path, "tolerance": tolerance}
        try:
            answer = self.bench.ask(VALUES, "", request)
        except Lost as lost:
            self._replace(result, ended=Ended.RAISED, reasons=(lost.reason,))
            return
        errors = msgspec.convert(answer, dict[str, Errors])
        self._replace(result, errors=errors.pop(""), gradients=errors)

    def _time(self) -> None:
        """Time all that gave a result in turn, and the machine's peak beside them."""
        runners = [name for name, each in self.results.items() if each.ended is Ended.RAN]
        if not self.plan.rounds or not runners:
            return
        try:
            told = self.bench.ask(PEAK, "", {"do": "prepare"})["told"]
            runners.append(PEAK)
        except Lost:  # then no share of it is told
            told = {}
        for turn in range(self.plan.rounds + 1):
            for name in list(runners):
                seconds = self._sample(name)
                if not seconds:
                    runners.remove(name)
                elif turn:  # the first one warms up
                    self.rounds.setdefault(name, []).append(seconds)
                time.sleep(_REST_SECONDS)
        # The best of a round: a peak is what can be reached.
        self.peaks = [int(told["flops"]) / min(each) for each in self.rounds.pop(PEAK, ())]
        self.peak_by = told.get("by", "") if self.peaks else ""

    def _sample(self, name: str) -> list[float]:
        """Return the seconds of some calls, [] where it gives no answer any more."""
        request = {"do": "time", "seconds": _SAMPLE_SECONDS, "calls": _MOST_CALLS}
        try:
            answer = self.bench.ask(name, "" if name == PEAK else self.lowered, request)
        except Lost as lost:
            if name != PEAK:
                self._replace(self.results[name], ended=lost.ended, reasons=(lost.reason,))
            return []
        return [float(each) for each in answer["seconds"]]

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

    def _replace(self, result: Result, **changes: Any) -> None:
        self.results[result.backend] = msgspec.structs.replace(
            self.results[result.backend], **changes
        )


def quarters(values: Sequence[float]) -> tuple[float, float]:
    """Return the lower and the upper quartile of what was measured, never beyond it."""
    if len(values) < 2:
        return values[0], values[0]
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, upper
