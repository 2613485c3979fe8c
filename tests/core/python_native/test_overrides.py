"""Overrides in their order: how they are registered, and how a user puts them into another."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from mlbackends.python_native import filters
from mlbackends.python_native.overrides import (
    Override,
    add,
    every_node,
    nodes,
    reorder,
)


def first(*args: object) -> str:
    return "first"


def second(*args: object) -> str:
    return "second"


def yes(*args: object) -> bool:
    return True


def ids() -> list[str]:
    return [node.impl_fn() for node in nodes("bmm", "CUDA")]


def register(dsl: str, op_symbol: str, run: Any, condition: Any = yes) -> None:
    add(
        Override(
            dsl_name=dsl, op_symbol=op_symbol, dispatch_key="CUDA", cond_fn=condition, impl_fn=run
        )
    )


def register_two() -> None:
    register("triton", "bmm", first)
    register("cutedsl", "bmm", second)


def test_overrides_stand_in_the_order_of_their_registration() -> None:
    register_two()

    assert ids() == ["first", "second"]
    assert nodes("bmm", "CPU") == ()


def test_a_node_tells_what_it_was_registered_with() -> None:
    register("triton", "topk.values", first)

    (node,) = nodes("topk.values", "CUDA")
    assert (node.dsl_name, node.op_symbol, node.dispatch_key) == ("triton", "topk.values", "CUDA")
    assert (node.cond_fn, node.impl_fn, node.unconditional_override) == (yes, first, False)
    assert node.node_id.startswith("topk_values_triton_")


def test_the_number_in_an_id_is_never_used_again() -> None:
    for _ in range(3):
        register("triton", "bmm", first)

    numbers = [int(node.node_id.rpartition("_")[2]) for node in nodes("bmm", "CUDA")]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]


def test_a_node_is_active_until_something_of_it_is_switched_off() -> None:
    register_two()

    filters.disable(filters.DSL, ["triton"])

    assert [node.active for node in nodes("bmm", "CUDA")] == [False, True]


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"dispatch_key": "Meta"}, ValueError, "'Meta'"),
        ({"dispatch_key": "CompositeImplicitAutograd"}, ValueError, "would call itself"),
        ({"dispatch_key": "CompositeExplicitAutograd"}, ValueError, "would call itself"),
        ({"dispatch_key": "cuda"}, LookupError, "no dispatch key named 'cuda'"),
        ({"dispatch_key": ["CUDA"]}, TypeError, "dispatch_key must be a str, got list"),
        ({"cond_fn": 3}, TypeError, "needs functions, got int"),
        ({"impl_fn": 3.5}, TypeError, "needs functions, got float"),
        ({"op_symbol": 3}, TypeError, "op_symbol must be a str, got int"),
        ({"op_symbol": " "}, ValueError, "op_symbol must not be blank"),
        ({"dsl_name": None}, TypeError, "dsl_name must be a str, got NoneType"),
        ({"dsl_name": ""}, ValueError, "dsl_name must not be blank"),
    ],
)
def test_what_makes_no_sense_is_refused_and_registers_nothing(
    changed: dict[str, Any], error: type[Exception], said: str
) -> None:
    given: dict[str, Any] = {
        "dsl_name": "triton",
        "op_symbol": "bmm",
        "dispatch_key": "CUDA",
        "cond_fn": yes,
        "impl_fn": first,
    }

    with pytest.raises(error, match=said):
        add(Override(**(given | changed)))

    assert every_node() == []


def test_an_unconditional_override_needs_no_condition() -> None:
    register("triton", "bmm", first, None)

    (node,) = nodes("bmm", "CUDA")
    assert node.cond_fn is None
    assert node.unconditional_override


def test_a_users_function_orders_each_graph() -> None:
    register_two()
    asked = []

    def backwards(op: str, key: str, graph: list[Override]) -> list[Override]:
        asked.append((op, key))
        return graph[::-1]

    reorder(backwards)

    assert ids() == ["second", "first"]
    assert asked == [("bmm", "CUDA")]


def test_a_users_function_may_leave_an_override_out() -> None:
    register_two()

    reorder(lambda _op, _key, graph: graph[1:])

    assert ids() == ["second"]


def test_what_is_registered_while_the_users_function_runs_stands_last() -> None:
    register_two()

    def slow(op: str, _key: str, graph: list[Override]) -> list[Override]:
        register("mine", op, lambda: "third")
        return graph[::-1]

    reorder(slow)

    assert ids() == ["second", "first", "third"]


def raising(op: str, key: str, graph: list[Override]) -> list[Override]:
    graph.clear()
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (raising, "ZeroDivisionError"),
        (lambda _op, _key, graph: tuple(graph), "must return a list, got tuple"),
        (lambda _op, _key, _graph: None, "must return a list, got NoneType"),
        (lambda _op, _key, graph: [*graph, "x"], "what it was not given"),
        (lambda _op, _key, graph: graph * 2, "one override twice"),
        (lambda _op: [], "TypeError"),
    ],
)
def test_a_function_that_cannot_order_is_logged_and_changes_nothing(
    function: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    register_two()

    with caplog.at_level(logging.WARNING):
        reorder(function)

    assert ids() == ["first", "second"]
    assert said in caplog.text
    assert "bmm at CUDA stays as it was" in caplog.text
