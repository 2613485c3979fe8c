"""Exit codes for who starts health checks: Nagios, node-problem-detector and Slurm."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from outcome_samples import with_checks
from running import backends

from mlbackends.base.errors import MlBackendsError
from mlbackends.model.audit import Check, Problem, Severity, Status
from mlbackends_cli.report import judgement

HOSTS = Path(__file__).resolve().parents[1] / "hosts"
DEGRADED = str(HOSTS / "gpu-server-degraded.machine")  # errors of the node
BROKEN = str(HOSTS / "stale-conda-workstation.machine")  # errors of the user, none of the node
WELL = str(HOSTS / "cloud-vm-recorded.machine")


def check(status: Status, severity: Severity = Severity.ERROR, whose: Problem | None = None) -> Check:
    return Check("a", "t", severity, status, problem=whose)


@pytest.mark.parametrize(
    ("checks", "npd", "slurm", "nagios"),
    [
        ([check(Status.PASSED)], 0, 0, 0),
        ([check(Status.FAILED)], 1, 1, 2),
        ([check(Status.FAILED, Severity.WARNING)], 0, 0, 1),
        ([check(Status.FAILED, Severity.NOTE)], 0, 0, 0),
        ([check(Status.UNKNOWN)], 2, 0, 3),
        ([check(Status.UNKNOWN), check(Status.FAILED)], 1, 1, 2),
        ([check(Status.WAIVED), check(Status.SKIPPED)], 0, 0, 0),
    ],
)
def test_each_reader_gets_its_codes(checks: list[Check], npd: int, slurm: int, nagios: int) -> None:
    for codes, expected in (("npd", npd), ("slurm", slurm), ("nagios", nagios)):
        for strict in (False, True):
            found = judgement.code(with_checks(*checks), fail_on="error", strict=strict, codes=codes)
            assert found == expected, codes


@pytest.mark.parametrize(
    ("machine", "arguments", "code", "beginning"),
    [
        (DEGRADED, ["--exit-code", "slurm"], 1, "[node_problem] "),
        (DEGRADED, ["--exit-code", "npd"], 1, "[node_problem] "),
        (DEGRADED, ["--exit-code", "nagios", "--problem", "user"], 1, "[user_problem] "),
        (BROKEN, ["--exit-code", "slurm"], 0, "unknown: "),
        (BROKEN, ["--exit-code", "npd"], 2, "unknown: "),
        (BROKEN, ["--exit-code", "npd", "--problem", "any"], 1, "[user_problem] "),
        (BROKEN, ["--exit-code", "nagios"], 2, "[user_problem] "),
        (WELL, ["--exit-code", "npd"], 0, "ok: "),
        # What cannot be determined at all.
        ("/nowhere", ["--exit-code", "slurm"], 0, "unknown: /nowhere cannot be read"),
        ("/nowhere", ["--exit-code", "npd"], 2, "unknown: /nowhere cannot be read"),
        ("/nowhere", ["--exit-code", "nagios"], 3, "unknown: /nowhere cannot be read"),
        (WELL, ["--only", "gone", "--exit-code", "slurm"], 0, "unknown: there is no hazard"),
    ],
)
def test_a_node_is_judged_by_its_own_problems(
    machine: str, arguments: list[str], code: int, beginning: str
) -> None:
    done = backends("doctor", machine, "--format", "line", *arguments)

    assert done.returncode == code
    assert done.stdout.startswith(beginning)
    assert done.stdout.count("\n") == 1


def test_a_rule_is_of_the_node_unless_it_says_otherwise(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    for line, code, beginning in (
        ("", 1, "[node_problem] no-cpu: cpu is here"),
        ('problem = "user"', 0, "ok: there is nothing to check"),
    ):
        policy.write_text(
            'schema = 1\n[[rule]]\nid = "no-cpu"\ncheck = "cpu absent"\nmessage = "cpu is here"\n' + line
        )

        arguments = ["--policy", str(policy), "--exit-code", "slurm", "--format", "line"]
        done = backends("audit", WELL, *arguments)

        assert (done.returncode, done.stdout[: len(beginning)]) == (code, beginning)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no folder that nobody may write in")
def test_a_line_that_cannot_be_written_is_no_verdict() -> None:
    for codes, code in (("slurm", 0), ("npd", 2), ("nagios", 3), ("plain", 2)):
        arguments = ["--exit-code", codes, "--format", "line", "--output", "/proc/line"]
        done = backends("doctor", DEGRADED, *arguments)

        assert done.returncode == code
        assert "/proc/line cannot be written" in done.stderr


def test_a_bug_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("mlbackends_cli.report.commands.doctor.examine", fail)
    for codes, code in (("slurm", 0), ("npd", 2), ("nagios", 3), ("plain", 70)):
        done = backends("doctor", WELL, "--exit-code", codes, "--format", "line")

        assert done.returncode == code
        assert "this is a bug" in done.stderr
        assert done.stdout == ("" if codes == "plain" else "unknown: a bug\n")


def test_what_takes_too_long_is_interrupted_and_not_told() -> None:
    too_late = pytest.raises(MlBackendsError, match=r"did not finish within 0\.1 s")
    with too_late as raised, judgement.limited(0.1):
        while True:  # no wait without an end can be interrupted on Windows
            time.sleep(0.01)

    assert raised.value.exit_code == 3


def test_what_ends_in_time_is_left_alone() -> None:
    with judgement.limited(0.05):
        pass
    time.sleep(0.1)

    with pytest.raises(KeyboardInterrupt), judgement.limited(60):  # the user's own Ctrl-C
        raise KeyboardInterrupt


@pytest.mark.skipif(os.name == "nt", reason="a closed pipe has another error there")
def test_a_closed_pipe_changes_no_verdict() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "mlbackends", "doctor", DEGRADED, "--exit-code", "slurm"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)

    assert (done.returncode, done.stderr) == (1, b"")
