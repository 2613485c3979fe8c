"""--format slurm, kubernetes and nvsentinel of `backends fleet`: what a shell makes of them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from running import backends

from mlbackends.fleet.frames import frames
from mlbackends.model.audit import Check, Problem, Severity, Status
from mlbackends.model.fleet import Envelope, Hazard
from mlbackends_cli.fleet.actions import ACTIONS, health_of

ROOT = Path(__file__).resolve().parents[2]
needs_shell = pytest.mark.skipif(os.name == "nt", reason="needs a shell")


def failed(code: str, message: str = "it is", severity: Severity = Severity.ERROR, **more: Any) -> Check:
    return Check(code, f"title of {code}", severity, Status.FAILED, message, problem=Problem.NODE, **more)


def printed(form: str, *hazards: Hazard, silent: tuple[str, ...] = (), fail_on: str = "error") -> str:
    by_code: dict[str, list[Hazard]] = {}
    for hazard in hazards:
        by_code.setdefault(hazard.check.code, []).append(hazard)
    return ACTIONS[form](health_of(by_code, silent, "doctor", fail_on))


def arguments(script: str, folder: Path) -> list[list[str]]:
    """Run a script in a shell whose scontrol and kubectl write down their arguments; return these."""
    log = folder / "log"
    for name in ("scontrol", "kubectl"):
        program = folder / name
        program.write_text(f'#!/bin/sh\nprintf "%s\\0" {name} "$@" end-of-command >> "{log}"\n')
        program.chmod(0o755)
    path = f"{folder}:/usr/bin:/bin"
    done = subprocess.run(
        ["sh"], input=script, text=True, capture_output=True, env={"PATH": path}, cwd=folder, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {path.name for path in folder.iterdir()} <= {"scontrol", "kubectl", "log"}
    words = log.read_text("utf-8").split("\0")[:-1] if log.exists() else []
    found: list[list[str]] = [[]]
    for word in words:
        if word == "end-of-command":
            found.append([])
        else:
            found[-1].append(word)
    return found[:-1]


@needs_shell
def test_nodes_with_the_same_problems_are_one_command(tmp_path: Path) -> None:
    nodes = tuple(f"node{at:03}" for at in (3, 17, 18))
    script = printed(
        "slurm",
        Hazard(failed("gpu-lost", "GPU 3 is lost"), nodes),
        Hazard(failed("ecc", "14 errors"), ("node003",)),
        Hazard(failed("slow", severity=Severity.WARNING), ("node099",)),
    )

    assert arguments(script, tmp_path) == [
        [
            "scontrol", "update", "nodename=node[017-018]", "state=drain",
            "reason=[node_problem] gpu-lost: GPU 3 is lost",
        ],
        [
            "scontrol", "update", "nodename=node003", "state=drain",
            "reason=[node_problem] ecc: 14 errors (+1)",
        ],
    ]  # fmt: skip


def test_messages_that_differ_give_way_to_the_title() -> None:
    hazards = [Hazard(failed("ecc", f"{at} errors"), (f"n{at}",)) for at in range(3)]

    assert "nodename='n[0-2]' state=drain reason='[node_problem] ecc: title of ecc'" in printed(
        "slurm", *hazards
    )


HOSTILE = [
    "$(touch x)",
    "`touch x`",
    "a;touch x",
    "a\ntouch x",
    "-A",
    "ALL",
    "all",
    "a,b",
    "n[1-3]",
    "n 1",
    "",
    "'",
]


@needs_shell
@pytest.mark.parametrize("form", ["slurm", "kubernetes"])
def test_hostile_names_and_reasons_run_nothing(form: str, tmp_path: Path) -> None:
    reason = "it's \"$(touch x)\" `touch y`; touch z\n\x1b[31m& | > w \\' \u2028 touch v"
    script = printed(form, Hazard(failed("a'b$(touch u)", reason), ("good1", *HOSTILE)))

    (command, *others) = arguments(script, tmp_path)

    assert not others
    if form == "slurm":
        assert command[2] == "nodename=good1"
        text = command[4].removeprefix("reason=")
        assert text.startswith("[node_problem] a'b$(touch u): it's \"$(touch x)\" `touch y`; touch z")
        assert len(text.encode()) <= 80 and text.isprintable()
    else:
        assert command == [
            "kubectl", "taint", "nodes", "good1", "all",
            "mlbackends/node-problem=a-b-touch-u:NoSchedule", "--overwrite",
        ]  # fmt: skip


@needs_shell
def test_many_nodes_are_several_commands_and_ranges_are_those_that_slurm_reads(tmp_path: Path) -> None:
    nodes = tuple(f"node{2 * at:05}" for at in range(1200))
    racks = ("r1.example.org", "r2.example.org")
    script = printed("slurm", Hazard(failed("ecc"), nodes), Hazard(failed("ecc2"), racks))

    commands = arguments(script, tmp_path)

    assert [command[2][:19] for command in commands[:3]] == [
        "nodename=node[00000",
        "nodename=node[01000",
        "nodename=node[02000",
    ]
    assert commands[3][2] == "nodename=r1.example.org,r2.example.org"
    assert all(len(word) < 128 * 1024 for command in commands for word in command)


def test_what_is_not_a_failed_problem_of_the_node_drains_nothing() -> None:
    waived = msgspec.structs.replace(failed("a"), status=Status.WAIVED)
    users = msgspec.structs.replace(failed("b"), problem=Problem.USER)
    unknown = msgspec.structs.replace(failed("c"), status=Status.UNKNOWN)
    hazards = [Hazard(check, ("n1",)) for check in (waived, users)]
    lines = printed("slurm", *hazards, Hazard(unknown, ("n2",)), silent=("n3",)).splitlines()

    assert lines == ["# 0 sick nodes", "# not checked in full, and left as they are: 2 nodes"]
    warning = Hazard(failed("d", severity=Severity.WARNING), ("n1",))
    for fail_on, count in (("never", 0), ("error", 0), ("warning", 1), ("note", 1)):
        assert printed("slurm", warning, fail_on=fail_on).count("scontrol") == count


#: Source: NVIDIA/NVSentinel, data-models/protobufs/health_event.proto, messages HealthEvents and HealthEvent.
EVENT = {
    "version": int, "agent": str, "componentClass": str, "checkName": str, "isFatal": bool, "isHealthy": bool,
    "message": str, "recommendedAction": str, "errorCode": list, "metadata": dict, "generatedTimestamp": str,
    "nodeName": str,
}  # fmt: skip


def test_nvsentinel_gets_an_event_for_each_node_that_was_checked() -> None:
    passed = Check("ecc", "title", Severity.ERROR, Status.PASSED, problem=Problem.NODE)
    unknown = msgspec.structs.replace(passed, status=Status.UNKNOWN)
    text = printed(
        "nvsentinel",
        Hazard(failed("ecc", "14 errors"), ("n1", "Bad_Name")),
        Hazard(passed, ("n2",)),
        Hazard(unknown, ("n3",)),
        silent=("n4",),
    )
    document = json.loads(text)

    assert document["version"] == 1 and {*document} == {"version", "events"}
    for event in document["events"]:
        assert {name: type(value) for name, value in event.items()} == EVENT
    found = {event["nodeName"]: event for event in document["events"]}
    assert {*found} == {"n1", "n2"}
    sick = found["n1"]
    assert (sick["isHealthy"], sick["isFatal"], sick["errorCode"]) == (False, True, ["ecc"])
    assert (sick["message"], sick["checkName"], sick["recommendedAction"]) == (
        "14 errors",
        "backends-doctor",
        "NONE",
    )
    assert (found["n2"]["isHealthy"], found["n2"]["isFatal"], found["n2"]["errorCode"]) == (True, False, [])


def test_the_commands_of_a_fleet_with_a_sick_node(tmp_path: Path) -> None:
    sick = backends(
        "info", "--root", str(ROOT / "tests/hosts/gpu-server-degraded.machine"), "--format", "json"
    ).stdout
    for node in ("node001", "node002"):
        envelope = Envelope(node=node, report=msgspec.Raw(sick.encode()))
        (tmp_path / f"{node}.frame").write_text("\n".join(frames(envelope)) + "\n")

    done = backends("fleet", "doctor", str(tmp_path), "--format", "slurm", "--expect", "node[001-003]")

    assert done.returncode == 1
    first, drain, last = done.stdout.splitlines()
    assert first == "# 2 sick nodes"
    assert drain.startswith(
        "scontrol update nodename='node[001-002]' state=drain reason='[node_problem] nvidia-"
    )
    assert last == "# not checked in full, and left as they are: 1 node"
    output = tmp_path / "taints.sh"
    to_file = ("--format", "kubernetes", "--output", str(output))
    assert backends("fleet", "doctor", str(tmp_path), *to_file).returncode == 1
    assert "kubectl taint nodes node001 node002 mlbackends/node-problem=nvidia-" in output.read_text()
