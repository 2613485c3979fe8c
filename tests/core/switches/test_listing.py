"""The list of switches as records."""

from __future__ import annotations

import pytest

from mlbackends.base.errors import UnknownName
from mlbackends.switches import listing
from mlbackends.switches.table import SWITCHES


def test_a_module_stands_for_all_that_is_below_it() -> None:
    names = [flag.name for flag in listing.listing(("cuda.matmul", "mha")).flags]

    assert names == [name for name in SWITCHES if name.startswith(("cuda.matmul.", "mha."))]


def test_part_of_a_word_stands_for_nothing() -> None:
    with pytest.raises(UnknownName) as caught:
        listing.listing(("cuda.mat",))

    assert "cuda.matmul" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "accepts"),
    [
        ("cudnn.benchmark", "true, false"),
        ("cudnn.fp32_precision", "none, ieee, tf32"),
        ("cuda.sdp_priority_order",
         "any order of math, flash_attention, efficient_attention, cudnn_attention, overrideable"),
        ("mkl.num_threads", "int"),
        ("xnnpack.enabled", ""),
    ],
)  # fmt: skip
def test_what_a_switch_takes_is_said_in_words(name: str, accepts: str) -> None:
    assert listing.accepts(SWITCHES[name]) == accepts


def test_an_older_switch_without_a_word_for_the_state_tells_its_problem() -> None:
    from mlbackends.switches import store

    with store.applied({"cuda.matmul.fp32_precision": "tf32"}):
        (switch,) = listing.listing(("cuda.matmul.allow_tf32",)).flags

    assert switch.value is None
    assert "mix of the legacy and new APIs" in switch.problem
