from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry
from mlbackends.model.records import Presence
from mlbackends_probes import rocm

if TYPE_CHECKING:
    from tests.conftest import Machine
    from tests.probes.conftest import Asked


NODES = "/sys/class/kfd/kfd/topology/nodes"
PCI = "/sys/bus/pci/devices"


def card(bus: int, driver: str = "amdgpu", number: str = "744C") -> dict[str, str]:
    bound = f"DRIVER={driver}\n" if driver else ""
    text = f"{bound}PCI_CLASS=30000\nPCI_ID=1002:{number}\n"
    return {f"{PCI}/0000:{bus:02x}:00.0/uevent": text}


def instincts(gpus: int) -> dict[str, str]:
    """Return the files of MI300X cards."""
    files = {"/dev/kfd": ""}
    for node in range(gpus):
        bus = 5 + 0x10 * node
        files |= card(bus, number="74A1")
        files[f"{NODES}/{node}/properties"] = (
            f"simd_count 1216\nsimd_per_cu 4\ngfx_target_version 90402\nlocation_id {bus << 8}\n"
            f"unique_id {0xDEADBEEF00 + node}\n"
        )
    return files


def consumer_card(node: str = "110000") -> dict[str, str]:
    told = f"simd_count 192\nsimd_per_cu 2\ngfx_target_version {node}\nlocation_id 768\n"
    return card(3) | {
        f"{NODES}/1/properties": told,
        f"{NODES}/1/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 25753026560\n",
        f"{PCI}/0000:03:00.0/revision": "0xc8\n",
        "/usr/share/libdrm/amdgpu.ids": "# names\n1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n",
    }


def test_a_consumer_card_has_its_name_from_libdrm(machine: Machine) -> None:
    found = rocm.find(machine(consumer_card()))

    (device,) = found.devices
    assert (device.name, device.capability) == ("AMD Radeon RX 7900 XTX", "gfx1100")
    assert device.facts["compute_units"] == 96
    assert "links" not in found.facts


def test_the_gpus_that_ollama_has_code_for(machine: Machine) -> None:
    library = "/usr/local/lib/ollama/rocm/rocblas/library"
    files = {
        "/usr/local/lib/ollama/libggml-base.so": "",
        f"{library}/TensileLibrary_lazy_gfx1100.dat": "",
        f"{library}/Kernels.so-000-gfx1201.hsaco": "",
    }

    facts = rocm.find(machine(consumer_card() | files)).facts

    assert facts["ollama_folder"] == "/usr/local/lib/ollama"
    assert facts["ollama_libraries"] == ["rocm"]
    assert facts["ollama_targets"] == ["gfx1100", "gfx1201"]
    alone = {"/usr/lib/ollama/libggml-base.so": ""}
    assert rocm.find(machine(consumer_card() | alone)).facts["ollama_libraries"] == ["none"]
    assert "ollama_folder" not in rocm.find(machine(consumer_card())).facts


def test_a_card_without_driver_is_told_from_one_that_is_given_away(machine: Machine) -> None:
    found = rocm.find(machine(card(1, "") | card(2, "vfio-pci") | card(3)))

    reasons = [device.reasons[0] for device in found.devices]
    assert [reason.code for reason in reasons] == ["no-driver", "no-driver", "unsupported-hardware"]
    assert "vfio-pci" in reasons[1].message
    assert [reason.hint for reason in reasons[:2]] == ["load it: sudo modprobe amdgpu", ""]
    assert "KFD" in reasons[2].message
    assert found.reasons[0].code == "no-driver"


def test_an_installation_without_a_gpu_says_what_is_missing(machine: Machine) -> None:
    found = rocm.find(machine({"/opt/rocm-6.2.0/.info/version": "6.2.0-66\n"}))

    assert (found.presence, found.version) == (Presence.FOUND, "6.2.0-66")
    assert found.reasons[0].code == "no-device"


@pytest.mark.parametrize(
    ("told", "count"),
    [
        ({"HIP_VISIBLE_DEVICES": "0,2"}, 2),
        ({"HIP_VISIBLE_DEVICES": "0,9,1"}, 1),
        ({"HIP_VISIBLE_DEVICES": ""}, 4),
        ({"CUDA_VISIBLE_DEVICES": "1"}, 1),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}, 1),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "2"}, 0),
        ({"ROCR_VISIBLE_DEVICES": "GPU-000000DEADBEEF03"}, 1),
        ({"ROCR_VISIBLE_DEVICES": ""}, 0),
        ({"HIP_VISIBLE_DEVICES": "-1"}, 0),
    ],
    ids=str,
)
def test_variables_leave_gpus_visible(machine: Machine, told: dict[str, str], count: int) -> None:
    found = rocm.find(machine(instincts(4), **told))

    assert found.facts["visible_gpu_count"] == count
    codes = [warning.code for warning in found.warnings]
    assert ("hidden-by-variable" in codes) is (count == 0)


def test_two_variables_that_differ_are_a_conflict(machine: Machine) -> None:
    found = rocm.find(machine(consumer_card(), HIP_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="0,1"))

    assert [warning.code for warning in found.warnings] == ["conflict"]


@pytest.mark.parametrize(
    ("value", "code"),
    [("10.3.0", "target-overridden"), ("gfx1100", "override-invalid"), ("11.0.0", None)],
)
def test_an_override_of_the_target(machine: Machine, value: str, code: str | None) -> None:
    found = rocm.find(machine(consumer_card(), HSA_OVERRIDE_GFX_VERSION=value))

    assert [warning.code for warning in found.warnings] == ([code] if code else [])
    assert found.facts["environment"] == {"HSA_OVERRIDE_GFX_VERSION": value}


def test_numbers_that_make_no_sense_are_left_out(machine: Machine) -> None:
    told = (
        "simd_count 10\nsimd_per_cu 0\ngfx_target_version 99999999999\nlocation_id 18446744073709551615\n"
        "num_xcc 99999999\nmax_engine_clk_fcompute 9999999999\nunique_id 0\ndomain 1\n"
    )
    (device,) = rocm.find(machine({f"{NODES}/0/properties": told})).devices

    assert device.facts == {"partition": 15}
    assert (device.capability, device.uuid) == ("", "")


# ---- load and use, with a fake of the runtime --------------------------------------------------

HIP = ("hip", "libamdhip64.so.6")


def test_a_gpu_that_fills_memory_is_usable(asked: Asked) -> None:
    report, library = asked("rocm", HIP, FAKE_GPUS="2", FAKE_NAME="AMD Instinct MI300X")

    assert (library.presence, library.version) == (Presence.USABLE, "6.4.43483")
    assert report.facts["runtime_version"] == "6.4.43483"
    first, second = report.devices[:2]
    assert (first.name, first.presence) == ("AMD Instinct MI300X", Presence.USABLE)
    assert second.presence is Presence.LOADABLE
    assert (second.pci_address, second.memory_bytes) == ("0000:15:00.0", 192 << 30)


def test_what_a_gpu_offers_is_asked_one_by_one(asked: Asked) -> None:
    report, _ = asked("rocm", HIP, FAKE_RUNTIME="60443483")

    assert report.devices[0].features == ("cooperative-launch", "managed-memory", "memory-pools")


def test_a_runtime_that_numbered_otherwise_is_not_asked_what_its_gpu_offers(asked: Asked) -> None:
    report, _ = asked("rocm", HIP, FAKE_RUNTIME="40221400")

    assert report.devices[0].features == ()


def test_a_gpu_that_brings_back_other_bytes_is_wrong(asked: Asked) -> None:
    _, library = asked("rocm", HIP, FAKE_RESULT="1")

    assert library.presence is Presence.LOADABLE
    assert [reason.code for reason in library.reasons] == ["wrong-result"]


@pytest.mark.parametrize("told", [{"FAKE_INIT": "100"}, {"FAKE_GPUS": "0"}, {"FAKE_INIT": "101"}])
def test_a_runtime_without_gpus_is_loadable(asked: Asked, told: dict[str, str]) -> None:
    _, library = asked("rocm", HIP, **told)

    assert (library.presence, library.version) == (Presence.LOADABLE, "6.4.43483")
    assert [reason.code for reason in library.reasons] == ["no-device"]


def test_an_error_is_told_with_function_code_and_name(asked: Asked) -> None:
    _, library = asked("rocm", HIP, FAKE_MEMORY_STATUS="2")

    (reason,) = library.reasons
    assert reason.code == "call-failed"
    assert reason.message == "hipMalloc returned 2 (hipErrorOutOfMemory)"


def test_an_old_runtime_that_refuses_its_version_without_a_gpu_is_loadable(asked: Asked) -> None:
    _, library = asked("rocm", HIP, FAKE_RUNTIME_STATUS="100", FAKE_INIT="100")

    assert (library.presence, library.version) == (Presence.LOADABLE, "")


def test_a_runtime_that_crashes_keeps_its_rung(asked: Asked) -> None:
    _, library = asked("rocm", HIP, FAKE_BEHAVIOUR="segfault")

    assert library.presence is Presence.LOADABLE
    assert [reason.code for reason in library.reasons] == ["crashed"]


ROCBLAS = ("rocblas", "librocblas.so.4")


def test_rocblas_multiplies(asked: Asked) -> None:
    _, library = asked("rocblas", ROCBLAS)

    assert (library.presence, library.version) == (Presence.USABLE, "4.2.0.8a3b6c1")


def test_rocblas_without_a_handle_says_so(asked: Asked) -> None:
    _, library = asked("rocblas", ROCBLAS, FAKE_INIT="1")

    assert library.presence is Presence.LOADABLE
    assert library.reasons[0].message == "rocblas_create_handle returned 1"


@pytest.mark.parametrize(
    ("probe", "file", "version", "presence"),
    [
        ("miopen", "libMIOpen.so.1", "3.2.0", Presence.USABLE),
        ("hipblaslt", "libhipblaslt.so.0", "0.12.3", Presence.USABLE),
        ("rccl", "librccl.so.1", "2.21.6", Presence.LOADABLE),
    ],
)
def test_the_other_libraries_tell_their_version(
    asked: Asked, probe: str, file: str, version: str, presence: Presence
) -> None:
    _, library = asked(probe, (probe, file))

    assert (library.version, library.presence) == (version, presence)


@pytest.mark.parametrize(
    ("probe", "file"), [("miopen", "libMIOpen.so.1"), ("hipblaslt", "libhipblaslt.so.0")]
)
def test_a_library_that_gets_no_handle_stays_below_usable(asked: Asked, probe: str, file: str) -> None:
    _, library = asked(probe, (probe, file), FAKE_INIT="1")

    assert library.presence is Presence.LOADABLE
    assert [reason.code for reason in library.reasons] == ["call-failed"]


def test_rocblas_without_code_for_this_gpu_is_a_warning(machine: Machine) -> None:
    files = consumer_card("100306") | {"/opt/rocm/lib/librocblas.so.4": "no library, but it has the name"}
    files |= {
        f"/opt/rocm/lib/rocblas/library/Kernels.so-000-{target}.hsaco": "" for target in ("gfx942", "gfx90a")
    }

    found = registry.load("mlbackends_probes", "rocblas").find(machine(files))

    assert found.facts["targets"] == ["gfx90a", "gfx942"]
    (warning,) = found.warnings
    assert warning.code == "unsupported-hardware"
    assert "gfx1036" in warning.message
