from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from mlbackends.host.host import Host
from mlbackends.model.records import Presence
from mlbackends_probes import cuda_toolkit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Machine

    from mlbackends.model.records import Finding

SITE = "/site"


def only(finding: Finding) -> dict[str, str]:
    toolkits = finding.facts["toolkits"]
    assert isinstance(toolkits, list)
    (toolkit,) = toolkits
    assert isinstance(toolkit, dict)
    return toolkit


def header(number: int) -> str:
    return "/*\n * Copyright\n */\n" * 700 + f"#define CUDA_VERSION {number}\n" + "x" * 99_999


def toolkit(root: str, number: int, version: str = "") -> dict[str, str]:
    files = {f"{root}/bin/nvcc": "\x7fELF", f"{root}/include/cuda.h": header(number)}
    if version:
        told = {
            "cuda": {"name": "CUDA SDK", "version": version},
            "cuda_nvcc": {"version": "13.0.88"},
        }
        files[f"{root}/version.json"] = json.dumps(told)
    return files


@pytest.mark.skipif(sys.platform == "win32", reason="a folder in use cannot be removed there")
def test_a_current_folder_that_is_gone_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        cuda_toolkit.find(Host(environment={"CUDA_HOME": "cuda"}))
    finally:
        os.chdir(tmp_path)


def test_an_empty_machine_says_where_it_looked(machine: Machine) -> None:
    finding = cuda_toolkit.find(machine({}))

    assert (finding.presence, finding.facts) == (None, {})
    (reason,) = finding.reasons
    assert reason.code == "not-found"
    assert reason.message == ("no nvcc on PATH, no toolkit in /usr/local/cuda, /opt/cuda, /usr/lib/cuda")


def test_a_toolkit_in_the_usual_place(machine: Machine) -> None:
    files = toolkit("/usr/local/cuda-13.0", 13000, "13.0.2")
    host = machine(files | {"/usr/local/cuda": "->/usr/local/cuda-13.0"})

    finding = cuda_toolkit.find(host)

    assert (finding.presence, finding.version) == (Presence.FOUND, "13.0.2")
    assert (finding.reasons, finding.warnings) == ((), ())
    assert finding.facts == {
        "chosen": "/usr/local/cuda",
        "toolkits": [
            {
                "path": "/usr/local/cuda",
                "found_by": "well-known-folder",
                "version": "13.0.2",
                "nvcc": "/usr/local/cuda/bin/nvcc",
                "headers": "/usr/local/cuda/include/cuda.h",
                "headers_version": "13.0",
                "nvcc_version": "13.0.88",
            }
        ],
    }


def test_every_toolkit_is_reported_and_the_variable_chooses(machine: Machine) -> None:
    files = {
        **toolkit("/usr/local/cuda-12.8", 12080),
        **toolkit("/usr/local/cuda-13.0", 13000),
        **toolkit("/opt/mine", 12040),
    }

    finding = cuda_toolkit.find(machine(files, CUDA_HOME="/opt/mine/"))

    toolkits = finding.facts["toolkits"]
    assert isinstance(toolkits, list)
    assert [(row["path"], row["version"], row["found_by"]) for row in toolkits] == [
        ("/opt/mine", "12.4", "CUDA_HOME"),
        ("/usr/local/cuda-12.8", "12.8", "well-known-folder"),
        ("/usr/local/cuda-13.0", "13.0", "well-known-folder"),
    ]
    assert (finding.facts["chosen"], finding.version) == ("/opt/mine", "12.4")


def test_another_nvcc_on_path_is_a_conflict(machine: Machine) -> None:
    files = {**toolkit("/usr/local/cuda-12.8", 12080), **toolkit("/opt/mine", 13000)}
    path = "/usr/bin:/usr/local/cuda-12.8/bin"

    finding = cuda_toolkit.find(machine(files, CUDA_HOME="/opt/mine", PATH=path))

    assert finding.facts["nvcc"] == "/usr/local/cuda-12.8/bin/nvcc"
    (warning,) = finding.warnings
    assert warning.code == "conflict"
    assert warning.message == ("CUDA_HOME names CUDA 13.0 in /opt/mine, and the nvcc on PATH is of CUDA 12.8")


def test_a_script_called_nvcc_leads_to_the_toolkit_that_it_starts(machine: Machine) -> None:
    files = {
        **toolkit("/somewhere/cuda", 13000),
        "/usr/local/bin/nvcc": '#!/bin/sh\nexec /somewhere/cuda/bin/nvcc "$@"\n',
    }

    finding = cuda_toolkit.find(machine(files, PATH="/usr/local/bin"))

    assert finding.facts["nvcc"] == "/usr/local/bin/nvcc"
    assert finding.facts["chosen"] == "/somewhere/cuda"


def test_debians_toolkit_has_its_headers_elsewhere(machine: Machine) -> None:
    files = {
        "/usr/bin/nvcc": "#!/bin/sh\nexec /usr/lib/nvidia-cuda-toolkit/bin/nvcc\n",
        "/usr/lib/nvidia-cuda-toolkit/bin/nvcc": "\x7fELF",
        "/usr/include/cuda.h": header(11080),
    }

    finding = cuda_toolkit.find(machine(files, PATH="/usr/bin"))

    assert finding.version == "11.8"
    assert finding.facts["chosen"] == "/usr/lib/nvidia-cuda-toolkit"


def test_a_toolkit_of_wheels(machine: Machine) -> None:
    files = {
        f"{SITE}/nvidia/cu13/bin/nvcc": "\x7fELF",
        f"{SITE}/nvidia/cu13/include/cuda.h": header(13020),
        f"{SITE}/nvidia_cuda_nvcc-13.2.51.dist-info/METADATA": "",
        f"{SITE}/nvidia_cuda_runtime_cu12-12.8.90.dist-info/METADATA": "",
        f"{SITE}/nvidia_cudnn_cu13-9.9.0.dist-info/METADATA": "",
    }

    finding = cuda_toolkit.find(machine(files))

    assert finding.version == "13.2"
    assert finding.facts["chosen"] == f"{SITE}/nvidia/cu13"
    assert only(finding)["nvcc_version"] == "13.2.51"
    assert finding.facts["wheels"] == {
        "nvidia-cuda-nvcc": "13.2.51",
        "nvidia-cuda-runtime-cu12": "12.8.90",
    }


def test_wheels_outside_of_an_environment_tell_the_release_of_nvcc(machine: Machine) -> None:
    root = "/usr/local/cuda-13.0"
    files = {
        **toolkit(root, 13000),
        f"{root}/dist-info/nvidia_cuda_nvcc-13.0.88.dist-info/METADATA": "",
        f"{root}/dist-info/nvidia_cuda_runtime-13.0.96.dist-info/METADATA": "",
    }

    assert only(cuda_toolkit.find(machine(files)))["nvcc_version"] == "13.0.88"


def test_a_wheel_of_another_release_says_nothing_of_a_toolkit(machine: Machine) -> None:
    files = {
        f"{SITE}/nvidia/cu13/bin/nvcc": "\x7fELF",
        f"{SITE}/nvidia_cuda_nvcc_cu12-12.8.93.dist-info/METADATA": "",
        f"{SITE}/nvidia_cuda_nvcc-14.0.1.dist-info/METADATA": "",
    }

    assert "nvcc_version" not in only(cuda_toolkit.find(machine(files)))


def test_a_conda_environment_keeps_headers_by_target(machine: Machine) -> None:
    files = {
        "/conda/conda-meta/history": "",
        "/conda/bin/nvcc": "\x7fELF",
        "/conda/targets/x86_64-linux/include/cuda.h": header(12090),
    }

    finding = cuda_toolkit.find(machine(files, CONDA_PREFIX="/conda"))

    found = only(finding)
    assert (found["found_by"], found["version"]) == ("conda", "12.9")


def test_the_version_file_of_old_toolkits(machine: Machine) -> None:
    files = {
        "/usr/local/cuda/bin/nvcc": "",
        "/usr/local/cuda/version.txt": "CUDA Version 10.2.89\n",
    }

    assert cuda_toolkit.find(machine(files)).version == "10.2.89"


def test_headers_of_another_release_are_a_conflict(machine: Machine) -> None:
    finding = cuda_toolkit.find(machine(toolkit("/usr/local/cuda", 12080, "13.0.2")))

    (warning,) = finding.warnings
    assert warning.message == ("/usr/local/cuda has version 13.0.2, and its cuda.h is that of CUDA 12.8")


def test_a_driver_that_is_too_old_for_what_it_builds(machine: Machine) -> None:
    files = {**toolkit("/usr/local/cuda", 13000), "/sys/module/nvidia/version": "570.124.06\n"}

    (warning,) = cuda_toolkit.find(machine(files)).warnings

    assert warning.code == "driver-too-old"
    assert "the driver here is 570.124.06 (it serves CUDA 12.8)" in warning.message


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "CUDA_PATH is /opt/gone, which does not exist"),
        ({"/opt/gone/README": ""}, "CUDA_PATH is /opt/gone, which has neither nvcc nor cuda.h"),
    ],
)
def test_a_variable_that_names_no_toolkit(machine: Machine, files: dict[str, str], message: str) -> None:
    finding = cuda_toolkit.find(machine(files, CUDA_PATH="/opt/gone"))

    assert finding.presence is None
    assert [(warning.code, warning.message) for warning in finding.warnings] == [
        ("override-invalid", message)
    ]


def test_a_link_to_a_toolkit_that_was_removed(machine: Machine) -> None:
    host = machine({"/usr/local/bin/x": "", "/usr/local/cuda": "->cuda-12.1"})

    (warning,) = cuda_toolkit.find(host).warnings

    assert warning.code == "dangling-link"
    assert warning.message == "/usr/local/cuda points to cuda-12.1, which does not exist"


@pytest.mark.parametrize("number", ["99999999999", "7", "130001", "-13000", "0x32C8"])
def test_a_nonsense_version_in_the_header_is_left_out(machine: Machine, number: str) -> None:
    files = {"/usr/local/cuda/include/cuda.h": f"#define CUDA_VERSION {number}\n"}

    assert "headers_version" not in only(cuda_toolkit.find(machine(files)))
