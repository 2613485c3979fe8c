"""Which attention backends a test can run with."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbackends.base.errors import NoBackend, UnknownName
from mlbackends.testing.attention import AttentionChoice, check_name, choices, usable, verdicts
from mlbackends.testing.devices import Choice
from mlbackends.testing.machine import Machine

HOSTS = Path(__file__).resolve().parents[2] / "hosts"
MAC = Machine(str(HOSTS / "macbook-m3.machine"))


def test_the_plain_formula_is_usable_wherever_a_test_runs() -> None:
    assert verdicts(MAC, "cpu")["math"] == ""
    assert verdicts(MAC, "mps")["math"] == ""


def test_a_backend_for_gpus_says_why_not_on_the_cpu() -> None:
    assert "needs cuda tensors" in verdicts(MAC, "cpu")["efficient_cuda"]


def test_a_device_that_is_not_usable_has_no_verdicts() -> None:
    with pytest.raises(LookupError, match="cuda is not usable"):
        verdicts(MAC, "cuda")


def test_what_is_not_named_and_cannot_is_left_out() -> None:
    found = {choice.name for choice in choices(MAC, [Choice("cpu")], (), None)}

    assert "math" in found and "efficient_cuda" not in found


def test_what_is_named_and_cannot_stands_there_once() -> None:
    (choice,) = choices(MAC, [Choice("cpu"), Choice("mps")], ("efficient_cuda",), None)

    assert choice.device == "cpu"
    assert "on cpu" in choice.why and "on mps" in choice.why


def test_what_is_asked_for_and_not_marked_is_told() -> None:
    (choice,) = choices(MAC, [Choice("cpu")], ("math",), ("efficient_cuda",))

    assert choice.name == "efficient_cuda" and choice.why


def test_the_chosen_backend_computes_and_no_other() -> None:
    numpy = pytest.importorskip("numpy")
    chosen = usable(AttentionChoice("efficient_cuda", "cpu"))
    ones = numpy.ones((1, 1, 4, 8), "float32")

    with pytest.raises(NoBackend, match="efficient_cuda"):
        chosen.attend(ones, ones, ones)
    assert usable(AttentionChoice("math", "cpu")).attend(ones, ones, ones).shape == ones.shape


def test_an_unknown_backend_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        check_name("mathh")

    assert "math" in caught.value.hint
