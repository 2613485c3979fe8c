"""What a backend can beside the plain problem: tried on its constraints, in the words of a problem."""

from collections.abc import Callable, Sequence

from mlbackends.model.problem import AttentionProblem
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Device
from mlbackends.sdpa import problem_text
from mlbackends.sdpa.named_devices import NAMED

Refusing = Callable[[AttentionProblem], Sequence[Reason]]

DTYPES = ("float32", "float16", "bfloat16", "float64")
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
}
"""What a problem may ask for, and the words that ask for it."""
_PLAIN = "--shape 2,4,128,64 --dtype"


def plain(dtype: str, device: Device, words: str = "") -> AttentionProblem:
    """Return a problem that any backend takes which computes that type there, unless for the words."""
    (wording,) = problem_text.parse(f"{_PLAIN} {dtype} {words}")
    return wording.problem(device)


def abilities(reasons: Refusing) -> tuple[str, ...]:
    """Return what a backend can on some device, by the reasons that it has against problems."""
    places = [Device("cpu", 0), NAMED["sm90"].device, NAMED["gfx942"].device]
    asked = [(dtype, place) for place in places for dtype in DTYPES]
    taken = [each for each in asked if not reasons(plain(*each))]
    return tuple(
        name
        for name, words in ABILITIES.items()
        if any(not reasons(plain(*each, words)) for each in taken)
    )
