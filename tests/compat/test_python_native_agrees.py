"""The switches of DSLs compared with torch's."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from builds import IS_NEWEST
from hypothesis import given, settings
from hypothesis import strategies as st

from mlbackends import python_native as ours

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    # torch's dispatcher, once a process, when its own override is registered anew.
    pytest.mark.filterwarnings("ignore:Warning only once for all operators"),
]

theirs = torch.backends.python_native
pytest.importorskip("torch._native.registry")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPERATIONS = ("bmm", "topk", "_foreach_mm")
KEYS = ("CPU", "CUDA", "XPU")
DSLS = ("triton", "cutedsl")


@pytest.fixture(autouse=True)
def everything_on() -> Iterator[None]:
    yield
    clear()


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


# ---- freezing ----------------------------------------------------------------


def test_only_the_assignment_is_frozen_in_both(freeze: Callable[[], None]) -> None:
    freeze()
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


def state(module: Any) -> dict[str, Any]:
    return {
        "operations": [module.is_operation_disabled(name) for name in OPERATIONS],
        "dsls": [module.is_dsl_disabled(name) for name in (*DSLS, "native")],
        "controllers": [getattr(module, name).enabled for name in DSLS],
    }


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
            assert state(ours) == state(theirs)
    assert state(ours) == state(theirs)


# ---- unknown names and values ------------------------------------


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


def test_names_are_accepted_alike() -> None:
    for module in (ours, theirs):
        assert outcome(lambda: module.disable_operations(["bmm"])) is TypeError  # noqa: B023
        module.disable_operations(3, "bmmm")
        assert module.is_operation_disabled("bmmm") is True
        module.enable_operations(3, "bmmm")
        assert module.is_dsl_disabled("tritn") is False
        assert module.get_dsl_operations("tritn") == []
