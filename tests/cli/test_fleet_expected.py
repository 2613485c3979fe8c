"""`--expected FILE` of `backends fleet`: exit codes, and what each format shows of what is accepted."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import msgspec
import pytest
from running import backends

from mlbackends.fleet.frames import frames
from mlbackends.model.fleet import Envelope
from mlbackends_cli.report.commands.schema import SCHEMAS

ROOT = Path(__file__).resolve().parents[2]
RULE = 'schema = 1\n[[rule]]\nid = "module"\nmessage = "old module"\ncheck = "nvidia.kernel_module == open"\n'
EXPECTED = """\
[[waive]]
fact = "nvidia.kernel_module"
rule = "module"
nodes = "node3"
until = 2999-12-31
reason = "OPS-1: canary"
"""
OVER = EXPECTED.replace("2999", "2020")


def folder(parent: Path, name: str, module: str) -> Path:
    """Make a folder of four nodes; node3 has another kernel module than "open"."""
    document = json.loads((ROOT / "tests/reports/hgx-h100-sound.json").read_text("utf-8"))
    path = parent / name
    path.mkdir()
    for at in range(4):
        document["probes"]["nvidia"]["facts"]["kernel_module"] = module if at == 3 else "open"
        envelope = Envelope(node=f"node{at}", report=msgspec.Raw(json.dumps(document).encode()))
        (path / f"node{at}.frame").write_text("\n".join(frames(envelope)) + "\n")
    return path


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with "old" and "new", a policy, and files of what is expected."""
    path = tmp_path_factory.mktemp("expected")
    folder(path, "old", "open")
    folder(path, "new", "proprietary")
    for name, text in {"policy": RULE, "expected": EXPECTED, "over": OVER}.items():
        (path / f"{name}.toml").write_text(text)
    return path


def commands(reports: Path) -> dict[str, tuple[str, ...]]:
    old, new, policy = (str(reports / name) for name in ("old", "new", "policy.toml"))
    return {
        "summarize": ("fleet", "summarize", new, "--fail-on", "drift"),
        "diff": ("fleet", "diff", old, new),
        "audit": ("fleet", "audit", new, "--policy", policy),
    }


@pytest.mark.parametrize("name", ["summarize", "diff", "audit"])
def test_what_is_accepted_does_not_fail_and_is_listed(reports: Path, name: str) -> None:
    command = commands(reports)[name]
    texts = {}
    for file, code in (("", 1), ("expected", 0), ("over", 1)):
        done = backends(*command, *(["--expected", str(reports / f"{file}.toml")] if file else []))
        assert (done.returncode, done.stderr) == (code, "")
        texts[file] = " ".join(done.stdout.split())

    assert "accepted until 2999-12-31: OPS-1: canary" in texts["expected"]
    assert "node3" in texts["expected"]
    assert "accepted until 2020-12-31, which has passed: OPS-1: canary" in texts["over"]


def test_an_entry_that_accepts_nothing_is_listed_by_the_commands_that_could_use_it(
    reports: Path, tmp_path: Path
) -> None:
    file = tmp_path / "expected.toml"
    for what, users in (('fact = "nvidia.*"', {"summarize", "diff"}), ('rule = "module"', {"audit"})):
        file.write_text(f'[[waive]]\n{what}\nnodes = "node2"\nreason = "OPS-2"\n')
        for name, command in commands(reports).items():
            done = backends(*command, "--expected", str(file))
            assert done.returncode == 1
            assert ("no finding accepted: OPS-2" in " ".join(done.stdout.split())) == (name in users)


@pytest.mark.parametrize(("name", "schema"), [("summarize", "fleet"), ("diff", "fleet-difference")])
def test_json_has_the_entries(reports: Path, name: str, schema: str) -> None:
    command = (*commands(reports)[name], "--expected", str(reports / "expected.toml"))
    document = json.loads(backends(*command, "--format", "json").stdout)

    jsonschema.validate(document, SCHEMAS[schema]())
    (entry,) = document["expectations"]
    assert (entry["state"], entry["nodes"]) == ("used", ["node3"])
    assert entry["what"] == {"rule": ["module"], "fact": ["nvidia.kernel_module"]}
    assert entry["place"] == {"file": str(reports / "expected.toml"), "line": 1}
    if schema == "fleet":
        (deviation,) = document["kinds"][0]["expected"]
        assert deviation["nodes"] == ["node3"]
        assert (document["kinds"][0]["alike"], document["kinds"][0]["deviations"]) == (4, [])


def test_sarif_and_junit_have_the_justification(reports: Path) -> None:
    command = (*commands(reports)["audit"], "--expected", str(reports / "expected.toml"), "--format")
    reason = "1 of 4 nodes (node3): old module: nvidia.kernel_module is proprietary"

    run = json.loads(backends(*command, "sarif").stdout)["runs"][0]
    (result,) = run["results"]
    (suppression,) = result["suppressions"]
    assert (suppression["kind"], suppression["status"]) == ("external", "accepted")
    assert reason in suppression["justification"]
    assert suppression["justification"].endswith("(accepted until 2999-12-31: OPS-1: canary)")
    suite = ET.fromstring(backends(*command, "junit").stdout)[0]
    skipped = suite.find("testcase/skipped")
    assert suite.get("failures") == "0" and skipped is not None
    assert str(skipped.get("message")).startswith(f"waived: {reason}")


def test_an_entry_that_has_ended_is_a_warning_at_its_line(reports: Path) -> None:
    command = (*commands(reports)["audit"], "--expected", str(reports / "over.toml"), "--format", "sarif")

    results = json.loads(backends(*command).stdout)["runs"][0]["results"]

    levels = {result["ruleId"]: result["level"] for result in results}
    assert levels == {"module": "error", "expected-expired": "warning"}
    assert not any("suppressions" in result for result in results)
    (over,) = (result for result in results if result["ruleId"] == "expected-expired")
    place = over["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("over.toml") and place["region"]["startLine"] == 1


def test_a_wrong_or_missing_file_is_one_line_before_anything_is_read(reports: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('[[waive]]\nhazard = "cpu-governer"\nreason = "x"\n')
    for command in (("summarize",), ("doctor",), ("audit", "--policy", str(reports / "policy.toml"))):
        done = backends("fleet", *command, "/nowhere", "--expected", str(wrong))
        assert done.returncode == 2 and done.stdout == ""
        assert done.stderr.startswith(f"backends: {wrong}:2: waive.hazard: there is no hazard named")
    gone = backends("fleet", "doctor", str(reports / "new"), "--expected", str(tmp_path / "gone.toml"))
    assert gone.returncode == 2 and "gone.toml cannot be read" in gone.stderr.splitlines()[0]


def test_a_summary_that_is_read_again_still_has_its_differences(reports: Path, tmp_path: Path) -> None:
    command = commands(reports)["summarize"]
    file = tmp_path / "fleet.json"
    backends(
        *command, "--expected", str(reports / "expected.toml"), "--format", "json", "--output", str(file)
    )

    assert backends("fleet", "summarize", str(file), "--fail-on", "drift").returncode == 1


def test_the_health_check_of_one_node_accepts_what_the_fleet_does(tmp_path: Path) -> None:
    machine = str(ROOT / "tests/hosts/gpu-server-degraded.machine")
    report = tmp_path / "node001.json"
    backends("info", "--root", machine, "--format", "json", "--output", str(report))
    file = tmp_path / "expected.toml"
    check = ("--expected", str(file), "--exit-code", "slurm", "--format", "line")
    for node, code in (("node[001-002]", 0), ("node002", 1)):
        file.write_text(f'[[waive]]\nhazard = "nvidia-module-*"\nnodes = "{node}"\nreason = "RMA 1"\n')
        done = backends("doctor", str(report), *check)
        assert (done.returncode, done.stderr) == (code, "")
        assert ("1 waived" in done.stdout) == (code == 0)

    text = backends("doctor", str(report), "--expected", str(file), "--fail-on", "never").stdout
    assert f"note expected-unused ({file}:1)" in text
    policy = tmp_path / "policy.toml"
    policy.write_text(RULE)
    file.write_text('[[waive]]\nrule = "module"\nreason = "OPS-3"\n')
    audit = ("audit", str(report), "--policy", str(policy))
    assert backends(*audit).returncode == 1
    assert backends(*audit, "--expected", str(file)).returncode == 0
    file.write_text("[[waive]]\n")
    wrong = backends("doctor", str(report), "--expected", str(file))
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith(f"backends: {file}:1: waive: lacks reason")


def test_a_difference_of_one_node_is_accepted_on_that_node(tmp_path: Path) -> None:
    machine = str(ROOT / "tests/hosts/gpu-server-degraded.machine")
    old, new = tmp_path / "old.json", tmp_path / "node001.json"
    backends("info", "--root", machine, "--format", "json", "--output", str(old))
    report = json.loads(old.read_text("utf-8"))
    report["probes"]["host"]["facts"] |= {"kernel_release": "7.0", "libc_version": "2.99"}
    new.write_text(json.dumps(report))
    file = tmp_path / "expected.toml"
    entry = '[[waive]]\nfact = "host.{}"\nnodes = "{}"\n{}reason = "OPS-4"\n'
    over = "until = 2020-12-31\n"
    file.write_text(entry.format("kernel*", "node001", "") + entry.format("libc*", "node002", "") * 2)
    command = ("diff", str(old), str(new), "--expected", str(file))
    done = backends(*command)
    assert done.returncode == 1 and "kernel_release" not in done.stdout, done.stderr
    assert "expected: host.kernel*: 1 finding on 1 node (node001) accepted: OPS-4" in done.stdout
    assert "expected, but absent: host.libc*: no finding accepted: OPS-4" in " ".join(done.stdout.split())
    file.write_text(entry.format("kernel*", "node001", "") + entry.format("libc*", "node[001-002]", over))
    assert "no longer expected: host.libc*" in backends(*command).stdout
    file.write_text(entry.format("*", "node001", ""))
    suite = ET.fromstring(backends(*command, "--format", "junit").stdout)[0]
    skipped = {case.get("name") for case in suite.iter("testcase") if case.find("skipped") is not None}
    assert skipped == {"host.kernel_release", "host.libc_version"}
    assert (suite.get("failures"), backends(*command).returncode) == ("0", 0)
    file.write_text("[[waive]]\n")
    done = backends("diff", "/nowhere", str(new), "--expected", str(file))
    assert (done.returncode, "lacks reason" in done.stderr) == (2, True)
