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


def test_nvml_says_itself_that_the_releases_differ() -> None:
    said = Reason("driver-mismatch", "nvmlInit returned 18: of different versions", "reboot")

    check = judged(report(nvidia=told(reasons=(said, said))), "nvidia-kernel-library-mismatch")

    assert (check.status, check.message, check.hint) == (Status.FAILED, said.message, "reboot")


def test_two_libraries_of_another_release_than_the_module_are_one_finding() -> None:
    differ = {
        name: told(warnings=(Reason("driver-mismatch", f"{name} is of 535.54", "reboot"),))
        for name in ("nvidia", "cuda_driver")
    }

    check = judged(report(**differ), "nvidia-kernel-library-mismatch")

    assert check.message == "nvidia is of 535.54; cuda_driver is of 535.54"


def compatibility(release: str, **fields: Any) -> ProbeReport:
    path = "/usr/local/cuda/compat/libcuda.so.1"
    facts: dict[str, FactValue] = {"forward_compatibility": True, "driver_release": release}
    library = Library("cuda_driver", path, wins=True, facts=facts)
    return told(fields.pop("presence", Presence.FOUND), libraries=(library,), **fields)


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
    assert judged(report(cuda_driver=told(libraries=(for_linker, first))), "cuda-stub-library").evidence == {
        "cuda_driver.libraries.path": [first.path]
    }
    # Numba and Warp ask for libcuda.so.
    asked = judged(report(cuda_driver=told(libraries=(for_linker, real))), "cuda-stub-library")
    assert (asked.status, asked.severity) == (Status.FAILED, Severity.NOTE)


# ---- nodes and containers ------------------------------------------------------------------------


def test_the_command_for_nodes_is_for_the_machine_not_for_a_container() -> None:
    warning = Reason("device-nodes-missing", "there is no /dev/nvidia-uvm")
    probe = nvidia(gpu(), warnings=(warning,))
    code = "nvidia-device-nodes-missing"

    assert judged(report(nvidia=probe, host=server()), code).command
    assert not judged(report(nvidia=probe, host=server(container="docker")), code).command


# ---- the health of GPUs --------------------------------------------------------------------------


def test_an_error_that_is_not_contained_is_told_of_the_gpu_that_asks_for_a_reset() -> None:
    check = judged(machine("hgx-h100-failing.json"), "nvidia-ecc-errors")

    assert check.message.endswith("and requests recovery: gpu-reset")
    assert check.message.startswith("GPU 3 ")


@pytest.mark.parametrize(("capability", "needed"), [("9.0", False), ("10.0", True)])
def test_the_fabric_of_blackwell_needs_the_subnet_manager_too(capability: str, needed: bool) -> None:
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


def test_the_driver_says_itself_that_the_fabric_is_not_ready() -> None:
    said = Reason("fabric-not-ready", "cuInit returned 802: the system is not ready")
    found = report(nvidia=nvidia(gpu()), host=server(), cuda_driver=told(reasons=(said,)))

    assert judged(found, "nvidia-fabric-manager").message == said.message


# ---- which GPU a program gets --------------------------------------------------------------------


def test_a_gpu_in_mig_mode_without_instances_is_of_no_use() -> None:
    found = report(nvidia=nvidia(gpu(1, facts={"mig": True})), host=server())

    check = judged(found, "nvidia-mig-visible-devices")

    assert check.severity is Severity.ERROR
    assert check.command == "sudo nvidia-smi -i 1 -mig 0"


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


def test_a_pascal_gpu_with_the_open_module_of_590_needs_the_branch_before() -> None:
    for release, hint in (
        ("580.65.06", "install the driver with its proprietary kernel module"),
        ("590.44.01", "install a driver of the 580 branch with its proprietary kernel module"),
    ):
        assert judged(with_module("1b06", "open", release), "nvidia-module-does-not-fit").hint == hint


@pytest.mark.parametrize("code", ["nvidia-module-does-not-fit", "nvidia-no-driver"])
def test_eight_gpus_with_one_cause_are_one_finding(code: str) -> None:
    reasons = (Reason("no-driver", "the GPU 0000:01:00.0 is on the bus, and no kernel driver has it"),)
    facts = {"kernel_driver": "nvidia", "pci_id": "10de:2901"}
    if code == "nvidia-no-driver":
        facts = {"kernel_driver": "", "pci_id": "10de:26b9"}
    gpus = tuple(gpu(index, Presence.FOUND, facts=facts, reasons=reasons) for index in range(8))
    probe = told(devices=gpus, facts={"kernel_module": "proprietary", "driver_release": "570.86.15"})

    check = judged(report(nvidia=probe, host=server(), cudnn=told(libraries=(CUDNN,))), code)

    assert "GPU 0-7" in check.message or "; so are 7 more" in check.message
    assert len(check.evidence) >= 8


@pytest.mark.parametrize(
    ("code", "fields", "message", "command"),
    [
        (
            "nvidia-compute-prohibited",
            {"facts": {"compute_mode": "prohibited"}},
            "no CUDA program can use GPU 0-7: the compute mode is prohibited",
            "sudo nvidia-smi -i 0,1,2,3,4,5,6,7 -c DEFAULT",
        ),
        (
            "nvidia-throttled",
            {"volatile": {"clock_limits": ["software-thermal-slowdown"]}},
            "GPU 0-7 is throttled: too hot (driver)",
            "",
        ),
    ],
)
def test_what_is_true_of_all_gpus_is_one_finding(
    code: str, fields: dict[str, Any], message: str, command: str
) -> None:
    every = [gpu(index, **fields) for index in range(8)]

    check = judged(report(nvidia=nvidia(*every)), code)

    assert (check.message, check.command) == (message, command)
    assert len(check.evidence) == 8
    some = checks(report(nvidia=nvidia(every[3], *(gpu(index) for index in range(3)))), code)
    assert [check.message.count("GPU 3 (NVIDIA L40S") for check in some] == [1]


def test_secure_boot_is_named_where_an_installed_driver_is_not_loaded() -> None:
    library = Library("nvidia", "/usr/lib/libnvidia-ml.so.1")
    device = gpu(0, Presence.FOUND, reasons=(Reason("no-driver", "no kernel driver has it"),))

    for is_on, libraries in ((True, (library,)), (True, ()), (False, (library,))):
        probe = told(devices=(device,), libraries=libraries)
        found = report(nvidia=probe, host=server(secure_boot=is_on), cudnn=told(libraries=(CUDNN,)))
        expected = is_on and bool(libraries)
        assert ("Secure Boot" in judged(found, "nvidia-no-driver").message) is expected


def test_a_laptops_gpu_cannot_be_reseated() -> None:
    assert "laptop" in judged(narrowed(8, 16, 16, is_laptop=True), "pcie-width-degraded").hint
    assert "Reseat" in judged(narrowed(8, 16, 16), "pcie-width-degraded").hint


# ---- one report, one verdict ---------------------------------------------------------------------

W, N, E = Severity.WARNING, Severity.NOTE, Severity.ERROR
PASSED, FAILED, SKIPPED, UNKNOWN = Status.PASSED, Status.FAILED, Status.SKIPPED, Status.UNKNOWN
TOO_OLD = told(warnings=(Reason("driver-too-old", "torch needs driver 580; this is 535.183.01"),))
COMPATIBLE = {"forward_compatibility": True}
NO_UVM = (Reason("device-nodes-missing", "there is no /dev/nvidia-uvm"),)
LOST = Reason("access-lost", "nvmlInit returned 999: the driver does not say why")
ROWS: dict[str, FactValue] = {"remapped_rows": 2, "row_remap_pending": False}
WAITS = Reason("row-remap-pending", "GPU 0 replaces a broken row of its memory at its next reset")
SWITCHES: dict[str, FactValue] = {"nvswitches": 4, "fabric_manager": False}
CLOSED = Reason("permission-denied", "/dev/kfd exists, but this user may not open it")
OVERRIDE = Reason("target-overridden", "it makes ROCm use gfx1103 as gfx1100", "unset it")
ALL_GPUS, NO_GPUS = (environment(NVIDIA_VISIBLE_DEVICES=value) for value in ("all", "void"))
DRIVER = told(libraries=(Library("cuda_driver", "/usr/lib/libcuda.so.1"),))
FOR_CUDA = told(facts={"cuda_version": "12.8"})
BARE, GUEST, DOCKER = server(), server(virtualisation="kvm"), server(container="docker")


def loading(release: str, model: str, **fields: Any) -> Report:
    """Return a machine whose programs load a forward-compatibility libcuda."""
    return report(cuda_driver=compatibility(release, **fields), nvidia=nvidia(gpu(name=model)))


def with_module(number: str, kind: str, release: str) -> Report:
    """Return a machine with an unbound GPU of a PCI number, and a kernel module."""
    unbound = replace(gpu(presence=Presence.FOUND), facts={"pci_id": f"10de:{number}"})
    facts = {"kernel_module": kind, "driver_release": release}
    return report(nvidia=told(devices=(unbound,), facts=facts))


def without_driver(code: str, host: ProbeReport, *libraries: Library) -> Report:
    reasons = (Reason(code, "the GPU 0000:01:00.0 is driven by another"),)
    device = gpu(presence=Presence.FOUND, facts={"kernel_driver": "other"}, reasons=reasons)
    return report(nvidia=told(devices=(device,)), host=host, cudnn=told(libraries=libraries))


def with_gpu(host: ProbeReport | None = None, **fields: Any) -> Report:
    return report(nvidia=nvidia(gpu(**fields)), **({"host": host} if host else {}))


def waiting(**facts: FactValue) -> Report:
    """Return a machine with a GPU whose row is to be remapped at its next reset."""
    return report(nvidia=nvidia(gpu(facts={"remapped_rows": 1, **facts}), warnings=(WAITS,)))


def communicating(variable: str, model: str, cpu: str = "Intel", **facts: FactValue) -> Report:
    """Return a machine with two GPUs and a variable of NCCL that is 1."""
    gpus = nvidia(gpu(0, name=model), gpu(1, name=model), facts=facts)
    vendor = told(facts={"vendor": cpu})
    return report(nvidia=gpus, cpu=vendor, host=server(), environment=environment(**{variable: "1"}))


def pairs(*paths: str) -> list[dict[str, Any]]:
    """Return pairs of GPUs, connected over these paths and without NVLink."""
    return [{"gpus": [0, at + 1], "path": path} for at, path in enumerate(paths)]


def redirected(**facts: FactValue) -> Report:
    """Return a machine with two GPUs whose root ports redirect their requests."""
    ports: dict[str, FactValue] = {"iommu_domain": "identity", "root_port_redirects": True}
    return report(nvidia=nvidia(gpu(0, facts=ports), gpu(1, facts=ports), facts=facts), host=server())


def linked(*active: int, **facts: FactValue) -> Report:
    """Return a machine with a GPU for each number of active links."""
    gpus = (
        gpu(index, facts={"nvlinks": 18, "nvlinks_active": up, **facts}) for index, up in enumerate(active)
    )
    return report(nvidia=nvidia(*gpus))


def switched(
    facts: dict[str, FactValue], state: str = "", host: ProbeReport = BARE, **probes: ProbeReport
) -> Report:
    device = gpu(facts={"fabric_state": state} if state else {})
    return report(nvidia=nvidia(device, facts=facts), host=host, **probes)


def sliced(release: str, value: str | None, *instances: int) -> Report:
    """Return a GPU in MIG mode, with the GPU instance of each MIG instance."""
    parts = [
        Device("mig", slot, uuid=f"MIG-{slot + 1}", facts={"parent": 0, "gpu_instance": instance})
        for slot, instance in enumerate(instances)
    ]
    probe = nvidia(gpu(0, facts={"mig": True}), *parts, facts={"driver_release": release})
    variables = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    return report(nvidia=probe, host=server(), environment=environment(**variables))


def ordered(*names: str, order: tuple[int, ...] = (), **variables: str) -> Report:
    """Return GPUs by model, and CUDA's own order of them."""
    gpus = [gpu(index, name=name) for index, name in enumerate(names)]
    seen = tuple(replace(gpus[index], index=place) for place, index in enumerate(order))
    driver = told(Presence.USABLE, devices=seen)
    return report(nvidia=nvidia(*gpus), environment=environment(**variables), cuda_driver=driver)


def narrowed(now: Any, card: int | None, slot: int | None, **host: FactValue) -> Report:
    facts = {"max_pcie_width": card, "max_pcie_slot_width": slot}
    known = {name: value for name, value in facts.items() if value is not None}
    volatile = {} if now is None else {"pcie_width": now, "pcie_generation": 1}
    device = gpu(presence=Presence.FOUND, facts=known, volatile=volatile)
    return report(nvidia=told(devices=(device,)), rocm=told(), host=server(**host))


def narrowed_radeon(target: str) -> Report:
    facts: dict[str, FactValue] = {"max_pcie_width": 16}
    device = Device("rocm", 0, capability=target, facts=facts, volatile={"pcie_width": 8})
    return report(nvidia=told(), rocm=told(devices=(device,)), host=server())


def translated(domain: str, host: ProbeReport, *names: str) -> Report:
    facts: dict[str, FactValue] = {"iommu_domain": domain} if domain else {}
    models = names or ("NVIDIA L40S", "NVIDIA L40S")
    gpus = (gpu(index, name=name, facts=facts) for index, name in enumerate(models))
    return report(nvidia=nvidia(*gpus), host=host)


def cached(levels: list[int], host: ProbeReport, presence: Presence = Presence.FOUND) -> Report:
    caches = [{"level": level} for level in levels]
    cpu = told(facts={"capability": "AVX2", "caches": caches})
    nnpack = told(presence, libraries=(Library("nnpack", "/lib/libtorch_cpu.so"),))
    return report(cpu=cpu, host=host, nnpack=nnpack)


def closed(presence: Presence = Presence.FOUND, **facts: Any) -> Report:
    rocm = told(presence, devices=(Device("rocm", 0),), reasons=(CLOSED,), facts=facts)
    return report(rocm=rocm)


def overridden(**probes: ProbeReport) -> Report:
    rocm = told(devices=(Device("rocm", 0, capability="gfx1103"),), warnings=(OVERRIDE,))
    return report(rocm=rocm, **probes)


CUDNN = Library("cudnn", "/usr/lib/libcudnn.so.9")
LEFT_OVER = Library("cudnn", "/usr/lib/libcudnn.so.9", reasons=(Reason("dangling-link", "it leads nowhere"),))
#: Codes that a row of this file has, and no recorded machine.
HAS = ("nvidia-no-driver",)
GEFORCE = "NVIDIA GeForce RTX 4090"
REFUSED = (Reason("compat-unsupported", "cuInit: 804"),)
#: A hazard, and reports with the status or severity of its only check.
CASES: dict[str, list[tuple[Report, Status | Severity]]] = {
    "nvidia-driver-older-than-runtime": [
        (report(torch=TOO_OLD, cuda_driver=told(Presence.USABLE, facts=COMPATIBLE)), PASSED),
        (report(torch=TOO_OLD, cuda_driver=told(facts=COMPATIBLE)), FAILED),
    ],
    "nvidia-compat-library": [
        (loading("590.44.01", "NVIDIA L40S"), PASSED),
        (loading("590.44.01", "NVIDIA GeForce RTX 3090"), FAILED),
        (loading("590.44.01", "NVIDIA TITAN V", presence=Presence.USABLE), PASSED),
        (loading("575.51.03", "NVIDIA L40S"), FAILED),
        (loading("580.65.06", "NVIDIA L40S"), PASSED),
        (loading("", ""), PASSED),
        (loading("590.44.01", "NVIDIA L4", reasons=REFUSED), FAILED),
    ],
    "nvidia-module-does-not-fit": [
        (with_module("1b80", "open", "570.86.15"), FAILED),
        (with_module("1b80", "proprietary", "580.65.06"), PASSED),
        (with_module("1db6", "proprietary", "590.44.01"), FAILED),
        (with_module("1e04", "open", "590.44.01"), PASSED),
        (with_module("28a0", "proprietary", "570.86.15"), PASSED),
        (with_module("2901", "proprietary", "570.86.15"), FAILED),
        (with_module("2bb5", "open", "570.86.15"), PASSED),
        (with_module("zzzz", "open", "570.86.15"), PASSED),
        (with_module("2342", "proprietary", "570.86.15"), FAILED),  # GH200
        (with_module("2330", "proprietary", "570.86.15"), PASSED),  # H100
        (with_module("1b80", "", ""), PASSED),
        # NVML describes it.
        (
            report(
                nvidia=nvidia(gpu(facts={"pci_id": "10de:1b80"}), facts={"kernel_module": "open"})
            ),
            PASSED,
        ),
    ],
    "nvidia-no-driver": [
        (without_driver("nouveau-bound", server(), CUDNN), FAILED),
        (without_driver("no-driver", server(), CUDNN), FAILED),
        (without_driver("bound-elsewhere", server(), CUDNN), PASSED),
        (without_driver("nouveau-bound", server()), SKIPPED),
        (without_driver("nouveau-bound", server(), LEFT_OVER), SKIPPED),
        (without_driver("no-driver", DOCKER, CUDNN), SKIPPED),
    ],
    "nccl-leftovers": [
        (communicating("NCCL_P2P_DISABLE", "NVIDIA L40S"), FAILED),
        (communicating("NCCL_P2P_DISABLE", GEFORCE), PASSED),
        (
            communicating("NCCL_P2P_DISABLE", GEFORCE, topology=[{"gpus": [0, 1], "nvlinks": 4}]),
            FAILED,
        ),
        (communicating("NCCL_SHM_DISABLE", GEFORCE), FAILED),
        (communicating("NCCL_SHM_DISABLE", "NVIDIA L40S"), PASSED),
        (communicating("NCCL_P2P_DISABLE", "NVIDIA L40S", topology=pairs("one-switch")), FAILED),
        (communicating("NCCL_P2P_DISABLE", "NVIDIA L40S", topology=pairs("host-bridge")), PASSED),
        (communicating("NCCL_P2P_DISABLE", "NVIDIA L40S", "AMD", topology=pairs("host-bridge")), FAILED),
        (communicating("NCCL_SHM_DISABLE", "NVIDIA L40S", topology=pairs("host-bridge")), FAILED),
        (communicating("NCCL_SHM_DISABLE", "NVIDIA L40S", topology=pairs("one-switch", "node")), FAILED),
    ],
    "nvidia-device-nodes-missing": [
        (report(nvidia=nvidia(gpu(), warnings=NO_UVM)), FAILED),
        (report(nvidia=nvidia(gpu(), warnings=NO_UVM), cuda_driver=told(Presence.USABLE)), PASSED),
        (report(nvidia=nvidia(gpu(), warnings=NO_UVM, facts={"jetson_model": "Orin"})), SKIPPED),
        (report(nvidia=nvidia(warnings=NO_UVM), host=DOCKER), PASSED),
        (report(nvidia=nvidia(warnings=NO_UVM), host=DOCKER, environment=ALL_GPUS), FAILED),
        (report(nvidia=nvidia(warnings=NO_UVM), host=DOCKER, environment=NO_GPUS), PASSED),
        (report(nvidia=nvidia(warnings=NO_UVM), host=DOCKER, cuda_driver=DRIVER), FAILED),
        (report(nvidia=nvidia(warnings=NO_UVM), host=DOCKER, torch=FOR_CUDA), FAILED),
    ],
    "container-lost-devices": [
        (
            report(
                nvidia=told(reasons=(LOST,), facts={"device_nodes": ["/dev/nvidia0"]}),
                host=server(),
            ),
            SKIPPED,
        ),
        (machine("macbook-m3"), SKIPPED),
    ],
    "nvidia-throttled": [
        (machine("wsl2-nvidia"), UNKNOWN),
        (report(nvidia=told(devices=(gpu(presence=Presence.FOUND),), reasons=(LOST,))), UNKNOWN),
        (report(nvidia=told(devices=(gpu(facts={"kernel_driver": "vfio-pci"}, presence=Presence.FOUND),))),
         SKIPPED),
        *((with_gpu(volatile={"clock_limits": limits}), expected) for limits, expected in (([], PASSED),
         (["idle"], PASSED), (["software-power-cap"], PASSED), (["application-clocks", "sync-boost",
         "display-clocks"], PASSED), (["idle", "hardware-slowdown"], PASSED), (["hardware-slowdown"], N),
         (["hardware-slowdown", "hardware-thermal-slowdown"], W), (["software-thermal-slowdown"], W),
         (["hardware-slowdown", "hardware-power-brake"], W), ("idle", PASSED))),
    ],
    "nvidia-ecc-errors": [
        (with_gpu(facts=facts, volatile={"ecc_uncorrected_since_load": 3}), expected)
        for facts, expected in (
            ({**ROWS, "recovery_action": "none"}, PASSED),
            ({**ROWS, "recovery_action": "gpu-reset"}, E),
            ({**ROWS, "row_remap_pending": True, "recovery_action": "gpu-reset"}, PASSED),
            ({**ROWS, "row_remap_failed": True}, PASSED),
            (ROWS, N),  # an old driver
            ({}, W),  # Volta
        )
    ],
    "nvidia-row-remap": [
        (waiting(recovery_action="none"), N),
        (waiting(recovery_action="gpu-reset"), W),
        (waiting(), W),
    ],
    "nvidia-nvlink-down": [
        (linked(18, 18, 17), FAILED),
        (linked(0, 0, 0), PASSED),
        (linked(12, 12, 0), PASSED),
        (linked(18, 18, 0, nvlinks_lead_to_switch=True), FAILED),
        (linked(18, 18, 17, mig=True), PASSED),
    ],
    "nvidia-persistence-off": [
        (
            with_gpu(
                server(), facts={"persistence_mode": False}, volatile={"display_active": True}
            ),
            PASSED,
        ),
        (with_gpu(server(), facts={"persistence_mode": False}), FAILED),
        (with_gpu(server(container="podman"), facts={"persistence_mode": False}), SKIPPED),
    ],
    "nvidia-fabric-manager": [
        (switched(SWITCHES), FAILED),
        (switched({"nvswitches": 4, "fabric_manager": True}), PASSED),
        (switched({}), PASSED),
        (switched({"nvswitches": 4}, "completed"), PASSED),
        (switched({}, "in-progress"), FAILED),
        (switched({"nvswitches": 4}, "in-progress", cuda_driver=told(Presence.USABLE)), PASSED),
        (switched(SWITCHES, host=DOCKER), PASSED),
    ],
    "nvidia-mig-visible-devices": [
        (sliced("535.161.08", None, 1, 2), PASSED),
        (sliced("535.161.08", "MIG-1", 1, 2), PASSED),
        (sliced("535.161.08", "MIG-1,MIG-2", 1, 2), W),
        (sliced("535.161.08", "0", 1, 2), N),
        (sliced("535.161.08", "", 1, 2), PASSED),
        (sliced("570.86.10", "MIG-1,MIG-2", 1, 2, 2), PASSED),
        (sliced("570.86.10", "MIG-1,MIG-2,MIG-3", 1, 2, 2), FAILED),
        (sliced("570.86.10", "0", 1, 2, 2), PASSED),
    ],
    "nvidia-device-order": [
        (ordered("A10", "L40S"), N),
        (ordered("A10", "L40S", CUDA_VISIBLE_DEVICES="1"), W),
        (ordered("A10", "L40S", CUDA_VISIBLE_DEVICES="GPU-1"), N),
        (ordered("A10", "L40S", CUDA_DEVICE_ORDER="PCI_BUS_ID"), PASSED),
        (ordered("A10", "A10"), PASSED),
        (ordered("L40S", "A10", order=(0, 1)), PASSED),
        (ordered("A10", "L40S", order=(1, 0)), N),
    ],
    "pcie-width-degraded": [
        (narrowed(8, 16, 16), FAILED),
        (narrowed(8, 16, None), FAILED),
        (narrowed(8, 16, 8), PASSED),
        (narrowed(16, 16, 16), PASSED),
        (narrowed(8, None, None), PASSED),
        (narrowed(None, 16, 16), SKIPPED),
        (narrowed("8", 16, 16), SKIPPED),
        (narrowed_radeon("gfx942"), FAILED),
        (narrowed_radeon("gfx1100"), SKIPPED),  # it reduces lanes while idle
        (report(nvidia=nvidia(gpu(facts={"max_pcie_width": 16}, volatile={"pcie_width": 1})), rocm=told(),
         host=GUEST), SKIPPED),
    ],
    "pcie-access-control": [
        (translated("DMA-FQ", server()), FAILED),
        (translated("DMA", server()), FAILED),
        (translated("identity", server()), PASSED),
        (translated("", server()), UNKNOWN),
        (translated("", server(kernel_parameters={"iommu": "pt"})), PASSED),
        (translated("DMA-FQ", GUEST), SKIPPED),
        (translated("DMA", server(machine="aarch64")), SKIPPED),
        (translated("DMA", server(), "NVIDIA L40S"), SKIPPED),
        (translated("DMA", server(), GEFORCE, GEFORCE), SKIPPED),
        (redirected(), N),
        (redirected(topology=[{"gpus": [0, 1], "nvlinks": 4}]), PASSED),
    ],
    "nnpack-cache-hidden": [
        (cached([1, 1, 2], GUEST), FAILED),
        (cached([1, 1, 2, 3], GUEST), PASSED),
        (cached([1, 1, 2], GUEST, Presence.USABLE), PASSED),
        (cached([], GUEST), UNKNOWN),
        (cached([1, 1, 2], server()), SKIPPED),
    ],
    "rocm-hsa-override": [
        (overridden(), W),
        (overridden(rocblas=told(facts={"targets": ["gfx1100", "gfx1101", "gfx1102"]})), N),
    ],
    "rocm-kfd-not-accessible": [
        (closed(), SKIPPED),
        (closed(installations=[{"path": "/opt"}]), FAILED),
        (closed(Presence.USABLE, installations=[{"path": "/opt"}]), PASSED),
    ],
    "rocm-gpus-forbidden": [
        (report(rocm=told(facts={"unreadable_node_count": 6, "visible_gpu_count": 2})), PASSED)
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "subject", "expected"),
    [
        pytest.param(code, subject, expected, id=f"{code}-{at}")
        for code, cases in CASES.items()
        for at, (subject, expected) in enumerate(cases)
    ],
)
def test_a_report_has_a_hazard_or_not(code: str, subject: Report, expected: Status | Severity) -> None:
    check = judged(subject, code)

    if isinstance(expected, Severity):
        assert (check.status, check.severity) == (Status.FAILED, expected)
    else:
        assert check.status is expected


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
def test_a_saved_report_holds_what_the_probe_writes(name: str, fake_library: Callable[..., Path]) -> None:
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
