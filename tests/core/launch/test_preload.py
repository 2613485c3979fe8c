"""Libraries to preload, and where they are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlbackends.launch.variables import find_library, is_preloaded, library_folders

if TYPE_CHECKING:
    from pathlib import Path


def test_folders_of_the_environment_come_before_the_systems() -> None:
    folders = library_folders({"CONDA_PREFIX": "/c", "VIRTUAL_ENV": "/v", "HOME": "/h"})
    assert folders[:8] == [
        "/c/lib",
        "/v/lib",
        "/.local/lib",
        "/h/.local/lib",
        "/usr/local/lib",
        "/usr/local/lib64",
        "/usr/lib",
        "/usr/lib64",
    ]


def test_the_plain_name_goes_before_a_numbered_one(tmp_path: Path) -> None:
    (tmp_path / "libjemalloc.so.2").touch()
    (tmp_path / "libjemalloc.so.backup").touch()
    assert find_library("jemalloc", [str(tmp_path)]).endswith("libjemalloc.so.2")
    (tmp_path / "libjemalloc.so").touch()
    assert find_library("jemalloc", [str(tmp_path)]).endswith("libjemalloc.so")


def test_a_folder_of_the_name_or_a_missing_folder_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "libtcmalloc.so").mkdir()
    (tmp_path / "libtcmalloc_minimal.so").touch()
    assert not find_library("tcmalloc", [str(tmp_path / "none"), str(tmp_path)])


def test_a_library_counts_as_preloaded_from_wherever_it_comes() -> None:
    assert is_preloaded("tcmalloc", ["/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4"])
    assert not is_preloaded("tcmalloc", ["/usr/lib/libtcmalloc_minimal.so"])
