"""Instances from options and cores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.errors import MlBackendsError
from mlbackends.launch.cores import Topology, topology_of
from mlbackends.launch.options import Options
from mlbackends.launch.planning import Plan, plan


def machine(*sizes: int, threads: int = 1) -> Topology:
    """Return a node for each size; first threads are numbered through all nodes, then second ones."""
    total = sum(sizes)
    owner = [node for node, size in enumerate(sizes) for _ in range(size)]
    groups = [tuple(core + total * thread for thread in range(threads)) for core in range(total)]
    nodes = {cpu: owner[cpu % total] for group in groups for cpu in group}
    return topology_of(groups, nodes, range(len(sizes)), range(total * threads))


def cpus(made: Plan) -> list[tuple[int, ...]]:
    return [instance.cpus for instance in made.instances]


def test_one_instance_has_every_physical_core_and_the_memory_of_their_nodes() -> None:
    made = plan(Options(), machine(4, 4, threads=2), {})
    assert cpus(made) == [tuple(range(8))]
    assert made.instances[0].memory_nodes == (0, 1)
    assert len(made.instances[0].cpus) == 8
    assert not made.shares_cores


def test_an_instance_that_spans_nodes_is_told() -> None:
    made = plan(Options(ncores_per_instance=3, ninstances=2), machine(4, 4), {})
    told = [sentence for level, sentence in made.notices if level == "WARNING"]
    assert len(told) == 1
    assert told[0].startswith("instance 1 spans the NUMA nodes 0, 1; --skip-cross-node-cores")


def test_many_instances_without_counts_are_one_a_node() -> None:
    made = plan(Options(multi_instance=True), machine(*[2] * 12), {})
    assert cpus(made) == [(2 * node, 2 * node + 1) for node in range(12)]
    assert [instance.memory_nodes for instance in made.instances] == [(node,) for node in range(12)]


def test_memory_is_bound_only_where_there_is_some() -> None:
    topology = topology_of([(0,), (1,)], {0: 0, 1: 1}, (0,), (0, 1))
    made = plan(Options(ninstances=2), topology, {})
    assert [instance.memory_nodes for instance in made.instances] == [(0,), ()]


def test_a_rank_starts_one_of_them() -> None:
    made = plan(Options(ninstances=4, rank=2), machine(4, 4), {})
    assert cpus(made) == [(4, 5)]


@pytest.mark.parametrize("rank", [4, -3])
def test_a_rank_outside_is_refused(rank: int) -> None:
    with pytest.raises(RuntimeError, match=f"--rank is {rank}; the instances are 0 to 3"):
        plan(Options(ninstances=4, rank=rank), machine(4, 4), {})


@pytest.mark.parametrize("name", ["ninstances", "ncores_per_instance"])
@pytest.mark.parametrize("number", [0, -2])
def test_a_count_below_one_is_refused(name: str, number: int) -> None:
    options = Options(**{name: number})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=rf"^--{name.replace('_', '-')} is {number}"):
        plan(options, machine(4), {})


def test_below_torchrun_each_launcher_needs_its_own_cores() -> None:
    environment = {"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    with pytest.raises(RuntimeError, match="torchrun starts 2 launchers"):
        plan(Options(ninstances=2), machine(4, 4), environment)
    assert cpus(plan(Options(core_list="2-3"), machine(4, 4), environment)) == [(2, 3)]


def test_hyper_threads_in_use_are_known() -> None:
    smt = machine(2, threads=2)
    assert plan(Options(use_logical_core=True), smt, {}).shares_cores
    assert plan(Options(core_list="0,2"), smt, {}).shares_cores
    assert not plan(Options(core_list="0,1"), smt, {}).shares_cores
    assert plan(Options(use_logical_core=True, throughput_mode=True), smt, {}).shares_cores


COUNTS = st.integers(-1, 9)
OPTIONS = st.builds(
    Options,
    multi_instance=st.booleans(),
    ncores_per_instance=COUNTS,
    ninstances=COUNTS,
    skip_cross_node_cores=st.booleans(),
    rank=st.sampled_from([-1, -1, 0, 2]),
    latency_mode=st.booleans(),
    throughput_mode=st.booleans(),
    node_id=st.sampled_from([-1, -1, 0, 1, 5]),
    use_logical_core=st.booleans(),
    core_list=st.sampled_from([None, None, "0,1,2,3", "3,1", "0-7", "0-4", "2", "1,9"]),
)
MACHINES = st.builds(
    lambda sizes, threads: machine(*sizes, threads=threads),
    st.lists(st.integers(1, 7), min_size=1, max_size=12),
    st.sampled_from([1, 2, 4]),
)


@given(OPTIONS, MACHINES)
def test_instances_share_no_core_and_take_none_that_is_not_there(
    options: Options, topology: Topology
) -> None:
    try:
        made = plan(options, topology, {})
    except MlBackendsError:
        return
    used = [cpu for instance in made.instances for cpu in instance.cpus]
    assert used
    assert len(used) == len(set(used))
    owner = {cpu: core.node for core in topology.cores for cpu in core.cpus}
    assert set(used) <= set(owner)
    for instance in made.instances:
        assert set(instance.memory_nodes) == {owner[cpu] for cpu in instance.cpus}


@given(st.integers(1, 6), MACHINES, st.booleans())
def test_where_spanning_is_forbidden_no_instance_spans(size: int, topology: Topology, logical: bool) -> None:
    options = Options(ncores_per_instance=size, skip_cross_node_cores=True, use_logical_core=logical)
    try:
        made = plan(options, topology, {})
    except RuntimeError:
        taken = [core.node for core in topology.cores for _ in core.cpus[: None if logical else 1]]
        assert size > max(map(taken.count, topology.nodes))
    else:
        assert all(len(instance.memory_nodes) == 1 for instance in made.instances)
