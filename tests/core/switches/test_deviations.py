"""The list of deviations as data; tests/compat/test_deviations.py shows each beside torch."""

from __future__ import annotations

import re
from typing import Any

import pytest

import mlbackends
from mlbackends.switches.deviations import DEVIATIONS, Deviation
from mlbackends.switches.table import SWITCHES

each_one = pytest.mark.parametrize("deviation", DEVIATIONS, ids=lambda each: each.code)


def test_codes_are_unique() -> None:
    codes = [deviation.code for deviation in DEVIATIONS]

    assert len(set(codes)) == len(codes)


@each_one
def test_a_deviation_is_told_in_sentences(deviation: Deviation) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", deviation.code)
    for text in (deviation.torch, deviation.ours, deviation.why):
        assert re.fullmatch(r"\S.*[.]", text)
        assert "\n" not in text
        assert "  " not in text


@each_one
def test_a_deviation_names_what_is_there(deviation: Deviation) -> None:
    assert deviation.names
    for name in deviation.names:
        if "*" in name or name in SWITCHES or name == "m" or name.startswith("xeon.run_cpu"):
            continue
        found: Any = mlbackends
        for part in name.split("."):
            found = getattr(found, part)
