"""A fleet as Prometheus text: numbers by group, and a series for each node that differs or did not report."""

from collections import Counter
from collections.abc import Iterable

from mlbackends.model.audit import Status as CheckStatus
from mlbackends.model.fleet import GROUP, Fleet, Status
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.exposition import Labels, exposition
from mlbackends_cli.text.plain import one_line


def fleet_metrics(fleet: Fleet, _page: Page) -> str:
    """Return the families; a node without a group has none as its label, and without --by-group all have."""
    statuses = {node: alike.status for alike in fleet.silent for node in alike.nodes}
    reported = [node for configuration in fleet.configurations for node in configuration.nodes]
    groups = fleet.groups or {"": (*reported, *statuses)}
    groups_by_node: dict[str, list[str]] = {}
    for group, nodes in groups.items():
        for node in nodes:
            groups_by_node.setdefault(node, []).append(group)

    def labels(group: str, **own: str) -> Labels:
        return tuple((key, one_line(value)) for key, value in {"group": group, **own}.items())

    def by_group(nodes: Iterable[str], **own: str) -> Counter[Labels]:
        return Counter(labels(group, **own) for node in nodes for group in groups_by_node.get(node, ()))

    def by_node(nodes: Iterable[str], **own: str) -> Counter[Labels]:
        pairs = ((node, group) for node in nodes for group in groups_by_node.get(node, ()))
        return Counter(labels(group, node=node, **own) for node, group in pairs)

    numbers: Counter[Labels] = Counter()
    for group, nodes in groups.items():
        here = Counter(statuses.get(node, Status.OK) for node in nodes)
        numbers.update({labels(group, status=str(status)): here[status] for status in Status})
    facts: Counter[Labels] = Counter()
    split = Counter({labels(group): 0 for group in groups})
    for kind in fleet.kinds:
        split[labels(str(kind.title.get(GROUP) or ""))] += sum(len(part.facts) for part in kind.splits)
        for deviation in kind.deviations:
            for node in deviation.nodes:
                facts[labels(str(kind.title.get(GROUP) or ""), node=node)] += len(deviation.differences)
    deviating = Counter(labels(dict(pairs)["group"]) for pairs in facts)
    hazards: Counter[Labels] = Counter()
    for hazard in fleet.hazards:
        check = hazard.check
        if check.status is CheckStatus.FAILED:
            hazards.update(by_group(hazard.nodes, code=check.code, severity=str(check.severity)))
    silent: Counter[Labels] = Counter()
    for node, status in statuses.items():
        silent.update(by_node((node,), status=str(status)))
    info = {"tool": fleet.tool, "schema": fleet.schema, "compared_with": fleet.compared_with}
    return exposition(
        {
            "backends_fleet_info": {tuple((key, one_line(text)) for key, text in info.items()): 1},
            "backends_fleet_nodes": numbers,
            "backends_fleet_deviating_nodes": {labels(group): deviating[labels(group)] for group in groups},
            "backends_fleet_facts_without_majority": split,
            "backends_fleet_node_deviations": facts,
            "backends_fleet_node_silent": silent,
            "backends_fleet_node_suspect": by_node(fleet.flagged),
            "backends_fleet_node_outliers": by_node(outlier.node for outlier in fleet.outliers),
            "backends_fleet_hazard_nodes": hazards,
        }
    )
