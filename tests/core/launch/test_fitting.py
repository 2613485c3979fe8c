"""`run --fit`: threads and CPUs for machines with quotas, masks, nodes and busy CPUs."""

from __future__ import annotations

from math import inf

import pytest

from mlbackends.host.system.cgroups import Limit
from mlbackends.launch.cores import Topology, topology_of
from mlbackends.launch.fitting import fit, variables

CORES = [(core, core + 64) for core in range(64)]  # 64 cores with two CPUs each, in two nodes
NODES = {cpu: cpu % 64 // 32 for cpu in range(128)}
LARGE = topology_of(CORES, NODES, (0, 1), range(128))
#: Every CPU of node 0 is busy, and of node 1 all but the CPUs of the cores 40, 50 and 60.
BUSY = {cpu: 0.0 if cpu % 64 in (40, 50, 60) else 90.0 for cpu in range(128)}


def quota(cpus: float) -> Limit:
    return Limit(cpus, "/sys/fs/cgroup/pod", "cpu.max")


@pytest.mark.parametrize(
    ("cpus", "threads", "bound"),
    [(2, "2", (40, 50)), (2.5, "2", (40, 50, 60)), (0.5, "1", (40,)), (1, "1", (40,))],
)
def test_a_quota_gets_as_many_threads_and_the_least_busy_cores(
    cpus: float, threads: str, bound: tuple[int, ...]
) -> None:
    fitted = fit(LARGE, quota(cpus), {}, BUSY.copy)
    assert fitted.cpus == bound
    assert fitted.variables["OMP_NUM_THREADS"] == fitted.variables["GOMAXPROCS"] == threads
    assert fitted.variables["JAVA_TOOL_OPTIONS"] == f"-XX:ActiveProcessorCount={threads}"
    assert f"the CPU quota is {cpus:g} of 128 CPUs (/sys/fs/cgroup/pod)" in fitted.lines[0]


def test_each_core_is_used_once_before_any_is_used_twice() -> None:
    assert fit(LARGE, quota(32), {}, BUSY.copy).cpus == tuple(range(32, 64))
    spanning = fit(LARGE, quota(66), {}, dict).cpus
    assert (spanning[:64], len(spanning)) == (tuple(range(64)), 66)


@pytest.mark.parametrize("limit", [None, Limit(inf), quota(128), quota(500)])
def test_without_a_limit_only_computing_threads_are_set_to_one_per_core(limit: Limit | None) -> None:
    fitted = fit(LARGE, limit, {}, BUSY.copy)
    assert fitted.cpus == ()
    assert set(fitted.variables.values()) == {"64"}
    assert not fitted.variables.keys() & {row.name for row in variables() if row.of == "cpus"}


def test_a_mask_leaves_its_cpus() -> None:
    masked = Topology(LARGE.cores[:4], (0,), LARGE.online)
    fitted = fit(masked, None, {}, BUSY.copy)
    assert (fitted.cpus, fitted.variables["OMP_NUM_THREADS"]) == ((), "4")
    assert (fitted.variables["RAYON_NUM_THREADS"], fitted.lines[0][:9]) == ("8", "the affin")


def test_what_is_set_stays_and_options_are_added_to_others() -> None:
    before = {"OMP_NUM_THREADS": "9", "JAVA_TOOL_OPTIONS": "-Xmx1g"}
    fitted = fit(LARGE, quota(2), before, BUSY.copy)
    assert fitted.kept == {"OMP_NUM_THREADS": "9"}
    assert "OMP_NUM_THREADS" not in fitted.variables
    assert fitted.variables["JAVA_TOOL_OPTIONS"] == "-Xmx1g -XX:ActiveProcessorCount=2"
    again = fit(LARGE, quota(4), fitted.variables, BUSY.copy)
    assert again.kept["JAVA_TOOL_OPTIONS"] == "-Xmx1g -XX:ActiveProcessorCount=2"


def test_every_variable_has_a_source_and_one_of_the_two_counts() -> None:
    assert all(row.source and row.of in ("cores", "cpus") for row in variables())
    assert len({row.name for row in variables()}) == len(variables())
