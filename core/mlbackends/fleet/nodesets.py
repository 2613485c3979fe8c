"""Node sets such as node[001-064,070], read and written by ClusterShell; the limit and errors are ours."""

from collections.abc import Iterable
from itertools import islice
from math import prod

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
from ClusterShell.NodeUtils import GroupResolverError

from mlbackends.base.errors import BadInput, shown
from mlbackends.base.patterns import pattern

#: The most nodes that a set may name: node[0-999999999] is a typing error.
_MOST = 1_000_000
_HINT = "write it as in node[001-064,070],login1"
#: A blank separates names, unless it is next to an operator.
_SEPARATOR = pattern(r"\s*([,!&^])[\s,]*|\s+")
#: The brackets of one name: rack[1-2]node[01-16].
_BRACKETS = pattern(r"(?:\[[^\]]*\][^\s,!&^\[\]]*)+")
_RANGE = pattern(r"(?<=[\[,])([0-9]{1,63})-([0-9]{1,63})(?![0-9])")


def expanded(text: str) -> tuple[str, ...]:
    """Return the names in a node set, sorted, each once. Raises BadInput."""
    # ClusterShell creates every name before it can count them.
    for name in _BRACKETS.findall(text):
        sizes = (
            sum(int(last) - int(first) + 1 for first, last in _RANGE.findall(bracket))
            for bracket in name.split("]")
        )
        if prod(max(1, size) for size in sizes) > _MOST:
            raise _too_many(text)
    try:
        nodes = NodeSet(_SEPARATOR.sub(lambda sign: sign[1] or ",", text.strip()).strip(","))
    except (NodeSetException, GroupResolverError, ValueError) as error:
        raise BadInput(f"{shown(text)} is not a node set: {error}", _HINT) from None
    if len(nodes) > _MOST:
        raise _too_many(text)
    if names := [name for name in nodes if name.startswith("-")]:
        raise BadInput(f"{shown(names[0])} is not the name of a node: ssh takes it as an option", _HINT)
    return tuple(nodes)


def _too_many(text: str) -> BadInput:
    return BadInput(f"{shown(text)} names more than {_MOST:,} nodes, which is the limit")


def folded(names: Iterable[str], most: int = 0) -> str:
    """Return names as a node set. most: the number of ranges to show before "and N more"; 0 for all."""
    nodes = NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP)
    if not most:
        return str(nodes)
    first = NodeSet(resolver=RESOLVER_NOGROUP)
    for part in islice(nodes.contiguous(), most):
        first.update(part)
    hidden = len(nodes) - len(first)
    return f"{first} and {hidden:,} more" if hidden else str(first)
