"""Which devices a test can run on, by what probes said."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace

from mlbackends.audit.reports import report_of
from mlbackends.base.errors import UnknownName
from mlbackends.base.reasons import Reason
from mlbackends.model.records import Device, Failure, Presence, ProbeReport, Report
from mlbackends.testing import torch_device
from mlbackends.testing.devices import Choice, check_name, choices, device_of, why_unusable
from mlbackends.testing.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable

HOSTS = Path(__file__).resolve().parents[2] / "hosts"


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    """Make a machine of a recorded one and of what some probes said at the depth `usable`."""

    def made(**probes: ProbeReport) -> Machine:
        whole: Report = report_of(str(HOSTS / "hgx-h100-eight-gpus.machine"))
        report = replace(whole, depth=Presence.USABLE, probes={**whole.probes, **probes})
        file = tmp_path / "report.json"
        file.write_bytes(msgspec.json.encode(report))
        return Machine(str(file))

    return made


def driver(*presences: Presence, reasons: tuple[Reason, ...] = ()) -> ProbeReport:
    devices = tuple(
        Device("cuda", index, presence=presence, capability="9.0") for index, presence in enumerate(presences)
    )
    best = max(presences, key=lambda each: each.level, default=Presence.FOUND)
    return ProbeReport(best, devices=devices, reasons=reasons)


def test_a_device_on_which_a_check_computed_is_usable(machine: Callable[..., Machine]) -> None:
    here = machine(cuda_driver=driver(Presence.USABLE, Presence.LOADABLE))

    assert why_unusable(here, "cuda") == ""
    assert why_unusable(here, "cuda:0") == ""
    assert "devices that are: 0" in why_unusable(here, "cuda:1")
    device = device_of(here, "cuda")
    assert device is not None and device.capability == "9.0"


def test_devices_that_the_management_library_sees_are_not_usable_for_that(
    machine: Callable[..., Machine],
) -> None:
    stuck = Reason("call-failed", "cuInit returned 802: the fabric manager is not there")
    here = machine(cuda_driver=driver(reasons=(stuck,)))

    assert why_unusable(here, "cuda") == f"cuda is not usable: {stuck.message}"
    assert [choice.name for choice in choices(here, (), None)] == ["cpu"]


def test_a_probe_that_failed_is_told_as_such(machine: Callable[..., Machine]) -> None:
    here = machine(cuda_driver=ProbeReport(None, failure=Failure("it crashed")))

    assert why_unusable(here, "cuda") == "cuda is not usable: it could not be determined: it crashed"


def test_a_driver_library_that_is_missing_makes_found_gpus_unusable() -> None:
    pod = Machine(str(HOSTS / "mig-pod.machine"))

    assert "no libcuda.so.1" in why_unusable(pod, "cuda")


def test_a_device_file_that_may_not_be_opened_is_the_reason() -> None:
    desktop = Machine(str(HOSTS / "arc-desktop-no-render.machine"))

    assert "/dev/dri/renderD128" in why_unusable(desktop, "xpu")


def test_what_is_asked_for_and_marked_is_what_both_name() -> None:
    mac = Machine(str(HOSTS / "macbook-m3.machine"))

    assert choices(mac, (), None) == [Choice("cpu"), Choice("mps")]
    assert choices(mac, ("mps",), None) == [Choice("mps")]
    assert choices(mac, ("mps:0", "cpu"), ("mps",)) == [Choice("mps:0")]
    (none,) = choices(mac, ("cpu",), ("mps",))
    assert none.name == "mps" and "cpu was requested" in none.why


def test_there_is_one_cpu() -> None:
    mac = Machine(str(HOSTS / "macbook-m3.machine"))

    assert why_unusable(mac, "cpu:0") == ""
    assert why_unusable(mac, "cpu:1")


@pytest.mark.parametrize("name", ["", "gpu", "cuda:", "cuda:-1", "cuda:one", ":1", "CUDA"])
def test_what_is_no_device_is_refused(name: str) -> None:
    with pytest.raises(UnknownName):
        check_name(name)


def test_torch_calls_rocm_cuda() -> None:
    assert torch_device("rocm") == "cuda"
    assert torch_device("rocm:3") == "cuda:3"
    assert torch_device("mps") == "mps"
