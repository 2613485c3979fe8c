"""What a return annotation promises, checked on the outputs of a backend, here and after a pickle."""

from __future__ import annotations

import collections.abc
import pickle
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import pytest

from mlbackends.jit import BadOutput
from mlbackends.jit.methods import Method, describe, returns_of

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")


class Point(NamedTuple):
    x: int
    y: float


class Base:
    pass


class Derived(Base):
    pass


def unpacked(annotation: Any, outputs: list[Any]) -> Any:
    """Return what a caller gets, of a method that was pickled."""
    method = pickle.loads(pickle.dumps(Method("forward", None, returns_of(annotation))))  # type: ignore[arg-type]
    return method.unpack(outputs, "chip")


CASES = [
    (int, [1, True], ["1", 1.5, None]),
    (float, [1.5, 1], ["1", 1j]),
    (complex, [1j, 1.5, 1], ["1"]),
    (None, [None], [0, ()]),
    (Base, [Base(), Derived()], [1, Base]),
    (Any, [1, None], []),
    (object, [1, None], []),
    (T, [1, None], []),
    (Annotated[int, "m"], [1], ["1"]),
    (int | None, [1, None], ["1"]),
    (list[int] | None, [[1], None], [1]),
    (list[int], [[], [1, 2]], [(1,), {}]),
    (dict[str, int], [{}, {"a": 1}], [[]]),
    (collections.abc.Sequence[int], [[1], (1,)], []),
    (type[int], [int], [1]),
]


@pytest.mark.parametrize(
    ("annotation", "right", "wrong"), CASES, ids=[str(annotation)[:40] for annotation, *_ in CASES]
)
def test_one_output_is_what_the_annotation_says(
    annotation: Any, right: list[Any], wrong: list[Any]
) -> None:
    for value in right:
        assert unpacked(annotation, [value]) is value
    for value in wrong:
        with pytest.raises(BadOutput, match="the output of forward is"):
            unpacked(annotation, [value])


@pytest.mark.parametrize(
    ("annotation", "right", "wrong"),
    [
        (tuple[int, str], [[1, "a"]], [[1, 2], [1], [1, "a", 2]]),
        (tuple[int, ...], [[], [1, 2]], []),
        (tuple, [[], [1, "a"]], []),
        (Point, [[1, 2.0], ["x", None]], [[Point(1, 2.0)]]),
    ],
)
def test_several_outputs_are_the_items_of_a_tuple(
    annotation: Any, right: list[Any], wrong: list[Any]
) -> None:
    for outputs in right:
        assert unpacked(annotation, outputs) == tuple(outputs)
    for outputs in wrong:
        with pytest.raises(BadOutput, match=r"output \d of forward|Expected 2 elements"):
            unpacked(annotation, outputs)


def test_a_named_tuple_is_made_of_its_items() -> None:
    assert type(unpacked(Point, [1, 2.0])) is Point


def test_a_class_that_is_not_imported_is_compared_by_its_name() -> None:
    class Local:
        pass

    class Below(Local):
        pass

    assert isinstance(unpacked(Local, [Below()]), Below)
    with pytest.raises(BadOutput, match=r"is int, not .*Local"):
        unpacked(Local, [1])


class Annotations:
    def plain(self) -> tuple[int, str]:
        return 1, "a"

    def for_checkers(self) -> tuple[np.ndarray, int]:
        raise NotImplementedError

    def nonsense(self) -> 1 / 0:  # type: ignore[valid-type]
        pass

    def free(self):  # type: ignore[no-untyped-def]  # noqa: ANN201
        pass


@pytest.mark.parametrize("name", ["for_checkers", "nonsense", "free"])
def test_what_cannot_be_evaluated_promises_nothing(name: str) -> None:
    method = describe(Annotations(), name)

    assert method.returns is None
    assert method.unpack([1, 2], "chip") == (1, 2)


def test_a_text_annotation_is_evaluated() -> None:
    with pytest.raises(BadOutput, match=r"Expected 2 .* returns tuple\[int, str\]"):
        describe(Annotations(), "plain").unpack([1], "chip")


def test_a_function_of_the_instance_s_own_can_be_a_method() -> None:
    class Module:
        def other(self) -> None: ...

    module = Module()
    module.forward = lambda x: x  # type: ignore[attr-defined]

    assert describe(module, "forward").inputs((1,), {}) == [1]


def test_a_method_without_a_signature_is_refused() -> None:
    class Module:
        smallest = min

        def other(self) -> None: ...

    with pytest.raises(RuntimeError, match="Method 'smallest' has no signature that can be read"):
        describe(Module(), "smallest")
