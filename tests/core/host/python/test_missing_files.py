"""Libraries that a RECORD names and that are not there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mlbackends.host.host import Host
from mlbackends.host.python.packages import distributions
from mlbackends.host.python.wheel_files import missing_files

if TYPE_CHECKING:
    from pathlib import Path


def missing(
    folder: Path, record: str | bytes, *there: str, platform: str = "linux"
) -> list[dict[str, object]]:
    info = folder / "root" / "site" / "thing-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_bytes(record if isinstance(record, bytes) else record.encode())
    for name in there:
        path = folder / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    (folder / "host.json").write_text(json.dumps({"platform": platform, "python": {"path": ["/site"]}}))
    host = Host(str(folder))
    return missing_files(host, [dists[0] for dists in distributions(host).values()])


@pytest.mark.parametrize(
    ("platform", "files", "example"),
    [("linux", 1, "b.so.1.2"), ("darwin", 2, "b.so.1.2"), ("win32", 2, "c.pyd")],
)
def test_missing_libraries_of_the_system_are_counted(
    tmp_path: Path, platform: str, files: int, example: str
) -> None:
    record = "thing/a.so,sha256=x,1\nthing/b.so.1.2,,\nthing/c.pyd,,\nthing/d.dylib,,\nthing/e.dll,,\n"

    assert missing(tmp_path, record, "site/thing/a.so", platform=platform) == [
        {"name": "thing", "version": "1.0", "files": files, "example": f"/site/thing/{example}"}
    ]


def test_a_library_may_have_a_date_for_its_version(tmp_path: Path) -> None:
    found = missing(tmp_path, "thing/libabsl_base.so.20250814,,\n")

    assert [package["files"] for package in found] == [1]


def test_texts_and_what_only_looks_like_a_library_are_not_asked_for(tmp_path: Path) -> None:
    record = "thing/a.py,,\nthing/some.so.txt,,\nthing/x.sources,,\nthing-1.0.dist-info/RECORD,,\n"

    assert missing(tmp_path, record) == []


def test_a_library_outside_of_the_folder_is_found(tmp_path: Path) -> None:
    assert missing(tmp_path, "../lib/libmkl_rt.so.2,,\n", "lib/libmkl_rt.so.2") == []


def test_a_path_with_a_comma_is_one_path(tmp_path: Path) -> None:
    (row,) = missing(tmp_path, '"thing/a b.so",sha256=x,1\n')

    assert row["example"] == "/site/thing/a b.so"


def test_garbage_owns_nothing(tmp_path: Path) -> None:
    assert missing(tmp_path, b"\0\xff\n,,\n" + b"x" * 100_000) == []
