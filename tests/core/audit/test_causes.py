"""Changes that have one cause are one, and a list is told record by record."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.audit.causes import causes, joined, records
from mlbackends.model.audit import Severity
from mlbackends.model.difference import Change, Kind

PACKAGE = "packages.distributions."


def changed(name: str, before: Any, after: Any, severity: Severity = Severity.NOTE) -> Change:
    kind = Kind.ADDED if before is None else Kind.REMOVED if after is None else Kind.CHANGED
    return Change(name, kind, before, after, severity)


def test_the_worst_of_a_cause_speaks_for_it_and_of_those_the_shortest_name() -> None:
    found = causes([
        changed("cuda_driver.driver_release", "570.86", "560.35", Severity.WARNING),
        changed("nvidia.devices[0].gsp_firmware", "570.86", "560.35"),
        changed("nvidia.version", "570.86", "560.35", Severity.WARNING),
    ])  # fmt: skip

    (cause,) = found
    assert cause.change.name == "nvidia.version"
    assert cause.others == ("nvidia.devices[0].gsp_firmware", "cuda_driver.driver_release")


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        (changed("cpu.threads", 64, 8), changed("limits.effective_cpus", 64.0, 8.0), 1),
        (changed("cpu.sockets", 2, 1), changed("cpu.dies", 2, 1), 2),
        (changed("cpu.bf16", True, False), changed("cpu.fp16", True, False), 2),
        (changed("x.devices[a].numa_node", 1, 0), changed("x.devices[b].numa_node", 1, 0), 1),
        (changed("mkl.presence", "absent", "found"), changed("tbb.presence", "absent", "found"), 2),
        (changed("torch.version", "2.12.0", "2.13.0"), changed(f"{PACKAGE}torch", "2.12.0", "2.13.0"), 1),
        (changed(f"{PACKAGE}a", "1.2.3", "1.2.4"), changed(f"{PACKAGE}b", "1.2.3", "1.2.4"), 2),
        (changed("a.path", None, "/opt/x"), changed("b.path", "/opt/x", None), 2),
    ],
)  # fmt: skip
def test_values_that_are_equal_by_chance_are_no_cause(first: Change, second: Change, count: int) -> None:
    assert len(causes([first, second])) == count


def test_names_that_differ_by_a_label_are_one() -> None:
    names = [f"nvidia.devices[{number}].driver" for number in range(5)]

    assert joined([*names, "nvidia.version"]) == [
        "nvidia.devices[0, 1, 2 and 2 more].driver",
        "nvidia.version",
    ]


def test_a_record_is_known_by_its_key_and_only_its_other_fields_change() -> None:
    was = [{"level": 1, "type": "data", "ways": 8}, {"level": 4, "type": "unified", "ways": 2}]
    now = [{"level": 1, "type": "data", "ways": 12}]

    first, second = records(changed("cpu.caches", was, now))

    assert first == (Kind.CHANGED, {"level": 1, "type": "data"}, {"ways": 8}, {"ways": 12})
    assert second == (Kind.REMOVED, {"level": 4, "type": "unified"}, {"ways": 2}, {})


def test_records_of_which_several_have_one_key_are_not_compared() -> None:
    was, now = [{"name": "cc"}, {"name": "cc"}], [{"name": "cc", "version": "12"}]

    assert [record.kind for record in records(changed("compilers.compilers", was, now))] == [
        Kind.REMOVED,
        Kind.REMOVED,
        Kind.ADDED,
    ]
