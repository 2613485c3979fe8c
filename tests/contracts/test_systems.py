"""What tests/systems holds: the README's table is fresh, and every line that excuses a test names one."""

from __future__ import annotations

import json
import sys
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = ROOT / "tests" / "systems"
sys.path.append(str(SYSTEMS))

import not_here  # noqa: E402
import table  # noqa: E402

RESULTS = sorted((SYSTEMS / "results").glob("*.json"))
JOBS = tomllib.loads((SYSTEMS / "jobs.toml").read_text(encoding="utf-8"))


def test_the_page_has_the_table_that_the_results_make() -> None:
    renew = "python tests/systems/table.py --write"
    assert table.PAGE.read_text(encoding="utf-8") == table.renewed(), renew


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_a_result_is_of_a_job_and_right(file: Path) -> None:
    result = json.loads(file.read_text(encoding="utf-8"))
    assert file.stem in JOBS
    assert not any(result["checks"].values())
    assert {counts["failed"] for counts in result["tests"].values()} <= {0}


def test_what_ci_leaves_to_the_nightly_job_is_in_it() -> None:
    marker = "@pytest.mark.nightly"
    for file in (ROOT / "tests").rglob("test_*.py"):
        if f"\n{marker}\n" in file.read_text(encoding="utf-8"):
            path = file.relative_to(ROOT).as_posix()
            assert path.startswith(tuple(f"{part}/" for part in JOBS["nightly"]["tests"])), path


def test_every_excused_test_is_there() -> None:
    files = [file.relative_to(ROOT).as_posix() for file in (ROOT / "tests").rglob("test_*.py")]
    for system, lines in tomllib.loads(not_here.TABLE.read_text(encoding="utf-8")).items():
        for line, why in lines.items():
            pattern, _, function = line.partition("::")
            found = [file for file in files if fnmatchcase(file, pattern)]
            assert found, f"{system}: no file is {pattern}"
            name = f"def {function.partition('[')[0]}("
            assert not function or name in (ROOT / found[0]).read_text(encoding="utf-8"), line
            assert why
