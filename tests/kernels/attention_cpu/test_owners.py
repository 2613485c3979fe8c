"""What the library reads of arrays by itself is what the arrays say of themselves."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from mlbackends_kernels.attention_cpu import library, owners


def is_built() -> bool:
    try:
        library.library()
    except library.NotBuilt:
        return False
    return True


pytestmark = pytest.mark.skipif(not is_built(), reason="the library was not built")
OWNER = owners.owner_of(np.ndarray)
WHOLE = np.arange(120, dtype="float32").reshape(2, 3, 4, 5)


@pytest.mark.parametrize(
    "array",
    [
        *(WHOLE, WHOLE.T, WHOLE[:, ::-1], WHOLE[1:, 1], WHOLE[0, 0, 0], WHOLE[..., None, 0]),
        *(
            np.zeros(()),
            np.zeros((0, 3)),
            np.broadcast_to(np.ones(1, bool), (7, 7)),
        ),
        np.zeros(9, "uint8")[1:].view("float64"),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}{list(array.strides)}",
)
def test_an_array_is_read_as_it_tells_of_itself(array: Any) -> None:
    assert OWNER is not None
    found = owners.layout_of(OWNER, array)
    assert found is not None
    *sizes, element, rank = library.LAYOUT.unpack(found[0])
    assert found[1] == array.__array_interface__["data"][0]
    assert rank == array.ndim
    assert tuple(sizes[:rank]) == array.shape
    assert tuple(sizes[4 : 4 + rank]) == array.strides
    assert element == id(array.dtype)


class Mine(np.ndarray):
    """A subclass, which may answer for its memory in its own way."""


@pytest.mark.parametrize(
    "thing",
    [None, 1, "text", [1.0], memoryview(b"1"), WHOLE.view(Mine), np.ones((1,) * 5), np.float32(1)],
    ids=lambda thing: type(thing).__name__,
)
def test_what_is_no_array_of_up_to_four_dimensions_is_not_read(thing: Any) -> None:
    assert OWNER is not None
    assert owners.layout_of(OWNER, thing) is None


def test_only_exact_types_have_an_owner() -> None:
    assert owners.owner_of(Mine) is None
    assert owners.owner_of(list) is None


def test_fields_that_lie_elsewhere_are_noticed() -> None:
    header = object.__basicsize__
    assert owners._is_as_thought(header, WHOLE)
    assert not owners._is_as_thought(header - 8, WHOLE)
    assert not owners._type_is_last(header - 8, WHOLE)
    assert owners._content_is_last()


def test_another_python_or_another_layout_of_arrays_has_no_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owners.owner_of.cache_clear()
    try:
        monkeypatch.setattr(owners, "_arrays_are_as_thought", lambda _: False)
        assert owners.owner_of(np.ndarray) is None
        owners.owner_of.cache_clear()
        monkeypatch.undo()
        monkeypatch.setattr("sys.implementation.name", "pypy")
        assert owners.owner_of(np.ndarray) is None
    finally:
        monkeypatch.undo()
        owners.owner_of.cache_clear()


def test_the_packed_structures_are_as_long_as_the_librarys() -> None:
    assert OWNER is not None and len(OWNER) == 3 * ctypes.sizeof(ctypes.c_void_p)
    assert library.LAYOUT.size == 10 * 8
