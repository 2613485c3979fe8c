"""What CI tells of itself must not change what these tests see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def _outside_of_ci() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR", "GITHUB_STEP_SUMMARY"):
            patch.delenv(name, raising=False)
        yield
