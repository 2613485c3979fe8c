"""The reports of wrong numbers: each covers its own problem, and none of the neighbours that are right."""

from __future__ import annotations

import re

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from mlbackends.known_wrong import Entry, Neighbour, Place, attention_values, covers, entries, is_there
from mlbackends.model.records import Device
from mlbackends.sdpa.problem_text import parse

ENTRIES = {entry.name: entry for entry in entries()}
each = pytest.mark.parametrize("name", ENTRIES)


def inside(clauses: str) -> str:
    """Return a version that meets the clauses, one of those that they name or near one of these."""
    near: list[str] = []
    for name in re.findall(r"\d[\w.]*", clauses):
        first, *rest = Version(name).release
        before = [f"{first}.{rest[0] - 1}.9"] if rest and rest[0] else [f"{first - 1}.99"]
        near += [name, f"{name}.1", f"{name}.0.1", *before]
        near += [".".join(map(str, (first, *rest[:-1], rest[-1] - 1)))] if rest and rest[-1] else []
    return next(version for version in near if SpecifierSet(clauses).contains(version, prereleases=True))


def is_covered(entry: Entry, neighbour: Neighbour) -> bool:
    """Return whether an entry covers its own problem, changed as a neighbour says."""
    versions = {name: inside(clauses) for name, clauses in entry.versions.items()} | neighbour.versions
    chips = frozenset({neighbour.chip} if neighbour.chip else entry.chips[:1])
    system = entry.systems[0] if entry.systems else "linux"
    place = Place(neighbour.platform or entry.platforms[0], versions, chips, system)
    values = neighbour.values if neighbour.problem else entry.wrong.values | neighbour.values
    if problem := neighbour.problem or entry.wrong.problem:
        (wording,) = parse(problem)
        values = attention_values(wording.problem(Device(place.platform, 0))) | values
    takes_backend = not entry.backends or (neighbour.backend or entry.backends[0]) in entry.backends
    return takes_backend and is_there(entry, place) and covers(entry, values)


@each
def test_a_report_covers_its_own_problem(name: str) -> None:
    assert is_covered(ENTRIES[name], Neighbour())


@each
def test_a_report_covers_no_neighbour(name: str) -> None:
    entry = ENTRIES[name]

    assert entry.right
    assert not [neighbour for neighbour in entry.right if is_covered(entry, neighbour)]


@each
def test_a_report_is_open_or_says_what_is_right(name: str) -> None:
    entry = ENTRIES[name]

    assert entry.sources[0].startswith("https://") and entry.source.rpartition("#")[2] in entry.sources[0]
    assert entry.versions and entry.instead
    assert bool(entry.where) or entry.unpredictable
    assert re.fullmatch(r"[A-Z].{10,88}[^.]", entry.title)


def test_the_ledger_has_at_least_sixty_reports_and_half_are_not_attention() -> None:
    attention = [entry for entry in ENTRIES.values() if entry.operation == "attention"]

    assert len(ENTRIES) >= 60
    assert len(attention) <= len(ENTRIES) / 2
    assert len({source for entry in ENTRIES.values() for source in entry.sources[:1]}) == len(ENTRIES)


def test_titles_go_on_a_sentence() -> None:
    sentences = {entry.name: entry.in_a_sentence for entry in entries()}
    assert sentences["pytorch-195910"].startswith("a causal mask")
    assert sentences["numpy-24903"].startswith("Cooper Lake")
    assert sentences["numpy-29164"].startswith("transposed")
