"""The words that every page shares."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.base.reasons import Reason
from mlbackends.model.records import SCHEMA, Presence, ProbeReport, Report
from mlbackends.survey.dotted import undetermined
from mlbackends_cli.report import probes
from mlbackends_cli.text import plain


@pytest.mark.parametrize(
    ("name", "probe", "expected"),
    [
        (
            "cpu",
            ProbeReport(Presence.FOUND, facts={"cores": 1, "threads": 2}),
            "1 core · 2 threads",
        ),
        ("packages", ProbeReport(Presence.FOUND, facts={"count": 1}), "1 package"),
        ("scipy", ProbeReport(Presence.FOUND, version="1.2"), ""),
    ],
)
def test_a_glance_counts_one_thing_in_the_singular_and_leaves_no_gap(
    name: str, probe: ProbeReport, expected: str
) -> None:
    assert probes.glance(name, probe) == expected


def test_a_word_before_a_comma_is_singular_too() -> None:
    limits = ProbeReport(Presence.FOUND, facts={"effective_cpus": 1, "effective_cpus_because": "quota"})

    assert probes.glance("limits", limits) == "1 CPU usable, by the CPU quota"


JOB = "at most 1024 processes · slurm: 8 CPUs, 1 GPU"
KILLS = "above which the kernel kills"
CACHES = [
    {"level": 1, "type": "data", "size_bytes": 49152, "instances": 8, "kind": "performance"},
    {"level": 1, "type": "data", "size_bytes": 32768, "instances": 4, "kind": "efficiency"},
    {"level": 3, "type": "unified", "size_bytes": 26214400, "instances": 1},
]


@pytest.mark.parametrize(
    ("name", "facts", "expected"),
    [
        ("cpu", {"model_name": "Intel(R) Xeon(R) E5", "microarchitecture": "Haswell", "sockets": 2},
         ["Intel Xeon E5 · Haswell", "2 sockets"]),
        ("cpu", {"base_hertz": 3600000000, "max_hertz": 5000000000, "limit_hertz": 2000000000},
         ["3.6 GHz, at most 5 GHz, limited to 2 GHz"]),
        ("cpu", {"current_hertz": 2596144000}, ["2.596 GHz now"]),
        ("cpu", {"caches": CACHES}, ["L1d 8 × 48 KiB + 4 × 32 KiB · L3 25 MiB"]),
        ("cpu", {"hardware_capability": "DEFAULT", "neon": True, "bf16": True}, ["NEON BF16"]),
        ("cpu", {"caches": "none", "cores": "many", "kinds": [3]}, []),
        ("memory", {"total_bytes": 8 << 30, "nodes": [{"total_bytes": 4 << 30}] * 2}, ["8 GiB total",
         "2 NUMA nodes of 4 GiB"]),
        ("memory", {"nodes": [{"total_bytes": 8 << 30}, {"total_bytes": 2 << 30}, {"total_bytes": 0}]},
         ["2 NUMA nodes: 8 GiB, 2 GiB"]),
        ("limits", {"effective_cpus": 2, "effective_cpus_exact": 2.5, "effective_cpus_because": "quota",
         "online_cpus": 16, "effective_memory_bytes": 4 << 30, "effective_memory_because": "memory_limit",
         "process_limit": 1024, "scheduler": "slurm", "scheduler_cpus": 8, "scheduler_gpus": 1},
         [f"2.5 of 16 CPUs usable, by the CPU quota · 4 GiB of memory, {KILLS} · {JOB}"]),
    ],
)  # fmt: skip
def test_a_machine_is_told_in_numbers(name: str, facts: dict[str, Any], expected: list[str]) -> None:
    assert probes.aspects(name, ProbeReport(Presence.FOUND, facts=facts)) == expected


def test_what_the_processor_can_do_is_shown_and_not_what_a_variable_claims() -> None:
    cpu = ProbeReport(Presence.FOUND, facts={"capability": "AVX512", "hardware_capability": "AVX2"})

    assert probes.glance("cpu", cpu) == "AVX2"


@pytest.mark.parametrize("name", ["total_bytes", "max_hertz", "load_seconds", "count"])
def test_a_number_that_no_fraction_holds_is_told_by_its_size(name: str) -> None:
    assert plain.amount(name, 10**400) == "2^1328 or beyond"
    assert plain.amount(name, -(10**400)) == "-2^1328 or beyond"


def test_what_has_no_row_is_part_of_what_strict_names() -> None:
    """A report from elsewhere may have neither a presence nor a reason."""
    mount = ProbeReport(None, reasons=(Reason("not-answering", "/nfs does not answer"),))
    found = {"mkl": ProbeReport(None), "blas": mount, "mpi": mount}
    report = Report(SCHEMA, "", Presence.FOUND, "/", "", 0.0, False, found)

    assert probes.without_row(report) == {
        "mkl": "the report gives no reason",
        "blas": "/nfs does not answer; so also mpi",
    }
    assert undetermined(report) == ["mkl", "blas", "mpi"]
