"""Which CPUs are chosen by lists, nodes and hyper-threads."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.errors import MlBackendsError
from mlbackends.launch.cores import topology_of
from mlbackends.launch.options import Options
from mlbackends.launch.planning import chosen_cpus

# Two nodes of two cores with two threads: core 0 is CPUs 0 and 4. CPU 8 is on, and not for us.
NODES = {0: 0, 1: 0, 2: 1, 3: 1, 4: 0, 5: 0, 6: 1, 7: 1}
MACHINE = topology_of([(0, 4), (1, 5), (2, 6), (3, 7)], NODES, (0, 1), range(9))


def chosen(options: Options) -> tuple[int, ...]:
    return chosen_cpus(options, MACHINE)


def test_one_thread_of_each_core_is_the_default() -> None:
    assert chosen(Options()) == (0, 1, 2, 3)


def test_logical_cores_are_dealt_core_by_core_so_that_instances_share_none() -> None:
    assert chosen(Options(use_logical_core=True)) == (0, 4, 1, 5, 2, 6, 3, 7)


def test_a_node_is_its_cores_alone() -> None:
    assert chosen(Options(node_id=1)) == (2, 3)
    assert chosen(Options(node_id=1, use_logical_core=True)) == (2, 6, 3, 7)


def test_a_node_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Invalid node id: 2\. Valid node ids: \[0, 1\]"):
        chosen(Options(node_id=2))


def test_listed_cpus_come_core_by_core() -> None:
    assert chosen(Options(core_list="0-1,4")) == (0, 4, 1)


def test_cores_of_a_node_are_those_in_both() -> None:
    assert chosen(Options(core_list="0-2", node_id=1)) == (2,)
    with pytest.raises(RuntimeError, match="is on node 1"):
        chosen(Options(core_list="0,1", node_id=1))


@pytest.mark.parametrize(
    ("cpu", "seen"), [("8", "may not be used by this process"), ("9", "is off or does not exist")]
)
def test_a_cpu_that_cannot_be_used_says_why(cpu: str, seen: str) -> None:
    with pytest.raises(KeyError) as raised:
        chosen(Options(core_list=cpu))
    assert str(raised.value) == f"CPU {cpu} {seen}; this process may use 0-7"


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0", (0,)), ("0,2,1", (0, 1, 2)), ("0-3,7", (0, 1, 2, 3, 7)), (" 1 , 2 ", (1, 2))],
)
def test_a_list_has_numbers_and_ranges(text: str, cpus: tuple[int, ...]) -> None:
    assert chosen(Options(core_list=text)) == cpus


@pytest.mark.parametrize(
    "text",
    ["", "a", "1,", ",1", "1;2", "3-1", "-1", "1 2", "0-9:2/4", "1.5", "99999999", "1,1", "0-3,2"],
)
def test_what_is_not_a_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a list of CPUs|names a CPU twice"):
        chosen(Options(core_list=text))


@given(st.text(max_size=40))
def test_any_text_is_a_list_or_a_misuse(text: str) -> None:
    with contextlib.suppress(MlBackendsError):
        cpus = chosen(Options(core_list=text))
        assert cpus and len(set(cpus)) == len(cpus)
