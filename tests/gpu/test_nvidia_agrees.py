"""On a machine with an NVIDIA GPU: our facts agree with those of nvidia-smi and torch."""

from __future__ import annotations

import csv
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING

import pytest

from mlbackends.model.records import Device, Presence, Report
from mlbackends.survey import survey

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no nvidia-smi: no NVIDIA GPU"),
]

FIELDS: dict[str, Callable[[Device], str]] = {
    "index": lambda gpu: str(gpu.index),
    "name": lambda gpu: gpu.name,
    "driver_version": lambda gpu: gpu.driver,
    "compute_cap": lambda gpu: gpu.capability,
    "memory.total": lambda gpu: str((gpu.memory_bytes or 0) >> 20),
}


@cache
def ours() -> Report:
    return survey(("nvidia", "cuda_driver", "cuda_runtime"), timeout=60)


def gpus(probe: str) -> list[Device]:
    return [device for device in ours().probes[probe].devices if device.kind == "cuda"]


def test_nvidia_smi_tells_the_same() -> None:
    command = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    theirs = [[cell.strip() for cell in row] for row in csv.reader(told.splitlines())]

    assert [[read(gpu) for read in FIELDS.values()] for gpu in gpus("nvidia")] == theirs


def test_the_driver_computed_on_every_gpu_that_is_visible() -> None:
    probe = ours().probes["cuda_driver"]

    assert probe.presence is Presence.USABLE
    assert [gpu.presence for gpu in gpus("cuda_driver")] == [Presence.USABLE] * len(probe.devices)


def test_torch_tells_the_same() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch sees no GPU")

    told = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    assert [(gpu.name, gpu.capability) for gpu in gpus("cuda_driver")] == [
        (gpu.name, f"{gpu.major}.{gpu.minor}") for gpu in told
    ]
