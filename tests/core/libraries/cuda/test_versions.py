from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.host.host import Host
from mlbackends.libraries.cuda.driver import (
    cuda_of_driver,
    decode,
    driver_for,
    driver_release,
    release_in,
    too_old_for,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("number", "release"),
    [
        (13020, "13.2"),
        (12080, "12.8"),
        (11080, "11.8"),
        (10020, "10.2"),
        (8000, "8.0"),
        (13000, "13.0"),
        *((number, "") for number in (0, -1, 7, 999, 13021, 2**31 - 1, -(2**31))),
    ],
)
def test_a_number_is_decoded(number: int, release: str) -> None:
    assert decode(number) == release


@pytest.mark.parametrize(
    ("line", "release"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19", "535.129.03"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release",
            "580.65.06",
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  390.157  Wed Oct 12", "390.157"),
        ("libcuda.so.550.54.14", "550.54.14"),
        ("libcuda.so.1.1", ""),
        ("libnvidia-ml.so.1", ""),
        ("gcc version 12.2.0 (Debian 12.2.0-14)", ""),
        ("1580.65.06", ""),
        ("", ""),
    ],
)
def test_a_release_is_found_in_a_line(line: str, release: str) -> None:
    assert release_in(line) == release


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("580.95.05", "13.0"),
        ("580.65.06", "13.0"),
        ("575.51.03", "12.9"),
        ("575.51.02", "12.8"),
        ("535.129.03", "12.2"),
        ("525.60.13", "12.0"),
        ("470.256.02", "11.4"),
        ("450.36.06", "11.0"),
        ("390.157", "9.1"),
        ("340.108", ""),
        ("999.10", "13.3"),
        ("garbage", ""),
        ("", ""),
    ],
)
def test_a_driver_serves_a_cuda_release(driver: str, cuda: str) -> None:
    assert cuda_of_driver(driver) == cuda


@pytest.mark.parametrize(
    ("cuda", "driver"),
    [
        ("13.2", "580"),
        ("13.0.96", "580"),
        ("12.9", "525"),
        ("11.8", "450"),
        ("10.2", "440.33"),
        ("6.5", ""),
        ("x", ""),
    ],
)
def test_a_cuda_release_needs_a_driver(cuda: str, driver: str) -> None:
    assert driver_for(cuda) == driver


@pytest.mark.parametrize(
    ("driver", "cuda", "answer"),
    [
        ("575.57.08", "13.0", True),
        ("580.65.06", "13.9", False),
        ("525.60.13", "12.9", False),
        ("520.61.05", "12.0", True),
        ("440.33.01", "10.2", False),
        ("440.31", "10.2", True),
        ("", "13.0", None),
        ("580.65.06", "", None),
        ("580.65.06", "14.0", None),
    ],
)
def test_minor_version_compatibility(driver: str, cuda: str, answer: bool | None) -> None:
    assert too_old_for(driver, cuda) is answer


@pytest.mark.parametrize(
    ("proc", "module", "release"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03\nGCC version: 555.55.55",
            "",
            "535.129.03",
        ),
        ("", "580.65.06\n", "580.65.06"),
        ("\0\xff", "1" * 5000, ""),
        ("GCC version: 555.55.55", "", ""),
    ],
)
def test_the_release_of_the_loaded_module(tmp_path: Path, proc: str, module: str, release: str) -> None:
    for path, text in (("proc/driver/nvidia/version", proc), ("sys/module/nvidia/version", module)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text, encoding="latin-1")

    assert driver_release(Host(str(tmp_path))) == release
