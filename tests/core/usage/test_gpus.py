"""GPUs by a stub of NVML, in a process of its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.host.host import Host
from mlbackends.model.usage import GpuProcess, GpuUsage, MappedLibrary, ProcessUsage
from mlbackends.usage import gpus
from mlbackends.usage.gpus import Gpus
from mlbackends.usage.sampler import on_gpus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Sampled = Callable[..., gpus.Sample]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a stub library of Linux")


@pytest.fixture
def sampled(fake_library: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Sampled:
    """Sample the GPUs of the fake NVML."""

    def sample(**variables: str) -> gpus.Sample:
        path = fake_library("nvml", "libnvidia-ml.so.1")
        monkeypatch.setenv("LD_LIBRARY_PATH", str(path.parent))
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        reader = Gpus(Host())
        try:
            return reader.read()
        finally:
            reader.close()

    return sample


def test_a_gpu_with_two_processes(sampled: Sampled) -> None:
    (gpu,), problem = sampled(FAKE_UTILISATION="63", FAKE_PROCESS="99", FAKE_MIG="0")

    assert problem is None
    assert gpu == GpuUsage(
        index=0,
        name="NVIDIA Test",
        mig=False,
        utilisation_percent=63.0,
        memory_bytes=80 << 30,
        memory_used_bytes=10 << 30,
        temperature_celsius=31,
        power_watts=71.25,
        power_limit_watts=650.5,
        processes=(GpuProcess(4321, "/usr/bin/trainer", 1 << 30), GpuProcess(99, "", 2 << 30)),
    )


def test_what_nvml_refuses_is_not_known(sampled: Sampled) -> None:
    (one, lost), _ = sampled(FAKE_GPUS="2", **{"FAKE_RETURNS.1": "15"})

    assert (one.utilisation_percent, one.mig) == (None, None)
    assert (lost.name, lost.memory_bytes) == ("", None)
    assert [reason.code for reason in lost.reasons] == ["gpu-lost"]


def test_a_library_that_refuses_or_dies_costs_its_lines_alone(sampled: Sampled) -> None:
    refused, why = sampled(FAKE_NVML_INIT="9")
    assert refused == () and why is not None and "nvmlInit returned 9" in why.message
    died, why = sampled(FAKE_BEHAVIOUR="segfault")
    assert died == () and why is not None and why.code == "crashed"


def test_a_library_that_hangs_is_left_behind(sampled: Sampled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_FIRST_SECONDS", 0.1)
    none, why = sampled(FAKE_BEHAVIOUR="hang")

    assert none == () and why is not None
    assert why.code == "timed-out"
    assert "did not answer within 0.1 s; the next attempt is in a minute" in why.message


def test_every_call_may_fail() -> None:
    class Error(Exception):
        value = 3

    class Refusing:
        NVMLError = Error

        def __getattr__(self, name: str) -> Any:
            def refuse(*arguments: object) -> None:
                raise Error(name)

            return refuse

    assert gpus.of_gpu(Refusing(), 0, object()) == GpuUsage(0)


def test_a_process_is_only_matched_where_it_has_the_driver_mapped() -> None:
    cuda = (MappedLibrary("cuda_driver", "/usr/lib/libcuda.so.1"),)
    processes = [ProcessUsage(1, "a", libraries=cuda), ProcessUsage(2, "b", libraries=())]
    gpu = GpuUsage(0, processes=(GpuProcess(1, "", 5), GpuProcess(2, "other"), GpuProcess(3, "outside")))
    # MIG instances of one GPU, each with its share.
    second = GpuUsage(1, processes=(GpuProcess(1, "", 2), GpuProcess(1, "", 4)))
    found, note = on_gpus(processes, (gpu, second))

    assert [(process.gpus, process.gpu_memory_bytes) for process in found] == [
        ((0, 1), 11),
        ((), None),
    ]
    assert note is not None and note.code == "not-seen"
    assert note.message.endswith(" not visible here: 2 (other) on GPU 0, 3 (outside) on GPU 0")


def test_very_many_processes_of_others_are_one_note() -> None:
    theirs = tuple(GpuProcess(number, "python") for number in range(1, 200))
    _, note = on_gpus([], (GpuUsage(0, processes=theirs),))

    assert note is not None and len(note.message) < 400
    assert "and 189 more" in note.message


def test_without_nvml_there_is_nothing_and_no_complaint(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    assert Gpus(Host(str(tmp_path))).read() == ((), None)
