"""What the tags of installed wheels ask of the C library."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mlbackends.host.host import Host
from mlbackends.host.python.packages import distributions
from mlbackends.host.python.wheel_files import glibc_needed

if TYPE_CHECKING:
    from pathlib import Path


def needed(folder: Path, *tags: str) -> dict[str, str]:
    info = folder / "root" / "site" / "thing-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "WHEEL").write_text("Wheel-Version: 1.0\n" + "".join(f"Tag: {tag}\n" for tag in tags))
    (folder / "host.json").write_text(json.dumps({"python": {"path": ["/site"]}}))
    host = Host(str(folder))
    return glibc_needed(host, [dists[0] for dists in distributions(host).values()])


@pytest.mark.parametrize(
    ("tags", "version"),
    [
        (["cp311-cp311-manylinux_2_28_x86_64"], "2.28"),
        (["py3-none-manylinux_2_27_aarch64"], "2.27"),
        (["cp311-cp311-manylinux_2_34_x86_64", "cp311-cp311-manylinux_2_28_x86_64"], "2.28"),
        (["cp311-cp311-manylinux_2_28_x86_64.manylinux_2_34_x86_64"], "2.28"),
    ],
)
def test_the_least_that_a_wheel_asks_for_is_told(tmp_path: Path, tags: list[str], version: str) -> None:
    assert needed(tmp_path, *tags) == {"thing": version}


@pytest.mark.parametrize(
    "tags",
    [
        [],
        ["py3-none-any"],
        ["cp311-cp311-linux_x86_64"],
        ["cp311-cp311-musllinux_1_2_x86_64"],
        ["cp311-cp311-manylinux2014_x86_64"],
        ["cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-manylinux2014_x86_64"],
        ["cp311-cp311-manylinux_2_28_x86_64", "cp311-cp311-linux_x86_64"],
        ["cp311-cp311-manylinux_2_5_x86_64", "cp311-cp311-manylinux_2_28_x86_64"],
        ["cp311-cp311-manylinux_9999_1_x86_64", "nonsense", ""],
        ["cp312-cp312-macosx_11_0_arm64"],
    ],
)
def test_what_any_machine_serves_is_left_out(tmp_path: Path, tags: list[str]) -> None:
    assert needed(tmp_path, *tags) == {}
