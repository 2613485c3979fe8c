"""The environment that a program gets."""

from __future__ import annotations

import os

import pytest

from mlbackends.inject.start import HOOK_FOLDER, environment_with
from mlbackends.inject.steps import plan

BENCHMARK = plan({"cudnn.benchmark": True})


def test_without_steps_the_import_path_stays_as_it_is() -> None:
    made = environment_with(plan({"mkl.num_threads": 3}), {"PYTHONPATH": "/a", "KEPT": "1"})
    assert made == {"PYTHONPATH": "/a", "KEPT": "1", "MKL_NUM_THREADS": "3"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "{}"),
        ("/a", "{}:/a"),
        ("/a:", "{}:/a:"),
        (":", "{}::"),
        ("{}:/a", "{}:/a"),
        ("/a:{}", "{}:/a"),
    ],
)
def test_the_hook_stands_first_and_once_and_adds_no_current_folder(before: str, after: str) -> None:
    folder = HOOK_FOLDER
    before, after = (text.replace(":", os.pathsep).format(folder) for text in (before, after))
    made = environment_with(BENCHMARK, {"PYTHONPATH": before})
    assert made["PYTHONPATH"] == after


def test_a_variable_that_is_set_already_is_replaced() -> None:
    made = environment_with(plan({"openmp.num_threads": "2"}), {"OMP_NUM_THREADS": "16"})
    assert made["OMP_NUM_THREADS"] == "2"


def test_the_steps_of_a_run_around_go_where_there_are_none_now() -> None:
    outer = environment_with(BENCHMARK, {})
    assert "MLBACKENDS_CARRIED" not in environment_with(plan({"cudnn.benchmark_limit": None}), outer)


def test_an_empty_text_is_a_value() -> None:
    assert environment_with(plan({"mkldnn.verbose_level": ""}), {}) == {"ONEDNN_VERBOSE": ""}
