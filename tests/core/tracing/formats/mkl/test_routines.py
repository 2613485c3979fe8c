"""The table of routines is whole, and arguments get their names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlbackends.tracing.formats.mkl.routines import routine, split_arguments, stems
from mlbackends.tracing.formats.mkl.work import formulas

TRACES = Path(__file__).resolve().parents[4] / "traces"


def test_there_are_the_routines_that_people_call() -> None:
    assert len(stems()) > 150
    for name in ("SGEMM", "cblas_dgemm", "dgesdd_", "LAPACKE_dpotrf_work", "scnrm2", "izamax"):
        assert routine(name)[2]


def test_no_routine_has_two_arguments_of_one_name() -> None:
    for stem in stems():
        found = [routine(prefix + stem)[2] for prefix in ("", "d", "c")]
        for names in found:
            assert len(set(names)) == len(names), stem


def test_what_work_is_known_of_is_in_the_table() -> None:
    assert {*formulas("operations"), *formulas("elements")} <= stems()


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.log")), ids=lambda path: path.stem)
def test_real_calls_have_as_many_arguments_as_the_table_says(path: Path) -> None:
    for name, arguments in re.findall(
        r"MKL_VERBOSE ([A-Za-z_]\w*)\((.*)\) .*CNR", path.read_text()
    ):
        names = routine(name)[2]
        if name != "FFT":
            assert names, name
            assert len(split_arguments(arguments, len(names))) == len(names), name


@pytest.mark.parametrize(
    ("name", "stem", "letters"),
    [("SGEMM", "gemm", "s"), ("MKL_ZOMATCOPY", "omatcopy", "mkl_z"), ("DZASUM", "asum", "dz")],
)
def test_a_name_is_a_stem_and_a_precision(name: str, stem: str, letters: str) -> None:
    assert routine(name)[:2] == (stem, letters)


def test_braces_hold_their_commas() -> None:
    assert split_arguments("dcfi8,input_strides:{0,1},tLim:1", 0) == [
        "dcfi8",
        "input_strides:{0,1}",
        "tLim:1",
    ]
    assert split_arguments("", 0) == []
