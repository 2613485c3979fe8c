"""What a user of a machine with an NVIDIA driver sees, on machines that tests/machines describes.

NVML is called by the real nvidia-ml-py. No GPU was seen: the stubs say what a description has of one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from described import NAMES, Machine, read

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stubs are Linux's libraries")

ASKS = Path(__file__).parent / "cuda_python_asks.py"
POLICY = Path(__file__).parents[1] / "policies" / "training-node.toml"
OF_GPUS = ("nvidia-", "cuda-", "container-", "pcie-", "library-", "other-", "accelerator-")
#: Rules of the policy that are about processors and memory, which are this machine's.
OF_THE_REST = {"avx512", "shared-memory", "one-openmp", "one-openmp-runtime"}

HAS_CUDA_PYTHON = importlib.util.find_spec("cuda") and all(
    importlib.util.find_spec(f"cuda.{name}") for name in ("bindings", "core")
)
SEVERITIES = ("note", "warning", "error")


@pytest.fixture
def described(fake_library: Callable[..., Path], tmp_path: Path) -> Callable[[str], Machine]:
    def machine(name: str) -> Machine:
        libraries = read(name)["libraries"].items()
        nothing = {"opened_alone": "int nothing;"}
        folders = [
            fake_library(stub, soname, source=nothing.get(stub, "")).parent for stub, soname in libraries
        ]
        return Machine(name, tmp_path / name, folders)

    return machine


@pytest.mark.parametrize(
    ("name", "code", "line"),
    [
        ("h100", 0, "ok: "),
        ("h100-lost", 1, "[node_problem] nvidia-gpu-lost: "),
        ("h100-fabric", 1, "[node_problem] nvidia-fabric-manager: "),
        ("h100-ill", 1, "[node_problem] nvidia-"),
        ("old-driver", 0, "ok: "),  # the wheels are the user's
    ],
)
def test_a_node_is_drained_for_what_is_its_own(
    name: str, code: int, line: str, described: Callable[[str], Machine]
) -> None:
    arguments = ["--exit-code", "slurm", "--format", "line", "--ignore", "library-broken"]
    done = described(name).backends("doctor", *arguments)

    assert (done.returncode, done.stdout[: len(line)]) == (code, line)


def doctor(machine: Machine) -> dict[str, str]:
    """Return the code and severity of what doctor finds, the worst of each."""
    found: dict[str, str] = {}
    for check in json.loads(machine.backends("doctor", "--format", "json").stdout)["checks"]:
        if check["status"] == "failed":
            found[check["code"]] = max(
                check["severity"], found.get(check["code"], ""), key=("", *SEVERITIES).index
            )
    return found


@pytest.mark.parametrize("name", NAMES)
def test_what_is_wrong_is_found_and_nothing_else(name: str, described: Callable[[str], Machine]) -> None:
    machine = described(name)
    expected = machine.description.get("doctor", {})

    found = doctor(machine)

    of_gpus = {code: severity for code, severity in found.items() if code.startswith(OF_GPUS)}
    assert of_gpus == expected
    others = {code for code in found if found[code] == "error"} - set(expected)
    assert not others or others <= set(doctor(described("bare")))


@pytest.mark.parametrize("name", NAMES)
def test_facts_and_pages(name: str, described: Callable[[str], Machine]) -> None:
    machine = described(name)
    description = machine.description

    saved = machine.backends("info", *description["probes"], "--format", "json", "--no-redact")
    # How busy and full the machine of the tests is does not matter.
    options = ("--all", "--ignore", "cpu-contended", "--ignore", "disk-full")
    pages = [machine.backends("info"), machine.backends("doctor", *options)]

    told = json.loads(saved.stdout)["probes"]
    for dotted, value in description.get("facts", {}).items():
        at = told
        for part in dotted.split("/"):
            at = at[int(part)] if isinstance(at, list) else at[part]
        assert at == value, dotted
    text = " ".join("\n".join(page.stdout for page in pages).split())
    for words in description.get("page", ()):
        assert words in text
    assert not any(page.stderr for page in pages)


def test_what_several_gpus_have_in_common_is_reported_once(
    described: Callable[[str], Machine],
) -> None:
    pages = [described(name).backends("info").stdout for name in ("h100-fabric", "h100-mig")]

    assert pages[0].count("the NVLink fabric of GPU 0-7 is in-progress") == 1
    assert pages[0].count("NVLink fabric") == 1
    assert pages[1].count("MIG of GPU 0 turns off") == 1


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("h100")])
def test_a_policy_of_such_nodes(name: str, described: Callable[[str], Machine]) -> None:
    machine = described(name)

    outcome = machine.backends("audit", "--policy", str(POLICY), "--format", "json")

    checks = json.loads(outcome.stdout)["checks"]
    failed = {check["code"] for check in checks if check["status"] == "failed"} - OF_THE_REST
    assert failed == set(machine.description.get("audit", ()))


def test_a_policy_that_a_sound_machine_wrote_finds_a_lost_gpu(
    described: Callable[[str], Machine], tmp_path: Path
) -> None:
    policy = tmp_path / "sound.toml"
    policy.write_text(described("h100").backends("audit", "--init").stdout)

    outcome = described("h100-lost").backends("audit", "--policy", str(policy))

    assert outcome.returncode == 1
    assert "cuda_driver.devices[kind == cuda] count is 7, required: 8" in outcome.stdout
    assert "nvidia.devices.3.memory_bytes is not in the report\n" in outcome.stdout
    assert 'version = ">=580.95.05"' in policy.read_text()


# ---- cuda-python asks the same stubs ------------------------------------------------------------


def asked_by_cuda_python(machine: Machine, log: Path) -> dict[str, Any]:
    variables = {"FAKE_CUDA_LOG": str(log), "FAKE_PARAMETERS": "8,4,4"}
    done = subprocess.run(
        [sys.executable, str(ASKS)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **machine.environment, **variables},
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.skipif(not HAS_CUDA_PYTHON, reason="needs cuda-bindings and cuda-core")
@pytest.mark.parametrize("name", ["laptop", "h100-lost", "h100-mig", "h100-fabric", "forbidden-node"])
def test_cuda_python_is_told_the_same(name: str, described: Callable[[str], Machine], tmp_path: Path) -> None:
    machine, log = described(name), tmp_path / "log"
    machine.environment.pop("CUDA_VISIBLE_DEVICES", None)
    report = machine.backends("info", "nvidia", "cuda_driver", "--format", "json").stdout
    nvidia, driver = (json.loads(report)["probes"][name] for name in ("nvidia", "cuda_driver"))

    told = asked_by_cuda_python(machine, log)

    if "refused" in told:
        assert nvidia["reasons"][0]["message"].startswith("nvmlInit returned")
    else:
        gpus = [device for device in nvidia["devices"] if device["kind"] == "cuda"]
        assert told["driver"] == nvidia["facts"]["driver_release"]
        assert told["names"] == [
            "GpuIsLostError" if gpu["presence"] == "found" else gpu["name"] for gpu in gpus
        ]
    if told["init"]:
        assert f"cuInit returned {told['init']} " in driver["reasons"][0]["message"]
        return
    assert told["devices"] == [
        [device["name"], *map(int, device["capability"].split(".")), device["pci_address"]]
        for device in driver["devices"]
    ]
    lines = [line for line in log.read_text().splitlines() if line.startswith(("launch", "arg"))]
    assert lines[0].startswith("launch attention grid=4,2,1 block=128,1,1 shared=1000 stream ")
    assert lines[1].startswith(f"arguments {told['pointer']} 3fc00000 7 ")
