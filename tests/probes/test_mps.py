from __future__ import annotations

import ctypes
import json
from typing import TYPE_CHECKING

import pytest

from mlbackends.base.reasons import NotUsable
from mlbackends.host.host import Host
from mlbackends.model.records import Library, Presence
from mlbackends_probes import mps

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FakeLibrary


CORE = "/System/Library/CoreServices"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def plist(version: str) -> str:
    return (
        '<?xml version="1.0"?>\n<plist version="1.0">\n<dict>\n'
        "\t<key>ProductBuildVersion</key>\n\t<string>24D60</string>\n"
        f"\t<key>ProductVersion</key>\n\t<string>{version}</string>\n</dict>\n</plist>\n"
    )


def mac(
    root: Path,
    version: str = "15.3",
    machine: str = "arm64",
    chip: str = "Apple M3 Max",
    torch: str = "",
    **environment: str,
) -> Host:
    site = "/venv/lib/python3.12/site-packages"
    told = {
        "platform": "darwin",
        "uname": {"machine": machine},
        "environment": environment,
        "python": {"path": [site]},
    }
    controls = f"hw.memsize: 68719476736\nmachdep.cpu.brand_string: {chip}\nkern.hv_vmm_present: 0\n"
    files = {
        "host.json": json.dumps(told),
        f"root{CORE}/SystemVersion.plist": plist(version),
        "commands/sysctl -a": controls,
        "commands/ioreg -rc AGXAccelerator -d1": '{\n  "gpu-core-count" = 40\n}\n',
    }
    if torch:
        files[f"root{site}/torch-{torch}.dist-info/METADATA"] = "Name: torch\n"
    write(root, files)
    return Host(str(root))


def test_a_mac_with_an_m3(tmp_path: Path) -> None:
    found = mps.find(mac(tmp_path, torch="2.13.0"))

    assert found.facts == {
        "is_apple_silicon": True,
        "is_translated": False,
        "macos_version": "15.3",
        "unsupported_types": ["float64", "complex128"],
        "macos_build": "24D60",
        "chip": "Apple M3 Max",
        "is_virtual_machine": False,
        "gpu_core_count": 40,
        "torch_needs_macos": "14.0",
    }
    (device,) = found.devices
    assert (device.name, device.memory_bytes) == ("Apple M3 Max", 64 << 30)
    assert found.warnings == ()


def test_macos_13_has_no_bfloat16_and_is_too_old_for_a_new_torch(tmp_path: Path) -> None:
    found = mps.find(mac(tmp_path, version="13.7.4", torch="2.10.0"))

    unsupported = found.facts["unsupported_types"]
    assert unsupported == ["float64", "complex128", "bfloat16", "complex64"]
    (warning,) = found.warnings
    assert warning.code == "too-old"
    assert "macOS 14.0" in warning.message and "macOS 13.7.4" in warning.message


@pytest.mark.parametrize("chip", ["Apple M3 Max", "VirtualApple @ 2.50GHz"])
def test_python_below_rosetta_is_a_warning(tmp_path: Path, chip: str) -> None:
    found = mps.find(mac(tmp_path, machine="x86_64", chip=chip))

    assert found.facts["is_translated"] is True
    assert [warning.code for warning in found.warnings] == ["translated"]


def test_an_intel_mac_has_no_mps_in_a_new_torch(tmp_path: Path) -> None:
    chip = "Intel(R) Xeon(R) W-2140B CPU @ 3.20GHz"
    found = mps.find(mac(tmp_path, machine="x86_64", chip=chip, torch="2.3.0"))

    assert found.facts["is_apple_silicon"] is False
    assert found.devices[0].memory_bytes is None
    assert [warning.code for warning in found.warnings] == ["unsupported-hardware"]


def test_the_version_that_old_programs_are_shown_is_not_believed(tmp_path: Path) -> None:
    host = mac(tmp_path, version="10.16")
    assert "macos_version" not in mps.find(host).facts

    write(tmp_path, {f"root{CORE}/.SystemVersionPlatform.plist": plist("26.1")})
    assert mps.find(host).facts["macos_version"] == "26.1"


def test_variables_are_told(tmp_path: Path) -> None:
    host = mac(tmp_path, PYTORCH_ENABLE_MPS_FALLBACK="1", OTHER="2")

    assert mps.find(host).facts["environment"] == {"PYTORCH_ENABLE_MPS_FALLBACK": "1"}


# ---- Metal, with a fake of it and of Objective-C -----------------------------------------------


def metal(fake_library: FakeLibrary) -> tuple[ctypes.CDLL, Library]:
    path = str(fake_library("metal", "libMetal.so"))
    return ctypes.CDLL(path), Library("Metal", path)


def test_the_gpu_tells_itself_and_fills_a_buffer(fake_library: FakeLibrary) -> None:
    opened, library = metal(fake_library)

    answer = mps.use(opened, mps.load(opened, library).library)

    assert answer.facts == {
        "families": ["Apple9", "Metal3"],
        "is_memory_shared": True,
        "recommended_memory_bytes": 48 << 30,
    }
    (device,) = answer.devices
    assert (device.name, device.capability) == ("Apple M3 Max", "Apple9")
    assert device.presence is Presence.USABLE


@pytest.mark.parametrize(("name", "code"), [("FAKE_GPUS", "no-device"), ("FAKE_RESULT", "wrong-result")])
def test_what_stops_it(
    fake_library: FakeLibrary, monkeypatch: pytest.MonkeyPatch, name: str, code: str
) -> None:
    opened, library = metal(fake_library)
    monkeypatch.setenv(name, "0" if name == "FAKE_GPUS" else "1")

    with pytest.raises(NotUsable) as stop:
        mps.use(opened, library)

    assert stop.value.reason.code == code
