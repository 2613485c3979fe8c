"""Kinds of nodes, and what deviates in each."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from streams import envelope_of

from mlbackends.base.errors import UnknownName
from mlbackends.base.reasons import Reason
from mlbackends.fleet.changes import difference_of
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.fingerprint import rounded
from mlbackends.fleet.groups import baseline_of, facts_of_fleet, fleet_of
from mlbackends.model.fleet import Envelope, Fleet
from mlbackends.model.records import SCHEMA, Device, Presence, ProbeReport, Report
from mlbackends_cli.fleet.text import blocks

FOUND = Presence.FOUND


def taken(nodes: dict[str, dict[str, Any]]) -> Collection:
    collection = Collection()
    for node, facts in nodes.items():
        collection.add(envelope_of(node, **facts))
    return collection


def split(fleet: Fleet) -> list[tuple[tuple[str, ...], list[str]]]:
    """Return the deviations of the first kind: nodes and names of facts."""
    return [
        (deviation.nodes, [difference.name for difference in deviation.differences])
        for deviation in fleet.kinds[0].deviations
    ]


def test_facts_that_split_the_nodes_alike_are_one_deviation_and_the_smallest_is_first() -> None:
    nodes: dict[str, dict[str, Any]] = {
        f"n{at}": {"driver": "580", "gsp": "580", "shm": 1} for at in range(9)
    }
    nodes["n2"] = nodes["n5"] = {"driver": "570", "gsp": "570", "shm": 1}
    nodes["n7"] = {"driver": "580", "gsp": "580", "shm": 0}
    fleet = fleet_of(taken(nodes))

    assert split(fleet) == [(("n7",), ["cpu.shm"]), (("n2", "n5"), ["cpu.driver", "cpu.gsp"])]
    assert fleet.kinds[0].alike == 6
    first = fleet.kinds[0].deviations[1].differences[0]
    assert (first.value, first.usual) == ("570", "580")
    assert fleet.drifts


def test_equal_nodes_do_not_drift() -> None:
    fleet = fleet_of(taken({f"n{at}": {"x": 1} for at in range(3)}))

    assert not fleet.drifts and fleet.kinds[0].alike == 3


def test_unlike_kinds_are_not_compared() -> None:
    nodes = {
        "a1": {"model_name": "Xeon"},
        "a2": {"model_name": "Xeon"},
        "b1": {"model_name": "EPYC"},
    }

    assert not fleet_of(taken(nodes)).drifts
    assert fleet_of(taken(nodes), by=["cpu.presence"]).drifts


def test_a_fact_that_is_not_there_is_a_value_too() -> None:
    fleet = fleet_of(taken({"n1": {"x": 1}, "n2": {"x": 1}, "n3": {}}))

    assert split(fleet) == [(("n3",), ["cpu.x"])]
    assert fleet.kinds[0].deviations[0].differences[0].value is None


def test_a_fact_that_nearly_every_node_has_otherwise_is_not_compared() -> None:
    fleet = fleet_of(taken({f"n{at}": {"own": at} for at in range(50)}))
    assert not fleet.drifts
    assert fleet.kinds[0].not_compared == ("cpu.own",)

    few = fleet_of(taken({f"n{at}": {"own": at} for at in range(10)}))
    assert few.drifts and not few.kinds[0].not_compared
    (split_of_ten,) = few.kinds[0].splits
    assert split_of_ten.facts == {"cpu.own": tuple(range(10))}


def test_drivers_of_four_and_three_older_ones_are_drift() -> None:
    drivers = ["570.86", "570.86", "570.86", "570.86", "550.54.15", "535.104.05", "470.1"]
    fleet = fleet_of(taken({f"n{at}": {"driver": name} for at, name in enumerate(drivers)}))

    (kind,) = fleet.kinds
    found = {deviation.nodes: deviation.differences[0].value for deviation in kind.deviations}
    assert found == {("n4",): "550.54.15", ("n5",): "535.104.05", ("n6",): "470.1"}
    assert (kind.alike, kind.not_compared) == (4, ())


@pytest.mark.parametrize(
    "groups",
    [{"570": ["n1"], "550": ["n2"]}, {"1": ["a1", "a2"], "2": ["b1", "b2"], "3": ["c1", "c2"]}],
)
def test_where_no_value_has_most_nodes_there_is_no_majority(groups: dict[str, list[str]]) -> None:
    nodes = {
        node: {"driver": value, "library": value, "same": 1}
        for value, names in groups.items()
        for node in names
    }
    fleet = fleet_of(taken(nodes))

    (kind,) = fleet.kinds
    assert not kind.deviations and fleet.drifts
    (found,) = kind.splits
    assert [*found.facts] == ["cpu.driver", "cpu.library"]
    assert dict(zip(found.facts["cpu.driver"], map(list, found.groups), strict=True)) == groups


def node(name: str, gpus: int = 0, model: str = "H100", **memory: Any) -> Envelope:
    devices = tuple(Device("cuda", at, model) for at in range(gpus))
    probes = {
        "cpu": ProbeReport(FOUND, facts={"model_name": "Xeon"}),
        "memory": ProbeReport(FOUND, facts=dict(memory)),
        "nvidia": ProbeReport(FOUND, devices=devices),
    }
    report = Report(SCHEMA, "backends 0", FOUND, "/", "", 0.0, True, probes)
    return Envelope(node=name, report=msgspec.Raw(msgspec.json.encode(report)))


def test_a_node_that_lost_a_gpu_stays_in_its_kind() -> None:
    collection = Collection()
    for at in range(5):
        collection.add(node(f"n{at}", gpus=7 if at == 3 else 8))
    collection.add(node("other", gpus=8, model="A100"))
    fleet = fleet_of(collection)

    (kind,) = fleet.kinds
    assert (kind.nodes, kind.others) == (6, ("other",))
    other, lost = kind.deviations
    assert other.nodes == ("other",)
    assert (other.differences[0].name, other.differences[0].value, other.differences[0].usual) == (
        "nvidia.devices.name", "A100", "H100",
    )  # fmt: skip
    assert (lost.nodes, [difference.name for difference in lost.differences]) == (
        ("n3",),
        ["nvidia.devices"],
    )
    assert [kind.nodes for kind in fleet_of(collection, by=["*.devices.name"]).kinds] == [5, 1]


@pytest.mark.parametrize(
    ("few", "many", "drifts"), [(1, 3, True), (1, 2, False), (3, 60, True), (3, 40, False)]
)
def test_a_kind_of_few_nodes_is_drift(few: int, many: int, drifts: bool) -> None:
    nodes = {f"x{at}": {"model_name": "Xeon", "shm": 1} for at in range(many)}
    nodes |= {f"e{at}": {"model_name": "EPYC", "shm": 1} for at in range(few)}
    fleet = fleet_of(taken(nodes))

    assert fleet.drifts is drifts
    assert len(fleet.kinds) == (1 if drifts else 2)


def test_a_kind_of_few_nodes_is_compared_with_the_nearest() -> None:
    nodes = {f"a{at}": {"model_name": "A", "kernel": 1, "libc": 1} for at in range(9)}
    nodes |= {f"b{at}": {"model_name": "B", "kernel": 2, "libc": 2} for at in range(8)}
    nodes["odd"] = {"model_name": "C", "kernel": 2, "libc": 2}
    near, largest = fleet_of(taken(nodes)).kinds  # what deviates comes first

    assert (largest.title["cpu.model_name"], largest.others) == ("A", ())
    assert (near.title["cpu.model_name"], near.others) == ("B", ("odd",))
    assert [difference.name for difference in near.deviations[0].differences] == ["cpu.model_name"]


@pytest.mark.parametrize("base", [503_316_480 + at * 131_072 for at in range(0, 160, 13)])
def test_metrics_within_a_hundredth_are_the_same_wherever_rounding_cuts(base: int) -> None:
    collection = Collection()
    for at in range(8):
        collection.add(node(f"n{at}", total_bytes=base + at * 100_000))
    collection.add(node("small", total_bytes=base // 2))

    (kind,) = fleet_of(collection).kinds
    assert [deviation.nodes for deviation in kind.deviations] == [("small",)]
    (difference,) = kind.deviations[0].differences
    assert (difference.value, difference.usual) == (
        base // 2,
        base,
    )  # the real values, not the rounded


def test_a_roll_out_that_reached_half_of_the_nodes_is_one_block() -> None:
    nodes = {f"n{at}": {"driver": "570", "kernel": "6.8", "gsp": "570"} for at in range(10)}
    for at in range(5):
        nodes[f"n{at}"] = {"driver": "580", "kernel": "6.12", "gsp": "580"}
    nodes["n9"] |= {"driver": "470"}
    (kind,) = fleet_of(taken(nodes)).kinds
    found = dict(blocks(kind))
    assert found["n0", "n1", "n2", "n3", "n4"] == [
        "cpu.gsp: 580 (no majority); also cpu.driver", "cpu.kernel: 6.12 (no majority)",
    ]  # fmt: skip
    assert found["n9",] == ["cpu.driver: 470 (no majority)"]


def test_metrics_that_round_alike_are_shown_as_a_range() -> None:
    collection = Collection()
    for at in range(5):
        collection.add(node(f"n{at}", total_bytes=512 << 30))
    collection.add(node("a", total_bytes=63_500_000_000))
    collection.add(node("b", total_bytes=64_900_000_000))

    (kind,) = fleet_of(collection).kinds
    (deviation,) = kind.deviations
    value = msgspec.json.encode(deviation.differences[0].value)
    assert value == b"[63500000000,64900000000]"
    ((_, (sentence,)),) = blocks(kind)
    assert sentence == "memory.total_bytes: 59.14 GiB to 60.44 GiB (others 512 GiB)"


def report(envelope: Envelope) -> Report:
    assert isinstance(envelope.report, msgspec.Raw)
    return msgspec.json.decode(envelope.report, type=Report)


def test_a_baseline_says_what_is_usual() -> None:
    collection = Collection()
    for at in range(4):
        collection.add(node(f"n{at}", gpus=7, total_bytes=1_000_000_000 + at))
    collection.add(node("golden", gpus=8, total_bytes=1_004_000_000))
    baseline = baseline_of(report(node("", gpus=8, total_bytes=1_003_000_000)), "good.json")
    fleet = fleet_of(collection, baseline=baseline)

    assert fleet.compared_with == "good.json"
    assert split(fleet) == [(("n0", "n1", "n2", "n3"), ["nvidia.devices"])]


def test_an_unknown_fact_is_named_with_the_nearest() -> None:
    collection = taken({"n1": {"driver": "1"}})

    with pytest.raises(UnknownName, match="drivre"):
        fleet_of(collection, by=["cpu.drivre"])
    with pytest.raises(UnknownName) as error:
        facts_of_fleet(collection, ["cpu.drivre"])
    assert "cpu.driver" in error.value.hint


def test_a_histogram_has_the_rarest_first() -> None:
    collection = taken({f"n{at}": {"driver": "570" if at == 4 else "580", "x": 1} for at in range(6)})
    (fact,) = facts_of_fleet(collection, ["cpu.driver"]).facts

    assert [(value.value, len(value.nodes)) for value in fact.values] == [("570", 1), ("580", 5)]
    assert [fact.name for fact in facts_of_fleet(collection).facts] == ["cpu.driver"]


def test_who_was_left_behind_by_an_upgrade() -> None:
    before = {f"n{at}": {"driver": "570", "kernel": "6.8"} for at in range(10)}
    after = {name: {"driver": "580", "kernel": "6.8"} for name in before}
    after["n3"] = after["n8"] = {"driver": "570", "kernel": "6.8"}
    del after["n9"]
    after["new"] = {"driver": "580", "kernel": "6.8"}
    difference = difference_of(taken(before), taken(after), ("then", "now"))

    (change,) = difference.changes
    assert change.nodes == ("n0", "n1", "n2", "n4", "n5", "n6", "n7")
    assert change.left_behind == ("n3", "n8")
    assert [(step.name, step.before, step.after) for step in change.steps] == [("cpu.driver", "570", "580")]
    assert difference.new == ("new",)
    assert [group.nodes for group in difference.silent] == [("n9",)]


def test_a_roll_out_from_several_versions_is_one_change() -> None:
    before = {f"n{at}": {"driver": "550" if at < 3 else "560", "library": "550"} for at in range(9)}
    after = {name: {"driver": "580", "library": "580"} for name in before}
    after["n1"] = before["n1"]
    (change,) = difference_of(taken(before), taken(after)).changes

    assert (len(change.nodes), change.left_behind) == (8, ("n1",))
    assert {(step.name, step.before, step.nodes[:1]) for step in change.steps} == {
        ("cpu.driver", "550", ("n0",)), ("cpu.driver", "560", ("n3",)), ("cpu.library", "550", ()),
    }  # fmt: skip


def test_a_change_of_few_leaves_nobody_behind() -> None:
    before = {f"n{at}": {"driver": "570"} for at in range(10)}
    after = {**before, "n1": {"driver": "580"}}
    (change,) = difference_of(taken(before), taken(after)).changes

    assert change.nodes == ("n1",) and not change.left_behind


def test_memory_that_wobbles_is_no_change() -> None:
    collections = (Collection(), Collection())
    for collection, total in zip(collections, (503_447_552, 503_316_000), strict=True):
        collection.add(node("n1", total_bytes=total))

    assert not difference_of(*collections).changes


def test_numbers_in_a_table_that_are_near_are_equal_and_shown_as_measured() -> None:
    """14.2 and 14.3 GiB are within 1 % and on two sides of where a metric is rounded."""
    near, far = (15_250_000_000, 15_350_000_000), 18_300_000_000

    def of(*sizes: int) -> Collection:
        collection = Collection()
        for at, size in enumerate(sizes):
            facts: dict[str, Any] = {
                "nodes": [{"node": 0, "total_bytes": size}, {"node": 1, "total_bytes": size}]
            }
            collection.add(node(f"n{at}", **facts))
        return collection

    assert rounded(near[0]) != rounded(near[1])
    assert not fleet_of(of(*near)).drifts
    assert not difference_of(of(near[0]), of(near[1])).changes
    golden = baseline_of(report(node("", nodes=[{"node": 0, "total_bytes": near[0]}])), "good.json")
    collection = Collection()
    collection.add(node("n0", nodes=[{"node": 0, "total_bytes": near[1]}]))
    assert not fleet_of(collection, baseline=golden).drifts
    (kind,) = fleet_of(of(*near, far)).kinds
    assert [(deviation.nodes, deviation.differences[0].value) for deviation in kind.deviations] == [
        (("n2",), [{"node": 0, "total_bytes": far}, {"node": 1, "total_bytes": far}])
    ]


def asked(name: str, depth: Presence, driver: str = "570", **numpy: Any) -> Envelope:
    """Return a node inspected to a depth. numpy: its facts, of which `imports` decides its presence."""
    outcomes = {*numpy.get("imports", {}).values()}
    levels = {"imported": Presence.USABLE, "opened": Presence.LOADABLE}
    presence = levels.get(next(iter(outcomes), ""), FOUND)
    probes = {
        "cpu": ProbeReport(FOUND, facts={"model_name": "Xeon"}),
        "mkl": ProbeReport(depth, version="" if depth is FOUND else "2025.1"),
        "numpy": ProbeReport(presence, version="2.1", facts={"build": "wheel", **numpy}),
        "nvidia": ProbeReport(FOUND, version=driver),
    }
    record = Report(SCHEMA, "backends 0", depth, "/", "", 0.0, True, probes)
    return Envelope(node=name, report=msgspec.Raw(msgspec.json.encode(record)))


IMPORTED: dict[str, Any] = {"imports": {"numpy": "imported"}, "simd_found": "AVX2"}
OPENED: dict[str, Any] = {"imports": {"numpy": "opened"}}
#: Reports of one machine: `snapshot` imports its packages, `info` opens them, a recorded machine is read.
ONE_MACHINE = [
    asked("snapshot", Presence.USABLE, **IMPORTED),
    asked("info", Presence.USABLE, **OPENED),
    asked("recorded", FOUND),
]


@pytest.mark.parametrize("golden", [None, *range(3)])
def test_what_only_deeper_reports_can_have_is_not_compared(golden: int | None) -> None:
    baseline = None if golden is None else baseline_of(report(ONE_MACHINE[golden]), "good.json")
    collection = Collection()
    for envelope in ONE_MACHINE:
        collection.add(envelope)
    fleet = fleet_of(collection, baseline=baseline)
    assert not fleet.drifts and fleet.kinds[0].alike == 3
    (note,) = fleet.notes
    assert note.endswith("found (recorded), usable (info,snapshot)")

    collection.add(asked("old", FOUND, driver="550"))
    collection.add(asked("broken", Presence.USABLE, imports={"numpy": "import numpy fails: no"}))
    (kind,) = fleet_of(collection, baseline=baseline).kinds
    found = {deviation.nodes: {fact.name for fact in deviation.differences} for deviation in kind.deviations}
    assert "nvidia.version" in found["old",]
    assert ("numpy.imports.numpy" in found.get(("broken",), ())) == (golden != 2)
    assert not {"info", "recorded", "snapshot"} & {name for nodes in found for name in nodes}


def test_a_deeper_report_is_no_change_of_the_node() -> None:
    for before in ONE_MACHINE:
        for after in ONE_MACHINE:
            collections = (Collection(), Collection())
            for collection, envelope in zip(collections, (before, after), strict=True):
                collection.add(replace(envelope, node="n1"))
            assert not difference_of(*collections).changes


def test_a_probe_that_could_not_be_determined_lacks_nothing() -> None:
    collection = Collection()
    for name in ("n1", "n2", "n3"):
        collection.add(asked(name, Presence.USABLE, **IMPORTED))
    record = report(asked("n4", Presence.USABLE))
    unknown = {"numpy": ProbeReport(None, reasons=(Reason("timeout", "it hangs"),))}
    document = msgspec.json.encode(replace(record, probes=record.probes | unknown))
    collection.add(Envelope(node="n4", report=msgspec.Raw(document)))
    assert split(fleet_of(collection)) == [(("n4",), ["numpy.presence"])]


def test_a_baseline_is_not_called_others() -> None:
    baseline = baseline_of(report(node("", gpus=8)), "good.json")
    collection = Collection()
    collection.add(node("n1", gpus=7))
    fleet = fleet_of(collection, baseline=baseline)
    assert blocks(fleet.kinds[0]) == [(("n1",), ["nvidia.devices: 7 (baseline 8)"])]
