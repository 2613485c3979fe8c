"""What a marker asks for, and what a program can ask likewise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlbackends.base.errors import MlBackendsError
from mlbackends.testing import why_unmet
from mlbackends.testing.machine import CURRENT, Machine
from mlbackends.testing.requirements import check_strict, demand, unmet_on

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = str(Path(__file__).resolve().parents[2] / "hosts" / "hgx-h100-eight-gpus.machine")


@pytest.fixture(autouse=True)
def machine() -> Iterator[Machine]:
    """Judge by a recorded machine."""
    recorded = Machine(HOST)
    CURRENT.append(recorded)
    yield recorded
    CURRENT.remove(recorded)


def test_the_first_that_is_not_met_is_told() -> None:
    assert why_unmet("cpu.capability>=AVX512", "cudnn>=9.1") == ""
    assert why_unmet("cpu", "cudnn>=9.10", "mps").startswith("cudnn>=9.10: cudnn is 9.1.0")


def test_a_list_can_be_counted() -> None:
    assert why_unmet("nvidia.devices>=8") == ""
    assert "required: >= 9" in why_unmet("nvidia.devices>=9")


@pytest.mark.parametrize("texts", [(), ("cudn",), ("cudnn>>9",), (9,)])
def test_what_is_no_requirement_is_refused(texts: tuple[str, ...]) -> None:
    with pytest.raises(MlBackendsError):
        why_unmet(*texts)


@pytest.mark.parametrize(
    ("names", "is_failure"),
    [((), False), (("all",), True), (("mps",), True), (("cudnn",), False), (("device",), False)],
)
def test_names_say_what_must_not_be_skipped(
    machine: Machine, names: tuple[str, ...], *, is_failure: bool
) -> None:
    found = unmet_on(machine, demand(("mps",), {}), names)

    assert found is not None and found.is_failure is is_failure


@pytest.mark.parametrize("name", ["all", "device", "attention_backend", "cudnn", "cpu.capability"])
def test_a_name_that_something_could_have_is_taken(name: str) -> None:
    check_strict(name)


@pytest.mark.parametrize("name", ["al", "cudnn>=9", "cpu.capabilities", ""])
def test_a_name_that_nothing_has_is_refused(name: str) -> None:
    with pytest.raises(MlBackendsError):
        check_strict(name)
