"""Hazards of limits, memory and processors, on machines that have them and on machines that do not."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from mlbackends.audit.reports import report_of
from mlbackends.audit.runner import examine
from mlbackends.model.audit import Check, Severity, Status

if TYPE_CHECKING:
    from mlbackends.model.records import Report

HOSTS = Path(__file__).resolve().parents[3] / "hosts"


@cache
def report(name: str) -> Report:
    return report_of(str(HOSTS / f"{name}.machine"))


def with_facts(name: str, probe: str, **facts: Any) -> Report:
    """Return a machine's report with other facts of one probe; None takes one away."""
    base = report(name)
    told = {**base.probes[probe].facts, **facts}
    known = {fact: value for fact, value in told.items() if value is not None}
    changed = msgspec.structs.replace(base.probes[probe], facts=known)
    return msgspec.structs.replace(base, probes={**base.probes, probe: changed})


def checks(subject: Report, code: str) -> tuple[Check, ...]:
    return examine(subject, only=(code,)).checks


NODE, DESKTOP = "untuned-slurm-node", "alder-lake-hybrid"
SMALL = "ivy-bridge-desktop"
#: A hazard, a machine, facts of one probe that it has instead, and the status or severity of the check.
CASES: list[tuple[str, str, str, dict[str, Any], Status | Severity]] = [
    # A required fact is missing.
    ("address-space-limit", NODE, "limits", {"address_space_limit_bytes": None}, Status.UNKNOWN),
    ("affinity-one-cpu", NODE, "limits", {"affinity_cpus": None}, Status.UNKNOWN),
    ("cpu-quota-below-threads", NODE, "limits", {"effective_cpus": None}, Status.UNKNOWN),
    ("memory-limit-below-machine", NODE, "memory", {"total_bytes": None}, Status.UNKNOWN),
    ("numa-balancing", NODE, "memory", {"numa_balancing": None}, Status.UNKNOWN),
    ("open-files-limit", NODE, "limits", {"open_files_limit": None}, Status.UNKNOWN),
    ("overcommit-never", NODE, "memory", {"overcommit": None}, Status.UNKNOWN),
    ("thread-limit-low", NODE, "limits", {"threads_expected": None}, Status.UNKNOWN),
    ("transparent-huge-pages", NODE, "memory", {"transparent_huge_pages": None}, Status.UNKNOWN),
    # Values that only look like the hazard.
    *(("cpu-governor", DESKTOP, "cpu", {"governor": "powersave", "scaling_driver": driver},
     Status.PASSED) for driver in ("intel_pstate", "amd-pstate-epp")),
    ("cpu-frequency-capped", DESKTOP, "cpu", {"current_hertz": 400_000_000}, Status.PASSED),
    ("affinity-one-cpu", NODE, "environment", {"variables": {"SLURM_CPUS_PER_TASK": "1"}}, Status.PASSED),
    ("address-space-limit", NODE, "limits", {"address_space_limit_bytes": 1 << 46}, Status.PASSED),
    ("musl-libc", "alpine-container", "packages", {"distributions": {"torch": "2.5.0"}}, Status.PASSED),
    ("hypervisor-hides-avx2", SMALL, "cpu", {"hypervisor": True}, Status.PASSED),
    ("open-files-limit", SMALL, "limits", {"open_files_limit": 1024, "effective_cpus": 8}, Status.PASSED),
    ("open-files-limit", SMALL, "limits", {"open_files_limit": 4096, "effective_cpus": 128}, Status.PASSED),
    (*("open-files-limit", SMALL, "limits"), *({"open_files_limit": None, "unlimited": ["open_files_limit"]},
     Status.PASSED)),
    # Severities.
    ("open-files-limit", SMALL, "limits", {"open_files_limit": 256, "effective_cpus": 4}, Severity.WARNING),
    ("open-files-limit", SMALL, "limits", {"open_files_limit": 1024, "effective_cpus": 64}, Severity.NOTE),
    ("numa-balancing", "epyc-eight-nodes", "memory", {}, Status.PASSED),
    (*("transparent-huge-pages", NODE, "environment"), *({"variables": {"THP_MEM_ALLOC_ENABLE": "1"}},
     Severity.WARNING)),
    ("locked-memory-limit", NODE, "host", {"rdma_link_layers": ["Ethernet"]}, Severity.WARNING),
    ("locked-memory-limit", NODE, "host", {"rdma_link_layers": ["Ethernet", "InfiniBand"]}, Severity.ERROR),
    ("locked-memory-limit", NODE, "host", {"rdma_link_layers": ["Unknown"]}, Severity.ERROR),  # EFA
    ("locked-memory-limit", NODE, "host", {"rdma_link_layers": None}, Severity.ERROR),
    # Other machines.
    ("numa-balancing", DESKTOP, "memory", {}, Status.SKIPPED),
    ("address-space-limit", "macbook-m3", "host", {}, Status.SKIPPED),
    ("affinity-one-cpu", "macbook-m3", "host", {}, Status.SKIPPED),
    ("open-files-limit", "macbook-m3", "host", {}, Status.SKIPPED),
    ("overcommit-never", "macbook-m3", "host", {}, Status.SKIPPED),
]  # fmt: skip


@pytest.mark.parametrize(("code", "machine", "probe", "facts", "expected"), CASES)
def test_a_fact_decides_about_a_hazard(
    code: str, machine: str, probe: str, facts: dict[str, Any], expected: Status | Severity
) -> None:
    (check,) = checks(with_facts(machine, probe, **facts), code)

    if isinstance(expected, Severity):
        assert (check.status, check.severity) == (Status.FAILED, expected)
    else:
        assert check.status is expected


def test_the_wish_to_save_power_is_told_of_such_a_driver() -> None:
    base = with_facts("alder-lake-hybrid", "cpu", energy_preference="power")
    (check,) = checks(base, "cpu-governor")

    assert check.command.startswith("echo performance | tee /sys/devices/system/cpu/cpufreq/policy*/")


def test_the_command_gives_the_quotas_whole_cpus() -> None:
    (check,) = checks(report("docker-cgroup1"), "cpu-quota-below-threads")

    assert check.command == "export OMP_NUM_THREADS=2"
    assert check.evidence["limits.cpu_quota"] == 2.5


def test_the_cpus_that_are_held_below_their_base_are_named() -> None:
    held = with_facts("alder-lake-hybrid", "cpu", held_cpus="16-19")

    (check,) = checks(held, "cpu-frequency-capped")
    assert check.message.startswith("CPU 16-19 may not reach its base frequency")
    assert check.command == "cpupower -c 16-19 frequency-set -u 5.00GHz"


@pytest.mark.parametrize(
    ("highest", "said"), [(100, ""), (166, "performance rises from 100 to 166"), (None, "base")]
)
def test_boost_that_would_give_nothing_is_not_missed(highest: int | None, said: str) -> None:
    facts = {"highest_performance": highest, "nominal_performance": 100}
    (check,) = checks(with_facts("untuned-slurm-node", "cpu", **facts), "cpu-boost-off")

    assert check.status is (Status.FAILED if said else Status.PASSED)
    assert said in check.message


@pytest.mark.parametrize(
    ("cpuset", "command", "hint"),
    [
        ("0-15", "taskset -acp 0-15 $$", "KMP_AFFINITY: unset it there"),
        (None, "taskset -acp 0-31 $$", "KMP_AFFINITY: unset it there"),
        ("5", "", "its cpuset has no other CPU"),
    ],
)
def test_a_mask_of_one_cpu_is_widened_where_the_cpuset_has_more(
    cpuset: str | None, command: str, hint: str
) -> None:
    base = with_facts("untuned-slurm-node", "limits", cpuset=cpuset, scheduler="")
    variables = {"variables": {"KMP_AFFINITY": "compact"}}
    environment = msgspec.structs.replace(base.probes["environment"], facts=variables)
    subject = msgspec.structs.replace(base, probes={**base.probes, "environment": environment})

    (check,) = checks(subject, "affinity-one-cpu")
    assert check.command == command
    assert hint in check.hint


@pytest.mark.parametrize(
    ("hard", "command"),
    [(64 << 30, ""), (128 << 30, "ulimit -v 134217728"), (None, "ulimit -v unlimited")],
)
def test_an_address_space_is_raised_as_far_as_the_hard_limit_lets(hard: int | None, command: str) -> None:
    subject = with_facts("untuned-slurm-node", "limits", address_space_hard_limit_bytes=hard)

    (check,) = checks(subject, "address-space-limit")
    assert check.command == command
    assert bool(command) or "hard limit" in check.hint


def test_a_pool_that_its_own_variable_steers_is_told_by_that_variable() -> None:
    rows = [
        {"runtime": "OpenMP", "cpus": 8, "because": "the affinity mask"},
        {"runtime": "MKL", "cpus": 32, "because": "MKL_NUM_THREADS is 32"},
        {"runtime": "OpenBLAS", "cpus": 4, "because": "OPENBLAS_NUM_THREADS is 4"},
    ]
    facts = {"threads_expected": rows, "effective_cpus": 4, "effective_cpus_because": "quota"}
    (check,) = checks(with_facts("mig-pod", "limits", **facts), "cpu-quota-below-threads")

    assert check.command == "export OMP_NUM_THREADS=4 MKL_NUM_THREADS=4"


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("1.2.5", "the C library is musl 1.2.5 ("),
        (None, "the C library is musl ("),
        ("{cpu.model_name}", "the C library is musl {cpu.model_name} ("),
    ],
)
def test_a_text_leaves_out_what_is_missing_and_reads_no_template_in_a_value(
    version: str | None, words: str
) -> None:
    subject = with_facts("alpine-container", "host", libc_version=version)

    (check,) = checks(subject, "musl-libc")
    assert check.message.startswith(words)
