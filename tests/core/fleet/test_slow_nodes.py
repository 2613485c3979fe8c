"""Slow nodes among simulated ones: docs/fleet.md states how many are found, and what is found wrongly."""

from __future__ import annotations

import pytest
from slow_nodes import found

from mlbackends.fleet.records import outliers


@pytest.mark.parametrize(
    ("lost", "names", "least"),
    [(0.05, (), 10), (0.1, (), 10), (0.3, (), 10), (0.05, ("memory",), 5), (0.1, ("memory",), 10)],
)
def test_ten_slow_nodes_of_a_thousand(lost: float, names: tuple[str, ...], least: int) -> None:
    right, wrong = found(1, lost, names)
    assert right >= least
    assert wrong <= 4


def test_no_node_of_a_small_fleet_is_slow_by_noise_alone() -> None:
    assert sum(found(seed, 0, nodes=8, slow=0)[1] for seed in range(10)) <= 1


def bench_figures(count: int, memory: float) -> dict[str, dict[str, float]]:
    speeds = {str(node): 100 + node % 3 for node in range(count)}
    return {"bench.figures[memory].value": speeds | {"slow": memory}}


def test_lower_limits_need_many_nodes() -> None:
    few, many = bench_figures(10, 92.0), bench_figures(40, 92.0)
    assert [*outliers(few, [*few["bench.figures[memory].value"]])] == []
    names = {outlier.name for outlier in outliers(many, [*many["bench.figures[memory].value"]])}
    assert names == {"bench.figures[memory].value"}


def test_figures_that_are_beyond_all_measure_end_nothing() -> None:
    nodes = [*map(str, range(50))]
    figures = {
        f"bench.figures[{name}].value": {node: scale * (-1) ** int(node) for node in nodes}
        for name, scale in (("a", 1e308), ("b", 1e-308), ("c", 1.0))
    }
    assert len([*outliers(figures, nodes)]) <= 4 * len(nodes)


def test_figures_that_are_zero_or_alike_on_all_nodes_are_no_outliers() -> None:
    nodes = [*map(str, range(50))]
    figures = {
        f"bench.figures[{name}].value": dict.fromkeys(nodes, value)
        for name, value in (("a", 0.0), ("b", 7.0))
    }
    assert [*outliers(figures, nodes)] == []


def test_limits_of_other_records_are_as_before() -> None:
    name = "sdpa-bench.x.timing.median_seconds"
    figures = {name: {str(node): 100.0 + node % 3 for node in range(100)} | {"slow": 108.0, "slower": 120.0}}
    assert [outlier.node for outlier in outliers(figures, [*figures[name]])] == ["slower"]
