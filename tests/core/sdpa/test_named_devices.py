"""The devices that can be asked about: every row is a device that rules can judge."""

from __future__ import annotations

import pytest

from mlbackends.model.errors import UnknownName
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.sdpa.named_devices import NAMED, NamedDevice, check_name, device

SPEC = TensorSpec((1, 1, 2, 8), "float32")


@pytest.mark.parametrize("row", NAMED.values(), ids=lambda row: row.name)
def test_a_row_says_what_it_is_and_who_says_so(row: NamedDevice) -> None:
    assert row.title and row.source
    assert not row.here
    assert device(row.name) is row
    problem = AttentionProblem(query=SPEC, key=SPEC, value=SPEC, device=row.device)
    assert (problem.capability is None) is (problem.platform != "cuda")


def test_the_digits_of_a_name_are_the_capability() -> None:
    assert device("sm90").device.capability == "9.0"
    assert device("sm121").device.capability == "12.1"
    assert device("gfx942").device.capability == "gfx942"


def test_this_machine_is_here() -> None:
    assert device("cpu").here


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("sm9", "sm90"), ("gfx943", "gfx942"), ("cpu:avx3", "cpu:avx2"), ("SM80", "sm80")],
)
def test_a_wrong_name_gets_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(UnknownName) as caught:
        check_name(typed)
    assert meant in caught.value.hint
