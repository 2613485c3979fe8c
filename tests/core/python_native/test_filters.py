"""What is switched off, and what comes back."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.python_native import filters
from mlbackends.python_native.filters import DISPATCH_KEY, DSL, OPERATION

NODE = ("triton", "bmm", "CUDA")


def test_at_the_start_nothing_is_off() -> None:
    assert filters.is_enabled(*NODE)
    assert not filters.why_disabled(*NODE)


@pytest.mark.parametrize(
    ("kind", "name"), [(DSL, "triton"), (OPERATION, "bmm"), (DISPATCH_KEY, "CUDA")]
)
def test_each_of_the_three_takes_a_kernel_out_and_is_named(kind: str, name: str) -> None:
    filters.disable(kind, [name])

    assert not filters.is_enabled(*NODE)
    assert f"the {kind} {name} is switched off" in filters.why_disabled(*NODE)
    filters.enable(kind, [name])
    assert filters.is_enabled(*NODE)


def test_a_name_of_one_kind_is_no_name_of_another() -> None:
    filters.disable(OPERATION, ["triton", "CUDA"])

    assert filters.is_enabled(*NODE)


def test_switching_the_operation_on_does_not_bring_back_its_dsl() -> None:
    filters.disable(DSL, ["triton"])
    filters.disable(OPERATION, ["bmm"])

    filters.enable(OPERATION, ["bmm"])

    assert not filters.is_enabled(*NODE)


def test_everything_that_switched_a_kernel_off_is_named() -> None:
    filters.disable(DSL, ["triton"])
    filters.disable(DISPATCH_KEY, ["CUDA"])

    said = filters.why_disabled(*NODE)

    assert "triton" in said and "CUDA" in said and "bmm" not in said


def test_a_kernel_of_no_dsl_is_the_native_one_and_stays() -> None:
    filters.disable(OPERATION, ["bmm"])
    filters.disable(DISPATCH_KEY, ["CPU"])

    assert filters.is_enabled("", "bmm", "CPU")
    assert not filters.why_disabled("", "bmm", "CPU")


def test_the_variable_takes_out_what_compiles_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DISABLE_NATIVE_JIT", "1")

    assert "TORCH_DISABLE_NATIVE_JIT=1" in filters.why_disabled(*NODE)
    assert filters.is_enabled("native", "bmm", "CUDA")
    assert filters.is_on(DSL, "triton")


@pytest.mark.parametrize("value", ["01", "true", "yes", " 1", "2"])
def test_a_variable_that_is_no_one_is_warned_of_and_ignored(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("TORCH_DISABLE_NATIVE_JIT", value)

    with pytest.warns(UserWarning, match="Ignoring invalid value for boolean flag TORCH_DISABLE"):
        assert filters.is_enabled(*NODE)


def test_a_variable_that_is_zero_switches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DISABLE_NATIVE_JIT", "0")

    assert filters.is_enabled(*NODE)


def test_a_scope_leaves_off_what_was_off_before() -> None:
    filters.disable(OPERATION, ["bmm"])

    with filters.disabled(OPERATION, ["bmm", "topk"]):
        assert not filters.is_on(OPERATION, "topk")

    assert not filters.is_on(OPERATION, "bmm")
    assert filters.is_on(OPERATION, "topk")


def test_a_scope_that_fails_restores_as_well() -> None:
    with pytest.raises(ZeroDivisionError), filters.disabled(OPERATION, ["bmm"]):
        raise ZeroDivisionError

    assert filters.is_on(OPERATION, "bmm")


def test_scopes_that_overlap_end_with_the_last() -> None:
    first, second = (filters.disabled(OPERATION, ["bmm"]) for _ in range(2))
    first.__enter__()
    second.__enter__()

    first.__exit__(None, None, None)
    assert not filters.is_on(OPERATION, "bmm")

    second.__exit__(None, None, None)
    assert filters.is_on(OPERATION, "bmm")


def test_a_scope_does_not_undo_what_another_thread_switched_off_meanwhile() -> None:
    with filters.disabled(OPERATION, ["bmm"]):
        other = threading.Thread(target=filters.disable, args=(OPERATION, ["bmm"]))
        other.start()
        other.join()

    assert not filters.is_on(OPERATION, "bmm")


def test_threads_that_switch_different_names_do_not_lose_each_other() -> None:
    def switch(name: str) -> None:
        for _ in range(200):
            filters.disable(OPERATION, [name])
            filters.enable(OPERATION, [name])
        filters.disable(OPERATION, [name])

    threads = [threading.Thread(target=switch, args=(f"op{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not any(filters.is_on(OPERATION, f"op{number}") for number in range(8))


def test_scopes_of_many_threads_leave_nothing_behind() -> None:
    seen_on = []

    def scope() -> None:
        for _ in range(200):
            with filters.disabled(DSL, ["triton"]):
                seen_on.append(filters.is_on(DSL, "triton"))

    threads = [threading.Thread(target=scope) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not any(seen_on)
    assert filters.is_on(DSL, "triton")


NAMES = st.lists(st.sampled_from(["a", "b", "c"]), max_size=3)


@given(steps=st.lists(st.tuples(st.sampled_from(["disable", "enable"]), NAMES), max_size=8))
def test_a_name_is_off_if_the_last_word_on_it_was_off(steps: list[tuple[str, list[str]]]) -> None:
    filters.enable(OPERATION, ["a", "b", "c"])
    off: set[str] = set()
    for verb, names in steps:
        if verb == "disable":
            filters.disable(OPERATION, names)
            off |= set(names)
        else:
            filters.enable(OPERATION, names)
            off -= set(names)

    assert {name for name in "abc" if not filters.is_on(OPERATION, name)} == off
