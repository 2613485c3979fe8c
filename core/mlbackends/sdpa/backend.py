"""AttentionBackend: what a file in kernels/ must offer."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, final

from mlbackends.base.errors import NoBackend
from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.constraints import Constraint, unmet
from mlbackends.sdpa.sdp_backend import SDPBackend

#: What a problem may ask for beside the plain product, and the constraint of a backend without it.
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

#: Not used any more.
Prepared = Callable[..., Any]


class Gradients(NamedTuple):
    """The gradients of one call, each of the shape and element type of its tensor.

    mask, sinks: None where there are none, or none that require a gradient.
    """

    query: Any
    key: Any
    value: Any
    mask: Any = None
    sinks: Any = None


class LibraryAnswer(NamedTuple):
    """What a library says of a problem: its reasons against it.

    note: which one takes it, or why none could be asked.
    """

    reasons: tuple[Reason, ...] = ()
    note: str = ""


class AttentionBackend:
    """One way to compute attention. A file in kernels/ holds one subclass of its own, and no more.

    name: the file's name. answers_to: the kind by which torch's switches know it. constraints: all that it
    needs of a problem. takes: what of OPTIONAL it computes; the rest is refused, unless a constraint of
    its own has the same code. tolerance: for each element type, how many times the error of the plain
    computation in that type its result may have, against float64.

    `is_causal` (from the upper left), `scale` (None is 1 / sqrt(E)), values of another width than the
    query's, and two dimensions or more belong to the plain product, not to OPTIONAL: every kernel that
    is known has the first two, and most have the others. A backend without one of them must have a
    constraint that refuses it, since silence promises it.
    """

    name: ClassVar[str]
    answers_to: ClassVar[SDPBackend]
    constraints: ClassVar[tuple[Constraint, ...]] = ()
    takes: ClassVar[frozenset[str]] = frozenset()
    tolerance: ClassVar[dict[str, float]] = {}
    #: Whether it computes on the CPU wherever the tensors are; checks of a device leave it out.
    on_host: ClassVar[bool] = False
    _constraints: ClassVar[tuple[Constraint, ...]] = ()
    #: The last problem without reasons: the same object is checked when it is chosen, and when it runs.
    _supported: AttentionProblem | None = None

    def __init_subclass__(cls) -> None:
        """Refuse a backend that switches could not reach, or an unknown word in `takes`."""
        kind = getattr(cls, "answers_to", SDPBackend.ERROR)
        if kind is SDPBackend.ERROR or not hasattr(cls, "name"):
            raise TypeError(f"{cls.__name__} needs a name, and an SDPBackend that it answers to")
        if unknown := cls.takes - OPTIONAL.keys():
            accepted = ", ".join(OPTIONAL)
            raise TypeError(f"{cls.__name__} takes {', '.join(unknown)}; it can take {accepted}")
        codes = {each.code for each in cls.constraints}
        refused = (each for name, each in OPTIONAL.items() if name not in cls.takes)
        cls._constraints = (*cls.constraints, *(each for each in refused if each.code not in codes))

    @classmethod
    @final
    def every_constraint(cls) -> tuple[Constraint, ...]:
        """Return its constraints, and those for what it does not take."""
        return cls._constraints

    @final
    def unsupported_reasons(self, problem: AttentionProblem) -> tuple[Reason, ...]:
        """Return every reason against the problem, from its records alone; () if it is supported."""
        if problem is self._supported:
            return ()
        reasons = unmet(self._constraints, problem)
        if not reasons:
            self._supported = problem
        return reasons

    @final
    def require(self, problem: AttentionProblem) -> None:
        """Raise NoBackend, with all reasons, unless the problem is supported. `run` begins with it."""
        if reasons := self.unsupported_reasons(problem):
            messages = "; ".join(reason.message for reason in reasons)
            raise NoBackend(f"{self.name} cannot do this: {messages}", reasons)

    @final
    def require_here(self, problem: AttentionProblem) -> None:
        """Raise NoBackend, with all reasons, unless the problem is supported and can be run here."""
        self.require(problem)
        reasons = self.missing_parts() or self.library_answer(problem, here=True).reasons
        if reasons:
            message = "; ".join(reason.message for reason in reasons)
            raise NoBackend(f"{self.name} cannot run here: {message}", reasons, reasons[0].hint)

    def missing_parts(self) -> tuple[Reason, ...]:
        """Return what this installation lacks to run it (a package, a driver); () if nothing.

        Called only for a supported problem that is to be run here, so it may look, but not compute.
        """
        return ()

    def library_answer(self, problem: AttentionProblem, here: bool) -> LibraryAnswer:
        """Return what its library, where it decides by itself, says of a supported problem.

        here: the device is there and will compute it; else it is described, and a process may be started.
        """
        del problem, here
        return LibraryAnswer()

    def slower_reasons(self) -> tuple[Reason, ...]:
        """Return what makes it slower than this machine can be; () if nothing, or if it cannot run."""
        return ()

    def details(self) -> dict[str, str]:
        """Return facts of it where it runs, by name: "instruction set", "threads", "version"."""
        return {}

    def run(self, problem: AttentionProblem, *tensors: Any, **more: Any) -> Any:
        """Compute it. The result is of the same kind as query.

        tensors: query, key, value, and optionally a mask, the caller's own. more: "sinks" and
        "page_table", each where the problem has it: what does not take "sinks" or "pages" need not have
        such an argument.
        """
        return self.run_with_logsumexp(problem, *tensors, **more)[0]

    def run_with_logsumexp(
        self, problem: AttentionProblem, *tensors: Any, **more: Any
    ) -> tuple[Any, Any]:
        """Compute it, and the logarithm of the sum of each row's exponentials: (..., H, L).

        tensors, more: as of `run`. That is of float64 for float64, else of float32, of the kind of query.
        A sink is part of the sum. For a row that sees no key it is the head's sink, or 0 without one. A
        backend that takes "logsumexp" or "gradient" has it.
        """
        raise NotImplementedError

    def run_backward(
        self, problem: AttentionProblem, grad_out: Any, *tensors: Any, **more: Any
    ) -> Gradients:
        """Return the gradients, given that of the result.

        tensors: query, key, value, mask, and what `run_with_logsumexp` returned for them; more: as of
        `run`. Mask and sinks have a gradient where their records require it. A backend that takes
        "gradient" has it.
        """
        raise NotImplementedError
