"""Windows' DLLs: where they are looked for, which one is taken, what is missing, on recorded machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.libraries import windows
from mlbackends.libraries.consumers import consumers
from mlbackends.libraries.library_names import key_of, native_names, stem_of
from mlbackends.libraries.pe import Pe
from mlbackends.libraries.search import absent, libraries_named

if TYPE_CHECKING:
    from tests.conftest import WindowsMachine

PYTHON = "C:/Python311"
SITE = f"{PYTHON}/Lib/site-packages"
SYSTEM = "C:/Windows/System32"
TORCH = f"{SITE}/torch/lib"
CONDA = f"{PYTHON}/Library/bin"


def dll(*needed: str, **fields: Any) -> dict[str, Any]:
    return {"machine": "x86_64", "needed": list(needed), **fields}


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("cublas64_12.dll", "libcublas"),
        ("cublasLt64_13.dll", "libcublasLt"),
        ("cudart64_110.dll", "libcudart"),
        ("cudnn64_9.dll", "libcudnn"),
        ("cudnn_ops64_9.dll", "libcudnn_ops"),
        ("cupti64_2025.1.1.dll", "libcupti"),
        ("nvrtc64_120_0.dll", "libnvrtc"),
        ("nvJitLink_130_0.dll", "libnvJitLink"),
        ("nvcuda.dll", "libcuda"),
        ("nvml.dll", "libnvidia-ml"),
        ("mkl_rt.3.dll", "libmkl_rt"),
        ("libiomp5md.dll", "libiomp5"),
        ("LIBIOMP5MD.DLL", "libiomp5"),
        ("libomp140.x86_64.dll", "libomp"),
        ("VCOMP140.DLL", "vcomp"),
        ("libgomp-1.dll", "libgomp"),
        ("tbb12.dll", "libtbb"),
        ("vulkan-1.dll", "libvulkan"),
        ("OpenCL.dll", "libOpenCL"),
        ("libopenblas_v0.3.27--3aa239bc726cfb0bd8e5330d8d4c15c6.dll", "libopenblas"),
        ("libscipy_openblas64_-caad452230ae4ddb57899b8b3a33c55c.dll", "libscipy_openblas64_"),
        ("amdhip64_7.dll", "libamdhip64"),
        ("libfftw3f-3.dll", "libfftw3f"),
    ],
)
def test_a_file_of_windows_is_the_library_that_linux_calls_so(
    windows_machine: WindowsMachine, file: str, name: str
) -> None:
    host = windows_machine({})

    assert key_of(host, stem_of(file)) == key_of(host, name)


def test_names_that_are_alike_are_no_one_library(windows_machine: WindowsMachine) -> None:
    host = windows_machine({})
    names = ["libcublas", "libcublasLt", "libcusparse", "libcusparseLt", "libcudnn", "libcudnn_ops"]

    assert len({key_of(host, name) for name in [*names, "libmkl_rt", "libfftw3", "libfftw3f"]}) == 9


def test_copies_are_found_in_the_order_of_pythons_search(windows_machine: WindowsMachine) -> None:
    places = {
        "site-packages": f"{TORCH}/OpenCL.dll",
        "application": f"{PYTHON}/OpenCL.dll",
        "python-prefix": f"{CONDA}/opencl.dll",
        "system-folder": f"{SYSTEM}/OPENCL.dll",
        "PATH": "D:/tools/bin/OpenCL.dll",
    }
    files = {path: dll() for path in reversed(places.values())}
    host = windows_machine(files, PATH=r'relative;"D:\tools\bin\";C:\Windows\system32;')

    found = libraries_named(host, "OpenCL", "libOpenCL")

    assert {library.found_by: library.path for library in found} == places
    assert [library.found_by for library in found] == list(places)
    assert [library.wins for library in found] == [True, False, False, False, False]


def test_a_copy_in_path_alone_wins_for_those_that_search_it(
    windows_machine: WindowsMachine,
) -> None:
    host = windows_machine({"D:/bin/tbb12.dll": dll()}, PATH=r"D:\bin")

    (library,) = libraries_named(host, "tbb", "libtbb")

    assert library.wins
    assert "only programs that search PATH find it" in library.wins_because


def test_the_resource_tells_the_version() -> None:
    named = {"ProductName": "NVIDIA CUDA 12.9.79 Runtime"}
    intel = {"ProductName": "Intel(R) OpenMP* Runtime Library", "FileVersion": "20260213"}
    intel["ProductVersion"] = "5.0"
    assert [
        windows.version_of(Pe("x86_64", file_version=number, strings=strings))
        for number, strings in [
            ("6.14.11.12090", named),
            ("6.14.11.10310", {}),
            ("9.28.0.42", {}),
            ("2026.2.0.0", {}),
            ("5.0.2026.213", intel),
            ("0.0.0.0", {}),
        ]
    ] == ["12.9.79", "", "9.28.0.42", "2026.2.0", "5.0.20260213", ""]


def test_a_library_for_another_processor_than_python_is_refused(
    windows_machine: WindowsMachine,
) -> None:
    narrow = {**dll(), "machine": "i386"}
    host = windows_machine({f"{CONDA}/tbb12.dll": narrow})

    (library,) = libraries_named(host, "tbb", "libtbb")

    assert library.reasons[0].code == "wrong-architecture"
    assert library.reasons[0].message == "the file is for i386; this Python is x86_64"


def test_an_absence_names_the_files_and_folders_of_windows(windows_machine: WindowsMachine) -> None:
    message = absent(windows_machine({}, PATH=r"C:\Windows\System32"), "libOpenCL.so").message

    assert message == "no OpenCL.dll in this Python's wheels, the program's folder, System32, PATH"


def test_a_name_without_a_file_of_windows_loses_its_ending(windows_machine: WindowsMachine) -> None:
    assert native_names(windows_machine({}), "Gaudi on PCI and no libSynapse.so") == (
        "Gaudi on PCI and no libSynapse"
    )


# ---- which file is taken -------------------------------------------------------------------------


def test_the_folder_of_what_needs_a_dll_comes_first_then_the_programs(
    windows_machine: WindowsMachine,
) -> None:
    files = {f"{at}/msvcp140.dll": dll() for at in (TORCH, PYTHON, SYSTEM)}
    host = windows_machine({f"{TORCH}/c10.dll": dll(), f"{SITE}/a/b.pyd": dll(), **files})

    of_torch = windows.resolved(host, f"{TORCH}/c10.dll", "MSVCP140.dll")
    of_others = windows.resolved(host, f"{SITE}/a/b.pyd", "MSVCP140.dll")

    assert (of_torch, of_others) == (f"{TORCH}/msvcp140.dll", f"{PYTHON}/msvcp140.dll")


def test_path_is_searched_for_condas_python_alone(windows_machine: WindowsMachine) -> None:
    files = {f"{SITE}/a.pyd": dll(), "D:/x/uv.dll": dll()}
    plain = windows_machine(files, PATH=r"D:\x")
    of_conda = {f"{PYTHON}/conda-meta/history": b""}
    conda = windows_machine(files, of_conda, PATH=r"D:\x", CONDA_PREFIX=PYTHON)

    assert windows.resolved(plain, f"{SITE}/a.pyd", "uv.dll") == ""
    assert windows.resolved(conda, f"{SITE}/a.pyd", "uv.dll") == "D:/x/uv.dll"


def test_what_is_missing_is_named_with_what_needs_it(windows_machine: WindowsMachine) -> None:
    files = {
        f"{TORCH}/torch_cpu.dll": dll("fbgemm.dll", "KERNEL32.dll", "api-ms-win-crt-heap-l1-1-0.dll"),
        f"{TORCH}/fbgemm.dll": dll("libomp140.x86_64.dll", "torch_cpu.dll", delayed=["never.dll"]),
    }
    host = windows_machine(files)

    missing = windows.missing(host, f"{TORCH}/torch_cpu.dll")

    assert missing == [("libomp140.x86_64.dll", f"{TORCH}/fbgemm.dll")]


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (126, "missing-dependency", "it needs MSVCP140.dll (for C:/Python311/Lib/site-packages/"),
        (127, "missing-symbol", "lacks a function"),
        (193, "wrong-architecture", "the file is for aarch64; this Python is x86_64"),
        (1114, "dlopen-failed", "failed to initialise (WinError 1114)"),
        (5, "dlopen-failed", "WinError 5"),
    ],
)
def test_what_windows_says_as_a_number_is_told_in_words(
    windows_machine: WindowsMachine, number: int, code: str, words: str
) -> None:
    files = {
        f"{TORCH}/torch.dll": {**dll("c10.dll"), "machine": "aarch64"},
        f"{TORCH}/c10.dll": dll("MSVCP140.dll"),
    }
    reason = windows.refusal(windows_machine(files), f"{TORCH}/torch.dll", number)

    assert reason is not None
    assert reason.code == code
    assert words in reason.message


def test_a_missing_runtime_is_cured_by_microsofts_package(windows_machine: WindowsMachine) -> None:
    files = {f"{TORCH}/c10.dll": dll("VCRUNTIME140_1.dll")}
    reason = windows.refusal(windows_machine(files), f"{TORCH}/c10.dll", 126)

    assert reason is not None
    assert "vc_redist.x64.exe" in reason.hint


# ---- who takes which -----------------------------------------------------------------------------


def test_packages_take_what_their_imports_lead_to(windows_machine: WindowsMachine) -> None:
    numpy_blas = f"{SITE}/numpy.libs/libscipy_openblas64_-0123456789abcdef.dll"
    files = {
        f"{SITE}/numpy/__init__.py": dll(),
        f"{SITE}/numpy/_core/_multiarray_umath.cp311-win_amd64.pyd": dll(
            "libscipy_openblas64_-0123456789abcdef.dll"
        ),
        numpy_blas: dll(),
        f"{SITE}/sklearn/__init__.py": dll(),
        f"{SITE}/sklearn/utils/_openmp_helpers.cp311-win_amd64.pyd": dll("VCOMP140.DLL"),
        f"{SITE}/sklearn/.libs/vcomp140.dll": dll(),
        f"{SYSTEM}/vcomp140.dll": dll(),
        f"{SITE}/torch/__init__.py": dll(),
        f"{TORCH}/torch_cpu.dll": dll("libiomp5md.dll", "c10.dll"),
        f"{TORCH}/libiomp5md.dll": dll(),
    }
    taken = consumers(windows_machine(files))

    assert taken[numpy_blas] == ("numpy",)
    assert taken[f"{SITE}/sklearn/.libs/vcomp140.dll"] == ("scikit-learn",)
    assert taken[f"{TORCH}/libiomp5md.dll"] == ("torch",)
    assert f"{SYSTEM}/vcomp140.dll" not in taken


@pytest.mark.parametrize(("layer", "is_taken"), [("", True), ("intel", True), ("SEQUENTIAL", False)])
def test_condas_numpy_takes_mkl_and_the_runtime_of_its_layer(
    windows_machine: WindowsMachine, layer: str, is_taken: bool
) -> None:
    files = {
        f"{SITE}/numpy/__init__.py": dll(),
        f"{SITE}/numpy/core/_multiarray_umath.cp311-win_amd64.pyd": dll("libcblas.dll"),
        f"{CONDA}/libcblas.dll": dll(forwards=["mkl_rt.2.dll"]),
        f"{CONDA}/mkl_rt.2.dll": dll("KERNEL32.dll"),
        f"{CONDA}/mkl_intel_thread.2.dll": dll(delayed=["mkl_core.2.dll", "libiomp5md.dll"]),
        f"{CONDA}/libiomp5md.dll": dll(),
    }
    taken = consumers(windows_machine(files, MKL_THREADING_LAYER=layer))

    assert taken[f"{CONDA}/mkl_rt.2.dll"] == ("numpy",)
    assert (f"{CONDA}/libiomp5md.dll" in taken) is is_taken
