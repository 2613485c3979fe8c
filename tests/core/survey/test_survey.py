"""A survey claims no more than what was seen."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

import mlbackends
from mlbackends.base.errors import UnknownName
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.model.records import Finding, Presence
from mlbackends.survey import survey

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FakeLibrary


@pytest.mark.parametrize("content", ["", "\0" * 100, "garbage\n"])
def test_a_processor_of_which_nothing_is_told_is_not_found(tmp_path: Path, content: str) -> None:
    (tmp_path / "proc").mkdir()
    for name in ("cpuinfo", "meminfo"):
        (tmp_path / "proc" / name).write_text(content)

    for name, probe in survey(("cpu", "memory"), Host(str(tmp_path))).probes.items():
        assert probe.presence is None, name
        assert probe.failure is not None
        assert probe.failure.message == "none of what it reads exists or is valid"
        assert probe.failure.traceback == ""


def test_one_fact_is_enough_to_be_found(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  1024 kB\n")

    told = survey(("memory",), Host(str(tmp_path))).probes["memory"]
    assert (told.presence, told.failure) == (Presence.FOUND, None)
    assert told.facts["total_bytes"] == 1 << 20


def test_a_process_without_variables_has_none_and_is_no_failure() -> None:
    told = survey(("environment",), Host(environment={})).probes["environment"]

    assert (told.presence, told.facts, told.failure) == (Presence.FOUND, {"variables": {}}, None)


def test_a_report_is_what_the_command_prints() -> None:
    words = "-m mlbackends info cpu host --depth found --format json --no-redact"
    printed = subprocess.run([sys.executable, *words.split()], capture_output=True, check=True)
    shown = json.loads(printed.stdout)["probes"]
    told = mlbackends.report("cpu", "host", depth="found").probes

    assert told.keys() == shown.keys()
    assert told["cpu"].facts["threads"] == shown["cpu"]["facts"]["threads"]
    assert told["host"].facts["host_name"] == shown["host"]["facts"]["host_name"]


def test_no_report_has_a_password_or_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", "/opt/ghp_0123456789abcdefghij/cuda")
    monkeypatch.setenv("OMP_NUM_THREADS", "https://joe:hunter2@x/?sig=hunter2")
    monkeypatch.setenv("NCCL_DEBUG", "password=hunter2")
    report = mlbackends.report(depth="found")

    assert not report.redacted
    assert report.probes["host"].facts["host_name"] == platform.node()
    for printed in (msgspec.json.encode(report).decode(), str(report)):
        assert "hunter2" not in printed
        assert "ghp_0" not in printed
    assert "/opt/redacted/cuda" in str(report.probes["environment"].facts["variables"])


def test_a_report_of_an_unknown_name_or_depth_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="usabel") as refusal:
        mlbackends.report(depth="usabel")
    assert "usable" in refusal.value.hint
    with pytest.raises(UnknownName, match="cudn"):
        mlbackends.report("cudn")


MAPPING = """
import ctypes, sys
kept = [ctypes.CDLL(path) for path in sys.argv[1:]]
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what is mapped is told by /proc")
@pytest.mark.parametrize("mapped", ["", "first", "second"])
def test_what_a_process_has_mapped_speaks_for_it(
    tmp_path: Path, fake_library: FakeLibrary, mapped: str
) -> None:
    source = "int one(void) { return 1; }\n"
    built = fake_library("nothing", "libnothing.so.1", source=source)
    paths = {name: tmp_path / name / "libopenblas.so.0" for name in ("first", "second")}
    for path in paths.values():
        path.parent.mkdir()
        path.write_bytes(built.read_bytes())
    listed = ":".join(str(path.parent) for path in paths.values())
    opened = [str(paths[mapped])] if mapped else []
    with subprocess.Popen(
        [sys.executable, "-S", "-c", MAPPING, *opened],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        host = Host(pid=process.pid, python={}, environment={"LD_LIBRARY_PATH": listed})
        told = survey(("openblas",), host).probes["openblas"]
        process.kill()

    ours = {
        library.path: library.used for library in told.libraries if library.path.startswith(str(tmp_path))
    }
    assert ours == {str(path): name == mapped for name, path in paths.items()}
    reasons = [reason.message for reason in told.reasons if reason.code == "not-mapped"]
    assert reasons == ([] if mapped else ["the process has no copy of it mapped"])


def test_without_a_process_nothing_is_said_of_what_is_mapped(
    tmp_path: Path, fake_library: FakeLibrary
) -> None:
    built = fake_library("nothing", "libnothing.so.1", source="int one(void) { return 1; }\n")
    (tmp_path / "libopenblas.so.0").write_bytes(built.read_bytes())
    host = Host(python={}, environment={"LD_LIBRARY_PATH": str(tmp_path)})

    told = survey(("openblas",), host, Presence.FOUND).probes["openblas"]
    assert told.libraries
    assert not [reason for reason in told.reasons if reason.code == "not-mapped"]


@pytest.mark.parametrize(
    ("finding", "presence"),
    [
        (Finding(facts={"slots": 2}), Presence.FOUND),
        (Finding(version="1.2"), Presence.FOUND),
        (Finding(), Presence.ABSENT),
        (Finding(facts={"environment": {"X": "1"}}, reasons=(Reason("not-found", "no file"),)),
         Presence.ABSENT),
        (Finding(facts={"slots": 2}, reasons=(Reason("only-the-framework-knows", "no file"),)), None),
    ],
    ids=["facts", "version", "nothing", "a reason against it", "could not be determined"],
)  # fmt: skip
def test_facts_without_presence_are_of_something_that_is_there(
    monkeypatch: pytest.MonkeyPatch, finding: Finding, presence: Presence | None
) -> None:
    monkeypatch.setattr("mlbackends_probes.opencl.find", lambda host: finding)

    assert survey(("opencl",), Host()).probes["opencl"].presence is presence
