"""Slurm: what its configuration promises of this node.

Finds:    slurm.conf where SLURM_CONF, /etc/slurm, /etc/slurm-llnl or a configless slurmd has it, with the
          files that it includes, and gres.conf next to it; in them this node's lines.
Caveats:  the node is the one with this host's name. A controller may hold another configuration, and
          `scontrol update` changes it until a restart; neither is asked.
Source:   slurm.conf(5); gres.conf(5); https://slurm.schedmd.com/configless_slurm.html.
"""

import posixpath
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import one_line, whole_number
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.model.records import Finding, Presence, nonempty

GROUP = "machine"
SUMMARY = ("{configuration}", "GRES: {gres_configured}")

_PLACES = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")
_FILES, _LINES, _BYTES = 16, 30_000, 8 << 20
_COMMENT = pattern(r"(?<!\\)#.*")
_PAIR = pattern(r"""([A-Za-z]\w*)\s*=\s*("[^"]*"|\S+)""")
_NODE_VALUES = (
    "CPUs", "Boards", "Sockets", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory",
    "Feature", "Features", "MemSpecLimit", "CoreSpecCount",
)  # fmt: skip
_MOST_DEVICES, _MOST_LINES = 256, 64
_COMMA, _BRACKETS = pattern(r",(?![^\[\]]*\])"), pattern(r"\[([^\[\]]*)\]")


def find(host: Host) -> Finding:
    """Read the configuration and select what is of this node."""
    own = host.env("SLURM_CONF")
    path = next((place for place in (own, *_PLACES) if place and host.is_file(place)), "")
    name = host.env("SLURMD_NODENAME") or host.uname().get("nodename", "").partition(".")[0]
    if not path:
        reason = Reason("not-found", f"no slurm.conf in {', '.join(filter(None, (own, *_PLACES)))}")
        return Finding(presence=Presence.ABSENT, reasons=(reason,))
    node: dict[str, str] = {}
    defaults: dict[str, str] = {}
    for row in _rows(host, path):
        names = row.pop("nodename", "")
        if names.upper() == "DEFAULT":
            defaults |= row
        elif names and is_in(name, names):
            node = defaults | row
    gres_path = posixpath.join(posixpath.dirname(path), "gres.conf")
    rows = [row for row in _rows(host, gres_path) if "nodename" not in row or is_in(name, row["nodename"])]
    with_files = [row for row in rows if "name" in row and "file" in row]
    modes = [row["autodetect"].lower() for row in rows if "autodetect" in row]
    facts = {
        "configuration": path,
        "node": {key: one_line(node[key.lower()], 200) for key in _NODE_VALUES if key.lower() in node},
        "gres_configured": _configured(node.get("gres", "")),
        "gres_files": [_files(host, row) for row in with_files[:_MOST_LINES]],
        "autodetect": one_line(modes[-1], 40) if modes else "",
    }
    return Finding(presence=Presence.FOUND, facts=nonempty(facts))


def _configured(text: str) -> list[dict[str, Any]]:
    """Return the entries of Gres=gpu:a100:8,nvme:1 as name, type and count; a count is 1 by default."""
    entries = []
    for entry in re.sub(r"\([^()]*\)", "", text).split(","):
        parts = [part for part in entry.split(":") if part and part != "no_consume"]
        count = whole_number(parts[-1]) if len(parts) > 1 else None
        if count is not None:
            parts = parts[:-1]
        if parts:
            row = {
                "name": one_line(parts[0], 64),
                "type": one_line(":".join(parts[1:]), 64),
                "count": 1 if count is None else count,
            }
            entries.append(nonempty(row))
    return entries[:_MOST_LINES]


def _files(host: Host, row: dict[str, str]) -> dict[str, Any]:
    """Return the device files of a line of gres.conf: how many, and those that do not exist."""
    paths = list(islice(filter(None, _expanded(row["file"])), _MOST_DEVICES))
    described = {
        "name": one_line(row["name"], 64),
        "type": one_line(row.get("type", ""), 64),
        "count": len(paths),
        "missing": [one_line(path) for path in paths if not host.exists(path)],
    }
    return nonempty(described)


def _rows(host: Host, path: str, opened: list[str] | None = None) -> Iterator[dict[str, str]]:
    """Yield the parameters of each line that has some, with names in small letters.

    An included file is read where it is named. opened: the files so far; at most 16 are read in all.
    """
    opened = [] if opened is None else opened
    opened.append(path)
    for line in host.read(path, _BYTES).replace("\\\n", " ").splitlines()[:_LINES]:
        line = _COMMENT.sub("", line).strip()
        first, _, rest = line.partition(" ")
        if first.lower() == "include" and rest.strip():
            if len(opened) < _FILES:
                yield from _rows(host, posixpath.join(posixpath.dirname(path), rest.strip()), opened)
        elif row := {key.lower(): value.strip('"') for key, value in _PAIR.findall(line)}:
            yield row


def is_in(name: str, names: str) -> bool:
    """Return whether a name is in a list such as node[01-16,20],login1 of Slurm's, which is not expanded."""
    for part in _COMMA.split(names):
        pieces = _BRACKETS.split(part)  # every second one is what brackets hold
        form = "".join(r"(\d{1,18})" if at % 2 else re.escape(piece) for at, piece in enumerate(pieces))
        match = re.fullmatch(form, name, re.ASCII) if part and len(pieces) < 8 else None
        if match and all(map(_covers, pieces[1::2], match.groups())):
            return True
    return False


def _covers(ranges: str, number: str) -> bool:
    """Return whether 01-16,20 has a number, which has as many digits as the first of its range, or more."""
    return any(
        low <= int(number) <= high and number == str(int(number)).zfill(digits)
        for low, high, digits in _ranges(ranges)
    )


def _ranges(text: str) -> Iterator[tuple[int, int, int]]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and len(part) < 40:
            yield int(first), int(last or first), len(first)


def _expanded(text: str) -> Iterator[str]:
    """Yield the paths of /dev/nvidia[0-7],/dev/nvidia9."""
    for part in _COMMA.split(text):
        before, *rest = _BRACKETS.split(part)
        if not rest:
            yield before
        for low, high, digits in _ranges(rest[0]) if len(rest) == 2 else ():
            numbers = range(low, min(high, low + _MOST_DEVICES) + 1)
            yield from (f"{before}{str(number).zfill(digits)}{rest[1]}" for number in numbers)
