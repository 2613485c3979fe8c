from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry
from mlbackends.host.host import Host
from mlbackends.model.records import Presence, ProbeReport
from mlbackends_cli.report import probes
from mlbackends_probes import xpu

if TYPE_CHECKING:
    from pathlib import Path

    from tests.probes.conftest import Asked


LIBRARY = ("level_zero", "libze_loader.so.1")

PCI = "/sys/bus/pci/devices"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def arc(root: Path, driver: str = "xe") -> None:
    at = f"{PCI}/0000:03:00.0"
    bound = f"DRIVER={driver}\n" if driver else ""
    files = {
        f"{at}/uevent": f"{bound}PCI_CLASS=30000\nPCI_ID=8086:56A0\n",
        f"{at}/drm/renderD128/uevent": "",
        "/usr/share/misc/pci.ids": "8086  Intel\n\t56a0  DG2 [Arc A770]\n",
        f"{PCI}/0000:00:1f.3/uevent": "PCI_CLASS=40100\nPCI_ID=8086:7A50\n",
    }
    write(root, files)


def test_an_arc_with_xe(tmp_path: Path) -> None:
    arc(tmp_path)

    found = xpu.find(Host(str(tmp_path)))

    (device,) = found.devices
    assert (device.name, device.driver) == ("DG2 [Arc A770]", "xe")
    assert device.facts == {"pci_id": "8086:56a0"}
    assert device.reasons == ()
    assert found.facts == {"gpu_count": 1, "driver": "xe"}
    (reason,) = found.reasons
    assert reason.code == "no-driver"
    assert reason.message.startswith("computing needs the Level Zero loader: no libze_loader.so.1")
    assert probes.state_of(ProbeReport(presence=Presence.FOUND, reasons=found.reasons)) == "found"


@pytest.mark.parametrize("driver", ["", "vfio-pci"])
def test_a_gpu_that_no_compute_driver_has(tmp_path: Path, driver: str) -> None:
    arc(tmp_path, driver)

    found = xpu.find(Host(str(tmp_path)))

    assert found.devices[0].reasons[0].code == "no-driver"
    assert found.reasons[0].code == "no-driver"


def test_the_memory_on_the_card_where_the_driver_tells_it(tmp_path: Path) -> None:
    arc(tmp_path, "i915")
    write(tmp_path, {f"{PCI}/0000:03:00.0/drm/card1/lmem_total_bytes": "17095983104\n"})

    assert xpu.find(Host(str(tmp_path))).devices[0].memory_bytes == 17095983104


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE", "composite"),
        ("ZE_AFFINITY_MASK", "0.0,1", "gpu0"),
        ("ONEAPI_DEVICE_SELECTOR", "level_zero:gpu;opencl:*", "gpu"),
        ("ONEAPI_DEVICE_SELECTOR", "!level_zero:0", "level_zero:"),
    ],
)
def test_a_variable_that_makes_no_sense_is_a_warning(tmp_path: Path, name: str, good: str, bad: str) -> None:
    arc(tmp_path)
    for value, codes in ((good, []), (bad, ["override-invalid"])):
        write(tmp_path, {"host.json": json.dumps({"environment": {name: value}})})
        found = xpu.find(Host(str(tmp_path)))
        assert [warning.code for warning in found.warnings] == codes
        assert found.facts["environment"] == {name: value}


def test_sycl_takes_its_version_and_adapters_from_file_names(tmp_path: Path) -> None:
    folder = "/opt/intel/oneapi/compiler/2025.1/lib"
    names = ("libsycl.so.8.0.0", "libur_adapter_level_zero.so.0", "libur_adapter_opencl.so.0")
    write(tmp_path, {f"{folder}/{name}": "x" for name in names})

    found = registry.load("mlbackends_probes", "sycl").find(Host(str(tmp_path)))

    assert found.libraries[0].version == "8.0.0"
    assert found.facts["adapters"] == ["level_zero", "opencl"]


# ---- load and use, with a fake of Level Zero ---------------------------------------------------


def test_a_gpu_that_fills_memory_is_usable(asked: Asked) -> None:
    report, library = asked("xpu", LIBRARY, FAKE_GPUS="2")

    assert (library.presence, library.version) == (Presence.USABLE, "1.20.2")
    first, second = report.devices[:2]
    assert first.name == "Intel(R) Arc(TM) A770 Graphics"
    assert first.presence is Presence.USABLE
    assert second.presence is Presence.LOADABLE
    assert (second.pci_address, second.memory_bytes) == ("0000:04:00.0", 16 << 30)
    assert first.facts == {
        "is_integrated": False,
        "pci_id": "8086:56a0",
        "max_clock_hertz": 2_400_000_000,
        "level_zero_driver_version": "1.6.33578",
    }


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"FAKE_INIT": "0x78000001"}, "no-driver"),
        ({"FAKE_INIT": "0x70010000"}, "permission-denied"),
        ({"FAKE_INIT": "0x70000001"}, "call-failed"),
        ({"FAKE_GPUS": "0"}, "no-device"),
        ({"FAKE_KIND": "5"}, "no-device"),
        ({"FAKE_RESULT": "1"}, "wrong-result"),
        ({"FAKE_BEHAVIOUR": "abort"}, "crashed"),
    ],
    ids=str,
)
def test_what_stops_it_below_usable(asked: Asked, told: dict[str, str], code: str) -> None:
    _, library = asked("xpu", LIBRARY, **told)

    assert (library.presence, library.version) == (Presence.LOADABLE, "1.20.2")
    assert [reason.code for reason in library.reasons] == [code]


_MEMORY = ("host-allocations", "device-allocations", "shared-allocations")


@pytest.mark.parametrize(
    ("flags", "words"),
    [("13", ("fp16", "int64-atomics", "dp4a")), ("3", ("fp16", "fp64")), ("0", ())],
)
def test_what_a_gpu_computes_in_and_which_memory_it_reaches(
    asked: Asked, flags: str, words: tuple[str, ...]
) -> None:
    report, _ = asked("xpu", LIBRARY, FAKE_MODULE=flags)

    assert report.devices[0].features == ("ecc", *words, *_MEMORY)


def test_of_a_gpu_that_does_not_tell_all_nothing_is_said(asked: Asked) -> None:
    report, _ = asked("xpu", LIBRARY, FAKE_MODULE_STATUS="2013265923")

    assert report.devices[0].features == ()
