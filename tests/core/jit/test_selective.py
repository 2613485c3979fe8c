"""Lowering chosen submodules."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends import jit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_numbers = itertools.count()


class Add:
    def __init__(self, amount: int) -> None:
        self.amount = amount

    def forward(self, x: int) -> int:
        return x + self.amount


class Pair:
    def __init__(self) -> None:
        self.first = Add(1)
        self.second = Add(2)
        self.size = 3
        self.data = [1, 2]

    def forward(self, x: int) -> int:
        return int(self.second.forward(int(self.first.forward(x))))


class Nest:
    def __init__(self) -> None:
        self.pair = Pair()
        self.other = Pair()

    def forward(self, x: int) -> int:
        return self.pair.forward(x) + self.other.forward(x)


class Container:
    """Holds its children as torch.nn.Module does: not as attributes."""

    def __init__(self, *children: Any) -> None:
        vars(self)["children"] = {str(index): child for index, child in enumerate(children)}

    def named_children(self) -> Iterator[tuple[str, Any]]:
        yield from vars(self)["children"].items()

    def __setattr__(self, name: str, value: object) -> None:
        vars(self)["children"][name] = value

    def forward(self, x: int) -> int:
        for _, child in self.named_children():
            x = child.forward(x)
        return x


class Chip(jit.BackendInterface):
    def is_available(self) -> bool:
        return True

    def compile(self, processed: Any, method_compile_spec: Any) -> dict[str, Any]:
        return {name: getattr(processed, name) for name in method_compile_spec}

    def execute(self, handle: Any, inputs: list[Any]) -> list[Any]:
        return [handle(*inputs) + 1000]


def lowering() -> Callable[[Any], Any]:
    name = f"selective_{next(_numbers)}"
    jit.register_backend(name, Chip)
    jit.register_preprocess(name, lambda module, spec, handles: module)
    return lambda module: jit.to_backend(name, module, {"forward": 1})


def test_the_chosen_submodules_are_lowered_in_a_clone() -> None:
    original = Nest()

    lowered = jit.to_backend_selective(original, lowering(), ["pair.first", "other"])

    assert lowered.forward(0) == 3 + 1000 + 3 + 1000
    assert original.forward(0) == 6
    assert isinstance(lowered.pair.first, jit.LoweredWrapper)
    assert isinstance(lowered.other, jit.LoweredWrapper)
    assert type(lowered.pair.second) is Add
    assert lowered.pair.data is not original.pair.data and lowered.pair.data == [1, 2]


def test_no_names_make_a_clone() -> None:
    original = Nest()

    copied = jit.to_backend_selective(original, lowering(), [])

    assert copied is not original and copied.pair is not original.pair
    assert copied.forward(0) == 6


def test_children_that_are_no_attributes_are_found_by_named_children() -> None:
    original = Container(Add(1), Container(Add(2), Add(3)))

    lowered = jit.to_backend_selective(original, lowering(), ["0", "1.1"])

    assert lowered.forward(0) == 2006
    assert original.forward(0) == 6


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["frist"], r"Pair does not have a field with name 'frist'\. Did you mean 'first'\?"),
        (["first", "first.forward"], "Attribute named forward is not a Module"),
        (["size"], "Attribute named size is not a Module"),
        (["data"], "Attribute named data is not a Module"),
        ([""], "does not have a field with name ''"),
        (["first.x"], "Add does not have a field with name 'x'"),
    ],
)
def test_a_name_that_is_no_submodule_is_refused_before_anything_is_lowered(
    names: list[str], text: str
) -> None:
    def never(module: Any) -> Any:
        raise AssertionError(module)

    with pytest.raises(RuntimeError, match=text):
        jit.to_backend_selective(Pair(), never, names)


def test_a_child_of_what_was_lowered_already_is_none() -> None:
    with pytest.raises(RuntimeError, match="does not have a field with name 'first'"):
        jit.to_backend_selective(Nest(), lowering(), ["pair", "pair.first"])


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Object 3 is not a ScriptModule"):
        jit.to_backend_selective(3, lowering(), [])
    with pytest.raises(AttributeError, match="the function returned 3 for 'first', no module"):
        jit.to_backend_selective(Pair(), lambda module: 3, ["first"])
    with pytest.raises(TypeError, match="a sequence of names"):
        jit.to_backend_selective(Pair(), lowering(), "first")
    with pytest.raises(TypeError, match="a sequence of names"):
        jit.to_backend_selective(Pair(), lowering(), [1])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="is a function, not NoneType"):
        jit.to_backend_selective(Pair(), None, ["first"])  # type: ignore[arg-type]


def test_a_parent_with_two_names_is_not_lowered_halfway() -> None:
    original = Nest()
    original.other = original.pair

    with pytest.raises(RuntimeError, match="unique parents of selected modules; 'pair' is shared"):
        jit.to_backend_selective(original, lowering(), ["pair.first"])


def test_a_submodule_with_two_names_is_lowered_where_it_is_named() -> None:
    original = Pair()
    original.second = original.first

    lowered = jit.to_backend_selective(original, lowering(), ["first"])

    assert lowered.forward(0) == 1002 and type(lowered.second) is Add


def test_a_way_back_to_the_parent_shares_nothing() -> None:
    original = Nest()
    original.pair.first.parent = original.pair  # type: ignore[attr-defined]

    lowered = jit.to_backend_selective(original, lowering(), ["pair.second"])

    assert lowered.pair.first.parent is lowered.pair
    assert isinstance(lowered.pair.second, jit.LoweredWrapper)


@dataclass(frozen=True, slots=True)
class Frozen:
    inner: Add = field(default_factory=lambda: Add(5))

    def forward(self, x: int) -> int:
        return self.inner.forward(x)


def test_a_frozen_module_with_slots_is_cloned_and_lowered() -> None:
    original = Frozen()

    lowered = jit.to_backend_selective(original, lowering(), ["inner"])

    assert (lowered.forward(0), original.forward(0)) == (1005, 5)
    with pytest.raises(RuntimeError, match=r"'iner'\. Did you mean 'inner'"):
        jit.to_backend_selective(original, lowering(), ["iner"])


class Stubborn(Pair):
    def __setattr__(self, name: str, value: object) -> None:
        if not isinstance(value, jit.LoweredWrapper):
            super().__setattr__(name, value)


def test_a_module_that_keeps_its_child_is_told() -> None:
    with pytest.raises(RuntimeError, match="Stubborn does not let 'first' be replaced"):
        jit.to_backend_selective(Stubborn(), lowering(), ["first"])


class Held:
    """Cannot be copied."""

    def forward(self, x: int) -> int:
        return x

    def __copy__(self) -> Held:
        raise TypeError("cannot be copied")


def test_what_cannot_be_copied_is_shared() -> None:
    original = Nest()
    original.pair.first = held = Held()  # type: ignore[assignment]

    copied = jit.to_backend_selective(original, lowering(), ["pair.second"])

    assert copied.pair.first is held


class Tensor:
    """Data, though it is written in Python and has methods."""

    def sum(self) -> int:
        return 0

    def __dlpack__(self) -> None: ...


def test_what_is_data_is_shared_and_is_no_submodule() -> None:
    original = Pair()
    original.size = weights = Tensor()  # type: ignore[assignment]

    with pytest.raises(RuntimeError, match="Attribute named size is not a Module"):
        jit.to_backend_selective(original, lowering(), ["size"])
    assert jit.to_backend_selective(original, lowering(), ["first"]).size is weights
    with pytest.raises(AttributeError, match="is not a module"):
        lowering()(weights)


def test_modules_in_lists_dicts_and_tuples_are_cloned_with_the_rest() -> None:
    original = Pair()
    original.data = {"all": [original.first], "pair": (original.second, 1), "plain": (1, 2)}  # type: ignore[assignment]

    copied = jit.to_backend_selective(original, lowering(), [])

    data: Any = copied.data
    assert data["all"] == [copied.first] and data["pair"] == (copied.second, 1)
    assert data["plain"] is original.data["plain"]  # type: ignore[call-overload]


class Sparse:
    __slots__ = ("inner", "never")

    def __init__(self) -> None:
        self.inner = Add(5)

    def forward(self, x: int) -> int:
        return self.inner.forward(x)


def test_a_slot_that_holds_nothing_stays_so() -> None:
    lowered = jit.to_backend_selective(Sparse(), lowering(), ["inner"])

    assert lowered.forward(0) == 1005 and not hasattr(lowered, "never")
