"""What to do about the sick nodes of a fleet: drains for Slurm, taints for Kubernetes, events for NVSentinel.

The names of nodes and the words of reasons come from the nodes, so every one is checked or quoted.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from shlex import quote

from msgspec import Struct

from mlbackends.base.errors import counted
from mlbackends.base.quantities import utc
from mlbackends.base.version import __version__
from mlbackends.fleet.nodesets import folded
from mlbackends.model.audit import Check, Problem, Severity, Status
from mlbackends.model.fleet import Hazard
from mlbackends_cli.output import indented
from mlbackends_cli.report import checks
from mlbackends_cli.text.plain import one_line, shortened

#: Slurm reads ALL as every node.
_IN_SLURM = re.compile(r"(?!(?i:all)$)[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
_IN_KUBERNETES = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_TAINT = "mlbackends/node-problem"
#: The most nodes of one command, since an argument has at most 128 KiB.
_MOST_NODES = 500
_LONGEST_MESSAGE = 1000


class Sick(Struct, frozen=True):
    """Nodes with the same problems. codes: the worst first. message, is_error: of that."""

    nodes: tuple[str, ...]
    codes: tuple[str, ...]
    message: str
    is_error: bool

    @property
    def reason(self) -> str:
        """The worst problem in at most 80 bytes, and how many others there are."""
        more = f" (+{len(self.codes) - 1})" if self.codes[1:] else ""
        return checks.short_line(f"[node_problem] {self.codes[0]}: {self.message}", more)


class Health(Struct, frozen=True):
    """Which nodes are sick, and which are not. unknown: those that could not be checked in full."""

    kind: str
    sick: tuple[Sick, ...]
    healthy: tuple[str, ...]
    unknown: tuple[str, ...]


def health_of(
    by_code: Mapping[str, Sequence[Hazard]], silent: Sequence[str], kind: str, fail_on: str
) -> Health:
    """Return the health of nodes; sick are those with a problem of the node that --fail-on counts.

    by_code: all checks, with their nodes. silent: nodes without a report. kind: doctor or audit. fail_on:
    a severity; "never" means errors, as it is the exit code that never fails.
    """
    least = Severity(fail_on) if fail_on in [*Severity] else Severity.ERROR
    problems: dict[str, list[Check]] = {}
    judged: set[str] = set()
    unknown = {*silent}
    for hazard in chain(*by_code.values()):
        check = hazard.check
        judged.update(hazard.nodes)
        if check.problem is not Problem.NODE:
            continue
        if check.status is Status.UNKNOWN:
            unknown.update(hazard.nodes)
        elif check.status is Status.FAILED and check.severity.level >= least.level:
            for node in hazard.nodes:
                problems.setdefault(node, []).append(check)
    groups: dict[tuple[str, ...], dict[str, Check]] = {}
    for node, failed in problems.items():
        worst_first = sorted(failed, key=lambda check: (-check.severity.level, check.code))
        codes = tuple(dict.fromkeys(check.code for check in worst_first))
        groups.setdefault(codes, {})[node] = worst_first[0]
    sick = []
    for codes, worst in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        (message, title), *others = {check.message: check.title for check in worst.values()}.items()
        is_error = any(check.severity is Severity.ERROR for check in worst.values())
        sick.append(Sick((*worst,), codes, title if others else message, is_error))
    healthy = tuple(sorted(judged - unknown - problems.keys()))
    return Health(kind, tuple(sick), healthy, tuple(sorted(unknown - problems.keys())))


def slurm(health: Health) -> str:
    """Return a shell script that drains the sick nodes, with their reasons."""

    def drain(nodes: Sequence[str], sick: Sick) -> str:
        names = folded(nodes)
        if re.search(r"\](?!,|$)", names):  # Slurm reads ranges only at the end of a name
            names = ",".join(nodes)
        return f"scontrol update nodename={quote(names)} state=drain reason={quote(sick.reason)}"

    return _script(health, _IN_SLURM, drain)


def kubernetes(health: Health) -> str:
    """Return a shell script that taints the sick nodes, so that no new pod is placed there."""

    def taint(nodes: Sequence[str], sick: Sick) -> str:
        value = checks.word(sick.codes[0])
        names = " ".join(nodes)
        return f"# {sick.reason}\nkubectl taint nodes {names} {_TAINT}={value}:NoSchedule --overwrite"

    return _script(health, _IN_KUBERNETES, taint)


def _script(health: Health, name: re.Pattern[str], commands: Callable[[Sequence[str], Sick], str]) -> str:
    lines = [f"# {counted(sum(len(sick.nodes) for sick in health.sick), 'sick node')}"]
    for sick in health.sick:
        known = [node for node in sick.nodes if name.fullmatch(node)]
        parts = (known[at : at + _MOST_NODES] for at in range(0, len(known), _MOST_NODES))
        lines += (commands(part, sick) for part in parts)
        lines += (
            f"# sick, but of a name that no node has there: {node!a}"
            for node in sick.nodes
            if node not in {*known}
        )
    if health.unknown:
        lines.append(f"# not checked in full, and left as they are: {counted(len(health.unknown), 'node')}")
    return "\n".join([*lines, ""])


def nvsentinel(health: Health) -> str:
    """Return a message HealthEvents of NVSentinel as protobuf's JSON: an event for each node.

    Nodes that could not be checked, and those whose name is not one of Kubernetes, have none.
    Source: NVIDIA/NVSentinel, docs/architecture/health-event-data-model.md and data-models/protobufs.
    """
    well = Sick(health.healthy, (), "no known problem of this node", False)
    shared = {
        "version": 1,
        "agent": "backends",
        "componentClass": "Node",
        "checkName": f"backends-{health.kind}",
        "recommendedAction": "NONE",
        "generatedTimestamp": utc(),
        "metadata": {"tool": f"backends {__version__}"},
    }
    events = [
        {
            **shared,
            "nodeName": node,
            "isHealthy": not sick.codes,
            "isFatal": sick.is_error,
            "errorCode": sick.codes,
            "message": shortened(one_line(sick.message), _LONGEST_MESSAGE),
        }
        for sick in (*health.sick, well)
        for node in sick.nodes
        if _IN_KUBERNETES.fullmatch(node)
    ]
    return indented({"version": 1, "events": events})


ACTIONS = {"slurm": slurm, "kubernetes": kubernetes, "nvsentinel": nvsentinel}
