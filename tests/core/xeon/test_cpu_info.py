"""torch's names for the cores, without its faults."""

from __future__ import annotations

import os
import sys

import pytest

from mlbackends.xeon.run_cpu import CPUinfo


def lscpu(*sizes: int, threads: int = 1) -> str:
    """Return what lscpu says of nodes of these sizes; cores are numbered through."""
    total = sum(sizes)
    owner = [node for node, size in enumerate(sizes) for _ in range(size)]
    return "# CPU,Core,Socket,Node\n" + "\n".join(
        f"{thread * total + core},{core},{owner[core]},{owner[core]}"
        for thread in range(threads)
        for core in range(total)
    )


def test_two_nodes_with_hyper_threads() -> None:
    info = CPUinfo(lscpu(2, 2, threads=2))
    assert info.physical_core_nums() == 4
    assert info.logical_core_nums() == 8
    assert info.get_node_physical_cores(1) == [2, 3]
    assert info.get_node_logical_cores(1) == [2, 3, 6, 7]
    assert info.get_all_physical_cores() == [0, 1, 2, 3]
    assert info.get_all_logical_cores() == [0, 1, 4, 5, 2, 3, 6, 7]


def test_twelve_nodes_are_twelve() -> None:
    info = CPUinfo(lscpu(*[2] * 12))
    assert info.get_node_physical_cores(11) == [22, 23]
    assert info.physical_core_nums() == 24


def test_uneven_nodes_are_counted_one_by_one() -> None:
    assert CPUinfo(lscpu(6, 4)).physical_core_nums() == 10


def test_cpus_are_named_where_cores_have_other_numbers() -> None:
    info = CPUinfo("0,0,0,0\n1,0,0,0\n2,1,0,0\n3,1,0,0")
    assert info.get_all_physical_cores() == [0, 2]


def test_an_empty_node_and_a_cpu_that_is_off_are_no_fault() -> None:
    assert CPUinfo("0,0,0,\n1,,,\n2,1,0,").get_node_logical_cores(0) == [0, 2]


@pytest.mark.parametrize("node", [2, -1])
def test_a_node_that_is_not_there_is_refused(node: int) -> None:
    info = CPUinfo(lscpu(2, 2))
    for ask in (info.get_node_physical_cores, info.get_node_logical_cores):
        with pytest.raises(
            ValueError, match=rf"Invalid node id: {node}\. Valid node ids: \[0, 1\]"
        ):
            ask(node)


def test_nodes_of_cores_are_sorted_and_several_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    info = CPUinfo(lscpu(2, 2))
    assert info.numa_aware_check([1, 0]) == [0]
    assert not capsys.readouterr().err
    assert info.numa_aware_check([3, 0]) == [0, 1]
    assert "WARNING" in capsys.readouterr().err


def test_nodes_of_nothing_and_of_an_unknown_core_are_refused() -> None:
    info = CPUinfo(lscpu(2))
    with pytest.raises(RuntimeError, match="invalid number of NUMA nodes"):
        info.numa_aware_check([])
    with pytest.raises(KeyError, match="CPU 99"):
        info.numa_aware_check([99])


def test_what_lscpu_does_not_print_is_refused() -> None:
    with pytest.raises(ValueError, match="lscpu"):
        CPUinfo("nothing of the kind")


@pytest.mark.skipif(sys.platform != "linux", reason="launches are Linux's")
def test_of_this_machine_only_what_this_process_may_use_counts() -> None:
    info = CPUinfo()
    assert set(info.get_all_logical_cores()) == os.sched_getaffinity(0)
    assert 0 < info.physical_core_nums() <= info.logical_core_nums()
