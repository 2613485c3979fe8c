"""Write expected.json of machines anew: ``python tests/hosts/rewrite.py [NAME...]``.

Without NAME: of those that have one. A NAME that has none gets one.

``--check`` writes nothing, says which would change, and ends with 1 if any would. Look at the
difference before you commit it: a golden file that nobody has read proves nothing.

``--pack`` first makes an archive of each machine that is a folder here, and brings the archives that were
edited by hand into order; ``--unpack`` makes folders of the named ones, and does nothing else.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec

from mlbackends.base import registry
from mlbackends.host.archive import of_folder, read
from mlbackends.host.declared import facts_of
from mlbackends.host.host import Host
from mlbackends.model.records import Presence, Report
from mlbackends.survey import survey

HOSTS = Path(__file__).resolve().parent
#: The longest line of expected.json, in characters.
LINE = 120
#: Our own: other distributions may add to them.
PROBES = sorted(registry.own_names("mlbackends_probes"))

_OF_THE_RUN = ("tool", "root", "created", "duration_seconds", "redacted", "schema", "depth")
_OF_THE_PROBE = ("source", "duration_seconds")


def names() -> list[str]:
    """Return the names of the recorded machines."""
    return sorted(path.stem for path in HOSTS.glob("*.machine"))


def looked_at(name: str) -> Report:
    """Return what every probe finds on a recorded machine."""
    return survey(PROBES, Host(str(HOSTS / f"{name}.machine")), Presence.FOUND)


def lasting(report: Report) -> dict[str, Any]:
    """Return what the machine is, as plain values: without what differs between two runs.

    A probe whose thing is simply not there is left out, so that a new probe changes no machine that
    has nothing of it.
    """
    tree: dict[str, Any] = msgspec.to_builtins(report)
    for field in _OF_THE_RUN:
        del tree[field]
    for name, probe in list(tree["probes"].items()):
        for field in _OF_THE_PROBE:
            probe.pop(field, None)
        for fact in facts_of(name).values():
            if fact.role == "volatile":
                probe.get("facts", {}).pop(fact.name, None)
        for device in probe.get("devices", ()):
            device.pop("volatile", None)
        if probe["presence"] in ("absent", None) and probe.keys() <= {"presence", "reasons"}:
            del tree["probes"][name]
    return tree


def golden(name: str) -> bytes:
    """Return the content that expected.json of a machine should have."""
    return f"{laid_out(lasting(looked_at(name)))}\n".encode()


def laid_out(value: Any, depth: int = 0) -> str:
    """Return a value as JSON in which whatever fits into a line is one, such as a device or a library."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + depth <= LINE or not isinstance(value, dict | list):
        return line
    if isinstance(value, dict):
        rows = [f"{json.dumps(key)}: {laid_out(row, depth + 1)}" for key, row in value.items()]
    else:
        rows = [laid_out(row, depth + 1) for row in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    inner = ",\n".join(f"{' ' * (depth + 1)}{row}" for row in rows)
    return f"{first}\n{inner}\n{' ' * depth}{last}"


def with_golden_files() -> list[str]:
    """Return the machines that have an expected.json."""
    return sorted(path.name.partition(".")[0] for path in HOSTS.glob("*.expected.json"))


def pack() -> None:
    """Make an archive of each machine that is a folder here, and put what is expected of it beside it."""
    for file in HOSTS.glob("*/host.json"):
        folder = file.parent
        for part in ("expected.json", "facts.json"):
            if (folder / part).is_file():
                (folder / part).rename(HOSTS / f"{folder.name}.{part}")
        (HOSTS / f"{folder.name}.machine").write_bytes(of_folder(str(folder)).text())
        shutil.rmtree(folder)
    for file in HOSTS.glob("*.machine"):
        file.write_bytes(read(str(file)).text())


def main(arguments: list[str] | None = None) -> int:
    """Write, or check, the named machines, all of them by default."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a recorded machine")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--write", action="store_true", help="write what changed; the default")
    modes.add_argument("--check", action="store_true", help="write nothing, exit 1 if any would change")
    modes.add_argument("--pack", action="store_true", help="make an archive of each folder here, first")
    modes.add_argument(
        "--unpack", action="store_true", help="make a folder of each archive, and nothing else"
    )
    options = parser.parse_args(arguments)
    if options.pack:
        pack()
    if unknown := sorted({*options.names} - {*names()}):
        parser.error(f"no recorded machine {', '.join(unknown)}")
    stale = []
    for name in (options.names or names()) if options.unpack else ():
        read(str(HOSTS / f"{name}.machine")).unpack(str(HOSTS / name))
        (HOSTS / f"{name}.machine").unlink()
    if options.unpack:
        return 0
    for name in options.names or with_golden_files():
        path = HOSTS / f"{name}.expected.json"
        content = golden(name)
        if not path.is_file() or path.read_bytes() != content:
            stale.append(name)
            if not options.check:
                path.write_bytes(content)
    for name in stale:
        print(f"{name}.expected.json {'is stale' if options.check else 'was written'}")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
