"""Expected differences: what an entry covers is apart, everything else stays, and no entry is forgotten."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from streams import envelope_of

from mlbackends.audit.runner import examine
from mlbackends.base.errors import BadInput
from mlbackends.fleet import expected as expectations
from mlbackends.fleet.changes import difference_of
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.expected import Expected, changes_without_expected, without_expected
from mlbackends.fleet.groups import fleet_of
from mlbackends.fleet.judging import Judge, fleet_outcome
from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends.model.fleet import Envelope, Fleet, Hazard

TODAY = dt.date(2026, 6, 15)


def read(folder: Path, text: str, *kinds: str) -> Expected:
    path = folder / "expected.toml"
    path.write_text(text, encoding="utf-8")
    return expectations.read(str(path), *(kinds or ("fact", "hazard", "rule")), today=TODAY)


def collected(nodes: dict[str, dict[str, Any]]) -> Collection:
    collection = Collection()
    for node, facts in nodes.items():
        collection.add(envelope_of(node, **facts))
    return collection


def ten(**own: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"n{at}": {"driver": "580", "shm": 1} | own.get(f"n{at}", {}) for at in range(10)}


def differing(fleet: Fleet) -> set[tuple[str, str]]:
    deviations = {
        (node, difference.name)
        for kind in fleet.kinds
        for deviation in kind.deviations
        for node in deviation.nodes
        for difference in deviation.differences
    }
    return deviations | {
        (node, name)
        for kind in fleet.kinds
        for split in kind.splits
        for group in split.groups
        for node in group
        for name in split.facts
    }


def accepted(fleet: Fleet) -> set[tuple[str, str]]:
    return differing(
        replace(fleet, kinds=tuple(replace(k, deviations=k.expected, splits=()) for k in fleet.kinds))
    )


def test_a_fact_is_accepted_on_the_nodes_that_are_named(tmp_path: Path) -> None:
    fleet = fleet_of(collected(ten(n3={"driver": "590"}, n4={"driver": "590", "shm": 0}, n5={"shm": 0})))
    text = '[[waive]]\nfact = "cpu.driver"\nnodes = "n[3,9]"\nuntil = 2026-06-15\nreason = "OPS-1"\n'

    found = without_expected(fleet, read(tmp_path, text))

    assert differing(found) == {("n4", "cpu.driver"), ("n4", "cpu.shm"), ("n5", "cpu.shm")}
    assert accepted(found) == {("n3", "cpu.driver")}
    assert found.kinds[0].alike == 8
    (entry,) = found.expectations
    assert (entry.state, entry.findings, entry.nodes) == ("used", ("cpu.driver",), ("n3",))
    assert (entry.until, entry.reason, entry.place.line) == ("2026-06-15", "OPS-1", 1)


def test_the_last_difference_of_a_fleet_is_no_drift(tmp_path: Path) -> None:
    fleet = fleet_of(collected(ten(n3={"driver": "590"})))

    found = without_expected(fleet, read(tmp_path, '[[waive]]\nfact = "cpu.d*"\nreason = "x"\n'))

    assert fleet.drifts and not found.drifts
    assert found.kinds[0].alike == 10


@pytest.mark.parametrize(
    ("until", "state", "drifts"),
    [("2026-06-15", "used", False), ("2026-06-14", "expired", True), ("2027-01-01", "used", False)],
)
def test_after_the_last_day_it_counts_again(tmp_path: Path, until: str, state: str, drifts: bool) -> None:
    fleet = fleet_of(collected(ten(n3={"driver": "590"})))
    text = f'[[waive]]\nfact = "cpu.driver"\nuntil = {until}\nreason = "x"\n'

    found = without_expected(fleet, read(tmp_path, text))

    assert (found.expectations[0].state, found.drifts) == (state, drifts)
    assert found.expectations[0].nodes == ("n3",)


def test_of_two_entries_the_one_that_has_not_ended_counts(tmp_path: Path) -> None:
    fleet = fleet_of(collected(ten(n3={"driver": "590"})))
    text = "".join(
        f'[[waive]]\nfact = "cpu.driver"\nuntil = {year}-01-01\nreason = "{year}"\n' for year in (2025, 2027)
    )

    found = without_expected(fleet, read(tmp_path, text))

    assert not found.drifts
    states = [(entry.state, entry.reason, entry.nodes) for entry in found.expectations]
    assert states == [("used", "2027", ("n3",)), ("expired", "2025", ())]


def test_groups_without_a_majority_are_accepted_one_by_one(tmp_path: Path) -> None:
    values = {f"n{at}": {"driver": f"5{at % 3}0"} for at in range(6)}
    fleet = fleet_of(collected(values))
    one = without_expected(
        fleet, read(tmp_path, '[[waive]]\nfact="cpu.driver"\nnodes="n[0,3]"\nreason="x"\n')
    )
    two = without_expected(
        fleet, read(tmp_path, '[[waive]]\nfact="cpu.driver"\nnodes="n[0-1,3-4]"\nreason="x"')
    )

    assert one.kinds[0].splits[0].groups == (("n1", "n4"), ("n2", "n5"))
    assert not two.drifts


names = st.sampled_from([f"n{at}" for at in range(6)])


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(
        st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.integers(0, 1)}), min_size=6, max_size=6
    ),
    entries=st.lists(
        st.tuples(st.sampled_from(["cpu.a", "cpu.b", "cpu", "cpu.*", "x"]), st.sets(names), st.booleans()),
        max_size=4,
    ),
)
def test_every_difference_is_counted_or_accepted(
    tmp_path_factory: pytest.TempPathFactory, values: list[dict[str, int]], entries: list[Any]
) -> None:
    fleet = fleet_of(collected({f"n{at}": facts for at, facts in enumerate(values)}))
    rows = [
        f'[[waive]]\nfact = "{fact}"\nreason = "x"\nuntil = {2025 if is_over else 2027}-01-01\n'
        + (f"nodes = {sorted(nodes)}\n" if nodes else "")
        for fact, nodes, is_over in entries
    ]

    found = without_expected(fleet, read(tmp_path_factory.mktemp("e"), "\n".join(rows)))

    fits = {
        "cpu.a": ["cpu.a"],
        "cpu.b": ["cpu.b"],
        "cpu": ["cpu.a", "cpu.b"],
        "cpu.*": ["cpu.a", "cpu.b"],
        "x": [],
    }
    covered = {
        (f"n{at}", name)
        for fact, nodes, is_over in entries
        for name in fits[fact]
        for at in range(6)
        if not is_over and (not nodes or f"n{at}" in nodes)
    }
    assert accepted(found) == differing(fleet) & covered
    assert differing(found) <= differing(fleet) - covered
    alone = {name for name in ("cpu.a", "cpu.b") if not any(n == name for _, n in differing(found))}
    assert {pair for pair in differing(fleet) - covered if pair[1] not in alone} == differing(found)


def test_a_change_is_accepted_and_who_is_left_behind_is_not(tmp_path: Path) -> None:
    before = collected(ten())
    after = collected(ten(**{f"n{at}": {"driver": "590"} for at in range(7)}, n9={"shm": 0}))
    difference = difference_of(before, after)
    everywhere = '[[waive]]\nfact = "cpu.driver"\nreason = "roll-out"\n'

    found = changes_without_expected(difference, read(tmp_path, everywhere))
    some = changes_without_expected(difference, read(tmp_path, everywhere + 'nodes = "n[0-6,8]"\n'))

    assert [[step.name for step in change.steps] for change in found.changes] == [["cpu.shm"]]
    (behind,) = [change for change in some.changes if change.left_behind]
    assert (behind.nodes, behind.left_behind) == ((), ("n7", "n9"))
    assert [entry.state for entry in some.expectations] == ["used"]


def outcome_of(*checks: Check) -> Any:
    outcome = Outcome("s", "t", "doctor", "", "", "", checks)
    judge = Judge(lambda _: outcome)
    collection = Collection()
    for node in ("n1", "n2", "n3"):
        envelope = envelope_of(node, x=1)
        judge.visit(collection.add(envelope), envelope)
    return lambda expected: fleet_outcome(judge, collection, expected)


FAILED = Check("numa-balancing", "title", Severity.ERROR, Status.FAILED, "it is on")
RULE = Check("gpu-count", "title", Severity.ERROR, Status.FAILED, "7 GPUs")


def test_a_finding_is_waived_on_some_nodes_and_fails_on_the_others(tmp_path: Path) -> None:
    text = '[[waive]]\nhazard = "numa-*"\nnodes = "n[1-2]"\nreason = "OPS-2"\n'

    outcome = outcome_of(FAILED)(read(tmp_path, text, "hazard"))

    found = {check.status: check for check in outcome.checks}
    assert found[Status.WAIVED].message == "2 of 3 nodes (n[1-2]): it is on (accepted: OPS-2)"
    assert found[Status.FAILED].message == "1 of 3 nodes (n3): it is on"
    assert len(outcome.checks) == 2


def test_the_name_of_a_rule_is_not_that_of_a_hazard(tmp_path: Path) -> None:
    text = '[[waive]]\nrule = "*"\nreason = "x"\n'

    outcome = outcome_of(FAILED, RULE)(read(tmp_path, text, "rule", "hazard"))

    assert {check.code: check.status for check in outcome.checks} == {
        "numa-balancing": Status.FAILED,
        "gpu-count": Status.WAIVED,
    }


def test_entries_that_ended_or_accept_nothing_are_checks_with_their_place(tmp_path: Path) -> None:
    text = (
        '[[waive]]\nhazard = "numa-balancing"\nuntil = 2026-01-01\nreason = "old"\n\n'
        '[[waive]]\nhazard = "cpu-governor"\nreason = "not looked for"\n\n'
        '[[waive]]\nrule = "gpu-count"\nreason = "of a policy"\n\n'
        '[[waive]]\nhazard = "numa-balancing"\nnodes = "n7"\nreason = "gone"\n'
    )

    outcome = outcome_of(FAILED)(read(tmp_path, text, "hazard"))

    found = {check.code: check for check in outcome.checks}
    assert found["numa-balancing"].status is Status.FAILED
    assert "(it was accepted until 2026-01-01: old)" in found["numa-balancing"].message
    assert found["expected-expired"].severity is Severity.WARNING
    assert found["expected-unused"].severity is Severity.NOTE
    assert [check.place.line for check in outcome.checks if check.place] == [14, 1]
    assert len(outcome.checks) == 3


def test_hazards_of_a_summary_are_decided_again_when_it_is_read(tmp_path: Path) -> None:
    fleet = replace(fleet_of(collected(ten())), hazards=(Hazard(FAILED, ("n1", "n2")),))
    text = '[[waive]]\nhazard = "numa-balancing"\nnodes = "n1"\nreason = "x"\n'

    found = without_expected(fleet, read(tmp_path, text))
    again = Collection()
    again.merge(msgspec.json.decode(msgspec.json.encode(found), type=Fleet))

    assert {hazard.check.status: hazard.nodes for hazard in found.hazards} == {
        Status.WAIVED: ("n1",),
        Status.FAILED: ("n2",),
    }
    assert [hazard.check for hazard in again.hazards] == [FAILED, FAILED]


WRONG = [
    ("[[waive]]\n", ":1: waive: lacks reason"),
    ('[[waive]]\nreason = "x"\n', ":1: waive: has none of hazard, rule, fact"),
    ('[[waive]]\nfact = "x"\nreason = " "\n', ":3: waive.reason: must not be empty"),
    ('[[waive]]\nfact = [""]\nreason = "x"\n', ":2: waive.fact: must not be empty"),
    ('[[waive]]\nfact = "x"\nreason = "x"\nnodes = []\n', ":4: waive.nodes: must not be empty"),
    ('[[waive]]\nhazard = "cpu-governer"\nreason = "x"\n', ":2: waive.hazard: there is no hazard named"),
    ('[[waive]]\nfact = "x"\nreason = "x"\nuntil = "2027-01-31"\n', ":4: waive.until: must be a date"),
    (
        '[[waive]]\nfact = "x"\nreason = "x"\nnode = "n1"\n',
        ":4: waive.node: there is no such key in [[waive]]",
    ),
    ('[[waive]]\nfact = "x"\nreason = "x"\nnodes = "n[1-"\n', ":4: waive.nodes: 'n[1-' is not a node set"),
    (
        '[[waive]]\nfact = "x"\nreason = "x"\nnodes = "n[1-9999999]"\n',
        ":4: waive.nodes: 'n[1-9999999]' names more",
    ),
    ("[waive]\nfact = 1\n", ":1: waive: must be a list of tables"),
    ("waive = [1]\n", ":1: waive: must be a list of tables"),
    ("x = 1\n", ":1: x: there is no such key"),
    ("[[waive]\n", ":1: "),
    ("\x00", ":1: "),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_file_is_one_line_with_its_number(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput) as error:
        read(tmp_path, text)

    assert str(error.value).startswith(f"{tmp_path}/expected.toml{message}")
    assert "\n" not in str(error.value)


def test_an_empty_file_expects_nothing(tmp_path: Path) -> None:
    fleet = fleet_of(collected(ten(n3={"driver": "590"})))

    assert without_expected(fleet, read(tmp_path, "")) == fleet


def test_real_hazards_are_waived_with_the_numbers_of_each_node(tmp_path: Path) -> None:
    document = (Path(__file__).resolve().parents[2] / "reports/hgx-h100-failing.json").read_bytes()
    judge, collection = Judge(examine), Collection()
    for at in range(3):
        envelope = Envelope(node=f"n{at}", report=msgspec.Raw(document))
        judge.visit(collection.add(envelope), envelope)
    before = fleet_outcome(judge, collection)
    codes = sorted({check.code for check in before.failed()})
    text = "".join(f'[[waive]]\nhazard = "{code}"\nreason = "known"\n' for code in codes)

    after = fleet_outcome(judge, collection, read(tmp_path, text, "hazard"))

    assert codes and not after.failed()
    assert sorted({check.code for check in after.with_status(Status.WAIVED)}) == codes
