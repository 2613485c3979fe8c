"""What is judged: reports that are huge, torn, deep, foreign or none, recorded machines, the live one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlbackends.audit.reports import REPORT_LIMIT, name_of, read_report, report_of, reports_of
from mlbackends.base.errors import BadInput
from mlbackends.model.records import Presence

if TYPE_CHECKING:
    from pathlib import Path

HOST = "tests/hosts/epyc-eight-nodes.machine"
ENCODED = msgspec.json.encode(report_of(HOST))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    path.write_bytes(ENCODED)
    return path


def test_a_saved_report_is_the_report(saved: Path) -> None:
    assert msgspec.json.encode(report_of(str(saved))) == ENCODED


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_what_powershell_saved_is_the_report(saved: Path, encoding: str) -> None:
    saved.write_bytes(f"{ENCODED.decode()}\r\n".encode(encoding))
    assert msgspec.json.encode(report_of(str(saved))) == ENCODED


def test_the_command_reads_what_it_wrote(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    command = [sys.executable, "-m", "mlbackends", "info", "--root", HOST, "--format", "json"]
    subprocess.run([*command, "--output", str(path)], check=True)
    assert read_report(str(path)).probes.keys() == report_of(HOST).probes.keys()


def test_a_report_is_read_from_a_pipe() -> None:
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as file:
            file.write(ENCODED)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert msgspec.json.encode(read_report(f"/dev/fd/{reader}")) == ENCODED
    finally:
        os.close(reader)
        thread.join()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a report"),
        (b"{", "not a report"),
        (b"[]", "not a report"),
        (b'"text"', "not a report"),
        (b"{}", "its schema is ''"),
        (b'{"schema": "backends.flags/1"}', "its schema is 'backends.flags/1'"),
        (b'{"schema": "backends.report/2"}', "this version reads 'backends.report/1'"),
        (b'{"schema": 7}', "not a report"),
        (b"\xff\xfe\x00", "not a report"),
        (b'{"schema": "backends.report/1"}', "it lacks the field tool"),
        (b"[" * 1_000_000, "not a report"),
        (b'{"a":' * 100_000, "not a report"),
        (ENCODED[: len(ENCODED) // 2], "not a report"),
        (ENCODED + b"x", "not a report"),
        (ENCODED.replace(b'"found"', b'"flying"', 1), "not a report"),
    ],
    ids=lambda value: value[:24] if isinstance(value, bytes) else None,
)
def test_what_is_no_report_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=said) as raised:
        read_report(str(path))
    assert "\n" not in str(raised.value)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("deep", [50, 600, 900])
def test_a_report_whose_facts_are_nested_deeply_is_refused(tmp_path: Path, deep: int) -> None:
    path = tmp_path / "r.json"
    nested = b'{"a":' * deep + b"1" + b"}" * deep
    path.write_bytes(ENCODED.replace(b'"facts":{', b'"facts":{"odd":' + nested + b",", 1))
    with pytest.raises(BadInput, match="not a report"):
        read_report(str(path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(max_size=40), at=st.integers(0, len(ENCODED) - 1))
def test_a_report_with_noise_in_it_is_read_or_refused(tmp_path: Path, noise: bytes, at: int) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(ENCODED[:at] + noise + ENCODED[at + len(noise) :])
    try:
        said = str(read_report(str(path)).schema)
    except BadInput as error:
        said = str(error)
    assert said
    assert "\n" not in said


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(REPORT_LIMIT + 1)
    with pytest.raises(BadInput, match="larger than 64 MiB"):
        read_report(str(path))


def test_what_gives_for_ever_is_not_read_for_ever() -> None:
    with pytest.raises(BadInput, match="it is a device"):
        read_report("/dev/zero")


def test_a_fifo_without_a_writer_does_not_make_us_wait(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with pytest.raises(BadInput, match="not a report"):
        read_report(str(path))


@pytest.mark.parametrize("path", ["/no/such/file.json", "a\0b", "x" * 5000])
def test_a_file_that_is_not_there_is_one_line(path: str) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        report_of(path)


def test_a_folder_that_is_no_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a machine description"):
        report_of(str(tmp_path))


def test_a_recorded_machine_is_looked_at_without_opening_anything() -> None:
    assert report_of(HOST).depth is Presence.FOUND


def test_what_names_people_is_replaced_unless_it_is_asked_for() -> None:
    assert report_of(HOST).redacted
    assert not report_of(HOST, redact=False).redacted


def test_the_live_machine_is_looked_at_as_far_as_the_other_one(saved: Path) -> None:
    before, after = reports_of(str(saved), "-")
    assert before.depth is after.depth is Presence.FOUND


def test_people_call_the_live_machine_this_machine() -> None:
    assert name_of("-") == "this machine"
    assert name_of("a.json") == "a.json"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("onednn_verbose,v1,info,oneDNN v3.4.1\n", "a trace of oneDNN"),
        ("starting\ndnnl_verbose,info,DNNL v1.0\n", "a trace of oneDNN"),
        ("[pid 7 tid 7 end 1795] onednn_verbose,v1,info,oneDNN v3.4.1\n", "a trace of oneDNN"),
        ("MKL_VERBOSE oneMKL 2024.0 Update 2\n", "a trace of MKL"),
        ("<?xml version='1.0'?>\n<!DOCTYPE nvidia_smi_log SYSTEM 'x'>\n", "`nvidia-smi -q -x`"),
        ("\n==============NVSMI LOG==============\n", "`nvidia-smi -q`"),
        ("+----+\n| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15 |\n", "`nvidia-smi`"),
        ('{"card0": {"GPU ID": "0x74a1"}}', "`rocm-smi --json`"),
        ("ROCk module is loaded\n", "`rocminfo`"),
        ('<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n', "`lstopo`"),
        ("Architecture:        aarch64\nByte Order:          Little Endian\n", "`lscpu`"),
        ("CPU op-mode(s):      32-bit, 64-bit\nCPU(s):     96\n", "`lscpu`"),
        (
            "# starting usually from zero.\n# CPU,Core,Socket,Node,,L1d\n0,0,0,0,,0\n",
            "`lscpu`",
        ),
        ('{\n   "lscpu": [\n', "`lscpu --json`"),
        ("Collecting environment information...\nPyTorch version: 2.13.0\n", "collect_env"),
    ],
)
def test_the_output_of_another_tool_is_named(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "other"
    path.write_text(text)
    with pytest.raises(BadInput, match=f"is .*{named}.*, not a report of backends"):
        read_report(str(path))
