"""Whose file it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mlbackends.host.host import Host
from mlbackends.libraries.consumers import MOST_FILES, needed_of_the_system
from mlbackends.libraries.owners import owner_of

if TYPE_CHECKING:
    from pathlib import Path


def test_a_package_below_the_standard_library_is_found_by_its_own_folder(tmp_path: Path) -> None:
    standard = "/opt/python/lib/python3.11"
    site = f"{standard}/site-packages"
    info = tmp_path / "root" / site.lstrip("/") / "torch-2.9.0.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text("torch/lib/libtorch_cpu.so,,\n")
    (tmp_path / "host.json").write_text(json.dumps({"python": {"path": [standard, site]}}))

    assert owner_of(Host(str(tmp_path)), f"{site}/torch/lib/libtorch_cpu.so") == "torch 2.9.0"


class CountingHost(Host):
    """Counts the files from which something is extracted; none of them exists."""

    extractions = 0

    def extracted(self, path: str, *_: object, **__: object) -> Any:
        self.extractions += 1
        raise FileNotFoundError(path)


def test_a_record_of_libraries_that_do_not_exist_ends_the_search(tmp_path: Path) -> None:
    info = tmp_path / "root" / "site" / "thing-1.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text("".join(f"thing/{i}.so,,\n" for i in range(MOST_FILES + 100)))
    (tmp_path / "host.json").write_text(json.dumps({"python": {"path": ["/site"]}}))
    host = CountingHost(str(tmp_path))

    needed_of_the_system(host, frozenset({"libm.so.6"}))

    assert host.extractions == MOST_FILES
