from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.host.host import Host
from mlbackends.host.pci import (
    is_redirected,
    link_facts,
    link_now,
    of_vendor,
    pci_devices,
    product_name,
)

if TYPE_CHECKING:
    from pathlib import Path


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def uevent(number: str, class_code: str, driver: str = "") -> str:
    first = f"DRIVER={driver}\n" if driver else ""
    return f"{first}PCI_CLASS={class_code}\nPCI_ID={number}\nPCI_SUBSYS_ID=1043:0ABC\n"


def test_one_file_tells_vendor_class_and_driver(tmp_path: Path) -> None:
    at = "/sys/bus/pci/devices/0000:65:00.0"
    files = {f"{at}/uevent": uevent("10DE:2330", "30200", "nvidia"), f"{at}/numa_node": "1\n"}
    write(tmp_path, files)

    (device,) = pci_devices(Host(str(tmp_path)))

    assert (device.address, device.vendor, device.device) == ("0000:65:00.0", "10de", "2330")
    assert (device.class_code, device.driver) == ("030200", "nvidia")
    assert device.subsystem == "1043:0abc"
    assert device.numa_node == 1
    assert device.is_display
    assert not device.is_accelerator


def test_a_kernel_without_uevent_tells_the_same(tmp_path: Path) -> None:
    at = "/sys/bus/pci/devices/0000:65:00.0"
    files = {f"{at}/vendor": "0x1da3\n", f"{at}/device": "0x1020\n", f"{at}/class": "0x120000\n"}
    write(tmp_path, files)
    (tmp_path / at.lstrip("/") / "driver").symlink_to("../../../../bus/pci/drivers/habanalabs")

    (device,) = pci_devices(Host(str(tmp_path)))

    assert (device.vendor, device.device, device.driver) == ("1da3", "1020", "habanalabs")
    assert device.is_accelerator


def test_the_link_is_that_of_the_card_not_of_the_chip_behind_its_switch(tmp_path: Path) -> None:
    bus = "/sys/bus/pci/devices"
    path = "/sys/devices/pci0000:00"
    chain = ["0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]
    numbers = ["8086:460D", "1002:1478", "1002:1479", "1002:744C"]
    speeds = ["32.0 GT/s PCIe", "16.0 GT/s PCIe", "16.0 GT/s PCIe", "2.5 GT/s PCIe"]
    for address, number, speed in zip(chain, numbers, speeds, strict=True):
        path += f"/{address}"
        kind = "30000" if address == chain[-1] else "60400"
        told = {
            f"{path}/uevent": uevent(number, kind, "amdgpu"),
            f"{path}/vendor": f"0x{number[:4]}\n",
            f"{path}/current_link_speed": speed,
            f"{path}/max_link_speed": speed,
            f"{path}/current_link_width": "16\n" if address != chain[-1] else "1\n",
            f"{path}/max_link_width": "16\n" if address != chain[-1] else "255\n",
        }
        write(tmp_path, told)
        (tmp_path / bus.lstrip("/")).mkdir(parents=True, exist_ok=True)
        (tmp_path / bus.lstrip("/") / address).symlink_to("/sys/devices" + path[12:])

    (card,) = (device for device in of_vendor(Host(str(tmp_path)), "1002") if device.is_display)

    assert card.link_width == 16
    assert link_facts(card) == {
        "max_pcie_gigatransfers_per_second": 16.0,
        "max_pcie_width": 16,
        "max_pcie_slot_width": 16,
    }
    assert link_now(card) == {"pcie_width": 16}


def in_slot(tmp_path: Path, *bridges: str, files: dict[str, str]) -> Host:
    """Return a machine with one GPU, 0000:09:00.0, below bridges; its files are by folder."""
    path = "/sys/devices/pci0000:00"
    bus = tmp_path / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    for address in (*bridges, "0000:09:00.0"):
        path += f"/{address}"
        is_gpu = address == "0000:09:00.0"
        told = {"uevent": uevent("10DE:2330", "30200") if is_gpu else uevent("15B3:1979", "60400")}
        told |= {name[len(address) + 1 :]: text for name, text in files.items() if address in name}
        write(tmp_path, {f"{path}/{name}": text for name, text in told.items()})
        (bus / address).symlink_to("../../../devices" + path[12:])
    return Host(str(tmp_path))


def test_the_slot_may_be_narrower_than_the_card(tmp_path: Path) -> None:
    files = {
        "0000:00:01.0/max_link_width": "8\n",
        "0000:09:00.0/max_link_width": "16\n",
        "0000:09:00.0/current_link_width": "8\n",
        "0000:09:00.0/iommu_group/type": "DMA-FQ\n",
    }

    (card,) = of_vendor(in_slot(tmp_path, "0000:00:01.0", files=files), "10de")

    assert link_facts(card) == {"max_pcie_width": 16, "max_pcie_slot_width": 8}
    assert link_now(card) == {"pcie_width": 8}
    assert card.iommu_domain == "DMA-FQ"


def configuration(control: int, at: int = 0x148) -> bytes:
    """Return the 4096 bytes of a bridge whose list is: error reporting, then ACS at an address."""
    data = bytearray(4096)
    data[0x100:0x104] = (at << 20 | 2 << 16 | 0x0001).to_bytes(4, "little")
    data[at : at + 4] = (1 << 16 | 0x000D).to_bytes(4, "little")
    data[at + 6 : at + 8] = control.to_bytes(2, "little")
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "redirects"),
    [
        (configuration(0x001D), True),
        (configuration(0x0001), False),
        (configuration(0x0004, at=0xFF8), True),
        (configuration(0x001D)[:256], None),
        (b"", None),
        (b"\xff" * 4096, None),
        (bytes(256) + (0x100 << 20 | 1).to_bytes(4, "little") + bytes(3836), None),
    ],
    ids=["on", "off", "at-the-end", "not-root", "empty", "gone", "loop"],
)
def test_a_switch_says_whether_it_redirects(tmp_path: Path, data: bytes, redirects: bool | None) -> None:
    host = in_slot(tmp_path, "0000:00:01.0", "0000:07:00.0", "0000:08:00.0", files={})
    for address, content in (("0000:08:00.0", data), ("0000:00:01.0", configuration(0x001D))):
        (tmp_path / f"sys/bus/pci/devices/{address}/config").write_bytes(content)

    (card,) = of_vendor(host, "10de")

    assert is_redirected(host, card) is redirects
    assert is_redirected(host, card, by_root=True) is True


def test_a_sleeping_device_is_not_asked_for_its_link(tmp_path: Path) -> None:
    at = "/sys/bus/pci/devices/0000:01:00.0"
    files = {
        f"{at}/uevent": uevent("10DE:28A0", "30000", "nvidia"),
        f"{at}/power/runtime_status": "suspended\n",
        f"{at}/current_link_speed": "16.0 GT/s PCIe\n",
    }
    write(tmp_path, files)

    (device,) = pci_devices(Host(str(tmp_path)))

    assert device.is_asleep
    assert device.link_width is None


@pytest.mark.parametrize("garbage", ["", "\0\ufffd", "PCI_ID=\n", "PCI_ID=zz:yy\n", "9" * 5000])
def test_garbage_is_no_device(tmp_path: Path, garbage: str) -> None:
    at = "/sys/bus/pci/devices/0000:01:00.0"
    write(tmp_path, {f"{at}/uevent": garbage, f"{at}/vendor": garbage, f"{at}/device": garbage})
    write(tmp_path, {"/sys/bus/pci/devices/not-an-address/uevent": uevent("10DE:2330", "30200")})

    assert [device for device in pci_devices(Host(str(tmp_path))) if not device.vendor] == []


def test_nonsense_in_a_detail_is_left_out(tmp_path: Path) -> None:
    at = "/sys/bus/pci/devices/0000:01:00.0"
    files = {f"{at}/uevent": uevent("10DE:2330", "30200"), f"{at}/numa_node": "-1\n"}
    files |= {f"{at}/{name}": "Unknown speed\n" for name in ("current_link_speed", "max_link_speed")}
    files |= {f"{at}/{name}": "255\n" for name in ("current_link_width", "max_link_width")}
    write(tmp_path, files)

    (device,) = pci_devices(Host(str(tmp_path)))

    assert device.numa_node is None
    assert link_facts(device) == {}


def test_the_bus_is_scanned_once_a_host(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    host = Host(str(tmp_path))
    assert pci_devices(host) == ()
    at = "/sys/bus/pci/devices/0000:01:00.0/uevent"
    write(tmp_path, {at: uevent("10DE:2330", "30200")})

    assert pci_devices(host) == ()
    assert len(pci_devices(Host(str(tmp_path)))) == 1


def test_a_name_is_looked_up_below_its_maker(tmp_path: Path) -> None:
    at = "/sys/bus/pci/devices/0000:03:00.0/uevent"
    ids = "1002  AMD\n\t56a0  Not this\n8086  Intel\n\t56a0  DG2 [Arc A770]\n\t\t8086 1020  Card\n"
    write(tmp_path, {at: uevent("8086:56A0", "30000"), "/usr/share/misc/pci.ids": ids})
    host = Host(str(tmp_path))

    assert product_name(host, pci_devices(host)[0]) == "DG2 [Arc A770]"


def test_a_product_that_is_not_in_the_list_has_no_name(tmp_path: Path) -> None:
    at = "/sys/bus/pci/devices/0000:03:00.0/uevent"
    ids = "8086  Intel\n\t56a1  Arc\n9999  Other\n\t56a0  Not Intel's\n"
    write(tmp_path, {at: uevent("8086:56A0", "30000"), "/usr/share/hwdata/pci.ids": ids})
    host = Host(str(tmp_path))

    assert product_name(host, pci_devices(host)[0]) == ""
