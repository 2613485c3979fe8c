"""Hazards of environment variables, on machines that have them and on machines that do not."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import pytest

from mlbackends.audit.environment import integer
from mlbackends.audit.reports import report_of
from mlbackends.audit.runner import examine
from mlbackends.model.audit import Check, Severity, Status
from mlbackends.model.records import Library, Presence, ProbeReport, Report

HOSTS = Path(__file__).resolve().parents[3] / "hosts"


@cache
def report(name: str) -> Report:
    return report_of(str(HOSTS / f"{name}.machine"))


def with_variables(name: str, **variables: str) -> Report:
    """Return a machine's report with other variables, which most hazards here read alone."""
    base = report(name)
    environment = msgspec.structs.replace(base.probes["environment"], facts={"variables": variables})
    return msgspec.structs.replace(base, probes={**base.probes, "environment": environment})


def checks(subject: Report, code: str) -> tuple[Check, ...]:
    return examine(subject, only=(code,)).checks


def seen(subject: Report, code: str) -> list[str]:
    return [check.message for check in checks(subject, code) if check.status is Status.FAILED]


def test_an_environment_that_was_not_recorded_is_unknown_not_clean() -> None:
    base = report("hgx-h100-eight-gpus")
    silent = ProbeReport(presence=Presence.FOUND)
    untold = msgspec.structs.replace(base, probes={**base.probes, "environment": silent})

    assert [check.status for check in checks(untold, "cuda-launch-blocking")] == [Status.UNKNOWN]


@pytest.mark.parametrize(
    ("code", "variables"),
    [
        ("cuda-launch-blocking", {"CUDA_LAUNCH_BLOCKING": "0", "HIP_LAUNCH_BLOCKING": "off"}),
        ("compilation-off", {"TORCHDYNAMO_DISABLE": "0", "PYTORCH_JIT": "1"}),
        ("nccl-leftovers", {"NCCL_P2P_DISABLE": "0", "NCCL_P2P_LEVEL": "NVL"}),
        ("library-logging", {"NCCL_DEBUG": "WARN", "ONEDNN_VERBOSE": "0", "MKL_VERBOSE": ""}),
        ("debugging-allocator", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "0"}),
        ("debugging-allocator", {"PYTHONMALLOC": "malloc", "MALLOC_ARENA_MAX": "1"}),
        ("debugging-preload", {"LD_PRELOAD": "/usr/lib/libjemalloc.so.2:libiomp5.so"}),
        ("debugging-preload", {"LD_PRELOAD": "libubsan.so.1:libc_malloc_debug.so.0"}),
        ("kmp-duplicate-lib-ok", {"KMP_DUPLICATE_LIB_OK": "o"}),
        ("mkl-cbwr", {"MKL_CBWR": "AUTO"}),
        ("mkl-cbwr", {"MKL_CBWR": "compatible"}),
        ("mkl-cbwr", {"MKL_CBWR": "AVX512,STRICT"}),
        ("tf32-override", {"NVIDIA_TF32_OVERRIDE": "1"}),
        ("library-logging", {"ONEDNN_VERBOSE": "none", "MKL_VERBOSE": "3"}),
        ("library-logging", {"ONEDNN_VERBOSE": "profile,none", "CUBLASLT_LOG_LEVEL": "1"}),
        ("library-logging", {"CUDNN_LOGLEVEL_DBG": "3", "CUDNN_LOGINFO_DBG": "1"}),
        ("compilation-off", {"TORCHDYNAMO_DISABLE": "true", "TORCH_COMPILE_DISABLE": "yes"}),
        ("compilation-off", {"NUMBA_DISABLE_JIT": "true", "PYTORCH_JIT": "off"}),
        ("nccl-leftovers", {"NCCL_P2P_DISABLE": "true", "NCCL_SHM_DISABLE": "yes"}),
        ("nccl-leftovers", {"NCCL_P2P_DISABLE": "2", "NCCL_P2P_LEVEL": "loc"}),
        ("nccl-leftovers", {"NCCL_SHM_DISABLE": "1"}),
        ("debugging-allocator", {"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "0"}),
        ("thread-binding", {"OMP_PROC_BIND": "true"}),
        ("thread-binding", {"OMP_PROC_BIND": "true", "LOCAL_WORLD_SIZE": "1"}),
        ("thread-binding", {"KMP_AFFINITY": "disabled", "LOCAL_WORLD_SIZE": "8"}),
        ("omp-one-thread", {"OMP_NUM_THREADS": "2", "LOCAL_WORLD_SIZE": "4"}),
        ("omp-one-thread", {"OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": "8"}),
        ("cublas-not-deterministic", {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}),
        ("cublas-not-deterministic", {"TF_DETERMINISTIC_OPS": "0"}),
        ("isa-capped", {"ONEDNN_MAX_CPU_ISA": "ALL", "MKL_ENABLE_INSTRUCTIONS": "AVX512_E4"}),
        ("isa-capped", {"ONEDNN_MAX_CPU_ISA": "something", "OPENBLAS_CORETYPE": "SkylakeX"}),
    ],
)
def test_a_value_without_the_effect_is_no_alarm(code: str, variables: dict[str, str]) -> None:
    base = with_variables("ci-leftovers", **variables)
    cpu = msgspec.structs.replace(
        base.probes["cpu"], facts={**base.probes["cpu"].facts, "capability": "AVX512"}
    )
    subject = msgspec.structs.replace(base, probes={**base.probes, "cpu": cpu})

    assert seen(subject, code) == []


@pytest.mark.parametrize(
    ("code", "variables"),
    [
        ("library-logging", {"ONEDNN_VERBOSE": "none,profile_exec"}),
        ("library-logging", {"MKL_VERBOSE": "0x1"}),
        ("library-logging", {"CUBLASLT_LOG_LEVEL": "2"}),
        ("library-logging", {"HIPBLASLT_LOG_MASK": "32"}),
        ("library-logging", {"CUDNN_LOGLEVEL_DBG": "3", "CUDNN_LOGDEST_DBG": "stderr"}),
        ("compilation-off", {"PYTORCH_JIT": "no"}),
        ("compilation-off", {"NUMBA_DISABLE_JIT": "2"}),
        ("nccl-leftovers", {"NCCL_P2P_DISABLE": "0x1"}),
        ("nccl-leftovers", {"NCCL_IB_DISABLE": "2"}),
        ("nccl-leftovers", {"NCCL_NET": "Socket"}),
        ("nccl-leftovers", {"NCCL_P2P_LEVEL": "LOC"}),
        ("nccl-leftovers", {"NCCL_P2P_LEVEL": "0x0"}),
        ("debugging-allocator", {"MALLOC_CHECK_": "3", "LD_PRELOAD": "libc_malloc_debug.so.0"}),
        ("debugging-allocator", {"MALLOC_PERTURB_": "165"}),
        ("tf32-override", {"NVIDIA_TF32_OVERRIDE": "0"}),
        ("cuda-launch-blocking", {"AMD_SERIALIZE_KERNEL": "3"}),
        ("mkl-cbwr", {"MKL_CBWR": "BRANCH=COMPATIBLE"}),
        ("kmp-duplicate-lib-ok", {"KMP_DUPLICATE_LIB_OK": ".T."}),
        ("kmp-duplicate-lib-ok", {"KMP_DUPLICATE_LIB_OK": "10"}),
        ("kmp-duplicate-lib-ok", {"KMP_DUPLICATE_LIB_OK": "enabled"}),
    ],
)
def test_a_value_is_read_as_the_library_reads_it(code: str, variables: dict[str, str]) -> None:
    assert len(seen(with_variables("ci-leftovers", **variables), code)) == 1


def test_an_old_glibc_checks_its_heap_by_itself_and_musl_never() -> None:
    base = with_variables("ci-leftovers", MALLOC_CHECK_="3")

    def on(**facts: str) -> list[str]:
        host = msgspec.structs.replace(base.probes["host"], facts=facts)
        subject = msgspec.structs.replace(base, probes={**base.probes, "host": host})
        return seen(subject, "debugging-allocator")

    assert len(on(libc="glibc", libc_version="2.33")) == 1
    assert on(libc="glibc", libc_version="2.34") == []
    assert on(libc="musl", libc_version="1.2.5") == []


def test_p2p_is_not_switched_on_where_access_control_makes_it_hang() -> None:
    subject = with_variables("gpu-server-degraded", NCCL_P2P_DISABLE="1")

    (check,) = checks(subject, "nccl-leftovers")
    assert check.command == "" and "pcie-access-control" in check.hint


def test_what_nccl_conf_sets_counts_where_the_environment_says_nothing() -> None:
    rows = [
        {"name": "NCCL_P2P_DISABLE", "value": "1", "file": "/etc/nccl.conf"},
        {"name": "NCCL_IB_DISABLE", "value": "1", "file": "/etc/nccl.conf"},
    ]
    base = with_variables("ci-leftovers", NCCL_IB_DISABLE="0")
    nccl = ProbeReport(presence=Presence.FOUND, facts={"configuration": rows})
    subject = msgspec.structs.replace(base, probes={**base.probes, "nccl": nccl})

    (check,) = checks(subject, "nccl-leftovers")
    assert check.message.startswith("NCCL_P2P_DISABLE=1 in /etc/nccl.conf: GPUs do not read")
    assert (check.command, check.hint) == ("", "remove its line from /etc/nccl.conf")


@pytest.mark.parametrize(
    ("layers", "severities"),
    [(["Ethernet"], [Severity.NOTE]), (["InfiniBand"], [Severity.WARNING]), (["Unknown"], [])],
)
def test_tcp_between_nodes_is_a_note_where_all_ports_are_ethernet_and_nothing_with_efa(
    layers: list[str], severities: list[Severity]
) -> None:
    base = with_variables("ci-leftovers", NCCL_IB_DISABLE="1")
    host = base.probes["host"]
    host = msgspec.structs.replace(host, facts={**host.facts, "rdma_link_layers": layers})
    subject = msgspec.structs.replace(base, probes={**base.probes, "host": host})

    failed = [check for check in checks(subject, "nccl-leftovers") if check.status is Status.FAILED]
    assert [check.severity for check in failed] == severities


def test_the_variable_of_nvidias_containers_is_a_note() -> None:
    subject = with_variables("ci-leftovers", TORCH_ALLOW_TF32_CUBLAS_OVERRIDE="1")

    assert [check.severity for check in checks(subject, "tf32-override")] == [Severity.NOTE]


@pytest.mark.parametrize(
    ("value", "number"),
    [("1", 1), (" +0x1F z", 31), ("017", 15), ("-2", -2), ("08", 0), ("0x", 0), ("yes", 0)],
)
def test_numbers_are_read_as_strtoll_reads_them(value: str, number: int) -> None:
    assert integer(value) == number


def with_threads(count: int, **variables: str) -> Report:
    """Return a machine of eight CPUs on which OpenMP starts so many threads."""
    base = with_variables("ci-leftovers", **variables)
    limits = base.probes["limits"]
    facts = {
        **limits.facts,
        "threads_expected": [{"runtime": "OpenMP", "cpus": count, "because": "it is"}],
    }
    limits = msgspec.structs.replace(limits, facts=facts)
    return msgspec.structs.replace(base, probes={**base.probes, "limits": limits})


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"GOMP_CPU_AFFINITY": "0"}, "GOMP_CPU_AFFINITY=0 binds to one CPU, but"),
        ({"GOMP_CPU_AFFINITY": "0 2-4,6-7:2"}, "binds to 5 CPUs, but OpenMP starts 8 threads"),
        ({"GOMP_CPU_AFFINITY": "0-1,90"}, "binds to 2 CPUs, but"),
        ({"OMP_PLACES": "{0:4}"}, "OMP_PLACES={0:4} binds to 4 CPUs, but"),
        ({"OMP_PLACES": "{0,1}:2:4, {0}"}, "binds to 4 CPUs, but"),
        ({"OMP_PLACES": "threads(2)"}, "binds to 2 CPUs, but"),
        ({"OMP_PLACES": "{0},{1},{2:6}", "OMP_PROC_BIND": "master"}, "binds to 6 CPUs, but"),
        ({"OMP_PROC_BIND": "primary"}, "OMP_PROC_BIND=primary binds to one CPU, but"),
        ({"OMP_PLACES": "{0}", "GOMP_CPU_AFFINITY": "0-7"}, "OMP_PLACES={0} binds"),
        ({"KMP_AFFINITY": "granularity=fine,proclist=[0,{2,3}],explicit"}, "binds to 3 CPUs, but"),
    ],
)
def test_threads_that_are_bound_to_fewer_cpus_are_told_of_a_single_process(
    variables: dict[str, str], told: str
) -> None:
    (message,) = seen(with_threads(8, **variables), "thread-binding")

    assert told in message


@pytest.mark.parametrize(
    "variables",
    [
        {"GOMP_CPU_AFFINITY": "0-7"},
        {"GOMP_CPU_AFFINITY": "0", "OMP_PROC_BIND": "false"},
        {"GOMP_CPU_AFFINITY": "0-99999999999"},
        {"GOMP_CPU_AFFINITY": "all"},
        {"OMP_PLACES": "{0}:8", "GOMP_CPU_AFFINITY": "0"},
        {"OMP_PLACES": "cores(1)"},
        {"OMP_PLACES": "sockets", "OMP_PROC_BIND": "close"},
        {"OMP_PLACES": "{0:999999}:999999"},
        {"OMP_PLACES": "{"},
        {"KMP_AFFINITY": "compact,1,0"},
        {"KMP_AFFINITY": "proclist=[0],compact"},
        {"KMP_AFFINITY": "explicit,proclist=[x]"},
    ],
)
def test_a_cpu_for_each_thread_or_a_list_that_nobody_takes_is_no_alarm(
    variables: dict[str, str],
) -> None:
    assert seen(with_threads(8, **variables), "thread-binding") == []


@pytest.mark.parametrize(("mask", "count"), [(8, 1), (5, 1), (4, 0)])
def test_processes_that_have_cpus_of_their_own_may_bind_to_them(mask: int, count: int) -> None:
    base = with_variables("ci-leftovers", OMP_PROC_BIND="close", LOCAL_WORLD_SIZE="2")
    limits = base.probes["limits"]
    limits = msgspec.structs.replace(limits, facts={**limits.facts, "affinity_cpus": mask})
    subject = msgspec.structs.replace(base, probes={**base.probes, "limits": limits})

    assert len(seen(subject, "thread-binding")) == count


@pytest.mark.parametrize(("runtime", "count"), [("gnu", 0), ("intel", 1), ("llvm", 1), ("", 1)])
def test_kmp_affinity_counts_where_a_runtime_reads_it(runtime: str, count: int) -> None:
    base = with_threads(8, KMP_AFFINITY="proclist=[0],explicit")
    one = Library("openmp", "/venv/lib/libomp.so", facts={"runtime": runtime})
    openmp = ProbeReport(presence=Presence.FOUND, libraries=(one,) if runtime else ())
    subject = msgspec.structs.replace(base, probes={**base.probes, "openmp": openmp})

    assert len(seen(subject, "thread-binding")) == count


def test_one_thread_may_be_bound_to_one_cpu() -> None:
    one = with_threads(1, GOMP_CPU_AFFINITY="3")
    without = {name: probe for name, probe in one.probes.items() if name != "limits"}

    assert seen(one, "thread-binding") == []
    (check,) = checks(msgspec.structs.replace(one, probes=without), "thread-binding")
    assert check.status is Status.UNKNOWN


def test_one_thread_is_held_to_each_process_share_of_the_cpus() -> None:
    alone = with_variables("ci-leftovers", OMP_NUM_THREADS="1")
    four = with_variables("ci-leftovers", OMP_NUM_THREADS="1", LOCAL_WORLD_SIZE="4")
    hostile = with_variables("ci-leftovers", OMP_NUM_THREADS="1", LOCAL_WORLD_SIZE="9" * 4000)

    assert seen(alone, "omp-one-thread") == ["OMP_NUM_THREADS is 1; 8 CPUs are available"]
    assert checks(four, "omp-one-thread")[0].command == "export OMP_NUM_THREADS=2"
    assert checks(hostile, "omp-one-thread")[0].command == "export OMP_NUM_THREADS=8"


def test_the_ways_between_gpus_matter_only_where_there_are_two() -> None:
    one = with_variables("untuned-slurm-node", NCCL_P2P_DISABLE="1", NCCL_IB_DISABLE="1")

    assert [message.split("=")[0] for message in seen(one, "nccl-leftovers")] == ["NCCL_IB_DISABLE"]


def test_determinism_by_half_is_told_with_both_variables() -> None:
    subject = with_variables("ci-leftovers", TF_DETERMINISTIC_OPS="1", CUBLAS_WORKSPACE_CONFIG=":0:0")

    assert seen(subject, "cublas-not-deterministic") == [
        "TF_DETERMINISTIC_OPS requests deterministic results, but CUBLAS_WORKSPACE_CONFIG is ':0:0'"
    ]


def test_a_capability_that_torch_dies_of_is_an_error() -> None:
    (check,) = checks(report("broken-environment"), "isa-beyond-hardware")

    assert check.severity is Severity.ERROR
    assert check.command == "unset ATEN_CPU_CAPABILITY"


def test_a_long_value_is_cut_in_the_message() -> None:
    subject = with_variables("ci-leftovers", CUDA_LAUNCH_BLOCKING="1" * 5000)

    assert len(seen(subject, "cuda-launch-blocking")[0]) < 300
