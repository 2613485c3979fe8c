"""Whose file it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mlbackends.host.host import Host
from mlbackends.libraries import owners
from mlbackends.libraries.owners import needed_of_the_system, owner_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_package_below_the_standard_library_is_found_by_its_own_folder(tmp_path: Path) -> None:
    standard = "/opt/python/lib/python3.11"
    site = f"{standard}/site-packages"
    info = tmp_path / "root" / site.lstrip("/") / "torch-2.9.0.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text("torch/lib/libtorch_cpu.so,,\n")
    (tmp_path / "host.json").write_text(json.dumps({"python": {"path": [standard, site]}}))

    assert owner_of(Host(str(tmp_path)), f"{site}/torch/lib/libtorch_cpu.so") == "torch 2.9.0"


def test_a_record_of_libraries_that_are_not_there_ends_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "root" / "site" / "thing-1.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text("".join(f"thing/{i}.so,,\n" for i in range(100)))
    (tmp_path / "host.json").write_text(json.dumps({"python": {"path": ["/site"]}}))
    monkeypatch.setattr(owners, "MOST_FILES", 10)
    looked: list[str] = []

    def extracted(self: Host, path: str, *_: object) -> str:
        looked.append(path)
        return "not there"

    monkeypatch.setattr(Host, "extracted", extracted)

    needed_of_the_system(Host(str(tmp_path)), frozenset({"libm.so.6"}))

    assert len(looked) == 10
