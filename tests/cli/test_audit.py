"""`backends audit`: exit codes, formats, several policies, --init, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from running import backends

TESTS = Path(__file__).resolve().parents[1]
NODE = str(TESTS / "hosts" / "hgx-h100-eight-gpus.machine")
RUNNER = str(TESTS / "hosts" / "docker-cgroup1.machine")
POLICIES = TESTS / "policies"


def policy(folder: Path, *checks: str, more: str = "") -> str:
    path = folder / "policy.toml"
    rules = [f'[[rule]]\nid = "r{i}"\ncheck = "{check}"\n{more}\n' for i, check in enumerate(checks)]
    path.write_text("schema = 1\n" + "".join(rules))
    return str(path)


def test_a_machine_that_does_not_fit_ends_with_1_and_says_why_and_where(tmp_path: Path) -> None:
    path = policy(tmp_path, "nvidia.devices count == 9")

    done = backends("audit", NODE, "--policy", path)

    assert done.returncode == 1
    assert f"({path}:3)" in " ".join(done.stdout.split())
    assert "nvidia.devices count is 8, required: 9" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("check", "more", "arguments", "code"),
    [
        ("cpu present", "", [], 0),
        ("cpu absent", "", [], 1),
        ("cpu absent", 'severity = "warning"', [], 0),
        ("cpu absent", 'severity = "warning"', ["--fail-on", "warning"], 1),
        ("cpu absent", "", ["--fail-on", "never"], 0),
        ("rocm.warnings count >= 7", "", [], 0),
        ("rocm.warnings count >= 7", "", ["--strict"], 3),
        ("cpu present", "", ["--exit-code", "nagios"], 0),
        ("cpu absent", 'severity = "note"', ["--exit-code", "nagios"], 0),
        ("cpu absent", 'severity = "warning"', ["--exit-code", "nagios"], 1),
        ("cpu absent", "", ["--exit-code", "nagios"], 2),
        ("rocm.warnings count >= 7", "", ["--exit-code", "nagios"], 3),
        ("gpu present", "", ["--exit-code", "nagios"], 3),
        ("gpu present", "", [], 2),
    ],
)
def test_the_exit_code(tmp_path: Path, check: str, more: str, arguments: list[str], code: int) -> None:
    path = policy(tmp_path, check, more=more)

    forbidden = str(TESTS / "hosts" / "podman-rocm-no-access.machine")
    assert backends("audit", forbidden, "--policy", path, *arguments).returncode == code


def test_json_has_the_line_of_each_rule(tmp_path: Path) -> None:
    path = policy(tmp_path, "cpu present", "nccl present")

    done = backends("audit", RUNNER, "--policy", path, "--format", "json")

    outcome = json.loads(done.stdout)
    assert (outcome["kind"], outcome["title"]) == ("audit", "policy.toml")
    assert [check["place"] for check in outcome["checks"]] == [
        {"file": path, "line": 3},
        {"file": path, "line": 7},
    ]


def test_the_live_machine_fits_its_own_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"

    assert backends("audit", "--init", "--depth", "found", "--output", str(path)).returncode == 0
    done = backends("audit", "--policy", str(path), "--depth", "found", "--strict")

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no policy: name one with --policy FILE"),
        (["--init", "--policy", "x"], "--init writes a policy; it goes with no --policy"),
        (["--policy", "/nowhere.toml"], "/nowhere.toml cannot be read: No such file"),
        (["--policy", "/"], "Permission denied" if os.name == "nt" else "Is a directory"),
        *([] if os.name == "nt" else [(["--policy", "/dev/zero"], "it is a device, not a file")]),
        (["--policy", str(POLICIES / "laptop.toml"), "/nowhere.json"], "/nowhere.json cannot be read"),
        (["--policy", str(POLICIES / "laptop.toml"), "--python", "x", NODE],
         "--python inspects the live machine"),
    ],
)  # fmt: skip
def test_what_is_asked_wrongly_ends_with_2_and_one_line(arguments: list[str], said: str) -> None:
    done = backends("audit", *arguments)

    assert done.returncode == 2
    assert said in done.stderr
    assert len([line for line in done.stderr.splitlines() if not line.startswith("hint: ")]) == 1
    assert done.stdout == ""


def test_requirements_need_no_file() -> None:
    done = backends(
        "audit", RUNNER, "--require", "cpu.capability>=AVX2", "--require", "cpu.cores >= 1000",
        "--format", "json",
    )  # fmt: skip
    checks = json.loads(done.stdout)["checks"]
    assert done.returncode == 1
    assert [(check["code"], check["status"]) for check in checks] == [
        ("cpu.capability-AVX2", "passed"),
        ("cpu.cores-1000", "failed"),
    ]
    assert checks[1]["message"].endswith("required: >= 1000")


@pytest.mark.parametrize(
    ("assertion", "said"),
    [
        ("cpu.capabilty>=AVX2", "did you mean cpu.capability?"),
        ("cpu.capability >= AVX3", "did you mean 'AVX2'?"),
        (" ", "a name such as cpu.capability"),
    ],
)
def test_a_wrong_requirement_is_named(assertion: str, said: str) -> None:
    done = backends("audit", RUNNER, "--require", assertion)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"backends: --require '{assertion}': ") and said in done.stderr


def test_a_policy_may_have_any_name(tmp_path: Path) -> None:
    path = tmp_path / "pol\nicy é [x].toml"
    path.write_text("schema = 2\n")

    done = backends("audit", RUNNER, "--policy", str(path))

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
