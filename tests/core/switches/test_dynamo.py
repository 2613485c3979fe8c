"""Functions that torch's compiler leaves whole, shown with a compiler that only notes what it is asked."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mlbackends.sdpa import attend
from mlbackends.switches.dynamo import untraced

if TYPE_CHECKING:
    import pytest


def add(left: int, *, right: int = 1) -> int:
    """Add."""
    return left + right


def test_a_function_keeps_its_name_signature_and_result() -> None:
    whole = untraced(add)
    assert (whole.__name__, whole.__doc__) == ("add", "Add.")
    assert inspect.signature(whole) == inspect.signature(add)
    assert whole(2, right=3) == 5


def test_a_compiler_in_this_process_is_asked_to_look_away(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    compiler: Any = ModuleType("torch._dynamo")
    compiler.eval_frame = ModuleType("torch._dynamo.eval_frame")
    compiler.eval_frame.skip_code = asked.append

    def disable(function: Any) -> Any:
        asked.append(function)
        return function

    compiler.disable = disable
    monkeypatch.setitem(sys.modules, "torch._dynamo", compiler)
    whole: Any = untraced(add)
    assert whole(2) == 3
    assert asked == [whole.__code__, add]


def test_a_compiler_that_knows_nothing_of_this_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo", ModuleType("torch._dynamo"))
    assert untraced(add)(2) == 3


def test_attention_bears_the_mark() -> None:
    for function in (attend.compute, attend.compute_backward):
        assert vars(function)["_torchdynamo_disable"] is True
