"""The groups that nodes belong to: those of ClusterShell or Slurm, or by a pattern of their names."""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from ClusterShell.NodeSet import grouplist, std_group_resolver
from ClusterShell.NodeUtils import GroupResolverError, GroupSourceError
from msgspec import Struct

from mlbackends.base.errors import BadInput, UnknownName, shown
from mlbackends.base.patterns import pattern
from mlbackends.fleet.nodesets import expanded
from mlbackends.host.command import OUTPUT_LIMIT, outcome_of
from mlbackends.host.files import read_regular

#: By word, the field in the output of `scontrol show node`, and that of the line of _SINFO.
_SLURM = {"partition": ("Partitions", 1), "feature": ("ActiveFeatures", 2)}
#: Nodes with equal values are one line, in which they are a node set.
_SINFO = ("sinfo", "--all", "--noheader", "--format=%N|%R|%b")
_SINFO_SECONDS = 60.0
_SINFO_LINE = pattern(r"[^|\s]+\|[^|]*\|[^|]*")
_NODE = pattern(r"(?m)^NodeName=")
_NONE = ("", "(null)", "N/A")
_HINT = "`@SOURCE` for ClusterShell, `partition` or `feature` for Slurm, or a pattern such as '(rack[0-9]+)'"


class Membership(Struct, frozen=True):
    """Which groups nodes are in. source: as typed. of: returns those of a node, often (), by its name.

    names: of all groups; () where only the names of nodes show them.
    """

    source: str
    of: Callable[[str], Sequence[str]]
    names: tuple[str, ...] = ()


def membership_of(source: str) -> Membership:
    """Return the groups of a source.

    source: "@NAME" or "@NAME:GLOB", the groups of one of ClusterShell's sources; "partition" or "feature" of
    Slurm, for which sinfo is asked; either with "=FILE", what `scontrol show node` or sinfo with the format
    %N|%R|%b printed; or a regular expression, of which the text in parentheses is the group. Raises BadInput
    and UnknownName.
    """
    if source.startswith("@"):
        return _of_table(source, _clustershell(source[1:]))
    word, _, file = source.partition("=")
    if word in _SLURM:
        return _of_table(source, _slurm(word, file))
    return _by_pattern(source)


def _of_table(source: str, pairs: Iterable[tuple[str, Iterable[str]]]) -> Membership:
    """Return the groups in pairs of a group and nodes."""
    groups_by_node: dict[str, dict[str, None]] = {}
    names: dict[str, None] = {}
    for group, nodes in pairs:
        names[group] = None
        for node in nodes:
            groups_by_node.setdefault(node, {})[group] = None

    def groups(node: str) -> tuple[str, ...]:
        # Reports name a node by its full name where its host name is one.
        return tuple(groups_by_node.get(node) or groups_by_node.get(node.partition(".")[0]) or ())

    return Membership(source, groups, (*names,))


def _clustershell(text: str) -> Iterable[tuple[str, Iterable[str]]]:
    name, _, glob = text.partition(":")
    try:
        known = tuple(std_group_resolver().sources())
        if name not in known:
            raise UnknownName("group source of ClusterShell", name, known)
        groups = [group for group in grouplist(name) if fnmatchcase(group, glob or "*")]
    except (GroupResolverError, GroupSourceError) as error:
        raise BadInput(f"ClusterShell's group source {shown(name)} cannot be read: {error}") from None
    if not groups:
        raise BadInput(f"ClusterShell's group source {shown(name)} has no group {glob}".rstrip())
    return ((group, expanded(f"@{name}:{group}")) for group in groups)


def _slurm(word: str, file: str) -> Iterable[tuple[str, Iterable[str]]]:
    hint = f"where Slurm is: scontrol show node > FILE; then here: --by-group {word}=FILE"
    if file:
        try:
            text = read_regular(file, OUTPUT_LIMIT).decode(errors="replace")
        except (OSError, ValueError) as error:
            raise BadInput(f"{shown(file)} cannot be read: {getattr(error, 'strerror', error)}") from None
    elif shutil.which(_SINFO[0]):
        text = outcome_of(_SINFO, _SINFO_SECONDS, os.environ).output
    else:
        raise BadInput("Slurm's sinfo is not on the PATH", hint)
    field, column = _SLURM[word]
    lines = [line.strip().split("|") for line in text.splitlines() if _SINFO_LINE.fullmatch(line.strip())]
    found = [(line[0], line[column]) for line in lines]
    value = re.compile(rf"\s{field}=(\S+)")
    for record in _NODE.split(text)[1:]:
        match = value.search(record)
        found.append(((record.split(None, 1) or [""])[0], match[1] if match else ""))
    if not found:
        raise BadInput(f"{file or _SINFO[0]} has no nodes of Slurm", hint)
    return (
        (group, expanded(nodes))
        for nodes, groups in found
        for group in groups.strip().split(",")
        if group not in _NONE
    )


def _by_pattern(text: str) -> Membership:
    try:
        compiled = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadInput(f"--by-group {shown(text)} is not a regular expression: {error}", _HINT) from None
    if not compiled.groups:
        raise BadInput(f"--by-group {shown(text)} has no parentheses around what names the group", _HINT)

    def groups(node: str) -> tuple[str, ...]:
        match = compiled.search(node)
        name = "-".join(filter(None, match.groups())) if match else ""
        return (name,) if name else ()

    return Membership(text, groups)
