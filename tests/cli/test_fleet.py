"""`backends fleet`: what an admin types, and what comes of it."""

from __future__ import annotations

import json
import os
import random
import re
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
        assert f"n7: {failed.stderr.split('backends: ')[1][:20]}" in text


def test_a_folder_of_files_that_are_nothing(tmp_path: Path) -> None:
    whole = [*frames(envelope("node1"))]
    report = json.dumps(SOUND)
    contents = {
        "node1.example.org": "\n".join(whole),
        "10.0.0.1.json": report,
        "10.0.0.2.json": f"\N{ZERO WIDTH NO-BREAK SPACE}{report}",
        "node2.json": report[:9000],
        "node3.json": '{"schema":"backends.fleet/9"}',
        "slurm.err": "disk: full",
    }
    for name, text in contents.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "node4.frame").symlink_to("nowhere")

    done = backends("fleet", "summarize", str(tmp_path), "--format", "json")
    fleet = valid(done.stdout, "fleet")
    named = {node for configuration in fleet["configurations"] for node in configuration["nodes"]}
    assert named == {"node1", "10.0.0.1", "10.0.0.2"}
    errors = {node: group["error"] for group in fleet["silent"] for node in group["nodes"]}
    assert [*errors] == ["node3", "node4", "node2"]
    assert "backends.fleet/9" in errors["node3"] and "cannot be read" in errors["node4"]
    assert "report is incomplete" in errors["node2"]
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
    done = backends("fleet", "summarize", str(reports), "--expect", "node[00-09]", "--fail-on", "drift")

    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert text.startswith("10 nodes: 7 reported, 1 error, 1 garbled, 1 missing; 2 configurations")
    assert "missing 1 node: node09: it sent nothing" in text
    assert "error 1 node: node08: there is no report in its file" in text
    assert "node05" in text and "pieces arrived" in text
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
    assert [row["check"]["code"] for row in document["hazards"]] == ["known-wrong-numbers"]


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
        (after / f"node{at:02}.frame").write_text("\n".join(frames(envelope(f"node{at:02}", **facts))))
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


def test_facts_that_many_nodes_have_otherwise_are_named_first(tmp_path: Path) -> None:
    for at in range(60):
        lines = frames(envelope(f"n{at:02}", badge=f"b{at}"))
        (tmp_path / f"n{at:02}.frame").write_text("\n".join(lines))
    for form, most in (("table", 3), ("markdown", 6)):
        shown = backends("fleet", "summarize", str(tmp_path), "--format", form).stdout
        first = " ".join(" ".join(shown.splitlines()[:most]).split()).replace("\\", "")
        assert "not compared, values for more than half of 50 or more nodes" in first
        assert "nvidia.badge" in first
    assert backends("fleet", "summarize", str(tmp_path), "--fail-on", "drift").returncode == 0


def test_a_finding_lists_each_value_with_its_nodes(tmp_path: Path) -> None:
    drivers = {"n1": "580.65", "n4": "550.54.15", "n5": "535.104.05", "n6": "470.1", "n7": "470.1"}
    for node, driver in drivers.items():
        lines = frames(envelope(node, driver_release=driver))
        (tmp_path / f"{node}.frame").write_text("\n".join(lines))
    policy = tmp_path / "gpu.toml"
    rule = 'id = "driver"\ncheck = "nvidia.driver_release >= 580"\n'
    policy.write_text(f'schema = 1\nname = "GPU nodes"\n[[rule]]\n{rule}')
    words = ("fleet", "audit", str(tmp_path), "--policy", str(policy), "--format", "json")
    outcome = json.loads(backends(*words).stdout)

    (failed,) = (check for check in outcome["checks"] if check["status"] == "failed")
    assert failed["message"].startswith("4 of 5 nodes (n[4-7]): ")
    for node, driver in {"n[6-7]": "470.1", "n4": "550.54.15", "n5": "535.104.05"}.items():
        assert re.search(rf"{re.escape(driver)}[^;]*\({re.escape(node)}\)", failed["message"])
    assert failed["evidence"]["nvidia.driver_release"] == [
        {"value": "470.1", "nodes": "n[6-7]"}, {"value": "550.54.15", "nodes": "n4"},
        {"value": "535.104.05", "nodes": "n5"},
    ]  # fmt: skip


def test_hazards_of_a_summary_have_the_values_of_each_node(tmp_path: Path) -> None:
    for node, cpus in {"n1": 64, "n2": 124, "n3": 64}.items():
        check: dict[str, Any] = {
            "code": "threads", "title": "t", "severity": "warning", "status": "failed",
            "message": f"256 threads on the {cpus} CPUs", "hint": f"export OMP_NUM_THREADS={cpus}",
            "command": f"export OMP_NUM_THREADS={cpus}", "evidence": {"cpus": cpus},
        }  # fmt: skip
        head = {"schema": "backends.outcome/1", "tool": "", "kind": "doctor", "title": ""}
        record = head | {"subject": "", "created": "", "checks": [check]}
        data = msgspec.Raw(json.dumps(record).encode())
        lines = frames(Envelope(node=node, report=data))
        (tmp_path / f"{node}.frame").write_text("\n".join(lines))
    words = ("fleet", "summarize", str(tmp_path))

    hazards = json.loads(backends(*words, "--format", "json").stdout)["hazards"]
    assert {(hazard["check"]["evidence"]["cpus"], *hazard["nodes"]) for hazard in hazards} == {
        (64, "n1", "n3"), (124, "n2"),
    }  # fmt: skip
    for form in ("table", "markdown", "html"):
        text = " ".join(backends(*words, "--format", form).stdout.split())
        assert "256 threads on the 64 (n[1,3]), 124 (n2) CPUs" in text.replace("\\", "")


def test_a_file_that_holds_no_report_is_an_error_with_its_first_line(tmp_path: Path) -> None:
    texts = {
        "n1.json": "", "n2.json": "Segmentation fault\n", "n3.out": "ImportError: no\nhint: x\n",
        "n8.example.org": "Killed",
        "n4.json": '{"a": 1}', "n5.frame": "WARN: " + json.dumps(SOUND), "n6.log": "n9: killed",
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for sources in ([str(tmp_path)], [str(tmp_path / name) for name in texts]):
        fleet = json.loads(backends("fleet", "summarize", *sources, "--format", "json").stdout)
        errors = {node: group["error"] for group in fleet["silent"] for node in group["nodes"]}
        why = "there is no report in its file"
        assert errors == {
            "n1": why, "n2": f"{why}, but: Segmentation fault", "n3": f"{why}, but: ImportError: no",
            "n8.example.org": f"{why}, but: Killed",
            "n4": f'{why}, but: {{"a": 1}}', "n6": f"{why}, but: n9: killed",
        }  # fmt: skip
        assert fleet["configurations"][0]["nodes"] == ["n5"]


def test_the_output_of_another_tool_is_named_and_is_no_fleet(tmp_path: Path) -> None:
    text = "Architecture:        x86_64\nCPU op-mode(s):      32-bit, 64-bit\nModel:               1\n"
    (tmp_path / "lscpu.txt").write_text(text)
    for command in (["summarize"], ["doctor"], ["facts", "cpu.model_name"]):
        done = backends("fleet", *command, str(tmp_path / "lscpu.txt"))
        assert (done.returncode, "is the text of `lscpu`, not a report" in done.stderr) == (2, True)
    done = backends("fleet", "summarize", data=text)
    assert done.stderr.startswith("backends: standard input is the text of `lscpu`, not a report")
    done = backends("fleet", "summarize", str(tmp_path))
    assert "lscpu: there is no report in its file, but: the text of `lscpu`" in " ".join(done.stdout.split())


def test_a_summary_is_a_source_on_standard_input_too(reports: Path) -> None:
    stored = backends("fleet", "summarize", str(reports), "--format", "json").stdout
    assert backends("fleet", "summarize", "--format", "json", data=stored).stdout == stored


def test_the_name_of_an_exception_is_not_a_node() -> None:
    done = backends("fleet", "summarize", data="ImportError: no\nUserWarning: x\n")
    assert done.returncode == 3 and "no node reported" in done.stderr


def test_the_log_of_a_transport_in_a_folder_is_of_its_nodes(tmp_path: Path) -> None:
    report_line = json.dumps(SOUND)
    (tmp_path / "clush.log").write_text(f"n1: {report_line}\nn2: {report_line}\nn3: killed\n")
    fleet = json.loads(backends("fleet", "summarize", str(tmp_path), "--format", "json").stdout)

    assert fleet["configurations"][0]["nodes"] == ["n1", "n2"]
    assert [(group["nodes"], group["error"]) for group in fleet["silent"]] == [
        (["n3"], "it printed no report but: killed")
    ]


def test_what_cannot_be_judged_exits_with_3(reports: Path, tmp_path: Path) -> None:
    saved = tmp_path / "fleet.json"
    saved.write_text(backends("fleet", "summarize", str(reports), "--format", "json").stdout)
    policy = tmp_path / "gpu.toml"
    policy.write_text('schema = 1\nname = "p"\n[[rule]]\nid = "r"\ncheck = "cpu.cores >= 1"\n')
    audit = ("audit", "--policy", str(policy))
    commands: tuple[tuple[str, ...], ...] = (("doctor",), audit)
    for words in commands:
        assert backends("fleet", *words, str(reports), "--fail-on", "never").returncode == 0
        assert backends("fleet", *words, str(saved)).returncode == 3

    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "n1.json").write_text("Segmentation fault")
    silent = (str(tmp_path / "none"), "--expect", "n[1-3]")
    commands += (("summarize",), ("facts", "cpu"), ("facts", "--differing"))
    for words in commands:
        done = backends("fleet", *words, *silent)
        assert done.returncode == 3, (words, done.stderr)
    assert backends("fleet", "diff", str(saved), silent[0], "--fail-on", "never").returncode == 3
    assert backends("fleet", "summarize", *silent, "--fail-on", "any").returncode == 1


def test_a_folder_is_not_the_name_of_a_fact(reports: Path) -> None:
    for words in ([], [str(reports)]):
        done = backends("fleet", "facts", str(reports), *words)
        assert done.returncode == 2
        assert "is a file or folder" in done.stderr
        assert f"nvidia.version {reports}" in done.stderr


def test_a_command_that_failed_after_its_report_is_suspect(tmp_path: Path) -> None:
    for node in ("n1", "n2", "n3"):
        error = "exit code 70: a bug" if node == "n2" else ""
        lines = frames(msgspec.structs.replace(envelope(node), error=error))
        (tmp_path / f"{node}.frame").write_text("\n".join(lines))
    words = ("fleet", "summarize", str(tmp_path))
    for form in ("table", "markdown", "html"):
        text = " ".join(backends(*words, "--format", form).stdout.split())
        assert "it reported, but: exit code 70: a bug" in text and "n2" in text
    assert backends(*words, "--fail-on", "any").returncode == 1
    assert backends(*words, "--fail-on", "incomplete").returncode == 0
    labelled = [f"n1: {json.dumps(SOUND)}", "clush: n1: exited with exit code 9"]
    text = backends("fleet", "summarize", data="\n".join(labelled)).stdout
    assert "it reported, but: exited with exit code 9" in " ".join(text.split())


def test_tables_are_compared_item_by_item(tmp_path: Path) -> None:
    for at in range(5):
        for folder in ("old", "new"):
            count = 512 if (at, folder) == (4, "new") else 1024
            pages = [{"page_bytes": 1 << 30, "count": 0}, {"page_bytes": 2 << 20, "count": count}]
            line = "quiet " * 40 + ("nosmt" if (at, folder) == (4, "new") else "mitigations=off")
            facts = {"huge_pages": pages, "command_line": line}
            (tmp_path / folder).mkdir(exist_ok=True)
            lines = frames(envelope(f"n{at}", **facts))
            (tmp_path / folder / f"n{at}.frame").write_text("\n".join(lines))
    text = " ".join(backends("fleet", "summarize", str(tmp_path / "new")).stdout.split())
    assert "nvidia.huge_pages: page_bytes 2 MiB, count 512 (others page_bytes 2 MiB, count 1024)" in text
    assert "nosmt (others" in text and "mitigations=off)" in text
    text = " ".join(backends("fleet", "diff", str(tmp_path / "old"), str(tmp_path / "new")).stdout.split())
    assert "page_bytes 2 MiB, count 1024 → page_bytes 2 MiB, count 512" in text
    assert "mitigations=off → " in text and "nosmt" in text


def test_unexpected_and_repeated_nodes_are_named(tmp_path: Path) -> None:
    lines = [line for at in (*range(12), 3, 3, 7) for line in frames(envelope(f"n{at}"))]
    (tmp_path / "all.frames").write_text("\n".join(lines))
    other = tmp_path / "again.frames"
    other.write_text("\n".join(line for at in (3, 7) for line in frames(envelope(f"n{at}", x=1))))
    words = ("fleet", "summarize", str(tmp_path / "all.frames"), str(other), "--expect", "n[0-1],z")
    text = " ".join(backends(*words).stdout.split())
    assert "10 unexpected nodes reported: n[2-11]" in text
    assert "of 2 nodes (n[3,7]); the first of each was taken" in text
    page = backends(*words, "--format", "html").stdout.replace("<wbr>", "")
    assert "10 nodes: n[2-11]" in page and "2 nodes: n[3,7]: reported more than once" in page


def test_what_a_node_says_brings_no_escapes_to_the_terminal() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\r::error::x"
    lines = [
        json.dumps({"schema": "backends.envelope/1", "node": f"n\x1b[1m{at}", "report": report(at, evil)})
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
