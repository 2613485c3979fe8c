"""What tests of the command line share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlbackends.model.trace_views import Roof
from mlbackends_cli.trace import options

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> Roof:
    """Measure no speeds of this machine: that takes seconds, and tests must not rest on them."""
    speeds = Roof(gflops=100.0, gigabytes_per_second=20.0, threads=2, by="as a test has it")
    monkeypatch.setattr(options, "measured", lambda: speeds)
    return speeds
