"""What the probes of NVIDIA's libraries do with opened libraries: small fakes in C.

The fake driver's device memory is the host's, so the fake libraries compute in it as the real ones
do on a device, in the order of arguments that NVIDIA's headers give.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from mlbackends.host.host import Host
from mlbackends.model.records import Presence
from mlbackends.survey import survey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import FakeLibrary

    from mlbackends.model.records import Library, ProbeReport

    Asked = Callable[..., tuple[ProbeReport, Library]]

SONAMES = {
    "cublas": "libcublas.so.13",
    "cublasLt": "libcublasLt.so.13",
    "cufft": "libcufft.so.12",
    "curand": "libcurand.so.10",
    "cusparse": "libcusparse.so.12",
    "cusolver": "libcusolver.so.12",
    "cusparselt": "libcusparseLt.so.0",
    "nccl": "libnccl.so.2",
    "nvshmem": "libnvshmem_host.so.3",
    "cutensor": "libcutensor.so.2",
    "cupti": "libcupti.so.13",
    "nvrtc": "libnvrtc.so.13",
    "nvjitlink": "libnvJitLink.so.13",
    "cudnn": "libcudnn.so.9",
}
ON_A_DEVICE = tuple(name for name in SONAMES if name not in ("nvrtc", "nvjitlink", "nvshmem"))
COMPUTING = tuple(name for name in SONAMES if name not in ("nvshmem", "cutensor", "cupti", "cusparselt"))
VERSIONS = {
    "cublas": "13.10.0", "cublasLt": "13.10.0", "cufft": "12.5.0", "curand": "10.4.5",
    "cusparse": "12.9.4", "cusolver": "12.4.1", "cusparselt": "0.8.1", "nccl": "2.30.7",
    "nvshmem": "3.4.5", "cutensor": "2.8.1", "cupti": "13.5", "nvrtc": "13.5", "nvjitlink": "13.5",
    "cudnn": "9.26.0",
}  # fmt: skip
CUDNN_PARTS = (
    *("graph", "ops", "adv", "cnn", "heuristic"),
    *("engines_precompiled", "engines_runtime_compiled"),
)


@pytest.fixture
def fakes(fake_library: FakeLibrary) -> Callable[[str], Path]:
    """Return a compiled fake; each is compiled once."""

    def compiled(name: str) -> Path:
        if name == "driver":
            return fake_library("computing_driver", "libcuda.so.1")
        return fake_library("cuda_libraries", SONAMES[name], defines=(f"OF_{name}",))

    return compiled


@pytest.fixture
def asked(fakes: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Survey the probe of a fake, with the fake before whatever this machine has."""

    def ask(name: str, driver: bool = True, **variables: str) -> tuple[ProbeReport, Library]:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        for needed in (name, "driver") if driver else (name,):
            shutil.copy(fakes(needed), tmp_path)
        if name == "cudnn":
            lacked = variables.get("FAKE_LACKS", "")
            for part in CUDNN_PARTS:
                if part not in lacked:
                    shutil.copy(fakes(name), tmp_path / f"libcudnn_{part}.so.9")
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        probe = "cublas" if name == "cublasLt" else name
        report = survey((probe,), Host(), Presence.USABLE).probes[probe]
        path = str(tmp_path / SONAMES[name])
        (library,) = (library for library in report.libraries if library.path == path)
        assert report.failure is None
        return report, library

    return ask


def only_reason(library: Library) -> tuple[str, str]:
    (reason,) = library.reasons
    return reason.code, reason.message


@pytest.mark.parametrize("name", [name for name in SONAMES if name != "nvshmem"])
def test_a_library_that_computes_right_is_usable(name: str, asked: Asked) -> None:
    _, library = asked(name)

    assert library.reasons == ()
    assert (library.presence, library.version) == (Presence.USABLE, VERSIONS[name])
    assert library.facts["version_source"] == "library"


def test_nothing_is_claimed_of_nvshmem_but_its_version(asked: Asked) -> None:
    _, library = asked("nvshmem")

    assert (library.presence, library.version) == (Presence.LOADABLE, "3.4.5")
    assert only_reason(library)[0] == "no-use-check"


@pytest.mark.parametrize("name", COMPUTING)
def test_a_library_that_computes_wrong_is_not_usable(name: str, asked: Asked) -> None:
    _, library = asked(name, FAKE_WRONG="1")

    assert library.presence is Presence.LOADABLE
    assert only_reason(library)[0] == "wrong-result"


@pytest.mark.parametrize("name", [name for name in ON_A_DEVICE if name != "curand"])
def test_a_library_without_a_device_is_loadable(name: str, asked: Asked) -> None:
    _, library = asked(name, FAKE_INIT="100", CUDA_VISIBLE_DEVICES="")

    code, message = only_reason(library)
    assert (library.presence, code) == (Presence.LOADABLE, "no-device")
    assert message == "cuInit returned 100 (CUDA_ERROR_NO_DEVICE); CUDA_VISIBLE_DEVICES is ''"
    assert library.version == ("" if name == "cupti" else VERSIONS[name])


@pytest.mark.parametrize(
    ("variables", "code", "words"),
    [
        ({"FAKE_CUDA_GPUS": "0"}, "no-device", "counted 0 devices"),
        ({"FAKE_CUDA": "12040"}, "driver-too-old", "CUDA 13, and the driver offers CUDA 12.4"),
        ({"FAKE_SYNC": "700"}, "call-failed", "returned 700 (CUDA_ERROR_ILLEGAL_ADDRESS)"),
        ({"FAKE_STATUS": "1"}, "call-failed", "returned 1 (CUBLAS_STATUS_NOT_INITIALIZED)"),
        ({"FAKE_STATUS": "77"}, "call-failed", "cublasCreate_v2 returned 77 (an unnamed status)"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else None,
)
def test_what_breaks_on_the_way_to_the_device_is_told(
    variables: dict[str, str], code: str, words: str, asked: Asked
) -> None:
    _, library = asked("cublas", **variables)

    assert (library.presence, only_reason(library)[0]) == (Presence.LOADABLE, code)
    assert words in only_reason(library)[1]


@pytest.mark.parametrize("name", ["cublas", "cublasLt", "cusolver", "nccl", "nvrtc"])
def test_a_library_that_does_not_tell_its_version_is_not_loadable(name: str, asked: Asked) -> None:
    _, library = asked(name, FAKE_PROPERTY="2")

    assert (library.presence, only_reason(library)[0]) == (Presence.FOUND, "call-failed")


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("cusparse", "1", "cusparseCreate returned 1 (CUSPARSE_STATUS_NOT_INITIALIZED)"),
        ("cudnn", "1001", "cudnnCreate returned 1001 (CUDNN_STATUS_NOT_INITIALIZED)"),
        ("nccl", "2", "ncclCommInitAll returned 2 (unhandled system error)"),
        ("cutensor", "18", "cutensorCreate returned 18 (CUTENSOR_STATUS_CUDA_ERROR)"),
        ("cufft", "5", "cufftPlan1d returned 5 (CUFFT_INTERNAL_ERROR)"),
        ("curand", "203", "curandCreateGenerator returned 203 (CURAND_STATUS_INITIALIZATION_FAIL"),
        ("cusolver", "7", "cusolverDnCreate returned 7 (CUSOLVER_STATUS_INTERNAL_ERROR)"),
        ("nvjitlink", "4", "nvJitLinkCreate returned 4 (NVJITLINK_ERROR_PTX_COMPILE)"),
        ("nvrtc", "6", "nvrtcCompileProgram returned 6 (NVRTC_ERROR): a log"),
    ],
)
def test_a_failed_call_is_told_by_function_code_and_name(
    name: str, status: str, words: str, asked: Asked
) -> None:
    _, library = asked(name, FAKE_STATUS=status)

    code, message = only_reason(library)
    assert (library.presence, code) == (Presence.LOADABLE, "call-failed")
    assert words in message


def test_a_driver_that_does_not_open_is_no_driver(
    asked: Asked, tmp_path: Path, fakes: Callable[[str], Path]
) -> None:
    (tmp_path / "libcuda.so.1").write_text("a file that is too short or no library at all\n" * 9)
    _, library = asked("cublas", driver=False)

    code, message = only_reason(library)
    assert (library.presence, code) == (Presence.LOADABLE, "no-driver")
    assert "libcuda.so.1" in message


def test_an_old_device_is_not_a_failed_call_to_cusparselt(asked: Asked) -> None:
    _, library = asked("cusparselt", FAKE_STATUS="4")

    assert only_reason(library)[0] == "unsupported-hardware"


def test_nvrtc_without_its_builtins_lacks_a_dependency(asked: Asked) -> None:
    _, library = asked("nvrtc", FAKE_STATUS="7")

    assert (library.presence, only_reason(library)[0]) == (Presence.LOADABLE, "missing-dependency")


def test_nvrtc_tells_for_what_it_compiles(asked: Asked) -> None:
    report, _ = asked("nvrtc", driver=False)

    assert report.facts == {"compute_capabilities": ["7.5", "9.0", "10.3"]}


def test_curand_without_a_device_is_usable_on_the_host(asked: Asked) -> None:
    report, library = asked("curand", FAKE_INIT="100")

    assert (library.presence, report.facts) == (Presence.USABLE, {"checked_on": "host"})


def test_curand_with_a_broken_driver_says_so(asked: Asked) -> None:
    _, library = asked("curand", FAKE_INIT="803")

    assert (library.presence, only_reason(library)[0]) == (Presence.LOADABLE, "driver-mismatch")


# ---- cuDNN -----------------------------------------------------------------------------------


def test_cudnn_tells_its_cuda_and_the_chips_it_knows(asked: Asked) -> None:
    report, _ = asked("cudnn", FAKE_VERSION="90100")

    assert (report.version, report.warnings) == ("9.1.0", ())
    assert report.facts == {"cuda_version": "13.4", "max_compute_capability": "12.1"}


def test_cudnn_without_its_graph_is_not_called_and_does_not_crash(asked: Asked) -> None:
    _, library = asked("cudnn", FAKE_LACKS="graph")

    code, message = only_reason(library)
    assert (library.presence, code) == (Presence.FOUND, "sub-library-missing")
    assert "needs libcudnn_graph.so.9, which is not next to it" in message


def test_cudnn_without_its_operations_is_usable_by_its_handle(asked: Asked) -> None:
    report, library = asked("cudnn", FAKE_LACKS="ops")

    assert library.presence is Presence.USABLE
    assert [warning.code for warning in report.warnings] == ["sub-library-missing"]


def test_cudnn_that_refuses_a_sub_library_is_a_warning(asked: Asked) -> None:
    report, _ = asked("cudnn", FAKE_OPS="1002")

    (warning,) = report.warnings
    assert warning.code == "sub-library-mismatch"
    assert "cudnnOpsVersionCheck returned 1002 (CUDNN_STATUS_SUBLIBRARY_VERSION" in warning.message


# ---- what files said before -------------------------------------------------------------------


def test_a_library_of_another_version_than_its_name_is_a_conflict(
    asked: Asked, fakes: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "libcufft.so.12").symlink_to("libcufft.so.12.3.1.2")
    report, library = asked("cufft")

    (warning,) = report.warnings
    assert (library.version, warning.code) == ("12.5.0", "conflict")
    assert "reports version 12.5.0; its file name has 12.3.1" in warning.message


@pytest.mark.parametrize("name", ["cublas", "cudnn", "nccl", "nvrtc"])
def test_a_library_without_its_functions_lacks_a_symbol(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fakes: Callable[[str], Path]
) -> None:
    soname = SONAMES[name]
    shutil.copy(fakes("nvshmem"), tmp_path / soname)
    for part in CUDNN_PARTS:
        shutil.copy(fakes("nvshmem"), tmp_path / f"libcudnn_{part}.so.9")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))

    report = survey((name,), Host(), Presence.USABLE).probes[name]

    (library,) = (library for library in report.libraries if library.path == str(tmp_path / soname))
    assert only_reason(library)[0] == "missing-symbol"
