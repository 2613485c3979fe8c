"""Simulated fleets with slow nodes: how many of them the rule for outliers finds, and how many others.

python tests/core/fleet/slow_nodes.py     print a table for fleets of 1,000 nodes with 10 slow ones

Each figure of a node differs from the usual speed by a fixed amount (normal, 1 %; 8 % for disks), and each
round is slower by up to about 2 %. Bursts of other work come every 20 s, last 0.5 s (both exponential), and
slow down what they meet by 10 to 60 %. A slow node is slow in all figures, or in one.
"""

from __future__ import annotations

import random

from mlbackends.bench import FIGURES, undisturbed
from mlbackends.fleet.records import outliers

SPREAD = {name: 0.08 if name.startswith("disk") else 0.01 for name in FIGURES}
ROUNDS, ROUND_SECONDS = 5, 0.2
BURST_EVERY, BURST_SECONDS = 20.0, 0.5


def node_figures(draw: random.Random, lost: dict[str, float], spread: float) -> dict[str, float]:
    """Return the figures of one node. lost: the share of the speed that it lacks, by figure."""
    seconds = ROUNDS * len(FIGURES) * ROUND_SECONDS
    bursts = []
    at = -3 * BURST_SECONDS + draw.expovariate(1 / BURST_EVERY)
    while at < seconds:
        bursts.append((at, at + draw.expovariate(1 / BURST_SECONDS), draw.uniform(0.1, 0.6)))
        at += draw.expovariate(1 / BURST_EVERY)
    rates: dict[str, list[float]] = {name: [] for name in FIGURES}
    own = {
        name: 100 * (1 - lost.get(name, 0)) * (1 + spread * draw.gauss(0, SPREAD[name])) for name in FIGURES
    }
    for step in range(ROUNDS * len(FIGURES)):
        name = [*FIGURES][step % len(FIGURES)]
        start = step * ROUND_SECONDS
        rate = own[name] * (1 - abs(draw.gauss(0, 0.01)))
        for begin, end, share in bursts:
            if begin < start + ROUND_SECONDS and end > start:
                rate *= 1 - share
        rates[name].append(rate)
    return {name: undisturbed(values) for name, values in rates.items()}


def found(
    seed: int,
    lost: float,
    names: tuple[str, ...] = (),
    nodes: int = 1000,
    slow: int = 10,
    spread: float = 1.0,
) -> tuple[int, int]:
    """Return how many slow nodes of a fleet are found, and how many others.

    names: the figures that are slow, () for all. spread: a factor of SPREAD.
    """
    draw = random.Random(seed)
    figures: dict[str, dict[str, float]] = {}
    for number in range(nodes):
        loss = dict.fromkeys(names or FIGURES, lost) if number < slow else {}
        for name, value in node_figures(draw, loss, spread).items():
            figures.setdefault(f"bench.figures[{name}].value", {})[str(number)] = value
    named = {int(outlier.node) for outlier in outliers(figures, [*map(str, range(nodes))])}
    right = sum(number < slow for number in named)
    return right, len(named) - right


def main() -> None:
    fleets = range(20)
    print(f"{'slow in':<12}{'slower by':>10}{'found':>8}{'false alarms in 1,000':>24}")
    for spread in (1.0, 2.0):
        print(f"nodes differ by {spread:.0f} % (standard deviation)")
        for names in ((), ("memory",)):
            for lost in (0.05, 0.1, 0.3):
                counts = [found(seed, lost, names, spread=spread) for seed in fleets]
                right, wrong = (sum(column) / len(fleets) for column in zip(*counts, strict=True))
                print(f"{names[0] if names else 'all':<12}{lost:>10.0%}{right / 10:>8.0%}{wrong:>24.1f}")
    for nodes in (5, 16, 32, 100):
        wrong = sum(found(seed, 0, nodes=nodes, slow=0)[1] for seed in range(100)) / 100
        print(f"{nodes} nodes, none slow: {wrong:.2f} false alarms in a fleet")


if __name__ == "__main__":
    main()
