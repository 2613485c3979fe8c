"""Hazards of drivers, devices and containers, on machines that have them and on machines that do not.

What NVML tells is in no recorded machine: there the machine is a saved report (tests/reports).
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from mlbackends.audit.reports import report_of
from mlbackends.audit.runner import examine
from mlbackends.base.reasons import Reason
from mlbackends.model.audit import Check, Severity, Status
from mlbackends.model.records import (
    SCHEMA,
    Device,
    FactValue,
    Library,
    Presence,
    ProbeReport,
    Report,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

TESTS = Path(__file__).resolve().parents[3]


@cache
def machine(name: str) -> Report:
    is_report = name.endswith(".json")
    return report_of(str(TESTS / (f"reports/{name}" if is_report else f"hosts/{name}.machine")))


def checks(report: Report, code: str) -> tuple[Check, ...]:
    return examine(report, only=(code,)).checks


def judged(report: Report, code: str) -> Check:
    """Return the only check of a hazard."""
    (check,) = checks(report, code)
    return check


def report(**probes: ProbeReport) -> Report:
    return Report(SCHEMA, "test", Presence.USABLE, "/", "2026-01-01T00:00:00Z", 0.0, False, probes)


def told(presence: Presence | None = Presence.FOUND, **fields: Any) -> ProbeReport:
    return ProbeReport(presence, **fields)


def server(**facts: FactValue) -> ProbeReport:
    """Return the host probe's word of a bare machine with Linux on x86."""
    plain: dict[str, FactValue] = {
        "platform": "linux",
        "machine": "x86_64",
        "container": "none",
        "virtualisation": "none",
    }
    return told(facts=plain | facts)


def gpu(
    index: int = 0, presence: Presence = Presence.LOADABLE, name: str = "NVIDIA L40S", **fields: Any
) -> Device:
    facts = {"kernel_driver": "nvidia", "pci_id": "10de:26b9", **fields.pop("facts", {})}
    address = f"0000:{index + 1:02x}:00.0"
    return Device("cuda", index, name, presence, pci_address=address, facts=facts, **fields)


def nvidia(*gpus: Device, **fields: Any) -> ProbeReport:
    facts = {"gpu_count": len(gpus), "driver_release": "580.65.06", **fields.pop("facts", {})}
    return told(Presence.USABLE, devices=gpus, facts=facts, **fields)


def environment(**variables: str) -> ProbeReport:
    return told(facts={"variables": variables})


# ---- the driver and its libraries ----------------------------------------------------------------


def test_a_compatibility_library_that_computed_makes_up_for_an_old_driver() -> None:
    warning = Reason("driver-too-old", "torch needs driver 580; the driver here is 535.183.01")
    torch = told(warnings=(warning,))
    works = told(Presence.USABLE, facts={"forward_compatibility": True})
    fails = told(facts={"forward_compatibility": True})
    code = "nvidia-driver-older-than-runtime"

    assert judged(report(torch=torch, cuda_driver=works), code).status is Status.PASSED
    assert judged(report(torch=torch, cuda_driver=fails), code).message == warning.message


def test_nvml_says_itself_that_the_releases_differ() -> None:
    said = Reason("driver-mismatch", "nvmlInit returned 18: of different versions", "reboot")

    check = judged(report(nvidia=told(reasons=(said, said))), "nvidia-kernel-library-mismatch")

    assert (check.status, check.message, check.hint) == (Status.FAILED, said.message, "reboot")


def compatibility(release: str, **fields: Any) -> ProbeReport:
    path = "/usr/local/cuda/compat/libcuda.so.1"
    facts: dict[str, FactValue] = {"forward_compatibility": True, "driver_release": release}
    library = Library("cuda_driver", path, wins=True, facts=facts)
    return told(fields.pop("presence", Presence.FOUND), libraries=(library,), **fields)


@pytest.mark.parametrize(
    ("driver", "model", "is_wrong"),
    [
        (compatibility("590.44.01"), "NVIDIA L40S", False),
        (compatibility("590.44.01"), "NVIDIA GeForce RTX 3090", True),
        (compatibility("590.44.01", presence=Presence.USABLE), "NVIDIA TITAN V", False),
        (compatibility("575.51.03"), "NVIDIA L40S", True),
        (compatibility("580.65.06"), "NVIDIA L40S", False),
        (compatibility(""), "", False),
        (
            compatibility("590.44.01", reasons=(Reason("compat-unsupported", "cuInit: 804"),)),
            "NVIDIA L4",
            True,
        ),
    ],
    ids=["data-center", "geforce", "computed", "older", "same", "not-told", "refused"],
)
def test_a_compatibility_library_is_wrong_where_it_cannot_work(
    driver: ProbeReport, model: str, is_wrong: bool
) -> None:
    found = report(cuda_driver=driver, nvidia=nvidia(gpu(name=model)))

    check = judged(found, "nvidia-compat-library")

    assert check.status is (Status.FAILED if is_wrong else Status.PASSED)


@pytest.mark.parametrize(
    ("number", "kind", "release", "said"),
    [
        ("1b80", "open", "570.86.15", "needs the proprietary kernel module"),
        ("1b80", "proprietary", "580.65.06", ""),
        ("1db6", "proprietary", "590.44.01", "left out since 590"),
        ("1e04", "open", "590.44.01", ""),
        ("28a0", "proprietary", "570.86.15", ""),
        ("2901", "proprietary", "570.86.15", "needs the open kernel module"),
        ("2bb5", "open", "570.86.15", ""),
        ("zzzz", "open", "570.86.15", ""),
        ("1b80", "", "", ""),
    ],
)
def test_each_generation_has_its_kernel_modules(
    number: str, kind: str, release: str, said: str
) -> None:
    unbound = replace(gpu(presence=Presence.FOUND), facts={"pci_id": f"10de:{number}"})
    facts = {"kernel_module": kind, "driver_release": release}
    found = report(nvidia=told(devices=(unbound,), facts=facts))

    check = judged(found, "nvidia-module-does-not-fit")

    assert check.status is (Status.FAILED if said else Status.PASSED)
    assert said in check.message


def test_a_gpu_that_nvml_describes_has_the_right_module() -> None:
    found = report(
        nvidia=nvidia(gpu(facts={"pci_id": "10de:1b80"}), facts={"kernel_module": "open"})
    )

    assert judged(found, "nvidia-module-does-not-fit").status is Status.PASSED


@pytest.mark.parametrize(
    ("code", "libraries", "container", "status"),
    [
        ("nouveau-bound", True, "none", Status.FAILED),
        ("no-driver", True, "none", Status.FAILED),
        ("bound-elsewhere", True, "none", Status.PASSED),
        ("nouveau-bound", False, "none", Status.SKIPPED),
        ("no-driver", True, "docker", Status.SKIPPED),
    ],
)
def test_a_gpu_without_its_driver_matters_where_it_would_be_used(
    code: str, libraries: bool, container: str, status: Status
) -> None:
    reasons = (Reason(code, "the GPU 0000:01:00.0 is driven by another"),)
    device = gpu(presence=Presence.FOUND, facts={"kernel_driver": "other"}, reasons=reasons)
    here = (Library("cudnn", "/usr/lib/libcudnn.so.9"),) if libraries else ()
    found = report(
        nvidia=told(devices=(device,)), host=server(container=container), cudnn=told(libraries=here)
    )

    assert judged(found, "nvidia-no-driver").status is status


def stub(path: str, found_by: str) -> Library:
    reasons = (Reason("stub-library", f"{path} is for linking only"),)
    return Library("cuda_driver", path, found_by=found_by, reasons=reasons)


def test_only_a_stub_that_the_loader_meets_first_is_wrong() -> None:
    real = Library("cuda_driver", "/usr/lib/libcuda.so.1", found_by="ld.so.cache", wins=True)
    folder = "/usr/local/cuda/lib64/stubs"
    first = stub(f"{folder}/libcuda.so.1", "LD_LIBRARY_PATH")
    for_linker = stub(f"{folder}/libcuda.so", "LD_LIBRARY_PATH")
    by_the_way = stub(f"{folder}/libcuda.so.1", "well-known-folder")

    def status(*libraries: Library) -> Status:
        return judged(report(cuda_driver=told(libraries=libraries)), "cuda-stub-library").status

    assert status(first, real) is Status.FAILED
    assert status(first) is Status.FAILED
    assert status(real, first) is Status.PASSED
    assert status(by_the_way) is Status.PASSED
    assert judged(
        report(cuda_driver=told(libraries=(for_linker, first))), "cuda-stub-library"
    ).evidence == {"cuda_driver.libraries.path": [first.path]}
    # Numba and Warp ask for libcuda.so.
    asked = judged(report(cuda_driver=told(libraries=(for_linker, real))), "cuda-stub-library")
    assert (asked.status, asked.severity) == (Status.FAILED, Severity.NOTE)


# ---- nodes and containers ------------------------------------------------------------------------


def test_missing_nodes_do_not_matter_to_a_gpu_that_computes() -> None:
    warning = Reason("device-nodes-missing", "there is no /dev/nvidia-uvm")
    probe = nvidia(gpu(), warnings=(warning,))
    code = "nvidia-device-nodes-missing"

    assert judged(report(nvidia=probe), code).status is Status.FAILED
    assert judged(report(nvidia=probe, cuda_driver=told(Presence.USABLE)), code).status is (
        Status.PASSED
    )
    jetson = nvidia(gpu(), warnings=(warning,), facts={"jetson_model": "Orin"})
    assert judged(report(nvidia=jetson), code).status is Status.SKIPPED


def test_the_command_for_nodes_is_for_the_machine_not_for_a_container() -> None:
    warning = Reason("device-nodes-missing", "there is no /dev/nvidia-uvm")
    probe = nvidia(gpu(), warnings=(warning,))
    code = "nvidia-device-nodes-missing"

    assert judged(report(nvidia=probe, host=server()), code).command
    assert not judged(report(nvidia=probe, host=server(container="docker")), code).command


def test_a_refusal_outside_of_a_container_is_no_lost_access() -> None:
    lost = Reason("access-lost", "nvmlInit returned 999: the driver does not say why")
    probe = told(reasons=(lost,), facts={"device_nodes": ["/dev/nvidia0"]})

    assert judged(report(nvidia=probe, host=server()), "container-lost-devices").status is (
        Status.SKIPPED
    )


def test_a_mac_has_no_container_to_lose_gpus() -> None:
    assert judged(machine("macbook-m3"), "container-lost-devices").status is Status.SKIPPED


def test_on_wsl_what_nvml_does_not_tell_is_unknown() -> None:
    assert judged(machine("wsl2-nvidia"), "nvidia-throttled").status is Status.UNKNOWN


# ---- the health of GPUs --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "severity"),
    [
        ([], None),
        (["idle"], None),
        (["software-power-cap"], None),
        (["application-clocks", "sync-boost", "display-clocks"], None),
        (["idle", "hardware-slowdown"], None),
        (["hardware-slowdown"], Severity.NOTE),
        (["hardware-slowdown", "hardware-thermal-slowdown"], Severity.WARNING),
        (["software-thermal-slowdown"], Severity.WARNING),
        (["hardware-slowdown", "hardware-power-brake"], Severity.WARNING),
        ("idle", None),
    ],
)
def test_only_heat_and_power_slow_a_gpu_down(limits: Any, severity: Severity | None) -> None:
    found = report(nvidia=nvidia(gpu(volatile={"clock_limits": limits})))

    check = judged(found, "nvidia-throttled")

    assert check.status is (Status.FAILED if severity else Status.PASSED)
    assert severity in (None, check.severity)


def test_a_row_that_cannot_be_replaced_is_worse_than_one_that_waits() -> None:
    found = checks(machine("hgx-h100-failing.json"), "nvidia-row-remap")

    assert [check.severity for check in found] == [Severity.ERROR, Severity.WARNING]


ROWS: dict[str, FactValue] = {"remapped_rows": 2, "row_remap_pending": False}


@pytest.mark.parametrize(
    ("facts", "severity"),
    [
        ({**ROWS, "recovery_action": "none"}, None),
        ({**ROWS, "recovery_action": "gpu-reset"}, Severity.ERROR),
        ({**ROWS, "row_remap_pending": True, "recovery_action": "gpu-reset"}, None),
        ({**ROWS, "row_remap_failed": True}, None),
        (ROWS, Severity.NOTE),
        ({}, Severity.WARNING),
    ],
    ids=["remapped", "uncontained", "pending", "failed", "old driver", "Volta"],
)
def test_errors_of_memory_count_where_the_driver_asks_for_something(
    facts: dict[str, FactValue], severity: Severity | None
) -> None:
    ill = gpu(facts=facts, volatile={"ecc_uncorrected_since_load": 3})

    check = judged(report(nvidia=nvidia(ill)), "nvidia-ecc-errors")

    assert check.status is (Status.FAILED if severity else Status.PASSED)
    assert severity in (None, check.severity)


def test_a_row_that_waits_is_a_note_where_the_driver_asks_for_no_recovery() -> None:
    waits = Reason(
        "row-remap-pending", "GPU 0 replaces a broken row of its memory at its next reset"
    )

    def severity(**facts: FactValue) -> Severity:
        ill = nvidia(gpu(facts={"remapped_rows": 1, **facts}), warnings=(waits,))
        return judged(report(nvidia=ill), "nvidia-row-remap").severity

    assert severity(recovery_action="none") is Severity.NOTE
    assert severity(recovery_action="gpu-reset") is Severity.WARNING
    assert severity() is Severity.WARNING


def test_an_error_that_is_not_contained_is_told_of_the_gpu_that_asks_for_a_reset() -> None:
    check = judged(machine("hgx-h100-failing.json"), "nvidia-ecc-errors")

    assert check.message.endswith("and requests recovery: gpu-reset")
    assert check.message.startswith("GPU 3 ")


@pytest.mark.parametrize(("capability", "needed"), [("9.0", False), ("10.0", True)])
def test_the_fabric_of_blackwell_needs_the_subnet_manager_too(
    capability: str, needed: bool
) -> None:
    waits = gpu(capability=capability, facts={"fabric_state": "in-progress"})

    check = judged(report(nvidia=nvidia(waits), host=server()), "nvidia-fabric-manager")

    assert ("NVLink Subnet Manager" in check.hint) is needed


@pytest.mark.parametrize(
    ("probes", "lost"),
    [
        ({"host": server()}, 1),
        ({"host": server(container="docker")}, 0),
        ({"host": server(), "environment": environment(SLURM_GPUS_ON_NODE="1")}, 0),
    ],
    ids=["machine", "container", "slurm"],
)
def test_a_gpu_that_nvml_does_not_count_is_lost_where_all_should_be_seen(
    probes: dict[str, ProbeReport], lost: int
) -> None:
    silent = gpu(1, Presence.FOUND)
    elsewhere = gpu(2, Presence.FOUND, facts={"kernel_driver": "vfio-pci"})
    excluded = gpu(3, Presence.FOUND, facts={"excluded": True})
    probe = nvidia(gpu(0), silent, elsewhere, excluded, facts={"gpu_count": 1})

    found = checks(report(nvidia=probe, **probes), "nvidia-gpu-lost")

    assert [check.status for check in found] == [Status.FAILED if lost else Status.PASSED]
    assert not lost or "0000:02:00.0" in found[0].message


def test_a_gpu_that_says_it_is_lost_is_told_once() -> None:
    reason = Reason("gpu-lost", "nvmlDeviceGetHandleByIndex returned 15: it fell off the bus")
    nameless = Device("cuda", 1, reasons=(reason,))
    probe = nvidia(gpu(0), nameless, gpu(1, Presence.FOUND), facts={"gpu_count": 2})

    check = judged(report(nvidia=probe, host=server()), "nvidia-gpu-lost")

    assert (check.status, check.message) == (Status.FAILED, f"GPU 1: {reason.message}")


def test_nvml_that_does_not_start_for_a_lost_gpu_says_so() -> None:
    reason = Reason("gpu-lost", "nvmlInit returned 15: the GPU fell off the bus")
    probe = told(devices=(gpu(0, Presence.FOUND),), reasons=(reason,))

    check = judged(report(nvidia=probe, host=server()), "nvidia-gpu-lost")

    assert (check.status, check.message) == (Status.FAILED, reason.message)


@pytest.mark.parametrize(
    ("active", "fields", "down"),
    [
        ([18, 18, 17], {}, 1),
        ([0, 0, 0], {}, 0),
        ([12, 12, 0], {}, 0),
        ([18, 18, 0], {"nvlinks_lead_to_switch": True}, 1),
        ([18, 18, 17], {"mig": True}, 0),
    ],
    ids=["one-link", "no-bridges", "a-pair-and-one", "off-the-switch", "mig"],
)
def test_links_are_down_where_others_of_the_model_have_more(
    active: list[int], fields: dict[str, FactValue], down: int
) -> None:
    gpus = [
        gpu(index, facts={"nvlinks": 18, "nvlinks_active": up, **fields})
        for index, up in enumerate(active)
    ]

    found = checks(report(nvidia=nvidia(*gpus)), "nvidia-nvlink-down")

    assert [check.status for check in found] == [Status.FAILED if down else Status.PASSED]


def test_a_gpu_that_drives_a_display_needs_no_persistence() -> None:
    off = {"persistence_mode": False}
    shown = gpu(0, facts=off, volatile={"display_active": True})
    code = "nvidia-persistence-off"

    assert judged(report(nvidia=nvidia(shown), host=server()), code).status is Status.PASSED
    bare = report(nvidia=nvidia(gpu(0, facts=off)), host=server())
    assert judged(bare, code).status is Status.FAILED
    inside = report(nvidia=nvidia(gpu(0, facts=off)), host=server(container="podman"))
    assert judged(inside, code).status is Status.SKIPPED


@pytest.mark.parametrize(
    ("facts", "devices", "driver", "status"),
    [
        ({"nvswitches": 4, "fabric_manager": False}, {}, None, Status.FAILED),
        ({"nvswitches": 4, "fabric_manager": True}, {}, None, Status.PASSED),
        ({}, {}, None, Status.PASSED),
        ({"nvswitches": 4}, {"fabric_state": "completed"}, None, Status.PASSED),
        ({}, {"fabric_state": "in-progress"}, None, Status.FAILED),
        ({"nvswitches": 4}, {"fabric_state": "in-progress"}, Presence.USABLE, Status.PASSED),
    ],
)
def test_the_fabric_matters_where_there_is_one_and_it_is_not_ready(
    facts: dict[str, FactValue],
    devices: dict[str, FactValue],
    driver: Presence | None,
    status: Status,
) -> None:
    probes = {"nvidia": nvidia(gpu(facts=devices), facts=facts), "host": server()}
    if driver is not None:
        probes["cuda_driver"] = told(driver)

    assert judged(report(**probes), "nvidia-fabric-manager").status is status


def test_the_driver_says_itself_that_the_fabric_is_not_ready() -> None:
    said = Reason("fabric-not-ready", "cuInit returned 802: the system is not ready")
    found = report(nvidia=nvidia(gpu()), host=server(), cuda_driver=told(reasons=(said,)))

    assert judged(found, "nvidia-fabric-manager").message == said.message


def test_in_a_container_the_fabric_manager_is_not_looked_for() -> None:
    facts: dict[str, FactValue] = {"nvswitches": 4, "fabric_manager": False}
    found = report(nvidia=nvidia(gpu(), facts=facts), host=server(container="docker"))

    assert judged(found, "nvidia-fabric-manager").status is Status.PASSED


# ---- which GPU a program gets --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "severity"),
    [
        (None, None),
        ("MIG-1", None),
        ("MIG-1,MIG-2", Severity.WARNING),
        ("0", Severity.NOTE),
        ("", None),
    ],
)
def test_a_process_gets_one_mig_instance_before_driver_570(
    value: str | None, severity: Severity | None
) -> None:
    split = gpu(0, facts={"mig": True})
    parts = [Device("mig", slot, facts={"parent": 0}) for slot in (0, 1)]
    variables = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    old = nvidia(split, *parts, facts={"driver_release": "535.161.08"})
    found = report(nvidia=old, host=server(), environment=environment(**variables))

    check = judged(found, "nvidia-mig-visible-devices")

    assert check.status is (Status.FAILED if severity else Status.PASSED)
    assert severity in (None, check.severity)


@pytest.mark.parametrize(
    ("value", "status"),
    [("MIG-1,MIG-2", Status.PASSED), ("MIG-1,MIG-2,MIG-3", Status.FAILED), ("0", Status.PASSED)],
)
def test_a_process_gets_one_of_each_gpu_instance_from_driver_570_on(
    value: str, status: Status
) -> None:
    parts = [
        Device("mig", slot, uuid=f"MIG-{slot + 1}", facts={"parent": 0, "gpu_instance": instance})
        for slot, instance in enumerate((1, 2, 2))
    ]
    new = nvidia(gpu(0, facts={"mig": True}), *parts, facts={"driver_release": "570.86.10"})
    variables = environment(CUDA_VISIBLE_DEVICES=value)

    check = judged(
        report(nvidia=new, host=server(), environment=variables), "nvidia-mig-visible-devices"
    )

    assert check.status is status


def test_a_gpu_in_mig_mode_without_instances_is_of_no_use() -> None:
    found = report(nvidia=nvidia(gpu(1, facts={"mig": True})), host=server())

    check = judged(found, "nvidia-mig-visible-devices")

    assert check.severity is Severity.ERROR
    assert check.command == "sudo nvidia-smi -i 1 -mig 0"


@pytest.mark.parametrize(
    ("names", "variables", "order", "severity"),
    [
        (("A10", "L40S"), {}, (), Severity.NOTE),
        (("A10", "L40S"), {"CUDA_VISIBLE_DEVICES": "1"}, (), Severity.WARNING),
        (("A10", "L40S"), {"CUDA_VISIBLE_DEVICES": "GPU-1"}, (), Severity.NOTE),
        (("A10", "L40S"), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, (), None),
        (("A10", "A10"), {}, (), None),
        (("L40S", "A10"), {}, (0, 1), None),
        (("A10", "L40S"), {}, (1, 0), Severity.NOTE),
    ],
)
def test_the_order_matters_where_gpus_are_unlike(
    names: tuple[str, ...],
    variables: dict[str, str],
    order: tuple[int, ...],
    severity: Severity | None,
) -> None:
    gpus = [gpu(index, name=name) for index, name in enumerate(names)]
    seen = tuple(replace(gpus[index], index=place) for place, index in enumerate(order))
    found = report(
        nvidia=nvidia(*gpus),
        environment=environment(**variables),
        cuda_driver=told(Presence.USABLE, devices=seen),
    )

    check = judged(found, "nvidia-device-order")

    assert check.status is (Status.FAILED if severity else Status.PASSED)
    assert severity in (None, check.severity)


# ---- PCIe ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "card", "slot", "status"),
    [
        (8, 16, 16, Status.FAILED),
        (8, 16, None, Status.FAILED),
        (8, 16, 8, Status.PASSED),
        (16, 16, 16, Status.PASSED),
        (8, None, None, Status.PASSED),
        (None, 16, 16, Status.SKIPPED),
        ("8", 16, 16, Status.SKIPPED),
    ],
)
def test_a_link_is_held_to_both_of_its_ends(
    now: Any, card: int | None, slot: int | None, status: Status
) -> None:
    facts = {"max_pcie_width": card, "max_pcie_slot_width": slot}
    known = {name: value for name, value in facts.items() if value is not None}
    volatile = {} if now is None else {"pcie_width": now, "pcie_generation": 1}
    device = gpu(presence=Presence.FOUND, facts=known, volatile=volatile)
    found = report(nvidia=told(devices=(device,)), rocm=told(), host=server())

    assert judged(found, "pcie-width-degraded").status is status


@pytest.mark.parametrize(
    ("target", "status"), [("gfx942", Status.FAILED), ("gfx1100", Status.SKIPPED)]
)
def test_a_radeon_may_give_lanes_back_while_it_idles(target: str, status: Status) -> None:
    facts: dict[str, FactValue] = {"max_pcie_width": 16}
    device = Device("rocm", 0, capability=target, facts=facts, volatile={"pcie_width": 8})
    found = report(nvidia=told(), rocm=told(devices=(device,)), host=server())

    assert judged(found, "pcie-width-degraded").status is status


def test_a_link_in_a_virtual_machine_is_not_believed() -> None:
    device = gpu(facts={"max_pcie_width": 16}, volatile={"pcie_width": 1})
    host = server(virtualisation="kvm")

    check = judged(report(nvidia=nvidia(device), rocm=told(), host=host), "pcie-width-degraded")

    assert check.status is Status.SKIPPED


@pytest.mark.parametrize(
    ("domain", "host", "status"),
    [
        ("DMA-FQ", server(), Status.FAILED),
        ("DMA", server(), Status.FAILED),
        ("identity", server(), Status.PASSED),
        ("", server(), Status.UNKNOWN),
        ("", server(kernel_parameters={"iommu": "pt"}), Status.PASSED),
        ("DMA-FQ", server(virtualisation="kvm"), Status.SKIPPED),
        ("DMA", server(machine="aarch64"), Status.SKIPPED),
    ],
)
def test_translated_addresses_matter_between_gpus_of_a_bare_machine(
    domain: str, host: ProbeReport, status: Status
) -> None:
    facts = {"iommu_domain": domain} if domain else {}
    found = report(nvidia=nvidia(gpu(0, facts=facts), gpu(1, facts=facts)), host=host)

    assert judged(found, "pcie-access-control").status is status


def test_one_gpu_and_consumer_cards_need_no_way_between_them() -> None:
    facts: dict[str, FactValue] = {"iommu_domain": "DMA"}
    alone = report(nvidia=nvidia(gpu(facts=facts)), host=server())
    cards = [gpu(index, name="NVIDIA GeForce RTX 4090", facts=facts) for index in (0, 1)]
    code = "pcie-access-control"

    assert judged(alone, code).status is Status.SKIPPED
    assert judged(report(nvidia=nvidia(*cards), host=server()), code).status is Status.SKIPPED


# ---- a cache that a hypervisor hides --------------------------------------------------------------


@pytest.mark.parametrize(
    ("levels", "presence", "host", "status"),
    [
        ([1, 1, 2], Presence.FOUND, server(virtualisation="kvm"), Status.FAILED),
        ([1, 1, 2, 3], Presence.FOUND, server(virtualisation="kvm"), Status.PASSED),
        ([1, 1, 2], Presence.USABLE, server(virtualisation="kvm"), Status.PASSED),
        ([], Presence.FOUND, server(virtualisation="kvm"), Status.UNKNOWN),
        ([1, 1, 2], Presence.FOUND, server(), Status.SKIPPED),
    ],
)
def test_a_hidden_cache_matters_to_nnpack_in_a_virtual_machine(
    levels: list[int], presence: Presence, host: ProbeReport, status: Status
) -> None:
    caches = [{"level": level} for level in levels]
    cpu = told(facts={"capability": "AVX2", "caches": caches})
    nnpack = told(presence, libraries=(Library("nnpack", "/lib/libtorch_cpu.so"),))

    check = judged(report(cpu=cpu, host=host, nnpack=nnpack), "nnpack-cache-hidden")

    assert check.status is status


# ---- AMD and Intel -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "severity"),
    [
        ("gfx1031", Severity.NOTE),
        ("gfx90a", Severity.WARNING),
        ("gfx1102", Severity.WARNING),
        ("gfx1103", Severity.WARNING),
        ("gfx1150", Severity.WARNING),
    ],
)
def test_an_override_is_worse_on_a_gpu_that_rocm_supports(target: str, severity: Severity) -> None:
    warning = Reason("target-overridden", f"it makes ROCm take {target} for gfx1030", "unset it")
    device = Device("rocm", 0, capability=target)
    found = report(rocm=told(devices=(device,), warnings=(warning,)))

    check = judged(found, "rocm-hsa-override")

    assert check.severity is severity
    assert bool(check.command) == (severity is Severity.WARNING)


def test_an_override_is_held_to_the_rocblas_that_is_here() -> None:
    warning = Reason("target-overridden", "it makes ROCm take gfx1103 for gfx1100", "unset it")
    rocm = told(devices=(Device("rocm", 0, capability="gfx1103"),), warnings=(warning,))
    old = told(facts={"targets": ["gfx1100", "gfx1101", "gfx1102"]})

    assert judged(report(rocm=rocm), "rocm-hsa-override").severity is Severity.WARNING
    assert judged(report(rocm=rocm, rocblas=old), "rocm-hsa-override").severity is Severity.NOTE


def test_a_closed_node_does_not_matter_where_nothing_of_rocm_is_installed() -> None:
    closed = Reason("permission-denied", "/dev/kfd is there, and this user may not open it")
    cards = (Device("rocm", 0),)
    code = "rocm-kfd-not-accessible"
    bare = told(devices=cards, reasons=(closed,))
    installed = told(devices=cards, reasons=(closed,), facts={"installations": [{"path": "/opt"}]})

    assert judged(report(rocm=bare), code).status is Status.SKIPPED
    assert judged(report(rocm=installed), code).message == closed.message
    computing = replace(installed, presence=Presence.USABLE)
    assert judged(report(rocm=computing), code).status is Status.PASSED


def test_a_container_with_some_of_the_gpus_is_as_it_should_be() -> None:
    facts: dict[str, FactValue] = {"unreadable_node_count": 6, "visible_gpu_count": 2}

    assert judged(report(rocm=told(facts=facts)), "rocm-gpus-forbidden").status is Status.PASSED


def rewriter() -> ModuleType:
    """Import tests/reports/rewrite.py, which made the saved reports."""
    path = TESTS / "reports" / "rewrite.py"
    specification = importlib.util.spec_from_file_location("rewrite_reports", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name",
    [
        "docker-lost-gpu",
        pytest.param("hgx-h100-failing", marks=pytest.mark.slow),
        pytest.param("slurm-job-mig", marks=pytest.mark.slow),
    ],
)
def test_a_saved_report_holds_what_the_probe_writes(
    name: str, fake_library: Callable[..., Path]
) -> None:
    rewrite = rewriter()
    library = fake_library("nvml", "libnvidia-ml.so.1")

    made = rewrite.built(rewrite.REPORTS[name], library).probes["nvidia"]

    saved = machine(f"{name}.json").probes["nvidia"]
    assert replace(made, duration_seconds=0.0) == replace(saved, duration_seconds=0.0), (
        f"if that is right: python tests/reports/rewrite.py {name}"
    )


def test_a_saved_report_names_no_machine_of_ours() -> None:
    for name in sorted(path.name for path in (TESTS / "reports").glob("*.json")):
        text = (TESTS / "reports" / name).read_text(encoding="utf-8")

        assert machine(name).redacted, name
        assert len(text) < 64 << 10, name
        assert not any(word in text for word in ("/tmp/", "1650123456789")), name
