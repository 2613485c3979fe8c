"""The switches as a user meets them."""

from __future__ import annotations

import copy
import importlib
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends import python_native
from mlbackends.python_native import dsls, filters
from mlbackends.switches import store

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "_off", {})


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "frozen", lambda: True)


def test_the_dsls_are_fresh_lists() -> None:
    python_native.all_dsls.append("mine")

    assert python_native.all_dsls == ["cutedsl", "flydsl", "helion", "triton"]
    assert set(python_native.available_dsls) <= set(dsls.DSLS)


def test_a_controller_is_the_same_object_each_time() -> None:
    assert python_native.triton is python_native.triton
    assert python_native.triton is not python_native.cutedsl


def test_the_copy_of_a_controller_is_the_controller() -> None:
    assert copy.deepcopy(python_native.triton) is python_native.triton
    assert pickle.loads(pickle.dumps(python_native.triton)) is python_native.triton


@pytest.mark.parametrize(("available", "shown"), [(True, "available"), (False, "unavailable")])
def test_a_controller_describes_its_dsl(
    monkeypatch: pytest.MonkeyPatch, available: bool, shown: str
) -> None:
    monkeypatch.setattr(dsls, "is_available", lambda _name: available)
    monkeypatch.setattr(dsls, "version", lambda _name: "1.2")
    triton = python_native.triton

    assert (triton.name, triton.available, triton.version) == ("triton", available, "1.2")
    assert repr(triton) == f"DSLController(triton, {shown}, enabled)"
    triton.disable()
    assert repr(triton) == f"DSLController(triton, {shown}, disabled)"


def test_a_controller_switches_its_dsl_and_no_other() -> None:
    python_native.triton.enabled = False

    assert python_native.is_dsl_disabled("triton")
    assert not python_native.is_dsl_disabled("cutedsl")
    assert "triton" in filters.why_disabled("triton", "bmm", "CUDA")
    python_native.triton.enabled = True
    assert filters.is_enabled("triton", "bmm", "CUDA")


@pytest.mark.parametrize("before", [True, False])
def test_a_dsl_is_after_a_scope_as_it_was_before(before: bool) -> None:
    python_native.triton.enabled = before

    with python_native.triton.disabled():
        assert not python_native.triton.enabled

    assert python_native.triton.enabled is before


def test_operations_are_switched_off_and_on() -> None:
    python_native.disable_operations("bmm", "topk")
    python_native.enable_operations("topk")

    assert python_native.is_operation_disabled("bmm")
    assert not python_native.is_operation_disabled("topk")


def test_a_scope_restores_only_what_it_switched_off() -> None:
    python_native.disable_operations("bmm")

    with python_native.operations_disabled("bmm", "topk"):
        assert python_native.is_operation_disabled("topk")

    assert python_native.is_operation_disabled("bmm")
    assert not python_native.is_operation_disabled("topk")


def test_dispatch_keys_are_switched_off_and_on() -> None:
    python_native.disable_dispatch_keys("CUDA", "CPU")
    python_native.enable_dispatch_keys("CPU")

    assert not filters.is_enabled("triton", "bmm", "CUDA")
    assert filters.is_enabled("triton", "bmm", "CPU")


@pytest.mark.parametrize(
    "ask",
    [
        lambda: python_native.disable_operations("bmm", "bmmm"),
        lambda: python_native.enable_operations("bmmm"),
        lambda: python_native.operations_disabled("bmm", "bmmm").__enter__(),
        lambda: python_native.is_operation_disabled("bmmm"),
        lambda: python_native.disable_dispatch_keys("CUDA", "cuda"),
        lambda: python_native.enable_dispatch_keys("cuda"),
        lambda: python_native.is_dsl_disabled("tritn"),
        lambda: python_native.get_dsl_operations("tritn"),
    ],
)
def test_an_unknown_name_is_taken_and_one_that_is_near_is_named(
    ask: Callable[[], object],
) -> None:
    with pytest.warns(UserWarning, match="did you mean"):
        ask()

    assert filters.is_enabled("triton", "topk", "CPU")


def test_names_that_torchs_own_tests_take_for_harmless_are() -> None:
    assert python_native.get_dsl_operations("invalid") == []
    python_native.disable_operations("")
    assert python_native.is_operation_disabled("")
    python_native.enable_operations("", "nonexistent_operation")
    assert not python_native.is_operation_disabled("")
    assert not python_native.is_dsl_disabled("invalid")
    assert python_native.get_dsl_operations("native", lib_symbol="torch_nn") == []


def test_helion_alone_has_a_backend_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    assert python_native.helion.backend == "triton"
    monkeypatch.setenv("HELION_BACKEND", "cute")
    assert python_native.helion.backend == "cute"
    with pytest.raises(AttributeError, match="triton DSL has no configurable backend"):
        _ = python_native.triton.backend


@pytest.mark.parametrize("given", [3, None, ["bmm"], b"bmm"], ids=repr)
def test_a_name_that_is_no_text_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="must be str"):
        python_native.disable_operations(given)
    with pytest.raises(TypeError, match="must be str"):
        python_native.get_dsl_operations(given)


@pytest.mark.usefixtures("frozen")
def test_only_the_assignment_is_frozen() -> None:
    with pytest.raises(RuntimeError, match="not allowed to set triton DSL flags after disable_gl"):
        python_native.triton.enabled = False
    assert not python_native.is_dsl_disabled("triton")

    python_native.triton.disable()
    assert python_native.is_dsl_disabled("triton")
    python_native.triton.enable()
    python_native.disable_operations("bmm")
    with python_native.triton.disabled():
        assert python_native.is_dsl_disabled("triton")
    assert not python_native.is_dsl_disabled("triton")


@pytest.mark.parametrize("value", [0, 1, None, "no"], ids=repr)
def test_enabled_takes_a_bool_alone(value: Any) -> None:
    with pytest.raises(TypeError, match="enabled must be a bool"):
        python_native.triton.enabled = value

    assert python_native.triton.enabled


@pytest.mark.parametrize(
    ("name", "hint"), [("enable", "did you mean 'enabled'"), ("name", "only 'enabled' can be set")]
)
def test_nothing_else_of_a_controller_can_be_set(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=hint):
        setattr(python_native.triton, name, False)


def test_a_dsl_is_not_overwritten() -> None:
    with pytest.raises(AttributeError, match=r"set mlbackends\.python_native\.triton\.enabled"):
        python_native.triton = 3  # type: ignore[assignment]

    assert python_native.triton.name == "triton"


@pytest.mark.parametrize("name", ["all_dsls", "available_dsls", "tritn", "disable_operation"])
def test_no_unknown_name_is_written(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(python_native, name, 3)


@pytest.mark.parametrize("name", ["tritn", "native", "disable_operation", "m_"])
def test_an_unknown_name_is_no_attribute(name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
        getattr(python_native, name)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean 'triton'"):
        python_native.tritn  # type: ignore[attr-defined]  # noqa: B018


def test_dir_shows_the_surface_and_the_dsls() -> None:
    shown = {name for name in dir(python_native) if not name.startswith("_")}

    assert shown == {*python_native.__all__, *dsls.DSLS}


def test_everything_of_the_surface_is_there() -> None:
    assert all(hasattr(python_native, name) for name in python_native.__all__)


def test_the_module_stays_one_when_it_is_loaded_again() -> None:
    python_native.disable_operations("bmm")

    again = importlib.reload(python_native)

    assert again is python_native
    assert python_native.is_operation_disabled("bmm")


def test_reading_a_switch_loads_nothing_heavy() -> None:
    program = (
        "import sys; from mlbackends import python_native as p; p.triton.enabled; p.all_dsls\n"
        "print(*set(sys.modules) & {'numpy', 'rich', 'torch', 'logging', 'subprocess', 'json',\n"
        "'pathlib', 'dataclasses', 're', 'inspect', 'typing', 'msgspec', 'triton'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == []
