"""A fleet read in parts by workers is the fleet that one reader finds."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from streams import envelope_of

from mlbackends.base.errors import BadInput
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.frames import frames
from mlbackends.fleet.groups import fleet_of
from mlbackends.fleet.judging import Finder
from mlbackends.fleet.parts import parts_of, read_on
from mlbackends.fleet.sources import sources_of, taken
from mlbackends.model.fleet import Envelope, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


def each(where: str, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Call in any order, as workers that are done in any order."""
    places = [*range(len(items))]
    random.Random(where).shuffle(places)
    for place in places:
        yield place, function(items[place])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder of nodes: one differs, one file is empty, one was late, two say what failed."""
    for at in range(20):
        lines = [*frames(envelope_of(f"n{at:02}", kind="odd" if at == 7 else "usual"))]
        (tmp_path / f"n{at:02}.frame").write_text("\n".join(lines[: 0 if at == 3 else None]))
    late = Envelope(node="n20", status=Status.TIMEOUT, error="60 s")
    (tmp_path / "n20.json").write_bytes(msgspec.json.encode(late))
    check = {"code": "c", "title": "t", "severity": "error", "status": "failed", "message": "m"}
    head = {"schema": "backends.outcome/1", "tool": "", "kind": "audit", "title": ""}
    failed = msgspec.json.encode(head | {"subject": "", "created": "", "checks": [check]})
    for node in ("n21", "n22"):
        record = Envelope(node=node, report=msgspec.Raw(failed))
        (tmp_path / f"{node}.json").write_bytes(msgspec.json.encode(record))
    return tmp_path


@pytest.mark.parametrize("files", [1, 3, 1000])
@pytest.mark.parametrize("where", ["a", "b"])
def test_the_parts_come_to_what_one_reader_finds(folder: Path, files: int, where: str) -> None:
    alone, together = Collection(), Collection()
    finder = Finder(looks=True)
    [*taken(sources_of([str(folder)]), alone, finder.visit)]
    parts = parts_of([str(folder)], part_files=files)
    done = [*read_on(each, where, parts, together, looks=True)]

    found, wanted = fleet_of(together), fleet_of(alone)
    assert found.kinds == wanted.kinds
    assert [(configuration.fingerprint, configuration.nodes) for configuration in found.configurations] == [
        (configuration.fingerprint, configuration.nodes) for configuration in wanted.configurations
    ]
    assert {node.nodes: node.error for node in found.silent} == {
        ("n03",): "there is no report in its file", ("n20",): "60 s",
    }  # fmt: skip
    nodes = {node for hazard in finder.hazards for node in hazard.nodes}
    assert nodes == {node for hazard in together.hazards for node in hazard.nodes} == {"n21", "n22"}
    assert done[-1] == (len(parts), len(parts))


def test_the_first_report_of_a_node_is_taken_whichever_worker_is_first(tmp_path: Path) -> None:
    for at in range(4):
        lines = frames(envelope_of("n1", kind=at))
        (tmp_path / f"{at}.frame").write_text("\n".join(lines))
    for where in "abcd":
        collection = Collection()
        [*read_on(each, where, parts_of([str(tmp_path)], 1), collection, looks=False)]
        fleet = fleet_of(collection)
        (only,) = fleet.configurations
        assert fleet.sections["cpu"][only.sections["cpu"]]["cpu.kind"] == 0
        assert collection.repeated == {"n1": 3}


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_a_link_to_nothing_costs_its_node_alone(folder: Path) -> None:
    (folder / "n23.frame").symlink_to("nowhere")
    alone, together = Collection(), Collection()
    [*taken(sources_of([str(folder)]), alone)]
    [*read_on(each, "a", parts_of([str(folder)]), together, looks=False)]
    assert "n23" in alone.silent and together.silent == alone.silent
    assert {*together.nodes} == {*alone.nodes}


def test_what_workers_cannot_read_is_refused(tmp_path: Path) -> None:
    for path in ("-", str(tmp_path / "none")):
        with pytest.raises(BadInput):
            parts_of([path])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFO among its files")
def test_a_pipe_is_nothing_for_workers(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "n1.frame")
    with pytest.raises(BadInput, match="cannot read a pipe"):
        parts_of([str(tmp_path / "n1.frame")])


def test_a_file_named_beside_others_is_told_where_it_holds_no_report(tmp_path: Path) -> None:
    (tmp_path / "n1.frame").write_text("\n".join(frames(envelope_of("n1"))))
    (tmp_path / "n2.frame").write_text("")
    collection = Collection()
    (tmp_path / "n3.frame").write_text('{"lscpu": []}')
    names = [str(tmp_path / f"n{number}.frame") for number in (1, 2, 3)]
    [*taken(sources_of(names), collection)]
    why = "there is no report in its file"
    assert collection.silent == {
        "n2": (Status.ERROR, why),
        "n3": (Status.ERROR, f"{why}, but: the JSON of `lscpu --json`"),
    }
