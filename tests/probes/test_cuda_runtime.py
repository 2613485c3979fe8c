from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.model.records import Presence
from mlbackends_probes import cuda_runtime

if TYPE_CHECKING:
    from tests.conftest import FakeLibrary, Machine
    from tests.probes.conftest import Asked


LIBCUDART = ("cudart", "libcudart.so.13")


def test_a_runtime_with_a_device_is_usable(asked: Asked) -> None:
    report, library = asked("cuda_runtime", LIBCUDART, FAKE_RUNTIME="13020", FAKE_CUDA="13000", FAKE_GPUS="2")

    assert (library.presence, library.version, library.reasons) == (Presence.USABLE, "13.2", ())
    assert report.facts == {"driver_cuda_version": "13.0", "device_count": 2}


def test_a_runtime_without_a_driver_still_tells_its_version(asked: Asked) -> None:
    report, library = asked("cuda_runtime", LIBCUDART, FAKE_CUDA="0", FAKE_COUNT="35")

    assert (library.presence, library.version) == (Presence.LOADABLE, "13.0")
    assert [reason.code for reason in library.reasons] == ["no-driver"]
    assert "driver_cuda_version" not in report.facts


@pytest.mark.parametrize(
    ("variables", "code", "words"),
    [
        (
            {"FAKE_CUDA": "12020", "FAKE_COUNT": "35"},
            "driver-too-old",
            "cudaGetDeviceCount returned 35 (cudaErrorInsufficientDriver): the driver is older",
        ),
        ({"FAKE_COUNT": "100"}, "no-device", "cudaGetDeviceCount returned 100 (cudaErrorNoDevice)"),
        ({"FAKE_COUNT": "804"}, "compat-unsupported", "cudaGetDeviceCount returned 804: forward"),
        ({"FAKE_GPUS": "0"}, "no-device", "cudaGetDeviceCount returned 100"),
        ({"FAKE_RESULT": "1"}, "wrong-result", "device 0 filled 4096 bytes with 0x5a, and other"),
        ({"FAKE_BEHAVIOUR": "abort"}, "crashed", ""),
    ],
)
def test_each_refusal_has_its_own_code(
    asked: Asked, variables: dict[str, str], code: str, words: str
) -> None:
    _, library = asked("cuda_runtime", LIBCUDART, **variables)

    assert library.presence is Presence.LOADABLE
    assert library.reasons[0].code == code
    assert library.reasons[0].message.startswith(words)


@pytest.fixture
def libcudart(fake_library: FakeLibrary) -> bytes:
    return fake_library("cudart", "libcudart.so.13").read_bytes()


def test_every_copy_is_reported_and_one_of_a_soname_wins(machine: Machine, libcudart: bytes) -> None:
    wheel = "/site/nvidia/cu13/lib/libcudart.so.13"
    toolkit = "/usr/local/cuda-13.0/lib64/libcudart.so.13"
    finding = cuda_runtime.find(machine({wheel: libcudart, toolkit: libcudart}))

    assert [(library.path, library.wins) for library in finding.libraries] == [
        (wheel, True),
        (toolkit, False),
    ]


def test_a_driver_that_is_too_old_is_a_warning(machine: Machine, libcudart: bytes) -> None:
    files = {
        "/sys/module/nvidia/version": b"535.129.03\n",
        "/usr/local/cuda-13.0/lib64/libcudart.so.13": libcudart,
    }

    finding = cuda_runtime.find(machine(files))

    (warning,) = finding.warnings
    assert warning.code == "driver-too-old"
    assert warning.message.startswith(
        "/usr/local/cuda-13.0/lib64/libcudart.so.13 needs driver 580 or newer; the driver here is 535.129.03"
    )
