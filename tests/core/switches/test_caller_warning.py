"""A warning points at the line that called us."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import mlbackends
from mlbackends.switches.startup import warn

pytestmark = pytest.mark.usefixtures("fresh_switches")


def place(action: Any) -> tuple[str, type[Warning], int]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    [warning] = caught
    return warning.filename, warning.category, warning.lineno


def entered() -> None:
    with mlbackends.cudnn.flags(benchmark=True):
        pass


def decorated() -> None:
    @mlbackends.mkldnn.flags(deterministic=True)
    def body() -> None: ...

    body()


def assigned() -> None:
    mlbackends.mkldnn.allow_tf32 = True


def set_at_once() -> None:
    mlbackends.mkldnn.set_flags(_allow_tf32=False)


@pytest.mark.parametrize(("action", "below"), [(entered, 1), (decorated, 4), (assigned, 1), (set_at_once, 1)])
def test_a_warning_stands_at_the_callers_line(action: Any, below: int) -> None:
    filename, category, line = place(action)

    assert (filename, category) == (__file__, UserWarning)
    assert line == action.__code__.co_firstlineno + below


def test_the_category_may_be_chosen() -> None:
    filename, category, _ = place(lambda: warn("old", FutureWarning))

    assert (filename, category) == (__file__, FutureWarning)
