from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.host.host import Host
from mlbackends.host.variables import (
    anything,
    cpu_flags,
    not_valid,
    one_of,
    steering,
    whole,
    whole_list,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("value", ["1", " 7 ", "+3", "999999999999999999"])
def test_whole_numbers_are_taken_as_c_reads_them(value: str) -> None:
    assert whole(1)(value) == ""


@pytest.mark.parametrize(
    "value", ["0", "-1", "1.5", "1_0", "0x4", "\u0664", "9" * 5000, "\0", "two"]
)
def test_what_is_no_whole_number_or_too_small_is_told_what_would_do(value: str) -> None:
    assert whole(1)(value) == "a whole number from 1 on"


def test_one_bad_part_spoils_a_list() -> None:
    assert whole_list(1)("4,2,1") == ""
    assert whole_list(1)("4,,1") != ""


def test_words_are_compared_without_their_case_unless_it_matters() -> None:
    assert one_of("GNU", "INTEL")("gnu") == ""
    assert one_of("GNU", case=True)("gnu") == "one of GNU"


def test_only_named_variables_are_shown_and_only_those_that_are_set() -> None:
    host = Host(environment={"A": "1", "SECRET": "x", "B": ""})

    assert steering(host, {"A": anything, "B": anything}) == {"environment": {"A": "1"}}
    assert steering(host, {"B": anything}) == {}


def test_a_value_that_is_not_taken_is_quoted_in_the_warning() -> None:
    host = Host(environment={"THREADS": "many\n"})

    (warning,) = not_valid(host, {"THREADS": whole()})

    assert warning.message == "THREADS is 'many\\n'; it takes a whole number from 0 on"


@pytest.mark.parametrize("text", ["", "flags", "flags\t:", "\0\ufffd:\n:::"])
def test_flags_that_cannot_be_told_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text(text)

    assert cpu_flags(Host(str(tmp_path))) == frozenset()


def test_flags_are_read_under_the_name_that_arm_gives_them(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd sve\n")

    assert cpu_flags(Host(str(tmp_path))) == {"fp", "asimd", "sve"}
