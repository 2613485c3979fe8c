"""The switches of the kinds of backends, and the order in which those are tried."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlbackends
from mlbackends.sdpa.switches import PRIORITY_ORDER, SWITCHES, SDPBackend, allowed, priority_order
from mlbackends.switches import store

KINDS = tuple(SWITCHES)


def state() -> tuple[dict[SDPBackend, bool], tuple[SDPBackend, ...]]:
    return {kind: allowed(kind) for kind in KINDS}, priority_order()


@given(st.lists(st.sampled_from(KINDS), max_size=7), st.booleans())
def test_a_block_lets_its_kinds_alone_and_puts_everything_back(kinds: list[SDPBackend], first: bool) -> None:
    found = state()
    with mlbackends.sdpa_kernel(kinds, first) as given:
        assert given == {}
        switches, order = state()
        assert switches == {kind: kind in kinds for kind in KINDS}
        if first:
            distinct = list(dict.fromkeys(kinds))
            assert list(order[: len(distinct)]) == distinct
            rest = [kind for kind in found[1] if kind not in kinds]
            assert list(order[len(distinct) :]) == rest
        else:
            assert order == found[1]
    assert state() == found
    assert store.origin(PRIORITY_ORDER) == "default"


def test_a_block_that_raises_puts_everything_back() -> None:
    found = state()
    with pytest.raises(KeyError), mlbackends.sdpa_kernel(SDPBackend.MATH, set_priority=True):
        raise KeyError
    assert state() == found


def test_a_block_puts_back_what_was_off_before() -> None:
    with store.restored(*SWITCHES.values()):
        mlbackends.cuda.enable_flash_sdp(False)
        found = state()
        with mlbackends.sdpa_kernel([SDPBackend.MATH], set_priority=True):
            assert not allowed(SDPBackend.CUDNN_ATTENTION)
        assert state() == found


def test_a_function_can_be_decorated_with_it() -> None:
    @mlbackends.sdpa_kernel(SDPBackend.MATH)
    def inside() -> dict[SDPBackend, bool]:
        return state()[0]

    assert [kind for kind, on in inside().items() if on] == [SDPBackend.MATH]
    assert [kind for kind, on in inside().items() if on] == [SDPBackend.MATH]
    assert all(state()[0].values())


@pytest.mark.parametrize(
    ("bad", "hint"),
    [
        (1, "did you mean SDPBackend.FLASH_ATTENTION"),
        (9, "choose from: SDPBackend.FLASH_ATTENTION"),
        (True, "choose from"),
        ("flash", "did you mean SDPBackend.FLASH_ATTENTION"),
        ("FLASH_ATTENTION", "did you mean SDPBackend.FLASH_ATTENTION"),
        ("cudn", "did you mean SDPBackend.CUDNN_ATTENTION"),
        ("SDPBackend.MATH", "did you mean SDPBackend.MATH"),
        ("zzzz", "choose from"),
        (None, "choose from"),
    ],
)
def test_a_list_of_something_else_is_refused_with_what_was_meant(bad: Any, hint: str) -> None:
    found = state()
    with pytest.raises(TypeError, match=hint), mlbackends.sdpa_kernel([SDPBackend.MATH, bad]):
        pass
    assert state() == found


def test_blocks_of_many_threads_leave_what_they_found() -> None:
    """They overlap, as their switches are the process's; what is left at the end is a whole state."""
    found = state()
    turn = threading.Lock()

    def work(kind: SDPBackend) -> None:
        for _ in range(50):
            with turn, mlbackends.sdpa_kernel(kind, set_priority=True):
                switches, order = state()
                assert [switch for switch, on in switches.items() if on] == [kind]
                assert order[0] is kind

    threads = [threading.Thread(target=work, args=(kind,)) for kind in KINDS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state() == found


@pytest.mark.parametrize(("bad", "error"), [(7, ValueError), ("MATH", TypeError), (None, TypeError)])
def test_a_kind_that_is_none_is_refused_with_those_there_are(bad: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="FLASH_ATTENTION 1"):
        SDPBackend(bad)
