"""Which backend computed the last call of attention, and why no other did.

With MLBACKENDS_LOG=attention in the environment, each call is printed to standard error.
"""

import os
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlbackends.base.reasons import Reason

VARIABLE, WORD = "MLBACKENDS_LOG", "attention"


class AttentionCall(NamedTuple):
    """One call of attention.

    backend: the name of ours that computed it, or "torch". why: why the backends that come first did not,
    "" if none does. direction: "forward" or "backward". shape, dtype, device: those of the query.
    """

    backend: str
    why: str
    direction: str
    shape: tuple[int, ...]
    dtype: str
    device: str

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.shape))
        why = f" ({self.why})" if self.why else ""
        return f"{self.direction} of ({sizes}) {self.dtype} on {self.device}: {self.backend}{why}"


class _OfThread(threading.local):
    call: AttentionCall | None = None


_of_thread = _OfThread()
#: Whether each call is printed; the variable is read once.
_IS_LOGGED = WORD in os.environ.get(VARIABLE, "").replace(",", " ").split()


def last_attention() -> AttentionCall | None:
    """Return which backend computed this thread's last call of attention, None before the first one.

    The calls are those of `scaled_dot_product_attention` and of its gradients here, and those in code that
    torch.compile(backend="mlbackends") compiled, which torch may have computed.
    """
    return _of_thread.call


def note(
    backend: str,
    query: Any,
    why: "str | Sequence[tuple[str, Sequence[Reason]]]" = "",
    direction: str = "forward",
) -> None:
    """Record which backend computes a call.

    query: its tensor, or the record of it. why: why others do not, or the reasons against each of them.
    """
    if not isinstance(why, str):
        refusals = (f"{name}: {reason.message}" for name, reasons in why for reason in reasons)
        why = "; ".join(dict.fromkeys(refusals))
    # The sizes of a nested tensor differ. Errors are not caught: a signal handler may raise them here.
    shape = () if getattr(query, "is_nested", False) else tuple(map(int, query.shape))
    dtype = str(query.dtype).removeprefix("torch.")
    _of_thread.call = call = AttentionCall(backend, why, direction, shape, dtype, str(query.device))
    if _IS_LOGGED:
        sys.stderr.write(f"mlbackends: attention, {call}\n")
