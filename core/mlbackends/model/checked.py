"""The record of `backends sdpa check`: whether attention backends are right, and how fast."""

from enum import StrEnum
from math import inf

from msgspec import Struct

from mlbackends.base.display import Displayed
from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem

SCHEMA = "backends.sdpa-check/1"


class Ended(StrEnum):
    """How the run of one backend ended."""

    #: It gave a result; `errors` has how right it is.
    RAN = "ran"
    #: It does not take the problem, or is not here; `reasons` have why.
    CANNOT = "cannot"
    #: It took the problem and raised.
    RAISED = "raised"
    #: Its process was killed, or ended without an answer.
    CRASHED = "crashed"
    #: It did not answer within the time limit, and was killed.
    TIMED_OUT = "timed-out"


class Errors(Struct, frozen=True):
    """How far a result is from the one that is computed in float64 from the same inputs.

    largest_absolute: max |result - exact|. largest_relative: the same, each row divided by its largest
    |exact|. largest_allowed: the limit that the tolerance sets. in_reference_errors: largest_absolute divided
    by that of the plain computation in the same element type; None where that made no error.
    misplaced: elements that are NaN or infinite and should not be, or the other way round.
    worst: the index of the largest error.
    """

    largest_absolute: float
    largest_relative: float
    largest_allowed: float
    in_reference_errors: float | None
    misplaced: int = 0
    worst: tuple[int, ...] = ()

    @property
    def within(self) -> bool:
        """Whether it is near enough."""
        return not self.misplaced and self.largest_absolute <= self.largest_allowed

    @property
    def share_of_allowed(self) -> float | None:
        """The largest error in units of the allowed one; None where none is allowed."""
        return self.largest_absolute / self.largest_allowed if self.largest_allowed else None

    @property
    def badness(self) -> tuple[int, float]:
        """What orders errors: the misplaced elements, and the largest error in units of the allowed one."""
        share = self.share_of_allowed
        if share is None:
            share = inf if self.largest_absolute else 0.0
        return self.misplaced, share


class Timing(Struct, frozen=True):
    """Seconds of a call, over repetitions that took turns with those of the others.

    Of the backward pass alone where gradients are required. calls: how many were timed. lower_seconds and
    upper_seconds: a quarter of the calls took less, or more. gflops: of `CheckedProblem.flops`, by the
    median. share_of_peak: of the peak measured in the same rounds, the median over them; None where
    there was none, or the times are unstable. unstable: why they are not to be compared, "" if they are:
    rounds in which something else had the CPUs are repeated, and left out unless that is most of them.
    host_seconds: what a call that is computed by a device takes on the host, the median; None where calls
    are timed by the host. timed_by: how, "" for the host's clock.
    """

    calls: int
    median_seconds: float
    lower_seconds: float
    upper_seconds: float
    gflops: float
    share_of_peak: float | None = None
    unstable: str = ""
    host_seconds: float | None = None
    timed_by: str = ""


class Memory(Struct, frozen=True):
    """The peak of memory beyond inputs and output in the call that is timed, and how it was measured."""

    extra_bytes: int
    measured_by: str


class Result(Struct, frozen=True):
    """The result of one backend for one problem.

    peer: whether it is of another project. tolerance: how many times the reference's error it may have.
    errors: of its result; gradients: of each gradient, by the name of its tensor. incomparable: why they
    cannot be compared with the exact ones, "" if they can. details: facts about it, such as a version.
    command: what to type to repeat it alone.
    """

    backend: str
    answers_to: str
    ended: Ended
    command: str
    peer: bool = False
    required: bool = False
    reasons: tuple[Reason, ...] = ()
    tolerance: float | None = None
    errors: Errors | None = None
    incomparable: str = ""
    timing: Timing | None = None
    memory: Memory | None = None
    details: dict[str, str] = {}
    gradients: dict[str, Errors] = {}

    @property
    def worst(self) -> tuple[str, Errors] | None:
        """The name and errors of what is furthest from exact, for what is allowed; "" names the result."""
        if self.errors is None:
            return None
        return max({"": self.errors, **self.gradients}.items(), key=lambda item: item[1].badness)

    @property
    def is_elsewhere(self) -> bool:
        """Whether it computes only on other kinds of devices, and nobody required it."""
        return not self.required and any(reason.code == "wrong-device" for reason in self.reasons)

    @property
    def right(self) -> bool:
        """Whether nothing that was compared is too far from the exact one."""
        return self.worst is None or self.worst[1].within

    @property
    def good(self) -> bool:
        """Whether nothing is wrong: right, or not able to and not required. A peer is never to blame."""
        if self.ended is Ended.RAN and self.right:
            return True
        return not self.required and (self.peer or self.ended is Ended.CANNOT)


class DeviceSpeeds(Struct, frozen=True):
    """The speeds a device can reach, in addition to the measured peak; None if unknown.

    bandwidth_bytes_per_second: of its memory, as measured by bandwidth_by. stated_gflops: of dense products
    of the problem's element type, and stated_bytes_per_second, as its maker states them; stated_by: of which
    product, at which clock, and where.
    """

    bandwidth_bytes_per_second: float | None = None
    bandwidth_by: str = ""
    stated_gflops: float | None = None
    stated_bytes_per_second: float | None = None
    stated_by: str = ""


class CheckedProblem(Struct, frozen=True):
    """The results of every backend for one problem.

    text: the problem as it is typed. chosen: the backend that we take, torch_chosen: the SDPBackend that
    torch takes. flops: of the two products, of scores that a causal mask shows; where gradients are
    required, of the five of a backward pass, 2.5 times as many for E = Ev. reference_error: max
    |plain - exact| of the plain computation in the same element type; gradient_errors: the same of its
    gradients. peak_gflops: measured between the calls, None if it was not; peak_by: with what, or why not.
    sample: which part of the result was compared, "" for all of it. speeds: of a device, None for the CPU.
    """

    text: str
    problem: AttentionProblem
    chosen: str
    torch_chosen: str
    flops: int
    results: tuple[Result, ...]
    reference_error: float | None = None
    peak_gflops: float | None = None
    peak_by: str = ""
    failure: str = ""
    gradient_errors: dict[str, float] = {}
    sample: str = ""
    speeds: DeviceSpeeds | None = None

    @property
    def place(self) -> str:
        """The device that computed it, such as "NVIDIA H200 (cuda:0)"; "" for the CPU."""
        device = self.problem.device
        if device.kind == "cpu":
            return ""
        return f"{device.name or device.kind} ({self.problem.platform}:{device.index})"

    @property
    def good(self) -> bool:
        """Whether nothing is wrong with any of them."""
        return not self.failure and all(result.good for result in self.results)

    @property
    def idle(self) -> bool:
        """Whether it could be computed, and no backend did."""
        return not self.failure and all(result.ended is not Ended.RAN for result in self.results)


class Checked(Displayed, Struct, frozen=True):
    """The answer to `backends sdpa check`. threads: of attention on the CPU."""

    schema: str
    tool: str
    created: str
    processor: str
    threads: int
    problems: tuple[CheckedProblem, ...]

    def glance(self) -> str:
        """Return how many problems were checked, and whether all backends were right."""
        good = sum(problem.good and not problem.idle for problem in self.problems)
        return f"check of attention: {good} of {len(self.problems)} problems right"
