"""What Slurm, pdsh, clush, mpirun, kubectl and Ansible print, as envelopes."""

from __future__ import annotations

import io
import random
from itertools import zip_longest

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from streams import CONTAINER, MPIRUN, SRUN, collected, cut, envelope_of, report_of

from mlbackends.fleet.frames import REPORT_LIMIT, frames
from mlbackends.fleet.groups import fleet_of
from mlbackends.fleet.reader import lines_of
from mlbackends.model.fleet import Status

LONG = 'a "quoted" \\ text {with} [brackets] ' * 1000


def noise(count: int) -> str:
    """Return text that does not compress."""
    return "".join(random.Random(3).choices("0123456789abcdef", k=count))


def interleaved(*outputs: list[bytes]) -> list[bytes]:
    """Return the lines of several nodes in turn."""
    return [line for row in zip_longest(*outputs) for line in row if line is not None]


@pytest.mark.parametrize(
    ("label", "size", "names"),
    [
        ("{node}: ", 1 << 20, ["node1", "node2"]),  # pdsh, clush
        ("{node}: ", SRUN, ["node1", "node2"]),
        (" {rank}: ", SRUN, ["task-1", "task-2"]),  # srun --label pads the number
        ("[1,{rank}]<stdout>:", MPIRUN, ["rank-1@1", "rank-2@1"]),  # Open MPI 4
        ("[prterun-head-77@1,{rank}]<stdout>: ", MPIRUN, None),  # Open MPI 5
        ("[1,{rank}][{node}:4242]<stdout>: ", MPIRUN, ["node1", "node2"]),
        ("[pod/backends-{rank}/main] ", CONTAINER, ["backends-1", "backends-2"]),
    ],
)
def test_labels_put_the_pieces_of_a_report_together(label: str, size: int, names: list[str] | None) -> None:
    outputs = [
        cut(report_of(LONG, rank=rank), size, label.format(node=f"node{rank}", rank=rank).encode())
        for rank in (1, 2)
    ]
    collection = collected(interleaved(*outputs))

    assert len(collection.nodes) == 2
    assert not collection.silent and not collection.garbled
    assert len(collection.machines) == 2
    assert all(
        section.facts["cpu.text"] == LONG
        for section in collection.sections.values()
        if section.probe == "cpu"
    )
    if names:
        assert [*collection.nodes] == names


TEXTS = (
    "{", "}", "[", '"', "\\", "BK1 ", "n1: ", "n0: {", " {", '{"schema":"backends.', "[1,0]<stdout>: {", "\n",
    "n1 | CHANGED | rc=0 >>", "2026-11-23T17:08:39Z: ", "0: ", "clush: n1: command timeout", "é", "\x1b[34m",
    "| UNREACHABLE! => {",
)  # fmt: skip
LABELS = (
    "{node}: ", "\x1b[34m{node}: \x1b[0m", "{at}: ", "[1,{at}]<stdout>:", "[prterun-head-7@1,{at}]<stdout>: ",
    "[1,{at}][{node}:42]<stdout>: ", "[pod/{node}/main] ",
)  # fmt: skip
NOISE = ("", "hello", "Warning: x", "a {x} b", "not a [record")
WORDS = (
    b"clush: n9: command timeout",
    b"srun: error: n9: task 9: Killed",
    b"srun: job 7 queued",
    b"",
)


@settings(max_examples=100)
@given(seed=st.integers(0, 1 << 30))
@example(seed=12335)
def test_no_report_of_many_nodes_is_lost_mixed_up_or_doubled(seed: int) -> None:
    rng = random.Random(seed)
    template, texts, pieces = rng.choice(LABELS), {}, {}
    for at in range(rng.randint(1, 4)):
        texts[at] = "".join(rng.choices(TEXTS, k=rng.choice([3, 30, 80])))
        envelope = envelope_of(f"n{at}", texts[at], at=at)
        data = msgspec.json.encode(envelope)
        lines = rng.choice([
            cut(data, rng.randint(1, 600)), cut(data, 68), [data],
            msgspec.json.format(data, indent=2).split(b"\n"), [frame.encode() for frame in frames(envelope)],
        ])  # fmt: skip
        noise = [choice.encode() for choice in rng.choices(NOISE, k=rng.randint(0, 2))]
        label = template.format(node=f"n{at}", at=at).encode()
        pieces[at] = [label + line for line in noise + lines]
    order = [at for at, lines in pieces.items() for _ in lines]
    rng.shuffle(order)
    lines = [pieces[at].pop(0) for at in order]
    for word in rng.choices(WORDS, k=rng.randint(0, 3)):
        lines.insert(rng.randint(0, len(lines)), word)
    collection = collected(lines)

    found = [section.facts for section in collection.sections.values() if section.probe == "cpu"]
    assert {record["cpu.at"]: record["cpu.text"] for record in found} == texts
    assert len(found) == len(collection.nodes) == len(texts)
    assert {*collection.silent} <= {"n9"} and {*collection.repeated} <= {"n9"}
    assert not collection.garbled


def test_an_envelope_may_be_cut_where_its_report_begins() -> None:
    data = msgspec.json.encode(envelope_of("n1", "whole"))
    at = data.index(b'{"schema":"backends.report')
    lines = [b"n1: " + data[:at], b"n1: " + data[at:]]

    whole, anew = collected(lines), collected([lines[0], b"n1: " + data])
    assert [*whole.nodes] == ["n1"] and not whole.repeated
    assert [*anew.nodes] == ["n1"]


def test_a_piece_with_words_of_ansible_is_a_piece() -> None:
    data = report_of("a | UNREACHABLE! => {")
    at = data.index(b"| UNREACHABLE")
    collection = collected([b"1: " + data[:at], b"1: " + data[at : at + 19], b"1: " + data[at + 19 :]])

    assert not collection.silent
    (text,) = (
        section.facts["cpu.text"] for section in collection.sections.values() if section.probe == "cpu"
    )
    assert text == "a | UNREACHABLE! => {"


@pytest.mark.parametrize("label", [b"", b"n1: ", b"[1,1]<stdout>:", b"12:00:00 "])
def test_a_report_on_one_line_may_have_the_mark_of_a_frame(label: bytes) -> None:
    collection = collected([label + report_of("a BK1 b", at=1)])

    texts = [section.facts.get("cpu.text") for section in collection.sections.values()]
    assert texts.count("a BK1 b") == 1 and not collection.garbled


@pytest.mark.parametrize("lost", [0, 1, -2, -1])
def test_a_report_without_its_beginning_or_end_is_told(lost: int) -> None:
    outputs = [cut(report_of(LONG[:9000], at=at), 500, f"n{at}: ".encode()) for at in range(2)]
    lines = interleaved(*outputs)
    del lines[lost]
    collection = collected(lines)

    assert {*collection.nodes} | {*collection.silent} == {"n0", "n1"}
    assert [*collection.silent] == [f"n{lost % 2}"]


def test_indented_reports_are_read_behind_labels_and_without() -> None:
    indented = msgspec.json.format(report_of(LONG), indent=2)

    labelled = collected(b"node7: " + line for line in indented.split(b"\n"))
    bare = collected(indented.split(b"\n"))
    assert [*labelled.nodes] == ["node7"]
    assert [*bare.nodes] == ["unnamed-1"]
    assert {section.fingerprint for section in labelled.sections.values()} == {
        section.fingerprint for section in bare.sections.values()
    }


def framed(node: str, label: bytes = b"") -> list[bytes]:
    return [label + line.encode() for line in frames(envelope_of(node))]


def enveloped(node: str) -> bytes:
    return msgspec.json.encode(envelope_of(node))


@pytest.mark.parametrize(
    ("lines", "nodes", "silent"),
    [
        # The label comes before the name in a report, but a bare number is not a name.
        ([*framed("localhost", b"edge1: "), b"edge2: " + enveloped("localhost"),
         b"0: " + enveloped("node3")], ["edge1", "edge2", "node3"], []),
        ([b"[pod/backends-x7/main] " + enveloped("gpu-node-4")], ["gpu-node-4"], []),
        # Frames after a line of Ansible belong to its host.
        ([b"edge7 | CHANGED | rc=0 >>", *framed("localhost"), b"edge8 | CHANGED | rc=0 >>", b"hello"],
         ["edge7"], ["edge8"]),
        ([b"clush: node[3-4,9] (3): exited with exit code 1"], [], ["node3", "node4", "node9"]),
        # Words before a colon that are not nodes.
        ([b"node1: " + report_of(), b"Warning: Permanently added", b"srun: job 7 queued"], ["node1"], []),
        ([*framed("n1", b"INFO: "), *framed("n2", b"INFO: ")], ["n1", "n2"], []),
        # An exit code after a report is not a second one.
        ([*framed("n1"), b"srun: error: n1: task 0: Exited with exit code 3"], ["n1"], []),
        # JSON that is not a record.
        ([b'{"level": "info"}', b"{}", b'{"schema": 7}', b"n1: " + report_of()], ["n1"], []),
    ],
)  # fmt: skip
def test_lines_belong_to_nodes(lines: list[bytes], nodes: list[str], silent: list[str]) -> None:
    collection = collected(lines)

    assert ([*collection.nodes], [*collection.silent]) == (nodes, silent)
    assert not collection.repeated and not collection.garbled


def test_ansible() -> None:
    report = report_of()
    lines = [
        b"node1 | CHANGED | rc=0 >>",
        *msgspec.json.format(report, indent=2).split(b"\n"),
        b"node2 | UNREACHABLE! => {",
        b'    "msg": "Failed to connect to the host via ssh",',
        b'    "unreachable": true',
        b"}",
        b"node3 | FAILED | rc=127 >>",
        b"/bin/sh: backends: not found",
        b"node4 | CHANGED | rc=0 | (stdout) " + report,
    ]
    collection = collected(lines)

    assert [*collection.nodes] == ["node1", "node4"]
    assert {node: status for node, (status, _) in collection.silent.items()} == {
        "node2": Status.UNREACHABLE,
        "node3": Status.ERROR,
    }
    assert "backends: not found" in collection.silent["node3"][1]


@pytest.mark.parametrize(
    ("line", "node", "status"),
    [
        (b"clush: node4: command timeout", "node4", Status.TIMEOUT),
        (b"clush: node4: exited with exit code 134", "node4", Status.ERROR),
        (b"pdsh@head: node4: ssh exited with exit code 255", "node4", Status.UNREACHABLE),
        (b"pdsh@head: node4: command timeout", "node4", Status.TIMEOUT),
        (b"srun: error: node4: task 3: Aborted (core dumped)", "node4", Status.ERROR),
        (b"node4: ssh: connect to host node4 port 22: Connection refused", "node4", Status.UNREACHABLE),
        (b"node4: bash: line 1: backends: command not found", "node4", Status.ERROR),
        (b"slurmstepd-node4: error: execve(): backends: No such file", "node4", Status.ERROR),
        (b"slurmstepd-node4: error: task_g_set_affinity: not permitted", "node4", Status.ERROR),
        (b"\x1b[1;31mnode4 | UNREACHABLE! => {\x1b[0m", "node4", Status.UNREACHABLE),
        (b"fe80::4%eth0: bash: line 1: backends: not found", "fe80::4?eth0", Status.ERROR),
        (b"node4: BK1 node4 9579d12a 1/1 03e3d0ab cut", "node4", Status.GARBLED),
        (b"node4: exit code 124", "node4", Status.TIMEOUT),
        (
            b'node4: Error from server: Get "https://10.0.0.4:10250/x": dial tcp: i/o timeout',
            "node4",
            Status.UNREACHABLE,
        ),
        (b"node4: exit code 139", "node4", Status.ERROR),
        (b"node4: a read timed out", "node4", Status.ERROR),
    ],
)  # fmt: skip
def test_what_a_transport_says_of_a_node_without_a_report(line: bytes, node: str, status: Status) -> None:
    collection = collected([b"node1: " + report_of(), line])

    assert [*collection.nodes] == ["node1"]
    assert {name: status for name, (status, _) in collection.silent.items()} == {node: status}


def test_a_node_that_timed_out_amid_its_report_timed_out() -> None:
    collection = collected([b"node1: " + report_of()[:90], b"clush: node1: command timeout"])

    assert collection.silent["node1"][0] is Status.TIMEOUT


def test_frames_that_were_cut_by_a_limit_are_late() -> None:
    labelled = [b"n1: " + line.encode() for line in frames(envelope_of("x", text=noise(2000)))]
    own = [line.encode() for line in frames(envelope_of("n2", text=noise(2000)))]
    late = [b"clush: n1: command timeout", b"srun: error: n2: task 1: Exited with exit code 124"]
    collection = collected([*labelled[:-1], *own[:-1], *late])

    assert [status for status, _ in collection.silent.values()] == [Status.TIMEOUT] * 2
    assert not collection.repeated


@pytest.mark.parametrize("label", ["2026-11-23T17:08:39Z ", "17:08:39 n1: ", "\ufeff", "user@n1: "])
def test_a_label_that_nobody_knows_loses_no_report_in_silence(label: str) -> None:
    whole = collected([label.encode() + report_of()])
    pieces = collected(cut(report_of(LONG), SRUN, label.encode()))
    indented = msgspec.json.format(report_of(), indent=2).split(b"\n")
    lines = collected(label.encode() + line for line in indented)

    assert [*whole.nodes] == ["unnamed-1"]
    for order in (pieces, lines):
        assert not order.nodes and order.garbled == {"records of unnamed nodes": 1}


@pytest.mark.parametrize("label", ["\x1b[34mnode1: \x1b[0m", "2001:db8::5: "])
def test_colors_and_addresses_are_labels(label: str) -> None:
    collection = collected(cut(report_of(LONG), SRUN, label.encode()))

    assert [*collection.nodes] == ["node1" if "node1" in label else "2001:db8::5"]


def test_a_report_that_is_too_deep_is_an_error_of_its_node() -> None:
    deep = report_of(deep=0).replace(b'"deep":0', b'"deep":' + b"[" * 200_000 + b"]" * 200_000)
    collection = collected([b"n1: " + deep, b"n2: " + report_of()])

    assert [*collection.nodes] == ["n2"]
    assert collection.silent["n1"] == (Status.ERROR, "its report is nested too deep")
    assert not collection.repeated


def test_reports_in_pieces_without_a_checksum_are_counted() -> None:
    collection = collected(
        [
            *cut(report_of(LONG), SRUN, b"n1: "),
            b"n2: " + report_of(),
            *(b"n3: " + line.encode() for line in frames(envelope_of("n3", text=LONG))),
        ]
    )
    fleet = fleet_of(collection)

    assert len(collection.nodes) == 3 and fleet.unchecked == 1
    assert any("no checksum" in note for note in fleet.notes)
    collection.merge(fleet)
    assert collection.unchecked == 2


def test_reports_that_were_cut_without_labels_are_counted() -> None:
    pieces = [cut(report_of(LONG, at=at), SRUN) for at in range(3)]
    collection = collected(interleaved(*pieces))

    assert not collection.nodes
    assert collection.garbled["records of unnamed nodes"]


def test_a_report_that_begins_anew_ends_the_one_before() -> None:
    report = report_of()
    collection = collected([b"n1: " + report[:100], b"n1: " + report])

    assert [*collection.nodes] == ["n1"]
    assert collection.repeated == {"n1": 1}


def test_a_report_that_is_too_large_is_an_error_of_its_node() -> None:
    piece = b"x" * (1 << 20)
    lines = [b'n1: {"schema": "backends.report/1", "x": "']
    lines += [b"n1: " + piece] * ((REPORT_LIMIT >> 20) + 1)
    lines += [b'n1: "}', b"n2: " + report_of()]
    collection = collected(lines)

    assert [*collection.nodes] == ["n2"]
    assert "larger than" in collection.silent["n1"][1]


@settings(max_examples=25)
@given(data=st.binary(max_size=400), size=st.integers(1, 50))
def test_lines_are_those_of_the_file(data: bytes, size: int) -> None:
    class Slow(io.BytesIO):
        def read(self, _: int | None = -1, /) -> bytes:
            return super().read(size)

    found = [*lines_of(Slow(data))]
    wanted = [line.rstrip(b"\r") for line in data.split(b"\n")]
    assert found == (wanted if wanted[-1] or not data else wanted[:-1])[: len(found)]
    assert b"".join(found) == data.replace(b"\n", b"").replace(b"\r", b"") or b"\r" in data


@settings(max_examples=25)
@given(st.lists(st.binary(max_size=80), max_size=20))
def test_nothing_that_a_node_prints_stops_the_reader(lines: list[bytes]) -> None:
    collected([line.replace(b"\n", b"") for line in lines])
    marked = [b"n1: {" + line.replace(b"\n", b"") for line in lines]
    collected([*marked, b"BK1 " + (lines[0] if lines else b"")])
