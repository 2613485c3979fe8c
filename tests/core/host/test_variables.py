from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.base.tables import table
from mlbackends.host.cpu.cpuinfo import cpu_flags
from mlbackends.host.declared import not_valid, steering, valid_instead
from mlbackends.host.host import Host

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("value", ["1", " 7 ", "+3", "999999999999999999"])
def test_whole_numbers_are_taken_as_c_reads_them(value: str) -> None:
    assert valid_instead(value, {"minimum": 1}) == ""


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "1_0", "0x4", "\u0664", "9" * 5000, "\0", "two"])
def test_what_is_no_whole_number_or_too_small_is_told_what_would_do(value: str) -> None:
    assert valid_instead(value, {"minimum": 1}) == "a whole number of at least 1"


def test_one_bad_part_spoils_a_list() -> None:
    rule = {"minimum": 1, "list": True}

    assert valid_instead("4,2,1", rule) == ""
    assert valid_instead("4,,1", rule) == "whole numbers of at least 1, separated by commas"


def test_words_are_compared_without_their_case_unless_it_matters() -> None:
    assert valid_instead(" gnu", {"one_of": ["GNU", "INTEL"]}) == ""
    assert valid_instead("gnu", {"one_of": ["GNU"], "case": True}) == "one of GNU"


def test_a_pattern_is_matched_in_lower_case_and_told_in_words() -> None:
    rule = {"pattern": "avx[0-9]+", "meaning": "AVX2 or AVX512"}

    assert valid_instead(" AVX2 ", rule) == ""
    assert valid_instead("SSE2", rule) == "AVX2 or AVX512"


@pytest.mark.parametrize("probe", sorted(table("host/variables")))
def test_every_rule_of_the_table_can_be_read(probe: str) -> None:
    rules = [rule for rule in table("host/variables")[probe].values() if rule]

    assert all(valid_instead("\0", rule) for rule in rules)


def test_only_named_variables_are_shown_and_only_those_that_are_set() -> None:
    host = Host(environment={"MKL_CBWR": "AUTO", "SECRET": "x", "MKL_DYNAMIC": ""})

    assert steering(host, "mkl") == {"environment": {"MKL_CBWR": "AUTO"}}
    assert steering(host, "tbb") == {}
    assert steering(host, "thing_without_variables") == {}


def test_a_value_that_is_not_taken_is_quoted_in_the_warning() -> None:
    host = Host(environment={"OPENBLAS_LOOPS": "many\n"})

    (warning,) = not_valid(host, "openblas")

    assert warning.message == "OPENBLAS_LOOPS is 'many\\n'; it must be a whole number of at least 0"


@pytest.mark.parametrize("text", ["", "flags", "flags\t:", "\0\ufffd:\n:::"])
def test_flags_that_cannot_be_told_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_bytes(text.encode())

    assert cpu_flags(Host(str(tmp_path))) == frozenset()


def test_flags_are_read_under_the_name_that_arm_gives_them(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd sve\n")

    assert cpu_flags(Host(str(tmp_path))) == {"fp", "asimd", "sve"}
