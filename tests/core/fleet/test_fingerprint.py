"""Equal machines have equal fingerprints, and unlike machines have not."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.audit.canonical import Canonical
from mlbackends.base.reasons import Reason
from mlbackends.fleet.fingerprint import VERSION, canonical_facts, fingerprints, rounded, whole
from mlbackends.model.records import SCHEMA, Device, Library, Presence, ProbeReport, Report

FOUND = Presence.FOUND


def report(**probes: ProbeReport) -> Report:
    return Report(SCHEMA, "backends 0", FOUND, "/", "", 0.0, False, probes)


def gpu(index: int, uuid: str = "", **facts: Any) -> Device:
    return Device("cuda", index, "NVIDIA H100", uuid=uuid, facts={"max_pcie_width": 16} | facts)


def facts(name: str, prefix: str = "", **fields: Any) -> dict[str, Any]:
    return canonical_facts(name, ProbeReport(FOUND, **fields), Canonical(prefix, FOUND))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"duration_seconds": 0.1}, {"duration_seconds": 0.2}),
        ({"devices": (gpu(0), gpu(1, x=1))}, {"devices": (gpu(0, x=1), gpu(1))}),
        ({"devices": (gpu(0, "GPU-1"),)}, {"devices": (gpu(0, "GPU-2"),)}),
        ({"facts": {"list": ["b", "a"]}}, {"facts": {"list": ["a", "b"]}}),
        ({"facts": {"of": "redacted-3"}}, {"facts": {"of": "redacted-12"}}),
        ({"facts": {"of": "/home/ada/x"}}, {"facts": {"of": "/home/bob/x"}}),
    ],
    ids=["duration", "order of devices", "identity", "order of a list", "redaction", "home"],
)
def test_what_no_machine_is_does_not_count(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = (report(nvidia=ProbeReport(FOUND, **parts)) for parts in (one, other))

    assert fingerprints(first) == fingerprints(second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"version": "580.1"}, {"version": "580.2"}),
        ({"devices": (gpu(0), gpu(1))}, {"devices": (gpu(0),)}),
        ({"devices": (gpu(0),)}, {"devices": (gpu(0, max_pcie_width=8),)}),
        ({"warnings": (Reason("it-is-old", "It is old."),)}, {}),
        (
            {"libraries": (Library("x", "/a/x.so", "x", "1", wins=True), Library("x", "/b/x.so", "x", "2"))},
            {"libraries": (Library("x", "/a/x.so", "x", "1"), Library("x", "/b/x.so", "x", "2", wins=True))},
        ),
    ],
    ids=["version", "a GPU less", "a narrow link", "a warning", "another copy wins"],
)  # fmt: skip
def test_what_differs_counts(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = (report(nvidia=ProbeReport(FOUND, **parts)) for parts in (one, other))

    assert fingerprints(first) != fingerprints(second)
    assert whole(fingerprints(first)) != whole(fingerprints(second))


def test_a_declared_identity_and_what_is_volatile_are_left_out() -> None:
    found = facts("host", facts={"host_name": "n1", "uptime_seconds": 3.5, "libc": "glibc"})

    assert found == {"host.presence": "found", "host.libc": "glibc"}


def test_an_environment_is_the_same_wherever_it_lies() -> None:
    folders = ("/opt/conda/envs/a", "/scratch/7/venv")
    reports = (
        report(
            python=ProbeReport(FOUND, facts={"prefix": folder}),
            torch=ProbeReport(FOUND, facts={"location": f"{folder}/lib/torch"}),
        )
        for folder in folders
    )

    one, other = map(fingerprints, reports)
    assert one == other


def test_memory_that_the_kernel_keeps_is_no_difference() -> None:
    one, other = (facts("memory", facts={"total_bytes": n}) for n in (540_000_000_000, 540_000_131_072))

    assert one == other
    assert facts("memory", facts={"total_bytes": 270_000_000_000}) != one


def test_devices_are_counted() -> None:
    found = facts("nvidia", devices=(gpu(0), gpu(1), gpu(2, max_pcie_width=8)))

    assert found["nvidia.devices"] == 3
    assert found["nvidia.devices.max_pcie_width"] == {"16": 2, "8": 1}


def test_a_probe_that_could_not_tell_says_nothing_else() -> None:
    reason = Reason("timed-out", "It took too long.")
    found = facts("nvidia", version="580", reasons=(reason,))

    assert found == {"nvidia.presence": "could not be determined"}


def test_a_fingerprint_says_the_version_of_its_form() -> None:
    found = fingerprints(report(cpu=ProbeReport(FOUND)))

    version, _, digits = found["cpu"].partition(":")
    assert version == str(VERSION)
    assert len(digits) == 16
    assert whole(found).startswith(f"{VERSION}:")


@pytest.mark.parametrize(
    ("number", "result"),
    [(0, 0), (31, 31), (33, 34), (-1000, -992), (0.123, 0.12), (128.0, 128), (True, True)],
)
def test_a_metric_keeps_its_leading_bits(number: float, result: float) -> None:
    assert rounded(number) == result
    assert rounded([{"a": number}]) == [{"a": result}]


def test_a_metric_that_is_no_number_of_a_machine_stays() -> None:
    assert rounded(float("inf")) == float("inf")
    assert rounded(10**400).bit_length() == (10**400).bit_length()
