"""What several tests of torch's names share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.model.records import Presence, ProbeReport
from mlbackends.switches import availability

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Reported = Callable[..., None]


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reported]:
    """Let probes report what a test gives, by name; all other probes report that nothing is there."""
    cached = (availability.is_available, availability.opens, availability.version)

    def give(**reports: ProbeReport) -> None:
        for function in cached:
            function.cache_clear()
        for question in ("found_report", "used_report"):
            monkeypatch.setattr(
                availability,
                question,
                lambda name: reports.get(name, ProbeReport(presence=Presence.ABSENT)),
            )

    yield give
    for function in cached:
        function.cache_clear()
