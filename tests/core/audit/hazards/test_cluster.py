"""Hazards of nodes in clusters, on reports with one thing changed."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.audit.runner import examine
from mlbackends.model.audit import Severity, Status
from mlbackends.model.records import SCHEMA, Device, Presence, ProbeReport, Report


def report(**facts: dict[str, Any]) -> Report:
    probes = {name: ProbeReport(Presence.FOUND, facts=own) for name, own in facts.items()}
    return Report(SCHEMA, "test", Presence.FOUND, "/", "2026-01-01T00:00:00Z", 0.0, False, probes)


def severities(code: str, found: Report) -> list[Severity]:
    return [check.severity for check in examine(found, only=(code,)).checks if check.status is Status.FAILED]


def port(name: str, state: str = "ACTIVE", gigabits: int = 400, **other: Any) -> dict[str, Any]:
    row = {"name": name, "state": state, "bits_per_second": gigabits * 10**9, "link_layer": "InfiniBand"}
    return {**row, "card": "MT4129", "board": "MT_0000000838", "lanes": 4, **other}


WARNING, NOTE = Severity.WARNING, Severity.NOTE


@pytest.mark.parametrize(
    ("code", "ports", "expected"),
    [
        ("rdma-port-down", [port("a/1"), port("b/1")], []),
        ("rdma-port-down", [port("a/1"), port("b/1", "DOWN", physical_state="Polling")], [NOTE]),
        ("rdma-port-down", [port("a/1"), port("b/1", "DOWN", physical_state="Disabled")], []),
        ("rdma-port-down", [port("a/1", "INIT")], [WARNING]),
        ("rdma-port-down", [{"name": "efa_0/1"}], []),
        ("rdma-port-slow", [port("a/1"), port("b/1", gigabits=200, lanes=2)], []),
        ("rdma-port-slow", [port("a/1", gigabits=100, lanes=1)], [WARNING]),
        ("rdma-port-slow", [port("a/1", gigabits=25, lanes=1, link_layer="Ethernet")], []),
    ],
)
def test_ports_are_compared_with_those_of_their_kind(
    code: str, ports: list[dict[str, Any]], expected: list[Severity]
) -> None:
    assert severities(code, report(network={"rdma_ports": ports})) == expected


@pytest.mark.parametrize(
    ("counters", "expected"),
    [({"symbol_error": 9}, []), ({"symbol_error": 10}, [NOTE]), ({"out_of_sequence": 99999}, [])],
)
def test_counters_have_the_thresholds_of_ibqueryerrors(
    counters: dict[str, int], expected: list[Severity]
) -> None:
    found = report(network={"rdma_ports": [port("a/1")], "rdma_errors": [{"name": "a/1", **counters}]})
    assert severities("rdma-port-errors", found) == expected


def node(gpus: int, *, promised: int = 8, **slurm: Any) -> Report:
    return report(
        slurm={"configuration": "/etc/slurm/slurm.conf", "gpus": promised, **slurm},
        nvidia={"pci_gpu_count": gpus},
        rocm={},
        xpu={},
        memory={"total_bytes": 515_000 << 20},
        limits={"online_cpus": 64},
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (node(8), []),
        (node(7), [WARNING]),
        (node(8, promised=4), []),
        (node(8, real_memory_bytes=515_000 << 20, cpus=64), []),
        (node(8, real_memory_bytes=515_001 << 20, cpus=128), [WARNING, WARNING]),
        (node(8, gres_files=[{"name": "gpu", "count": 8, "missing": ["/dev/nvidia7"]}]), [WARNING]),
    ],
)
def test_slurm_promises_what_the_node_has(found: Report, expected: list[Severity]) -> None:
    assert severities("slurm-node-differs", found) == expected


def test_gpus_that_no_probe_looked_for_are_not_missing() -> None:
    found = node(8)
    del found.probes["rocm"], found.probes["nvidia"]
    assert severities("slurm-node-differs", found) == []


def test_gpus_in_parts_are_not_counted() -> None:
    found = node(8, promised=56)
    found.probes["nvidia"] = ProbeReport(
        Presence.FOUND, devices=(Device("cuda", 0, facts={"mig": True}),), facts={"pci_gpu_count": 8}
    )
    assert severities("slurm-node-differs", found) == []


@pytest.mark.parametrize(
    ("options", "kind", "expected"),
    [
        ("rw soft", "nfs4", [NOTE]),
        ("ro soft", "nfs4", []),
        ("rw softerr", "nfs4", []),
        ("rw hard", "nfs", []),
        ("rw soft", "cifs", []),
    ],
)
@pytest.mark.parametrize("fact", ["mounted", "automounted"])
def test_only_a_writable_nfs_may_lose_data(
    fact: str, options: str, kind: str, expected: list[Severity]
) -> None:
    found = report(mounts={fact: [{"at": "/x", "type": kind, "options": options.split()}]}, host={})
    assert severities("nfs-soft-mount", found) == expected


@pytest.mark.parametrize(
    ("clock", "slurm", "expected"),
    [
        ({"is_synchronised": False}, {}, []),
        ({"is_synchronised": False}, {"configuration": "/etc/slurm/slurm.conf"}, [WARNING]),
        ({"is_synchronised": True}, {}, []),
    ],
)
def test_a_clock_that_drifts_matters_in_a_cluster(
    clock: dict[str, Any], slurm: dict[str, Any], expected: list[Severity]
) -> None:
    found = report(clock=clock, slurm=slurm, limits={}, host={"platform": "linux"})
    assert severities("clock-not-synchronised", found) == expected


@pytest.mark.parametrize(("source", "expected"), [("hpet", [WARNING]), ("tsc", []), ("kvm-clock", [])])
def test_a_slow_clock_source(source: str, expected: list[Severity]) -> None:
    found = report(clock={"source": source}, host={"machine": "x86_64"})
    assert severities("clock-source-slow", found) == expected
