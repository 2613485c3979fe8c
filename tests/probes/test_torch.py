from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.host.host import Host
from mlbackends.model.records import Presence, ProbeReport
from mlbackends.survey import survey
from mlbackends_probes import packages, torch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.conftest import FakeLibrary, Machine
    from tests.probes.conftest import Asked


def headers(soname: str, needed: Sequence[str] = (), **paths: list[str]) -> dict[str, Any]:
    """Return what `read_elf` would return of such a library. paths: its rpath and its runpath."""
    texts = {"soname": soname, "needed": needed, "rpath": [], "runpath": [], **paths}
    return {"machine": "x86_64", **texts}


CPU_BUILD = """
from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '2.13.0+cpu'
debug = False
cuda: Optional[str] = None
git_version = 'cf30153c4c131c8164ee7798e5022d810682e2cb'
hip: Optional[str] = None
rocm: Optional[str] = None
xpu: Optional[str] = None
"""
CUDA_BUILD = CPU_BUILD.replace("+cpu", "+cu132").replace(
    "cuda: Optional[str] = None", "cuda: Optional[str] = '13.2'"
)
LIBRARIES = "/site/torch/lib"
GPU = "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:2330\n"
KERNEL = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build\n"


def site(version: str, metadata: str = "") -> dict[str, str | bytes]:
    return {
        "site/torch-2.13.0.dist-info/METADATA": metadata,
        "site/torch/__init__.py": "",
        "site/torch/version.py": version,
    }


def test_a_cpu_build_is_read_from_version_py(machine: Machine) -> None:
    finding = torch.find(machine(site(CPU_BUILD)))

    assert (finding.presence, finding.version) == (Presence.FOUND, "2.13.0+cpu")
    assert finding.facts == {
        "distribution": "torch",
        "location": "/site/torch",
        "built_for": "cpu",
        "debug": False,
        "git_version": "cf30153c4c131c8164ee7798e5022d810682e2cb",
    }
    assert (finding.reasons, finding.warnings) == ((), ())


@pytest.mark.parametrize(
    ("changed", "built_for", "fact"),
    [
        ("cuda: Optional[str] = '13.2'", "cuda", ("cuda_version", "13.2")),
        ("cuda = '11.8'", "cuda", ("cuda_version", "11.8")),
        ("hip: Optional[str] = '7.0.51831'", "rocm", ("hip_version", "7.0.51831")),
        ("xpu: Optional[str] = '20250200'", "xpu", ("xpu_version", "20250200")),
    ],
)
def test_each_build_names_what_it_is_for(
    machine: Machine, changed: str, built_for: str, fact: tuple[str, str]
) -> None:
    text = f"__version__ = '2.9.0'\n{changed}\n"

    facts = torch.find(machine(site(text))).facts

    assert facts["built_for"] == built_for
    assert facts[fact[0]] == fact[1]


@pytest.mark.parametrize(
    ("processor", "version", "header", "built_for"),
    [
        ("arm64", "2.5.1", False, "mps"),
        ("arm64", "1.12.0", False, "mps"),
        ("arm64", "1.11.0", False, "cpu"),
        ("arm64", "main", False, "cpu"),
        ("x86_64", "2.2.2", False, "cpu"),
        ("x86_64", "2.2.2", True, "mps"),
    ],
)
def test_on_a_mac_a_build_is_for_mps_where_it_has_it(
    machine: Machine, processor: str, version: str, header: bool, built_for: str
) -> None:
    files = site(f"__version__ = '{version}'\n")
    if header:
        files["site/torch/include/ATen/MPSFunctions.h"] = ""

    host = machine(files, platform="darwin", uname={"machine": processor})

    assert torch.find(host).facts["built_for"] == built_for


@pytest.mark.parametrize(
    "data",
    ["", "\0\xff", "__version__ = None", "__version__ =", "x" * 100_000, "cuda = " + "9" * 9999],
)
def test_a_version_py_that_makes_no_sense_tells_nothing(machine: Machine, data: str) -> None:
    finding = torch.find(machine(site(data)))

    assert finding.version == "2.13.0"
    assert "built_for" not in finding.facts
    assert finding.warnings == ()


@pytest.mark.parametrize(
    ("build", "path", "content", "codes"),
    [
        (CUDA_BUILD, "proc/driver/nvidia/version", KERNEL.format("570.26"), ["driver-too-old"]),
        (CUDA_BUILD, "proc/driver/nvidia/version", KERNEL.format("580.95.05"), []),
        (CPU_BUILD, "sys/bus/pci/devices/0000:65:00.0/uevent", GPU, ["degraded"]),
        (CPU_BUILD, "sys/bus/pci/devices/0000:65:00.0/uevent", GPU.replace("nvidia", "vfio-pci"), []),
        (CUDA_BUILD, "sys/bus/pci/devices/0000:65:00.0/uevent", GPU, []),
    ],
)  # fmt: skip
def test_a_build_is_held_to_the_driver_and_the_gpu(
    machine: Machine, build: str, path: str, content: str, codes: list[str]
) -> None:
    finding = torch.find(machine(site(build) | {path: content}))

    assert [warning.code for warning in finding.warnings] == codes


def test_a_gpu_that_a_container_was_not_given_is_not_missed(machine: Machine) -> None:
    files = site(CPU_BUILD) | {"sys/bus/pci/devices/0000:65:00.0/uevent": GPU, ".dockerenv": ""}

    assert torch.find(machine(files)).warnings == ()
    given = torch.find(machine(files | {"dev/nvidia0": ""}))
    assert [warning.code for warning in given.warnings] == ["degraded"]


@pytest.mark.parametrize(
    ("file", "needs", "found"),
    [
        ("vllm/_C.abi3.so", "libcudart.so.12", True),
        ("vllm/_C.abi3.so", "libcudart.so.13", False),
        ("sgl_kernel/sm90/common_ops.abi3.so", "libcudart.so.12", True),
        ("flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so", "libcudart.so.11.0", True),
        ("torchvision/_C.so", "libcudart.41118559.so.12", False),  # its own copy
        ("other/_C.so", "libcudart.so.12", False),
    ],
)
def test_an_extension_for_another_major_of_cuda_is_named(
    machine: Machine, file: str, needs: str, found: bool
) -> None:
    extracts = {f"/site/{file}": {"read_elf": headers(file, ["libc10.so", needs])}}

    host = machine(site(CUDA_BUILD) | {f"site/{file}": b""}, extracts=extracts)

    rows = [{"path": f"/site/{file}", "needs": needs}] if found else None
    assert torch.find(host).facts.get("other_cuda_extensions") == rows


@pytest.mark.parametrize(
    ("present", "missing"),
    [
        ("", ["libavutil.so.58", "libavutil.so.59"]),
        ("libavutil.so.57", ["libavutil.so.58", "libavutil.so.59"]),
        ("libavutil.so.59", None),
    ],
)
def test_torchcodec_needs_one_of_some_versions_of_ffmpeg(
    machine: Machine, present: str, missing: list[str] | None
) -> None:
    files = site(CPU_BUILD) | {"site/torchcodec/__init__.py": ""}
    extracts = {}
    for version, number in ((6, 58), (7, 59)):
        name = f"libtorchcodec_core{version}.so"
        files[f"site/torchcodec/{name}"] = b""
        elf = headers(name, [f"libavutil.so.{number}"])
        extracts[f"/site/torchcodec/{name}"] = {"read_elf": elf}
    if present:
        files[f"usr/lib/x86_64-linux-gnu/{present}"] = b""
        extracts[f"/usr/lib/x86_64-linux-gnu/{present}"] = {"read_elf": headers(present)}

    assert torch.find(machine(files, extracts=extracts)).facts.get("missing_ffmpeg") == missing


def test_a_build_of_amd_without_its_device_wheel(machine: Machine) -> None:
    files = site(CPU_BUILD, "Name: torch\nProvides-Extra: device-gfx1151\n\n")

    assert torch.find(machine(files)).facts["lacks_device_wheel"] is True
    wheel = {"site/amd_torch_device_gfx1151-2.13.0.dist-info/METADATA": ""}
    assert "lacks_device_wheel" not in torch.find(machine(files | wheel)).facts
    assert "lacks_device_wheel" not in torch.find(machine(site(CPU_BUILD))).facts


def test_another_cudnn_than_the_pinned_one_is_a_mismatch(machine: Machine) -> None:
    pin = 'Requires-Dist: nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"\n\n'
    files = site(CUDA_BUILD, pin) | {"site/nvidia_cudnn_cu13-9.27.0.42.dist-info/METADATA": ""}

    finding = torch.find(machine(files))

    assert finding.facts["pins"] == [
        {"package": "nvidia-cudnn-cu13", "wanted": "9.20.0.48", "installed": "9.27.0.42"}
    ]
    assert [warning.code for warning in packages.find(machine(files)).warnings] == ["requirement-unmet"]


def test_only_libtorch_cpu_is_a_library_that_is_opened(machine: Machine, fake_library: FakeLibrary) -> None:
    library = fake_library("torch_cpu", "libtorch_cpu.so", source="int nothing;").read_bytes()
    names = ("libtorch_cpu.so", "libtorch_cuda.so", "libc10.so", "libshm.so", "libgomp.so.1")
    files = site(CUDA_BUILD) | {f"site/torch/lib/{name}": library for name in names}
    files["site/torch/lib/libjitbackend_test.so"] = library
    files["site/torch/lib/libtorchbind_test.so"] = library

    finding = torch.find(machine(files))

    (found,) = finding.libraries
    assert found.path == "/site/torch/lib/libtorch_cpu.so"
    assert found.version == "2.13.0+cu132"
    assert found.wins
    assert finding.presence is None
    assert finding.facts["libraries_present"] == [
        "libc10.so",
        "libshm.so",
        "libtorch_cpu.so",
        "libtorch_cuda.so",
    ]


@pytest.mark.parametrize(
    ("rpath", "runpath", "first"),
    [(["$ORIGIN/../../nvidia/cublas/lib"], [], True), ([], ["$ORIGIN"], False), ([], [], False)],
)
def test_whether_its_own_folders_come_before_the_search_path_is_told(
    machine: Machine, rpath: list[str], runpath: list[str], first: bool
) -> None:
    elf = headers("libtorch_cuda.so", ["libcublas.so.12"], rpath=rpath, runpath=runpath)
    files = site(CUDA_BUILD) | {"site/torch/lib/libtorch_cuda.so": b""}

    host = machine(files, extracts={f"{LIBRARIES}/libtorch_cuda.so": {"read_elf": elf}})
    facts = torch.find(host).facts

    assert facts["own_folders_first"] is first
    assert facts["cuda_libraries"] == ["libcublas.so.12"]


def test_the_symbols_that_libtorch_cpu_needs_are_told(machine: Machine) -> None:
    needs = [
        ("libc.so.6", ["GLIBC_2.17", "GLIBC_2.9", "GLIBC_PRIVATE"]),
        ("libstdc++.so.6", ["GLIBCXX_3.4.9", "GLIBCXX_3.4.29", "CXXABI_1.3.8"]),
    ]
    elf = {"read_elf": headers("libtorch_cpu.so"), "version_needs": dict(needs)}
    files = site(CPU_BUILD) | {"site/torch/lib/libtorch_cpu.so": b""}

    (library,) = torch.find(machine(files, extracts={f"{LIBRARIES}/libtorch_cpu.so": elf})).libraries

    assert library.facts == {"glibc_needed": "2.17", "libstdcxx_needed": "3.4.29"}


def test_what_is_compiled_against_one_torch_is_told(machine: Machine) -> None:
    files = site(CPU_BUILD) | {
        "site/torchvision-0.28.0+cpu.dist-info/METADATA": "Requires-Dist: torch==2.13.0\n\n",
        "site/torchaudio-2.13.0.dist-info/METADATA": "Requires-Dist: torch (==2.13.0)\n\n",
        "site/torchtext-0.18.0.dist-info/METADATA": "Requires-Dist: torch>=2.3.0\n\n",
    }

    partners = torch.find(machine(files)).facts["partners"]

    assert partners == [
        {"package": "torchvision", "version": "0.28.0+cpu", "wanted": "2.13.0"},
        {"package": "torchaudio", "version": "2.13.0", "wanted": "2.13.0"},
    ]


def test_libtorch_without_python_is_found(machine: Machine, fake_library: FakeLibrary) -> None:
    library = fake_library("torch_cpu", "libtorch_cpu.so", source="int nothing;").read_bytes()
    files: dict[str, str | bytes] = {
        "opt/libtorch/lib/libtorch_cpu.so": library,
        "opt/libtorch/build-version": "2.9.1+cpu\n",
    }

    finding = torch.find(machine(files, LD_LIBRARY_PATH="/opt/libtorch/lib"))

    (found,) = finding.libraries
    assert (found.version, found.found_by) == ("2.9.1+cpu", "LD_LIBRARY_PATH")
    assert finding.reasons == ()
    assert "distribution" not in finding.facts


def test_plugins_and_variables_are_told(machine: Machine) -> None:
    files = site(CPU_BUILD) | {
        "site/torch_npu-2.9.dist-info/entry_points.txt": "[torch.backends]\ntorch_npu = torch_npu:a\n"
    }

    finding = torch.find(machine(files, PYTORCH_JIT="2", SECRET="hidden"))

    assert finding.facts["backend_plugins"] == {"torch_npu": "torch_npu:a"}
    assert finding.facts["environment"] == {"PYTORCH_JIT": "2"}
    (warning,) = finding.warnings
    assert warning.code == "override-invalid"
    assert "PYTORCH_JIT is '2'" in warning.message


CAPABILITY = r"""
/* std::string of libstdc++: address, length, and 16 bytes for short texts. */
struct string { char *text; unsigned long length; char inside[16]; };
struct string *_ZN2at18get_cpu_capabilityB5cxx11Ev(struct string *told)
{
    const char *name = "AVX2";
    told->text = told->inside;
    for (told->length = 0; name[told->length]; told->length++)
        told->inside[told->length] = name[told->length];
    told->inside[told->length] = 0;
    return told;
}
"""


CRASHING = "#include <stdlib.h>\nvoid _ZN2at18get_cpu_capabilityB5cxx11Ev(void) { abort(); }\n"


@pytest.fixture
def on_x86_64_linux() -> None:
    if (Host().platform, Host().machine) != ("linux", "x86_64"):
        pytest.skip("the call is known on x86-64 Linux only")


@pytest.mark.usefixtures("on_x86_64_linux")
@pytest.mark.parametrize(
    ("source", "presence", "code", "capability"),
    [
        (CAPABILITY, Presence.LOADABLE, "no-use-check", "AVX2"),
        ("int nothing;", Presence.LOADABLE, "no-use-check", None),
        (CRASHING, Presence.FOUND, "crashed", None),
    ],
    ids=["tells", "has no such function", "crashes"],
)
def test_libtorch_cpu_is_asked_for_its_capability(
    fake_library: FakeLibrary,
    asked: Asked,
    source: str,
    presence: Presence,
    code: str,
    capability: str | None,
) -> None:
    report, library = asked("torch", fake_library("torch_cpu", "libtorch_cpu.so", source=source))

    assert (library.presence, [reason.code for reason in library.reasons]) == (presence, [code])
    assert report.facts.get("cpu_capability") == capability


CONFIG = r"""
#include <string.h>
struct string { const char *text; unsigned long length; char inside[16]; };
struct string *_ZN2at11show_configB5cxx11Ev(struct string *result)
{
    result->text = "PyTorch built with:\n  - GCC 13.3\n  - OpenMP 201511 (a.k.a. OpenMP 4.5)\n"
        "  - Build settings: BLAS_INFO=mkl, CXX_FLAGS= -O2 -DX=1,2 -Wall, LAPACK_INFO=mkl, USE_CUDA=0, \n";
    result->length = strlen(result->text);
    return result;
}
int _ZN2at15get_num_threadsEv(void) { return 3; }
int _ZN2at23get_num_interop_threadsEv(void) { return 5; }
"""


@pytest.mark.usefixtures("on_x86_64_linux")
def test_libtorch_cpu_is_asked_how_it_was_built(fake_library: FakeLibrary, asked: Asked) -> None:
    report, _ = asked("torch", fake_library("torch_config", "libtorch_cpu.so", source=CONFIG))

    facts = report.facts
    assert (facts["compiler"], facts["blas"], facts["lapack"]) == ("GCC 13.3", "mkl", "mkl")
    assert (facts["openmp_date"], facts["threads"], facts["interop_threads"]) == (201511, 3, 5)
    assert facts["build_settings"] == {
        "BLAS_INFO": "mkl",
        "CXX_FLAGS": " -O2 -DX=1,2 -Wall",
        "LAPACK_INFO": "mkl",
        "USE_CUDA": "0",
    }


# ---- imported, to compute ------------------------------------------------------------------------

TENSOR = """
class Tensor:
    T = property(lambda self: self)
    reshape = lambda self, *sizes: self
    __matmul__ = lambda self, other: self
    tolist = lambda self: PRODUCT

float32 = None
arange = lambda *sizes, **options: Tensor()
class __config__:
    show = lambda: "- GCC 13.3\\n- CPU capability usage: SVE256\\n- Build settings: BLAS_INFO=open, X=1, "

get_num_threads = get_num_interop_threads = lambda: 2
print("a line of its own")
"""
#: How Windows and POSIX call an access to address 0.
FAULT = "STATUS_ACCESS_VIOLATION" if sys.platform == "win32" else "SIGSEGV"
RIGHT = "PRODUCT = [[5.0, 14.0], [14.0, 50.0]]\n"
ON_A_GPU = "class cuda:\n    is_available, device_count = (lambda: True), (lambda: 2)\n"
TWO_GPUS = ["cpu", "cuda:0", "cuda:1"]


def imported(
    folder: Path, source: str, computing: tuple[str, ...] = ("torch",), timeout: float = 5.0
) -> ProbeReport:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(source)
    python = {"executable": sys.executable, "path": [str(folder)]}
    host = Host(python=python, environment={"PYTHONPATH": str(folder)})
    report = survey(("torch",), host, timeout=timeout, computing=computing)
    return report.probes["torch"]


@pytest.mark.parametrize(
    ("source", "devices"), [(RIGHT + TENSOR, ["cpu"]), (RIGHT + TENSOR + ON_A_GPU, TWO_GPUS)]
)
def test_torch_is_usable_when_it_computed(tmp_path: Path, source: str, devices: list[str]) -> None:
    report = imported(tmp_path, source)

    assert report.presence is Presence.USABLE
    assert report.facts["computed_on"] == devices
    assert (report.facts["threads"], report.reasons) == (2, ())
    assert (report.facts["blas"], report.facts["cpu_capability"]) == ("open", "SVE256")
    assert "configuration" not in report.facts


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        (f"PRODUCT = 7\n{TENSOR}", "wrong-result", "on cpu a product of matrices gave 7"),
        ("import nothing.of_this_name", "import-failed", "ModuleNotFoundError: No module named"),
        ("import faulthandler as f; f._read_null()", "crashed", f"ended the process with {FAULT}"),
        ("import os; os._exit(3)", "exited", "ended the process with exit code 3"),
        ("import time; time.sleep(600)", "timed-out", "gave no answer within 1.2 s"),
    ],
)
def test_a_torch_that_does_not_compute_is_not_usable(
    tmp_path: Path, source: str, code: str, message: str
) -> None:
    report = imported(tmp_path, source, timeout=0.1 if code == "timed-out" else 5.0)

    assert report.presence is Presence.FOUND
    (reason,) = report.reasons
    assert reason.code == code
    assert message in reason.message


def test_torch_is_imported_and_does_not_compute_where_it_is_not_named(tmp_path: Path) -> None:
    report = imported(tmp_path, "", computing=())

    assert (report.presence, report.facts["imports"]) == (Presence.LOADABLE, {"torch": "imported"})
    assert [reason.code for reason in report.reasons] == ["not-computed"]


def test_what_opens_and_was_not_imported_says_how_to(tmp_path: Path, fake_library: FakeLibrary) -> None:
    built = fake_library("torch_cpu", "libtorch_cpu.so", source="int nothing;")
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "lib" / "libtorch_cpu.so").write_bytes(built.read_bytes())
    (tmp_path / "torch" / "__init__.py").touch()

    host = Host(python={"path": [str(tmp_path)]}, environment={})
    report = survey(("torch",), host).probes["torch"]

    assert report.presence is Presence.LOADABLE
    assert [reason.code for reason in report.reasons] == ["not-computed"]
    assert "`backends info torch` imports it" in report.reasons[0].message
