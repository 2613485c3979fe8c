"""Tests that make no sense on a system, or cannot pass there: the lines of not_here.toml."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree as ET  # what pytest wrote a moment ago

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TABLE = Path(__file__).with_name("not_here.toml")


class Case(NamedTuple):
    """One test of a run. outcome: passed, failed, skipped or listed."""

    path: str
    name: str
    outcome: str


def lines_for(names: Iterable[str]) -> dict[str, str]:
    """Return the lines for the systems of these names: which tests, and why."""
    tables = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {line: why for name in sorted(names) for line, why in tables.get(name, {}).items()}


def matches(line: str, path: str, name: str) -> bool:
    """Return whether a line is about a test: by its file, its function, or its name with parameters."""
    function = f"{path}::{name.partition('[')[0]}"
    return f"{path}::{name}" == line or fnmatchcase(path, line) or fnmatchcase(function, line)


def junit_cases(report: Path) -> Iterator[Case]:
    """Return the tests of a JUnit file that pytest wrote."""
    for case in ET.parse(report).iter("testcase"):
        outcome = "passed"
        if case.find("failure") is not None or case.find("error") is not None:
            outcome = "failed"
        elif (skipped := case.find("skipped")) is not None:
            outcome = "listed" if skipped.get("type") == "pytest.xfail" else "skipped"
        path = case.get("classname", "").replace(".", "/") + ".py"
        yield Case(path, case.get("name", ""), outcome)
