from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.host.host import Host
from mlbackends.model.records import Presence
from mlbackends.survey import survey
from mlbackends_probes import cuda_driver

if TYPE_CHECKING:
    from tests.conftest import FakeLibrary, Machine
    from tests.probes.conftest import Asked


LIBCUDA = ("computing_driver", "libcuda.so.1")


def test_devices_that_compute_are_usable(asked: Asked) -> None:
    report, library = asked(
        "cuda_driver", LIBCUDA, FAKE_GPUS="2", FAKE_CAPABILITY="120", FAKE_NAME="NVIDIA B\u00e9ta"
    )

    assert library.presence is Presence.USABLE
    assert (report.presence, report.version) == (Presence.USABLE, "13.0")
    assert report.facts["device_count"] == 2
    first, second = report.devices
    assert (first.kind, first.index, second.index) == ("cuda", 0, 1)
    assert first.name == "NVIDIA B\u00e9ta"
    assert first.presence is Presence.USABLE
    assert first.capability == "12.0"
    assert first.memory_bytes == 80 << 30
    assert second.pci_address == "0000:18:00.0"
    assert second.uuid == "GPU-00000000-0000-0000-0000-000000000001"
    assert first.features == (
        "host-memory-mapping",
        "concurrent-kernels",
        "unified-addressing",
        "managed-memory",
        "compute-preemption",
        "host-registration",
        "virtual-memory-management",
        "memory-pools",
    )
    assert first.facts == {
        "max_shared_memory_per_block_bytes": 49152,
        "warp_size": 32,
        "max_clock_hertz": 1_980_000_000,
        "multiprocessors": 132,
        "max_memory_clock_hertz": 2_619_000_000,
        "memory_bus_bits": 5120,
        "l2_cache_bytes": 52428800,
        "max_shared_memory_per_block_optin_bytes": 232448,
    }


def test_a_device_without_memory_pools_says_so(asked: Asked) -> None:
    report, _ = asked("cuda_driver", LIBCUDA, FAKE_POOLS="0")

    assert "memory-pools" not in report.devices[0].features
    assert "managed-memory" in report.devices[0].features


@pytest.mark.parametrize(
    ("returned", "code", "words"),
    [
        ("34", "stub-library", "cuInit returned 34 (CUDA_ERROR_STUB_LIBRARY): it is the toolkit's"),
        ("100", "no-device", "cuInit returned 100 (CUDA_ERROR_NO_DEVICE): no CUDA device is there"),
        ("802", "fabric-not-ready", "cuInit returned 802 (CUDA_ERROR_SYSTEM_NOT_READY): the system"),
        ("803", "driver-mismatch", "cuInit returned 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH): the"),
        ("805", "mps-unreachable",
         "cuInit returned 805 (CUDA_ERROR_MPS_CONNECTION_FAILED): the multi-process service"),
        ("804", "compat-unsupported", "cuInit returned 804 (CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_"),
        ("999", "call-failed", "cuInit returned 999 (CUDA_ERROR_UNKNOWN): the driver does not say why"),
        ("777", "call-failed", "cuInit returned 777"),
    ],
)  # fmt: skip
def test_each_refusal_of_the_driver_has_its_own_code(
    asked: Asked, returned: str, code: str, words: str
) -> None:
    _, library = asked("cuda_driver", LIBCUDA, FAKE_INIT=returned)

    assert library.presence is Presence.LOADABLE
    assert library.version == "13.0"
    assert [reason.code for reason in library.reasons] == [code]
    assert library.reasons[0].message.startswith(words)


def test_an_empty_variable_is_the_hint_when_no_device_is_visible(asked: Asked) -> None:
    _, library = asked("cuda_driver", LIBCUDA, FAKE_GPUS="0", CUDA_VISIBLE_DEVICES="")

    (reason,) = library.reasons
    assert reason.code == "no-device"
    assert reason.hint == 'CUDA_VISIBLE_DEVICES is "", which hides every GPU: unset it'


def test_a_variable_that_is_no_text_does_not_spoil_the_hint(asked: Asked) -> None:
    _, library = asked("cuda_driver", LIBCUDA, FAKE_GPUS="0", CUDA_VISIBLE_DEVICES="\udcff")

    assert library.reasons[0].hint == 'CUDA_VISIBLE_DEVICES is "?", which hides every GPU: unset it'


def test_a_device_that_computes_wrong_is_not_usable(asked: Asked) -> None:
    report, library = asked("cuda_driver", LIBCUDA, FAKE_RESULT="1")

    assert library.presence is Presence.LOADABLE
    assert library.reasons[0].code == "wrong-result"
    assert report.devices[0].presence is Presence.LOADABLE
    assert report.devices[0].reasons[0].code == "wrong-result"


def test_a_device_that_another_process_holds_is_described(asked: Asked) -> None:
    report, library = asked("cuda_driver", LIBCUDA, FAKE_CONTEXT="46")

    assert library.reasons[0].code == "device-unavailable"
    assert report.devices[0].memory_bytes == 80 << 30
    assert "CUDA_ERROR_DEVICE_UNAVAILABLE" in report.devices[0].reasons[0].message


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        ("abort", "crashed"),
        ("segfault", "crashed"),
        ("exit", "exited"),
        pytest.param("hang", "timed-out", marks=pytest.mark.slow),
    ],
)
def test_a_driver_that_misbehaves_keeps_its_rung(asked: Asked, behaviour: str, code: str) -> None:
    limit = 3.0 if behaviour == "hang" else 60.0
    _, library = asked("cuda_driver", LIBCUDA, timeout=limit, FAKE_BEHAVIOUR=behaviour)

    assert library.presence is Presence.LOADABLE
    assert library.version == "13.0"
    assert [reason.code for reason in library.reasons] == [code]


def test_noise_on_stdout_changes_no_answer(asked: Asked) -> None:
    _, library = asked("cuda_driver", LIBCUDA, FAKE_BEHAVIOUR="noise")

    assert library.presence is Presence.USABLE


def test_a_library_without_the_functions_is_named(
    fake_library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fake_library("nothing", "libcuda.so.1", source="int nothing_here;")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(path.parent))

    report = survey(("cuda_driver",), Host(), Presence.USABLE).probes["cuda_driver"]

    (library,) = (library for library in report.libraries if library.path == str(path))
    assert (library.presence, library.reasons[0].code) == (Presence.FOUND, "missing-symbol")


# ---- find, on composed machines ----------------------------------------------------------------


@pytest.fixture
def libcuda(fake_library: FakeLibrary) -> bytes:
    return fake_library("computing_driver", "libcuda.so.1").read_bytes()


KERNEL = b"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"


def test_a_machine_without_a_driver_says_where_it_looked(machine: Machine) -> None:
    there = {"/opt/lib/README": b""}
    finding = cuda_driver.find(machine(there, LD_LIBRARY_PATH="/opt/lib"))

    assert finding.libraries == ()
    (reason,) = finding.reasons
    assert reason.code == "not-found"
    assert "LD_LIBRARY_PATH" in reason.message


def test_a_container_without_the_compute_part_is_told_so(machine: Machine) -> None:
    finding = cuda_driver.find(machine({}, NVIDIA_DRIVER_CAPABILITIES="utility,video"))

    assert "start the container with compute in it" in finding.reasons[0].hint


def test_a_library_without_a_kernel_module_lacks_the_driver(machine: Machine, libcuda: bytes) -> None:
    host = machine({"/usr/local/nvidia/lib64/libcuda.so.580.65.06": libcuda})

    finding = cuda_driver.find(host)

    assert finding.facts["driver_release"] == "580.65.06"
    assert [reason.code for reason in finding.reasons] == ["no-driver"]


def test_another_release_than_the_kernel_modules_is_a_mismatch(machine: Machine, libcuda: bytes) -> None:
    files = {
        "/proc/driver/nvidia/version": KERNEL,
        "/usr/local/nvidia/lib64/libcuda.so.575.57.08": libcuda,
    }

    finding = cuda_driver.find(machine(files))

    assert finding.reasons == ()
    (warning,) = finding.warnings
    assert warning.code == "driver-mismatch"
    assert "580.65.06" in warning.message
    assert "575.57.08" in warning.message


def test_a_forward_compatibility_copy_is_no_mismatch(machine: Machine, libcuda: bytes) -> None:
    files = {
        "/proc/driver/nvidia/version": KERNEL,
        "/usr/local/cuda/compat/libcuda.so.590.48.01": libcuda,
    }

    finding = cuda_driver.find(machine(files))

    assert finding.facts["forward_compatibility"] is True
    assert finding.warnings == ()


def test_a_stub_is_found_and_never_opened(machine: Machine, libcuda: bytes) -> None:
    files = {"/usr/local/cuda/lib64/stubs/libcuda.so": libcuda}

    finding = cuda_driver.find(machine(files, LD_LIBRARY_PATH="/usr/local/cuda/lib64/stubs"))

    (library,) = finding.libraries
    assert [reason.code for reason in library.reasons] == ["stub-library"]
    assert not library.wins


def test_a_linux_driver_inside_wsl_is_a_conflict(machine: Machine, libcuda: bytes) -> None:
    files = {
        "/usr/lib/wsl/lib/libcuda.so.1": libcuda,
        "/opt/driver/libcuda.so.1": libcuda + b"\0",
        "/dev/dxg": b"",
    }

    finding = cuda_driver.find(machine(files, LD_LIBRARY_PATH="/opt/driver"))

    assert [library.path for library in finding.libraries] == [
        "/opt/driver/libcuda.so.1",
        "/usr/lib/wsl/lib/libcuda.so.1",
    ]
    assert [warning.code for warning in finding.warnings] == ["conflict"]
    assert finding.reasons == ()
