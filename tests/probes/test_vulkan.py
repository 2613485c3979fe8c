from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

import mlbackends
from mlbackends.base.tables import table
from mlbackends.libraries import vulkan as shader
from mlbackends.model.records import Presence
from mlbackends_cli.report.probes import device_lines, overview
from mlbackends_probes import vulkan

if TYPE_CHECKING:
    from tests.conftest import Machine
    from tests.probes.conftest import Asked


LIBRARY = ("vulkan", "libvulkan.so.1")

FOLDER = "/usr/share/vulkan/icd.d"


def manifest(library: str) -> str:
    inner = {"library_path": library, "api_version": "1.3.230"}
    return json.dumps({"file_format_version": "1.0.0", "ICD": inner})


def test_manifests_in_the_usual_folder(machine: Machine) -> None:
    found = vulkan.find(machine({f"{FOLDER}/radeon.json": manifest("libvulkan_radeon.so")}))

    assert found.facts["drivers"] == [
        {
            "file": f"{FOLDER}/radeon.json",
            "library": "libvulkan_radeon.so",
            "api_version": "1.3.230",
        }
    ]
    assert found.presence is Presence.FOUND
    assert [reason.code for reason in found.reasons] == ["not-found"]


@pytest.mark.parametrize("name", ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"])
def test_a_variable_replaces_the_folders(machine: Machine, name: str) -> None:
    rows = vulkan.find(
        machine(
            {f"{FOLDER}/a.json": manifest("liba.so"), "/icd/b.json": manifest("libb.so")},
            **{name: "/icd/b.json"},
        )
    ).facts["drivers"]

    assert [row["library"] for row in rows] == ["libb.so"]  # type: ignore[index,union-attr]


def test_a_manifest_that_names_nothing_is_a_warning(machine: Machine) -> None:
    (warning,) = vulkan.find(
        machine(
            {f"{FOLDER}/gone.json": manifest("../../lib/libgone.so")}
            | {f"{FOLDER}/left-to-the-loader.json": manifest("libfine.so")}
        )
    ).warnings

    assert warning.code == "dangling-link"
    assert "libgone.so" in warning.message


def test_a_variable_that_names_no_manifest_is_a_warning(machine: Machine) -> None:
    found = vulkan.find(
        machine(
            {"/usr/lib/libvulkan.so.1": "x", f"{FOLDER}/a.json": manifest("liba.so")},
            VK_DRIVER_FILES="/icd/gone.json",
        )
    )

    (warning,) = found.warnings
    assert warning.code == "dangling-link"
    assert warning.message == "VK_DRIVER_FILES names /icd/gone.json, which does not exist"
    (reason,) = found.reasons
    assert reason.message == "the loader is installed, and no driver is registered in /icd/gone.json"


@pytest.mark.parametrize("garbage", ["", "\0\ufffd", "[]", '{"ICD": 3}', "[" * 100_000, '{"ICD": {}}'])
def test_garbage_in_a_manifest_is_no_driver(machine: Machine, garbage: str) -> None:
    assert "drivers" not in vulkan.find(machine({f"{FOLDER}/bad.json": garbage})).facts


def test_a_device_that_adds_is_usable(asked: Asked) -> None:
    report, library = asked("vulkan", LIBRARY, FAKE_GPUS="2")

    assert (library.presence, library.version) == (Presence.USABLE, "1.3.296")
    assert [device.presence for device in report.devices] == [Presence.USABLE] * 2
    device = report.devices[0]
    assert (device.name, device.capability) == ("Fake Vulkan Device", "1.4.303")
    assert (device.driver, device.memory_bytes) == ("25.2.1", 24 << 30)
    assert device.facts == {
        "vendor_id": "1002",
        "device_type": "discrete_gpu",
        "driver_name": "fake",
        "driver_info": "Fake 25.2.1",
        "max_storage_buffer_bytes": 1 << 27,
        "workgroup_memory_bytes": 32768,
        "max_workgroup_size": 1024,
    }


def test_devices_of_mac_os_answer_where_they_are_asked_for(asked: Asked) -> None:
    assert asked("vulkan", LIBRARY, FAKE_PORTABLE="1")[1].presence is Presence.USABLE


def test_a_vendor_without_a_number_of_pci_keeps_its_own(asked: Asked) -> None:
    """That of llvmpipe is VK_VENDOR_ID_MESA, 0x10005."""
    report, _ = asked("vulkan", LIBRARY, FAKE_VENDOR="0x10005")

    assert report.devices[0].facts["vendor_id"] == "10005"


def test_a_processor_that_draws_is_no_gpu(asked: Asked) -> None:
    report, _ = asked("vulkan", LIBRARY, FAKE_TYPE="4", FAKE_NAME="llvmpipe (LLVM 15.0.6, 256 bits)")

    assert report.devices[0].facts["device_type"] == "cpu"
    (line,) = device_lines(report)
    assert line.startswith("llvmpipe (LLVM 15.0.6, 256 bits) · the CPU, no GPU · 24 GiB")
    rows = overview(replace(mlbackends.report("vulkan", depth="found"), probes={"vulkan": report}))
    assert [row.name for row in rows["library"]] == ["vulkan"] and not rows["accelerator"]


def test_nvidia_packs_its_version_in_its_own_way(asked: Asked) -> None:
    number = 580 << 22 | 65 << 14 | 6 << 6
    report, _ = asked("vulkan", LIBRARY, FAKE_VENDOR="0x10de", FAKE_DRIVER_NUMBER=str(number))

    assert report.devices[0].driver == "580.65.06"


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"FAKE_INIT": "-9"}, "no-driver"),
        ({"FAKE_INIT": "-3"}, "call-failed"),
        ({"FAKE_GPUS": "0"}, "no-device"),
        ({"FAKE_BEHAVIOUR": "segfault"}, "crashed"),
        ({"FAKE_QUEUE": "1"}, "unsupported-hardware"),
        ({"FAKE_MEMORY": "1"}, "unsupported-hardware"),
        ({"FAKE_PIPELINE": "-2"}, "call-failed"),
        ({"FAKE_COMPUTE": "segfault"}, "crashed"),
        ({"FAKE_COMPUTE": "wrong"}, "wrong-result"),
    ],
    ids=str,
)
def test_what_stops_it(asked: Asked, told: dict[str, str], code: str) -> None:
    _, library = asked("vulkan", LIBRARY, **told)

    assert (library.presence, library.version) == (Presence.LOADABLE, "1.3.296")
    assert [reason.code for reason in library.reasons] == [code]


def test_a_device_that_hangs_is_found_out(asked: Asked) -> None:
    _, library = asked("vulkan", LIBRARY, timeout=2, FAKE_COMPUTE="hang")

    assert library.presence is not Presence.USABLE
    # On a machine that is busy throughout, the process that asks can be given up too.
    assert library.reasons[0].code in {"timed-out", "exited"}


def test_the_words_of_the_shader_are_those_of_its_source(tmp_path: Path) -> None:
    if not (assembler := shutil.which("spirv-as")):
        pytest.skip("needs spirv-as, of Debian's spirv-tools")
    source, target = Path(shader.__file__).with_name("vulkan_add.spvasm"), tmp_path / "add.spv"
    subprocess.run([assembler, "--target-env", "spv1.0", source, "-o", target], check=True)

    words = table("libraries/vulkan")["shader"]

    assert target.read_bytes() == struct.pack(f"{len(words)}I", *words)


def test_structures_are_those_of_the_header(tmp_path: Path) -> None:
    """Each has the size and the type that vulkan_core.h gives it, where it is installed."""
    structures = table("libraries/vulkan")["structures"]
    lines = [
        f'_Static_assert(sizeof({name}) == {struct.calcsize(f"IP{layout}0P")}, "size of {name}");'
        for name, (_, layout) in structures.items()
    ]
    for name, (kind, _) in structures.items():
        words = re.findall("[A-Z][a-z]+|[0-9]+", name.removeprefix("Vk"))
        constant = "VK_STRUCTURE_TYPE_" + "_".join(words).upper()
        lines.append(f'_Static_assert({constant} == {kind}, "type of {name}");')
    include, compiler = "#include <vulkan/vulkan.h>", shutil.which("cc")

    def compiles(*lines: str) -> bool:
        command = [compiler or "", "-xc", "-fsyntax-only", "-"]
        code = "\n".join([*lines, ""]).encode()
        return not subprocess.run(command, input=code, check=False).returncode

    if not compiler or not compiles(include):
        pytest.skip("needs a compiler, and Debian's libvulkan-dev")
    assert compiles(include, *lines)
