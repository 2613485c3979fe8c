"""Every attention backend: what it takes, by its constraints, and whether it can compute here."""

from collections.abc import Callable, Sequence
from functools import cache

from mlbackends.base.errors import BadInput
from mlbackends.base.reasons import Reason
from mlbackends.model.explanation import LIST_SCHEMA, BackendEntry, BackendList
from mlbackends.model.problem import AttentionProblem
from mlbackends.model.records import Device
from mlbackends.sdpa import named_devices, problem_text
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.dispatch import backends, switch_reasons, unloaded

#: What a backend may take beside the plain problem, and the words of a problem that has it.
ABILITIES = {
    "causal masks": "--causal",
    "causal masks to the lower right": "--mask lower-right --kv-len 192",
    "boolean masks": "--mask bool",
    "masks of numbers": "--mask float",
    "grouped heads": "--kv-heads 2 --gqa",
    "values of another width": "--value-dim 32",
    "bshd layout": "--layout bshd",
    "dropout": "--dropout 0.5",
    "gradients": "--backward",
    "gradients of masks": "--mask float --mask-gradient",
    "windows": "--window 32,0",
    "capped scores": "--softcap 30",
    "sinks": "--sinks",
    "packed sequences": "--shape 1,4,128,64 --query-lengths 28,100",
    "keys in pages": "--page-size 16",
}
_DTYPES = ("float32", "float16", "bfloat16", "float64")


def listing(pythons: Sequence[str] = ()) -> BackendList:
    """Return every backend of ours and of other distributions, and the peers behind them.

    pythons: the interpreters in whose environments peers are looked for, EXE for all or NAME=EXE for one;
    () for our own.
    """
    from mlbackends.base.version import __version__
    from mlbackends.sdpa.verify.peer import peers
    from mlbackends.sdpa.verify.processes import Plan

    plan = Plan(pythons=tuple(pythons))
    entries, cuda = [], cache(_cuda_device)
    for backend in backends():
        lines = (type(backend).__doc__ or backend.name).strip().splitlines() or [backend.name]
        can = abilities(backend.unsupported_reasons)
        unavailable_reasons = _why_not_here(backend, cuda)
        entry = BackendEntry(
            name=backend.name,
            answers_to=backend.answers_to.name,
            summary=lines[0].rstrip("."),
            takes=tuple(each.sentence for each in backend.every_constraint()),
            tolerance=dict(backend.tolerance),
            unavailable_reasons=unavailable_reasons,
            slower_reasons=() if unavailable_reasons else backend.slower_reasons(),
            can=(*can, "logsumexp") if "logsumexp" in backend.takes else can,
        )
        entries.append(entry)
    entries += [
        BackendEntry(each.backend, each.answers_to, "", (), {}, each.reasons) for each in unloaded()
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
    """Return what a backend takes on some device, by its reasons against problems."""
    named = named_devices.NAMED
    places = [Device("cpu", 0), named["sm90"].device, named["gfx942"].device]
    pairs = [(dtype, place) for place in places for dtype in _DTYPES]
    supported = [each for each in pairs if not unsupported(_problem(*each))]
    return tuple(
        name
        for name, words in ABILITIES.items()
        if any(not unsupported(_problem(*each, words)) for each in supported)
    )


def _problem(dtype: str, device: Device, words: str = "") -> AttentionProblem:
    shape = "" if words.startswith("--shape") else "--shape 2,4,128,64"
    (wording,) = problem_text.parse(f"{shape} --dtype {dtype} {words}")
    return wording.problem(device)


def _why_not_here(
    backend: AttentionBackend, cuda: Callable[[], Device | BadInput]
) -> tuple[Reason, ...]:
    """Return what keeps a backend from computing on this machine; () if nothing does.

    cuda: returns its first CUDA device, or why there is none; only a backend that needs one asks.
    """
    reasons = (*switch_reasons(backend.answers_to), *backend.missing_parts())
    if reasons or _takes_some(backend, Device("cpu", 0)):
        return reasons
    device = cuda()
    if isinstance(device, BadInput):
        return (Reason("no-device", f"it does not compute on the CPU, and {device}"),)
    if _takes_some(backend, device):
        return ()
    return backend.unsupported_reasons(_problem(_DTYPES[0], device))


def _cuda_device() -> Device | BadInput:
    """Return this machine's first CUDA device, or why there is none; a child process finds out."""
    try:
        return named_devices.device("cuda").device
    except BadInput as error:
        return error


def _takes_some(backend: AttentionBackend, device: Device) -> bool:
    return any(not backend.unsupported_reasons(_problem(dtype, device)) for dtype in _DTYPES)
