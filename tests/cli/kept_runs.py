"""Folders of kept runs, for tests: small reports, written as `backends fleet run --keep` does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from mlbackends.fleet.collection import Collection
from mlbackends.fleet.store import Keeper, opened
from mlbackends.model.fleet import Envelope, Status
from mlbackends.model.history import Asked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

#: The first run began on 2026-11-01 at 10:00 UTC; each other one a day later.
FIRST, DAY = 1793527200.0, 86400.0


def report(**facts: Any) -> Raw:
    """Return a report with facts of nvidia; `memory_bytes` is a metric of the probe memory."""
    memory = facts.pop("memory_bytes", 1 << 40)
    probes = {
        "cpu": {"name": "cpu", "presence": "usable", "facts": {"model_name": "EPYC"}},
        "memory": {"name": "memory", "presence": "usable", "facts": {"total_bytes": memory}},
        "nvidia": {"name": "nvidia", "presence": "usable", "facts": facts},
    }
    return Raw(json.dumps({"schema": "backends.report/1", "depth": "usable", "probes": probes}).encode())


def keep(
    folder: Path,
    runs: Iterable[Mapping[str, Raw | Status | None]],
    *,
    words: tuple[str, ...] = (),
    expected: tuple[str, ...] | None = None,
    is_whole: bool = True,
) -> None:
    """Keep runs: of each node its report, why there is none, or None for nothing at all."""
    with opened(str(folder), writes=True, creates=True) as kept:
        kept.db.execute("PRAGMA synchronous = OFF")  # or a disk is waited for
        for answers in runs:
            names = tuple(answers) if expected is None else expected
            collection = Collection(names)
            asked = Asked("hosts", "", words, "", "", 60.0, 64)
            number = len(kept.runs()) + 1
            keeper = Keeper(kept, asked, names)
            for node, answer in answers.items():
                if answer is None:
                    continue
                is_failed = isinstance(answer, Status)
                if isinstance(answer, Status):
                    envelope = Envelope(node=node, status=answer, error=f"{node} failed")
                else:
                    envelope = Envelope(node=node, report=answer, exit_code=0)
                collection.add(envelope)
                keeper.add(node, envelope, collection, is_new=not is_failed)
            if is_whole:
                keeper.finish(collection)
            started = FIRST + DAY * (number - 1)
            ended = started + 60.0 if is_whole else None
            assert not keeper.failure
            with kept.db:
                kept.db.execute(
                    "UPDATE runs SET started = ?, ended = ? WHERE id = ?", (started, ended, number)
                )
