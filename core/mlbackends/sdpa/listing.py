"""Every attention backend: what it supports, by its constraints, and whether it can run here."""

from collections.abc import Callable, Sequence
from functools import cache

from mlbackends.base.errors import BadInput
from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.base.version import __version__
from mlbackends.model.explanation import LIST_SCHEMA, BackendEntry, BackendList
from mlbackends.model.problem import AttentionProblem
from mlbackends.model.records import Device
from mlbackends.sdpa import named_devices, problem_text
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.dispatch import backends, switch_reasons, unloaded
from mlbackends.sdpa.verify.peer import peers
from mlbackends.sdpa.verify.processes import Plan

_DTYPES = ("float32", "float16", "bfloat16", "float64")


def listing(pythons: Sequence[str] = ()) -> BackendList:
    """Return every backend, those of other distributions included, and then the peers.

    pythons: the interpreters in whose environments peers are searched, EXE for all or NAME=EXE for one;
    () for our own.
    """
    plan = Plan(pythons=tuple(pythons))
    entries, cuda = [], cache(_cuda_device)
    for backend in backends():
        lines = (type(backend).__doc__ or backend.name).strip().splitlines() or [backend.name]
        can = abilities(backend.unsupported_reasons)
        unavailable_reasons = _unavailable_reasons(backend, cuda)
        entry = BackendEntry(
            name=backend.name,
            answers_to=backend.answers_to.name,
            summary=lines[0].rstrip("."),
            takes=tuple(constraint.sentence for constraint in backend.every_constraint()),
            tolerance=dict(backend.tolerance),
            unavailable_reasons=unavailable_reasons,
            slower_reasons=() if unavailable_reasons else backend.slower_reasons(),
            can=(*can, "logsumexp") if "logsumexp" in backend.takes else can,
        )
        entries.append(entry)
    entries += [
        BackendEntry(verdict.backend, verdict.answers_to, "", (), {}, verdict.reasons)
        for verdict in unloaded()
    ]
    entries += [
        BackendEntry(
            name=peer.name,
            answers_to=peer.answers_to,
            summary=peer.summary,
            takes=peer.sentences(),
            tolerance={},
            unavailable_reasons=peer.why_missing(plan.python_of(peer.name)),
            can=abilities(peer.unsupported_reasons),
            peer=True,
        )
        for peer in peers()
    ]
    return BackendList(LIST_SCHEMA, f"backends {__version__}", tuple(entries))


def abilities(unsupported: Callable[[AttentionProblem], Sequence[Reason]]) -> tuple[str, ...]:
    """Return the features that a backend supports on some device, by its reasons against problems.

    abilities.json has the features, each with the words of a problem that has it.
    """
    named = named_devices.NAMED
    places = [Device("cpu", 0), named["sm90"].device, named["gfx942"].device]
    pairs = [(dtype, place) for place in places for dtype in _DTYPES]
    supported = [pair for pair in pairs if not unsupported(_problem(*pair))]
    return tuple(
        name
        for name, words in table("sdpa/abilities").items()
        if any(not unsupported(_problem(*pair, words)) for pair in supported)
    )


def _problem(dtype: str, device: Device, words: str = "") -> AttentionProblem:
    shape = "" if words.startswith("--shape") else "--shape 2,4,128,64"
    (wording,) = problem_text.parse(f"{shape} --dtype {dtype} {words}")
    return wording.problem(device)


def _unavailable_reasons(
    backend: AttentionBackend, cuda: Callable[[], Device | BadInput]
) -> tuple[Reason, ...]:
    """Return why a backend cannot run on this machine; () if it can.

    cuda: returns the first CUDA device, or why there is none; it is called only for a backend that needs one.
    """
    reasons = (*switch_reasons(backend.answers_to), *backend.missing_parts())
    if reasons or _takes_some(backend, Device("cpu", 0)):
        return reasons
    device = cuda()
    if isinstance(device, BadInput):
        return (Reason("no-device", f"CPU tensors are not supported, and {device}"),)
    if _takes_some(backend, device):
        return ()
    return backend.unsupported_reasons(_problem(_DTYPES[0], device))


def _cuda_device() -> Device | BadInput:
    """Return this machine's first CUDA device, or why there is none, as a child process finds it."""
    try:
        return named_devices.device("cuda").device
    except BadInput as error:
        return error


def _takes_some(backend: AttentionBackend, device: Device) -> bool:
    return any(not backend.unsupported_reasons(_problem(dtype, device)) for dtype in _DTYPES)
