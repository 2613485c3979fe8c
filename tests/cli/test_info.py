"""`backends info` on recorded machines and on libraries made for the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from running import PLAIN, backends, machine

from mlbackends.audit.reports import report_of
from mlbackends_cli import formats
from mlbackends_cli.terminal import Page

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlbackends.model.records import Report

    FakeLibrary = Callable[..., Path]

HOSTS = Path(__file__).parents[1] / "hosts"
CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Intel(R) Xeon(R) Gold 6248
flags\t\t: fpu sse sse2 ssse3 sse4_1 sse4_2 popcnt cx16 lahf_lm movbe avx avx2 bmi1 bmi2 f16c fma abm
"""
HOST = """{"platform": "linux",
 "uname": {"sysname": "Linux", "nodename": "secret-node", "release": "6.1.18-fc", "machine": "x86_64"},
 "environment": {"HOME": "/home/grace", "USER": "grace", "VIRTUAL_ENV": "/home/grace/env"},
 "affinity": [0]}"""


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    files = {"/proc/cpuinfo": CPUINFO, "/proc/meminfo": "MemTotal:  8000 kB\n"}
    return str(machine(tmp_path / "machine", files, HOST))


def test_get_prints_the_bare_value(recorded: str) -> None:
    done = backends("info", "--root", recorded, "--get", "cpu.capability")

    assert (done.returncode, done.stdout, done.stderr) == (0, "AVX2\n", "")


def test_get_prints_numbers_booleans_and_lists_as_json(recorded: str) -> None:
    assert backends("info", "--root", recorded, "--get", "memory.total_bytes").stdout == "8192000\n"
    assert backends("info", "--root", recorded, "--get", "cpu.avx2").stdout == "true\n"
    assert backends("info", "--root", recorded, "--get", "cpu.libraries").stdout == "[]\n"


def test_get_of_what_is_not_here_is_exit_1_with_the_reason(recorded: str) -> None:
    done = backends("info", "--root", recorded, "--get", "cudnn.version")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("backends: cudnn.version has no value here: ")


@pytest.mark.parametrize(
    ("requirement", "code"),
    [
        ("cpu", 0),
        ("cpu.capability==AVX2", 0),
        ("cpu.capability>=DEFAULT", 0),
        ("cpu.capability>=AVX512", 1),
        ("cpu.capability!=AVX2", 1),
        ("memory.total_bytes>=8000000", 0),
        ("memory.total_bytes>8192000", 1),
        ("memory.total_bytes >= 1, < 9000000", 0),
        ("cpu.avx2", 0),
        ("cpu.bf16", 1),
        ("cpu.avx2==true", 0),
        ("cpu.avx2==1", 0),
        ("cpu.avx2!=yes", 1),
        ("cpu.capability>=avx2", 0),
        ("memory.total_bytes>=7MiB", 0),
        ("memory.total_bytes>=8GiB", 1),
        ("host.kernel_release>=5.15", 0),
        ("host.kernel_release>=7", 1),
        ("host.kernel_release==6.1.18-fc", 0),
        ("cpu.caches", 1),
        ("cudnn", 1),
        ("cudnn>=9", 1),
    ],
)
def test_a_requirement_is_met_or_told_why_not(recorded: str, requirement: str, code: int) -> None:
    done = backends("info", "--root", recorded, "--require", requirement)

    assert done.returncode == code
    assert done.stderr.startswith("backends: requirement not met: ") is (code == 1)
    assert requirement in done.stderr or code == 0


def test_get_is_redacted_where_that_is_asked_for(recorded: str) -> None:
    assert backends("info", "--root", recorded, "--get", "host.host_name").stdout == "secret-node\n"
    hidden = backends("info", "--root", recorded, "--get", "host.host_name", "--redact").stdout
    assert hidden == "redacted-1\n"


@pytest.mark.slow
def test_what_could_not_be_told_is_exit_3(fake_library: FakeLibrary) -> None:
    hang = "#include <unistd.h>\n__attribute__((constructor)) void f(void) { for (;;) pause(); }"
    library = fake_library("hang", "libnccl.so.2", source=hang)
    environment = {"LD_LIBRARY_PATH": str(library.parent)}

    def run(*arguments: str) -> int:
        options = ("--timeout", "0.5")
        return backends("info", *arguments, *options, environment=environment).returncode

    assert run("nccl") == 0
    assert run("nccl", "--strict") == 3
    assert run("--get", "nccl.version") == 3
    assert run("--require", "nccl") == 1


def test_every_requirement_that_is_not_met_is_told(recorded: str) -> None:
    done = backends("info", "--root", recorded, "--require", "cudnn", "--require", "nccl")

    assert [line.split()[4] for line in done.stderr.splitlines()] == ["cudnn:", "nccl:"]


def test_redaction_hides_names_and_no_redact_shows_them(recorded: str) -> None:
    hidden = backends("info", "--root", recorded, "--format", "json").stdout
    shown = backends("info", "--root", recorded, "--format", "json", "--no-redact").stdout

    for secret in ("secret-node", "grace"):
        assert secret not in hidden
        assert secret in shown
    assert json.loads(hidden)["redacted"] is True
    assert json.loads(shown)["redacted"] is False


def test_pid_tells_what_a_process_has_mapped(fake_library: FakeLibrary) -> None:
    library = fake_library(
        "mapped", "libnccl.so.2", source="int ncclGetVersion(int *v) { *v = 22005; return 0; }"
    )
    program = (
        f"import ctypes, time; ctypes.CDLL({str(library)!r})\nprint('ready', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=PLAIN) as process:
        assert process.stdout is not None
        process.stdout.readline()
        done = backends("info", "nccl", "--pid", str(process.pid), "--format", "json", "--no-redact")
        process.kill()

    (found,) = json.loads(done.stdout)["probes"]["nccl"]["libraries"]
    assert found["path"] == str(library)
    assert found["found_by"] == "mapped"
    assert found["used"] is True


def test_pid_takes_the_environment_and_affinity_of_the_process() -> None:
    environment = {**PLAIN, "OMP_NUM_THREADS": "3"}
    # Its environment is in /proc a moment after its start: it is waited for.
    program = "import time; print('ready', flush=True); time.sleep(600)"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        done = backends("info", "environment", "--pid", str(process.pid), "--format", "json")
        process.kill()

    facts = json.loads(done.stdout)["probes"]["environment"]["facts"]
    assert facts["variables"]["OMP_NUM_THREADS"] == "3"


def test_python_looks_at_another_environment(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    scripts, folder = ("Scripts", "Lib") if os.name == "nt" else ("bin", "lib/python*")
    (site,) = (tmp_path / "env").glob(f"{folder}/site-packages")
    (site / "torch-2.99.0.dist-info").mkdir()
    (site / "torch-2.99.0.dist-info" / "METADATA").write_text("Name: torch\nVersion: 2.99.0\n")
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("raise SystemExit('imported')")

    interpreter = str(tmp_path / "env" / scripts / Path(sys.executable).name)
    done = backends("info", "--python", interpreter, "--get", "torch.version")

    assert (done.returncode, done.stdout) == (0, "2.99.0\n")


def test_strict_counts_what_one_device_or_probe_leaves_open() -> None:
    forbidden = str(HOSTS / "podman-rocm-no-access.machine")

    for names in ((), ("rocm",), ("--get", "rocm.version")):
        done = backends("info", "--root", forbidden, "--strict", *names)
        assert (done.returncode, done.stderr) == (3, "backends: could not be determined: rocm\n")
    assert backends("info", "--root", forbidden, "--strict", "cpu").returncode == 0


def test_a_presence_that_could_not_be_determined_is_no_null(tmp_path: Path) -> None:
    site = "/venv/lib/python3.12/site-packages"
    info = f"{site}/torch-2.13.0+fb.dist-info/METADATA"
    description = {"python": {"path": [site]}}
    root = str(machine(tmp_path, {info: "Name: torch\n"}, json.dumps(description)))

    done = backends("info", "--root", root, "--get", "mtia.presence")

    assert (done.returncode, done.stdout) == (3, "")
    assert "mtia.presence could not be determined: MTIA has no public" in done.stderr
    assert backends("info", "--root", root, "mtia", "--strict").returncode == 3


def test_several_values_are_printed_as_far_as_they_are_there(recorded: str) -> None:
    names = ("cpu.capability", "cudnn.version", "memory.total_bytes")
    wanted = [word for name in names for word in ("--get", name)]

    done = backends("info", "--root", recorded, *wanted)

    assert (done.returncode, done.stdout.splitlines()[1]) == (1, "")
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr.startswith("backends: cudnn.version has no value here")


def test_a_package_is_imported_where_its_name_or_presence_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('imported')")
    environment = {**PLAIN, "PYTHONPATH": str(tmp_path)}

    def reasons(*arguments: str) -> str:
        wanted = ("info", *arguments, "--format", "json")
        probes = json.loads(backends(*wanted, environment=environment).stdout)["probes"]
        return " ".join(reason["message"] for reason in probes["torch"].get("reasons", ()))

    assert "SystemExit: imported" in reasons("torch")
    assert "SystemExit: imported" in reasons("torch", "--require", "torch")
    assert "SystemExit" not in reasons("torch", "--depth", "loadable")
    wanted = ("--get", "torch.presence", "--get", "torch.location")
    presence = backends("info", *wanted, environment=environment)
    assert presence.stdout == f"found\n{tmp_path.as_posix()}/torch\n"


@pytest.mark.parametrize("deep", [(), ("--deep",)], ids=["", "deep"])
def test_deep_imports_what_is_not_named(tmp_path: Path, deep: tuple[str, ...]) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("open(__file__ + '.imported', 'w')")
    environment = {**PLAIN, "PYTHONPATH": str(tmp_path)}

    backends("info", *deep, "--get", "torch.location", environment=environment)

    assert (tmp_path / "torch" / "__init__.py.imported").exists() is bool(deep)


def test_strict_is_exit_3_where_a_probe_could_not_tell() -> None:
    program = (
        "import sys; sys.argv = ['backends', 'info', 'memory', '--strict']\n"
        "import mlbackends_probes.memory as m\n"
        "def find(host): raise KeyError('boom')\n"
        "m.find = find\n"
        "from mlbackends_cli import program; program()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=PLAIN, capture_output=True, text=True, check=False
    )

    assert done.returncode == 3
    assert done.stderr == "backends: could not be determined: memory\n"
    assert done.stdout.startswith("?  Memory  could not be determined: KeyError: 'boom'")


@cache
def reports_of_recorded_machines() -> tuple[Report, ...]:
    return tuple(report_of(str(host)) for host in sorted(HOSTS.glob("*.machine")))


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "markdown", "html"])
def test_every_format_takes_every_recorded_machine(form: str) -> None:
    assert reports_of_recorded_machines()
    for report in reports_of_recorded_machines():
        assert formats.text(form, "report", report, Page())


# ---- a device that is not here -------------------------------------------------------------------


def test_a_device_is_described_with_versions() -> None:
    done = backends("info", "--device", "h100", "--torch", "2.10,2.13", "--driver", "570")
    rows = [line.split() for line in done.stdout.splitlines()]

    assert done.returncode == 0, done.stderr
    assert ["bandwidth", "3,350", "GB/s"] in rows and ["memory", "80", "GiB"] in rows
    assert "needs driver 580 or newer; the driver is 570" in " ".join(done.stdout.split())
    assert ["h100-sxm", "2.10", "✓", "FLASH"] in [row[:4] for row in rows]
    assert ["h100-sxm", "2.13", "✓", "raises"] in [row[:4] for row in rows]

    data = json.loads(
        backends("info", "--device", "rx-7900-xtx", "--torch", "2.9", "--format", "json").stdout
    )
    assert (data["schema"], data["product"]["target"]) == ("backends.device/1", "gfx1100")
    assert {problem["torch_chosen"] for problem in data["torch"]["problems"]} == {"MATH"}
    page = backends("info", "--device", "sm90", "--format", "markdown").stdout
    assert page.startswith("## sm90: Hopper") and "```text\n--shape" in page


@pytest.mark.parametrize(
    "words",
    [
        ["--torch", "2.13"],
        ["--device", "h100", "cpu"],
        ["--device", "h100", "--root", "/"],
        ["--device", "h100", "--format", "html"],
        ["--device", "h100", "--torch", "2"],
        ["--device", "cpu"],
        ["--device", "h1000"],
        ["--device", ""],
    ],
)
def test_a_device_goes_together_with_versions_alone(words: list[str]) -> None:
    done = backends("info", *words)
    assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr
