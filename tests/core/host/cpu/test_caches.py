"""Caches: counted over all CPUs, whatever shares them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlbackends.host.cpu.topology import Kinds, caches

if TYPE_CHECKING:
    from tests.conftest import Machine

    from mlbackends.host.host import Host

CPU = "sys/devices/system/cpu"


def cache(cpu: int, index: int, level: int, kind: str, size: str, shared: str) -> dict[str, str]:
    folder = f"{CPU}/cpu{cpu}/cache/index{index}"
    return {
        f"{folder}/level": str(level),
        f"{folder}/type": kind,
        f"{folder}/size": size,
        f"{folder}/coherency_line_size": "64",
        f"{folder}/ways_of_associativity": "8",
        f"{folder}/shared_cpu_list": shared,
    }


def test_a_cache_that_a_cpu_lacks_is_not_counted_for_it(machine: Machine) -> None:
    files = cache(0, 2, 2, "Unified", "1M", "0") | cache(1, 0, 1, "Data", "32K", "1")
    found = caches(machine(files), (0, 1), [], [])
    assert [(c["level"], c["instances"]) for c in found] == [(1, 1), (2, 1)]


def test_ways_follow_from_sets_and_size_where_they_are_missing(machine: Machine) -> None:
    files = cache(0, 3, 3, "Unified", "32M", "0")
    folder = f"{CPU}/cpu0/cache/index3"
    files[f"{folder}/ways_of_associativity"] = "0"
    for sets, ways in (("32768", 16), ("30000", None)):
        (found,) = caches(machine(files | {f"{folder}/number_of_sets": sets}), (0,), [], [])
        assert found.get("ways") == ways


def test_nonsense_is_left_out(machine: Machine) -> None:
    files = cache(0, 0, 1, "Data", "32K", "0-99999999999")
    files |= cache(0, 1, 1, "Instruction", "huge", "0")
    files |= cache(0, 2, 99, "Unified", "1M", "0")
    files |= cache(0, 3, 3, "Trace", "1M", "0")
    files |= {f"{CPU}/cpu0/cache/index0/ways_of_associativity": "0"}
    assert caches(machine(files), (0,), [], []) == [
        {"level": 1, "type": "data", "size_bytes": 32 << 10, "line_bytes": 64}
    ]


def counts(host: Host, cpus: int, kinds: Kinds) -> list[tuple[object, ...]]:
    found = caches(host, range(cpus), kinds, [])
    names = ("level", "size_bytes", "instances", "shared_by_cpus")
    return [tuple(row.get(name) for name in names) for row in found]


def test_instances_times_sharing_is_the_number_of_cpus(machine: Machine) -> None:
    """The second thread of core 1 is off."""
    files: dict[str, str] = {}
    for cpu, shared in enumerate(("0-1", "0-1", "2")):
        files |= cache(cpu, 0, 1, "Data", "32K", shared)
    host = machine(files)
    assert counts(host, 3, []) == [(1, 32 << 10, 1, 2), (1, 32 << 10, 1, 1)]


def test_cores_of_other_sizes_are_seen_though_no_kinds_are_named(machine: Machine) -> None:
    """As on a hybrid processor in a guest, which has no counters to name them."""
    files: dict[str, str] = {}
    for cpu, (size, ways) in enumerate((("48K", "12"), ("32K", "8"), ("32K", "8"))):
        files |= cache(cpu, 0, 1, "Data", size, str(cpu))
        files[f"{CPU}/cpu{cpu}/cache/index0/ways_of_associativity"] = ways
    found = caches(machine(files), range(3), [], [])
    names = ("size_bytes", "ways", "instances")
    assert [[row[name] for name in names] for row in found] == [[48 << 10, 12, 1], [32 << 10, 8, 2]]


def test_a_sectored_cache_keeps_its_ways(machine: Machine) -> None:
    """Two lines share a tag, as in NetBurst's L2."""
    folder = f"{CPU}/cpu0/cache/index1"
    files = cache(0, 1, 2, "Unified", "1024K", "0")
    files |= {f"{folder}/number_of_sets": "1024", f"{folder}/physical_line_partition": "2"}
    assert caches(machine(files), (0,), [], [])[0]["ways"] == 8


def test_a_map_of_sharing_cpus_does_where_there_is_no_list(machine: Machine) -> None:
    files: dict[str, str] = {}
    for cpu in (0, 1, 40, 41):
        files |= cache(cpu, 2, 2, "Unified", "1M", "")
        files[f"{CPU}/cpu{cpu}/cache/index2/shared_cpu_map"] = "0,3" if cpu < 2 else "300,00000000"
    found = caches(machine(files), (0, 1, 40, 41), [], [])
    assert [(row["instances"], row["shared_by_cpus"]) for row in found] == [(2, 2)]


def test_without_list_and_map_instances_are_not_known(machine: Machine) -> None:
    files = cache(0, 2, 2, "Unified", "1M", "") | cache(1, 2, 2, "Unified", "1M", "")
    assert counts(machine(files), 2, []) == [(2, 1 << 20, None, None)]


def test_lists_that_contradict_each_other_are_not_counted(machine: Machine) -> None:
    files = cache(0, 2, 2, "Unified", "1M", "0-1") | cache(2, 2, 2, "Unified", "1M", "1-2")
    assert counts(machine(files), 3, []) == [(2, 1 << 20, None, None)]


def test_ways_that_contradict_the_size_are_left_out(machine: Machine) -> None:
    sets = f"{CPU}/cpu0/cache/index0/number_of_sets"
    files = cache(0, 0, 1, "Data", "32K", "0")
    assert caches(machine(files | {sets: "64"}), (0,), [], [])[0]["ways"] == 8
    assert "ways" not in caches(machine(files | {sets: "256"}), (0,), [], [])[0]
    no_sets = cache(0, 0, 1, "Data", "48K", "0")
    no_sets[f"{CPU}/cpu0/cache/index0/ways_of_associativity"] = "7"
    assert "ways" not in caches(machine(no_sets), (0,), [], [])[0]
