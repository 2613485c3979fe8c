"""The check that finds tests which no run runs, on the files that pytest itself writes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

SOURCE = Path(__file__).with_name("check_skips.py")

TEST = """
import os
import pytest

if "HAVE" not in os.environ:
    pytest.skip("the peer is not here", allow_module_level=True)

def test_with_the_peer():
    pass

@pytest.mark.skipif("MORE" not in os.environ, reason="more is not here")
def test_with_more():
    pass
"""


@pytest.fixture
def check() -> ModuleType:
    specification = importlib.util.spec_from_file_location("check_skips", SOURCE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "test_peer.py").write_text(TEST)
    return tmp_path


def _write(folder: Path, file: str, *present: str) -> str:
    out = folder / file
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={out}"]
    subprocess.run(
        [*command, f"--rootdir={folder}", folder],
        cwd=folder,
        # Other packages' plugins take longer to import than all else.
        env={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "",
            **dict.fromkeys(present, "1"),
        },
        stdout=subprocess.DEVNULL,
        check=False,
    )
    return str(out)


def test_a_module_that_one_run_skips_whole_and_another_runs_is_fine(
    check: ModuleType, run: Path
) -> None:
    without = _write(run, "without.xml")
    with_all = _write(run, "with.xml", "HAVE", "MORE")
    assert check.main([without, with_all]) == 0


def test_a_module_that_every_run_skips_whole_fails(
    check: ModuleType, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.main([_write(run, "one.xml"), _write(run, "two.xml")]) == 1
    assert "never runs: test_peer: " in capsys.readouterr().out


def test_a_test_that_every_run_skips_fails(
    check: ModuleType, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without = _write(run, "without.xml")
    with_peer = _write(run, "with.xml", "HAVE")
    assert check.main([without, with_peer]) == 1
    assert "never runs: test_peer.test_with_more: more is not here" in capsys.readouterr().out


def test_what_no_run_can_have_is_excused(
    check: ModuleType, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "NEEDS_MORE", {"test_peer": ("peer", "a peer")})
    assert check.main([_write(run, "without.xml")]) == 0
