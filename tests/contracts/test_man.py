"""The man pages are made from the code, and fill whatever width they are read at."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

GENERATOR = Path(__file__).resolve().parents[2] / "man" / "generate.py"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", GENERATOR)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_a_probe_finds_is_a_definition_that_fills(generate: ModuleType) -> None:
    block = "Finds:    every libx, in wheels\n          and conda.\nUsable:   it adds: 1 and 1."

    assert generate.definitions_in(block) == {
        "Finds": "every libx, in wheels and conda.",
        "Usable": "it adds: 1 and 1.",
    }


def test_no_paragraph_of_the_facts_keeps_its_lines(generate: ModuleType) -> None:
    page = generate.facts_page()

    assert ".nf" not in page.splitlines()
    assert ".B Finds\nevery " in page


def test_generated_files_are_fresh() -> None:
    """Run `python man/generate.py --write` after a change of what they are made from."""
    # In a process of its own, which leaves out what other distributions add here.
    run = subprocess.run([sys.executable, GENERATOR, "--check"], capture_output=True, text=True, check=False)

    assert (run.returncode, run.stderr) == (0, "")
