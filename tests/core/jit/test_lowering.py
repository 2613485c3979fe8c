"""Lowering a module: the life cycle, the calls, the warnings and what is refused."""

from __future__ import annotations

import copy
import inspect
import itertools
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends import jit

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlbackends.jit.backend import DebugHandles

_numbers = itertools.count()
Calls = list[tuple[Any, ...]]


class Accumulator:
    """A module with state, a method that returns a tuple, and a default."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.weights = [1, 2]

    def forward(self, x: int, h: int = 1) -> tuple[int, int]:
        return self.accum(x, h), self.sub_accum(x, h)

    def accum(self, x: int, h: int) -> int:
        return self.start + x + h

    def sub_accum(self, x: int, h: int) -> int:
        return x - h

    def untyped(self, x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        return x

    def anything(self, *x: int) -> int:
        return sum(x)

    def save(self) -> None:
        pass


class Recording(jit.BackendInterface):
    """Runs the processed module's own methods, and writes down what it is asked."""

    available: Any = True
    calls: Calls

    def __init__(self) -> None:
        self.calls.append(("constructor",))

    def is_available(self) -> bool:
        self.calls.append(("is_available",))
        return bool(self.available)

    def compile(self, processed: Any, method_compile_spec: Any) -> dict[str, Any]:
        self.calls.append(("compile", dict(method_compile_spec)))
        return {name: getattr(processed, name) for name in method_compile_spec}

    def execute(self, handle: Any, inputs: list[Any]) -> list[Any]:
        self.calls.append(("execute", handle.__name__, inputs))
        result = handle(*inputs)
        return list(result) if isinstance(result, tuple) else [result]


def registered(
    preprocess: Callable[[Any, dict[str, Any], DebugHandles], Any] | None = None,
    **overrides: Any,
) -> tuple[str, Calls, type[Recording]]:
    """Register a backend under a name that no other test has."""
    calls: Calls = []

    def recorded(module: Any, spec: dict[str, Any], handles: DebugHandles) -> Any:
        calls.append(("preprocess", dict(spec)))
        return preprocess(module, spec, handles) if preprocess else module

    backend = type("Backend", (Recording,), {"calls": calls, **overrides})
    name = f"lowering_{next(_numbers)}"
    jit.register_backend(name, backend)
    jit.register_preprocess(name, recorded)
    return name, calls, backend


def asked(calls: Calls) -> list[str]:
    return [call[0] for call in calls]


def test_lowering_preprocesses_makes_asks_twice_and_compiles() -> None:
    name, calls, _ = registered()

    jit.to_backend(name, Accumulator(), {"forward": {"precision": "low"}})

    assert calls == [
        ("preprocess", {"forward": {"precision": "low"}}),
        ("constructor",),
        ("is_available",),
        ("is_available",),
        ("compile", {"forward": {"precision": "low"}}),
    ]


def test_each_call_asks_whether_the_backend_is_available_and_executes() -> None:
    name, calls, _ = registered()
    lowered = jit.to_backend(name, Accumulator(), {"forward": 1, "accum": 1})
    calls.clear()

    assert lowered(5, h=2) == (7, 3)
    assert lowered.accum(1, 2) == 3

    assert calls == [
        ("is_available",),
        ("execute", "forward", [5, 2]),
        ("is_available",),
        ("execute", "accum", [1, 2]),
    ]


def test_a_default_of_the_original_method_is_an_input() -> None:
    name, calls, _ = registered()
    lowered = jit.to_backend(name, Accumulator(), {"forward": 1})

    assert lowered(5) == (6, 4)
    assert calls[-1] == ("execute", "forward", [5, 1])


def test_a_lowered_module_is_named_as_what_it_was_made_of() -> None:
    name, _, _ = registered()
    lowered = jit.to_backend(name, Accumulator(), {"accum": 1})

    assert lowered.original_name == "Accumulator"
    assert lowered.qualified_name == f"LoweredWrapper.{name}.{__name__}.Accumulator"
    assert lowered.accum.__name__ == "accum" and "accum of" in repr(lowered.accum)
    assert list(inspect.signature(lowered.accum).parameters) == ["x", "h"]
    assert "accum" in dir(lowered) and "accum" in dir(lowered.__loweredModule__)
    assert lowered.__loweredModule__.accum(1, 1) == 2
    assert name in repr(lowered)


def test_a_method_that_was_not_lowered_is_no_attribute() -> None:
    name, _, _ = registered()
    lowered = jit.to_backend(name, Accumulator(), {"accum": 1})

    with pytest.raises(AttributeError, match=r"no attribute 'acum'. Did you mean 'accum'\?"):
        _ = lowered.acum
    with pytest.raises(AttributeError, match="no attribute 'forward'"):
        lowered(1, 2)
    with pytest.raises(AttributeError, match="cannot be changed"):
        lowered.accum = print


def test_a_spec_without_methods_lowers_to_nothing_that_can_be_called() -> None:
    name, _, _ = registered()

    with pytest.raises(AttributeError, match="no attribute 'forward'"):
        jit.to_backend(name, Accumulator(), {})(1)


def test_lowering_to_an_unavailable_backend_warns_and_its_calls_fail() -> None:
    name, calls, _ = registered(available=False)

    with pytest.warns(
        UserWarning, match=rf"Backend \[{name}\] is not available. Execution"
    ) as seen:
        lowered = jit.to_backend(name, Accumulator(), {"forward": 1})

    assert asked(calls) == ["preprocess", "constructor", "is_available"]
    assert seen[0].filename == __file__
    with pytest.raises(RuntimeError, match=r"^Backend is not available\.$"):
        lowered(1)


def test_a_backend_that_comes_up_later_must_be_loaded_anew() -> None:
    name, _, backend = registered(available=False)
    with pytest.warns(UserWarning, match="not available"):
        lowered = jit.to_backend(name, Accumulator(), {"forward": 1})
    backend.available = True

    with pytest.raises(RuntimeError, match="save it and load it again"):
        lowered(1)
    assert copy.deepcopy(lowered)(1) == (2, 0)


def test_a_backend_that_goes_away_fails_the_next_call() -> None:
    name, calls, backend = registered()
    lowered = jit.to_backend(name, Accumulator(), {"forward": 1})
    backend.available = False

    with pytest.raises(jit.BackendNotAvailable):
        lowered(1)
    assert asked(calls)[-1] == "is_available"


def test_the_original_is_left_as_it_was_and_its_data_is_shared() -> None:
    seen = []

    def preprocess(module: Any, spec: dict[str, Any], handles: DebugHandles) -> Any:
        seen.append(module)
        module.start = 100
        module.extra = 1
        spec["forward"] = "changed"
        return module

    name, calls, _ = registered(preprocess)
    original = Accumulator()
    original.shared = data = object()  # type: ignore[attr-defined]

    lowered = jit.to_backend(name, original, {"forward": 1})

    assert original.start == 0 and not hasattr(original, "extra")
    assert seen[0] is not original and seen[0].shared is data
    assert lowered.forward(0, 0) == (100, 0)
    assert calls[-4][0] == "is_available" and ("compile", {"forward": 1}) in calls


def test_a_spec_that_the_caller_changes_afterwards_changes_nothing() -> None:
    name, calls, _ = registered()
    spec = {"forward": {"levels": [1, 2]}}
    lowered = jit.to_backend(name, Accumulator(), spec)
    spec["forward"]["levels"].append(3)

    copy.deepcopy(lowered)

    assert calls[-1] == ("compile", {"forward": {"levels": [1, 2]}})


@pytest.mark.parametrize(
    ("module", "spec", "error", "text"),
    [
        (
            Accumulator(),
            {"acum": 1},
            RuntimeError,
            r"Method 'acum' is not defined. Did you mean 'accum'",
        ),
        (Accumulator(), {"nomethod": 1}, RuntimeError, r"Method 'nomethod' is not defined\."),
        (Accumulator(), {"start": 1}, RuntimeError, "Method 'start' is not defined"),
        (Accumulator(), {"anything": 1}, RuntimeError, r"takes \*x; a lowered"),
        (Accumulator(), {"save": 1}, RuntimeError, "the wrapper has its own"),
        (Accumulator(), {"forward": {}}, RuntimeError, "type cannot be inferred"),
        (Accumulator(), {"forward": {"a": []}}, RuntimeError, "type cannot be inferred"),
        (Accumulator(), {1: 1}, RuntimeError, "names of methods are str"),
        (Accumulator(), [("forward", 1)], TypeError, "is a dict, not list"),
        (Accumulator, {"forward": 1}, AttributeError, "is not a module"),
        (len, {"forward": 1}, AttributeError, "is not a module"),
        (3, {"forward": 1}, AttributeError, "3 is not a module"),
        (None, {"forward": 1}, AttributeError, "None is not a module"),
    ],
)
def test_what_cannot_be_lowered_is_refused_before_anything_runs(
    module: Any, spec: Any, error: type[Exception], text: str
) -> None:
    name, calls, _ = registered()

    with pytest.raises(error, match=text):
        jit.to_backend(name, module, spec)
    assert not calls


def test_an_unknown_backend_is_refused_with_the_nearest_name() -> None:
    jit.register_preprocess("a_chip_nearby", lambda module, spec, handles: module)

    with pytest.raises(
        RuntimeError,
        match=r"^Preprocessing function for backend a_chip_nearbi is not registered\. "
        r"Did you mean 'a_chip_nearby'\?$",
    ):
        jit.to_backend("a_chip_nearbi", Accumulator(), {"forward": 1})
    with pytest.raises(RuntimeError, match="Backend a_chip_nearby is not registered"):
        jit.to_backend("a_chip_nearby", Accumulator(), {"forward": 1})
    with pytest.raises(TypeError, match="is a str, not int"):
        jit.to_backend(1, Accumulator(), {"forward": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((), {}, "missing a required argument: 'x'"),
        ((1, 2, 3), {}, "too many"),
        ((1,), {"y": 1}, "'y'"),
    ],
)
def test_a_call_must_fit_the_signature(args: Any, kwargs: Any, text: str) -> None:
    """Torch says RuntimeError, Python says TypeError: it is both."""
    name, calls, _ = registered()
    lowered = jit.to_backend(name, Accumulator(), {"forward": 1})
    calls.clear()

    for kind in (RuntimeError, TypeError):
        with pytest.raises(kind, match=text):
            lowered(*args, **kwargs)
    assert not calls


@pytest.mark.parametrize(
    ("method", "outputs", "text"),
    [
        (
            "forward",
            [1],
            r"Expected 2 elements in a list but found 1: forward returns tuple\[int, int\]",
        ),
        ("forward", [1, "x"], "output 1 of forward is str, not int"),
        ("accum", [], "Expected 1 elements in a list but found 0"),
        ("accum", [(1, 2)], "the output of accum is tuple, not int"),
        ("accum", (1,), "returned tuple from execute; a list"),
        ("accum", None, "returned NoneType from execute"),
    ],
)
def test_outputs_that_the_original_does_not_promise_are_refused(
    method: str, outputs: Any, text: str
) -> None:
    name, _, _ = registered(execute=lambda self, handle, inputs: outputs)
    lowered = jit.to_backend(name, Accumulator(), {"forward": 1, "accum": 1})

    with pytest.raises(RuntimeError, match=text):
        getattr(lowered, method)(1, 2)


@pytest.mark.parametrize(("outputs", "value"), [([], None), ([3], 3), ([3, 4], (3, 4))])
def test_without_an_annotation_the_outputs_come_as_they_are(outputs: Any, value: Any) -> None:
    name, _, _ = registered(execute=lambda self, handle, inputs: outputs)

    assert jit.to_backend(name, Accumulator(), {"untyped": 1}).untyped(0) == value


@pytest.mark.parametrize(
    ("handles", "text"),
    [(["forward"], "returned list from compile"), ({"other": 1}, "no handle for 'forward'")],
)
def test_a_compiler_that_misses_a_method_fails_the_lowering(handles: Any, text: str) -> None:
    name, _, _ = registered(compile=lambda self, processed, spec: handles)

    with pytest.raises(RuntimeError, match=text):
        jit.to_backend(name, Accumulator(), {"forward": 1})


def test_what_a_backend_raises_reaches_the_caller() -> None:
    def fail(*_: object) -> Any:
        raise KeyError("on the chip")

    name, _, _ = registered(execute=fail)
    with pytest.raises(KeyError, match="on the chip"):
        jit.to_backend(name, Accumulator(), {"forward": 1})(1)
    name, _, _ = registered(fail)
    with pytest.raises(KeyError, match="on the chip"):
        jit.to_backend(name, Accumulator(), {"forward": 1})


def test_a_module_with_a_lowered_submodule_can_be_lowered_itself() -> None:
    class Outer:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def forward(self, x: int) -> int:
            return int(self.inner.accum(x, 1)) * 10

    inner_name, inner_calls, _ = registered()
    outer_name, outer_calls, _ = registered()
    inner = jit.to_backend(inner_name, Accumulator(), {"accum": 1})
    inner_calls.clear()

    lowered = jit.to_backend(outer_name, Outer(inner), {"forward": 1})

    assert not inner_calls, "the inner module is compiled already"
    assert lowered(4) == 50
    assert asked(outer_calls)[-1] == "execute" and asked(inner_calls) == ["is_available", "execute"]


def test_a_lowered_module_can_be_lowered_again() -> None:
    name, calls, _ = registered()
    once = jit.to_backend(name, Accumulator(), {"forward": 1})
    calls.clear()

    twice = jit.to_backend(name, once, {"forward": 1})
    assert asked(calls) == ["preprocess", "constructor", "is_available", "is_available", "compile"]
    calls.clear()

    assert twice(3) == (4, 2)
    assert asked(calls) == ["is_available", "execute", "is_available", "execute"]
    with pytest.raises(RuntimeError, match="missing a required argument"):
        twice()


class Callable_:  # noqa: N801
    def __call__(self, x: float) -> float:
        return x / 2

    def other(self) -> None:
        return None


def test_an_object_that_is_called_itself_can_be_lowered() -> None:
    name, _, _ = registered()

    lowered = jit.to_backend(name, Callable_(), {"__call__": 1, "other": 1})

    assert lowered(1) == 0.5
    assert lowered.other() is None


def test_copies_and_pickles_compile_anew_and_a_shallow_copy_shares() -> None:
    name, calls, backend = registered()
    lowered = jit.to_backend(name, PICKLED, {"forward": 1})
    calls.clear()

    assert copy.copy(lowered)(1) == (2, 0)
    assert asked(calls) == ["is_available", "execute"]
    calls.clear()
    for take in (copy.deepcopy, pickled):
        anew = take(lowered)
        assert asked(calls) == ["constructor", "is_available", "compile"]
        assert anew(1, h=3) == (4, -2)
        calls.clear()
    backend.available = False
    data = pickle.dumps(lowered)
    with pytest.raises(RuntimeError, match="Backend is not available"):
        pickle.loads(data)
    with pytest.raises(RuntimeError, match="Backend is not available"):
        copy.deepcopy(lowered)


def pickled(lowered: jit.LoweredWrapper) -> Any:
    return pickle.loads(pickle.dumps(lowered))


PICKLED = Accumulator()


def test_debug_handles_are_unique_in_the_process() -> None:
    seen: list[dict[int, int]] = []

    def preprocess(module: Any, spec: dict[str, Any], handles: DebugHandles) -> Any:
        seen.extend((handles(module.accum), handles(type(module).accum)))
        return module

    name, _, _ = registered(preprocess)
    jit.to_backend(name, Accumulator(), {"accum": 1})

    one, two = seen
    assert Accumulator.accum.__code__.co_firstlineno + 1 in one
    assert one.keys() == two.keys() and not set(one.values()) & set(two.values())


def test_calls_from_many_threads_do_not_meet() -> None:
    name, _, _ = registered()
    lowered = jit.to_backend(name, Accumulator(), {"forward": 1})
    wrong: list[int] = []

    def call(number: int) -> None:
        wrong.extend(x for x in range(50) if lowered(x, number) != (x + number, x - number))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
