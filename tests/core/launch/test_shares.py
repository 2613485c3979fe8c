"""How cores are shared out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.launch.options import Options
from mlbackends.launch.planning import Shares, shares_of_counts, shares_of_mode

if TYPE_CHECKING:
    from mlbackends.base.notices import Notice

UNEVEN: Shares = [(0, 1, 2, 3, 4, 5), (6, 7, 8, 9)]
EVEN: Shares = [(0, 1, 2, 3), (4, 5, 6, 7)]


def counted(by_node: Shares, **options: Any) -> Shares:
    cpus = [cpu for group in by_node for cpu in group]
    return shares_of_counts(Options(**options), cpus, by_node, [])


def in_mode(by_node: Shares, **options: bool) -> tuple[Shares, list[Notice]]:
    cpus = [cpu for group in by_node for cpu in group]
    notices: list[Notice] = []
    return shares_of_mode(Options(**options), cpus, by_node, notices), notices  # type: ignore[arg-type]


def test_without_counts_one_instance_has_all() -> None:
    assert counted(UNEVEN) == [tuple(range(10))]


def test_a_count_alone_divides_what_there_is() -> None:
    assert counted(EVEN, ninstances=3) == [(0, 1), (2, 3), (4, 5)]


def test_a_size_alone_makes_one_instance_and_of_a_list_of_cores_as_many_as_fit() -> None:
    assert counted(EVEN, ncores_per_instance=3) == [(0, 1, 2)]
    assert counted(EVEN, ncores_per_instance=3, core_list="0-7") == [(0, 1, 2), (3, 4, 5)]


def test_no_instance_spans_nodes_where_that_is_asked() -> None:
    spared = {"ninstances": 2, "skip_cross_node_cores": True}
    assert counted(EVEN, ncores_per_instance=3, **spared) == [(0, 1, 2), (4, 5, 6)]
    assert counted(EVEN, **spared) == EVEN
    assert counted(UNEVEN, **spared) == UNEVEN


def test_nodes_take_several_instances_where_there_are_more_of_them() -> None:
    spared = {"ninstances": 3, "skip_cross_node_cores": True}
    assert counted(EVEN, ncores_per_instance=2, **spared) == [(0, 1), (2, 3), (4, 5)]
    assert counted(UNEVEN, ncores_per_instance=5, skip_cross_node_cores=True) == [(0, 1, 2, 3, 4)]


def test_a_count_that_must_not_span_gets_the_largest_size_that_fits() -> None:
    assert counted(UNEVEN, ninstances=3, skip_cross_node_cores=True) == [
        (0, 1, 2),
        (3, 4, 5),
        (6, 7, 8),
    ]


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"ninstances": 9}, "there are 8 cores for 9 instances"),
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
        counted(EVEN, **options)


def test_throughput_mode_gives_each_node_an_instance_of_all_its_cores() -> None:
    assert in_mode(UNEVEN, throughput_mode=True)[0] == UNEVEN


def test_latency_mode_gives_four_cores_each_and_the_rest_to_one_more() -> None:
    assert in_mode(EVEN, latency_mode=True)[0] == EVEN
    assert in_mode(UNEVEN, latency_mode=True)[0] == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)]
    spared, _ = in_mode(UNEVEN, latency_mode=True, skip_cross_node_cores=True)
    assert spared == [(0, 1, 2, 3), (6, 7, 8, 9)]


def test_latency_mode_with_three_cores_is_refused_where_no_node_may_be_spanned() -> None:
    assert in_mode([(0, 1, 2)], latency_mode=True)[0] == [(0, 1, 2)]
    with pytest.raises(RuntimeError, match="latency mode needs 4 cores of a node"):
        in_mode([(0, 1, 2)], latency_mode=True, skip_cross_node_cores=True)


def test_a_mode_tells_what_does_not_count() -> None:
    _, notices = in_mode(EVEN, throughput_mode=True)
    assert notices[0][0] == "WARNING"
    assert "--ninstances" in notices[0][1]


def test_nodes_of_one_core_each_still_give_each_instance_one() -> None:
    assert counted([(0,), (1,), (2,)], ninstances=3, skip_cross_node_cores=True) == [
        (0,),
        (1,),
        (2,),
    ]


def test_a_core_list_of_which_not_all_serve_is_told() -> None:
    notices: list[Notice] = []
    options = Options(core_list="0-3", ncores_per_instance=1, ninstances=2)
    assert shares_of_counts(options, range(4), [(0, 1, 2, 3)], notices) == [(0,), (1,)]
    assert notices == [("WARNING", "of the 4 cores in --core-list only the first 2 are used")]
