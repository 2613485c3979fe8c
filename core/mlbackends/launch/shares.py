"""Shares of cores: how many instances there are, and how many CPUs each gets."""

from collections.abc import Sequence

from mlbackends.launch.notices import Notice, information, warning
from mlbackends.launch.options import Options
from mlbackends.launch.refusals import Refused

Shares = list[tuple[int, ...]]
"""The CPUs of each instance; all have as many."""

_CORES_IN_LATENCY_MODE = 4


def shares_of_mode(
    options: Options, cpus: Sequence[int], by_node: Shares, notices: list[Notice]
) -> Shares:
    """Deal out in latency mode (four cores each) or throughput mode (one instance per node).

    by_node: the CPUs of each node. Raises Refused where latency mode finds fewer than four cores.
    """
    mode = "latency" if options.latency_mode else "throughput"
    notices.append(
        warning(
            f"--{mode}-mode decides alone: --ninstances, --ncores-per-instance, --node-id and "
            "--use-logical-core do not count",
        )
    )
    if mode == "latency":
        size = _CORES_IN_LATENCY_MODE
        if len(cpus) < size:
            raise Refused(f"latency mode needs {size} cores for an instance; there are {len(cpus)}")
        return _dealt(_kept(options, cpus, by_node, size), size)
    size = min(len(group) for group in by_node)
    over = len(cpus) - size * len(by_node)
    if over:
        notices.append(
            warning(
                f"the smallest node has {size} cores, so each instance gets {size}; {over} are left over",
            )
        )
    return [group[:size] for group in by_node]


def shares_of_counts(
    options: Options, cpus: Sequence[int], by_node: Shares, notices: list[Notice]
) -> Shares:
    """Deal out by --ninstances and --ncores-per-instance; one instance has all where neither is given.

    by_node: the CPUs of each node. Raises Refused where more is asked for than there is.
    """
    count, size = options.ninstances, options.ncores_per_instance
    if size == -1:
        count = max(count, 1)
        size = _size_for(options, count, len(cpus), by_node)
    _check_size(options, size, len(cpus), by_node)
    kept = _kept(options, cpus, by_node, size)
    if options.skip_cross_node_cores and _fits_a_node(size, by_node):
        left = len(cpus) - len(kept)
        notices.append(information(f"{left} cores are left over so that no instance spans nodes"))
    shares = _dealt(kept, size)
    if count == -1:
        return shares
    if count > len(shares):
        spare = f", {len(kept)} of them without spanning nodes" if len(kept) < len(cpus) else ""
        raise Refused(
            f"{count} instances of {size} cores need {count * size}; there are {len(cpus)}{spare}"
        )
    if options.core_list is not None and count * size < len(cpus):
        notices.append(
            warning(
                f"of the {len(cpus)} cores in --core-list only the first {count * size} serve",
            )
        )
    return shares[:count]


def _size_for(options: Options, count: int, total: int, by_node: Shares) -> int:
    """Return how many cores each of `count` instances can have."""
    if count > total:
        raise Refused(f"there are {total} cores for {count} instances; each needs one at least")
    if not options.skip_cross_node_cores or count == 1:
        return total // count
    for size in range(total // count, 1, -1):
        if sum(len(group) // size for group in by_node) >= count:
            return size
    return 1


def _check_size(options: Options, size: int, total: int, by_node: Shares) -> None:
    if size > total:
        raise Refused(f"--ncores-per-instance is {size}; there are {total} cores")
    is_asked = options.skip_cross_node_cores and options.ncores_per_instance != -1
    if is_asked and not _fits_a_node(size, by_node):
        raise Refused(
            f"--ncores-per-instance is {size}; with --skip-cross-node-cores it can be "
            f"{max(len(group) for group in by_node)} at most, the cores of the largest node"
        )


def _fits_a_node(size: int, by_node: Shares) -> bool:
    return size <= max(len(group) for group in by_node)


def _kept(options: Options, cpus: Sequence[int], by_node: Shares, size: int) -> Sequence[int]:
    """Return the cores to deal out: without the last ones of each node, where none may span."""
    if not options.skip_cross_node_cores or not _fits_a_node(size, by_node):
        return cpus
    return [cpu for group in by_node for cpu in group[: len(group) // size * size]]


def _dealt(cpus: Sequence[int], size: int) -> Shares:
    return [tuple(cpus[at : at + size]) for at in range(0, len(cpus) - size + 1, size)]
