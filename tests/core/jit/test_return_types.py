"""What an annotation promises, checked on values, here and after a pickle."""

from __future__ import annotations

import collections.abc
import pickle
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NewType, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.jit.methods import describe, parse

if TYPE_CHECKING:
    import numpy as np
    from somewhere import Batch  # type: ignore[import-not-found]

T = TypeVar("T")
Meters = NewType("Meters", int)


class Point(NamedTuple):
    x: int
    y: float


class Base:
    pass


class Derived(Base):
    pass


CASES = [
    (int, [1, True], ["1", 1.5, None]),
    (float, [1.5, 1], ["1", 1j]),
    (complex, [1j, 1.5, 1], ["1"]),
    (None, [None], [0, ()]),
    (Base, [Base(), Derived()], [1, Base]),
    (Any, [1, None], []),
    (object, [1, None], []),
    (T, [1, None], []),
    (Meters, [1], ["1"]),
    (Annotated[int, "m"], [1], ["1"]),
    (int | None, [1, None], ["1"]),
    (list[int] | None, [[1], None], [("x",), 1]),
    (list[int], [[], [1, 2]], [[1, "x"], (1,), {}]),
    (list[list[int]], [[[1]]], [[["x"]], [1]]),
    (list, [[1, "x"]], [(1,)]),
    (set[str], [{"a"}], [{1}, ["a"]]),
    (dict[str, int], [{}, {"a": 1}], [{"a": "b"}, []]),
    (collections.abc.Sequence[int], [[1], (1,)], []),
    (collections.abc.Callable[[int], int], [len], []),
    (tuple[int, str], [(1, "a")], [(1, 2), (1,), (1, "a", 2), [1, "a"]]),
    (tuple[int, ...], [(), (1, 2)], [("a",), [1]]),
    (tuple[()], [()], [(1,)]),
    (tuple, [(), (1, "a")], [[1]]),
    (Point, [Point(1, 2.0)], [(1, 2.0), Point("x", 1)]),  # type: ignore[arg-type]
    (type[int], [int], [1]),
    (Literal["a", 1], ["a", 1], [None, 1.5]),
]


@pytest.mark.parametrize(
    ("annotation", "right", "wrong"), CASES, ids=[str(annotation)[:40] for annotation, *_ in CASES]
)
def test_a_value_is_what_the_annotation_says(
    annotation: Any, right: list[Any], wrong: list[Any]
) -> None:
    check = parse(annotation)

    for each in (check, pickle.loads(pickle.dumps(check))):
        assert [value for value in right if not each.matches(value)] == []
        assert [value for value in wrong if each.matches(value)] == []
        assert each.text


def test_a_class_that_is_not_imported_is_known_by_its_name() -> None:
    class Local:
        pass

    class Below(Local):
        pass

    check = pickle.loads(pickle.dumps(parse(Local)))

    assert check.matches(Local()) and check.matches(Below()) and not check.matches(1)


class Annotations:
    def plain(self) -> int:
        return 1

    def for_checkers(self) -> tuple[np.ndarray, list[np.ndarray] | None, int]:
        raise NotImplementedError

    def generic(self) -> list[Batch[int] | None]:
        raise NotImplementedError

    def dunder(self) -> np.__nothing__:  # type: ignore[name-defined]
        raise NotImplementedError

    def nonsense(self) -> 1 / 0:  # type: ignore[valid-type]
        pass

    def free(self):  # type: ignore[no-untyped-def]  # noqa: ANN201
        pass


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain", "int"),
        ("for_checkers", "tuple[np.ndarray, list[np.ndarray] | None, int]"),
        ("generic", "list[Batch[int] | None]"),
    ],
)
def test_a_text_annotation_is_shown_as_it_is_written(name: str, text: str) -> None:
    returns = describe(Annotations(), name).returns
    assert returns is not None
    assert returns.text == text


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("plain", [1], ["1"]),
        ("for_checkers", [("a", [1], 1), ("a", None, 1)], [("a", [1], "1"), ("a", 1), 1]),
        ("generic", [["anything"]], [1]),
        ("dunder", ["anything"], []),
        ("nonsense", ["anything"], []),
    ],
)
def test_unknown_names_in_a_text_annotation_accept_anything(
    name: str, right: list[Any], wrong: list[Any]
) -> None:
    returns = describe(Annotations(), name).returns
    assert returns is not None
    assert all(map(returns.matches, right))
    assert not any(map(returns.matches, wrong))


def test_a_method_without_an_annotation_promises_nothing() -> None:
    assert describe(Annotations(), "free").returns is None


def test_an_annotation_sees_the_names_around_the_method() -> None:
    class Around:
        pass

    class Module:
        def forward(self) -> Around:
            return Around()

    check = describe(Module(), "forward").returns
    assert check is not None
    assert check.matches(Around()) and not check.matches(1)


class Lazy(NamedTuple):
    batch: Batch
    number: int


def test_a_named_tuple_of_unknown_classes_accepts_any_items() -> None:
    assert parse(Lazy).matches(Lazy("anything", 1))


def test_a_function_of_the_instance_s_own_can_be_a_method() -> None:
    class Module:
        def other(self) -> None: ...

    module = Module()
    late: int

    def forward(x: int) -> type[late]:  # type: ignore[valid-type]
        return late  # type: ignore[return-value]

    module.forward = forward  # type: ignore[attr-defined]

    assert describe(module, "forward").inputs((1,), {}) == [1]
    late = 1


def test_a_method_without_a_signature_is_refused() -> None:
    class Module:
        smallest = min

        def other(self) -> None: ...

    with pytest.raises(RuntimeError, match="Method 'smallest' has no signature that can be read"):
        describe(Module(), "smallest")


@pytest.mark.parametrize("outputs", [[], [1], [1, 2, 3]])
def test_a_tuple_of_any_length_takes_all_outputs(outputs: list[int]) -> None:
    class Module:
        def forward(self) -> tuple[int, ...]:
            return ()

    method = describe(Module(), "forward")

    assert method.unpack(outputs, "chip") == tuple(outputs)
    with pytest.raises(RuntimeError, match="the outputs of forward"):
        method.unpack([*outputs, "x"], "chip")


def test_a_named_tuple_is_made_of_its_items() -> None:
    class Module:
        def forward(self) -> Point:
            return Point(1, 2.0)

    method = describe(Module(), "forward")

    assert method.unpack([1, 2.0], "chip") == Point(1, 2.0)
    assert type(method.unpack([1, 2.0], "chip")) is Point
    with pytest.raises(RuntimeError, match="Expected 2 elements"):
        method.unpack([Point(1, 2.0)], "chip")


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=2) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=1), inner, max_size=2)
    ),
    max_leaves=6,
)


@given(values)
def test_a_union_matches_what_one_of_its_options_does(value: Any) -> None:
    options = [list, dict, str, None]

    union = parse(list[int] | dict[str, Any] | str | None)

    assert union.matches(value) == any(parse(option).matches(value) for option in options)
