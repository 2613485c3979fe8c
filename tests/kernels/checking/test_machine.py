"""What `backends bench` times: a file on a disk, and libraries that may be missing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from mlbackends_kernels.checking import machine, measures, serving

if TYPE_CHECKING:
    from pathlib import Path


class Usage(NamedTuple):
    free: int


@pytest.mark.parametrize("action", ["write", "read"])
def test_a_file_has_no_name_and_a_known_size(action: str, tmp_path: Path) -> None:
    measure = machine.Disk(action, str(tmp_path))
    measure.call()
    assert 1 << 20 <= int(measure.details["bytes"]) <= 64 << 20
    assert action in measure.details["by"]
    measure.file.close()
    assert [*tmp_path.iterdir()] == []


def test_a_disk_that_is_almost_full_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(100 << 20))
    with pytest.raises(serving.Refused, match="100 MiB free"):
        machine.Disk("write", str(tmp_path))


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(serving.Refused, match="no file could be written"):
        machine.responder("disk-write")({"do": "prepare", "folder": str(tmp_path / "none")})


@pytest.mark.parametrize("name", ["product", "attention"])
def test_without_numpy_it_is_refused_and_memory_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    request: dict[str, Any] = {"do": "prepare"}
    with pytest.raises(serving.Refused, match="numpy"):
        machine.responder(name)(request)
    if measures.compiled("read") is not None:
        assert measures.bandwidth().call() is None
