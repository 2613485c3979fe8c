"""Sizes in problem descriptors."""

from __future__ import annotations

import pytest

from mlbackends.tracing.formats.onednn.work import listed_sizes, named_sizes


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("m128n64k256", {"m": 128, "n": 64, "k": 256}),
        ("mb2_g1ic3oc4_iw7", {"mb": 2, "g": 1, "ic": 3, "oc": 4, "iw": 7}),
        ("l1t10mb4", {"l": 1, "t": 10, "mb": 4}),
        ("128x256", None),
        ("*x*", None),
        ("", None),
    ],
)
def test_names_and_numbers(problem: str, expected: dict[str, int] | None) -> None:
    assert named_sizes(problem) == expected


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("128", ((128,),)),
        ("2x3:3x4", ((2, 3), (3, 4))),
        ("2x3:", None),
        ("*x3:3x4", None),
        ("m1n2", None),
    ],
)
def test_lists(problem: str, expected: object) -> None:
    assert listed_sizes(problem) == expected
