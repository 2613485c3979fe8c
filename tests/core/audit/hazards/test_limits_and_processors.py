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
HAS = {
    "address-space-limit": "untuned-slurm-node",
    "affinity-one-cpu": "untuned-slurm-node",
    "cpu-boost-off": "untuned-slurm-node",
    "cpu-count-too-high": "slurm-job",
    "cpu-frequency-capped": "untuned-slurm-node",
    "cpu-governor": "untuned-slurm-node",
    "cpu-mitigation-slows-gather": "icelake-ec2",
    "cpu-quota-below-threads": "mig-pod",
    "cpu-throttled": "docker-cgroup1",
    "hypervisor-hides-avx2": "proxmox-kvm64",
    "locked-memory-limit": "untuned-slurm-node",
    "memory-faulty": "untuned-slurm-node",
    "memory-limit-below-machine": "nested-cgroup2",
    "musl-libc": "alpine-container",
    "numa-balancing": "slurm-job",
    "open-files-limit": "untuned-slurm-node",
    "overcommit-never": "untuned-slurm-node",
    "rosetta-translated": "macbook-rosetta",
    "thread-limit-low": "untuned-slurm-node",
    "threads-exceed-cpus": "untuned-slurm-node",
    "transparent-huge-pages": "untuned-slurm-node",
    "wsl-first-version": "wsl1-laptop",
}
LACKS = {
    "address-space-limit": "hgx-h100-eight-gpus",
    "affinity-one-cpu": "slurm-job",
    "cpu-boost-off": "alder-lake-hybrid",
    "cpu-count-too-high": "zen4-two-sockets",
    "cpu-frequency-capped": "alder-lake-hybrid",
    "cpu-governor": "alder-lake-hybrid",
    "cpu-mitigation-slows-gather": "cloud-vm-recorded",
    "cpu-quota-below-threads": "proxmox-kvm64",
    "cpu-throttled": "proxmox-kvm64",
    "hypervisor-hides-avx2": "ivy-bridge-desktop",
    "locked-memory-limit": "ci-leftovers",
    "memory-faulty": "hgx-h100-eight-gpus",
    "memory-limit-below-machine": "alpine-container",
    "musl-libc": "cloud-vm-recorded",
    "numa-balancing": "hgx-h100-eight-gpus",
    "open-files-limit": "ivy-bridge-desktop",
    "overcommit-never": "hgx-h100-eight-gpus",
    "rosetta-translated": "macbook-m3",
    "thread-limit-low": "docker-cgroup1",
    "threads-exceed-cpus": "slurm-job",
    "transparent-huge-pages": "icelake-ec2",
    "wsl-first-version": "wsl2-nvidia",
}


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


def statuses(subject: Report, code: str) -> list[Status]:
    return [check.status for check in checks(subject, code)]


def test_a_machine_that_has_it_is_told_so() -> None:
    for code, host in HAS.items():
        found = checks(report(host), code)

        assert {check.status for check in found} == {Status.FAILED}, code
        assert all(check.message and check.evidence and check.why for check in found), code


def test_a_machine_that_lacks_it_raises_no_alarm() -> None:
    for code, host in LACKS.items():
        assert set(statuses(report(host), code)) <= {Status.PASSED, Status.SKIPPED}, code


def test_without_what_tells_it_nothing_is_claimed() -> None:
    for code in sorted(HAS):
        empty = msgspec.structs.replace(report("untuned-slurm-node"), probes={})

        assert statuses(empty, code) == [Status.UNKNOWN], code


@pytest.mark.parametrize(
    ("code", "probe", "fact"),
    [
        ("address-space-limit", "limits", "address_space_limit_bytes"),
        ("affinity-one-cpu", "limits", "affinity_cpus"),
        ("cpu-quota-below-threads", "limits", "effective_cpus"),
        ("memory-limit-below-machine", "memory", "total_bytes"),
        ("numa-balancing", "memory", "numa_balancing"),
        ("open-files-limit", "limits", "open_files_limit"),
        ("overcommit-never", "memory", "overcommit"),
        ("thread-limit-low", "limits", "threads_expected"),
        ("transparent-huge-pages", "memory", "transparent_huge_pages"),
    ],
)
def test_a_fact_that_could_not_be_read_is_unknown(code: str, probe: str, fact: str) -> None:
    assert statuses(with_facts("untuned-slurm-node", probe, **{fact: None}), code) == [
        Status.UNKNOWN
    ]


@pytest.mark.parametrize("driver", ["intel_pstate", "amd-pstate-epp"])
def test_powersave_under_a_driver_that_chooses_itself_is_no_alarm(driver: str) -> None:
    base = with_facts(
        "alder-lake-hybrid", "cpu", governor="powersave", scaling_driver=driver, current_hertz=1
    )

    assert statuses(base, "cpu-governor") == [Status.PASSED]


def test_the_wish_to_save_power_is_told_of_such_a_driver() -> None:
    base = with_facts("alder-lake-hybrid", "cpu", energy_preference="power")
    (check,) = checks(base, "cpu-governor")

    assert check.command.startswith(
        "echo performance | tee /sys/devices/system/cpu/cpufreq/policy*/"
    )


def test_a_slow_clock_of_this_moment_is_no_alarm() -> None:
    idle = with_facts("alder-lake-hybrid", "cpu", current_hertz=400_000_000)

    assert statuses(idle, "cpu-frequency-capped") == [Status.PASSED]


def test_a_task_that_asked_for_one_cpu_is_no_alarm() -> None:
    variables = {"SLURM_JOB_ID": "77", "SLURM_CPUS_PER_TASK": "1"}
    asked = with_facts("untuned-slurm-node", "environment", variables=variables)

    assert statuses(asked, "affinity-one-cpu") == [Status.PASSED]


def test_threads_and_counts_are_said_once() -> None:
    both = examine(report("docker-cgroup1")).failed()
    about = [
        check.code for check in both if "os.cpu_count" in check.message or "MKL (" in check.message
    ]

    assert about == ["cpu-quota-below-threads"]


def test_the_command_gives_the_quotas_whole_cpus() -> None:
    (check,) = checks(report("docker-cgroup1"), "cpu-quota-below-threads")

    assert check.command == "export OMP_NUM_THREADS=2"
    assert check.evidence["limits.cpu_quota"] == 2.5


@pytest.mark.parametrize(
    ("soft", "cpus", "severity"),
    [(256, 4, Severity.WARNING), (1024, 64, Severity.NOTE), (1024, 8, None), (4096, 128, None)],
)
def test_the_usual_limit_of_open_files_is_a_note_on_large_machines(
    soft: int, cpus: int, severity: Severity | None
) -> None:
    base = with_facts("ivy-bridge-desktop", "limits", open_files_limit=soft, effective_cpus=cpus)
    found = [check.severity for check in checks(base, "open-files-limit") if check.message]

    assert found == ([severity] if severity else [])


def test_no_limit_is_not_the_same_as_one_that_was_not_read() -> None:
    unlimited = with_facts(
        "ivy-bridge-desktop", "limits", open_files_limit=None, unlimited=["open_files_limit"]
    )

    assert statuses(unlimited, "open-files-limit") == [Status.PASSED]


def test_balancing_of_nodes_is_a_note_without_a_gpu_and_skipped_with_one_node() -> None:
    (check,) = checks(report("epyc-eight-nodes"), "numa-balancing")

    assert check.severity is Severity.NOTE
    assert statuses(report("alder-lake-hybrid"), "numa-balancing") == [Status.SKIPPED]


def test_an_address_space_of_many_times_the_memory_is_no_alarm() -> None:
    wide = with_facts("untuned-slurm-node", "limits", address_space_limit_bytes=1 << 46)

    assert statuses(wide, "address-space-limit") == [Status.PASSED]


def test_huge_pages_that_are_asked_for_and_never_given_are_a_warning() -> None:
    asking = with_facts(
        "untuned-slurm-node", "environment", variables={"THP_MEM_ALLOC_ENABLE": "1"}
    )
    (check,) = checks(asking, "transparent-huge-pages")

    assert check.severity is Severity.WARNING
    assert "THP_MEM_ALLOC_ENABLE" in check.message


def test_torch_that_somebody_built_for_musl_is_no_alarm() -> None:
    built = with_facts("alpine-container", "packages", distributions={"torch": "2.5.0"})

    assert statuses(built, "musl-libc") == [Status.PASSED]


def test_a_real_old_processor_is_not_the_hypervisors_doing() -> None:
    guest = with_facts("ivy-bridge-desktop", "cpu", hypervisor=True)

    assert statuses(guest, "hypervisor-hides-avx2") == [Status.PASSED]


def test_what_only_linux_has_is_skipped_on_a_mac() -> None:
    codes = ("address-space-limit", "affinity-one-cpu", "open-files-limit", "overcommit-never")

    assert {statuses(report("macbook-m3"), code)[0] for code in codes} == {Status.SKIPPED}


@pytest.mark.parametrize(
    ("layers", "severity"),
    [
        (["Ethernet"], Severity.WARNING),
        (["Ethernet", "InfiniBand"], Severity.ERROR),
        (["Unknown"], Severity.ERROR),  # EFA
        (None, Severity.ERROR),
    ],
)
def test_a_low_limit_on_locked_memory_is_no_error_where_all_ports_are_ethernet(
    layers: list[str] | None, severity: Severity
) -> None:
    subject = with_facts("untuned-slurm-node", "host", rdma_link_layers=layers)

    assert [check.severity for check in checks(subject, "locked-memory-limit")] == [severity]


def test_the_cpus_that_are_held_below_their_base_are_named() -> None:
    held = with_facts("alder-lake-hybrid", "cpu", held_cpus="16-19")

    (check,) = checks(held, "cpu-frequency-capped")
    assert check.message.startswith("CPUs 16-19 are limited to less than their base")
    assert check.command == "cpupower -c 16-19 frequency-set -u 5.00GHz"


@pytest.mark.parametrize(
    ("highest", "said"), [(100, ""), (166, "boost would add up to 66%"), (None, "base")]
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
def test_an_address_space_is_raised_as_far_as_the_hard_limit_lets(
    hard: int | None, command: str
) -> None:
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
