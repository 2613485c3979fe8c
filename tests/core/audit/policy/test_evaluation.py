"""A policy held to a report: conditions, needs, waivers, kept reports, and hazards."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace

from mlbackends.audit.policy.evaluation import audit
from mlbackends.audit.policy.rules import read
from mlbackends.base.reasons import Reason
from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends.model.records import SCHEMA, Failure, Library, Presence, ProbeReport, Report

if TYPE_CHECKING:
    from pathlib import Path

TODAY = dt.date(2026, 6, 15)
CPU = ProbeReport(Presence.FOUND, facts={"cores": 8, "vendor": "Intel"})
BROKEN = ProbeReport(None, failure=Failure("it broke"))
OPENMP = ProbeReport(
    Presence.FOUND,
    facts={"conflicting_copies": ["/venv/libomp.so", "/venv/libiomp5.so"]},
    libraries=(
        Library("openmp", "/venv/libomp.so", owner="a 1", facts={"runtime": "llvm"}),
        Library("openmp", "/venv/libiomp5.so", owner="b 1", facts={"runtime": "intel"}),
    ),
    warnings=(Reason("conflict", "two runtimes meet"),),
)


def report(depth: Presence = Presence.USABLE, **probes: ProbeReport) -> Report:
    return Report(SCHEMA, "backends 0", depth, "/", "2026-01-01T00:00:00Z", 0.0, True, probes)


def audited(folder: Path, text: str, machine: Report, today: dt.date = TODAY) -> Outcome:
    path = folder / "policy.toml"
    path.write_text(f"schema = 1\n{text}")
    return audit([read(str(path))], machine, today, "here")


def rule(name: str, check: str, more: str = "") -> str:
    return f'[[rule]]\nid = "{name}"\ncheck = "{check}"\n{more}\n'


def by_code(outcome: Outcome) -> dict[str, Check]:
    return {check.code: check for check in outcome.checks}


def test_a_failed_rule_says_what_was_seen_what_was_needed_and_where(tmp_path: Path) -> None:
    more = 'message = "Too few."\nwhy = "W"\nhint = "H"\ncommand = "C"\n'
    more += 'documentation = "D"\nseverity = "note"'

    outcome = audited(tmp_path, rule("a", "cpu.cores >= 16", more), report(cpu=CPU))

    (check,) = outcome.checks
    assert (outcome.kind, outcome.title, outcome.subject) == ("audit", "policy.toml", "here")
    assert (check.code, check.status, check.severity) == ("a", Status.FAILED, Severity.NOTE)
    assert check.message == "Too few: cpu.cores is 8, required: >= 16"
    assert check.evidence == {"cpu.cores": 8}
    assert (check.why, check.hint, check.command, check.documentation) == ("W", "H", "C", "D")
    assert check.place is not None
    assert (check.place.file, check.place.line) == (str(tmp_path / "policy.toml"), 3)


def test_the_checks_are_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = rule("b", "cpu present", 'needs = "c"') + rule("a", "cpu present") + rule("c", "cpu present")

    assert [check.code for check in audited(tmp_path, text, report(cpu=CPU)).checks] == [
        "b",
        "a",
        "c",
    ]


@pytest.mark.parametrize(
    ("when", "status", "said"),
    [
        ("cpu.cores >= 4", Status.PASSED, ""),
        ("cpu.cores >= 16", Status.SKIPPED, "it applies where cpu.cores: >= 16; cpu.cores is 8"),
        ("cpu.dies >= 1", Status.SKIPPED, "cpu.dies is not in the report"),
        ("nvidia present", Status.UNKNOWN, "whether it applies could not be determined"),
    ],
)
def test_a_rule_applies_where_its_conditions_hold(
    tmp_path: Path, when: str, status: Status, said: str
) -> None:
    machine = report(cpu=CPU, nvidia=BROKEN)

    for text in (
        rule("a", "cpu present", f'when = "{when}"'),
        f'when = "{when}"\n{rule("a", "cpu present")}',
    ):
        (check,) = audited(tmp_path, text, machine).checks
        assert check.status is status
        assert said in check.message


def test_a_condition_of_a_file_is_that_of_its_own_rules(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(
        f'schema = 1\nwhen = "cpu.cores >= 99"\n{rule("base", "cpu present")}'
    )

    checks = by_code(
        audited(tmp_path, f'extends = ["base.toml"]\n{rule("own", "cpu present")}', report(cpu=CPU))
    )

    assert checks["base"].status is Status.SKIPPED
    assert checks["own"].status is Status.PASSED


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (rule("first", "cpu.cores >= 99"), "it needs first, which failed"),
        (rule("first", "nvidia present"), "it needs first, which could not be determined"),
        (
            rule("first", "cpu present", 'when = "cpu.cores >= 99"'),
            "it needs first, which was skipped",
        ),
    ],
)
def test_of_what_hangs_together_the_first_cause_alone_fails(tmp_path: Path, first: str, said: str) -> None:
    text = rule("second", "cpu.cores >= 99", 'needs = ["first"]') + first

    check = by_code(audited(tmp_path, text, report(cpu=CPU, nvidia=BROKEN)))["second"]

    assert check.status is Status.SKIPPED
    assert said in check.message


@pytest.mark.parametrize(
    ("until", "status", "said"),
    [
        ("2026-06-16", Status.WAIVED, "(accepted until 2026-06-16: OPS-1)"),
        ("2026-06-15", Status.WAIVED, "(accepted until 2026-06-15: OPS-1)"),
        ("2026-06-14", Status.FAILED, "(it was accepted until 2026-06-14: OPS-1)"),
    ],
)
def test_a_failure_is_accepted_up_to_a_day(tmp_path: Path, until: str, status: Status, said: str) -> None:
    waiver = f'[[waive]]\nrule = "a"\nuntil = {until}\nreason = "OPS-1"\n'

    (check,) = audited(tmp_path, rule("a", "cpu.cores >= 99") + waiver, report(cpu=CPU)).checks

    assert check.status is status
    assert said in check.message


def test_what_holds_is_not_waived(tmp_path: Path) -> None:
    waiver = '[[waive]]\nrule = "a"\nuntil = 2027-01-01\nreason = "OPS-1"\n'

    (check,) = audited(tmp_path, rule("a", "cpu present") + waiver, report(cpu=CPU)).checks

    assert check.status is Status.PASSED


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("hazards = true\n", Severity.ERROR),
        ('[hazards]\nonly = ["openmp-two-runtimes"]\n', Severity.ERROR),
        ('[hazards.severity]\nopenmp-two-runtimes = "note"\n', Severity.NOTE),
        ('[hazards]\nfail_on = "warning"\n', Severity.ERROR),
        ("[hazards]\nenable = false\n", None),
        ('[hazards]\nignore = ["openmp-two-runtimes"]\n', None),
        ("hazards = false\n", None),
    ],
)
def test_known_hazards_are_looked_for_where_the_policy_says_so(
    tmp_path: Path, text: str, severity: Severity | None
) -> None:
    found = by_code(audited(tmp_path, text, report(openmp=OPENMP))).get("openmp-two-runtimes")

    assert (found.severity if found else None) == severity
    if found:
        assert found.status is Status.FAILED
        assert found.place is not None and found.place.line == 2


def test_a_lesser_hazard_becomes_a_note(tmp_path: Path) -> None:
    machine = report(limits=ProbeReport(Presence.FOUND, facts={"online_cpus": 4}))
    for check in audited(tmp_path, '[hazards]\nfail_on = "error"\n', machine).checks:
        assert check.severity in (Severity.ERROR, Severity.NOTE)


def test_a_hazard_can_be_accepted_up_to_a_day(tmp_path: Path) -> None:
    waiver = '[[waive]]\nrule = "openmp-two-runtimes"\nuntil = 2027-01-01\nreason = "OPS-1"\n'

    outcome = audited(tmp_path, f"hazards = true\n{waiver}", report(openmp=OPENMP))

    assert by_code(outcome)["openmp-two-runtimes"].status is Status.WAIVED


def kept(folder: Path, machine: Report) -> None:
    (folder / "kept.json").write_bytes(msgspec.json.encode(machine))


GOLDEN = '[[rule]]\nid = "same"\nequals_snapshot = "kept.json"\n'


def test_what_is_as_it_was_kept_passes(tmp_path: Path) -> None:
    kept(tmp_path, report(cpu=CPU))

    assert audited(tmp_path, GOLDEN, report(cpu=CPU)).checks[0].status is Status.PASSED


def test_what_is_not_as_it_was_kept_is_told_by_name(tmp_path: Path) -> None:
    kept(tmp_path, report(cpu=CPU))

    (check,) = audited(tmp_path, GOLDEN, report(cpu=replace(CPU, facts={"cores": 4}))).checks

    assert check.status is Status.FAILED
    assert "cpu.cores was 8 and is 4" in check.message
    assert "cpu.vendor was removed" in check.message
    assert check.evidence == {"cpu.cores": 4}


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ('names = "cpu.vendor"', Status.PASSED),
        ('names = ["cpu.v*", "host.*"]', Status.PASSED),
        ('names = "cpu.*"', Status.FAILED),
        ('names = "cpu.*"\nexcept = "cpu.cores"', Status.PASSED),
    ],
)
def test_only_the_names_that_are_asked_for_count(tmp_path: Path, more: str, status: Status) -> None:
    kept(tmp_path, report(cpu=CPU))
    machine = report(cpu=replace(CPU, facts={**CPU.facts, "cores": 4}))

    assert audited(tmp_path, f"{GOLDEN}{more}\n", machine).checks[0].status is status


@pytest.mark.parametrize(
    "machine",
    [report(cpu=BROKEN), report(host=CPU), report(Presence.FOUND, cpu=CPU), report()],
    ids=["failed", "another probe", "not as deep", "nothing"],
)
def test_what_could_not_be_compared_is_not_the_same(tmp_path: Path, machine: Report) -> None:
    kept(tmp_path, report(cpu=CPU))

    assert audited(tmp_path, GOLDEN, machine).checks[0].status is Status.UNKNOWN


def test_a_presence_that_a_foreign_report_has_as_a_list_is_none(tmp_path: Path) -> None:
    machine = report(Presence.FOUND, cudnn=ProbeReport(Presence.FOUND, facts={"presence": [1]}))

    (check,) = audited(tmp_path, rule("a", "cudnn == usable"), machine).checks

    assert check.status is Status.FAILED and "cudnn.presence is [1]" in check.message


def test_several_policies_are_one_outcome(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(f'schema = 1\nname = "{name}"\n{rule("a", "cpu present")}')
    policies = [read(str(tmp_path / f"{name}.toml")) for name in ("one", "two")]

    outcome = audit(policies, report(cpu=CPU), TODAY)

    assert outcome.title == "one + two"
    assert [check.code for check in outcome.checks] == ["a", "a"]
