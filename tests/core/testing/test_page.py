"""The examples of docs/testing.md, run as they stand there."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

import mlbackends.sdpa.dispatch
import mlbackends.testing.loadable  # noqa: F401  what a run in this process imports is forgotten behind it
from mlbackends.testing import options

# What is imported while `pytester` is there is forgotten behind it, and numpy cannot come twice.
with contextlib.suppress(ImportError):
    import numpy as np  # noqa: F401

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
MACHINE = f"--backends-report={ROOT / 'tests' / 'hosts' / 'ivy-bridge-desktop.machine'}"


@pytest.mark.parametrize(
    ("number", "outcomes"),
    [
        (0, {"skipped": 2}),
        (1, {"passed": 1}),
        (2, {"passed": 2, "skipped": 1}),
        (4, {"passed": 2}),
        (5, {"passed": 2}),
    ],
)
def test_an_example_does_what_the_page_says(
    pytester: pytest.Pytester, number: int, outcomes: dict[str, int]
) -> None:
    if "numpy" in BLOCKS[number]:
        pytest.importorskip("numpy")
    pytester.makepyfile(f"import pytest\n{BLOCKS[number]}")

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", MACHINE, "--attention-backend=math")

    result.assert_outcomes(**outcomes)


def test_a_fixture_stands_on_ours_as_the_page_says(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(f"import pytest\n{BLOCKS[3]}")
    pytester.makepyfile("def test_it(device): assert device == 'CPU'")

    pytester.runpytest_inprocess("-p", "no:cacheprovider", MACHINE).assert_outcomes(passed=1)


def test_the_page_has_every_setting(pytester: pytest.Pytester) -> None:
    assert len(BLOCKS) == 6
    parser = pytest.Parser(_ispytest=True)
    options.add(parser)
    options.add_short_names(parser)
    group = parser.getgroup("backends")

    for name in (name for option in group.options for name in option.names()):
        assert f"`{name} " in PAGE
    for name in options.INI:
        assert f"`{name}`" in PAGE
