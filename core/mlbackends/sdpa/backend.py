"""AttentionBackend: what a file in kernels/ must offer."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, final

from mlbackends.model.errors import NoBackend
from mlbackends.model.problem import AttentionProblem
from mlbackends.model.reasons import Reason
from mlbackends.sdpa.constraints import (
    Constraint,
    no_float64_inside,
    no_gradient,
    no_logsumexp,
    no_lower_right,
    not_nested,
    unmet,
)
from mlbackends.sdpa.sdp_backend import SDPBackend

RARE = {
    "float64_inside": no_float64_inside(),
    "gradient": no_gradient(),
    "logsumexp": no_logsumexp(),
    "lower_right": no_lower_right(),
    "nested": not_nested(),
}
"""What a problem seldom asks for: refused for every backend that does not say that it `takes` it."""

Prepared = Callable[..., Any]
"""A kind of calls made ready; see `AttentionBackend.prepared` and `prepared_backward`."""


class Gradients(NamedTuple):
    """The gradients of one call, each of the shape and element type of its tensor.

    mask: None where there is no mask, or none that requires a gradient.
    """

    query: Any
    key: Any
    value: Any
    mask: Any = None


class AttentionBackend:
    """One way to compute attention. A file in kernels/ holds one subclass of its own, and no more.

    name: the file's name. answers_to: the kind by which torch's switches know it. rank: among those
    of one kind the highest is asked first. constraints: what it asks of a problem, all of it. takes:
    of RARE, what it can do. dsl: the language that python_native switches it off by ("triton"), ""
    for none. tolerance: by element type, how many times the error of the plain computation in the
    same type its result may have, against float64.
    """

    name: ClassVar[str]
    answers_to: ClassVar[SDPBackend]
    rank: ClassVar[int] = 0
    constraints: ClassVar[tuple[Constraint, ...]] = ()
    takes: ClassVar[frozenset[str]] = frozenset()
    tolerance: ClassVar[dict[str, float]] = {}
    dsl: ClassVar[str] = ""
    _asked: ClassVar[tuple[Constraint, ...]] = ()
    _fits: AttentionProblem | None = None
    """The last problem that did: whoever chose a backend has it run the same object."""

    def __init_subclass__(cls) -> None:
        """Refuse a backend that switches could not reach, or that takes what nothing is called."""
        if getattr(cls, "answers_to", SDPBackend.ERROR) is SDPBackend.ERROR or not hasattr(
            cls, "name"
        ):
            raise TypeError(f"{cls.__name__} needs a name, and an SDPBackend that it answers to")
        if unknown := cls.takes - RARE.keys():
            known = ", ".join(RARE)
            raise TypeError(f"{cls.__name__} takes {', '.join(unknown)}; it can take {known}")
        rare = (RARE[each] for each in RARE if each not in cls.takes)
        cls._asked = (*cls.constraints, *rare)

    @classmethod
    @final
    def every_constraint(cls) -> tuple[Constraint, ...]:
        """Return its constraints, and those for what it does not take."""
        return cls._asked

    @final
    def unsupported_reasons(self, problem: AttentionProblem) -> tuple[Reason, ...]:
        """Return everything that speaks against the problem, from its records alone; () if it fits."""
        if problem is self._fits:
            return ()
        reasons = unmet(self._asked, problem)
        if not reasons:
            self._fits = problem
        return reasons

    @final
    def refuses_every_size(self, problem: AttentionProblem) -> bool:
        """Tell whether it would not fit with other sizes and strides either."""
        return any(not asked.sizes and asked.test(problem) for asked in self._asked)

    @final
    def require(self, problem: AttentionProblem) -> None:
        """Raise NoBackend, with all reasons, unless the problem fits. `run` begins with it."""
        reasons = self.unsupported_reasons(problem)
        if reasons:
            said = "; ".join(reason.message for reason in reasons)
            raise NoBackend(f"{self.name} cannot do this: {said}", reasons)

    def missing_parts(self) -> tuple[Reason, ...]:
        """Return what this installation lacks to run it (a package, a driver); () if nothing.

        Asked only for a problem that fits and is to be run here, so it may look, but not compute.
        """
        return ()

    def told(self) -> dict[str, str]:
        """Return what it says of itself where it runs, by name: "instruction set", "threads", "version"."""
        return {}

    def run(
        self, problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any = None
    ) -> Any:
        """Compute it. The tensors are the caller's own; the result is of the same kind as query."""
        raise NotImplementedError

    def prepared(
        self,
        problem: AttentionProblem,
        query: Any,
        key: Any,
        value: Any,
        mask: Any,
        out: Any,
        logsumexp: Any = None,
    ) -> Prepared | None:
        """Return what computes calls like this one, None where each must be looked at.

        out: what `run` returned for these tensors; or out and logsumexp what `run_with_logsumexp` did.
        What is returned is called with tensors of exactly the types of these and of the same element
        types, a query of the same width, and the call's seed: None to draw one, or what is called for one
        when it is certain to be needed; all other options are the problem's. It returns what `run` would,
        with logsumexp a pair; or None, with nothing done, where it does not know, and where sizes or
        strides are such as this backend or the operation itself refuses. It must not depend on what may
        change, but for the switches.
        """
        del problem, query, key, value, mask, out, logsumexp
        return None

    def prepared_backward(
        self,
        problem: AttentionProblem,
        query: Any,
        key: Any,
        value: Any,
        mask: Any,
        out: Any,
        logsumexp: Any,
    ) -> Prepared | None:
        """Return what computes the gradients of calls like this one, None where each must be looked at.

        As `prepared`; what is returned is called with the gradient of the output, then these and the
        seed, and returns Gradients or None. No mask has a gradient.
        """
        del problem, query, key, value, mask, out, logsumexp
        return None

    def run_with_logsumexp(
        self, problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any = None
    ) -> tuple[Any, Any]:
        """Compute it, and the logarithm of the sum of each row's exponentials: (..., H, L).

        That is of float64 for float64, else of float32, of the kind of query, and 0 for a row that sees
        no key. A backend that takes "logsumexp" or "gradient" has it.
        """
        raise NotImplementedError

    def run_backward(
        self,
        problem: AttentionProblem,
        grad_out: Any,
        query: Any,
        key: Any,
        value: Any,
        mask: Any,
        out: Any,
        logsumexp: Any,
    ) -> Gradients:
        """Return the gradients, given that of the result and what `run_with_logsumexp` returned.

        The mask has one where its record requires it. A backend that takes "gradient" has it.
        """
        raise NotImplementedError
