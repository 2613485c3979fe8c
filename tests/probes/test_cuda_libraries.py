"""What the probes of NVIDIA's libraries find, on composed machines."""

from __future__ import annotations

import ctypes
import json
import platform
import shutil
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from mlbackends.base import registry
from mlbackends.host.host import Host
from mlbackends.libraries.cuda import cudnn_release
from mlbackends.libraries.cuda.libraries import version_in_file_name, version_in_header
from mlbackends.model.records import Library
from mlbackends_probes import cudnn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mlbackends.model.records import Finding

    Compiled = Callable[[str], Path]

SITE = "/venv/lib/python3.12/site-packages"
MULTIARCH = f"/usr/lib/{platform.machine()}-linux-gnu"


class Case(NamedTuple):
    """A wheel as NVIDIA lays it out, and the version that is told before it is opened."""

    probe: str
    library: str
    header: str
    defines: str
    package: str
    version: str


def defines(prefix: str, *numbers: int, suffix: str = "") -> str:
    names = ("MAJOR", "MINOR", "PATCH", "BUILD")
    lines = [f"#define {prefix}_{name}{suffix} {n}" for name, n in zip(names, numbers, strict=False)]
    return "\n".join(["#ifndef GUARD", *lines, ""])


CUDNN = "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 26\n#define CUDNN_PATCHLEVEL 0\n"
TENSOR = "#define CUTENSOR_MAJOR 2 //!< major\n#define CUTENSOR_MINOR 8\n#define CUTENSOR_PATCH 0\n"
NVSHMEM = defines("NVSHMEM_VENDOR", 3, 4, 5, suffix="_VERSION")
CU13 = f"{SITE}/nvidia/cu13"
CASES = (
    Case("nvrtc", f"{CU13}/lib/libnvrtc.so.13", "", "", "nvidia-cuda-nvrtc 13.5.37", "13.5"),
    Case("nvjitlink", f"{CU13}/lib/libnvJitLink.so.13", "", "", "nvidia-nvjitlink 13.5.37", "13.5"),
    Case("cublas", f"{CU13}/lib/libcublas.so.13", f"{CU13}/include/cublas_api.h",
         defines("CUBLAS_VER", 13, 1, 0, 3), "nvidia-cublas 13.1.0.3", "13.1.0"),
    Case("cudnn", f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9",
         f"{SITE}/nvidia/cudnn/include/cudnn_version.h", CUDNN,
         "nvidia-cudnn-cu13 9.26.0.42", "9.26.0"),
    Case("cusparselt", f"{SITE}/cusparselt/lib/libcusparseLt.so.0",
         f"{SITE}/cusparselt/include/cusparseLt.h", defines("CUSPARSELT_VER", 0, 6, 3, 2),
         "nvidia-cusparselt-cu12 0.6.3", "0.6.3"),
    Case("cusparse", f"{CU13}/lib/libcusparse.so.12", f"{CU13}/include/cusparse.h",
         defines("CUSPARSE_VER", 12, 6, 3, 3), "nvidia-cusparse 12.6.3.3", "12.6.3"),
    Case("cusolver", f"{CU13}/lib/libcusolver.so.12", f"{CU13}/include/cusolver_common.h",
         defines("  CUSOLVER_VER", 12, 0, 4, 66), "nvidia-cusolver 12.0.4.66", "12.0.4"),
    Case("cufft", f"{CU13}/lib/libcufft.so.12", f"{CU13}/include/cufft.h",
         defines("CUFFT_VER", 12, 0, 0, 61), "nvidia-cufft 12.0.0.61", "12.0.0"),
    Case("curand", f"{CU13}/lib/libcurand.so.10", f"{CU13}/include/curand.h",
         defines("CURAND_VER", 10, 4, 0, 35), "nvidia-curand 10.4.0.35", "10.4.0"),
    Case("nccl", f"{SITE}/nvidia/nccl/lib/libnccl.so.2", f"{SITE}/nvidia/nccl/include/nccl.h",
         defines("NCCL", 2, 28, 9), "nvidia-nccl-cu13 2.28.9", "2.28.9"),
    Case("nvshmem", f"{SITE}/nvidia/nvshmem/lib/libnvshmem_host.so.3",
         f"{SITE}/nvidia/nvshmem/include/non_abi/nvshmem_version.h", NVSHMEM,
         "nvidia-nvshmem-cu13 3.4.5", "3.4.5"),
    Case("cutensor", f"{SITE}/cutensor/lib/libcutensor.so.2", f"{SITE}/cutensor/include/cutensor.h",
         TENSOR, "cutensor-cu13 2.8.0", "2.8.0"),
    Case("cupti", f"{CU13}/lib/libcupti.so.13", f"{CU13}/include/cupti_version.h",
         "#define CUPTI_API_VERSION 130500\n", "nvidia-cuda-cupti 13.5.25", "13.5"),
)  # fmt: skip
NAMES = [case.probe for case in CASES]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Return an empty library with a soname, compiled once for all tests."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("empty")

    def compile_once(soname: str) -> Path:
        path = folder / soname
        if not path.exists():
            source = ["-x", "c", "/dev/null", "-nostdlib", "-shared", f"-Wl,-soname,{soname}"]
            subprocess.run([compiler, *source, "-o", path], check=True, capture_output=True)
        return path

    return compile_once


class Machine:
    """A machine that is composed of files below a folder."""

    def __init__(self, folder: Path, compiled: Compiled) -> None:
        self.folder = folder
        self._compiled = compiled
        (folder / "root").mkdir()

    def write(self, path: str, content: str | bytes = "") -> None:
        at = self.folder / "root" / path.lstrip("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(content if isinstance(content, bytes) else content.encode())

    def library(self, path: str, soname: str = "") -> None:
        self.write(path, self._compiled(soname or path.rpartition("/")[2]).read_bytes())

    def link(self, path: str, target: str) -> None:
        at = self.folder / "root" / path.lstrip("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(target)

    def package(self, name_and_version: str, *files: str) -> None:
        name, version = name_and_version.split()
        record = "".join(f"{path.removeprefix(SITE + '/')},sha256=x,1\n" for path in files)
        self.write(f"{SITE}/{name.replace('-', '_')}-{version}.dist-info/RECORD", record)

    def host(self, **environment: str) -> Host:
        told = {
            "python": {"path": [SITE], "prefix": "/venv"},
            "environment": environment,
            "uname": {"machine": platform.machine()},  # for which cc compiles
        }
        (self.folder / "host.json").write_text(json.dumps(told))
        return Host(str(self.folder))


@pytest.fixture
def machine(tmp_path: Path, compiled: Compiled) -> Machine:
    return Machine(tmp_path, compiled)


def find(name: str, host: Host) -> Finding:
    finding: Finding = registry.load("mlbackends_probes", name).find(host)
    return finding


def only(finding: Finding) -> Library:
    (library,) = finding.libraries
    return library


# ---- what is there ---------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.probe)
def test_a_wheel_tells_the_version_before_it_is_opened(case: Case, machine: Machine) -> None:
    machine.library(case.library)
    machine.package(case.package, case.library)

    library = only(find(case.probe, machine.host()))

    assert (library.path, library.version) == (case.library, case.version)
    assert (library.owner, library.found_by, library.wins) == (case.package, "site-packages", True)
    assert library.facts["version_source"] == "package"
    assert library.facts["package_version"] == case.package.split()[1]


@pytest.mark.parametrize("case", [case for case in CASES if case.header], ids=lambda c: c.probe)
def test_a_header_tells_the_version_where_no_package_does(case: Case, machine: Machine) -> None:
    machine.library(case.library)
    machine.write(case.header, case.defines)

    finding = find(case.probe, machine.host())

    assert only(finding).facts["version_source"] == "header"
    assert "package_version" not in only(finding).facts
    assert (finding.version, only(finding).version, only(finding).owner) == (
        *[case.version] * 2,
        "",
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_without_it_says_where_it_was_looked_for(name: str, machine: Machine) -> None:
    finding = find(name, machine.host(CUDA_HOME="/opt/mine"))

    assert finding.libraries == ()
    assert [reason.code for reason in finding.reasons] == ["not-found"]
    assert "CUDA_HOME (/opt/mine)" in finding.reasons[0].message


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.probe)
@pytest.mark.parametrize(
    "header",
    [b"", b"\0\xff\xfe", b"#define " * 9000, b"#define A 1\n#define CUDNN_MAJOR 99999999999\n"],
    ids=["empty", "binary", "huge", "number"],
)
def test_a_garbage_header_is_no_version(case: Case, header: bytes, machine: Machine) -> None:
    machine.library(case.library)
    machine.write(case.header or f"{CU13}/include/nvrtc.h", header)

    assert only(find(case.probe, machine.host())).version == ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.probe)
@pytest.mark.parametrize("content", [b"", b"\0\xff", b"\x7fELF", b"GROUP ( libx.so )"])
def test_a_file_that_is_no_library_is_reported_as_such(case: Case, content: bytes, machine: Machine) -> None:
    machine.write(case.library, content)

    library = only(find(case.probe, machine.host()))

    assert [reason.code for reason in library.reasons] == ["not-a-library"]
    assert library.version == ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.probe)
def test_a_package_without_its_file_is_metadata_only(case: Case, machine: Machine) -> None:
    machine.package(case.package)

    finding = find(case.probe, machine.host())

    assert [reason.code for reason in finding.reasons] == ["metadata-only", "not-found"]
    assert finding.reasons[0].message.startswith(f"{case.package} is installed")


def test_a_package_of_a_longer_name_is_another_package(machine: Machine) -> None:
    machine.package("nvidia-cusparselt-cu13 0.8.1")

    codes = [reason.code for reason in find("cusparse", machine.host()).reasons]

    assert codes == ["not-found"]


# ---- which version -----------------------------------------------------------------------------


def test_the_name_of_the_file_is_believed_before_the_header(machine: Machine) -> None:
    lib = "/usr/lib/x86_64-linux-gnu"
    machine.library(f"{lib}/libcudnn.so.9.1.1", "libcudnn.so.9")
    machine.link(f"{lib}/libcudnn.so.9", "libcudnn.so.9.1.1")
    machine.write("/usr/include/x86_64-linux-gnu/cudnn_version.h", CUDNN)

    finding = cudnn.find(machine.host())

    assert finding.version == "9.1.1"
    conflict = next(reason for reason in finding.warnings if reason.code == "conflict")
    assert "is 9.1.1 by its file name, and 9.26.0 by its header" in conflict.message


def test_a_header_of_another_major_version_belongs_to_another_copy(machine: Machine) -> None:
    machine.library("/usr/local/cuda-11.8/lib64/libcudnn.so.8")
    machine.write("/usr/local/cuda-11.8/include/cudnn_version.h", CUDNN)

    finding = cudnn.find(machine.host())

    assert (finding.version, only(finding).version) == ("", "")


def test_two_packages_that_wrote_one_folder_are_a_conflict(machine: Machine) -> None:
    path = f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"
    machine.library(path)
    machine.package("nvidia-cudnn-cu12 9.10.2.21", path)
    machine.write(f"{SITE}/nvidia/cudnn/include/cudnn_version.h", CUDNN)

    finding = cudnn.find(machine.host())

    conflict = next(reason for reason in finding.warnings if reason.code == "conflict")
    assert conflict.message == f"{path} is 9.26.0 by its header, and 9.10.2.21 by its package"
    assert "two packages" in conflict.hint


def test_a_package_may_count_its_own_revisions(machine: Machine) -> None:
    path = f"{SITE}/cutensor/lib/libcutensor.so.2"
    machine.library(path)
    machine.package("cutensor-cu13 2.8.1", path)
    machine.write(f"{SITE}/cutensor/include/cutensor.h", TENSOR)

    finding = registry.load("mlbackends_probes", "cutensor").find(machine.host())

    assert (finding.version, finding.warnings) == ("2.8.0", ())


def test_a_framework_that_carries_a_copy_does_not_lend_it_its_version(machine: Machine) -> None:
    path = f"{SITE}/torch/lib/libnccl.so.2"
    machine.library(path)
    machine.package("torch 2.4.0", path)

    library = only(registry.load("mlbackends_probes", "nccl").find(machine.host()))

    assert (library.owner, library.version) == ("torch 2.4.0", "")
    assert "package_version" not in library.facts


def test_a_toolkit_under_two_names_is_one_copy(machine: Machine) -> None:
    lib = "/usr/local/cuda-12.4/targets/x86_64-linux/lib"
    machine.library(f"{lib}/libcurand.so.10.3.5.147", "libcurand.so.10")
    machine.link(f"{lib}/libcurand.so.10", "libcurand.so.10.3.5.147")
    machine.link("/usr/local/cuda-12.4/lib64", "targets/x86_64-linux/lib")
    machine.link("/usr/local/cuda", "/usr/local/cuda-12.4")

    library = only(registry.load("mlbackends_probes", "curand").find(machine.host()))

    assert (library.version, library.found_by) == ("10.3.5", "well-known-folder")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("cupti", "/usr/local/cuda-12.4/extras/CUPTI/lib64/libcupti.so.12"),
        ("cusparselt", f"{MULTIARCH}/libcusparseLt/13/libcusparseLt.so.0"),
        ("cutensor", f"{MULTIARCH}/libcutensor/12/libcutensor.so.2"),
        ("nvshmem", f"{MULTIARCH}/nvshmem/12/libnvshmem_host.so.3"),
        ("nccl", "/opt/nvidia/hpc_sdk/Linux_x86_64/25.1/comm_libs/nccl/lib/libnccl.so.2"),
        ("cufft", "/opt/cuda/targets/x86_64-linux/lib/libcufft.so.12"),
        ("curand", "/usr/lib/cuda/lib64/libcurand.so.10"),
    ],
)
def test_a_customary_folder_is_searched(name: str, path: str, machine: Machine) -> None:
    machine.library(path)

    library = only(find(name, machine.host()))

    assert (library.path, library.found_by) == (path, "well-known-folder")


def test_cupti_of_the_toolkit_that_a_variable_names_is_found(machine: Machine) -> None:
    machine.library("/tools/cuda/extras/CUPTI/lib64/libcupti.so.12")

    assert only(registry.load("mlbackends_probes", "cupti").find(machine.host(CUDA_HOME="/tools/cuda/"))).wins


def test_every_copy_has_its_own_version(machine: Machine) -> None:
    machine.library("/opt/mine/lib/libnvrtc.so.12.4.127", "libnvrtc.so.12")
    machine.library(f"{CU13}/lib/libnvrtc.so.13")
    machine.package("nvidia-cuda-nvrtc 13.5.37", f"{CU13}/lib/libnvrtc.so.13")

    finding = registry.load("mlbackends_probes", "nvrtc").find(machine.host(CUDA_HOME="/opt/mine"))

    told = [(library.version, library.found_by, library.wins) for library in finding.libraries]
    assert told == [("13.5", "site-packages", True), ("12.4", "CUDA_HOME", True)]
    assert finding.version == "13.5"


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("libcublas.so.13.10.0.20", "13.10.0.20"),
        ("libnccl.so.2.30.7", "2.30.7"),
        ("libnvrtc.so.11.2", ""),
        ("libcudnn.so.9", ""),
        ("libcudnn.so", ""),
        ("libcudnn.so.9.1.x", ""),
        ("libcudnn.so.99999999.1.1", ""),
        ("", ""),
    ],
)
def test_a_file_name_tells_a_version_from_three_numbers_on(name: str, version: str) -> None:
    assert version_in_file_name(name) == version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("#define A 9\n#define B 1\n", "9.1"),
        ("  # define A (9)\r\n#define B 1 /* minor */\r\n", "9.1"),
        ("#define A 9\n", "9"),
        ("#define B 1\n", ""),
        ("#define A B\n#define B 1\n", ""),
        ("// #define A 9\n", ""),
        ("#define AA 9\n#define A_B 9\n", ""),
    ],
)
def test_a_header_tells_what_it_defines_and_nothing_else(text: str, version: str, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "version.h").write_bytes(text.encode())

    assert version_in_header(Host(str(tmp_path)), "/version.h", ("A", "B")) == version


@pytest.mark.parametrize(
    ("number", "version"), [(92600, "9.26.0"), (90100, "9.1.0"), (8907, "8.9.7"), (7605, "7.6.5")]
)
def test_a_cudnn_number_is_a_version(number: int, version: str) -> None:
    assert cudnn_release(number) == version


@pytest.mark.parametrize(
    ("number", "version"), [(23007, "2.30.7"), (21805, "2.18.5"), (2708, "2.7.8"), (2406, "2.4.6")]
)
def test_an_nccl_number_is_a_version(number: int, version: str) -> None:
    def get_version(address: Any) -> int:
        ctypes.cast(address, ctypes.POINTER(ctypes.c_int))[0] = number
        return 0

    opened = SimpleNamespace(ncclGetVersion=get_version)

    answer = registry.load("mlbackends_probes", "nccl").load(opened, Library("nccl", "libnccl.so.2"))

    assert answer.library.version == version


@pytest.mark.parametrize(("number", "version"), [("130500", "13.5"), ("22", ""), ("", "")])
def test_a_cupti_number_is_a_version_from_13_on(number: str, version: str) -> None:
    assert registry.load("mlbackends_probes", "cupti").LIBRARY.decode(number) == version


# ---- what steers it ------------------------------------------------------------------------------


def test_the_variables_that_steer_it_are_facts_and_no_others(machine: Machine) -> None:
    host = machine.host(NCCL_DEBUG="INFO", NCCL_COMM_ID="10.0.0.1:999", HOME="/root")

    assert registry.load("mlbackends_probes", "nccl").find(host).facts == {
        "environment": {"NCCL_DEBUG": "INFO"}
    }


def test_the_first_nccl_conf_that_sets_a_variable_holds(machine: Machine) -> None:
    machine.library(f"{SITE}/nvidia/nccl/lib/libnccl.so.2")
    machine.write("/home/me/.nccl.conf", "# for the hang\nNCCL_P2P_DISABLE=1\nnothing\nHOME=/x\n")
    machine.write("/etc/nccl.conf", "NCCL_P2P_DISABLE=0\nNCCL_IB_DISABLE=1\n")
    machine.write("/opt/nccl.conf", "NCCL_DEBUG=INFO\n")

    def rows(**environment: str) -> list[tuple[str, ...]]:
        found: Any = (
            registry.load("mlbackends_probes", "nccl")
            .find(machine.host(**environment))
            .facts["configuration"]
        )
        return [tuple(row.values()) for row in found]

    assert rows(HOME="/home/me") == [
        ("NCCL_P2P_DISABLE", "1", "/home/me/.nccl.conf"),
        ("NCCL_IB_DISABLE", "1", "/etc/nccl.conf"),
    ]
    assert rows(HOME="/home/me", NCCL_CONF_FILE="/opt/nccl.conf")[0][0] == "NCCL_DEBUG"


@pytest.mark.parametrize("value", [":4096:8", ":16:8", ":4096:2:16:8", ""])
def test_a_workspace_of_pairs_is_right(value: str, machine: Machine) -> None:
    assert (
        registry.load("mlbackends_probes", "cublas")
        .find(machine.host(CUBLAS_WORKSPACE_CONFIG=value))
        .warnings
        == ()
    )


@pytest.mark.parametrize("value", ["4096:8", ":4096", ":4096:8:", ":a:b", "deterministic"])
def test_a_workspace_that_is_no_pairs_is_a_warning(value: str, machine: Machine) -> None:
    (warning,) = (
        registry.load("mlbackends_probes", "cublas")
        .find(machine.host(CUBLAS_WORKSPACE_CONFIG=value))
        .warnings
    )

    assert warning.code == "override-invalid"
    assert repr(value) in warning.message


# ---- libraries of several files ----------------------------------------------------------------


def test_cublas_speaks_for_itself_and_cublaslt(machine: Machine) -> None:
    machine.library(f"{CU13}/lib/libcublas.so.13")
    machine.library(f"{CU13}/lib/libcublasLt.so.13")

    finding = registry.load("mlbackends_probes", "cublas").find(machine.host())

    assert [library.name for library in finding.libraries] == ["cublas", "cublasLt"]
    assert finding.warnings == ()


def test_a_cublaslt_of_another_version_is_a_conflict(machine: Machine) -> None:
    machine.library("/opt/new/libcublasLt.so.12.6.1.4", "libcublasLt.so.12")
    lib = "/usr/local/cuda/lib64"
    machine.library(f"{lib}/libcublas.so.12.4.5.8", "libcublas.so.12")
    machine.library(f"{lib}/libcublasLt.so.12.4.5.8", "libcublasLt.so.12")

    finding = registry.load("mlbackends_probes", "cublas").find(machine.host(LD_LIBRARY_PATH="/opt/new"))

    (warning,) = finding.warnings
    assert warning.code == "conflict"
    assert "is 12.4.5, and /opt/new/libcublasLt.so.12.6.1.4 is 12.6.1" in warning.message


PARTS = (
    *("graph", "ops", "adv", "cnn", "heuristic"),
    *("engines_precompiled", "engines_runtime_compiled"),
)


def cudnn_with(machine: Machine, *parts: str, folder: str = "cudnn") -> Finding:
    for name in ("", *(f"_{part}" for part in parts)):
        machine.library(f"{SITE}/nvidia/{folder}/lib/libcudnn{name}.so.9")
    return cudnn.find(machine.host())


def test_a_whole_cudnn_lacks_nothing(machine: Machine) -> None:
    finding = cudnn_with(machine, *PARTS, "engines_tensor_ir")

    assert only(finding).facts["sub_libraries"] == sorted([*PARTS, "engines_tensor_ir"])
    assert only(finding).facts["missing_sub_libraries"] == []
    assert finding.warnings == ()


def test_a_cudnn_that_compiles_its_kernels_is_whole_with_two(machine: Machine) -> None:
    finding = cudnn_with(machine, "graph", "engines_runtime_compiled", folder="cudnn_jit")

    assert finding.warnings == ()
    assert "ops" in only(finding).facts["missing_sub_libraries"]  # type: ignore[operator]


def test_the_sub_libraries_that_are_missing_are_named(machine: Machine) -> None:
    finding = cudnn_with(machine, *(part for part in PARTS if part not in ("cnn", "heuristic")))

    (warning,) = finding.warnings
    assert warning.code == "sub-library-missing"
    assert "lacks cnn, heuristic next to it" in warning.message
    assert only(finding).facts["missing_sub_libraries"] == ["cnn", "heuristic"]


def test_a_dangling_sub_library_is_missing(machine: Machine) -> None:
    machine.link(f"{SITE}/nvidia/cudnn/lib/libcudnn_ops.so.9", "libcudnn_ops.so.9.1.0")

    finding = cudnn_with(machine, *(part for part in PARTS if part != "ops"))

    assert only(finding).facts["missing_sub_libraries"] == ["ops"]


def place_cudnn(machine: Machine, folder: str, version: str, *parts: str) -> None:
    """Put a cuDNN there, "" for libcudnn itself, as files with their version in the name."""
    for part in parts:
        name = f"libcudnn_{part}" if part else "libcudnn"
        machine.library(f"{folder}/{name}.so.{version}", f"{name}.so.9")
        machine.link(f"{folder}/{name}.so.9", f"{name}.so.{version}")


def test_a_stray_part_on_the_search_path_comes_before_the_one_beside_libcudnn(
    machine: Machine,
) -> None:
    place_cudnn(machine, "/usr/lib/x86_64-linux-gnu", "9.1.0", "", *PARTS)
    place_cudnn(machine, "/opt/stray", "9.5.1", "ops")

    (warning,) = cudnn.find(machine.host(LD_LIBRARY_PATH="/opt/stray")).warnings

    assert warning.code == "sub-library-shadowed"
    assert "gets /opt/stray/libcudnn_ops.so.9, which is 9.5.1, before the one" in warning.message
    assert warning.hint == "remove /opt/stray from LD_LIBRARY_PATH"


def test_a_stray_part_of_the_same_version_is_no_mixture(machine: Machine) -> None:
    place_cudnn(machine, "/usr/lib/x86_64-linux-gnu", "9.1.0", "", *PARTS)
    place_cudnn(machine, "/opt/stray", "9.1.0", "ops")

    assert cudnn.find(machine.host(LD_LIBRARY_PATH="/opt/stray")).warnings == ()


def test_a_part_that_a_wheel_lacks_is_taken_from_the_system(machine: Machine) -> None:
    home = f"{SITE}/nvidia/cudnn/lib"
    place_cudnn(machine, home, "9.10.2", "", *PARTS)
    place_cudnn(machine, "/usr/lib/x86_64-linux-gnu", "9.20.0", "", *PARTS, "engines_tensor_ir")

    (warning,) = cudnn.find(machine.host()).warnings

    assert warning.code == "sub-library-shadowed"
    assert "libcudnn_engines_tensor_ir.so.9, which is 9.20.0, as none is next to" in warning.message
    assert warning.hint == "install one whole cuDNN, and remove the other"


def test_a_sub_library_of_another_version_is_a_warning(machine: Machine) -> None:
    lib = "/usr/lib/x86_64-linux-gnu"
    for part in PARTS:
        version = "9.5.1" if part == "cnn" else "9.1.0"
        machine.library(f"{lib}/libcudnn_{part}.so.{version}", f"libcudnn_{part}.so.9")
        machine.link(f"{lib}/libcudnn_{part}.so.9", f"libcudnn_{part}.so.{version}")
    machine.library(f"{lib}/libcudnn.so.9.1.0", "libcudnn.so.9")

    (warning,) = cudnn.find(machine.host()).warnings

    assert warning.code == "sub-library-mismatch"
    assert "libcudnn_cnn.so.9.5.1 is 9.5.1, and" in warning.message
