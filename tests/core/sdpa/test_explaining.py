"""Who can take a problem: ours and torch's, on devices that are not here."""

from __future__ import annotations

import pytest

from mlbackends.base.errors import UnknownName
from mlbackends.sdpa.explaining import explain
from mlbackends.sdpa.problem_text import parse
from mlbackends.switches import store

SHAPE = "--shape 2,8,1024,64 "


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("--dtype float16 --device sm90", "CUDNN_ATTENTION"),
        ("--dtype float16 --device sm80", "FLASH_ATTENTION"),
        ("--dtype float16 --device sm120", "FLASH_ATTENTION"),
        ("--dtype float16 --device sm75", "EFFICIENT_ATTENTION"),
        ("--dtype float32 --device sm90", "EFFICIENT_ATTENTION"),
        ("--dtype float64 --device sm90", "MATH"),
        ("--device cpu:avx2", "FLASH_ATTENTION"),
        ("--device cpu --dropout 0.5", "MATH"),
        ("--device cpu --value-dim 32", "MATH"),
        ("--device cpu --mask float --backward", "FLASH_ATTENTION"),
        ("--device cpu --mask float --mask-gradient", "MATH"),
        ("--dtype float16 --device sm86 --shape 2,8,1024,200", "FLASH_ATTENTION"),
        ("--dtype float16 --device sm86 --shape 2,8,1024,200 --backward", "EFFICIENT_ATTENTION"),
        ("--dtype float16 --device sm80 --shape 2,8,1024,200 --backward", "FLASH_ATTENTION"),
    ],
)
def test_torch_would_take(line: str, taken: str) -> None:
    told = explain(parse(SHAPE + line)).problems[-1]

    assert told.torch_chosen == taken
    assert not told.torch_unknown_reason


def test_all_reasons_are_told_not_only_the_first() -> None:
    (told,) = explain(parse(SHAPE + "--device sm75 --mask float --value-dim 32")).problems
    flash = next(verdict for verdict in told.torch_verdicts if verdict.backend == "FLASH_ATTENTION")

    assert {reason.code for reason in flash.reasons} == {
        "mask", "head-dim-differs", "wrong-capability", "wrong-dtype",
    }  # fmt: skip


def test_what_torch_does_elsewhere_is_said_not_to_be_known() -> None:
    (told,) = explain(parse(SHAPE + "--device gfx1102")).problems

    assert told.torch_chosen == ""
    assert "gfx1102" in told.torch_unknown_reason


def test_a_switch_that_is_off_is_a_reason_on_both_sides() -> None:
    with store.restored("cuda.math_sdp"):
        store.write("cuda.math_sdp", False)
        (told,) = explain(parse(SHAPE), ("math",)).problems

    assert not told.answered
    for verdicts in (told.verdicts, told.torch_verdicts):
        (math,) = [verdict for verdict in verdicts if verdict.answers_to == "MATH"]
        assert [reason.code for reason in math.reasons] == ["switched-off"]


def test_only_what_is_named_is_asked() -> None:
    (told,) = explain(parse(SHAPE), ("math",)).problems

    assert [verdict.backend for verdict in told.verdicts] == ["math"]


def test_a_wrong_backend_gets_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        explain(parse(SHAPE), ("maths",))
    assert "'math'" in caught.value.hint
