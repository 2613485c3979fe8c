"""Slurm: what its configuration promises of this node.

Finds:    slurm.conf where SLURM_CONF, /etc/slurm, /etc/slurm-llnl or a configless slurmd has it, with the
          files that it includes, and gres.conf next to it; in them this node's lines.
Caveats:  the node is the one with this host's name; a list of names with two pairs of brackets is not read.
          A controller may hold another configuration, and `scontrol update` changes it; neither is asked.
Source:   slurm.conf(5); gres.conf(5); https://slurm.schedmd.com/configless_slurm.html.
"""

import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from mlbackends.base.mounts import NotAnswering
from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import one_line, whole_number
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.model.records import Finding, Presence, nonempty

GROUP = "machine"
SUMMARY = ("{configuration}", "GRES: {gres}")

_PLACES = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")
_MOST_FILES, _MOST_BYTES, _MOST_DEVICES, _MOST_LINES = 16, 8 << 20, 256, 64
_COMMENT = pattern(r"(?<!\\)#.*")
_PAIR = pattern(r"""\b([A-Za-z]\w*+)\s*+=\s*("[^"]*"|\S+)""")
#: What is read of a line; all else names people, other nodes and passwords.
_READ = ("nodename", "cpus", "realmemory", "gres", "name", "type", "file", "autodetect")
#: One part of a list such as node[01-16,20]-ib,login1: before, in and behind the brackets.
_PART = pattern(r"(?:^|,)([^,\[\]]*+)(?:\[([\d,-]++)\]([^,\[\]]*+))?(?=,|$)")


def find(host: Host) -> Finding:
    """Read the configuration and select what is of this node."""
    places = [place for place in (host.env("SLURM_CONF"), *_PLACES) if place]
    path = next(filter(host.is_file, places), "")
    if not path:
        reason = Reason("not-found", f"no slurm.conf in {', '.join(places)}")
        return Finding(presence=Presence.ABSENT, reasons=(reason,))
    node: dict[str, str] = {}
    for row in _rows(host, path, []):
        node |= row if "nodename" in row else {}  # the defaults, and the node's own
    lines = list(_rows(host, posixpath.join(posixpath.dirname(path), "gres.conf"), []))
    gres, memory = _gres(node.get("gres", "")), whole_number(node.get("realmemory", ""), 1, 1 << 32)
    facts = {
        "configuration": path,
        "cpus": whole_number(node.get("cpus", ""), 1),
        "real_memory_bytes": memory << 20 if memory else None,
        "gpus": sum(row["count"] for row in gres if row["name"] == "gpu") if gres else None,
        "gres": gres,
        "gres_files": [_devices(host, row) for row in lines if "name" in row and "file" in row][:_MOST_LINES],
        "autodetect": next((one_line(row["autodetect"], 40) for row in lines if "autodetect" in row), ""),
    }
    return Finding(presence=Presence.FOUND, facts=nonempty(facts))


def _rows(host: Host, path: str, opened: list[str]) -> Iterator[dict[str, str]]:
    """Yield this node's lines of a file and of what it includes there, of 16 files at most."""
    opened.append(path)
    name = host.env("SLURMD_NODENAME") or host.uname().get("nodename", "").partition(".")[0]
    read, kind = partial(node_lines, node=name), list[dict[str, str]]
    if len(opened) <= _MOST_FILES and host.is_file(path):
        with suppress(OSError, NotAnswering):
            for line in host.extracted(path, read, kind, "node_lines"):
                at = posixpath.join(posixpath.dirname(path), line.get("include", ""))
                yield from _rows(host, at, opened) if "include" in line else (line,)


def node_lines(path: str, node: str) -> list[dict[str, str]]:
    """Return the lines that have a parameter of _READ and name no other node, or a file. Raises OSError."""
    with open(path, "rb") as file:
        text = file.read(_MOST_BYTES).decode(errors="replace").replace("\\\n", " ")
    lines = []
    for line in text.splitlines():
        words = _COMMENT.sub("", line).split(maxsplit=1)
        pairs = ((key.lower(), value.strip('"')) for key, value in _PAIR.findall(" ".join(words)))
        row = {key: value for key, value in pairs if key in _READ}
        names = row.get("nodename", "DEFAULT")
        if len(words) == 2 and words[0].lower() == "include":
            lines.append({"include": words[1].strip()})
        elif row and (names.upper() == "DEFAULT" or is_in(node, names)):
            lines.append({**row, "nodename": "this"} if "nodename" in row else row)
    return lines


def _gres(text: str) -> list[dict[str, Any]]:
    """Return the entries of gpu:a100:8(S:0-1),nvme as name, type and count; a count is 1 by default."""
    entries = []
    for entry in filter(None, re.sub(r"\([^()]*\)", "", text).split(",")):
        name, *parts = (part for part in entry.split(":") if part != "no_consume")
        count = whole_number(parts.pop()) if parts and parts[-1].isdecimal() else 1
        entries.append(nonempty({"name": one_line(name, 64), "type": ":".join(parts)[:64], "count": count}))
    return entries[:_MOST_LINES]


def _devices(host: Host, row: dict[str, str]) -> dict[str, Any]:
    """Return the device files of a line of gres.conf: how many, and those that do not exist."""
    paths = list(islice(_expanded(row["file"]), _MOST_DEVICES))
    missing = [one_line(path) for path in paths if not host.exists(path)]
    named = {"name": one_line(row["name"], 64), "type": one_line(row.get("type", ""), 64)}
    return nonempty({**named, "count": len(paths), "missing": missing})


def is_in(name: str, names: str) -> bool:
    """Return whether a name is in a list. A number has as many digits as the first of its range, or more."""
    for before, ranges, after in _PART.findall(names):
        number = name[len(before) : len(name) - len(after)]
        if not ranges and name == before != "":
            return True
        if name == before + number + after and number.isdecimal() and len(number) < 19:
            for low, high, digits in _ranges(ranges):
                if low <= int(number) <= high and number == str(int(number)).zfill(digits):
                    return True
    return False


def _ranges(text: str) -> Iterator[tuple[int, int, int]]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and len(part) < 40:
            yield int(first), int(last or first), len(first)


def _expanded(text: str) -> Iterator[str]:
    """Yield the paths of /dev/nvidia[0-7],/dev/nvidia9."""
    for before, ranges, after in _PART.findall(text):
        if before and not ranges:
            yield before
        for low, high, digits in _ranges(ranges):
            numbers = range(low, min(high, low + _MOST_DEVICES) + 1)
            yield from (f"{before}{str(number).zfill(digits)}{after}" for number in numbers)
