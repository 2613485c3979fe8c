"""The level of CPU kernels, which a variable lowers."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING

import pytest

from mlbackends import cpu
from mlbackends.switches import availability, store

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Read the variable and the processor anew in each test."""
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    forget()
    yield
    monkeypatch.undo()
    forget()


def forget() -> None:
    store.forget()
    availability.found_report.cache_clear()


def capability() -> str:
    forget()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cpu.get_cpu_capability()


def test_the_level_is_one_of_torchs_words() -> None:
    assert capability() in ("DEFAULT", "AVX2", "AVX512", "VSX", "Z VECTOR", "SVE256")


def test_the_lowest_level_is_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")

    assert capability() == "DEFAULT"


@pytest.mark.parametrize("word", ["DEFAULT", "Default", "avx9", ""])
def test_another_word_lowers_nothing(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    own = capability()
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", word)

    assert capability() == own


def test_a_wrong_word_is_told_once() -> None:
    program = "from mlbackends import cpu; cpu.get_cpu_capability(); cpu.get_cpu_capability()"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", program],
        env={**os.environ, "ATEN_CPU_CAPABILITY": "AVX9"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stderr.count("Ignoring invalid value for flag ATEN_CPU_CAPABILITY: AVX9") == 1
