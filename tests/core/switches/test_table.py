"""Invariants of the rows: each can be reached, written as text, and told."""

from __future__ import annotations

import inspect
import operator
import re
from typing import Any

import pytest

import mlbackends
from mlbackends.switches import conditions
from mlbackends.switches.table import NOT_IN_FLAGS, PROBED, SWITCHES, Switch

ROWS = list(SWITCHES.values())
each_row = pytest.mark.parametrize("flag", ROWS, ids=lambda flag: flag.name)


def holder(flag: Switch) -> Any:
    found: Any = mlbackends
    for part in flag.module.split(".") if flag.module else ():
        found = getattr(found, part)
    return found


@each_row
def test_a_default_is_a_value_that_the_row_takes(flag: Switch) -> None:
    default = conditions.default(flag.name) if flag.default is PROBED else flag.default
    if default is None or (flag.name, default) == ("quantized.engine", "none"):
        return
    assert flag.kind.checked(flag.name, default) == default
    if flag.inside_flags not in (NOT_IN_FLAGS, None):
        assert flag.kind.checked(flag.name, flag.inside_flags) == flag.inside_flags


@each_row
def test_a_row_is_reached_as_it_says(flag: Switch) -> None:
    if flag.reached == "variable":
        assert not flag.variable.startswith("MLBACKENDS_")
        return
    place = holder(flag)
    if flag.reached == "attribute":
        getattr(place, flag.attribute)
        assert flag.attribute in dir(place)
    elif flag.reached == "flags":
        assert flag.attribute in inspect.signature(place.flags).parameters
        assert not hasattr(place, flag.attribute)
    else:
        for path in (flag.torch_set, flag.torch_get):
            name = path.removeprefix("torch.").removeprefix("backends.")
            if not name.startswith("_C."):  # private in torch, and nowhere here
                assert callable(operator.attrgetter(name)(mlbackends))


@each_row
def test_a_row_has_a_part_in_flags_under_its_name(flag: Switch) -> None:
    place: Any = holder(flag) if flag.reached != "variable" else None
    if flag.inside_flags is NOT_IN_FLAGS:
        functions = [getattr(place, name, None) for name in ("flags", "set_flags")]
        for function in functions:
            if function is not None:
                assert flag.attribute not in inspect.signature(function).parameters
        return
    inside = inspect.signature(place.flags).parameters[flag.attribute]
    before = inspect.signature(place.set_flags).parameters[f"_{flag.attribute}"]
    assert inside.default == flag.inside_flags
    assert before.default in (None, "none", inspect.Parameter.empty)


@each_row
def test_a_variable_is_a_name_that_shells_take_and_of_one_row(flag: Switch) -> None:
    names = list(flag.variables)
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]*", name) for name in names)
    for name in names:
        owners = [row.name for row in ROWS if name in row.variables]
        assert owners == [flag.name]
        for short, word in flag.variables[name].items():
            assert short in ("0", "1")
            assert word == "" or flag.kind.parsed(word) is not None
