"""No test here leaves a switch behind, torch's or ours, for those that come after it in the process."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.switches import store
from mlbackends.switches.table import SWITCHES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

sys.path.append(os.path.join(os.path.dirname(__file__), "installed"))

#: torch has no way back from a value to having followed fp32_precision, so these need a new process.
_ONE_WAY = ("cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision", "cudnn.fp32_precision")


def _torchs_switches() -> dict[str, str]:
    """Return what torch, where it is imported, says of each switch that can be read."""
    torch: Any = sys.modules.get("torch")
    found: dict[str, str] = {}
    if torch is None or not hasattr(torch, "backends"):
        return found
    for flag in SWITCHES.values():
        of_torch = flag.torch_get.removeprefix("torch.") or f"backends.{flag.name}"
        if flag.reached not in ("attribute", "function") or flag.name in _ONE_WAY:
            continue
        value: Any = torch
        try:
            for part in of_torch.split("."):
                value = getattr(value, part)
            found[flag.name] = repr(value() if flag.torch_get else value)
        except (AttributeError, RuntimeError):
            continue  # of another build of torch, of a module that nobody has imported, or no word
    return found


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Hold each test to putting torch's switches back; ours are as in a new process afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = _torchs_switches()
    yield
    store.forget()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        after = _torchs_switches()
    changed = {name: (was, after[name]) for name, was in before.items() if name in after}
    assert {name: both for name, both in changed.items() if both[0] != both[1]} == {}


@pytest.fixture
def freeze(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Freeze the flags in torch and here, until the test ends."""
    torch: Any = pytest.importorskip("torch")
    setter = torch.backends.python_native.m.DSLController.enabled.fset

    def both() -> None:
        monkeypatch.setattr(store, "frozen", lambda: True)
        monkeypatch.setitem(setter.__globals__, "flags_frozen", lambda: True)

    return both
