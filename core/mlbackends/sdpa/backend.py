"""AttentionBackend: the interface of a file in kernels/."""

from collections import deque
from typing import Any, ClassVar, NamedTuple, final

from mlbackends.base.errors import NoBackend
from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.constraints import Constraint, unmet
from mlbackends.sdpa.switches import SDPBackend

#: Optional features of a problem, and the constraint of a backend without them.
OPTIONAL = {
    "dropout": need.no_dropout(),
    "float64_inside": need.no_float64_inside(),
    "gradient": need.no_gradient(),
    "grouped_heads": need.equal_heads(),
    "logsumexp": need.no_logsumexp(),
    "lower_right": need.no_lower_right(),
    "mask": need.no_mask(),
    "nested": need.not_nested(),
    **need.BEYOND_TORCH,
}


class Gradients(NamedTuple):
    """The gradients of one call, each with the shape and element type of its tensor.

    mask, sinks: None where the problem has none, or none that require a gradient.
    """

    query: Any
    key: Any
    value: Any
    mask: Any = None
    sinks: Any = None


class LibraryAnswer(NamedTuple):
    """A library's own verdict on a problem: its reasons against it.

    note: which library supports it, or why none could be asked. undecided: whether none could be asked.
    """

    reasons: tuple[Reason, ...] = ()
    note: str = ""
    undecided: bool = False


class AttentionBackend:
    """One way to compute attention. A file in kernels/ defines exactly one subclass.

    name: the file's name. answers_to: its kind, which torch's switches allow or forbid. constraints: all its
    requirements. takes: the names in OPTIONAL that it supports; the others are refused, unless one of its
    constraints has the same code. tolerance: for each element type, how many times the error of the plain
    computation in that type its result may have, against float64.

    `is_causal` (top-left), `scale` (None is 1 / sqrt(E)), value_dim ≠ head_dim, and two dimensions or more
    are not in OPTIONAL: every known kernel has the first two, and most have the others. A backend without
    one of them needs a constraint that refuses it.
    """

    name: ClassVar[str]
    answers_to: ClassVar[SDPBackend]
    constraints: ClassVar[tuple[Constraint, ...]] = ()
    takes: ClassVar[frozenset[str]] = frozenset()
    tolerance: ClassVar[dict[str, float]] = {}
    #: Whether it always computes on the CPU; checks of another device leave it out.
    on_host: ClassVar[bool] = False
    _constraints: ClassVar[tuple[Constraint, ...]] = ()
    #: The last supported problems: each is checked when it is chosen and when it runs, and comes again.
    _supported: ClassVar[deque[AttentionProblem]] = deque(maxlen=4)

    def __init_subclass__(cls) -> None:
        """Refuse a backend without a kind, or with an unknown name in `takes`."""
        kind = getattr(cls, "answers_to", SDPBackend.ERROR)
        if kind is SDPBackend.ERROR or not hasattr(cls, "name"):
            raise TypeError(f"{cls.__name__} needs `name`, and an SDPBackend in `answers_to`")
        if unknown := cls.takes - OPTIONAL.keys():
            accepted = ", ".join(OPTIONAL)
            names = ", ".join(unknown)
            raise TypeError(f"{cls.__name__}.takes has {names}; it may have {accepted}")
        cls._supported = deque(maxlen=4)
        codes = {constraint.code for constraint in cls.constraints}
        refused = (reason for name, reason in OPTIONAL.items() if name not in cls.takes)
        cls._constraints = (
            *cls.constraints,
            *(constraint for constraint in refused if constraint.code not in codes),
        )

    @classmethod
    @final
    def every_constraint(cls) -> tuple[Constraint, ...]:
        """Return its constraints, and those of the features that it lacks."""
        return cls._constraints

    @final
    def unsupported_reasons(self, problem: AttentionProblem) -> tuple[Reason, ...]:
        """Return every reason against the problem, from its record alone; () if it is supported."""
        if problem in self._supported:
            return ()
        reasons = unmet(self._constraints, problem)
        if not reasons:
            self._supported.append(problem)
        return reasons

    @final
    def require(self, problem: AttentionProblem) -> None:
        """Raise NoBackend, with all reasons, unless the problem is supported. `run` begins with it."""
        if reasons := self.unsupported_reasons(problem):
            messages = "; ".join(reason.message for reason in reasons)
            raise NoBackend(f"{self.name} does not support this: {messages}", reasons)

    @final
    def require_here(self, problem: AttentionProblem) -> None:
        """Raise NoBackend, with all reasons, unless the problem is supported and can be run here."""
        self.require(problem)
        reasons = self.missing_parts() or self.library_answer(problem, here=True).reasons
        if reasons:
            message = "; ".join(reason.message for reason in reasons)
            raise NoBackend(f"{self.name} cannot run here: {message}", reasons, reasons[0].hint)

    def missing_parts(self) -> tuple[Reason, ...]:
        """Return what this installation lacks to run it, such as a package or a driver; () if nothing.

        It is called only for a supported problem that is to run here, so it may search, but not compute.
        """
        return ()

    def library_answer(self, problem: AttentionProblem, here: bool) -> LibraryAnswer:
        """Return its library's verdict on a supported problem, for a library that decides by itself.

        here: the device exists and will compute; otherwise it is described, and a process may be started.
        """
        del problem, here
        return LibraryAnswer()

    def slower_reasons(self) -> tuple[Reason, ...]:
        """Return why it is slower than this machine allows; () if it is not, or if it cannot run."""
        return ()

    def details(self) -> dict[str, str]:
        """Return facts about it on this machine: "instruction set", "threads", "version"."""
        return {}

    def run(self, problem: AttentionProblem, *tensors: Any, **more: Any) -> Any:
        """Compute the problem. The result is of the same kind as query.

        tensors: the caller's query, key, value, and optionally a mask. more: "sinks", "alibi_slopes" and
        "page_table", each where the problem has it; a backend that takes none needs no such argument.
        """
        return self.run_with_logsumexp(problem, *tensors, **more)[0]

    def run_with_logsumexp(self, problem: AttentionProblem, *tensors: Any, **more: Any) -> tuple[Any, Any]:
        """Compute the problem, and the logarithm of the sum of each row's exponentials: (..., H, L).

        tensors, more: as for `run`. The logarithms are of the kind of query, float64 for float64, otherwise
        float32. A sink is part of the sum. For a row that sees no key the logarithm is the head's sink, or
        0 without one. A backend that takes "logsumexp" or "gradient" needs this method.
        """
        raise NotImplementedError

    def run_backward(self, problem: AttentionProblem, grad_out: Any, *tensors: Any, **more: Any) -> Gradients:
        """Return the gradients, given the gradient of the result.

        tensors: query, key, value, mask, and what `run_with_logsumexp` returned for them; more: as for
        `run`. Mask and sinks get a gradient where their records require one. A backend that takes "gradient"
        needs this method.
        """
        raise NotImplementedError
