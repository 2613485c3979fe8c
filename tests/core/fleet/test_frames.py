"""Whatever happens to frames on their way: a report comes whole, or its loss is told."""

from __future__ import annotations

import binascii
import random
import zlib
from itertools import zip_longest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import CONTAINER, MPIRUN, SRUN, collected, cut, envelope_of

from mlbackends.fleet.frames import LONGEST_LINE, REPORT_LIMIT, Assembly, frames
from mlbackends.model.fleet import Envelope, Status

NODES = [f"node{number:03}" for number in range(5)]


def text(seed: int, size: int = 3000) -> str:
    """Text that zlib cannot make short."""
    return binascii.hexlify(random.Random(seed).randbytes(size)).decode()


LINES = {
    node: [line.encode() for line in frames(envelope_of(node, text(at), number=at))]
    for at, node in enumerate(NODES)
}
ALL = [line for lines in LINES.values() for line in lines]


def test_lines_are_short() -> None:
    assert max(map(len, ALL)) <= LONGEST_LINE < SRUN
    assert len(LINES[NODES[0]]) > 3


def test_a_long_or_odd_name_is_whole_in_the_envelope() -> None:
    name = "é" * 40 + "x" * 200
    lines = [line.encode() for line in frames(Envelope(node=name))]

    assert max(map(len, lines)) <= LONGEST_LINE
    (envelope,) = (envelope for line in lines for envelope in Assembly().add(line))
    assert envelope.node == name


@settings(max_examples=25)
@given(data=st.data())
def test_shuffled_repeated_and_lost_lines_mix_nothing_up(data: st.DataObject) -> None:
    lines = data.draw(st.permutations(ALL + data.draw(st.lists(st.sampled_from(ALL), max_size=20))))
    lost = data.draw(st.sets(st.sampled_from(ALL), max_size=3))
    collection = collected(line for line in lines if line not in lost)

    whole = {node for node in NODES if not lost & {*LINES[node]}}
    begun = {node for node in NODES if {*LINES[node]} - lost}
    assert {*collection.nodes} == whole
    assert {*collection.silent} == begun - whole
    assert all(status is Status.GARBLED for status, _ in collection.silent.values())
    assert not collection.repeated


@settings(max_examples=25)
@given(size=st.integers(50, 2000), seed=st.integers(0, 1 << 30), label=st.booleans())
def test_frames_that_are_cut_anywhere_are_whole_or_their_loss_is_told(
    size: int, seed: int, label: bool
) -> None:
    rng = random.Random(seed)
    pieces = {
        node: cut(b"\n".join(lines), size, f"{node}: ".encode() if label else b"")
        for node, lines in LINES.items()
    }
    order = [node for node in NODES for _ in pieces[node]]
    rng.shuffle(order)
    collection = collected(pieces[node].pop(0) for node in order)

    for node, machine in collection.nodes.items():
        sections = {numbers: at for numbers, at in collection.machines.items() if at == machine}
        (numbers,) = sections
        facts = {k: v for at in numbers for k, v in collection.sections[at].facts.items()}
        assert facts["cpu.number"] == NODES.index(node)
    if size >= LONGEST_LINE:
        assert {*collection.nodes} == {*NODES}
    told = collection.garbled["damaged frames"] or collection.silent
    assert len(collection.nodes) == len(NODES) or told


@pytest.mark.parametrize("size", [SRUN, MPIRUN, CONTAINER])
def test_every_transport_lets_them_through(size: int) -> None:
    lines = [piece for frame_lines in LINES.values() for piece in cut(b"\n".join(frame_lines), size)]

    assert {*collected(lines).nodes} == {*NODES}


def test_text_before_between_and_behind_does_no_harm() -> None:
    lines = [b"Warning: permanently added", b"", *ALL, b"x" * 5000, b"[1,0]<stdout>:done"]
    lines += [b"log: " + ALL[0]]

    collection = collected(lines)
    assert {*NODES} <= {*collection.nodes} | {"log"}
    assert not collection.garbled


@settings(max_examples=25)
@given(at=st.integers(0, 5000), value=st.integers(0, 255))
def test_a_changed_byte_never_changes_a_report(at: int, value: int) -> None:
    data = bytearray(b"\n".join(LINES[NODES[1]]))
    at %= len(data)
    is_same = data[at] == value
    data[at] = value
    collection = collected(bytes(data).split(b"\n"))

    if NODES[1] in collection.nodes or not collection.silent:
        return
    assert not is_same
    assert collection.silent or collection.garbled


def test_a_decompression_bomb_is_an_error_of_its_node() -> None:
    packed = zlib.compress(b" " * (REPORT_LIMIT * 3), 9)
    assembly = Assembly()
    found = [envelope for line in framed("bad", packed) for envelope in assembly.add(line)]

    assert [(envelope.node, envelope.status) for envelope in found] == [("bad", Status.ERROR)]
    assert "larger than 8 MiB" in found[0].error


@pytest.mark.parametrize(
    "packed",
    [
        b"no zlib",
        zlib.compress(b"[]"),
        zlib.compress(b"[" * 100_000),
        zlib.compress(b'{"status": 7}'),
    ],
    ids=["no zlib", "a list", "deep", "another type"],
)
def test_what_is_no_envelope_is_said_of_its_node(packed: bytes) -> None:
    found = [envelope for line in framed("bad", packed) for envelope in Assembly().add(line)]

    assert [envelope.node for envelope in found] == ["bad"]
    assert found[0].status in (Status.ERROR, Status.GARBLED)


def framed(node: str, packed: bytes) -> list[bytes]:
    """Return frames of any data, as somebody who means harm writes them."""
    data = binascii.b2a_base64(packed, newline=False)
    pieces = [data[at : at + 500] for at in range(0, len(data), 500)] or [b""]
    lines = []
    for number, piece in enumerate(pieces, 1):
        head = f"{node} {zlib.crc32(packed):08x} {number}/{len(pieces)}"
        check = zlib.crc32(piece, zlib.crc32(head.encode()))
        lines.append(f"BK1 {head} {check:08x} {piece.decode()}".encode())
    return lines


@pytest.mark.parametrize("size", [1024, 4096, 16384])
def test_what_is_cut_at_a_power_of_two_is_cut_between_lines(size: int) -> None:
    nodes = ("a", "node-with-a-longer-name")
    whole = ["".join(f"{frame}\n" for frame in frames(envelope_of(node, text(9, 9000)))) for node in nodes]
    pieces = [[frame[at : at + size] for at in range(0, len(frame), size)] for frame in whole]
    mixed = "".join(piece for both in zip_longest(*pieces, fillvalue="") for piece in both)
    found = collected(mixed.encode().split(b"\n"))
    assert len(found.nodes) == 2
    assert not found.garbled
