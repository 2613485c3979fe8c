"""The limits probe on composed machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.host.host import Host
from mlbackends_probes import limits

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30
V2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"


def machine(folder: Path, files: dict[str, str], cpus: int = 8, **told: Any) -> Host:
    """Compose a machine of some CPUs, two threads a core, and 32 GiB."""
    files = {
        "sys/devices/system/cpu/online": f"0-{cpus - 1}\n",
        "sys/devices/system/cpu/smt/active": "1\n",
        "proc/meminfo": f"MemTotal:       {32 * GIB // 1024} kB\nMemFree: 1 kB\n",
    } | files
    for cpu in range(cpus):
        pair = f"{cpu % (cpus // 2)},{cpu % (cpus // 2) + cpus // 2}\n"
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = pair
    for name, text in files.items():
        path = folder / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    record = {"uname": {"machine": "x86_64"}, "affinity": list(range(cpus))} | told
    (folder / "host.json").write_text(json.dumps(record))
    return Host(str(folder))


def in_v2(**files: str) -> dict[str, str]:
    return {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2} | {
        f"sys/fs/cgroup/{name.replace('__', '.')}": text for name, text in files.items()
    }


def cpus_by_runtime(facts: dict[str, Any]) -> dict[str, int]:
    return {row["runtime"]: row["cpus"] for row in facts["threads_expected"]}


def test_a_quota_is_floored_for_threads_and_kept_exact_beside(tmp_path: Path) -> None:
    host = machine(tmp_path, in_v2(cpu__max="250000 100000", memory__max=str(4 * GIB)))
    facts = limits.find(host).facts
    assert facts["cgroup_version"] == "v2"
    assert facts["effective_cpus"] == 2
    assert facts["effective_cpus_exact"] == 2.5
    assert facts["effective_cpus_because"] == "quota"
    assert facts["cpu_quota_group"] == "/sys/fs/cgroup"
    assert facts["effective_memory_bytes"] == facts["memory_limit_bytes"] == 4 * GIB
    assert facts["effective_memory_because"] == "memory_limit"


def test_half_a_cpu_is_still_one_thread(tmp_path: Path) -> None:
    facts = limits.find(machine(tmp_path, in_v2(cpu__max="50000 100000"))).facts
    assert (facts["effective_cpus"], facts["effective_cpus_exact"]) == (1, 0.5)


def test_a_cpuset_smaller_than_the_quota_counts(tmp_path: Path) -> None:
    files = in_v2(cpu__max="600000 100000", cpuset__cpus__effective="0-2\n")
    facts = limits.find(machine(tmp_path, files)).facts
    assert facts["cpuset"] == "0-2"
    assert facts["effective_cpus"] == 3
    assert facts["effective_cpus_because"] == "cpuset"


@pytest.mark.parametrize("mask", [{}, {"affinity": list(range(8))}, {"affinity": [2, 3, 4]}])
def test_a_cpuset_restricts_what_asks_for_the_mask(tmp_path: Path, mask: dict[str, Any]) -> None:
    files = in_v2(cpuset__cpus__effective="0-2\n")
    files["sys/devices/system/cpu/online"] = "0-7\n"
    facts = limits.find(machine(tmp_path, files, **mask)).facts

    count = 1 if mask.get("affinity") == [2, 3, 4] else 3
    expected = cpus_by_runtime(facts)
    assert facts["effective_cpus"] == count
    assert (expected["nproc"], expected["OpenMP"], expected["OpenBLAS"]) == (count,) * 3
    assert expected["os.cpu_count"] == 8


def test_a_cpu_that_is_off_is_not_in_the_cpuset(tmp_path: Path) -> None:
    """Version 1 keeps it in the list of the group."""
    files = in_v2(cpuset__cpus__effective="0-7\n")
    files["sys/devices/system/cpu/online"] = "0-3,5-7\n"
    facts = limits.find(machine(tmp_path, files)).facts
    assert (facts["cpuset"], facts["cpuset_cpus"], facts["effective_cpus"]) == ("0-3,5-7", 7, 7)


def test_memory_high_below_the_limit_is_what_is_left(tmp_path: Path) -> None:
    files = in_v2(memory__max=str(8 * GIB), memory__high=str(6 * GIB))
    facts = limits.find(machine(tmp_path, files)).facts
    assert facts["effective_memory_bytes"] == 6 * GIB
    assert facts["effective_memory_because"] == "memory_high"


def test_a_limit_above_the_machine_leaves_the_machine(tmp_path: Path) -> None:
    files = in_v2(memory__max=str(64 * GIB), cpu__max="6400000 100000")
    facts = limits.find(machine(tmp_path, files)).facts
    assert facts["effective_memory_bytes"] == 32 * GIB
    assert facts["effective_memory_because"] == "machine"
    assert facts["effective_cpus"] == 8
    assert facts["memory_limit_bytes"] == 64 * GIB


def test_limits_that_were_read_and_are_not_set_are_listed(tmp_path: Path) -> None:
    host = machine(tmp_path, in_v2(cpu__max="max 100000", memory__max="max", pids__max="max"))
    facts = limits.find(host).facts
    assert facts["unlimited"] == ["cpu_quota", "process_limit", "memory_limit_bytes"]
    assert "cpu_quota" not in facts


def test_every_runtime_is_told_to_ignore_the_quota(tmp_path: Path) -> None:
    finding = limits.find(machine(tmp_path, in_v2(cpu__max="200000 100000")))
    assert cpus_by_runtime(finding.facts) == {
        "os.cpu_count": 8,
        "nproc": 8,
        "OpenMP": 8,
        "OpenBLAS": 8,
        "MKL": 4,
        "torch": 4,
    }
    (warning,) = finding.warnings
    assert warning.code == "limit-below-hardware"
    assert "OpenMP (8)" in warning.message
    assert "the 2 CPUs that the CPU quota of 2.0 leaves" in warning.message
    assert warning.hint == "set OMP_NUM_THREADS=2"


def test_a_fitting_thread_count_quiets_all_but_python(tmp_path: Path) -> None:
    environment = {"OMP_NUM_THREADS": "2"}
    host = machine(tmp_path, in_v2(cpu__max="200000 100000"), environment=environment)
    (warning,) = limits.find(host).warnings
    assert warning.message == (
        "os.cpu_count (8) starts more threads than the 2 CPUs that the CPU quota of 2.0 leaves"
    )
    assert not warning.hint


def test_python_3_13_has_a_variable_and_a_count_of_its_own(tmp_path: Path) -> None:
    environment = {"OMP_NUM_THREADS": "2", "PYTHON_CPU_COUNT": "2"}
    host = machine(
        tmp_path,
        in_v2(cpu__max="200000 100000"),
        environment=environment,
        python={"version": "3.13.1", "prefix": "/usr"},
    )
    finding = limits.find(host)
    told = cpus_by_runtime(finding.facts)
    assert (told["os.cpu_count"], told["os.process_cpu_count"]) == (2, 2)
    assert not finding.warnings


def test_python_3_12_does_not_know_the_variable(tmp_path: Path) -> None:
    environment = {"PYTHON_CPU_COUNT": "2"}
    host = machine(tmp_path, {}, environment=environment, python={"version": "3.12.4"})
    told = cpus_by_runtime(limits.find(host).facts)
    assert told["os.cpu_count"] == 8
    assert "os.process_cpu_count" not in told


def test_a_small_affinity_mask_binds_all_but_os_cpu_count(tmp_path: Path) -> None:
    finding = limits.find(machine(tmp_path, {}, affinity=[0, 4]))
    assert finding.facts["affinity"] == "0,4"
    assert finding.facts["effective_cpus_because"] == "affinity"
    told = cpus_by_runtime(finding.facts)
    assert told == {
        "os.cpu_count": 8,
        "nproc": 2,
        "OpenMP": 2,
        "OpenBLAS": 2,
        "MKL": 1,  # 0 and 4 are two threads of one core
        "torch": 1,
    }


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"OMP_NUM_THREADS": "4,2"}, {"OpenMP": 4, "OpenBLAS": 4, "MKL": 4, "nproc": 4}),
        ({"OMP_NUM_THREADS": "20"}, {"OpenMP": 20, "OpenBLAS": 8, "MKL": 4, "torch": 4}),
        ({"OMP_NUM_THREADS": "x"}, {"OpenMP": 8, "OpenBLAS": 8, "MKL": 4}),
        ({"OMP_NUM_THREADS": "0"}, {"OpenMP": 8, "OpenBLAS": 8}),
        ({"OMP_NUM_THREADS": ""}, {"OpenMP": 8, "MKL": 4}),
        ({"OMP_NUM_THREADS": "9" * 5000}, {"OpenMP": 8}),
        ({"OMP_NUM_THREADS": "6", "OMP_THREAD_LIMIT": "3"}, {"OpenMP": 3, "nproc": 3}),
        ({"OPENBLAS_NUM_THREADS": "5"}, {"OpenBLAS": 5, "OpenMP": 8, "MKL": 4}),
        ({"OPENBLAS_NUM_THREADS": "0", "GOTO_NUM_THREADS": "3"}, {"OpenBLAS": 3}),
        ({"MKL_NUM_THREADS": "2", "OMP_NUM_THREADS": "7"}, {"MKL": 2, "torch": 2, "OpenMP": 7}),
        ({"MKL_NUM_THREADS": "6", "MKL_DYNAMIC": "FALSE"}, {"MKL": 6, "torch": 6}),
    ],
    ids=str,
)
def test_variables_steer_each_runtime_by_its_own_rule(
    tmp_path: Path, environment: dict[str, str], expected: dict[str, int]
) -> None:
    told = cpus_by_runtime(limits.find(machine(tmp_path, {}, environment=environment)).facts)
    assert {name: told[name] for name in expected} == expected


def test_what_mkl_makes_of_a_senseless_value_is_not_guessed(tmp_path: Path) -> None:
    host = machine(tmp_path, {}, environment={"MKL_NUM_THREADS": "many"})
    assert not {"MKL", "torch"} & cpus_by_runtime(limits.find(host).facts).keys()


def test_arm_has_no_mkl_and_an_uncertain_torch(tmp_path: Path) -> None:
    host = machine(tmp_path, {}, uname={"machine": "aarch64"})
    assert not {"MKL", "torch"} & cpus_by_runtime(limits.find(host).facts).keys()


def test_a_variable_above_an_unlimited_machine_is_named_as_such(tmp_path: Path) -> None:
    (warning,) = limits.find(machine(tmp_path, {}, environment={"OMP_NUM_THREADS": "64"})).warnings
    assert warning.code == "override-exceeds-hardware"
    assert "nproc (64), OpenMP (64) start more threads than the 8 CPUs" in warning.message


def test_frequent_throttling_is_a_warning(tmp_path: Path) -> None:
    stat = "nr_periods 1000\nnr_throttled 950\nthrottled_usec 42000000\n"
    host = machine(tmp_path, in_v2(cpu__max="800000 100000", cpu__stat=stat))
    finding = limits.find(host)
    assert finding.facts["cpu_throttled_periods"] == 950
    assert finding.facts["cpu_throttled_seconds"] == 42.0
    assert [warning.code for warning in finding.warnings] == ["throttled"]
    assert "95% of its periods" in finding.warnings[0].message


def test_throttling_in_a_few_periods_is_no_warning(tmp_path: Path) -> None:
    stat = "nr_periods 20\nnr_throttled 19\nthrottled_usec 42\n"
    host = machine(tmp_path, in_v2(cpu__max="800000 100000", cpu__stat=stat))
    assert not limits.find(host).warnings


def test_affinity_comes_from_the_status_file_where_it_was_not_recorded(tmp_path: Path) -> None:
    files = {"proc/self/status": "Name:\tcat\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\n"}
    facts = limits.find(machine(tmp_path, files, affinity=None)).facts
    assert (facts["affinity"], facts["effective_cpus"]) == ("0-3", 4)


def test_the_status_file_may_list_cpus_that_are_off_or_could_be_added(tmp_path: Path) -> None:
    """As nproc counts: `Cpus_allowed_list` has all that the kernel was built or started for."""
    files = {"proc/self/status": "Cpus_allowed_list:\t0-127\n"}
    files["sys/devices/system/cpu/offline"] = "3,8-127\n"
    facts = limits.find(machine(tmp_path, files, affinity=None)).facts
    assert (facts["affinity"], facts["affinity_cpus"]) == ("0-2,4-7", 7)


def test_the_numbers_of_an_lxc_container_are_not_those_of_its_cpuset(tmp_path: Path) -> None:
    """With a quota lxcfs shows as many CPUs in `online`, from 0 on, and no other list."""
    files = in_v2(cpuset__cpus__effective="2-5\n")
    files |= {"sys/devices/system/cpu/online": "0-3\n", "sys/devices/system/cpu/offline": "\n"}
    facts = limits.find(machine(tmp_path, files, affinity=[2, 3, 4, 5])).facts
    assert (facts["cpuset"], facts["effective_cpus"]) == ("2-5", 4)


def test_ulimits_are_soft_limits_in_plain_numbers(tmp_path: Path) -> None:
    text = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max stack size            8388608              unlimited            bytes     \n"
        "Max processes             4096                 8192                 processes \n"
        "Max open files            1024                 524288               files     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n"
        "Max address space         garbage\n"
        "Max\n"
    )
    facts = limits.find(machine(tmp_path, {"proc/self/limits": text})).facts
    assert facts["stack_limit_bytes"] == 8388608
    assert facts["user_processes_limit"] == 4096
    assert (facts["open_files_limit"], facts["open_files_hard_limit"]) == (1024, 524288)
    assert facts["unlimited"] == ["locked_memory_limit_bytes"]
    assert "address_space_limit_bytes" not in facts


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LSB_JOBID": "1", "LSB_DJOB_NUMPROC": "8"}, {"scheduler": "lsf", "scheduler_slots": 8}),
        ({"PBS_JOBID": "1.x", "NCPUS": "6"}, {"scheduler": "pbs", "scheduler_cpus": 6}),
        (
            {"JOB_ID": "1", "SGE_TASK_ID": "undefined", "NSLOTS": "3"},
            {"scheduler": "sge", "scheduler_slots": 3},
        ),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {"kubernetes": True}),
    ],
    ids=str,
)
def test_other_schedulers_are_known_by_their_variables(
    tmp_path: Path, environment: dict[str, str], expected: dict[str, Any]
) -> None:
    facts = limits.find(machine(tmp_path, {}, environment=environment)).facts
    assert {name: facts[name] for name in expected} == expected


def test_a_job_id_alone_is_no_grid_engine(tmp_path: Path) -> None:
    facts = limits.find(machine(tmp_path, {}, environment={"JOB_ID": "7"})).facts
    assert "scheduler" not in facts


@pytest.mark.parametrize(
    ("told", "threads", "cores"),
    [
        (
            {"platform": "darwin", "uname": {"machine": "x86_64"}},
            {"os.cpu_count": 12, "os.process_cpu_count": 12, "nproc": 12, "OpenMP": 12},
            {"OpenBLAS": 6, "MKL": 6, "torch": 6},
        ),
        (
            {"platform": "win32", "uname": {"machine": "AMD64"}, "system": {"cpu_count": 16}},
            dict.fromkeys(("os.cpu_count", "os.process_cpu_count", "OpenMP", "OpenBLAS"), 16),
            {},
        ),
    ],
    ids=["macos", "windows"],
)
def test_where_there_is_no_affinity_mask_no_runtime_takes_it(
    tmp_path: Path, told: dict[str, Any], threads: dict[str, int], cores: dict[str, int]
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "commands").mkdir()
    controls = "hw.activecpu: 12\nhw.physicalcpu: 6\n"
    (tmp_path / "commands" / "sysctl -a").write_text(controls)
    (tmp_path / "host.json").write_text(json.dumps(told | {"python": {"version": "3.13.1"}}))

    facts: dict[str, Any] = limits.find(Host(str(tmp_path))).facts

    assert cpus_by_runtime(facts) == threads | cores
    for row in facts["threads_expected"]:
        what = "the physical cores" if row["runtime"] in cores else "the CPUs that are online"
        assert row["because"].endswith(what)


def test_the_load_and_the_pressure_on_the_cpus_are_read(tmp_path: Path) -> None:
    pressure = "some avg10=2.77 avg60=36.19 avg300=6.83 total=6800\nfull avg10=0.00 avg60=0.00\n"
    files = {"proc/loadavg": "14.20 9.1 3.0 9/512 6647\n", "proc/pressure/cpu": pressure}

    facts = limits.find(machine(tmp_path, files)).facts

    assert (facts["load_average"], facts["runnable_threads"]) == (14.2, 9)
    assert facts["cpu_pressure"] == 36.19
    assert "process_threads" not in facts


@pytest.mark.parametrize("text", ["", "garbage", "some avg10=", "\0\xff"])
def test_a_load_that_makes_no_sense_is_left_out(tmp_path: Path, text: str) -> None:
    files = {"proc/loadavg": text, "proc/pressure/cpu": text}

    facts = limits.find(machine(tmp_path, files)).facts

    assert not {"load_average", "runnable_threads", "cpu_pressure"} & facts.keys()


def test_the_threads_of_an_inspected_process_are_counted(tmp_path: Path) -> None:
    files = {}
    for task, state, ran in (("41", "R", 3), ("42", "R", 2), ("43", "S", 1)):
        files[f"proc/41/task/{task}/stat"] = f"{task} (a (b) c) {state} 1 41 41 0\n"
        files[f"proc/41/task/{task}/schedstat"] = f"{ran}000000000 {ran}000000000 7\n"
    machine(tmp_path, files)

    facts = limits.find(Host(str(tmp_path), pid=41)).facts

    assert (facts["process_threads"], facts["process_running_threads"]) == (3, 2)
    assert facts["process_waiting_share"] == 0.5
