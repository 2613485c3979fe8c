"""Machine descriptions: what the probes report of each is what is expected, and what is true.

`NAME.facts.json` is what is known of a machine without us; `NAME.expected.json`, of some, is our report.
"""

from __future__ import annotations

import importlib.util
import json
import posixpath
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.host.archive import Tree, read
from mlbackends.host.declared import facts_of
from mlbackends.survey.dotted import NoValue, value

if TYPE_CHECKING:
    from types import ModuleType

    from mlbackends.model.records import Report

HOSTS = Path(__file__).resolve().parents[1] / "hosts"
NAMES = sorted(path.stem for path in HOSTS.glob("*.machine"))
GOLDEN = sorted(path.name.partition(".")[0] for path in HOSTS.glob("*.expected.json"))
LARGEST_FILE = 256 << 10


@cache
def rewriter() -> ModuleType:
    """Import tests/hosts/rewrite.py, which says what of a report lasts."""
    specification = importlib.util.spec_from_file_location("rewrite", HOSTS / "rewrite.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@cache
def report_of(name: str) -> Report:
    report: Report = rewriter().looked_at(name)
    return report


@pytest.mark.parametrize("name", GOLDEN)
def test_the_survey_of_a_recorded_machine_is_the_expected_one(name: str) -> None:
    told = json.loads(json.dumps(rewriter().lasting(report_of(name))))

    expected = json.loads((HOSTS / f"{name}.expected.json").read_text(encoding="utf-8"))

    assert told == expected, f"if that is right: python tests/hosts/rewrite.py {name}"


@pytest.mark.parametrize("name", NAMES)
def test_no_probe_fails_on_a_recorded_machine(name: str) -> None:
    failures = {probe: answer.failure for probe, answer in report_of(name).probes.items() if answer.failure}
    if b"Recorded in part" in about(name):  # without the files that these probes read
        failures = {probe: failures[probe] for probe in failures.keys() - {"memory", "environment"}}

    assert failures == {}


def told_by(report: Report, name: str) -> Any:
    """Return the value under a dotted name; None where the machine has none."""
    facts = facts_of(name.partition(".")[0])
    try:
        return value(report, name, tuple(facts))
    except NoValue:
        return None


@pytest.mark.parametrize("name", NAMES)
def test_what_is_known_of_a_machine_is_told(name: str) -> None:
    known = json.loads((HOSTS / f"{name}.facts.json").read_text(encoding="utf-8"))

    told = {fact: told_by(report_of(name), fact) for fact in known}

    assert known
    assert told == known


def test_there_are_machines_of_every_kind() -> None:
    kinds = {told_by(report_of(name), "cpu.architecture") for name in NAMES}
    capabilities = {told_by(report_of(name), "cpu.capability") for name in NAMES}

    assert kinds >= {"x86_64", "aarch64", "ppc64le", "s390x", "riscv64", "arm64"} - {"arm64"}
    assert capabilities >= {"DEFAULT", "AVX2", "AVX512", "SVE128", "SVE256", "VSX", "Z VECTOR"}


def test_a_machine_is_files_that_every_system_can_check_out() -> None:
    folders = [path.name for path in HOSTS.iterdir() if path.is_dir() and path.name[0] != "_"]

    assert folders == [], "python tests/hosts/rewrite.py --pack makes one file of each"


@cache
def tree_of(name: str) -> Tree:
    return read(str(HOSTS / f"{name}.machine"))


def about(name: str) -> bytes:
    """Return a machine's about.txt."""
    text = tree_of(name).entries["about.txt"]
    assert isinstance(text, bytes)
    return text


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_is_labelled_recorded_or_composed(name: str) -> None:
    assert (b"Composed" in about(name)) != (b"Recorded" in about(name))
    assert b"Recorded in part" not in about(name) or b"https://" in about(name)


def test_the_documents_count_the_recorded_machines() -> None:
    recorded = sum(b"Recorded" in about(name) for name in NAMES)
    page = (HOSTS / "README.md").read_text(encoding="utf-8")

    assert recorded >= 20
    assert f"{recorded} were recorded, {len(NAMES) - recorded} composed" in page


@pytest.mark.parametrize("name", NAMES)
def test_an_archive_is_written_as_snapshot_writes_it(name: str) -> None:
    path = HOSTS / f"{name}.machine"

    assert tree_of(name).text() == path.read_bytes(), "python tests/hosts/rewrite.py --pack"


@pytest.mark.parametrize("name", NAMES)
def test_links_stay_inside(name: str) -> None:
    outside = [
        path
        for path, target in tree_of(name).entries.items()
        if isinstance(target, str)
        and not posixpath.normpath(posixpath.join(posixpath.dirname(path), target)).startswith("root/")
    ]

    assert outside == []


@pytest.mark.parametrize("name", NAMES)
def test_files_are_small(name: str) -> None:
    contents = [entry for entry in tree_of(name).entries.values() if isinstance(entry, bytes)]

    assert max(map(len, contents)) < LARGEST_FILE
