"""`backends fleet`: what an admin types, and what comes of it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TextIO
from xml.etree import ElementTree as ET

import jsonschema
import msgspec
import pytest
from running import backends

from mlbackends.fleet.frames import LONGEST_LINE, frames
from mlbackends.model.fleet import Envelope
from mlbackends_cli.report.commands.schema import SCHEMAS

ROOT = Path(__file__).resolve().parents[2]
SOUND = json.loads((ROOT / "tests/reports/hgx-h100-sound.json").read_text("utf-8"))


def envelope(node: str, **nvidia: Any) -> Envelope:
    document = json.loads(json.dumps(SOUND))
    document["probes"]["nvidia"]["facts"].update(nvidia)
    document["probes"]["host"]["facts"]["uptime_seconds"] = random.Random(node).random()
    return Envelope(node=node, report=msgspec.Raw(json.dumps(document).encode()))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder as srun --output=%N.frame fills it: one node differs, one is cut short, one is empty."""
    folder = tmp_path_factory.mktemp("reports")
    for at in range(8):
        facts = {"kernel_module": "proprietary"} if at == 3 else {}
        lines = [*frames(envelope(f"node{at:02}", **facts))]
        if at == 5:
            lines = lines[:-1]
        (folder / f"node{at:02}.frame").write_text("\n".join(lines) + "\n")
    (folder / "node08.frame").write_text("")
    return folder


def valid(text: str, schema: str) -> Any:
    document = json.loads(text)
    jsonschema.validate(document, SCHEMAS[schema]())
    return document


def test_frames_of_info_are_short_and_make_a_fleet(tmp_path: Path) -> None:
    machine = str(ROOT / "tests/hosts/hgx-h100-eight-gpus.machine")
    done = backends("info", "--root", machine, "--format", "frame")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert all(line.startswith("BK1 ") and len(line) <= LONGEST_LINE for line in lines)

    framed = backends("fleet", "summarize", data="\n".join(reversed(lines)))
    assert framed.returncode == 0
    assert framed.stdout.startswith("1 node: 1 reported; 1 configuration\n")


def test_a_node_that_cannot_make_its_report_says_so_in_frames() -> None:
    for command in (
        ("info", "--format", "frame", "--root", "/nowhere"),
        ("info", "--dept", "x", "--format=frame"),
        ("fleet", "envelope", "--", "nothing"),
    ):
        failed = backends(*command, environment={"NODE_NAME": "n7"})
        assert failed.returncode == 2
        text = backends("fleet", "summarize", data=failed.stdout).stdout
        assert text.startswith("1 node: 0 reported, 1 error")
        assert f"n7  {failed.stderr.split('backends: ')[1][:20]}" in text


def test_a_folder_of_files_that_are_nothing(tmp_path: Path) -> None:
    whole = [*frames(envelope("node1"))]
    report = json.dumps(SOUND)
    contents = {
        "node1.example.org": "\n".join(whole),
        "10.0.0.1.json": report,
        "10.0.0.2.json": report,
        "node2.json": report[:9000],
        "node3.json": '{"schema":"backends.fleet/9"}',
        "slurm.err": "disk: full",
    }
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "node4.frame").symlink_to("nowhere")

    done = backends("fleet", "summarize", str(tmp_path), "--format", "json")
    fleet = valid(done.stdout, "fleet")
    named = {node for configuration in fleet["configurations"] for node in configuration["nodes"]}
    assert named == {"node1", "10.0.0.1", "10.0.0.2"}
    errors = {node: group["error"] for group in fleet["silent"] for node in group["nodes"]}
    assert [*errors] == ["node3", "node4", "node2"]
    assert "backends.fleet/9" in errors["node3"] and "cannot be read" in errors["node4"]
    assert "did not come whole" in errors["node2"]
    alone = backends("fleet", "summarize", str(tmp_path / "node2.json"))
    assert alone.returncode == 3 and "no report is complete (records of" in alone.stderr


def waiting_writer(fifo: Path, reader: subprocess.Popen[Any]) -> TextIO:
    """Open a FIFO to write as soon as the process that should read waits for a writer."""
    while reader.poll() is None:
        with suppress(OSError):  # nobody reads it yet
            handle = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(handle, True)
            return os.fdopen(handle, "w")
        time.sleep(0.01)
    pytest.fail("it did not wait for a writer")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFO among its files")
def test_a_fifo_is_waited_for_until_somebody_writes(tmp_path: Path) -> None:
    fifo = tmp_path / "node1"
    os.mkfifo(fifo)
    lines = "".join(f"{line}\n" for line in frames(envelope("node1")))
    command = [sys.executable, "-m", "mlbackends", "fleet", "summarize", str(fifo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        with waiting_writer(fifo, reader) as writer:
            writer.write(lines)
        assert reader.stdout is not None
        assert reader.stdout.read().startswith("1 node: 1 reported")
    assert reader.returncode == 0


def test_reports_without_names_in_one_file_are_as_many_nodes(tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    file.write_text(f"{json.dumps(SOUND)}\n" * 3)

    assert backends("fleet", "summarize", str(file)).stdout.startswith("3 nodes: 3 reported")


def test_who_differs_and_who_is_missing(reports: Path) -> None:
    done = backends(
        "fleet", "summarize", str(reports), "--expect", "node[00-09]", "--fail-on", "drift"
    )

    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert text.startswith("10 nodes: 7 reported, 1 error, 1 garbled, 1 missing; 2 configurations")
    assert "missing 1 node: node09 nothing came from it" in text
    assert "error 1 node: node08 there is no report in its file" in text
    assert "node05" in text and "pieces came" in text
    assert "1 of 7 node03 nvidia.kernel_module: proprietary (others" in text


def test_exit_codes(reports: Path, tmp_path: Path) -> None:
    for node in ("node00", "node01"):
        (tmp_path / f"{node}.frame").write_bytes((reports / f"{node}.frame").read_bytes())
    codes = {
        choice: backends("fleet", "summarize", str(tmp_path), "--fail-on", choice).returncode
        for choice in ("drift", "incomplete", "any")
    }

    assert set(codes.values()) == {0}
    short = ["fleet", "summarize", str(tmp_path), "--expect", "3"]
    assert backends(*short).returncode == 0
    assert backends(*short, "--fail-on", "incomplete").returncode == 1
    assert backends("fleet", "summarize", str(tmp_path), "--expect", "n[2-1]").returncode == 2
    assert backends("fleet", "summarize", str(tmp_path), "--expect", ",").returncode == 2
    assert backends("fleet", "summarize", str(tmp_path / "none")).returncode == 2
    assert backends("fleet", "summarize", data="hello\n").returncode == 3


def test_json_is_valid_and_a_source_again(reports: Path, tmp_path: Path) -> None:
    saved = tmp_path / "fleet.json"
    args = ("fleet", "summarize", str(reports), "--hazards", "--format", "json")
    document = valid(backends(*args).stdout, "fleet")
    saved.write_text(json.dumps(document))
    again = valid(backends("fleet", "summarize", str(saved), "--format", "json").stdout, "fleet")

    assert again["kinds"] == document["kinds"]
    assert again["silent"] == document["silent"]
    assert document["hazards"] == []


def test_a_page_and_a_picture(reports: Path, tmp_path: Path) -> None:
    picture = tmp_path / "fleet.svg"
    args = ("fleet", "summarize", str(reports), "--expect", "node[00-09]", "--hazards")
    page = backends(*args, "--format", "html", "--plot", str(picture)).stdout
    markdown = backends(*args, "--format", "markdown").stdout

    HTMLParser().feed(page)
    for text in (page, picture.read_text("utf-8"), markdown):
        assert "node03" in text and "node09" in text
        assert "proprietary" in text
    assert ET.fromstring(picture.read_text("utf-8")).tag.endswith("svg")
    assert "<script" not in page


def test_a_histogram(reports: Path) -> None:
    done = backends("fleet", "facts", "nvidia.kernel_module", str(reports))
    rows = done.stdout.splitlines()

    assert rows[0] == "nvidia.kernel_module"
    assert rows[1].split() == ["1", "proprietary", "node03"]
    found = valid(
        backends("fleet", "facts", "--differing", str(reports), "--format", "json").stdout,
        "fleet-facts",
    )
    assert [fact["name"] for fact in found["facts"]] == ["nvidia.kernel_module"]
    assert backends("fleet", "facts", "nvidia.kernel_modul", str(reports)).returncode == 2


def test_what_an_upgrade_left_behind(reports: Path, tmp_path: Path) -> None:
    after = tmp_path / "after"
    after.mkdir()
    for at in range(8):
        facts = {} if at in (2, 6) else {"kernel_module": "newer"}
        (after / f"node{at:02}.frame").write_text(
            "\n".join(frames(envelope(f"node{at:02}", **facts)))
        )
    done = backends("fleet", "diff", str(reports), str(after))

    assert done.returncode == 1
    assert "2 left behind: node[02,06]" in done.stdout
    assert "new 1 node: node05" in " ".join(done.stdout.split())
    valid(
        backends("fleet", "diff", str(reports), str(after), "--format", "json").stdout,
        "fleet-difference",
    )
    same = backends("fleet", "diff", str(reports), str(reports))
    assert same.returncode == 0 and "no node changed" in same.stdout


def test_doctor_and_audit_say_on_which_nodes(reports: Path, tmp_path: Path) -> None:
    policy = tmp_path / "gpu.toml"
    rule = 'id = "module"\ncheck = "nvidia.kernel_module != proprietary"\n'
    policy.write_text(f'schema = 1\nname = "GPU nodes"\n[[rule]]\n{rule}')
    done = backends("fleet", "audit", str(reports), "--policy", str(policy), "--format", "json")
    outcome = valid(done.stdout, "outcome")

    assert done.returncode == 1
    (failed,) = (check for check in outcome["checks"] if check["status"] == "failed")
    assert failed["message"].startswith("1 of 7 nodes (node03): ")
    strict = backends("fleet", "audit", str(reports), "--policy", str(policy), "--strict")
    assert strict.returncode == 1
    told = backends("fleet", "doctor", str(reports), "--only", "nvidia-ecc-errors", "--strict")
    assert told.returncode == 3 and "node05" in told.stdout


def test_what_a_node_says_brings_no_escapes_to_the_terminal() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\r::error::x"
    lines = [
        json.dumps(
            {"schema": "backends.envelope/1", "node": f"n\x1b[1m{at}", "report": report(at, evil)}
        )
        for at in range(5)
    ]
    lines += [json.dumps({"schema": "backends.envelope/1", "status": "error", "error": evil})]
    for form in ("table", "markdown", "html", "json"):
        done = backends("fleet", "summarize", "--all", "--format", form, data="\n".join(lines))
        assert done.returncode == 0
        assert not {"\x1b", "\x07", "\r"} & {*done.stdout}
        commands = [line for line in done.stdout.split("\n") if line.lstrip().startswith("::")]
        assert not commands or form == "html"


def report(at: int, evil: str) -> dict[str, Any]:
    text = evil if at == 2 else "fine"
    cpu = {"presence": "found", "facts": {"model_name": "Xeon", "x": text, text: 1}}
    return {**SOUND, "probes": {"cpu": cpu}}
