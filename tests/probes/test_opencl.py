from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.model.records import Presence
from mlbackends_probes import opencl

if TYPE_CHECKING:
    from tests.conftest import Machine
    from tests.probes.conftest import Asked


LIBRARY = ("opencl", "libOpenCL.so.1")


def test_a_driver_without_a_loader_says_what_is_missing(machine: Machine) -> None:
    found = opencl.find(machine({"/etc/OpenCL/vendors/intel.icd": "libigdrcl.so\n"}))

    row = {"file": "/etc/OpenCL/vendors/intel.icd", "library": "libigdrcl.so"}
    assert found.facts["drivers"] == [row]
    assert found.presence is Presence.FOUND
    assert [reason.code for reason in found.reasons] == ["not-found"]
    assert found.warnings == ()


def test_a_driver_file_that_names_nothing_is_a_warning(machine: Machine) -> None:
    assert [
        warning.code
        for warning in opencl.find(machine({"/etc/OpenCL/vendors/gone.icd": "/opt/gone/libgone.so"})).warnings
    ] == ["dangling-link"]


def test_a_loader_without_drivers_says_so(machine: Machine) -> None:
    assert [reason.code for reason in opencl.find(machine({"/usr/lib/libOpenCL.so.1": "x"})).reasons] == [
        "no-driver"
    ]


def test_a_variable_replaces_the_folder_of_drivers(machine: Machine) -> None:
    rows = opencl.find(
        machine(
            {"/etc/OpenCL/vendors/a.icd": "liba.so", "/icd/b.icd": "libb.so"},
            OCL_ICD_VENDORS="/icd/",
        )
    ).facts["drivers"]

    assert rows == [{"file": "/icd/b.icd", "library": "libb.so"}]


def test_a_driver_can_stand_in_the_variable_itself(machine: Machine) -> None:
    """As ocl-icd takes it."""
    found = opencl.find(machine({}, OCL_ICD_VENDORS="/a/libb.so.1"))

    assert found.facts["drivers"] == [{"file": "OCL_ICD_VENDORS", "library": "/a/libb.so.1"}]
    assert [warning.code for warning in found.warnings] == ["dangling-link"]


def test_a_driver_that_no_file_names_is_the_hint(machine: Machine) -> None:
    """intel-opencl-rt brings a file that names a folder of nobody's, /opt/anaconda1anaconda2..."""
    (reason,) = opencl.find(machine({"/usr/lib/libOpenCL.so.1": "x", "/usr/lib/libintelocl.so": "x"})).reasons

    assert reason.hint == (
        "no file names /usr/lib/libintelocl.so: write its path to /etc/OpenCL/vendors/intel.icd"
    )


@pytest.mark.parametrize("garbage", ["", "\0\x01\ufffd", "\n\n"])
def test_garbage_in_a_driver_file_is_no_driver(machine: Machine, garbage: str) -> None:
    assert "drivers" not in opencl.find(machine({"/etc/OpenCL/vendors/bad.icd": garbage})).facts


def test_a_device_that_adds_is_usable(asked: Asked) -> None:
    report, library = asked("opencl", LIBRARY, FAKE_GPUS="2")

    assert (library.presence, library.version) == (Presence.USABLE, "9.8.7")
    assert library.facts["loader"] == "Fake Loader"
    assert report.facts["platforms"] == [
        {"name": "Fake Platform", "vendor": "Nobody", "version": "OpenCL 3.0 fake"}
    ]
    first, second = report.devices
    assert (first.name, first.driver, first.capability) == ("Fake Device", "1.2.3", "OpenCL 3.0")
    assert first.memory_bytes == 8 << 30
    assert first.facts == {
        "platform": "Fake Platform",
        "device_type": "gpu",
        "compute_units": 32,
        "max_clock_hertz": 2_000_000_000,
        "max_workgroup_size": 4096,
        "workgroup_memory_bytes": 4096,
        "max_allocation_bytes": 4096,
        "float64": True,
    }
    assert (second.presence, second.pci_address) == (Presence.USABLE, "0000:04:00.0")


def test_a_processor_is_told_from_a_gpu(asked: Asked) -> None:
    report, _ = asked("opencl", LIBRARY, FAKE_TYPE="2")

    assert report.devices[0].facts["device_type"] == "cpu"


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"FAKE_PLATFORMS": "0"}, "no-driver"),
        ({"FAKE_GPUS": "0"}, "no-device"),
        ({"FAKE_AVAILABLE": "0"}, "no-device"),
        ({"FAKE_RESULT": "1"}, "wrong-result"),
        ({"FAKE_INIT": "-6"}, "call-failed"),
        ({"FAKE_BUILD": "-11"}, "call-failed"),
        ({"FAKE_COMPILER": "0"}, "no-use-check"),
    ],
    ids=str,
)
def test_what_stops_it_below_usable(asked: Asked, told: dict[str, str], code: str) -> None:
    _, library = asked("opencl", LIBRARY, **told)

    assert library.presence is Presence.LOADABLE
    assert [reason.code for reason in library.reasons] == [code]


def test_a_program_that_does_not_compile_tells_why(asked: Asked) -> None:
    _, library = asked("opencl", LIBRARY, FAKE_BUILD="-11")

    told = "clBuildProgram returned -11 (CL_BUILD_PROGRAM_FAILURE): no clang to compile with"
    assert library.reasons[0].message == told


def test_a_loader_that_does_not_tell_its_version_has_none(asked: Asked) -> None:
    _, library = asked("opencl", LIBRARY, FAKE_LOADER="1")

    assert (library.presence, library.version, library.facts) == (Presence.USABLE, "", {})


def test_a_driver_that_hangs_leaves_the_rung_before(asked: Asked) -> None:
    _, library = asked("opencl", LIBRARY, timeout=0.5, FAKE_BEHAVIOUR="hang")

    assert library.presence is Presence.FOUND
    assert [reason.code for reason in library.reasons] == ["timed-out"]
