from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.tracing.verbose.levels import Start, mkl_start, onednn_start

# Seen with oneMKL 2024.2 and 2026.2.
MKL = {"0": 0, "1": 1, "2": 2, "3": 0, "-1": 0, "on": 0, "true": 0, "": 0, " 1": 0, "01": 0}

# Seen with oneDNN 3.12: which lines were printed. The second says whether a level prints the same.
WORDS = {
    "0": (0, True),
    "1": (1, True),
    "2": (2, True),
    "3": (0, True),
    "all": (2, False),
    "ALL": (2, False),
    "-1": (2, False),
    "none": (0, True),
    "profile": (2, True),
    "PROFILE_EXEC": (1, True),
    "profile_create": (2, False),
    "profile_exec,profile_create": (2, True),
    "0,2": (2, True),
    "2,0": (0, True),
    "1,none": (0, True),
    " 1": (0, True),
    "1 ": (0, True),
    "01": (0, True),
    "error": (0, True),
    "warn": (0, True),
    "dispatch": (0, False),
    "check": (0, False),
    "1,dispatch": (1, False),
    "2,dispatch": (2, False),
    "bogus,1": (1, True),
    "1,filter=conv": (1, False),
    "": (0, True),
}


@pytest.mark.parametrize(("value", "level"), MKL.items())
def test_mkl_reads_its_variable_to_the_letter(value: str, level: int) -> None:
    assert mkl_start({"MKL_VERBOSE": value}) == Start(level)


@pytest.mark.parametrize("version", [None, (3, 2), (3, 12), (4, 0)])
@pytest.mark.parametrize(("value", "expected"), WORDS.items())
def test_onednn_reads_words_since_3_2(
    value: str, expected: tuple[int, bool], version: tuple[int, int] | None
) -> None:
    level, can_be_set_back = expected
    start = onednn_start({"ONEDNN_VERBOSE": value}, version)
    assert start == Start(level, "" if can_be_set_back else f"ONEDNN_VERBOSE={value}")


@pytest.mark.parametrize(
    ("value", "level"),
    [
        *[("1", 1), ("2,dispatch", 2), (" 1", 1), ("+2", 2), ("profile_exec", 0), ("9", 2)],
        *[("-1", 0), ("", 0), ("0x2", 0), ("٢", 0), ("9" * 5000, 2)],
    ],
)
def test_onednn_reads_a_leading_integer_before_3_2(value: str, level: int) -> None:
    assert onednn_start({"DNNL_VERBOSE": value}, (3, 1)) == Start(level)


@pytest.mark.parametrize(
    ("variables", "version", "level"),
    [
        ({"ONEDNN_VERBOSE": "0", "DNNL_VERBOSE": "1"}, None, 0),
        ({"ONEDNN_VERBOSE": "", "DNNL_VERBOSE": "1"}, None, 1),
        ({"MKLDNN_VERBOSE": "1"}, None, 1),
        ({"MKLDNN_VERBOSE": "1"}, (3, 12), 0),
        ({"MKLDNN_VERBOSE": "1"}, (2, 4), 1),
        ({"ONEDNN_VERBOSE": "2"}, (2, 4), 0),
        ({"ONEDNN_VERBOSE": "2"}, (2, 5), 2),
        ({}, (0, 21), 0),
    ],
)
def test_each_version_has_its_variables(
    variables: dict[str, str], version: tuple[int, int] | None, level: int
) -> None:
    assert onednn_start(variables, version).level == level


@given(st.text(), st.sampled_from([None, (0, 21), (2, 0), (2, 7), (3, 1), (3, 13)]))
def test_any_text_gives_a_level_that_can_be_set(value: str, version: tuple[int, int] | None) -> None:
    variables = dict.fromkeys(("MKL_VERBOSE", "ONEDNN_VERBOSE", "DNNL_VERBOSE"), value)
    assert mkl_start(variables).level in {0, 1, 2}
    assert onednn_start(variables, version).level in {0, 1, 2}
