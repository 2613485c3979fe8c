"""Machine code is read from a folder of this user's own alone."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from mlbackends_kernels.cuda.kernels import cache_folder

if TYPE_CHECKING:
    from pathlib import Path

if sys.platform == "win32":
    pytest.skip("the modes and owners are those of POSIX", allow_module_level=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "mlbackends" / "kernels"


def test_it_is_made_for_this_user(folder: Path) -> None:
    assert cache_folder() == folder
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_others_may_not_write_to_it(folder: Path, mode: int) -> None:
    folder.mkdir(parents=True)
    folder.chmod(mode)
    with pytest.raises(PermissionError, match="other users can write"):
        cache_folder()


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root gives a folder away")
def test_it_is_nobody_elses(folder: Path) -> None:
    folder.mkdir(parents=True)
    os.chown(folder, 12345, -1)
    with pytest.raises(PermissionError):
        cache_folder()
