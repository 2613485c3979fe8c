"""Write expected.json of the recorded machines anew: ``python tests/hosts/rewrite.py [NAME...]``.

``--check`` writes nothing, says which would change, and ends with 1 if any would. Look at the
difference before you commit it: a golden file that nobody has read proves nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from mlbackends.model import registry
from mlbackends.model.records import Presence, Report
from mlbackends.host.host import Host
from mlbackends.survey import survey

HOSTS = Path(__file__).resolve().parent

_OF_THE_RUN = ("tool", "root", "created", "duration_seconds", "redacted", "schema", "depth")
_OF_THE_PROBE = ("source", "duration_seconds")


def names() -> list[str]:
    """Return the names of the recorded machines."""
    return sorted(folder.parent.name for folder in HOSTS.glob("*/host.json"))


def looked_at(name: str) -> Report:
    """Return what every probe finds on a recorded machine."""
    return survey((), Host(str(HOSTS / name)), Presence.FOUND)


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
        roles = {
            fact.name: fact.role for fact in getattr(registry.load("mlbackends_probes", name), "FACTS", ())
        }
        for fact in list(probe.get("facts", {})):
            if roles.get(fact) == "volatile":
                del probe["facts"][fact]
        for device in probe.get("devices", ()):
            device.pop("volatile", None)
        if probe["presence"] in ("absent", None) and probe.keys() <= {"presence", "reasons"}:
            del tree["probes"][name]
    return tree


def golden(name: str) -> bytes:
    """Return the content that expected.json of a machine should have."""
    encoded = msgspec.json.encode(lasting(looked_at(name)))
    return msgspec.json.format(encoded, indent=1) + b"\n"


def main(arguments: list[str]) -> int:
    """Write, or check, the named machines, all of them by default."""
    wanted = [name for name in arguments if not name.startswith("-")] or names()
    stale = []
    for name in wanted:
        path = HOSTS / name / "expected.json"
        content = golden(name)
        if not path.is_file() or path.read_bytes() != content:
            stale.append(name)
            if "--check" not in arguments:
                path.write_bytes(content)
    verb = "is stale" if "--check" in arguments else "was written"
    for name in stale:
        print(f"{name}/expected.json {verb}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
