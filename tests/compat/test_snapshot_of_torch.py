"""A recorded machine with the real torch tells and accuses as the live one does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlbackends.audit.compare import compare
from mlbackends.audit.reports import report_of
from mlbackends.audit.runner import examine
from mlbackends.audit.snapshot import record
from mlbackends.host.host import Host
from mlbackends.host.interpreter import query
from mlbackends.model.records import Presence

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_the_recording_of_an_environment_with_torch_tells_what_the_live_one_does(
    tmp_path: Path,
) -> None:
    contents = record(str(tmp_path / "copy"), Host("/", python=query(sys.executable)))

    live = report_of(depth=Presence.FOUND, python=sys.executable)
    copy = report_of(str(tmp_path / "copy"))

    assert compare(live, copy).changes == ()
    assert contents.cut == ()
    owners = {library.owner.split(" ")[0] for library in copy.probes["torch"].libraries}
    assert "torch" in owners


def test_a_file_that_torch_misses_is_missed_in_the_recording_too(tmp_path: Path) -> None:
    described = query(sys.executable)
    there = Path(torch.__file__).parent
    folder = _without(there, tmp_path / "site-packages", "libtorch.so")
    host = Host("/", python={**described, "path": [str(folder)]})
    record(str(tmp_path / "copy"), host)

    found = examine(report_of(str(tmp_path / "copy"))).failed()

    assert "wheel-files-missing" in [reason.code for reason in found]


def _without(torch_folder: Path, folder: Path, name: str) -> Path:
    """Make an environment of links that holds torch but for one of its libraries."""
    lib = folder / "torch" / "lib"
    lib.mkdir(parents=True)
    for path in torch_folder.iterdir():
        if path.name != "lib":
            (folder / "torch" / path.name).symlink_to(path)
    for path in (torch_folder / "lib").iterdir():
        if path.name != name:
            (lib / path.name).symlink_to(path)
    for path in torch_folder.parent.glob("torch-*.dist-info"):
        (folder / path.name).symlink_to(path)
    return folder
