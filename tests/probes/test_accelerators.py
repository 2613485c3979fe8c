"""The accelerators with one small probe each: TPU, Gaudi, Ascend, Neuron, NPU, MTIA."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry
from mlbackends.host.host import Host
from mlbackends.model.records import Presence

if TYPE_CHECKING:
    from pathlib import Path

    from tests.probes.conftest import Asked


PCI = "/sys/bus/pci/devices"
ascend, gaudi, mtia, neuron, npu, tpu = (
    registry.load("mlbackends_probes", name) for name in ("ascend", "gaudi", "mtia", "neuron", "npu", "tpu")
)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def card(root: Path, address: str, number: str, class_code: str, driver: str = "") -> None:
    bound = f"DRIVER={driver}\n" if driver else ""
    text = f"{bound}PCI_CLASS={class_code}\nPCI_ID={number}\n"
    write(root, {f"{PCI}/{address}/uevent": text, f"{PCI}/{address}/numa_node": "0\n"})


def package(root: Path, **dists: str) -> None:
    site = "/venv/lib/python3.12/site-packages"
    write(root, {"host.json": json.dumps({"python": {"path": [site]}})})
    for name, version in dists.items():
        write(root, {f"{site}/{name}-{version}.dist-info/METADATA": f"Name: {name}\n"})


def test_a_tpu_machine(tmp_path: Path) -> None:
    for i in range(4):
        card(tmp_path, f"0000:00:{4 + i:02x}.0", "1AE0:0063", "FF0000", "vfio-pci")
        write(tmp_path, {f"/dev/vfio/{i}": ""})
    card(tmp_path, "0000:00:03.0", "1AE0:0042", "20000", "gvnic")
    package(tmp_path, libtpu="0.0.17")
    write(tmp_path, {"/venv/lib/python3.12/site-packages/libtpu/libtpu.so": "x"})

    found = tpu.find(Host(str(tmp_path)))

    assert found.facts == {
        "chip_count": 4,
        "generation": "v5e",
        "nodes": [f"/dev/vfio/{i}" for i in range(4)],
    }
    assert found.version == "0.0.17"
    assert [device.name for device in found.devices] == ["TPU v5e"] * 4
    assert [library.found_by for library in found.libraries] == ["site-packages"]
    assert found.reasons == ()


def test_tpu_chips_without_nodes_have_no_driver(tmp_path: Path) -> None:
    card(tmp_path, "0000:00:04.0", "1AE0:005E", "FF0000")
    write(tmp_path, {"/dev/null": ""})

    assert tpu.find(Host(str(tmp_path))).reasons[0].code == "no-driver"


def test_libtpu_without_chips_has_no_device(tmp_path: Path) -> None:
    write(tmp_path, {"/usr/lib/libtpu.so": "x"})

    assert [reason.code for reason in tpu.find(Host(str(tmp_path))).reasons] == ["no-device"]


def test_a_named_libtpu_that_is_gone_is_dangling(tmp_path: Path) -> None:
    told = {"environment": {"TPU_LIBRARY_PATH": "/gone/libtpu.so"}}
    write(tmp_path, {"host.json": json.dumps(told)})

    (library,) = tpu.find(Host(str(tmp_path))).libraries

    assert [reason.code for reason in library.reasons] == ["dangling-link"]


def test_a_gaudi_node_of_today(tmp_path: Path) -> None:
    for i in range(8):
        address = f"0000:{0x10 + i:02x}:00.0"
        card(tmp_path, address, "1DA3:1060", "120000", "habanalabs")
        folder = tmp_path / f"sys/class/accel/accel{i}"
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(f"/sys/bus/pci/devices/{address}")
        files = {"cpucp_ver": "hl-gaudi3-1.19.0-fw-57.2.2\n", "status": "Operational\n"}
        write(tmp_path / PCI.lstrip("/") / address, files)
    write(tmp_path, {"/sys/module/habanalabs/version": "1.19.0-9c3c4e2\n"})

    found = gaudi.find(Host(str(tmp_path)))

    assert found.facts == {"card_count": 8, "driver_version": "1.19.0-9c3c4e2"}
    assert found.devices[7].facts == {
        "pci_id": "1da3:1060",
        "firmware_version": "hl-gaudi3-1.19.0-fw-57.2.2",
        "status": "Operational",
    }
    assert {device.name for device in found.devices} == {"Gaudi 3"}
    assert {device.reasons for device in found.devices} == {()}


def test_a_gaudi_node_with_an_older_kernel(tmp_path: Path) -> None:
    card(tmp_path, "0000:10:00.0", "1DA3:1000", "120000", "habanalabs")
    files = {"pci_addr": "0000:10:00.0\n", "armcp_ver": "0.9\n", "uboot_ver": "U-Boot 2020\nx\n"}
    write(tmp_path / "sys/class/habanalabs/hl0", files)

    (device,) = gaudi.find(Host(str(tmp_path))).devices

    assert device.facts == {
        "pci_id": "1da3:1000",
        "firmware_version": "0.9",
        "boot_firmware_version": "U-Boot 2020",
    }


def test_a_gaudi_without_driver_says_so(tmp_path: Path) -> None:
    card(tmp_path, "0000:10:00.0", "1DA3:1020", "120000")

    assert gaudi.find(Host(str(tmp_path))).reasons[0].code == "no-driver"


def test_an_ascend_node(tmp_path: Path) -> None:
    for i in range(8):
        card(tmp_path, f"0000:{0x20 + i:02x}:00.0", "19E5:D802", "120000", "devdrv_device_driver")
        write(tmp_path, {f"/dev/davinci{i}": ""})
    card(tmp_path, "0000:75:00.0", "19E5:A250", "120000", "hisi_zip")
    files = {
        "/dev/davinci_manager": "",
        "/usr/local/Ascend/driver/version.info": "Version=24.1.0\nascendhal_version=7.35.23\n",
        "/usr/local/Ascend/ascend-toolkit/latest/x86_64-linux/ascend_toolkit_install.info": (
            "package_name=Ascend-cann-toolkit\nversion=8.0.0\ninnerversion=V100R001C20\n"
        ),
        "/usr/local/Ascend/ascend-toolkit/latest/lib64/libascendcl.so": "x",
    }
    write(tmp_path, files)

    found = ascend.find(Host(str(tmp_path)))

    assert found.facts == {
        "npu_count": 8,
        "nodes": [f"/dev/davinci{i}" for i in range(8)],
        "driver_version": "24.1.0",
        "toolkit_version": "8.0.0",
    }
    assert found.version == "8.0.0"
    assert len(found.devices) == 8
    assert found.reasons == ()


def test_a_container_with_nodes_and_no_pci_has_devices(tmp_path: Path) -> None:
    write(tmp_path, {"/dev/davinci3": "", "/dev/davinci_manager": ""})

    found = ascend.find(Host(str(tmp_path)))

    assert [device.facts for device in found.devices] == [{"node": "/dev/davinci3"}]
    assert [reason.code for reason in found.reasons] == ["not-found"]


def test_ascend_on_pci_without_nodes_says_what_to_give(tmp_path: Path) -> None:
    card(tmp_path, "0000:20:00.0", "19E5:D500", "120000", "devdrv_device_driver")
    write(tmp_path, {"/dev/null": ""})

    reason = ascend.find(Host(str(tmp_path))).reasons[0]

    assert reason.code == "no-device"
    assert "/dev/davinci0" in reason.hint


def test_a_trainium_node(tmp_path: Path) -> None:
    for i in range(16):
        card(tmp_path, f"0000:{0x10 + i:02x}:1e.0", "1D0F:7164", "80000", "neuron-driver")
        write(tmp_path, {f"/dev/neuron{i}": ""})
    card(tmp_path, "0000:00:05.0", "1D0F:EC20", "20000", "ena")
    package(tmp_path, neuronx_cc="2.19.8089.0", libneuronxla="2.2.4410.0")
    write(tmp_path, {"/sys/module/neuron/version": "2.22.2.0\n"})

    found = neuron.find(Host(str(tmp_path)))

    assert found.facts["device_count"] == 16
    assert found.facts["driver_version"] == "2.22.2.0"
    assert found.facts["wheels"] == ["neuronx-cc 2.19.8089.0", "libneuronxla 2.2.4410.0"]
    assert {device.name for device in found.devices} == {"Trainium"}
    assert [reason.code for reason in found.reasons] == ["not-found"]


def test_npus_of_both_makers(tmp_path: Path) -> None:
    card(tmp_path, "0000:00:0b.0", "8086:643E", "120000", "intel_vpu")
    card(tmp_path, "0000:c5:00.1", "1022:17F0", "118000", "amdxdna")
    write(tmp_path, {f"{PCI}/0000:c5:00.1/fw_version": "1.5.2.380\n"})

    found = npu.find(Host(str(tmp_path)))

    assert [device.name for device in found.devices] == ["Intel NPU (Lunar Lake)", "AMD XDNA 2 NPU"]
    assert found.devices[1].facts == {"pci_id": "1022:17f0", "firmware_version": "1.5.2.380"}
    assert found.facts == {"driver": "amdxdna intel_vpu"}


def test_an_npu_without_its_driver_names_it(tmp_path: Path) -> None:
    card(tmp_path, "0000:00:0b.0", "8086:7D1D", "120000")

    (reason,) = npu.find(Host(str(tmp_path))).reasons

    assert reason.code == "no-driver"
    assert reason.hint == "load it: sudo modprobe intel_vpu"


@pytest.mark.parametrize("version", ["2.13.0", "2.13.0+cpu", "2.15.0.dev20261101+cu130", ""])
def test_mtia_is_absent_where_no_torch_could_drive_it(tmp_path: Path, version: str) -> None:
    package(tmp_path, **({"torch": version} if version else {"numpy": "2.4.0"}))

    found = mtia.find(Host(str(tmp_path)))

    assert found.presence == "absent"
    assert [reason.code for reason in found.reasons] == ["not-found"]


@pytest.mark.parametrize("packages", [{"torch": "2.13.0+fb"}, {"torch": "2.13.0", "torch_mtia": "1"}])
def test_mtia_claims_nothing(tmp_path: Path, packages: dict[str, str]) -> None:
    package(tmp_path, **packages)

    found = mtia.find(Host(str(tmp_path)))

    assert found.facts == {"torch_version": packages["torch"]}
    assert (found.libraries, found.devices) == ((), ())
    assert [reason.code for reason in found.reasons] == ["only-the-framework-knows"]


# ---- load and use, with fakes ------------------------------------------------------------------


def test_libtpu_tells_the_version_of_its_interface(asked: Asked) -> None:
    report, library = asked("tpu", ("pjrt", "libtpu.so"))

    assert report.facts["pjrt_api_version"] == "0.81"
    assert library.presence is Presence.LOADABLE
    assert [reason.code for reason in library.reasons] == ["no-use-check"]


def test_a_table_that_is_too_short_is_not_read(asked: Asked) -> None:
    report, library = asked("tpu", ("pjrt", "libtpu.so"), FAKE_SIZE="16")

    assert "pjrt_api_version" not in report.facts
    assert library.presence is Presence.LOADABLE


def test_a_libtpu_without_a_table_is_not_loadable(asked: Asked) -> None:
    _, library = asked("tpu", ("pjrt", "libtpu.so"), FAKE_GPUS="0")

    assert library.presence is Presence.FOUND
    assert [reason.code for reason in library.reasons] == ["call-failed"]


ACL = ("acl", "libascendcl.so")


def test_an_npu_that_fills_memory_is_usable(asked: Asked) -> None:
    report, library = asked("ascend", ACL, FAKE_GPUS="2")

    assert library.presence is Presence.USABLE
    assert report.facts["soc"] == "Ascend910B2"
    assert [device.presence for device in report.devices] == [Presence.USABLE, Presence.LOADABLE]


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"FAKE_GPUS": "0"}, "no-device"),
        ({"FAKE_INIT": "500000"}, "call-failed"),
        ({"FAKE_RESULT": "1"}, "wrong-result"),
        ({"FAKE_BEHAVIOUR": "abort"}, "crashed"),
    ],
    ids=str,
)
def test_what_stops_an_npu_below_usable(asked: Asked, told: dict[str, str], code: str) -> None:
    _, library = asked("ascend", ACL, **told)

    assert library.presence is Presence.LOADABLE
    assert [reason.code for reason in library.reasons] == [code]
