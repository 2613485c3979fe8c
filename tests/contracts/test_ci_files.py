"""The GitHub Action, the pre-commit hooks and the page on CI say what the command can do."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml  # type: ignore[import-untyped]

from mlbackends.base import registry

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
PAGE = (ROOT / "docs" / "ci.md").read_text()
STEPS: dict[str, dict[str, Any]] = {step["id"]: step for step in ACTION["runs"]["steps"]}
POLICY = """\
schema = 1
name = "any machine"

[[rule]]
id = "a-cpu"
check = "limits.effective_cpus >= 1"
"""
INPUTS = {
    "POLICY": "",
    "FAIL_ON": "error",
    "FORMAT": "github",
    "OUTPUT": "",
    "REPORT": "",
    "PYTHON": "",
    "ARGS": "",
}


def commands(page: str) -> list[str]:
    """Every call of `backends` in the page's blocks of code, as a shell would get it."""
    blocks = re.findall(r"^```\w+\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    found = re.findall(
        r"(?:^|[ '=])(backends (?:doctor|audit|diff|snapshot)\b[^'\n]*)",
        "\n".join(blocks),
        re.MULTILINE,
    )
    return list(dict.fromkeys(line.strip() for line in found if "audit: see" not in line))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder in which the page's files are."""
    folder = tmp_path_factory.mktemp("ci")
    for name in ("backends.toml", "etc/backends/node.toml"):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(POLICY)
    for name in ("run", "var/lib/node_exporter/textfile"):
        (folder / name).mkdir(parents=True)
    report = [sys.executable, "-m", "mlbackends", "info", "--depth=found", "--format=json"]
    with (folder / "baseline.json").open("wb") as file_:
        subprocess.run(report, stdout=file_, check=True, cwd=folder)
    return folder


def ran(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mlbackends", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=120,
    )


@pytest.mark.parametrize("command", commands(PAGE))
def test_a_command_of_the_page_does_what_it_says(command: str, place: Path) -> None:
    text = re.sub(r"(?<= )/(?=etc/|run/|var/)", f"{place}/", command)
    arguments = shlex.split(text)[1:]
    written = [b for a, b in itertools.pairwise(arguments) if a in ("--output", "snapshot")]
    if written[:1] in (["backends.toml"], ["baseline.json"]):
        arguments[arguments.index(written[0])] = written[0] = f"new-{written[0]}"

    done = ran(arguments, place)

    assert done.returncode in (0, 1), done.stderr
    assert not written or (place / written[0]).stat().st_size


# ---- the action ----------------------------------------------------------------------------------


def test_the_page_has_every_input_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (?:`(\w+)`)? *\|", PAGE, re.MULTILINE))

    given = {name: declared["default"] for name, declared in ACTION["inputs"].items()}
    assert rows == {**given, "python": "python3"}


def test_no_input_is_part_of_a_script() -> None:
    for step in STEPS.values():
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"


def test_every_choice_of_the_action_is_one_of_the_command() -> None:
    command: click.Command = registry.load("mlbackends_cli.report.commands", "doctor").command
    kind = next(option.type for option in command.params if option.name == "fail_on")

    assert isinstance(kind, click.Choice)
    described = ACTION["inputs"]["fail-on"]["description"]
    assert all(word in described for word in kind.choices)
    assert ACTION["inputs"]["fail-on"]["default"] in kind.choices


def step(
    name: str, folder: Path, **variables: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Run a step as GitHub's runner does; returns what it left in GITHUB_OUTPUT too."""
    output = folder / "github-output"
    output.write_text("")
    environment = {
        **os.environ,
        "RUNNER_TEMP": str(folder),
        "GITHUB_OUTPUT": str(output),
        **variables,
    }
    environment.pop("GITHUB_STEP_SUMMARY", None) if "GITHUB_STEP_SUMMARY" not in variables else None
    script = folder / "step.sh"
    script.write_text(STEPS[name]["run"])
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
        timeout=120,
    )
    told = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return done, told


def stub(path: Path, text: str) -> str:
    """Write a program of the shell's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def recorder(tmp_path: Path) -> str:
    """Make a `backends` that writes down its arguments, one a line, and ends with CODE."""
    log = shlex.quote(str(tmp_path / "calls"))
    return stub(tmp_path / "bin" / "backends", f'printf "%s\\n" "$@" -- >>{log}; exit "${{CODE:-0}}"')


def calls(folder: Path) -> list[list[str]]:
    text = (folder / "calls").read_text().split("--\n")
    return [part.splitlines() for part in text if part]


def test_the_action_runs_doctor_and_says_what_it_ended_with(tmp_path: Path, recorder: str) -> None:
    done, told = step("check", tmp_path, **INPUTS, BACKENDS=recorder, CODE="1")

    assert done.returncode == 1
    assert told == {"exit-code": "1"}
    python = shutil.which("python3")
    assert calls(tmp_path) == [["doctor", "--format=github", "--fail-on=error", f"--python={python}"]]


def test_the_action_holds_the_runner_to_each_policy(tmp_path: Path, recorder: str) -> None:
    given = {
        **INPUTS,
        "POLICY": "one.toml\ntwo words.toml\n",
        "ARGS": "--strict\n--timeout=3",
        "PYTHON": "/opt/py",
        "OUTPUT": "out file.xml",
        "FORMAT": "junit",
        "REPORT": "report.json",
    }
    done, told = step("check", tmp_path, **given, BACKENDS=recorder)

    assert (done.returncode, told) == (0, {"exit-code": "0"})
    report, audit = calls(tmp_path)
    assert report == ["info", "--format=json", "--output=report.json", "--python=/opt/py"]
    assert audit == [
        "audit",
        "--policy=one.toml",
        "--policy=two words.toml",
        "--format=junit",
        "--fail-on=error",
        "--output=out file.xml",
        "--python=/opt/py",
        "--strict",
        "--timeout=3",
    ]


EVIL = '"; touch pwned; $(touch pwned) `touch pwned` ${HOME} * \\'


@pytest.mark.parametrize("name", INPUTS)
def test_no_input_of_the_action_is_run(name: str, tmp_path: Path, recorder: str) -> None:
    done, _ = step("check", tmp_path, **{**INPUTS, name: EVIL}, BACKENDS=recorder)

    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "pwned").exists()
    assert any(EVIL in argument for call in calls(tmp_path) for argument in call)


def test_the_action_works_with_the_real_command(tmp_path: Path) -> None:
    real = stub(tmp_path / "backends", f'exec {shlex.quote(sys.executable)} -m mlbackends "$@"')
    (tmp_path / "backends.toml").write_text(POLICY)
    summary = tmp_path / "summary.md"
    given = {
        **INPUTS,
        "POLICY": "backends.toml",
        "REPORT": "report.json",
        "PYTHON": sys.executable,
        "ARGS": "--depth=found",
    }
    done, told = step("check", tmp_path, **given, BACKENDS=real, GITHUB_STEP_SUMMARY=str(summary))

    assert (done.returncode, told) == (0, {"exit-code": "0"}), done.stderr
    assert json.loads((tmp_path / "report.json").read_text())["probes"]
    assert "a-cpu" in summary.read_text() or "passed" in summary.read_text()


@pytest.mark.parametrize("version", ["", "0.1.0", EVIL])
@pytest.mark.parametrize("with_uv", [False, True])
@pytest.mark.parametrize("system", ["Linux", "Windows"])
def test_the_action_installs_what_was_asked_for(
    version: str, system: str, *, with_uv: bool, tmp_path: Path
) -> None:
    log = shlex.quote(str(tmp_path / "calls"))
    record = f'printf "%s\\n" "$@" -- >>{log}; [ -z "$(ls)" ] || touch "{tmp_path}/not-empty"'
    tools = tmp_path / "tools"
    inner = tmp_path / "mlbackends" / ("Scripts" if system == "Windows" else "bin") / "python"
    stub(inner, record)
    stub(tools / ("python" if system == "Windows" else "python3"), record)
    if with_uv:
        stub(tools / "uv", record)
    for name in ("bash", "printf", "mkdir", "ls", "touch"):
        (tools / name).symlink_to(shutil.which(name) or name)

    variables = {"VERSION": version, "SOURCE": "/act ion", "RUNNER_OS": system}
    done, told = step("install", tmp_path, **variables, PATH=str(tools))

    assert done.returncode == 0, done.stderr
    assert told == {"command": str(inner.with_name("backends"))}
    assert calls(tmp_path)[-1][-1] == (f"mlbackends=={version}" if version else "/act ion")
    words = (tmp_path / "calls").read_text().splitlines()
    assert words.count("--no-config" if with_uv else "-I") == 2
    assert not (tmp_path / "not-empty").exists()
    assert not (tmp_path / "pwned").exists()


# ---- the hooks -----------------------------------------------------------------------------------


def test_the_hooks_are_what_pre_commit_takes() -> None:
    known = {
        "id", "name", "description", "entry", "language", "pass_filenames", "always_run", "args", "files",
    }  # fmt: skip
    for hook in HOOKS:
        assert set(hook) <= known
        assert {"id", "name", "entry", "language"} <= set(hook)
        assert hook["language"] == "python"
    assert [hook["id"] for hook in HOOKS] == [
        "backends-doctor",
        "backends-audit",
        "backends-policy-check",
    ]


def hook_run(name: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a hook's entry as pre-commit does: its words, then its arguments, then files."""
    hook = next(hook for hook in HOOKS if hook["id"] == name)
    stub(folder / "bin" / "backends", f'exec {shlex.quote(sys.executable)} -m mlbackends "$@"')
    return subprocess.run(
        [*shlex.split(hook["entry"]), *hook.get("args", []), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        timeout=120,
    )


@pytest.mark.parametrize("name", ["backends-doctor", "backends-audit"])
def test_a_hook_judges_the_machine(name: str, tmp_path: Path) -> None:
    (tmp_path / "backends.toml").write_text(POLICY)

    done = hook_run(name, tmp_path, "--depth=found", "--fail-on=never")

    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_hook_for_policies_names_the_one_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "good one.toml").write_text(POLICY)
    (tmp_path / "unmet.toml").write_text(POLICY.replace(">= 1", ">= 100000"))
    (tmp_path / "bad.toml").write_text(POLICY.replace("effective_cpus", "effective_cpu"))

    well = hook_run("backends-policy-check", tmp_path, "good one.toml", "unmet.toml")
    ill = hook_run("backends-policy-check", tmp_path, "bad.toml", "good one.toml")

    assert (well.returncode, well.stderr) == (0, "")
    assert ill.returncode == 2
    assert "bad.toml" in ill.stderr and "effective_cpus" in ill.stderr


def test_the_slow_tests_are_there() -> None:
    """A test that was renamed would run in the README's command again; tests/slow.py writes the list."""
    for name in (ROOT / "tests" / "slow.txt").read_text(encoding="utf-8").split():
        path, _, function = name.partition("::")
        assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), name
