"""A process with an NVIDIA device that is not there: its libraries are those of tests/fakelibs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def any_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """As many threads as a test wants, however many CPUs there are and small the work is."""
    from mlbackends_kernels.attention_cpu import forward

    def use(count: int) -> None:
        monkeypatch.setattr(forward, "worth", lambda operations, moved: count)

    return use
