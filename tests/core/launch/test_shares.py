"""How cores are shared out."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.launch.options import Options
from mlbackends.launch.planning import Shares, shares_of

UNEVEN: Shares = [(0, 1, 2, 3, 4, 5), (6, 7, 8, 9)]
EVEN: Shares = [(0, 1, 2, 3), (4, 5, 6, 7)]


def divided(by_node: Shares, **options: Any) -> Shares:
    cpus = [cpu for group in by_node for cpu in group]
    return shares_of(Options(**options), cpus, by_node)


def test_without_counts_one_instance_has_all() -> None:
    assert divided(UNEVEN) == [tuple(range(10))]


def test_a_count_alone_divides_what_there_is() -> None:
    assert divided(EVEN, ninstances=3) == [(0, 1), (2, 3), (4, 5)]


def test_a_size_alone_makes_one_instance_and_of_a_list_of_cores_as_many_as_fit() -> None:
    assert divided(EVEN, ncores_per_instance=3) == [(0, 1, 2)]
    assert divided(EVEN, ncores_per_instance=3, core_list="0-7") == [(0, 1, 2), (3, 4, 5)]


def test_no_instance_spans_nodes_where_that_is_asked() -> None:
    spared = {"ninstances": 2, "skip_cross_node_cores": True}
    assert divided(EVEN, ncores_per_instance=3, **spared) == [(0, 1, 2), (4, 5, 6)]
    assert divided(EVEN, **spared) == EVEN
    assert divided(UNEVEN, **spared) == UNEVEN


def test_nodes_take_several_instances_where_there_are_more_of_them() -> None:
    spared = {"ninstances": 3, "skip_cross_node_cores": True}
    assert divided(EVEN, ncores_per_instance=2, **spared) == [(0, 1), (2, 3), (4, 5)]
    assert divided(UNEVEN, ncores_per_instance=5, skip_cross_node_cores=True) == [(0, 1, 2, 3, 4)]


def test_a_count_that_must_not_span_gets_the_largest_size_that_fits() -> None:
    assert divided(UNEVEN, ninstances=3, skip_cross_node_cores=True) == [
        (0, 1, 2),
        (3, 4, 5),
        (6, 7, 8),
    ]


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"ninstances": 9}, "9 instances of 1 cores need 9; there are 8"),
        ({"ninstances": 3, "ncores_per_instance": 3}, "3 instances of 3 cores need 9; there are 8"),
        ({"ncores_per_instance": 9}, "1 instances of 9 cores need 9; there are 8"),
        ({"ncores_per_instance": 5, "skip_cross_node_cores": True}, "the largest has 4"),
        (
            {"ninstances": 3, "ncores_per_instance": 3, "skip_cross_node_cores": True},
            "3 instances of 3 cores need 9; there are 8",
        ),
    ],
)
def test_more_than_there_is_is_refused(options: dict[str, int], seen: str) -> None:
    with pytest.raises(RuntimeError, match=seen):
        divided(EVEN, **options)


def test_throughput_mode_gives_each_node_an_instance_of_all_its_cores() -> None:
    assert divided(UNEVEN, throughput_mode=True) == UNEVEN


def test_latency_mode_gives_four_cores_each_and_the_rest_to_one_more() -> None:
    assert divided(EVEN, latency_mode=True) == EVEN
    assert divided(UNEVEN, latency_mode=True) == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)]
    spared = divided(UNEVEN, latency_mode=True, skip_cross_node_cores=True)
    assert spared == [(0, 1, 2, 3), (6, 7, 8, 9)]


def test_latency_mode_with_three_cores_is_refused_where_no_node_may_be_spanned() -> None:
    assert divided([(0, 1, 2)], latency_mode=True) == [(0, 1, 2)]
    with pytest.raises(RuntimeError, match="latency mode needs 4 cores of a node"):
        divided([(0, 1, 2)], latency_mode=True, skip_cross_node_cores=True)


def test_nodes_of_one_core_each_still_give_each_instance_one() -> None:
    assert divided([(0,), (1,), (2,)], ninstances=3, skip_cross_node_cores=True) == [
        (0,),
        (1,),
        (2,),
    ]
