"""The environment probe: what it reports, what it never does, and what it warns of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from mlbackends.host.host import Host
from mlbackends_probes import environment as probe

if TYPE_CHECKING:
    from pathlib import Path

    from mlbackends.model.records import Finding


def look(folder: Path, environment: dict[str, str]) -> Finding:
    return probe.find(Host(str(folder), environment=environment))


@pytest.mark.parametrize(
    "name",
    [
        "CUDA_LAUNCH_BLOCKING",
        "NCCL_P2P_DISABLE",
        "OMP_NUM_THREADS",
        "KMP_AFFINITY",
        "ONEDNN_MAX_CPU_ISA",
        "ATEN_CPU_CAPABILITY",
        "PYTORCH_CUDA_ALLOC_CONF",
        "HSA_OVERRIDE_GFX_VERSION",
        "LD_LIBRARY_PATH",
        "DYLD_INSERT_LIBRARIES",
        "PYTHONPATH",
        "PYTHON_GIL",
        "TF_CPP_MIN_LOG_LEVEL",
        "XLA_FLAGS",
        "SLURM_CPUS_PER_TASK",
    ],
)
def test_variables_that_steer_are_reported(tmp_path: Path, name: str) -> None:
    assert look(tmp_path, {name: "1"}).facts == {"variables": {name: "1"}}


@pytest.mark.parametrize(
    "name",
    [
        "HOME",
        "USER",
        "PATH",
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "NVIDIA_API_KEY",
        "TORCH_HUB_TOKEN",
        "JAX_SECRET",
        "NCCL_PASSWORD",
        "XLA_CREDENTIALS",
        "TF_VAR_db_pass",
        "TF_TOKEN_app_terraform_io",
        "NCCL_COMM_ID",
        "OMPI_MCA_orte_local_daemon_uri",
        "OMPI_MCA_ess_base_vpid",
        "PYTHON_KEYRING_BACKEND",
        "SLURM_JOB_USER",
        "SLURM_SUBMIT_HOST",
    ],
)
def test_what_names_users_machines_or_secrets_is_not(tmp_path: Path, name: str) -> None:
    assert look(tmp_path, {name: "hunter2"}).facts == {"variables": {}}


def test_bytes_that_are_no_text_still_make_a_report(tmp_path: Path) -> None:
    value = "/a\udcff"
    found = look(tmp_path, {"LD_PRELOAD": value, "CUDA_HOME": value, "OMP_PLACES": "cores"})
    assert b"cores" in msgspec.json.encode(found)


@pytest.mark.parametrize(
    "name",
    [
        "CUDA_HOME",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
    ],
)
def test_what_another_probe_checks_is_only_reported(tmp_path: Path, name: str) -> None:
    found = look(tmp_path, {name: "/-1"})
    assert (found.facts, found.warnings) == ({"variables": {name: "/-1"}}, ())


@pytest.mark.parametrize("value", ["four", "0", "-2", "4,", "4 2", "1e3", "9" * 5000, "٤"])
def test_a_thread_count_that_is_no_number_is_a_warning(tmp_path: Path, value: str) -> None:
    (warning,) = look(tmp_path, {"NUMEXPR_NUM_THREADS": value}).warnings
    assert warning.code == "override-invalid"
    assert warning.message.startswith("NUMEXPR_NUM_THREADS is ")


@pytest.mark.parametrize("value", ["4", " 4 ", "4,2", "+4", ""])
def test_a_thread_count_or_a_list_of_them_is_none(tmp_path: Path, value: str) -> None:
    assert not look(tmp_path, {"NUMEXPR_NUM_THREADS": value}).warnings


def test_a_preload_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "here.so").touch()
    preload = "/lib/here.so:/lib/gone.so libbare.so /usr/$LIB/x.so"
    (warning,) = look(tmp_path, {"LD_PRELOAD": preload}).warnings
    assert warning.message == ("LD_PRELOAD names /lib/gone.so, which does not exist; the loader ignores it")


def test_a_toolkit_folder_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    (warning,) = look(tmp_path, {"ROCM_PATH": "/opt/rocm-9.9"}).warnings
    assert warning.message == "ROCM_PATH names /opt/rocm-9.9, which is not a folder"


def test_two_names_for_two_toolkits_are_a_conflict(tmp_path: Path) -> None:
    (tmp_path / "cuda-12").mkdir()
    (tmp_path / "cuda-13").mkdir()
    (tmp_path / "cuda").symlink_to("cuda-13")
    same = {"CUDA_HOME": "/cuda", "CUDA_PATH": "/cuda-13"}
    assert not look(tmp_path, same).warnings
    (warning,) = look(tmp_path, {"CUDA_HOME": "/cuda-12", "CUDA_PATH": "/cuda"}).warnings
    assert warning.code == "conflict"


def test_a_machine_without_a_recorded_environment_tells_nothing(tmp_path: Path) -> None:
    assert look(tmp_path, {}).facts == {}


@pytest.mark.parametrize("value", [":", ":/lib", "/lib:", "/lib::/lib", ";", "/lib;"])
def test_an_empty_element_of_the_library_path_is_a_warning(tmp_path: Path, value: str) -> None:
    (tmp_path / "lib").mkdir()

    (warning,) = look(tmp_path, {"LD_LIBRARY_PATH": value}).warnings
    assert warning.code == "override-invalid"
    assert warning.message == (
        "LD_LIBRARY_PATH has an empty element, which means the current folder, "
        "whatever that is when a program starts"
    )


@pytest.mark.parametrize(
    "value",
    ["", "/lib", "/lib/:/lib", "$ORIGIN/x", "/x/$LIB", "/lib;/lib", "/usr/local/nvidia/lib"],
)
def test_a_library_path_of_folders_that_are_there_is_none(tmp_path: Path, value: str) -> None:
    (tmp_path / "lib").mkdir()

    assert look(tmp_path, {"LD_LIBRARY_PATH": value}).warnings == ()


def test_an_element_of_the_library_path_that_is_no_folder_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    warnings = look(tmp_path, {"LD_LIBRARY_PATH": "/gone:/file:/gone"}).warnings
    assert [warning.message for warning in warnings] == [
        "LD_LIBRARY_PATH names /gone, which does not exist; the loader ignores it",
        "LD_LIBRARY_PATH names /file, which is not a folder; the loader ignores it",
    ]
