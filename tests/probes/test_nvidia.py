from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.model.records import Device, Presence, ProbeReport
from mlbackends_probes import nvidia

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FakeLibrary, Machine
    from tests.probes.conftest import Asked


NVML = ("nvml", "libnvidia-ml.so.1")


def by_kind(report: ProbeReport, kind: str, pci: str = "0000:") -> list[Device]:
    """Return the devices that the fake told: those of this machine have other addresses or none."""
    return [
        device for device in report.devices if device.kind == kind and device.presence is Presence.LOADABLE
    ]


def test_everything_that_nvml_tells_of_a_gpu(asked: Asked) -> None:
    report, library = asked("nvidia", NVML, FAKE_NAME="NVIDIA H100 80GB HBM3")

    assert (library.presence, library.version) == (Presence.USABLE, "580.65.06")
    assert report.facts["driver_release"] == "580.65.06"
    assert report.facts["cuda_version"] == "13.0"
    assert report.facts["nvml_version"] == "13.580.65.06"
    assert report.facts["driver_branch"] == "r580_00"
    assert report.facts["gpu_count"] == 1
    (gpu,) = by_kind(report, "cuda")
    assert gpu.name == "NVIDIA H100 80GB HBM3"
    assert gpu.capability == "9.0"
    assert gpu.memory_bytes == 80 << 30
    assert gpu.uuid == "GPU-00000000-0000-0000-0000-000000000000"
    assert gpu.serial == "1650123456789"
    assert gpu.pci_address == "0000:17:00.0"
    assert gpu.numa_node == 1
    expected = {
        "architecture": "Hopper",
        "vbios": "96.00.74.00.01",
        "gsp_firmware": "580.65.06",
        "cores": 16896,
        "memory_bus_bits": 5120,
        "persistence_mode": True,
        "compute_mode": "exclusive-process",
        "virtualisation": "passthrough",
        "max_pcie_generation": 5,
        "max_pcie_width": 16,
        "nvlinks": 4,
        "nvlinks_active": 3,
        "nvlink_version": 4,
        "nvlinks_lead_to_switch": False,
        "max_graphics_clock_hertz": 1_000_000_000,
        "max_memory_clock_hertz": 1_002_000_000,
        "power_limit_watts": 650.5,
        "power_limit_default_watts": 700.0,
        "power_limit_max_watts": 700.0,
        "cpu_affinity": "8-15",
    }
    assert {name: gpu.facts.get(name) for name in expected} == expected
    assert gpu.volatile["memory_used_bytes"] == 10 << 30
    assert gpu.volatile["power_watts"] == 71.25
    assert gpu.volatile["temperature_celsius"] == 31
    assert gpu.volatile["pcie_width"] == 8
    assert gpu.volatile["display_active"] is False
    assert gpu.volatile["clock_limits"] == ["idle"]


def test_a_function_that_nobody_calls_may_be_missing(asked: Asked, fake_library: FakeLibrary) -> None:
    """As programs open the driver, which bind its functions when they call them."""
    path = fake_library(*NVML, defines=("UNBOUND",))
    report, library = asked("nvidia", path)
    assert library.presence is Presence.USABLE, library.reasons
    (message,) = [reason.message for reason in report.warnings if reason.code == "missing-symbol"]
    assert message == f"{path} needs the function no_library_has_this, which no library defines"


@pytest.mark.parametrize("defines", [(), ("OLD",)], ids=["new", "old"])
def test_why_the_clocks_are_low(fake_library: FakeLibrary, asked: Asked, defines: tuple[str, ...]) -> None:
    report, _ = asked("nvidia", fake_library(*NVML, defines=defines), FAKE_EVENTS="72")

    (gpu,) = by_kind(report, "cuda")
    assert gpu.volatile["clock_limits"] == ["hardware-slowdown", "hardware-thermal-slowdown"]


def test_who_computes_on_a_gpu(asked: Asked) -> None:
    report, _ = asked("nvidia", NVML)

    assert report.facts["processes"] == [
        {"gpu": 0, "pid": 4321, "name": "/usr/bin/trainer", "memory_bytes": 1 << 30}
    ]


def test_what_is_not_supported_is_left_out(asked: Asked) -> None:
    report, _ = asked("nvidia", NVML)

    (gpu,) = by_kind(report, "cuda")
    absent = {"ecc", "mig", "remapped_rows", "fabric_state", "bar1_bytes", "retired_pages"}
    assert absent.isdisjoint(gpu.facts)
    assert "ecc_corrected_ever" not in gpu.volatile


def test_an_old_driver_lacks_functions_and_still_answers(fake_library: FakeLibrary, asked: Asked) -> None:
    report, library = asked(
        "nvidia", fake_library(*NVML, defines=("OLD",)), FAKE_DRIVER="440.33.01", FAKE_CUDA="10020"
    )

    assert (library.presence, library.version) == (Presence.USABLE, "440.33.01")
    assert report.facts["cuda_version"] == "10.2"
    assert "driver_branch" not in report.facts
    (gpu,) = by_kind(report, "cuda")
    assert gpu.memory_bytes == 80 << 30
    assert "architecture" not in gpu.facts


def test_mig_instances_are_devices_of_their_own(asked: Asked) -> None:
    report, _ = asked("nvidia", NVML, FAKE_GPUS="2", FAKE_MIG="1")

    gpus, instances = by_kind(report, "cuda"), by_kind(report, "mig")
    assert [gpu.facts["mig"] for gpu in gpus] == [True, True]
    assert [(instance.facts["parent"], instance.index) for instance in instances] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    assert instances[3].uuid == "MIG-00000000-0000-0000-0000-000000000011"
    assert instances[3].memory_bytes == 40 << 30
    assert instances[3].pci_address == ""
    assert instances[3].facts == {
        "parent": 1,
        "profile": "3g.40gb",
        "gpu_instance": 2,
        "compute_instance": 0,
        "multiprocessors": 60,
        "gpu_slices": 3,
        "compute_slices": 3,
    }


def test_how_gpus_are_joined(asked: Asked) -> None:
    report, _ = asked("nvidia", NVML, FAKE_GPUS="3")

    assert report.facts["topology"] == [
        {"gpus": [0, 1], "path": "host-bridge", "nvlinks": 3},
        {"gpus": [0, 2], "path": "system"},
        {"gpus": [1, 2], "path": "system"},
    ]


@pytest.mark.parametrize(
    ("variables", "codes"),
    [
        ({"FAKE_ECC": "1"}, []),
        ({"FAKE_ECC": "0"}, ["mode-change-pending"]),
        ({"FAKE_ECC": "1", "FAKE_UNCORRECTED": "15", "FAKE_ROW_FAILED": "1", "FAKE_ROW_PENDING": "1"},
         ["ecc-errors", "row-remap-failed", "row-remap-pending"]),
        ({"FAKE_ECC": "1", "FAKE_UNCORRECTED": "7", "FAKE_RECOVERY": "1"}, ["ecc-errors"]),
        ({"FAKE_ECC": "1", "FAKE_RECOVERY": "2"}, ["reset-required"]),
        ({"FAKE_FABRIC": "1"}, ["fabric-not-ready"]),
        ({"FAKE_FABRIC": "3"}, []),
        ({"FAKE_COMPUTE_MODE": "2"}, ["compute-prohibited"]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_gpu_that_answers(
    asked: Asked, variables: dict[str, str], codes: list[str]
) -> None:
    report, library = asked("nvidia", NVML, **variables)

    told = [warning.code for warning in report.warnings if "GPU 0" in warning.message]
    assert told == codes
    assert library.presence is Presence.USABLE


def test_the_recovery_that_a_gpu_asks_for_is_a_fact(asked: Asked) -> None:
    report, _ = asked("nvidia", NVML, FAKE_ECC="1", FAKE_RECOVERY="4")

    (gpu,) = by_kind(report, "cuda")
    assert gpu.facts["recovery_action"] == "drain-and-reset"


def test_a_lost_gpu_stays_a_device_with_its_reason(asked: Asked) -> None:
    report, library = asked("nvidia", NVML, FAKE_GPUS="3", **{"FAKE_RETURNS.1": "15"})

    assert library.presence is Presence.USABLE
    assert [gpu.index for gpu in by_kind(report, "cuda")] == [0, 2]
    (lost,) = (device for device in report.devices if device.reasons[0].code == "gpu-lost")
    assert (lost.index, lost.presence) == (1, Presence.FOUND)


def test_when_every_gpu_is_lost_nothing_is_usable(asked: Asked) -> None:
    _, library = asked("nvidia", NVML, FAKE_RETURNS="15")

    assert library.presence is Presence.LOADABLE
    assert library.reasons[0].code == "gpu-lost"


@pytest.mark.parametrize(
    ("returned", "code"),
    [
        ("4", "permission-denied"),
        ("9", "no-driver"),
        ("12", "missing-dependency"),
        ("15", "gpu-lost"),
        ("16", "reset-required"),
        ("18", "driver-mismatch"),
        ("17", "access-lost"),
        ("999", "access-lost"),
        ("77", "call-failed"),
    ],
)
def test_each_refusal_of_nvml_has_its_own_code(asked: Asked, returned: str, code: str) -> None:
    report, library = asked("nvidia", NVML, FAKE_NVML_INIT=returned)

    assert library.presence is Presence.LOADABLE
    assert [reason.code for reason in library.reasons] == [code]
    assert library.reasons[0].message.startswith(f"nvmlInit returned {returned}")
    assert report.facts["nvml_version"] == "13.580.65.06"


def test_a_system_without_gpus_is_not_usable(asked: Asked) -> None:
    report, library = asked("nvidia", NVML, FAKE_GPUS="0")

    assert library.presence is Presence.LOADABLE
    assert library.reasons[0].code == "no-device"
    assert report.facts["gpu_count"] == 0
    assert library.version == "580.65.06"


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        ("abort", "crashed"),
        ("exit", "exited"),
        pytest.param("hang", "timed-out", marks=pytest.mark.slow),
    ],
)
def test_an_nvml_that_misbehaves_keeps_its_rung(asked: Asked, behaviour: str, code: str) -> None:
    limit = 3.0 if behaviour == "hang" else 60.0
    _, library = asked("nvidia", NVML, timeout=limit, FAKE_BEHAVIOUR=behaviour)

    assert library.presence is Presence.LOADABLE
    assert library.reasons[0].code == code


def test_a_name_that_is_no_text_is_left_out(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DRIVER", "\udcff\udcfe")

    report, library = asked("nvidia", NVML, FAKE_NAME="\udcff")

    assert library.presence is Presence.USABLE
    assert by_kind(report, "cuda")[0].name == ""


# ---- find, on composed machines ----------------------------------------------------------------

OPEN = b"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
OLDER = b"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 2023\n"


def pci(address: str, driver: str = "", class_code: str = "30200") -> dict[str, bytes]:
    lines = [f"DRIVER={driver}"] if driver else []
    lines += [f"PCI_CLASS={class_code}", "PCI_ID=10DE:2330", f"PCI_SLOT_NAME={address}"]
    folder = f"/sys/bus/pci/devices/{address}"
    return {
        f"{folder}/uevent": "\n".join(lines).encode(),
        f"{folder}/numa_node": b"1\n",
        f"{folder}/max_link_speed": b"32.0 GT/s PCIe\n",
        f"{folder}/max_link_width": b"16\n",
    }


NODES = {f"/dev/{name}": b"" for name in ("nvidia0", "nvidiactl", "nvidia-uvm")}


@pytest.fixture
def nvml(fake_library: FakeLibrary) -> dict[str, bytes]:
    data = fake_library("nvml", "libnvidia-ml.so.1").read_bytes()
    return {"/usr/local/nvidia/lib64/libnvidia-ml.so.580.65.06": data}


def test_mig_instances_are_told_without_nvml(machine: Machine) -> None:
    folder = "/proc/driver/nvidia/capabilities"
    access = b"DeviceFileMinor: 21\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
    instances = ("gpu0/mig/gi2", "gpu0/mig/gi13", "gpu10/mig/gi3")
    parts = ("gpu0/mig/gi2/ci1", "gpu0/mig/gi2/ci0")
    shown = ("mig/config", *(f"{instance}/access" for instance in instances + parts))
    none = (
        "gpu0/mig/gi9/other",
        "gpu0/mig/gix/access",
        "gpu/mig/gi1/access",
        "gpu99999/mig/gi1/access",
    )
    files = dict.fromkeys((f"{folder}/{name}" for name in shown + none), access)

    assert nvidia.find(machine(files)).facts["mig_instances"] == [
        {"gpu": 0, "gpu_instance": 2, "compute_instances": [0, 1]},
        {"gpu": 0, "gpu_instance": 13, "compute_instances": []},
        {"gpu": 10, "gpu_instance": 3, "compute_instances": []},
    ]


@pytest.mark.parametrize(
    ("driver", "code", "words"),
    [
        ("", "no-driver", "no kernel driver has it"),
        ("nouveau", "nouveau-bound", "driven by nouveau"),
        ("vfio-pci", "bound-elsewhere", "held by vfio-pci"),
        ("novacore", "no-driver", "driven by novacore"),
    ],
)
def test_a_gpu_without_nvidias_driver(machine: Machine, driver: str, code: str, words: str) -> None:
    finding = nvidia.find(machine(pci("0000:17:00.0", driver)))

    assert finding.devices[0].presence is Presence.FOUND
    assert finding.devices[0].reasons[0].code == code
    assert [reason.code for reason in finding.reasons] == [code, "not-found"]
    assert words in finding.reasons[0].message


def test_a_library_alone_lacks_a_device(machine: Machine, nvml: dict[str, bytes]) -> None:
    finding = nvidia.find(machine(nvml))

    assert [reason.code for reason in finding.reasons] == ["no-device"]


def test_a_container_without_gpus_sees_the_hosts_module_only(machine: Machine) -> None:
    files = {"/proc/driver/nvidia/version": OPEN, **pci("0000:17:00.0", "nvidia")}

    finding = nvidia.find(machine(files, NVIDIA_DRIVER_CAPABILITIES="compute"))

    (reason,) = finding.reasons
    assert reason.code == "not-found"
    assert "start the container with utility in it" in reason.hint
    assert [warning.code for warning in finding.warnings] == ["device-nodes-missing"]


def test_the_missing_uvm_node_is_a_warning(machine: Machine, nvml: dict[str, bytes]) -> None:
    files = {**nvml, **NODES, "/proc/driver/nvidia/version": OPEN}
    del files["/dev/nvidia-uvm"]

    finding = nvidia.find(machine(files))

    assert "nvidia-modprobe" in finding.warnings[0].hint


@pytest.mark.parametrize(("around", "is_missed"), [({}, False), ({"/.dockerenv": b""}, True)])
def test_a_node_that_the_first_program_makes_is_not_missed(
    machine: Machine, nvml: dict[str, bytes], around: dict[str, bytes], is_missed: bool
) -> None:
    files = {**nvml, **NODES, **around, "/proc/driver/nvidia/version": OPEN}
    files["/usr/bin/nvidia-modprobe"] = b"\x7fELF"
    del files["/dev/nvidia-uvm"]

    finding = nvidia.find(machine(files))

    assert bool(finding.warnings) == is_missed


def test_a_virtual_function_is_no_gpu_of_the_machine(machine: Machine, tmp_path: Path) -> None:
    files = {**pci("0000:17:00.0", "nvidia"), **pci("0000:17:00.4", "nvidia")}
    host = machine({**files, **NODES, "/proc/driver/nvidia/version": OPEN})
    physical = tmp_path / "root/sys/bus/pci/devices/0000:17:00.4/physfn"
    physical.symlink_to("../0000:17:00.0")

    finding = nvidia.find(host)

    assert [gpu.pci_address for gpu in finding.devices] == ["0000:17:00.0"]
    assert finding.facts["pci_gpu_count"] == 1


def test_module_and_library_of_two_releases_are_a_mismatch(machine: Machine, nvml: dict[str, bytes]) -> None:
    finding = nvidia.find(machine({**nvml, **NODES, "/proc/driver/nvidia/version": OLDER}))

    assert [warning.code for warning in finding.warnings] == ["driver-mismatch"]


def test_a_library_below_nodes_without_proc_claims_no_absence(
    machine: Machine, nvml: dict[str, bytes]
) -> None:
    finding = nvidia.find(machine({**nvml, **NODES}))

    assert (finding.reasons, finding.warnings, finding.version) == ((), (), "")


def test_a_variable_that_hides_a_gpu_is_a_warning(machine: Machine) -> None:
    files = {**pci("0000:17:00.0", "nvidia"), **NODES, "/proc/driver/nvidia/version": OPEN}

    finding = nvidia.find(machine(files, CUDA_VISIBLE_DEVICES="1"))

    assert [warning.code for warning in finding.warnings] == ["override-invalid"]


@pytest.mark.parametrize(
    ("files", "passes"),
    [
        ({}, None),
        ({"/usr/bin/dockerd": ""}, False),
        ({"/usr/bin/dockerd": "", "/usr/bin/nvidia-container-runtime-hook": ""}, True),
        ({"/usr/bin/dockerd": "", "/etc/cdi/nvidia.yaml": ""}, True),
        ({"/usr/bin/dockerd": "", "/etc/cdi/intel.yaml": ""}, False),
    ],
)
def test_whether_docker_can_pass_gpus(machine: Machine, files: dict[str, str], passes: bool | None) -> None:
    card = {"/sys/bus/pci/devices/0000:65:00.0/uevent": "PCI_CLASS=30200\nPCI_ID=10DE:2330\n"}

    assert nvidia.find(machine(card | files)).facts.get("docker_passes_gpus") is passes
