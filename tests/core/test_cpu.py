"""The level of CPU kernels, which a variable lowers."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest


@cache
def capability(**variables: str) -> str:
    program = "from mlbackends import cpu; print(cpu.get_cpu_capability())"
    environment = {name: text for name, text in os.environ.items() if name != "ATEN_CPU_CAPABILITY"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_the_level_is_one_of_torchs_words() -> None:
    assert capability() in ("DEFAULT", "AVX2", "AVX512", "VSX", "Z VECTOR", "SVE256")


def test_the_lowest_level_is_everywhere() -> None:
    assert capability(ATEN_CPU_CAPABILITY="default") == "DEFAULT"


@pytest.mark.parametrize("word", ["DEFAULT", "Default", "avx9", ""])
def test_another_word_lowers_nothing(word: str) -> None:
    assert capability(ATEN_CPU_CAPABILITY=word) == capability()


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
