"""Reports taken in one after another, and parts of a fleet put together."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import envelope_of, report_of

from mlbackends.fleet import collection as collections
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.groups import fleet_of
from mlbackends.model.fleet import Envelope, Fleet, Status
from mlbackends_cli.fleet.text import left_out


def taken(*envelopes: Envelope, expected: tuple[str, ...] | None = None) -> Collection:
    collection = Collection(expected)
    for envelope in envelopes:
        collection.add(envelope)
    return collection


def raw(node: str, text: bytes) -> Envelope:
    return Envelope(node=node, report=msgspec.Raw(text))


def test_memory_is_of_configurations_and_not_of_nodes() -> None:
    collection = taken(*(envelope_of(f"n{at}", kind=at % 3) for at in range(300)))

    assert len(collection.nodes) == 300
    assert len(collection.machines) == 3
    assert len(collection.sections) == 4  # three of the CPU, and what every report says of itself


def test_a_second_report_is_counted_and_the_first_is_taken() -> None:
    collection = taken(envelope_of("n1", x=1), envelope_of("n1", x=2), envelope_of("n1", x=1))

    assert collection.repeated == {"n1": 2}
    assert len(collection.machines) == 1


def test_a_report_comes_before_a_failure_whichever_came_first() -> None:
    failed = Envelope(node="n1", status=Status.TIMEOUT, error="60 s")

    for order in ((failed, envelope_of("n1")), (envelope_of("n1"), failed)):
        collection = taken(*order)
        assert [*collection.nodes] == ["n1"] and not collection.silent
        assert collection.flagged == {"n1": "60 s"} and not collection.repeated


def test_who_is_missing_has_a_name() -> None:
    collection = taken(envelope_of("n1"), expected=("n1", "n2", "n3"))

    assert collection.all_silent() == {(Status.MISSING, "it sent nothing"): ["n2", "n3"]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"schema": "backends.report/9"}', "its schema is 'backends.report/9'"),
        (b"[]", "Expected object"),
        (b'{"schema": "backends.report/1"}', "no probes"),
        (b'{"schema": "backends.report/1", "probes": {"cpu": 7}}', "Expected object"),
        (b'{"schema": "backends.report/1", "probes": {"cpu": {"presence": "odd"}}}', "Invalid enum"),
        (report_of(x=0).replace(b'"x":0', b'"x":' + b"[" * 60 + b"]" * 60), "nested more than"),
        (report_of(x=0).replace(b'"x":0', b'"x":' + b"[" * 100_000 + b"]" * 100_000), "nested too deep"),
        (b'{"schema": "backends.fleet/1"}', "its schema is 'backends.fleet/1'"),
        (msgspec.json.encode({"schema": "backends.report/1",
         "probes": {f"p{n}": {"presence": None} for n in range(501)}}), "501 probes"),
        (report_of("", **{f"k{at}": at for at in range(100_001)}), "more than 100,000 facts"),
    ],
    ids=["version", "list", "empty", "number", "presence", "deep", "deeper", "fleet", "probes", "facts"],
)  # fmt: skip
def test_a_hostile_report_is_an_error_of_its_node_alone(text: bytes, why: str) -> None:
    collection = taken(raw("bad", text), envelope_of("good"))

    assert [*collection.nodes] == ["good"]
    status, error = collection.silent["bad"]
    assert status is Status.ERROR
    assert why.lower() in error.lower()


def test_names_that_would_do_harm_are_made_harmless() -> None:
    collection = taken(envelope_of("a\x1b[31m\nb" + "x" * 400), envelope_of(""))

    odd, unnamed = collection.nodes
    assert odd.startswith("a??31m?b") and len(odd) == 255
    assert unnamed == "unnamed-1"


def test_a_fact_that_each_node_has_otherwise_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collections, "MOST_VALUES", 20)
    collection = taken(*(envelope_of(f"n{at}", own=f"id {at}", kind=at % 2) for at in range(100)))

    assert collection.varying == {"cpu.own"}
    assert len(collection.machines) == 2
    assert len(collection.sections) == 3
    fleet = fleet_of(collection)
    assert fleet.varying == ("cpu.own",)
    assert left_out(fleet) == [
        "not compared, more than 1,000 values, so each node is presumed to have its own: cpu.own"
    ]


def answer(fleet: Fleet) -> Any:
    """Return what does not depend on the order in which nodes came."""
    return (
        sorted(
            (configuration.fingerprint, sorted(configuration.nodes)) for configuration in fleet.configurations
        ),
        [
            (
                kind.nodes,
                kind.alike,
                [(deviation.nodes, deviation.differences) for deviation in kind.deviations],
            )
            for kind in fleet.kinds
        ],
        sorted((node.status, node.error, sorted(node.nodes)) for node in fleet.silent),
        fleet.varying,
        fleet.expected and sorted(fleet.expected),  # type: ignore[arg-type]
    )


@settings(max_examples=25)
@given(seed=st.integers(0, 1 << 30), parts=st.integers(1, 5))
def test_parts_of_a_fleet_come_to_the_same_as_all_of_it(seed: int, parts: int) -> None:
    rng = random.Random(seed)
    envelopes = [
        envelope_of(f"n{at}", driver=rng.choice("aaaab"), size=rng.choice([1, 1, 2]))
        if rng.random() < 0.9
        else Envelope(node=f"n{at}", status=Status.GARBLED, error="cut")
        for at in range(30)
    ]
    expected = tuple(f"n{at}" for at in range(33))
    whole = fleet_of(taken(*envelopes, expected=expected))
    pieces = [taken(*envelopes[at::parts], expected=expected) for at in range(parts)]
    merged = Collection()
    for piece in pieces:
        saved = msgspec.json.encode(fleet_of(piece))
        merged.merge(msgspec.json.decode(saved, type=Fleet))

    assert answer(fleet_of(merged)) == answer(whole)


def test_the_order_of_reports_is_nothing() -> None:
    envelopes = [envelope_of(f"n{at}", own=at, kind=at % 3) for at in range(60)]
    shuffled = random.Random(1).sample(envelopes, k=len(envelopes))

    assert answer(fleet_of(taken(*envelopes))) == answer(fleet_of(taken(*shuffled)))


def test_a_part_that_is_not_whole_is_refused() -> None:
    fleet = fleet_of(taken(envelope_of("n1")))
    broken = msgspec.structs.replace(fleet, sections={})

    with pytest.raises(ValueError, match="no section"):
        Collection().merge(broken)
