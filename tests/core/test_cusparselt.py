"""cuSPARSELt's version as a number, and what is known of that version."""

from __future__ import annotations

import pytest

from mlbackends import cusparselt
from mlbackends.switches import availability


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
    said: str, number: int | None, algorithm: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability, "version", lambda name: said if name == "cusparselt" else "")

    assert cusparselt.version() == number
    assert cusparselt.get_max_alg_id() == algorithm


@pytest.mark.parametrize("opens", [True, False])
def test_it_is_available_where_it_opens(opens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "opens", lambda _: opens)

    assert cusparselt.is_available() is opens
