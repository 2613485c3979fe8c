"""What host, limits and python tell of this machine is what the system's own tools tell."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys

import psutil
import pytest

from mlbackends.host.host import Host
from mlbackends_probes import host as host_probe
from mlbackends_probes import limits as limits_probe
from mlbackends_probes import python as python_probe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="compares with Linux tools")


def said_by(*command: str, **environment: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} here")
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    if told.returncode:
        pytest.skip(f"{' '.join(command)} failed")
    return told.stdout.strip()


def expected_threads(**environment: str) -> dict[str, int]:
    # Variables that the test's own environment has would steer both sides apart.
    kept = {name: value for name, value in os.environ.items() if "THREAD" not in name}
    facts = limits_probe.find(Host(environment=kept | environment)).facts
    rows = facts["threads_expected"]
    assert isinstance(rows, list)
    return {row["runtime"]: row["cpus"] for row in rows}


def test_affinity_is_that_of_the_scheduler() -> None:
    facts = limits_probe.find(Host()).facts
    assert facts["affinity_cpus"] == len(os.sched_getaffinity(0))


def test_online_cpus_are_those_of_os_cpu_count() -> None:
    assert limits_probe.find(Host()).facts["online_cpus"] == os.cpu_count()


@pytest.mark.parametrize("value", ["", "1", "3", "5,2", "many"])
def test_nproc_believes_what_we_say_it_does(value: str) -> None:
    version = said_by("nproc", "--version").splitlines()[0].rsplit(" ", 1)[-1]
    if tuple(map(int, version.split(".")[:2])) >= (9, 8):
        pytest.skip("this nproc counts the quota")
    told = said_by("nproc", OMP_NUM_THREADS=value, OMP_THREAD_LIMIT="")
    assert expected_threads(OMP_NUM_THREADS=value)["nproc"] == int(told)


@pytest.mark.parametrize(
    "variables",
    [{}, {"OMP_NUM_THREADS": "1"}, {"OPENBLAS_NUM_THREADS": "1"}, {"OPENBLAS_NUM_THREADS": "99"}],
    ids=str,
)
def test_openblas_believes_what_we_say_it_does(variables: dict[str, str]) -> None:
    pytest.importorskip("numpy")
    pytest.importorskip("threadpoolctl")
    program = (
        "import numpy, threadpoolctl\n"
        "print([i['num_threads'] for i in threadpoolctl.threadpool_info()"
        " if i['internal_api'] == 'openblas'][0])"
    )
    cleared = {name: "" for name in os.environ if "THREAD" in name}
    told = said_by(sys.executable, "-c", program, **(cleared | variables))
    assert expected_threads(**variables)["OpenBLAS"] == int(told)


@pytest.mark.torch
@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OMP_NUM_THREADS": "1"},
        {"OMP_NUM_THREADS": "77"},
        {"MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "2"},
        {"MKL_DYNAMIC": "FALSE", "MKL_NUM_THREADS": "5", "OMP_NUM_THREADS": "3"},
    ],
    ids=str,
)
def test_torch_believes_what_we_say_it_does(variables: dict[str, str]) -> None:
    torch = pytest.importorskip("torch")
    if not torch.backends.mkl.is_available():
        pytest.skip("this torch has no MKL")
    cleared = {name: "" for name in os.environ if "THREAD" in name}
    told = said_by(
        sys.executable,
        "-c",
        "import torch; print(torch.get_num_threads())",
        **(cleared | variables),
    )
    assert expected_threads(**variables)["torch"] == int(told)


def test_memory_is_at_most_what_psutil_counts() -> None:
    facts = limits_probe.find(Host()).facts
    total = psutil.virtual_memory().total
    if facts["effective_memory_because"] == "machine":
        assert facts["effective_memory_bytes"] == total
    else:
        told = facts["effective_memory_bytes"]
        assert isinstance(told, int) and told < total


@pytest.mark.parametrize(
    ("fact", "limit"),
    [
        ("open_files_limit", resource.RLIMIT_NOFILE),
        ("user_processes_limit", resource.RLIMIT_NPROC),
        ("stack_limit_bytes", resource.RLIMIT_STACK),
        ("locked_memory_limit_bytes", resource.RLIMIT_MEMLOCK),
        ("address_space_limit_bytes", resource.RLIMIT_AS),
    ],
)
def test_ulimits_are_those_of_getrlimit(fact: str, limit: int) -> None:
    facts = limits_probe.find(Host()).facts
    soft = resource.getrlimit(limit)[0]
    unlimited = facts.get("unlimited", [])
    assert isinstance(unlimited, list)
    if soft == resource.RLIM_INFINITY:
        assert fact in unlimited
    else:
        assert facts[fact] == soft


@pytest.mark.parametrize(
    ("option", "fact"),
    [("-s", "kernel_name"), ("-r", "kernel_release"), ("-v", "kernel_version"), ("-m", "machine")],
)
def test_the_kernel_is_that_of_uname(option: str, fact: str) -> None:
    assert host_probe.find(Host()).facts[fact] == said_by("uname", option)


def test_the_c_library_is_that_of_getconf() -> None:
    told = said_by("getconf", "GNU_LIBC_VERSION")
    facts = host_probe.find(Host()).facts
    assert f"{facts['libc']} {facts['libc_version']}" == told


def test_a_root_folder_tells_the_same_c_library_as_the_machine(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    told = said_by("getconf", "GNU_LIBC_VERSION")
    source = next(iter(Host().glob("/lib/*-linux-gnu*/libc.so.6")), "")
    if not source:
        pytest.skip("the C library lies elsewhere")
    folder = tmp_path_factory.mktemp("image")
    copy = folder / source[1:]
    copy.parent.mkdir(parents=True)
    shutil.copyfile(source, copy)
    facts = host_probe.find(Host(str(folder))).facts
    assert f"{facts['libc']} {facts['libc_version']}" == told


def test_shared_memory_is_that_of_df() -> None:
    facts = host_probe.find(Host()).facts
    if "shared_memory_bytes" not in facts:
        pytest.skip("/dev/shm is no file system of its own")
    line = said_by("df", "-B1", "--output=size", "/dev/shm").splitlines()[-1]
    assert facts["shared_memory_bytes"] == int(line)


def test_uptime_is_that_of_psutil() -> None:
    import time

    told = host_probe.find(Host()).facts["uptime_seconds"]
    assert isinstance(told, float)
    assert abs(told - (time.time() - psutil.boot_time())) < 60


def test_the_distribution_is_what_the_shell_reads() -> None:
    told = said_by("sh", "-c", '. /etc/os-release && printf "%s|%s|%s" "$ID" "$NAME" "$VERSION_ID"')
    facts = host_probe.find(Host()).facts
    names = ("os_id", "os_name", "os_version")
    assert "|".join(str(facts.get(name, "")) for name in names) == told


def test_the_interpreter_is_ours() -> None:
    found = python_probe.find(Host())
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert found.facts["is_virtual_environment"] is (sys.prefix != sys.base_prefix)
    assert found.facts["executable"] == sys.executable


def test_the_gil_is_what_sysconfig_says() -> None:
    import sysconfig

    told = python_probe.find(Host()).facts.get("free_threaded")
    if told is None:
        pytest.skip("the folders do not tell")
    assert told is bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
