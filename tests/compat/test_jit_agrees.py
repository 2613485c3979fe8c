"""Our custom backends beside torch's: the same life cycle, texts and kinds of errors.

torch's side is `torch._C._jit_to_backend` with the backends of libjitbackend_test, which its wheels bring.
"""

from __future__ import annotations

import copy
import io
import itertools
import os
import warnings
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from mlbackends import jit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
_numbers = itertools.count()
SPEC = {"forward": {"a": "1"}, "accum": {"a": "2"}, "sub_accum": {"a": "3"}}


class Accumulator(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.accum(x, h), self.sub_accum(x, h)

    def accum(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return x + h

    def sub_accum(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return x - h


class Pair(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.first = Accumulator()
        self.second = Accumulator()
        self.size = 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x, x)[0] + self.second(x, x)[0]


class Typed(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + h, x - h


class Chip(jit.BackendInterface):
    up = True

    def is_available(self) -> bool:
        return self.up

    def compile(self, processed: Any, method_compile_spec: Any) -> dict[str, Any]:
        return {name: name for name in method_compile_spec}

    def execute(self, handle: Any, inputs: list[Any]) -> list[Any]:
        x, h = inputs
        return {"forward": [x + h, x - h], "accum": [x + h], "sub_accum": [x - h]}[handle]


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libjitbackend_test.so")
    try:
        torch.ops.load_library(path)
    except OSError as error:
        pytest.skip(f"torch's test backends cannot be loaded: {error}")


class Theirs:
    """torch's way to say it."""

    script = staticmethod(torch.jit.script)
    lower = staticmethod(torch._C._jit_to_backend)
    selective = staticmethod(torch._C._jit_to_backend_selective)
    name = "test_backend"
    down = "test_backend_unavailable"

    @staticmethod
    def saved(lowered: Any) -> io.BytesIO:
        file = io.BytesIO()
        torch.jit.save(lowered, file)
        return io.BytesIO(file.getvalue())

    load = staticmethod(torch.jit.load)


class Ours:
    """Our way to say it: what is no module for torch is none for us."""

    lower = staticmethod(jit.to_backend)
    selective = staticmethod(jit.to_backend_selective)

    def __init__(self) -> None:
        number = next(_numbers)
        self.name, self.down = f"agrees_{number}", f"agrees_down_{number}"
        for name, up in ((self.name, True), (self.down, False)):
            jit.register_backend(name, type("AChip", (Chip,), {"up": up}))
            jit.register_preprocess(name, lambda module, spec, handles: None)

    @staticmethod
    def script(module: Any) -> Any:
        return module

    @staticmethod
    def saved(lowered: Any) -> io.BytesIO:
        file = io.BytesIO()
        lowered.save(file)
        return io.BytesIO(file.getvalue())

    load = staticmethod(jit.load)


def both(do: Callable[[Any], Any]) -> list[Any]:
    """Return what each side gives: a value, or an exception."""
    given = []
    for side in (Ours(), Theirs()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                given.append(do(side))
            except Exception as error:  # noqa: BLE001
                given.append(error)
    return given


def lowered(side: Any) -> Any:
    return side.lower(side.name, side.script(Accumulator()), SPEC)


X, H = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])
RESULTS: dict[str, Callable[[Any], Any]] = {
    "call": lambda side: lowered(side)(X, H),
    "forward": lambda side: lowered(side).forward(X, H),
    "keywords": lambda side: lowered(side)(X, h=H),
    "method": lambda side: lowered(side).sub_accum(X, H),
    "inside": lambda side: lowered(side).__loweredModule__.accum(X, H),
    "loaded": lambda side: side.load(side.saved(lowered(side)))(X, H),
    "copied": lambda side: copy.copy(lowered(side))(X, H),
    "copied deeply": lambda side: copy.deepcopy(lowered(side))(X, H),
    "other values of the spec": lambda side: side.lower(
        side.name, side.script(Typed()), {"forward": 3}
    )(X, H),
    "all submodules": lambda side: side.selective(
        side.script(Pair()), lambda m: side.lower(side.name, m, SPEC), ["first", "second"]
    )(X),
    "no submodule": lambda side: side.selective(side.script(Pair()), lambda m: m, [])(X),
    "the name": lambda side: lowered(side).original_name,
}


@pytest.mark.parametrize("case", RESULTS)
def test_what_is_lowered_gives_what_torch_gives(case: str) -> None:
    ours, theirs = both(RESULTS[case])

    assert not isinstance(theirs, Exception), theirs
    assert type(ours) is type(theirs)
    if isinstance(theirs, str):
        assert ours == theirs
    else:
        torch.testing.assert_close(ours, theirs)


#: What is done, and the words that both messages hold.
ERRORS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "unknown backend": (
        lambda side: side.lower("nosuch", side.script(Accumulator()), SPEC),
        "Preprocessing function for backend nosuch is not registered.",
    ),
    "unknown method": (
        lambda side: side.lower(side.name, side.script(Accumulator()), {"nomethod": {"a": "1"}}),
        "Method 'nomethod' is not defined.",
    ),
    "empty value": (
        lambda side: side.lower(side.name, side.script(Accumulator()), {"forward": {}}),
        "infer",
    ),
    "empty value inside": (
        lambda side: side.lower(side.name, side.script(Accumulator()), {"forward": {"a": []}}),
        "infer",
    ),
    "method that is no text": (
        lambda side: side.lower(side.name, side.script(Accumulator()), {1: {"a": 1}}),
        "",
    ),
    "number": (lambda side: side.lower(side.name, 3, SPEC), ""),
    "nothing": (lambda side: side.lower(side.name, None, SPEC), ""),
    "class": (lambda side: side.lower(side.name, Accumulator, SPEC), "Accumulator"),
    "name that is no text": (lambda side: side.lower(1, side.script(Accumulator()), SPEC), ""),
    "spec that is no dict": (
        lambda side: side.lower(side.name, side.script(Accumulator()), [("forward", 1)]),
        "",
    ),
    "too few arguments": (lambda side: lowered(side).accum(X), "argument"),
    "too many arguments": (lambda side: lowered(side).accum(X, X, X), "argument"),
    "method that was not lowered": (
        lambda side: side.lower(side.name, side.script(Accumulator()), {"accum": 1})(X, H),
        "has no attribute 'forward'",
    ),
    "no attribute": (lambda side: lowered(side).nosuch, "has no attribute 'nosuch'"),
    "not available": (
        lambda side: side.lower(side.down, side.script(Accumulator()), SPEC)(X, H),
        "Backend is not available.",
    ),
    "loaded, not available": (
        lambda side: side.load(side.saved(side.lower(side.down, side.script(Accumulator()), SPEC))),
        "Backend is not available.",
    ),
    "copied deeply, not available": (
        lambda side: copy.deepcopy(side.lower(side.down, side.script(Accumulator()), SPEC)),
        "Backend is not available.",
    ),
    "file of another kind": (lambda side: side.load(io.BytesIO(b"garbage" * 50)), ""),
    "torn file": (
        lambda side: side.load(io.BytesIO(side.saved(lowered(side)).getvalue()[:-100])),
        "",
    ),
    "selected from a number": (
        lambda side: side.selective(3, lambda m: m, []),
        "is not a ScriptModule",
    ),
    "selected attribute": (
        lambda side: side.selective(side.script(Pair()), lambda m: m, ["size"]),
        "Attribute named size is not a Module",
    ),
    "selected unknown": (
        lambda side: side.selective(side.script(Pair()), lambda m: m, ["third"]),
        "does not have a field with name 'third'",
    ),
    "selected nothing": (
        lambda side: side.selective(side.script(Pair()), lambda m: m, [""]),
        "",
    ),
    "selected by one text": (
        lambda side: side.selective(side.script(Pair()), lambda m: m, "first"),
        "",
    ),
    "lowered to a number": (
        lambda side: side.selective(side.script(Pair()), lambda m: 3, ["first", "second"]),
        "",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_torch_refuses_we_refuse_in_kind(case: str) -> None:
    do, words = ERRORS[case]

    ours, theirs = both(do)

    assert isinstance(theirs, Exception), theirs
    # torch.jit.Error is an Exception and nothing more.
    kind = Exception if type(theirs) is torch.jit.Error else type(theirs)
    assert isinstance(ours, kind), (ours, theirs)
    assert isinstance(ours, Exception)
    assert words in str(ours)
    assert words in str(theirs)


def test_lowering_where_the_backend_is_not_available_succeeds(capfd: Any) -> None:
    side = Ours()
    text = "is not available. Execution of this Module is still possible by saving and loading on"

    with pytest.warns(UserWarning, match=text):
        side.lower(side.down, Accumulator(), SPEC)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        Theirs.lower(Theirs.down, torch.jit.script(Accumulator()), SPEC)
    told = capfd.readouterr().err + "".join(str(each.message) for each in seen)
    assert text in told


def test_the_original_stays_as_it_is() -> None:
    def do(side: Any) -> Any:
        original = side.script(Pair())
        side.selective(original, lambda m: side.lower(side.name, m, SPEC), ["first", "second"])
        return hasattr(original.first, "__loweredModule__")

    assert both(do) == [False, False]


def test_one_of_two_submodules_of_a_class_can_be_lowered() -> None:
    """PyTorch 2.13 lowers it, and fails at the call: the other instance shares the type."""
    ours, theirs = both(
        lambda side: side.selective(
            side.script(Pair()), lambda m: side.lower(side.name, m, SPEC), ["first"]
        )(X)
    )

    torch.testing.assert_close(ours, 4 * X)
    assert isinstance(theirs, RuntimeError)


@pytest.mark.parametrize("value", [{"a": 1, "b": "two"}, {1, 2}, [1, "two"]], ids=str)
def test_values_of_a_spec_have_one_type_in_torch_and_any_here(value: Any) -> None:
    ours, theirs = both(
        lambda side: side.lower(side.name, side.script(Typed()), {"forward": value})(X, H)
    )

    assert isinstance(theirs, Exception)
    torch.testing.assert_close(ours, (X + H, X - H))


def test_what_is_lowered_inside_is_lowered_again_here_and_not_in_torch() -> None:
    def do(side: Any) -> Any:
        half = side.selective(
            side.script(Pair()), lambda m: side.lower(side.name, m, SPEC), ["first", "second"]
        )
        return side.lower(side.name, half, {"forward": {"a": "1"}})

    ours, theirs = both(do)

    assert isinstance(theirs, RuntimeError)
    assert "serialize" in str(theirs)
    assert not isinstance(ours, Exception)


def test_wrong_arguments_are_also_a_type_error_here() -> None:
    ours, theirs = both(lambda side: lowered(side).accum(X))

    assert isinstance(theirs, RuntimeError) and not isinstance(theirs, TypeError)
    assert isinstance(ours, RuntimeError) and isinstance(ours, TypeError)


def test_a_backend_that_is_not_available_is_a_runtime_error_here() -> None:
    ours, theirs = both(lambda side: side.lower(side.down, side.script(Accumulator()), SPEC)(X, H))

    assert type(theirs) is torch.jit.Error and not isinstance(theirs, RuntimeError)
    assert isinstance(ours, RuntimeError)
    assert str(ours) == "Backend is not available."


def test_a_missing_file_is_a_value_error_in_torch_and_not_found_here(tmp_path: Path) -> None:
    ours, theirs = both(lambda side: side.load(str(tmp_path / "nosuch.pt")))

    assert type(theirs) is ValueError
    assert isinstance(ours, FileNotFoundError)


def test_below_a_torch_module_the_lowered_one_is_a_torch_module() -> None:
    side = Ours()
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ModuleDict({"a": Accumulator()}))
    lowered = jit.to_backend_selective(
        model, lambda m: side.lower(side.name, m, SPEC), ["1.a"]
    ).eval()

    inside = lowered[1]["a"]
    assert isinstance(inside, torch.nn.Module)
    torch.testing.assert_close(inside(X, H), (X + H, X - H))
    torch.testing.assert_close(copy.deepcopy(lowered)[1]["a"].accum(X, H), X + H)
    assert [name for name, _ in lowered.named_parameters()] == ["0.weight", "0.bias"]
    assert not hasattr(model[1]["a"], "lowered") and lowered.to(torch.float64) is lowered
    assert side.name in repr(lowered)
    with pytest.raises(AttributeError, match="nosuch"):
        _ = inside.nosuch


def test_outputs_are_checked_against_the_annotation_of_the_original() -> None:
    class Wrong(Chip):
        def execute(self, handle: Any, inputs: list[Any]) -> list[Any]:
            return [inputs[0], 3]

    name = f"agrees_{next(_numbers)}"
    jit.register_backend(name, Wrong)
    jit.register_preprocess(name, lambda module, spec, handles: None)

    with pytest.raises(RuntimeError, match=r"output 1 of forward is int, not torch\.Tensor"):
        jit.to_backend(name, Typed(), {"forward": 1})(X, H)


def test_a_lowered_submodule_runs_inside_another_backend_s_module() -> None:
    """PyTorch 2.13 refuses this for a compiled one: its test backends cannot be cloned."""

    class Runs(Chip):
        def compile(self, processed: Any, method_compile_spec: Any) -> dict[str, Any]:
            return {name: getattr(processed, name) for name in method_compile_spec}

        def execute(self, handle: Any, inputs: list[Any]) -> list[Any]:
            return [handle(*inputs)]

    side, name = Ours(), f"agrees_{next(_numbers)}"
    jit.register_backend(name, Runs)
    jit.register_preprocess(name, lambda module, spec, handles: module)
    half = jit.to_backend_selective(
        Pair(), lambda m: side.lower(side.name, m, SPEC), ["first", "second"]
    )

    whole = jit.to_backend(name, half, {"forward": {"a": 1}})

    torch.testing.assert_close(whole(X), 4 * X)
