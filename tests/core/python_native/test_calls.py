"""Which kernel a call gets."""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.python_native import filters, overrides
from mlbackends.python_native.overrides import Override, get_dsl_operations

if TYPE_CHECKING:
    from pathlib import Path


def native(*args: object, **kwargs: object) -> str:
    return "native"


def override(
    name: str, cond: Any = lambda *_args, **_kwargs: True, dsl: str = "mine", key: str = "CPU"
) -> None:
    overrides.add(
        Override(
            dsl_name=dsl,
            op_symbol="frobnicate",
            dispatch_key=key,
            cond_fn=cond,
            impl_fn=lambda *_args, **_kwargs: name,
        )
    )


def called(*args: object, **kwargs: object) -> Any:
    return overrides.call("frobnicate", "CPU", native, *args, **kwargs)


def test_without_an_override_the_native_kernel_runs_with_all_arguments() -> None:
    got = overrides.call(
        "frobnicate", "CPU", lambda *args, **kwargs: (args, kwargs), 1, op_symbol=2
    )

    assert got == ((1,), {"op_symbol": 2})


def test_the_first_override_whose_condition_holds_runs() -> None:
    override("for small", lambda number: number < 10)
    override("for all")
    override("never reached")

    assert called(3) == "for small"
    assert called(30) == "for all"


def test_where_no_condition_holds_the_native_kernel_runs() -> None:
    override("for small", lambda number: number < 10)

    assert called(30) == "native"


def test_an_override_at_another_dispatch_key_is_not_asked() -> None:
    override("elsewhere", key="CUDA")

    assert called() == "native"


def test_what_a_condition_raises_the_caller_gets() -> None:
    override("broken", lambda number: 1 / number)
    override("never reached")

    with pytest.raises(ZeroDivisionError):
        called(0)


def test_the_condition_of_what_is_switched_off_is_not_asked() -> None:
    override("broken", lambda number: 1 / number)
    filters.disable(filters.DSL, ["mine"])

    assert called(0) == "native"


@pytest.mark.parametrize(
    ("kind", "name"),
    [(filters.DSL, "mine"), (filters.OPERATION, "frobnicate"), (filters.DISPATCH_KEY, "CPU")],
)
def test_what_is_switched_off_gives_way_to_the_next(kind: str, name: str) -> None:
    override("mine")

    with filters.disabled(kind, [name]):
        assert called() == "native"
    assert called() == "mine"


def test_the_override_of_another_dsl_takes_over() -> None:
    override("mine")
    override("theirs", dsl="theirs")

    with filters.disabled(filters.DSL, ["mine"]):
        assert called() == "theirs"


def test_a_call_in_another_thread_sees_what_is_switched_off() -> None:
    override("mine")
    got: list[str] = []

    with filters.disabled(filters.DSL, ["mine"]):
        thread = threading.Thread(target=lambda: got.append(called()))
        thread.start()
        thread.join()

    assert got == ["native"]


def test_the_operations_of_a_dsl_are_those_that_are_registered_off_or_on() -> None:
    override("mine")
    overrides.add(
        Override(dsl_name="mine", op_symbol="another", dispatch_key="CUDA", impl_fn=native)
    )
    filters.disable(filters.DSL, ["mine"])

    assert get_dsl_operations("mine") == ["another", "frobnicate"]
    assert get_dsl_operations("nobodys") == []


def test_the_variable_names_the_function_that_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_order.py").write_text("def backwards(op, key, graph): return graph[::-1]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(overrides.ORDER_FUNCTION, "my_order.backwards")
    override("first")
    override("second")

    assert called() == "second"


def test_a_function_may_have_the_name_of_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "orders"
    package.mkdir()
    (package / "__init__.py").write_text("from orders.backwards import backwards\n")
    (package / "backwards.py").write_text("def backwards(op, key, graph): return graph[::-1]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(overrides.ORDER_FUNCTION, "orders.backwards")

    assert overrides.order_function() is importlib.import_module("orders").backwards


def test_why_the_module_of_an_order_is_not_imported_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_orders").mkdir()
    (tmp_path / "broken_orders" / "inner.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(overrides.ORDER_FUNCTION, "broken_orders.inner.f")

    with pytest.raises(ValueError, match="No module named 'no_such_dependency'"):
        overrides.order_function()


@pytest.mark.parametrize(
    "path", ["nothing", "no_such_module.function", "os.no_such_function", "os.sep", ".", "os."]
)
def test_a_variable_that_names_no_function_is_refused_each_time(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv(overrides.ORDER_FUNCTION, path)

    for _ in range(2):
        with pytest.raises(ValueError, match="TORCH_PYTHON_NATIVE_USER_GRAPH_ORDER_FN is"):
            called()
    monkeypatch.delenv(overrides.ORDER_FUNCTION)
    assert called() == "native"
