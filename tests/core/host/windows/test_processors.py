"""What the calls fill in is decoded as winnt.h lays it out; the bytes are written here by hand."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from mlbackends.host.windows.processors import allowed_cpus, cpuid_leaves, page_files, topology

if struct.calcsize("P") != 8:
    pytest.skip("the layouts are those of 64 bits", allow_module_level=True)

HALVES = [{"group": 0, "cpus": "0-47"}, {"group": 1, "cpus": "64-111"}]
MASK = (1 << 48) - 1


def record(relation: int, body: bytes) -> bytes:
    return struct.pack("<II", relation, 8 + len(body)) + body


def affinities(*rows: tuple[int, int]) -> bytes:
    """Return a count and a GROUP_AFFINITY for each group and mask."""
    packed = b"".join(struct.pack("<QH6x", mask, group) for group, mask in rows)
    return struct.pack("<H", len(rows)) + packed


def processor(relation: int, efficiency: int, *rows: tuple[int, int]) -> bytes:
    return record(relation, struct.pack("<BB20x", 0, efficiency) + affinities(*rows))


def test_a_machine_of_two_groups_is_decoded() -> None:
    def group_info(mask: int) -> bytes:
        count = mask.bit_count()
        return struct.pack("<BB38xQ", count, count, mask)

    data = b"".join([
        processor(0, 1, (0, 0b11)),
        processor(0, 0, (1, 0b100)),
        processor(3, 0, (0, 0b11), (1, 0b100)),
        processor(5, 0, (0, 0b11)),
        record(1, struct.pack("<I18x", 1) + affinities((1, 0b100))),
        record(1, struct.pack("<I18x", 1) + affinities((0, 0b11), (1, 0b100))),
        record(2, struct.pack("<BBHII18x", 1, 8, 64, 32768, 2) + affinities((0, 0b11))),
        record(2, struct.pack("<BBHII18x", 3, 0xFF, 64, 1 << 25, 0) + affinities((0, 0b11))),
        record(2, struct.pack("<BBHII18x", 1, 8, 64, 32768, 3) + affinities((0, 0b11))),
        record(4, struct.pack("<HH20x", 2, 2) + group_info(0b11) + group_info(0b100)),
        record(9, b"\0" * 24),
    ])  # fmt: skip

    found = topology(data)

    assert found["cores"] == [
        {"cpus": "0-1", "efficiency_class": 1},
        {"cpus": "66", "efficiency_class": 0},
    ]
    assert (found["packages"], found["dies"]) == (["0-1,66"], ["0-1"])
    assert found["nodes"] == [{"node": 1, "cpus": "0-1,66"}]
    # A trace cache is none that torch knows, and a fully associative one has no number of ways.
    assert found["caches"] == [
        {
            "level": 1,
            "size_bytes": 32768,
            "line_bytes": 64,
            "ways": 8,
            "type": "data",
            "cpus": "0-1",
        },
        {"level": 3, "size_bytes": 1 << 25, "line_bytes": 64, "type": "unified", "cpus": "0-1"},
    ]
    assert found["groups"] == [{"group": 0, "cpus": "0-1"}, {"group": 1, "cpus": "66"}]


def test_a_record_that_says_it_has_no_size_ends_the_list() -> None:
    assert topology(processor(0, 0, (0, 1)) + bytes(64))["cores"] == [{"cpus": "0", "efficiency_class": 0}]


@pytest.mark.parametrize(
    ("affinity", "build", "count"),
    [
        ({"groups": [1], "mask": MASK, "system_mask": MASK}, 17763, 48),
        ({"groups": [1], "mask": MASK, "system_mask": MASK}, 22631, 96),
        ({"groups": [0], "mask": 0b1010, "system_mask": MASK}, 22631, 2),
        ({"groups": [0, 1], "mask": 0, "system_mask": 0}, 17763, 96),
        ({"groups": [0, 1], "mask": 0, "system_mask": 0}, 26100, 96),
    ],
    ids=["one group before 2022", "all since", "bound", "threads in both", "both since"],
)
def test_a_process_may_run_in_its_own_group_or_in_all(
    affinity: dict[str, Any], build: int, count: int
) -> None:
    assert len(allowed_cpus(affinity, HALVES, build)) == count


def test_the_cpus_of_a_second_group_have_its_numbers() -> None:
    affinity = {"groups": [1], "mask": 0b11, "system_mask": MASK}

    assert allowed_cpus(affinity, HALVES, 22631) == (64, 65)
    assert allowed_cpus({"groups": [], "mask": 1, "system_mask": 1}, [], 0) == (0,)


def test_no_leaf_is_read_that_the_processor_does_not_have() -> None:
    asked = []

    def read(leaf: int, subleaf: int) -> list[int]:
        asked.append((leaf, subleaf))
        return {0: [1, 0, 0, 0], 0x80000000: [0x80000001, 0, 0, 0]}.get(leaf, [0, 0, 0, 0])

    assert set(cpuid_leaves(read)) == {"0", "1", "80000000", "80000001"}
    assert asked == [(0, 0), (1, 0), (0x80000000, 0), (0x80000001, 0)]


def test_page_files_are_read_by_the_pointers_between_them() -> None:
    address = 0x7000
    first, second = ("\\??\\C:\\pagefile.sys".encode("utf-16-le"), "D:\\p.sys".encode("utf-16-le"))
    head = struct.pack("<IIIIHHIQ", 80, 1000, 10, 20, len(first), len(first), 0, address + 32)
    one = (head + first).ljust(80, b"\0")
    head = struct.pack("<IIIIHHIQ", 0, 500, 5, 5, len(second), len(second), 0, address + 112)

    assert page_files(one + head + second, address) == [
        {"path": "C:/pagefile.sys", "pages": 1000, "used": 10},
        {"path": "D:/p.sys", "pages": 500, "used": 5},
    ]
    assert page_files(b"", address) == []
