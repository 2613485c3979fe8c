"""Cores from the output of `lscpu --parse=CPU,Core,Socket,Node`, as a recorded machine has it."""

from mlbackends.launch.topology import Topology, topology_of
from mlbackends.model.errors import BadInput

_LONGEST = 1 << 22


def parse_lscpu(text: str) -> Topology:
    """Return the cores that the lines name; lines with # say nothing.

    A CPU without a core is off, and left out. A CPU without a node lies on the lowest node. Raises
    BadInput for a line that is none of these, and where no CPU is left.
    """
    cores: dict[tuple[int, int], list[int]] = {}
    nodes: dict[int, int] = {}
    for line in text[:_LONGEST].splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        cpu, core, socket, node = _fields(line)
        if cpu is None:
            raise BadInput(f"lscpu's line {line.strip()[:80]!r} names no CPU")
        if core is None:
            continue
        cores.setdefault((socket or 0, core), []).append(cpu)
        if node is not None:
            nodes[cpu] = node
    listed = sorted(cpu for cpus in cores.values() for cpu in cpus)
    if not listed:
        raise BadInput("lscpu's output names no CPU: lines such as 0,0,0,0 are needed")
    if len(set(listed)) < len(listed):
        raise BadInput("lscpu's output names a CPU twice")
    return topology_of(cores.values(), nodes, sorted(set(nodes.values())) or [0], listed)


def _fields(line: str) -> list[int | None]:
    """Return CPU, core, socket and node; further columns, such as caches, do not count."""
    fields = [field.strip() for field in line.split(",")[:4]]
    numbers = [int(field) if _is_number(field) else None for field in fields]
    wrong = [field for field in fields if field not in ("", "-") and not _is_number(field)]
    if wrong or len(fields) < 4:
        raise BadInput(
            f"lscpu's line {line.strip()[:80]!r} is not four numbers: CPU, core, socket, node"
        )
    return numbers


def _is_number(field: str) -> bool:
    return field.isascii() and field.isdecimal() and len(field) < 7
