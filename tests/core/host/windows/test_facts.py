"""Facts of Windows from plain data, as a recorded machine has it."""

from __future__ import annotations

import json
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.host.archive import Tree
from mlbackends.host.cpu.cpuinfo import read_blocks
from mlbackends.host.host import Host
from mlbackends.host.pci import display_driver, pci_devices
from mlbackends.host.recording.anonymise import Anonymiser
from mlbackends.host.recording.recorder import Recording
from mlbackends.host.windows import cpu, system
from mlbackends.host.windows.system import job_limits
from mlbackends.libraries.cuda.driver import driver_release
from mlbackends.model.records import Presence
from mlbackends.survey import survey

if TYPE_CHECKING:
    from pathlib import Path

ENUM = "HKLM\\SYSTEM\\CurrentControlSet\\Enum\\PCI"
CLASS = "{4d36e968-e325-11ce-bfc1-08002be10318}"
NVIDIA = "VEN_10DE&DEV_2684&SUBSYS_16F310DE&REV_A1"
KEY = f"HKLM\\SYSTEM\\CurrentControlSet\\Control\\Class\\{CLASS}\\0000"
SIGNATURE = [0x40000000, 0x7263694D, 0x666F736F, 0x76482074]  # "Microsoft Hv"


def machine(tmp_path: Path, **described: Any) -> Host:
    (tmp_path / "host.json").write_text(json.dumps({"platform": "win32", **described}))
    return Host(str(tmp_path))


def test_the_features_whose_registers_the_system_does_not_keep_are_no_features() -> None:
    leaves = {"1": [0, 0, 1 << 28 | 1 << 29 | 1, 0], "7": [0, 1 << 5 | 1 << 16, 0, 1 << 24]}

    assert set(cpu.features_of_cpuid(leaves)) == {"pni"}
    leaves["xcr0"] = [0x7, 0, 0, 0]
    assert set(cpu.features_of_cpuid(leaves)) == {"pni", "avx", "avx2", "f16c"}
    leaves["xcr0"] = [0x600E7, 0, 0, 0]
    assert {"avx512f", "amx_tile"} < set(cpu.features_of_cpuid(leaves))


def test_a_windows_on_arm_has_a_block_for_each_cpu(tmp_path: Path) -> None:
    rows = {
        f"{cpu.PROCESSOR}\\{number}": {"ProcessorNameString": "Snapdragon", "CP 4000": 0x511F0011}
        for number in range(2)
    }
    host = machine(
        tmp_path,
        registry=rows,
        registry_keys={cpu.PROCESSOR: ["0", "1"]},
        system={"processor_features": [19, 43, 67]},
    )

    assert read_blocks(host)[1] == {
        "processor": "1", "model name": "Snapdragon", "features": "asimd asimddp asimdhp",
        "cpu implementer": "0x51", "cpu part": "0x1", "cpu variant": "0x1", "cpu revision": "0x1",
    }  # fmt: skip


def test_without_cpuid_the_registry_and_windows_own_list_tell(tmp_path: Path) -> None:
    values = {"VendorIdentifier": "GenuineIntel", "Identifier": "x86 Family 6 Model 60 Stepping 3"}
    host = machine(
        tmp_path,
        registry={f"{cpu.PROCESSOR}\\0": {**values, "Update Revision": "0000000027000000"}},
        registry_keys={cpu.PROCESSOR: ["0"]},
        system={"processor_features": [6, 40]},
    )

    (block,) = read_blocks(host)
    assert (block["cpu family"], block["model"], block["microcode"]) == ("6", "60", "0x27")
    assert block["flags"] == "sse avx2"


@pytest.mark.parametrize(
    ("job", "limits"),
    [
        (None, {}),
        ({}, {"job_object": False, "cpu_quota": inf, "memory_limit_bytes": inf}),
        ({"flags": 0}, {"job_object": True, "cpu_quota": None, "process_limit": inf}),
        ({"flags": 0, "cpu_flags": 5, "cpu_rate": 2500}, {"cpu_quota": 2.0}),
        ({"flags": 0, "cpu_flags": 0x11, "cpu_rate": 5000 << 16}, {"cpu_quota": 4.0}),
        ({"flags": 0, "cpu_flags": 1, "cpu_rate": 2500}, {"cpu_quota": inf}),
        ({"flags": 0, "cpu_flags": 3, "cpu_rate": 7}, {"cpu_quota": inf, "job_cpu_weight": 7}),
        ({"flags": 0x308, "processes": 9, "process_memory": 5, "job_memory": 7},
         {"process_limit": 9, "process_memory_limit_bytes": 5, "memory_limit_bytes": 7}),
        ({"flags": 0x10, "affinity": 6, "groups": [[1, 6]]}, {"job_affinity": "65-66"}),
        ({"flags": 0, "affinity": 0, "groups": [[0, 255]]}, {"job_affinity": ""}),
    ],
)  # fmt: skip
def test_a_job_limits_what_its_flags_say(tmp_path: Path, job: Any, limits: dict[str, Any]) -> None:
    found = job_limits(machine(tmp_path, system={"job": job} if job is not None else {}), 8)

    assert {name: found.get(name) for name in limits} == limits
    assert bool(found) is (job is not None)


@pytest.mark.parametrize(
    ("leaves", "name"),
    [
        ({}, ""),
        ({"1": [0, 0, 0, 0]}, "none"),
        ({"40000000": SIGNATURE, "40000003": [0, 0, 0, 0]}, "hyperv"),
        ({"40000000": SIGNATURE, "40000003": [0, 1 << 12, 0, 0]}, "none"),
        ({"40000000": [0, 0x4B4D564B, 0x564B4D56, 0x4D]}, "kvm"),
        ({"40000000": [0, 0, 0, 0]}, "unknown"),
    ],
)
def test_the_hypervisor_is_named_by_cpuid(tmp_path: Path, leaves: dict[str, list[int]], name: str) -> None:
    assert system.hypervisor(machine(tmp_path, system={"cpuid": leaves}))[0] == name


def with_a_gpu(tmp_path: Path, **more: Any) -> Host:
    values = {"DriverDesc": "RTX 4090", "DriverVersion": "32.0.15.6094", "DriverDate": "8-4-2024"}
    device = {
        "Service": "nvlddmkm",
        "ClassGUID": CLASS,
        "Driver": f"{CLASS}\\0000",
        "LocationInformation": "@System32\\drivers\\pci.sys,#65536;PCI bus %1, device %2;(257,3,1)",
    }
    registry = {
        f"{ENUM}\\{NVIDIA}\\4&1": device,
        KEY: {**values, "HardwareInformation.qwMemorySize": "0000000006000000"},
    }
    keys = {ENUM: [NVIDIA], f"{ENUM}\\{NVIDIA}": ["4&1"]}
    return machine(tmp_path, registry=registry, registry_keys=keys, **more)


def test_a_gpu_is_read_from_the_registry(tmp_path: Path) -> None:
    host = with_a_gpu(tmp_path)
    (card,) = pci_devices(host)

    assert (card.address, card.vendor, card.device) == ("0001:01:03.1", "10de", "2684")
    assert (card.class_code, card.subsystem, card.driver) == ("030000", "10de:16f3", "nvlddmkm")
    assert display_driver(host, card) == {
        "name": "RTX 4090", "driver_version": "32.0.15.6094", "driver_date": "2024-08-04",
        "memory_bytes": 6 << 32,
    }  # fmt: skip
    assert driver_release(host) == "560.94"


def test_a_gpu_that_was_taken_out_is_none(tmp_path: Path) -> None:
    assert pci_devices(with_a_gpu(tmp_path, system={"present_devices": {}})) == ()
    numbers = {"base_class": 3, "sub_class": 2, "max_link_speed": 4, "max_link_width": 8}
    present = {f"PCI\\{NVIDIA}\\4&1": numbers}
    (card,) = pci_devices(with_a_gpu(tmp_path, system={"present_devices": present}))
    assert (card.class_code, card.max_link_gigatransfers_per_second) == ("030200", 16.0)


def test_a_recording_of_windows_finds_the_same_again(tmp_path: Path) -> None:
    python = {"executable": "C:/Users/jane/python.exe", "path": ["C:/Users/jane/AppData"]}
    lxss = "HKCU\\Software\\Microsoft\\Windows\\CurrentVersion\\Lxss"
    number = "{6e2a4f3c-1111-4222-8333-944444444444}"
    host = with_a_gpu(
        tmp_path, python=python, environment={"USERNAME": "jane", "USERPROFILE": "C:\\Users\\jane"}
    )
    description = json.loads((tmp_path / "host.json").read_text())
    description["registry"][f"{lxss}\\{number}"] = {"DistributionName": "Ubuntu", "Version": 2}
    description["registry_keys"][lxss] = [number]
    source, copied = Tree(), tmp_path / "copy.machine"
    source.put("host.json", json.dumps(description).encode())
    source.put("root/C:/Users/jane/AppData/x.dll", b"MZ")
    (tmp_path / "x.machine").write_bytes(source.text())

    host = Host(str(tmp_path / "x.machine"))
    recording = Recording(host)
    before = survey((), recording, Presence.FOUND)
    recording.listdir("C:/Users/jane/AppData")
    copied.write_bytes(recording.files(Anonymiser()).text())
    copy = Host(str(copied))
    after = survey((), copy, Presence.FOUND)

    assert copy.listdir("C:/Users/other-1/AppData") == ["x.dll"]
    assert copy.realpath("C:/Users/other-1/AppData/x.dll") == "C:/Users/other-1/AppData/x.dll"
    for name in ("host", "nvidia"):
        assert after.probes[name].facts == before.probes[name].facts
        assert after.probes[name].devices == before.probes[name].devices
    assert after.probes["host"].facts["wsl_distributions"] == [{"name": "Ubuntu", "version": 2}]
    text = copied.read_text()
    assert "6e2a4f3c" not in text
    assert CLASS in text


def test_only_a_windows_has_a_registry() -> None:
    host = Host()

    if host.platform != "win32":
        assert (host.registry(KEY, "x"), host.registry_keys(ENUM)) == ({}, [])
        assert host.system("memory_status") is None


GARBAGE: tuple[Any, ...] = ("zz \x00", -1, [], ["x", ""], 1 << 70, "\\??\\")


@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
def test_garbage_in_the_registry_never_raises(tmp_path: Path, garbage: Any) -> None:
    names = ("Update Revision", "CP 4000", "Identifier", "~MHz", "ProcessorNameString")
    host = with_a_gpu(tmp_path)
    description = json.loads((tmp_path / "host.json").read_text())
    registry = description["registry"]
    registry[f"{cpu.PROCESSOR}\\0"] = dict.fromkeys(names, garbage)
    registry[cpu.POWER_SCHEMES] = {"ActivePowerScheme": garbage}
    for values in registry.values():
        values |= {name: garbage for name in values if name != "Driver"}
    registry["HKLM\\SOFTWARE\\Microsoft\\Windows NT\\CurrentVersion"] = {
        "DisplayVersion": garbage, "UBR": garbage, "EditionID": garbage,
    }  # fmt: skip
    description["registry_keys"][cpu.PROCESSOR] = ["0"]
    description["system"] = {
        "cpuid": {"7": [1, 2, 3, 4]},
        "processors": {"cores": [{"cpus": "9-1,x", "efficiency_class": 3}], "packages": ["", "7-"]},
        "job": {"flags": 0x318},
        "processor_power": [[0, 0, 0]],
    }
    host = machine(tmp_path, **description)

    report = survey(("cpu", "limits", "host", "nvidia", "opencl", "vulkan"), host, Presence.FOUND)

    assert {name: probe.failure for name, probe in report.probes.items() if probe.failure} == {}
