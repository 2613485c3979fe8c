"""What the calls of a live Windows tell, beside what Python, psutil, the registry and NumPy do."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from typing import Any, cast

import psutil
import pytest

from mlbackends.host.host import Host
from mlbackends_probes import cpu, disks, host, limits, memory

pytestmark = pytest.mark.skipif(sys.platform != "win32", reason="needs Windows")

OF_NUMPY = {
    "SSE3": "pni", "SSSE3": "ssse3", "SSE41": "sse4_1", "SSE42": "sse4_2", "POPCNT": "popcnt", "AVX": "avx",
    "F16C": "f16c", "FMA3": "fma", "AVX2": "avx2", "AVX512F": "avx512f", "AVX512CD": "avx512cd",
}  # fmt: skip


def test_processors_are_those_that_others_see() -> None:
    winreg = pytest.importorskip("winreg")
    facts: dict[str, Any] = cpu.find(Host()).facts
    key = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
    with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as opened:
        name, described = (
            winreg.QueryValueEx(opened, value)[0] for value in ("ProcessorNameString", "Identifier")
        )

    assert facts["threads"] == os.cpu_count() == psutil.cpu_count()
    assert facts["cores"] == psutil.cpu_count(logical=False)
    assert facts["model_name"].split() == name.split()
    numbers = f"Family {facts['family']} Model {facts['model']} Stepping {facts['stepping']}"
    assert described.endswith(numbers)


def test_features_are_those_that_numpy_finds() -> None:
    multiarray = pytest.importorskip("numpy._core._multiarray_umath")
    features = cpu.find(Host()).facts["features"]
    assert isinstance(features, list)

    of_numpy = {name: multiarray.__cpu_features__[name] for name in OF_NUMPY}
    assert {name: OF_NUMPY[name] in features for name in OF_NUMPY} == of_numpy


def test_memory_limits_and_system_are_those_that_others_see() -> None:
    size, limited, facts, space = (probe.find(Host()).facts for probe in (memory, limits, host, disks))
    version = cast("Any", sys).getwindowsversion()

    assert size["total_bytes"] == psutil.virtual_memory().total
    assert limited["affinity_cpus"] == len(psutil.Process().cpu_affinity() or ())
    assert facts["windows_build"] == version.build
    assert facts["host_name"] == platform.node()
    assert isinstance(space["file_systems"], list)
    for row in space["file_systems"]:
        assert row["total_bytes"] == shutil.disk_usage(row["path"]).total


def test_a_key_of_the_registry_is_read_whatever_its_case() -> None:
    key = "HKLM\\HARDWARE\\DESCRIPTION\\System\\CentralProcessor"

    assert "0" in Host().registry_keys(key)
    assert Host().registry(f"{key}\\0", "vendoridentifier").keys() == {"vendoridentifier"}
    assert Host().registry(f"{key}\\no", "x") == {}
