"""Each switch on two sides, torch's and ours, reached through the same public surface.

Run as a program it tries values on both sides and prints, as JSON lines, where the sides differ:

    python sides.py fresh                   what the environment makes of the switches, and warnings of it
    python sides.py values NAME...          a pool of values for each way to set these switches
    python sides.py freezing                what each way does after disable_global_flags()

Each value that one side takes is tried in a forked child: torch has no way back to some states.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import sys
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

with warnings.catch_warnings(record=True) as SAID_AT_IMPORT:
    warnings.simplefilter("always")
    import torch
    import torch.backends.cudnn.rnn
    import torch.backends.xnnpack

import mlbackends
from mlbackends.cuda import preferences
from mlbackends.switches import availability
from mlbackends.switches.table import NOT_IN_FLAGS, SWITCHES, Switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TORCH_RELEASE = ".".join(torch.__version__.split(".")[:2])
#: The switches that this torch has.
HERE = {name: flag for name, flag in SWITCHES.items() if flag.since <= TORCH_RELEASE}
#: How a switch is reached that Python can read. The others are variables, which only a library reads.
PUBLIC = ("attribute", "function", "flags")


class Difference(NamedTuple):
    """Where the two sides part.

    subject: the name on which it was seen. aspect: what was compared there, and with what.
    """

    subject: str
    aspect: str
    torchs: str
    ours: str


class Bogus:
    """What no switch takes."""

    def __repr__(self) -> str:
        return "<an object>"


POOL: tuple[Any, ...] = (
    *(True, False, 0, 1, 2, -1, 3.5, 2**31, 2**70, float("nan"), 1j, None, b"x", b"tf32", Bogus()),
    *("", "0", "1", "none", "None", "default", "bogus", "auto", "AUTO"),
    *("ieee", "IEEE", "tf32", "TF32", "bf16", "BF16"),
    *((), [], (True,), [False], (True, False), [False, False], [False, True], (True, True, True)),
    *((1,), (True, None), {}, {True}),
)


def pool_of(flag: Switch) -> list[Any]:
    """Every value to try on a switch: the pool, and each word that it takes, in two cases."""
    words = list(getattr(flag.kind, "words", ())) + list(getattr(flag.kind, "aliases", ()))
    words = [word for word in words if flag.needed_torch(word) <= TORCH_RELEASE]
    more: list[Any] = [form for word in words for form in (word, word.upper(), f"{word} ")]
    if flag.name == "cuda.sdp_priority_order":
        # A list of more than five writes past torch's array.
        more = [(2, 1, 0, 3, 4), [4, 3, 2, 1, 0], (1, 2), (0, 0, 0, 0, 0), (9, 1, 2, 3, 4), (1.0,)]
    unique: dict[str, Any] = {repr(value): value for value in (*POOL, *more)}
    return list(unique.values())


def shown(value: object) -> str:
    """Return what is compared of a value: an enumeration's member by its name."""
    name = getattr(value, "name", None)
    return str(name) if isinstance(name, str) else repr(value)


# ---- the two sides ----------------------------------------------------------


def _dotted(start: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        start = getattr(start, part)
    return start


class Side:
    """One of the two libraries: its switches by name."""

    def __init__(self, name: str, root: Any, functions: Callable[[str], Any]) -> None:
        self.name = name
        self.root = root
        self.function = functions

    def holder(self, flag: Switch) -> Any:
        return _dotted(self.root, flag.module)

    def read(self, flag: Switch) -> object:
        if flag.reached == "attribute":
            return getattr(self.holder(flag), flag.attribute)
        return self.function(flag.torch_get)()

    def state(self) -> dict[str, str]:
        """Every switch's value, or the type of what reading it raises."""
        found = {}
        for flag in HERE.values():
            if flag.reached in PUBLIC:
                try:
                    found[flag.name] = shown(self.read(flag))
                except Exception as error:  # noqa: BLE001  the type is what is compared
                    found[flag.name] = type(error).__name__
        return found

    def set(self, flag: Switch, way: str, value: object) -> Any:
        """Set a switch in one of its ways. The way `flags` reads the state inside the block."""
        if way == "attribute":
            setattr(self.holder(flag), flag.attribute, value)
        elif way == "function":
            self.function(flag.torch_set)(value)
        elif way == "set_flags":
            return shown(self.holder(flag).set_flags(**{f"_{flag.attribute}": value}))
        elif way == "positional":
            return shown(self.holder(flag).set_flags(value))
        else:
            with self.holder(flag).flags(**{flag.attribute: value}):
                return self.state()
        return None


def _torchs_function(path: str) -> Any:
    return _dotted(torch, path.removeprefix("torch."))


#: Where torch's function is private, ours is the store's.
_OUR_PRIVATE = {
    "torch._C._set_sdp_use_overrideable": ("write", "cuda.overrideable_sdp"),
    "torch._C._get_overrideable_sdp_enabled": ("read", "cuda.overrideable_sdp"),
    "torch._C._set_sdp_priority_order": ("write", "cuda.sdp_priority_order"),
    "torch._C._get_sdp_priority_order": ("read", "cuda.sdp_priority_order"),
    "torch._C._get_nnpack_enabled": ("read", "nnpack.enabled"),
}


def _our_function(path: str) -> Any:
    if path in _OUR_PRIVATE:
        verb, name = _OUR_PRIVATE[path]
        function = getattr(mlbackends.switches.store, verb)
        return lambda *values: _listed(function(name, *values))
    return _dotted(mlbackends, path.removeprefix("torch.").removeprefix("backends."))


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


TORCH = Side("torch", torch.backends, _torchs_function)
OURS = Side("mlbackends", mlbackends, _our_function)


def ways(flag: Switch) -> list[str]:
    """Return the ways to set a switch."""
    found = [flag.reached] if flag.reached in ("attribute", "function") else []
    if flag.inside_flags is not NOT_IN_FLAGS:
        found += ["set_flags", "flags"]
    return found


# ---- trying -----------------------------------------------------------------


class Outcome(NamedTuple):
    """What came of one step on one side."""

    result: str
    warned: tuple[str, ...]
    inside: dict[str, str]
    state: dict[str, str]


def attempt(side: Side, action: Callable[[], Any]) -> Outcome:
    """Do something on one side, and see what it raised, warned of and left behind."""
    inside: dict[str, str] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = action()
        except Exception as error:  # noqa: BLE001  the type is what is compared
            result = type(error).__name__
        else:
            result = "accepted"
            if isinstance(value, dict):
                inside = value
            elif value is not None:
                result = f"accepted, returned {value}"
    warned = tuple(sorted(warning.category.__name__ for warning in caught))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Outcome(result, warned, inside, side.state())


def compared(subject: str, aspect: str, torchs: Outcome, ours: Outcome) -> Iterator[Difference]:
    """Every difference of two outcomes: the result, the warnings, and each switch in and after it.

    Where one side alone takes the value nothing more is compared: the rest follows from that.
    """
    if torchs.result != ours.result:
        yield Difference(subject, aspect, torchs.result, ours.result)
    if torchs.warned != ours.warned:
        said = (", ".join(torchs.warned) or "silent", ", ".join(ours.warned) or "silent")
        yield Difference(subject, f"{aspect}: warnings", *said)
    if torchs.result.startswith("accepted") != ours.result.startswith("accepted"):
        return
    for when in ("inside", "state"):
        left, right = getattr(torchs, when), getattr(ours, when)
        for name in left:
            if left[name] != right[name] and (left[name], right[name]) != FRESH.get(name):
                yield Difference(subject, f"{aspect}: {when} of {name}", left[name], right[name])


#: What both sides say of each switch where nobody has set anything; a difference there is told once.
FRESH: dict[str, tuple[str, str]] = {}


def in_a_child(work: Callable[[], Any]) -> Any:
    """Do the work in a forked child, and return what it returned."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(write_end, "wb") as pipe:
            pickle.dump(work(), pipe)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(answer)  # our own child's


def try_values(flag: Switch, way: str, values: list[Any]) -> tuple[int, list[Difference]]:
    """Try values until one side takes one. Returns how many were tried, and the differences."""
    found: list[Difference] = []
    for number, value in enumerate(values, 1):
        both = [attempt(side, functools.partial(side.set, flag, way, value)) for side in (TORCH, OURS)]
        found += compared(flag.name, f"{way} {value!r}", *both)
        if not both[1].result.startswith("accepted") and any(
            now != FRESH[name][1] for name, now in both[1].state.items()
        ):
            found.append(Difference(flag.name, f"{way} {value!r}: after a refusal", "", "changed"))
        untouched = all(now == FRESH[name][0] for name, now in both[0].state.items())
        if any(side.result.startswith("accepted") for side in both) or not untouched:
            return number, found
    return len(values), found


def values(names: tuple[str, ...]) -> Iterator[Difference]:
    """Try the pool on each switch, in each of its ways."""
    for name in names:
        flag = SWITCHES[name]
        for way in ways(flag):
            left = pool_of(flag)
            while left:
                tried, found = in_a_child(functools.partial(try_values, flag, way, left))
                yield from found
                left = left[tried:]


def fresh() -> Iterator[Difference]:
    """Compare what the environment makes of the switches, and which variables are complained of."""
    states, complaints = [], []
    for side, earlier in ((TORCH, SAID_AT_IMPORT), (OURS, [])):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            state = side.state()
            state["cpu.get_cpu_capability()"] = side.root.cpu.get_cpu_capability()
        states.append(state)
        said = {str(warning.message): warning.category.__name__ for warning in (*earlier, *caught)}
        complaints.append(
            {name: kind for name in os.environ for text, kind in said.items() if f"{name}:" in text}
        )
    for name, value in states[0].items():
        if value != states[1][name]:
            yield Difference(name, "fresh", value, states[1][name])
    for name in sorted({*complaints[0], *complaints[1]}):
        both = [complaint.get(name, "silent") for complaint in complaints]
        if both[0] != both[1]:
            yield Difference(name, f"complaint about {os.environ[name]!r}", *both)


def freezing() -> Iterator[Difference]:
    """Compare what each way does after disable_global_flags(), and inside the scopes that lift it."""
    for flag in HERE.values():
        for way in ways(flag):
            for lifted in (False, True):
                yield from in_a_child(functools.partial(_frozen, flag, way, lifted))


def _frozen(flag: Switch, way: str, lifted: bool) -> list[Difference]:
    both = []
    for side in (TORCH, OURS):
        value = side.read(flag) if flag.needs != "cuda" else 0
        side.root.disable_global_flags()
        scope = getattr(side.root, "__allow_nonbracketed_mutation") if lifted else contextlib.nullcontext
        with scope():
            both.append(attempt(side, functools.partial(side.set, flag, way, value)))
    aspect = f"frozen{', lifted' if lifted else ''}: {way}"
    return [
        difference for difference in compared(flag.name, aspect, *both) if " of " not in difference.aspect
    ]


def look_away() -> None:
    """Let our side see none of the libraries for CUDA that may lie beside a torch that has none."""
    found = availability.is_found
    mock.patch.object(availability, "is_found", lambda name: name != "cudnn" and found(name)).start()
    for question in ("_found_by_probe", "_installed"):
        mock.patch.object(preferences, question, return_value=False).start()


def main(what: str, *names: str) -> None:
    """Print the differences."""
    look_away()
    if what != "fresh":
        # Whatever reads variables or asks probes at the first touch has then done so.
        ours = OURS.state()
        FRESH.update({name: (value, ours[name]) for name, value in TORCH.state().items()})
    work: dict[str, Callable[[], Iterator[Difference]]] = {
        "fresh": fresh,
        "freezing": freezing,
        "values": functools.partial(values, names),
    }
    for row in work[what]():
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
