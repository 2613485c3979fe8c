"""Every system can check out the tree: what Windows can have no file for is in archives."""

from __future__ import annotations

import subprocess
from collections import Counter
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from mlbackends.host.archive import NOT_IN_WINDOWS

ROOT = Path(__file__).resolve().parents[2]
#: Of a path on Windows by default, without the NUL at its end.
LONGEST_PATH = 259
LONG_FOLDER = "C:/Users/firstname.lastname/source/repos/ml-backends/"


def git(*arguments: str, given: str = "") -> list[str]:
    """Return what git prints, split at NUL; skip the test where this is no clone."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, input=given.encode(), capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no clone")
    return done.stdout.decode().split("\0")[:-1]


@cache
def names() -> list[str]:
    """Return the names of what is tracked, and of what will be."""
    return git("ls-files", "-z", "--cached", "--others", "--exclude-standard")


def test_no_name_is_one_that_windows_cannot_have() -> None:
    assert len(names()) > 1000
    assert [name for name in names() if NOT_IN_WINDOWS.search(name) or not name.isascii()] == []


def test_no_names_differ_by_case_alone() -> None:
    parts = {str(part) for name in names() for part in (*PurePosixPath(name).parents, name)}
    folded = Counter(part.casefold() for part in parts)

    assert sorted(part for part in parts if folded[part.casefold()] > 1) == []


def test_no_path_is_too_long_in_a_long_folder() -> None:
    assert len(LONG_FOLDER + max(names(), key=len)) <= LONGEST_PATH


def test_there_are_files_only() -> None:
    others = [line for line in git("ls-files", "-z", "--stage") if line[:3] != "100"]

    assert others == [], "links belong into archives"


def test_git_leaves_the_ends_of_lines_alone() -> None:
    fields = git("check-attr", "-z", "--stdin", "text", given="\0".join(names()))

    assert set(fields[2::3]) == {"unset"}
