"""The attention backends that a test can run with, and on which device."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from mlbackends.base.errors import UnknownName
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.cuda_surface import SDPAParams, problem_of
from mlbackends.sdpa.dispatch import backends, choose
from mlbackends.sdpa.switches import SDPBackend
from mlbackends.testing.devices import Choice, device_of, why_unusable
from mlbackends.testing.machine import Machine

_SHAPE = (1, 2, 16, 64)
#: It is enough to compute in one; what is wrong is that of the last.
_DTYPES = ("float16", "float32")


class UsableAttention(NamedTuple):
    """An attention backend on a device where it can compute.

    name: the file in kernels/. device: the kind, with its number where that was asked for.
    """

    name: str
    device: str
    backend: AttentionBackend

    @property
    def answers_to(self) -> SDPBackend:
        """The kind by which `sdpa_kernel` knows it."""
        return self.backend.answers_to

    def attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        enable_gqa: bool = False,
    ) -> Any:
        """Compute attention with this backend and no other. Raises NoBackend where it cannot."""
        params = SDPAParams(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        return self.backend.run(problem_of(params), query, key, value, attn_mask)


class AttentionChoice(NamedTuple):
    """A backend and a device for a test, or why the backend cannot compute there."""

    name: str
    device: str
    why: str = ""


def names() -> tuple[str, ...]:
    """Return the names of all attention backends, those of other distributions too."""
    return tuple(backend.name for backend in backends())


def check_name(name: str) -> None:
    """Raise UnknownName, with the nearest name, if it is not an attention backend."""
    if name not in names():
        raise UnknownName("attention backend", name, names())


def choices(
    machine: Machine,
    devices: Sequence[Choice],
    requested: Sequence[str],
    marked: Sequence[str] | None,
) -> list[AttentionChoice]:
    """Return the backends for a test on some devices; for one that is not usable, why.

    requested: on the command line, () for all. marked: by the test itself, None for all. A backend that
    was named and can compute on none of the devices appears once, with all reasons.
    """
    first = (marked or requested or ("none",))[0]
    unusable = [AttentionChoice(first, *device) for device in devices if device.why]
    wanted = [name for name in requested or names() if marked is None or name in marked]
    named = bool(requested) or marked is not None
    reasons = {device.name: verdicts(machine, device.name) for device in devices if not device.why}
    found: list[AttentionChoice] = []
    for name in dict.fromkeys(wanted):
        here = [AttentionChoice(name, device, reasons[device].get(name, "")) for device in reasons]
        usable = [choice for choice in here if not choice.why]
        if named and here and not usable:
            why = "; ".join(dict.fromkeys(choice.why for choice in here))
            found.append(AttentionChoice(name, here[0].device, why))
        found += usable
    if reasons and not found:
        where = " and ".join(reasons)
        why = f"no attention backend that this test may use can compute on {where}"
        found = [AttentionChoice(first, next(iter(reasons)), why)]
    return found + unusable


def verdicts(machine: Machine, name: str) -> dict[str, str]:
    """Return for each backend why it cannot compute on a device, "" if it can.

    Raises LookupError where the device is not usable.
    """
    device = device_of(machine, name)
    if device is None:
        raise LookupError(why_unusable(machine, name))
    found: dict[str, str] = {}
    for dtype in _DTYPES:
        spec = TensorSpec(_SHAPE, dtype)
        problem = AttentionProblem(query=spec, key=spec, value=spec, device=device)
        for verdict in choose(problem, here=not machine.subject).verdicts:
            why = "; ".join(reason.message for reason in verdict.reasons)
            if found.get(verdict.backend) != "":
                why = f"{verdict.backend} cannot compute on {name}: {why}" if why else ""
                found[verdict.backend] = why
    return found


def usable(choice: AttentionChoice) -> UsableAttention:
    """Return the backend that was chosen."""
    backend = next(backend for backend in backends() if backend.name == choice.name)
    return UsableAttention(choice.name, choice.device, backend)
