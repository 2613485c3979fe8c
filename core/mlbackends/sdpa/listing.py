"""Every attention backend: what it takes, told by its constraints, and whether it can compute here."""

from mlbackends.model.explanation import LIST_SCHEMA, BackendEntry, BackendList
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Device
from mlbackends.sdpa.abilities import DTYPES, abilities, plain
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.dispatch import backends, switch_reasons, unloaded
from mlbackends.sdpa.verify.peer import Peer, peers


def listing(python: str = "") -> BackendList:
    """Return every backend of ours and of other distributions, and the peers behind them.

    python: the interpreter in whose environment peers are looked for, "" for our own.
    """
    from mlbackends import __version__

    entries = [_entry(each) for each in backends()]
    entries += [
        BackendEntry(each.backend, each.answers_to, "", (), {}, each.reasons) for each in unloaded()
    ]
    entries += [_peer(each, python) for each in peers()]
    return BackendList(LIST_SCHEMA, f"backends {__version__}", tuple(entries))


def _entry(backend: AttentionBackend) -> BackendEntry:
    lines = (type(backend).__doc__ or backend.name).strip().splitlines()
    return BackendEntry(
        name=backend.name,
        answers_to=backend.answers_to.name,
        summary=lines[0].rstrip(".") if lines else backend.name,
        takes=tuple(each.sentence for each in backend.every_constraint()),
        tolerance=dict(backend.tolerance),
        why_not_here=why_not_here(backend),
        can=(*abilities(backend.unsupported_reasons), *_untyped(backend)),
    )


def _untyped(backend: AttentionBackend) -> tuple[str, ...]:
    """Return what it can that no word of a problem asks for."""
    return ("logsumexp",) if "logsumexp" in backend.takes else ()


def why_not_here(backend: AttentionBackend) -> tuple[Reason, ...]:
    """Return what keeps a backend from computing on this machine; () if nothing does."""
    reasons = (*switch_reasons(backend.answers_to), *backend.missing_parts())
    if reasons or _takes_some(backend, Device("cpu", 0)):
        return reasons
    # Where a device is looked for, a child process is started: only for who needs one.
    from mlbackends.model.errors import BadInput
    from mlbackends.sdpa import named_devices

    try:
        device = named_devices.device("cuda").device
    except BadInput as error:
        return (Reason("no-device", f"it does not compute on the CPU, and {error}"),)
    if _takes_some(backend, device):
        return ()
    return backend.unsupported_reasons(plain(DTYPES[0], device))


def _takes_some(backend: AttentionBackend, device: Device) -> bool:
    return any(not backend.unsupported_reasons(plain(dtype, device)) for dtype in DTYPES)


def _peer(peer: Peer, python: str) -> BackendEntry:
    from mlbackends.sdpa.verify.peer_presence import why_missing

    return BackendEntry(
        name=peer.name,
        answers_to=peer.answers_to,
        summary=peer.summary,
        takes=tuple(each.sentence for each in peer.every_constraint()),
        tolerance={},
        why_not_here=why_missing(peer, python),
        can=abilities(peer.unsupported_reasons),
        peer=True,
    )
