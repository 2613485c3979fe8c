"""Whose file it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mlbackends.host.host import Host
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
