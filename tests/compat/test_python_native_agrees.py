"""The switches of DSLs, and the overrides behind them, beside torch's."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from builds import IS_NEWEST
from hypothesis import given, settings
from hypothesis import strategies as st

import mlbackends
from mlbackends import python_native as ours
from mlbackends.python_native import filters, overrides
from mlbackends.python_native.overrides import Override, call

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    # torch's dispatcher, once a process, when its own override is registered anew.
    pytest.mark.filterwarnings("ignore:Warning only once for all operators"),
]

theirs = torch.backends.python_native
registry = pytest.importorskip("torch._native.registry")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPERATIONS = ("bmm", "topk", "_foreach_mm")
KEYS = ("CPU", "CUDA", "XPU")
DSLS = ("triton", "cutedsl")
#: What torch looks its overrides up by.
INDEXES = ("dsl_name", "dispatch_key", "op_symbol")
FUNCTIONS = (
    "get_dsl_operations",
    "disable_operations",
    "enable_operations",
    "disable_dispatch_keys",
    "enable_dispatch_keys",
    "operations_disabled",
    "is_operation_disabled",
    "is_dsl_disabled",
)


@pytest.fixture(autouse=True)
def everything_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(filters, "_off", {})
    monkeypatch.setattr(overrides, "_graphs", {})
    yield
    clear()


@pytest.fixture
def their_graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Torch's overrides, empty; what a test adds is gone from torch's dispatcher afterwards."""
    for name in ("_graphs", *(f"_{kind}_to_lib_graph" for kind in INDEXES)):
        monkeypatch.setattr(registry, name, {})
    table = "_native_decomp_overrides"
    monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    yield registry._graphs
    added = list(registry._graphs)
    # Enabling operations, as clear() does, would register them again.
    registry._graphs.clear()
    destroy = registry._destroy_override if IS_NEWEST else registry._destroy_aten_override
    for key in added:
        destroy(*key)


def key_in_torch(op_symbol: str, dispatch_key: str) -> tuple[str, ...]:
    return ("aten", op_symbol, dispatch_key)[0 if IS_NEWEST else 1 :]


def clear() -> None:
    ours.enable_operations(*OPERATIONS)
    theirs.enable_operations(*OPERATIONS, "mul.Tensor")
    for module in (ours, theirs):
        module.enable_dispatch_keys(*KEYS)
        for dsl in DSLS:
            getattr(module, dsl).enable()


def outcome(ask: Callable[[], Any]) -> Any:
    """Return what is returned, or the type of what is raised."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001
        return type(error)


# ---- the surface -------------------------------------------------------------


def test_what_torch_shows_is_here() -> None:
    shown = {name for name in dir(theirs) if not name.startswith("_")} - {"m"}

    assert shown <= set(dir(ours))
    assert all(hasattr(ours, name) for name in ("m", "PythonNativeModule", "DSLController"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_are_torchs(name: str) -> None:
    def parameters(module: Any) -> list[tuple[str, Any, Any]]:
        signature = inspect.signature(getattr(module, name))
        return [(each.name, each.kind, each.default) for each in signature.parameters.values()]

    newer = IS_NEWEST or name != "get_dsl_operations"
    assert parameters(ours) == parameters(theirs) + ([] if newer else parameters(ours)[-1:])


@pytest.mark.parametrize("name", ["disable", "enable", "disabled"])
def test_the_controllers_methods_take_what_torchs_take(name: str) -> None:
    ours_, theirs_ = (
        list(inspect.signature(getattr(module.triton, name)).parameters)
        for module in (ours, theirs)
    )

    assert ours_ == theirs_


@pytest.mark.parametrize("name", ["all_dsls", "available_dsls"])
def test_lists_are_lists_with_the_same_names(name: str) -> None:
    if name == "all_dsls":
        assert set(theirs.all_dsls) <= set(ours.all_dsls)
        assert not IS_NEWEST or ours.all_dsls == theirs.all_dsls
    else:  # torch looks for packages alone, and for a driver when one of them is used
        assert set(ours.available_dsls) <= set(theirs.available_dsls)
    assert type(getattr(ours, name)) is list


@pytest.mark.parametrize("dsl", DSLS)
def test_a_controller_begins_as_torchs(dsl: str) -> None:
    our, their = getattr(ours, dsl), getattr(theirs, dsl)

    assert (our.name, our.enabled) == (their.name, their.enabled)
    assert type(our.available) is type(their.available)
    assert getattr(ours, dsl) is our
    if our.available == their.available:
        assert repr(our) == repr(their)
    our.disable()
    their.disable()
    assert outcome(lambda: our.backend) == outcome(lambda: getattr(their, "backend"))  # noqa: B009
    assert repr(our).rpartition(", ")[2] == repr(their).rpartition(", ")[2] == "disabled)"


def test_the_hidden_dsl_is_hidden_in_both() -> None:
    for module in (ours, theirs):
        assert "native" not in module.all_dsls
        assert not hasattr(module, "native")
        assert module.is_dsl_disabled("native") is False
        assert isinstance(module.get_dsl_operations("native"), list)


def test_each_operation_that_torch_overrides_is_known() -> None:
    for dsl in (*theirs.all_dsls, "native"):
        for operation in theirs.get_dsl_operations(dsl):
            assert ours.is_operation_disabled(operation) is False


def test_the_dispatch_keys_are_torchs() -> None:
    layouts = ("Dense", "Quantized", "Sparse", "SparseCsr", "NestedTensor", "AutogradFunctionality")
    members = {
        name
        for name in torch._C.DispatchKey.__members__
        if not name.startswith(("StartOf", "EndOf")) and name not in (*layouts, "Undefined")
    }

    assert set(overrides.DISPATCH_KEYS) == members
    assert overrides.NOT_OVERRIDABLE == registry._DISALLOWED_DISPATCH_KEYS


# ---- freezing ----------------------------------------------------------------


def test_only_the_assignment_is_frozen_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlbackends.switches.store.frozen", lambda: True)
    monkeypatch.setitem(
        theirs.m.DSLController.enabled.fset.__globals__, "flags_frozen", lambda: True
    )
    for module in (ours, theirs):
        with pytest.raises(RuntimeError, match="not allowed to set triton DSL flags after disable"):
            module.triton.enabled = False
        assert module.triton.enabled
        with module.triton.disabled():
            assert not module.triton.enabled
        module.triton.disable()
        assert module.is_dsl_disabled("triton")
        module.triton.enable()
        with module.operations_disabled("bmm"):
            assert module.is_operation_disabled("bmm")


# ---- filters, step by step -----------------------------------------------------

FLAT = st.one_of(
    st.tuples(
        st.sampled_from(["disable_operations", "enable_operations"]),
        st.lists(st.sampled_from(OPERATIONS), max_size=3),
    ),
    st.tuples(
        st.sampled_from(["disable_dispatch_keys", "enable_dispatch_keys"]),
        st.lists(st.sampled_from(KEYS), max_size=3),
    ),
    st.tuples(
        st.sampled_from(["disable", "enable", "on", "off"]),
        st.sampled_from(DSLS).map(lambda d: [d]),
    ),
    st.tuples(
        st.sampled_from(["operations_disabled", "exit"]),
        st.lists(st.sampled_from(OPERATIONS), max_size=3),
    ),
    st.tuples(st.just("disabled"), st.sampled_from(DSLS).map(lambda d: [d])),
)


def step(module: Any, scopes: list[Any], verb: str, names: list[str]) -> None:
    """Take one step on one of the two modules; scopes are left in the order of a stack."""
    if verb == "operations_disabled":
        scopes.append(module.operations_disabled(*names))
        scopes[-1].__enter__()
    elif verb == "disabled":
        scopes.append(getattr(module, names[0]).disabled())
        scopes[-1].__enter__()
    elif verb == "exit":
        if scopes:
            scopes.pop().__exit__(None, None, None)
    elif verb in ("on", "off"):
        getattr(module, names[0]).enabled = verb == "on"
    elif verb in ("disable", "enable"):
        getattr(getattr(module, names[0]), verb)()
    else:
        getattr(module, verb)(*names)


def leave(scopes: list[Any]) -> None:
    while scopes:
        scopes.pop().__exit__(None, None, None)


def state(module: Any, is_enabled: Callable[[str, str, str], bool]) -> dict[str, Any]:
    return {
        "operations": [module.is_operation_disabled(name) for name in OPERATIONS],
        "dsls": [module.is_dsl_disabled(name) for name in (*DSLS, "native")],
        "controllers": [getattr(module, name).enabled for name in DSLS],
        "kernels": [
            is_enabled(dsl, operation, key)
            for dsl in (*DSLS, "native")
            for operation in OPERATIONS
            for key in KEYS
        ],
    }


def torch_enables(dsl: str, operation: str, key: str) -> bool:
    names = {"dsl_name": dsl, "op_symbol": operation, "dispatch_key": key, "node_id": "an_id"}
    names.update({"lib_symbol": "aten"} if IS_NEWEST else {})
    node = registry._OverrideNode(**names, cond_fn=bool, impl_fn=bool)
    return bool(registry._filter_state.check_enabled(node))


@settings(max_examples=100)
@given(steps=st.lists(FLAT, max_size=10))
def test_any_steps_switch_what_they_switch_in_torch(steps: list[tuple[str, list[str]]]) -> None:
    clear()
    with ExitStack() as left:
        our_scopes: list[Any] = []
        their_scopes: list[Any] = []
        left.callback(leave, our_scopes)
        left.callback(leave, their_scopes)
        for verb, names in steps:
            step(ours, our_scopes, verb, names)
            step(theirs, their_scopes, verb, names)
            assert state(ours, filters.is_enabled) == state(theirs, torch_enables)
    assert state(ours, filters.is_enabled) == state(theirs, torch_enables)


# ---- names that nobody knows: where we differ ------------------------------------


@pytest.mark.parametrize(
    ("ask", "torch_says"),
    [
        (lambda module: module.disable_operations("bmmm"), None),
        (lambda module: module.enable_operations("bmmm"), None),
        (lambda module: module.disable_dispatch_keys("cuda"), None),
        (lambda module: module.enable_dispatch_keys("cuda"), None),
        (lambda module: module.is_operation_disabled("bmmmm"), False),
        (lambda module: module.is_dsl_disabled("tritn"), False),
        (lambda module: module.get_dsl_operations("tritn"), []),
    ],
)
def test_both_take_a_typo_and_we_warn_of_it(ask: Callable[[Any], Any], torch_says: Any) -> None:
    assert ask(theirs) == torch_says
    with pytest.warns(UserWarning, match="did you mean"):
        assert ask(ours) == torch_says


def test_a_list_is_refused_by_both_and_a_number_by_us_alone() -> None:
    assert outcome(lambda: theirs.disable_operations(["bmm"])) is TypeError
    assert outcome(lambda: ours.disable_operations(["bmm"])) is TypeError  # type: ignore[arg-type]
    assert outcome(lambda: theirs.disable_operations(3)) is None
    theirs.enable_operations(3)
    assert outcome(lambda: ours.disable_operations(3)) is TypeError  # type: ignore[arg-type]


def test_torch_lets_a_dsl_be_overwritten_and_we_do_not() -> None:
    theirs.triton = 3
    try:
        assert theirs.triton == 3
    finally:
        del theirs.triton
    with pytest.raises(AttributeError):
        ours.triton = 3  # type: ignore[assignment]


def test_torch_takes_any_value_for_enabled_and_we_take_a_bool() -> None:
    theirs.triton.disable()
    theirs.triton.enabled = "no"
    assert theirs.triton.enabled is True
    with pytest.raises(TypeError):
        ours.triton.enabled = "no"  # type: ignore[assignment]


@pytest.mark.parametrize("name", ["nosuch", "native", "__nosuch__"])
def test_an_unknown_name_is_no_attribute_of_either(name: str) -> None:
    for module in (ours, theirs):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
            getattr(module, name)


@pytest.mark.parametrize("name", ["all_dsls", "available_dsls"])
def test_a_list_is_overwritten_in_neither(name: str) -> None:
    for module in (ours, theirs):
        with pytest.raises(AttributeError):
            setattr(module, name, ["mine"])


# ---- the registries ---------------------------------------------------------------


def same(*args: Any) -> bool:
    return True


@pytest.mark.parametrize(
    "dispatch_key", ["Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CPU"]
)
@pytest.mark.parametrize("condition", [same, None])
def test_registering_an_override_ends_as_in_torch(
    their_graphs: Any, dispatch_key: str, condition: Any
) -> None:
    override = Override(
        dsl_name="triton",
        op_symbol="mul.Tensor",
        dispatch_key=dispatch_key,
        cond_fn=condition,
        impl_fn=same,
    )

    assert outcome(lambda: overrides.add(override)) == outcome(
        lambda: registry.register_op_override(
            "triton",
            "aten",
            "mul.Tensor",
            dispatch_key,
            condition,
            same,
            unconditional_override=condition is None,
        )
    )

    def described(nodes: Any) -> list[Any]:
        return [
            (
                node.dsl_name,
                node.op_symbol,
                node.dispatch_key,
                node.unconditional_override,
                node.active,
                node.node_id.rpartition("_")[0],
                node.node_id.rpartition("_")[2].isdigit(),
            )
            for node in nodes
        ]

    key = ("mul.Tensor", dispatch_key)
    theirs_ = their_graphs.get(key_in_torch(*key), [])
    assert described(overrides.nodes(*key)) == described(theirs_)
    if IS_NEWEST and condition is None and theirs_:
        ours.triton.disable()
        theirs.triton.disable()
        assert registry._filter_state.check_enabled(theirs_[0])
        assert not overrides.nodes(*key)[0].active


# ---- calls -------------------------------------------------------------------------


@pytest.fixture
def multiplied(their_graphs: Any) -> list[Callable[[float, float], Any]]:
    """Override mul.Tensor on the CPU in torch, and an operation of ours by the same functions."""

    def number(value: Any) -> float:
        return float(value)

    def is_small(one: Any, _other: Any) -> bool:
        return number(one) < 10

    def is_odd(one: Any, _other: Any) -> bool:
        if number(one) < 0:
            raise ZeroDivisionError
        return number(one) % 2 == 1

    given = (("triton", is_small, 100.0), ("cutedsl", is_odd, 200.0))
    for dsl, condition, mark in given:
        registry.register_op_override(
            dsl,
            "aten",
            "mul.Tensor",
            "CPU",
            condition,
            lambda one, other, mark=mark: torch.full_like(one, mark),
        )
        overrides.add(
            Override(
                dsl_name=dsl,
                op_symbol="mul.Tensor",
                dispatch_key="CPU",
                cond_fn=condition,
                impl_fn=lambda _one, _other, mark=mark: mark,
            )
        )
    registry._register_all_overrides()

    def in_torch(one: float, other: float) -> float:
        return float(torch.mul(torch.tensor(one), torch.tensor(other)))

    def in_ours(one: float, other: float) -> Any:
        return call("mul.Tensor", "CPU", lambda one, other: one * other, one, other)

    return [in_ours, in_torch]


def test_a_call_gets_the_same_kernel_as_in_torch(multiplied: list[Callable[..., Any]]) -> None:
    in_ours, in_torch = multiplied

    for one in (3.0, 4.0, 11.0, 12.0):
        assert in_ours(one, 2.0) == in_torch(one, 2.0)
    ours.triton.disable()
    theirs.triton.disable()
    for one in (3.0, 4.0, 11.0, 12.0):
        assert in_ours(one, 2.0) == in_torch(one, 2.0)
    for multiply in multiplied:
        with pytest.raises(ZeroDivisionError):
            multiply(-1.0, 2.0)
    ours.disable_dispatch_keys("CPU")
    theirs.disable_dispatch_keys("CPU")
    for one in (-1.0, 3.0, 11.0):
        assert in_ours(one, 2.0) == in_torch(one, 2.0) == one * 2
    ours.enable_dispatch_keys("CPU")
    theirs.enable_dispatch_keys("CPU")
    with ours.operations_disabled("mul.Tensor"), theirs.operations_disabled("mul.Tensor"):
        assert in_ours(11.0, 2.0) == in_torch(11.0, 2.0) == 22.0
    assert in_ours(11.0, 2.0) == in_torch(11.0, 2.0) == 200.0


@pytest.mark.parametrize(
    "order",
    [
        lambda _op, _key, graph: graph[::-1],
        lambda _op, _key, graph: graph[1:],
        lambda _op, _key, graph: tuple(graph[::-1]),
        lambda _op, _key, _graph: 1 / 0,
    ],
    ids=["backwards", "without the first", "no list", "raises"],
)
def test_a_users_order_is_taken_or_not_as_in_torch(
    multiplied: list[Callable[..., Any]], order: Callable[..., Any]
) -> None:
    overrides.reorder(order)
    registry.reorder_graphs_from_user_function(order, reregister_overrides=True)

    in_ours, in_torch = multiplied
    for one in (3.0, 4.0, 11.0, 12.0):
        assert in_ours(one, 2.0) == in_torch(one, 2.0)


@pytest.mark.parametrize("path", ["", "os.path.join", "nothing", "no.such.thing", "os.sep", "."])
def test_the_variable_of_the_order_is_read_as_torch_reads_it(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv(overrides.ORDER_FUNCTION, path)
    read = torch._native.get_user_ordering_fn
    read.cache_clear()

    assert outcome(overrides.order_function) == outcome(read)
    read.cache_clear()


def test_a_wrong_order_breaks_the_import_of_torch_and_the_first_override_here() -> None:
    program = (
        "try: import {0}\nexcept ValueError: print('import')\n"
        "from mlbackends import python_native\npython_native.all_dsls\n"
        "try: python_native.get_dsl_operations('native')\nexcept ValueError: print('use')\n"
    )
    path = {"PYTHONPATH": os.pathsep.join(sys.path), overrides.ORDER_FUNCTION: "no.such.thing"}
    said = [
        subprocess.run(
            [sys.executable, "-c", program.format(package)],
            capture_output=True, text=True, check=True, env={**os.environ, **path},
        ).stdout.split()
        for package in ("torch", "mlbackends")
    ]  # fmt: skip
    assert said == [["import", "use"], ["use"]]


def test_an_override_waits_for_the_next_rebuild_in_torch_and_counts_at_once_here(
    their_graphs: Any,
) -> None:
    override = ("triton", "aten", "mul.Tensor", "CPU", lambda *_: True)
    registry.register_op_override(*override, lambda one, _other: torch.full_like(one, 100.0))
    assert float(torch.mul(torch.tensor(3.0), torch.tensor(2.0))) == 6.0
    assert key_in_torch("mul.Tensor", "CPU") in their_graphs

    overrides.add(
        Override(
            dsl_name="triton", op_symbol="mul.Tensor", dispatch_key="CPU", impl_fn=lambda *_: 100.0
        )
    )
    assert call("mul.Tensor", "CPU", lambda one, other: one * other, 3.0, 2.0) == 100.0


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"dispatch_key": "cuda"}, LookupError),
        ({"backend": " "}, ValueError),
        ({"impl": 3}, TypeError),
    ],
    ids=["key", "name", "function"],
)
def test_an_override_is_taken_as_it_comes_by_torch_and_checked_here(
    their_graphs: Any, changed: dict[str, Any], error: type[Exception]
) -> None:
    asked = {
        "backend": "triton", "lib_symbol": "aten", "op_symbol": "mul.Tensor", "dispatch_key": "CPU",
        "cond": same, "impl": same, **changed,
    }  # fmt: skip
    registry.register_op_override(**asked)
    their_graphs.clear()

    override = Override(
        dsl_name=asked["backend"],
        op_symbol=asked["op_symbol"],
        dispatch_key=asked["dispatch_key"],
        impl_fn=asked["impl"],
    )
    with pytest.raises(error):
        overrides.add(override)


def test_a_foreign_override_is_ordered_in_by_torch_and_not_here(
    multiplied: list[Callable[..., Any]], caplog: pytest.LogCaptureFixture
) -> None:
    del multiplied
    registry.reorder_graphs_from_user_function(lambda _op, _key, graph: graph[:1] * 2)
    overrides.reorder(lambda _op, _key, graph: graph[:1] * 2)

    assert [node.dsl_name for node in registry._graphs[key_in_torch("mul.Tensor", "CPU")]] == [
        "triton"
    ] * 2
    kept = overrides.nodes("mul.Tensor", "CPU")
    assert [node.dsl_name for node in kept] == ["triton", "cutedsl"]
    assert "one override twice" in caplog.text


def test_the_first_of_two_scopes_ends_both_in_torch_and_the_last_here() -> None:
    for module, off in ((theirs, False), (ours, True)):
        scopes = [module.operations_disabled("bmm") for _ in range(2)]
        for scope in scopes:
            scope.__enter__()
        scopes[0].__exit__(None, None, None)
        assert module.is_operation_disabled("bmm") is off
        scopes[1].__exit__(None, None, None)
        assert module.is_operation_disabled("bmm") is False


def test_the_package_hands_the_module_on() -> None:
    assert mlbackends.python_native is ours
