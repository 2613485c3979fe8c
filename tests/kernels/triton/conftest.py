"""Kernels that run in Triton's interpreter, or are compiled by it, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
Findings = list[dict[str, Any]]
Run = Callable[["Sequence[dict[str, Any]]"], Findings]


def _findings(script: str, cases: Sequence[dict[str, Any]], **variables: str) -> Findings:
    done = subprocess.run(
        [sys.executable, "-W", "error", HERE / script],
        input=json.dumps(cases),
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="session")
def interpreted() -> Run:
    """Give a function that runs cases in Triton's interpreter; see interpreting.py."""
    pytest.importorskip("triton")
    return lambda cases: _findings("interpreting.py", cases, TRITON_INTERPRET="1")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Give a function that compiles cases, from scratch; see compiling.py."""
    pytest.importorskip("triton")
    cache = str(tmp_path_factory.mktemp("triton"))
    plain = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": cache}
    return lambda cases: _findings("compiling.py", cases, **plain)
