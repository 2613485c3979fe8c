"""cuSPARSELt's version as a number, and what is known of that version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends import cusparselt
from mlbackends.model.records import Presence, ProbeReport

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("said", "number", "algorithm"),
    [
        ("0.4.0", 400, 4),
        ("0.5.2", 502, 5),
        ("0.6.2", 602, 37),
        ("0.7.1", 701, None),
        ("1.0.0.3", 10000, None),
        ("", None, None),
        ("0.6", None, None),
    ],
)
def test_the_version_is_a_number_that_tells_the_highest_algorithm(
    said: str, number: int | None, algorithm: int | None, reported: Callable[..., None]
) -> None:
    reported(cusparselt=ProbeReport(presence=Presence.LOADABLE, version=said))

    assert cusparselt.version() == number
    assert cusparselt.get_max_alg_id() == algorithm


@pytest.mark.parametrize("opens", [True, False])
def test_it_is_available_where_it_opens(opens: bool, reported: Callable[..., None]) -> None:
    reported(cusparselt=ProbeReport(presence=Presence.LOADABLE if opens else Presence.FOUND))

    assert cusparselt.is_available() is opens
