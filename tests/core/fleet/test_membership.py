"""Groups of nodes: from ClusterShell, from Slurm, and by their names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from ClusterShell.NodeSet import set_std_group_resolver
from ClusterShell.NodeUtils import GroupResolverConfig
from hypothesis import given
from hypothesis import strategies as st
from streams import envelope_of

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.groups import Baseline, fleet_of
from mlbackends.fleet.membership import Membership, membership_of
from mlbackends.model.fleet import Envelope, Fleet, Status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

posix = pytest.mark.skipif(os.name == "nt", reason="ClusterShell's and Slurm's commands are POSIX programs")

#: As `scontrol show node` of Slurm 22.05 prints, with fewer fields.
SCONTROL = """NodeName=gpu1 Arch=x86_64 CoresPerSocket=1
   AvailableFeatures=h100,ib,spare
   ActiveFeatures=h100,ib
   NodeAddr=10.0.0.1 NodeHostName=gpu1
   Partitions=gpu,debug
   Reason=Partitions=none [root@2026-01-01T00:00:00]

NodeName=gpu2 Arch=x86_64 CoresPerSocket=1
   AvailableFeatures=h100,ib
   ActiveFeatures=(null)
   Partitions=gpu
NodeName=login1
   ActiveFeatures=(null)
"""
SINFO = "gpu[1-2]|gpu|h100,ib \ngpu1|debug|h100,ib\nlogin1|(null)|(null)\n"


@pytest.fixture
def sources(tmp_path: Path) -> Iterator[None]:
    """Give ClusterShell two group sources: racks, and a command that fails."""
    conf = tmp_path / "groups.conf"
    conf.write_text(
        "[Main]\ndefault: rack\n"
        "[rack]\nmap: case $GROUP in r1) echo 'node[1-4]';; r2) echo 'node[4-5]';; esac\n"
        "list: echo r1 r2\n"
        "[broken]\nmap: false\nlist: false\n"
    )
    set_std_group_resolver(GroupResolverConfig([str(conf)]))
    yield
    set_std_group_resolver(None)


@posix
@pytest.mark.usefixtures("sources")
def test_all_groups_of_a_source_of_clustershell() -> None:
    racks = membership_of("@rack")

    assert racks.names == ("r1", "r2")
    assert [racks.of(node) for node in ("node1", "node4", "node5.example.org", "other")] == [
        ("r1",), ("r1", "r2"), ("r2",), (),
    ]  # fmt: skip
    assert membership_of("@rack:*2").names == ("r2",)


@posix
@pytest.mark.usefixtures("sources")
def test_a_source_that_is_not_there_or_fails_is_one_line() -> None:
    with pytest.raises(UnknownName, match="rak") as unknown:
        membership_of("@rak")
    assert "rack" in unknown.value.hint
    with pytest.raises(BadInput, match="'broken' cannot be read"):
        membership_of("@broken")
    with pytest.raises(BadInput, match=r"has no group x\*"):
        membership_of("@rack:x*")


@pytest.mark.parametrize(
    "text", [SCONTROL, SCONTROL.replace("\n  ", " "), SINFO], ids=["many", "one", "sinfo"]
)
def test_what_slurm_prints_can_be_a_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "nodes"
    file.write_text(text)
    partition, feature = (membership_of(f"{word}={file}").of for word in ("partition", "feature"))

    assert partition("gpu1") == ("gpu", "debug")
    assert partition("gpu2") == ("gpu",)
    assert feature("gpu1") == ("h100", "ib")
    assert partition("login1") == feature("login1") == feature("nothing") == ()


def test_a_file_without_nodes_and_no_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"\0\xff" * 1000 + b"\nNodeName")
    with pytest.raises(BadInput, match="has no nodes of Slurm"):
        membership_of(f"feature={tmp_path}/other")
    with pytest.raises(BadInput, match="No such file"):
        membership_of(f"feature={tmp_path}/nothing")
    (tmp_path / "huge").write_text("node[0-9999999999]|gpu|(null)\n")
    with pytest.raises(BadInput, match="more than 1,000,000 nodes"):
        membership_of(f"partition={tmp_path}/huge")


@posix
def test_sinfo_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sinfo = tmp_path / "sinfo"
    sinfo.write_text(f"#!/bin/sh\ncat <<'END'\n{SINFO}END\n")
    sinfo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    assert membership_of("partition").of("gpu1") == ("gpu", "debug")

    sinfo.write_text("#!/bin/sh\necho 'slurm_load_partitions: Unable to contact controller' >&2\nexit 1\n")
    with pytest.raises(BadInput, match="sinfo has no nodes of Slurm"):
        membership_of("partition")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BadInput, match="not on the PATH") as missing:
        membership_of("partition")
    assert "partition=FILE" in missing.value.hint


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        (r"r(\d+)", ("12",)),
        (r"(r\d+)", ("r12",)),
        (r"(r\d+)n0*(\d+)$", ("r12-7",)),
        (r"(x)|n(\d+)", ("007",)),
        (r"(x*)", ()),
        (r"(login)", ()),
    ],
)
def test_the_text_in_parentheses_is_the_group(text: str, groups: tuple[str, ...]) -> None:
    assert membership_of(text).of("r12n007") == groups


@pytest.mark.parametrize(
    ("text", "why"),
    [("rack", "no parentheses"), ("(", "not a regular expression"), ("(a){9999999999}", "not a regular")],
)
def test_a_pattern_that_cannot_group_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadInput, match=why) as refused:
        membership_of(text)
    assert "@SOURCE" in refused.value.hint


# ---- a fleet by group ------------------------------------------------------------------------------


def grouped(nodes: dict[str, dict[str, Any]], source: str, **more: Any) -> Fleet:
    collection = Collection()
    for node, facts in nodes.items():
        collection.add(envelope_of(node, **facts))
    collection.add(Envelope(node="a9", status=Status.TIMEOUT, error="late"))
    return fleet_of(collection, membership=membership_of(source), **more)


def test_each_group_has_its_own_majority() -> None:
    nodes = {f"a{at}": {"driver": 1} for at in range(3)} | {f"b{at}": {"driver": 2} for at in range(5)}
    fleet = grouped(nodes, "([ab])")
    assert not fleet.drifts
    assert [(kind.title["group"], kind.nodes) for kind in fleet.kinds] == [("a", 3), ("b", 5)]
    assert fleet.groups["a"] == ("a0", "a1", "a2", "a9")  # with the node without a report

    fleet = grouped(nodes | {"b1": {"driver": 1}}, "([ab])")
    assert [kind.title["group"] for kind in fleet.kinds] == ["b", "a"]  # what differs is first
    assert fleet.kinds[0].deviations[0].nodes == ("b1",)


def test_kinds_within_a_group_and_facts_of_by_are_apart() -> None:
    nodes = {f"a{at}": {"model_name": "Xeon" if at < 4 else "EPYC"} for at in range(8)}
    titles = [kind.title for kind in grouped(nodes, "(a)").kinds]
    assert titles == [{"group": "a", "cpu.model_name": name} for name in ("Xeon", "EPYC")]
    assert grouped(nodes, "(a)", by=["cpu.presence"]).kinds[0].splits


def test_a_node_of_several_groups_is_in_each_and_one_of_none_is_named() -> None:
    groups = {"n1": ("x", "y"), "n2": ("x",), "n3": ("x",), "n4": ("y",), "n5": ("y",)}
    membership = Membership("@test", lambda node: groups.get(node, ()))
    collection = Collection()
    for node in (*groups, "n6"):
        collection.add(envelope_of(node, shm=0 if node == "n1" else 1))
    fleet = fleet_of(collection, membership=membership)
    assert [(kind.title["group"], [group.nodes for group in kind.deviations]) for kind in fleet.kinds] == [
        ("x", [("n1",)]), ("y", [("n1",)]), (None, []),
    ]  # fmt: skip
    assert fleet.notes == (
        "1 node is in no group of @test: n6",
        "1 node is in several groups, and compared in each: n1",
    )


def test_groups_have_baselines_of_their_own() -> None:
    def golden(**facts: Any) -> Baseline:
        collection = Collection()
        collection.add(envelope_of("golden", **facts))
        return Baseline(f"driver {facts['driver']}", collection)

    nodes = {f"{group}{at}": {"driver": 1} for group in "abc" for at in range(3)}
    baselines = {"a": golden(driver=1), "z": golden(driver=3)}
    fleet = grouped(nodes, "([abc])", baseline=golden(driver=2), baselines=baselines)
    found = {kind.title["group"]: (kind.compared_with, kind.alike) for kind in fleet.kinds}
    assert found == {"a": ("driver 1", 3), "b": ("driver 2", 0), "c": ("driver 2", 0)}
    assert "no node is in group z, which has a baseline" in fleet.notes


@given(
    st.dictionaries(st.from_regex(r"[a-c]{0,2}[0-9]{1,3}", fullmatch=True), st.integers(0, 1), max_size=30)
)
def test_a_group_is_compared_as_it_would_be_alone(values: dict[str, int]) -> None:
    def collected(nodes: dict[str, int]) -> Collection:
        collection = Collection()
        for node, value in nodes.items():
            collection.add(envelope_of(node, x=value))
        return collection

    membership = membership_of(r"^(\D)")
    fleet = fleet_of(collected(values), membership=membership)
    assert {node for nodes in fleet.groups.values() for node in nodes} == {*values}
    for group, nodes in fleet.groups.items():
        alone = fleet_of(collected({node: values[node] for node in nodes})).kinds
        own = [kind for kind in fleet.kinds if (kind.title["group"] or "") == group]
        assert [(k.deviations, k.splits, k.alike) for k in own] == [
            (k.deviations, k.splits, k.alike) for k in alone
        ]
