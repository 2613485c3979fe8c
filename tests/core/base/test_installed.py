"""The version of an installed distribution, and the command that installs an extra's packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.base.installed import install_command, installed_version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

METADATA = """\
Metadata-Version: 2.4
Name: mlbackends
Requires-Dist: msgspec>=0.19
Requires-Dist: numpy>=2.0; extra == 'kernels'
Requires-Dist: ml-dtypes; extra == "kernels"
Requires-Dist: zstandard>=0.22; (python_version < '3.14') and extra == 'zstd'
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a folder that alone is in the import path."""
    monkeypatch.setattr("sys.path", [str(tmp_path / "absent.zip"), str(tmp_path)])
    for function in (install_command, installed_version):
        function.cache_clear()
    yield tmp_path
    for function in (install_command, installed_version):
        function.cache_clear()


def test_the_command_names_what_an_extra_needs(path: Path) -> None:
    """It works however mlbackends was installed: its own name is on no package index."""
    (path / "mlbackends-0.1.0.dist-info").mkdir()
    (path / "mlbackends-0.1.0.dist-info" / "METADATA").write_text(METADATA)

    assert install_command("kernels") == "pip install 'numpy>=2.0' ml-dtypes"
    assert install_command("zstd", "more") == "pip install 'zstandard>=0.22' more"


def test_without_metadata_it_is_the_clone(path: Path) -> None:
    assert install_command("kernels") == "pip install -e '.[kernels]' in the clone"


def test_a_version_is_that_of_the_metadata(path: Path) -> None:
    assert installed_version("torch") == ""
    installed_version.cache_clear()
    (path / "torch-2.13.0+cpu.dist-info").mkdir()
    (path / "torch_geometric-2.6.dist-info").mkdir()
    assert installed_version("torch") == "2.13.0+cpu"
