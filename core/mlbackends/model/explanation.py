"""The records of `backends sdpa explain` and `list`: which backends take which problems."""

from typing import Any

from msgspec import Struct

from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem, Verdict

SCHEMA = "backends.sdpa-explain/1"
LIST_SCHEMA = "backends.sdpa-list/1"
ENGINE_SCHEMA = "backends.sdpa-engine/1"
DEVICE_SCHEMA = "backends.device/1"


class Bound(Struct, frozen=True):
    """The least time that a product can take, by its peak and bandwidth.

    limited_by: arithmetic or bandwidth. math_bytes: what the plain formula moves as well, its scores and
    weights, beyond what a cache holds; 0 where none is known. math_seconds: the least time with that.
    """

    product: str
    seconds: float
    limited_by: str
    math_bytes: int
    math_seconds: float


class Explained(Struct, frozen=True):
    """The verdicts on one problem.

    text: the problem as it is typed. device: its name, and device_title which one that is.
    here: whether that is this machine's own. chosen: the backend of ours that computes it, "" for none.
    torch_chosen: the SDPBackend that torch uses, "" if torch raises or its choice is not known for
    torch_unknown_reason. torch_cudnn: the version of cuDNN that torch's verdicts are for, the
    installed one, else that of torch's wheel; "" for none. torch: whose rules these are. version_notes: what
    assumed versions mean beyond those rules. wheel_has_code: whether torch's wheel on PyPI has code for the
    GPU. verdicts and torch_verdicts are in the order of the backends.
    """

    text: str
    problem: AttentionProblem
    device: str
    device_title: str
    here: bool
    chosen: str
    verdicts: tuple[Verdict, ...]
    torch_chosen: str
    torch_verdicts: tuple[Verdict, ...]
    torch_unknown_reason: str = ""
    torch_cudnn: str = ""
    torch: str = ""
    bound: Bound | None = None
    version_notes: tuple[str, ...] = ()
    wheel_has_code: bool | None = None

    @property
    def answered(self) -> bool:
        """Whether a backend of ours can take it."""
        return bool(self.chosen)


class Explanation(Struct, frozen=True):
    """The record of `backends sdpa explain`.

    torch: the release of the rules, of the first problem where they differ; torch_basis: why that one.
    """

    schema: str
    tool: str
    torch: str
    problems: tuple[Explained, ...]
    torch_basis: str = ""


class DescribedDevice(Struct, frozen=True):
    """The record of `backends info --device`.

    product: what its maker states, as products.toml has it; {} for a name that is no product. torch: its
    choices for a plain problem in each element type.
    """

    schema: str
    tool: str
    device: str
    title: str
    product: dict[str, Any]
    torch: Explanation


class EngineVerdict(Struct, frozen=True):
    """One of an engine's backends; reasons: all that speaks against it, none if it can.

    warnings: what the engine does not refuse, and the backend's kernel does, or does not take into account.
    undecided: why it is not known whether it can.
    """

    backend: str
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()
    undecided: tuple[Reason, ...] = ()


class EngineCall(Struct, frozen=True):
    """What torch's scaled_dot_product_attention does with one prompt in an engine's layers.

    text: the call as a problem is typed. torch: the release whose rules these are, "" if the engine computes
    the plain formula itself. chosen: MATH for the plain formula; "" if torch raises, or its choice is not
    known for unknown_reason. bound: None if the chip's peak is not known. score_bytes: the memory of the
    plain formula's scores, 0 if it is not chosen.
    """

    text: str
    torch: str
    chosen: str
    verdicts: tuple[Verdict, ...]
    unknown_reason: str
    bound: Bound | None
    score_bytes: int


class EngineLayers(Struct, frozen=True):
    """What an engine would choose for the layers of one kind.

    kind: full attention or sliding window. chosen: a backend, "" if the engine raises an error, or the choice
    is not known for unknown_reason. facts: what it depends on. verdicts: in the order in which the engine
    asks its backends. call: for a backend that calls torch.
    """

    kind: str
    chosen: str
    facts: dict[str, bool | int | str | None]
    verdicts: tuple[EngineVerdict, ...]
    call: EngineCall | None = None
    unknown_reason: str = ""


class EngineExplanation(Struct, frozen=True):
    """The record of `backends sdpa explain --engine`.

    release: whose rules these are. model: the file that was read. assumed: what the answer depends on that
    no file states. source: where the engine decides.
    """

    schema: str
    tool: str
    engine: str
    release: str
    model: str
    device: str
    device_title: str
    layers: tuple[EngineLayers, ...]
    assumed: str
    source: str

    @property
    def answered(self) -> bool:
        """Whether a backend supports every kind of layer, and torch what it is called for."""
        calls = [kind.call for kind in self.layers if kind.call]
        return all(kind.chosen for kind in self.layers) and all(
            call.chosen or call.unknown_reason for call in calls
        )


class BackendEntry(Struct, frozen=True):
    """One backend of `backends sdpa list`.

    answers_to: the SDPBackend that torch's switches know it by. takes: what it asks of a problem, a
    sentence each. can: what it supports in addition to plain attention, such as dropout and gradients, by the
    same constraints. tolerance: by element type, how many times the error of the plain computation in
    the same type its result may have. unavailable_reasons: what keeps it from computing here, () if nothing
    does. slower_reasons: what makes it slower than this CPU can be. peer: whether it is of another
    project, run by `sdpa check --peers`.
    """

    name: str
    answers_to: str
    summary: str
    takes: tuple[str, ...]
    tolerance: dict[str, float]
    unavailable_reasons: tuple[Reason, ...] = ()
    peer: bool = False
    can: tuple[str, ...] = ()
    slower_reasons: tuple[Reason, ...] = ()


class BackendList(Struct, frozen=True):
    """The record of `backends sdpa list`."""

    schema: str
    tool: str
    backends: tuple[BackendEntry, ...]
