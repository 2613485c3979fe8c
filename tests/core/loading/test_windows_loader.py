"""Packages of Windows, followed as its loader opens them: what is found, and the one name that is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.libraries.test_pe import forged

from mlbackends.libraries import windows
from mlbackends.loading.packages import resolve
from mlbackends.loading.windows import WindowsProcess
from mlbackends.model.loading import PackageLoading, Verdict

if TYPE_CHECKING:
    from tests.conftest import WindowsMachine

SITE = "C:/Python311/Lib/site-packages"
PATCH = b"""
def _delvewheel_patch_1_12_0():
    import os
    os.add_dll_directory(os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, 'pkg.libs')))
_delvewheel_patch_1_12_0()
from . import _ext
"""
EXTENSION = forged(
    {
        "python311.dll": ["PyModule_Create2"],
        "VCRUNTIME140.dll": ["memcpy"],
        "api-ms-win-crt-math-l1-1-0.dll": ["sqrt"],
        "KERNEL32.dll": ["Sleep"],
        "blas.dll": ["dgemm"],
    },
    exports=["PyInit__ext"],
)
BLAS = forged({"KERNEL32.dll": ["Sleep"]}, exports=["dgemm", "sgemm"])
PLACE = f"{SITE}/pkg/_ext.cp311-win_amd64.pyd"
LIBRARY = f"{SITE}/pkg.libs/blas.dll"
NOT_A_PROGRAM = "%1 is not a valid Win32 application."
NOT_FOUND = "DLL load failed while importing _ext: The specified module could not be found."


def resolved(machine: WindowsMachine, files: dict[str, bytes], text: bytes = PATCH) -> PackageLoading:
    """Install a package of these files, and resolve it."""
    names = [*(path.removeprefix(f"{SITE}/") for path in files), "pkg/__init__.py", LIBRARY[len(SITE) + 1 :]]
    record = "".join(f"{name},,\n" for name in dict.fromkeys(names)).encode()
    info = {f"{SITE}/pkg-1.0.dist-info/RECORD": record, f"{SITE}/pkg/__init__.py": text}
    return resolve(machine({}, {**files, **info}), ["pkg"]).packages[0]


def test_a_package_that_adds_its_folder_of_dlls_loads(windows_machine: WindowsMachine) -> None:
    package = resolved(windows_machine, {PLACE: EXTENSION, LIBRARY: BLAS})

    assert (package.verdict, package.faults) == (Verdict.LOADS, ())


def test_a_dll_of_a_dll_is_not_searched_in_that_ones_folder(windows_machine: WindowsMachine) -> None:
    """Windows looks in the folder of the file that Python opens; Library/bin only where code adds it."""
    blas = {LIBRARY: forged({"mkl.dll": ["f"]}, exports=["dgemm"])}
    beside = {PLACE: EXTENSION, **blas, f"{SITE}/other/mkl.dll": forged(exports=["f"])}
    place = "C:/Python311/Library/bin/mkl.dll"
    library = {PLACE: EXTENSION, **blas, place: forged(exports=["f"])}
    adding = PATCH.replace(b"_delvewheel_patch_1_12_0()\nfrom", b"os.path.join(p, 'Library', 'bin')\nfrom")

    answers = [resolved(windows_machine, *case) for case in ((beside,), (library,), (library, adding))]

    assert [[fault.name for fault in answer.faults] for answer in answers] == [["mkl.dll"], ["mkl.dll"], []]
    host = windows_machine({}, library)
    assert windows.resolved(host, PLACE, "mkl.dll") == place
    files = {f"{SITE}/a.pyd": {"b.dll": ["f"]}, "C:/Python311/b.dll": {"c.dll": ["f"]}, f"{SITE}/c.dll": {}}
    host = windows_machine({}, {path: forged(needed, exports=["f"]) for path, needed in files.items()})
    assert windows.missing(host, f"{SITE}/a.pyd") == []


@pytest.mark.parametrize(
    ("files", "text"),
    [({PLACE: EXTENSION}, PATCH), ({PLACE: EXTENSION, LIBRARY: BLAS}, b"from . import _ext")],
    ids=["removed", "its folder is not added"],
)
def test_a_dll_that_no_folder_of_the_search_has_is_named(
    windows_machine: WindowsMachine, files: dict[str, bytes], text: bytes
) -> None:
    package = resolved(windows_machine, files, text)

    (fault,) = package.faults
    assert package.verdict is Verdict.FAILS
    assert (fault.code, fault.name, fault.message) == ("missing-library", "blas.dll", NOT_FOUND)
    assert fault.path == (PLACE, "blas.dll")


@pytest.mark.parametrize(
    ("blas", "code", "name", "message"),
    [
        (forged({"MSVCP140.dll": ["f"]}, exports=["dgemm"]), "missing-library", "MSVCP140.dll", NOT_FOUND),
        (forged({"python312.dll": ["f"]}, exports=["dgemm"]), "wrong-python", "python312.dll", NOT_FOUND),
        (forged({"cublasLt64_13.dll": ["f"]}, exports=["dgemm"]), "missing-library",
         "cublasLt64_13.dll", NOT_FOUND),
        (forged(exports=["sgemm"]), "missing-symbol", "dgemm", "The specified procedure could not be found."),
        (forged(exports=["dgemm"], machine=0x14C, wide=False), "wrong-architecture", "blas.dll",
         NOT_A_PROGRAM),
        (b"MZ, cut short", "not-a-library", "blas.dll", NOT_A_PROGRAM),
    ],
)  # fmt: skip
def test_the_words_are_pythons_and_the_name_is_what_is_really_missing(
    windows_machine: WindowsMachine, blas: bytes, code: str, name: str, message: str
) -> None:
    (fault,) = resolved(windows_machine, {PLACE: EXTENSION, LIBRARY: blas}).faults

    assert (fault.code, fault.name) == (code, name)
    assert fault.message.endswith(message)
    assert fault.path[0] == PLACE
    if name == "MSVCP140.dll":
        assert fault.command == "winget install Microsoft.VCRedist.2015+.x64"
    if name.startswith("cublas"):
        assert "nvidia-cublas==13.*" in fault.command


@pytest.mark.parametrize(("there", "faults"), [(True, []), (False, ["mkl.dll"])])
def test_a_function_that_leads_to_another_dll_needs_that_one(
    windows_machine: WindowsMachine, there: bool, faults: list[str]
) -> None:
    extension = forged({"blas.dll": ["to0"]}, exports=["PyInit__ext"])
    files = {PLACE: extension, LIBRARY: forged(exports=["sgemm"], forwards=["mkl.dgemm_"])}
    if there:
        files[f"{SITE}/pkg/mkl.dll"] = forged(exports=["dgemm_"])

    assert [fault.name for fault in resolved(windows_machine, files).faults] == faults


@pytest.mark.parametrize(("path", "missing"), [("", ["cublasLt64_13.dll"]), (r"D:\cuda\bin", [])])
def test_what_a_library_opens_itself_is_searched_in_path(
    windows_machine: WindowsMachine, path: str, missing: list[str]
) -> None:
    """The CUDA provider of onnxruntime is opened by its own code, which does not search what Python adds."""
    capi = f"{SITE}/onnxruntime/capi"
    files = {
        f"{capi}/onnxruntime_pybind11_state.pyd": forged(
            {"python311.dll": ["f"]}, exports=["PyInit_onnxruntime_pybind11_state"]
        ),
        f"{capi}/onnxruntime_providers_shared.dll": forged(exports=["f"]),
        f"{capi}/onnxruntime_providers_cuda.dll": forged({"cublasLt64_13.dll": ["f"], "nvcuda.dll": ["g"]}),
        f"{capi}/__init__.py": b"",
        f"{SITE}/onnxruntime/__init__.py": b"from onnxruntime.capi import onnxruntime_pybind11_state",
        "D:/cuda/bin/cublasLt64_13.dll": forged(exports=["f"]),
    }
    record = "".join(f"{name.removeprefix(SITE)[1:]},,\n" for name in files if SITE in name).encode()
    files[f"{SITE}/onnxruntime_gpu-1.31.1.dist-info/RECORD"] = record
    files[f"{SITE}/nvidia_cublas-13.1.0.dist-info/RECORD"] = b""

    (package,) = resolve(windows_machine({}, files, PATH=path), ["onnxruntime-gpu"]).packages

    assert [fault.name for fault in package.fallbacks] == missing
    assert package.verdict is (Verdict.FALLS_BACK if missing else Verdict.LOADS)


def test_a_dll_of_the_system_opens_by_its_name(windows_machine: WindowsMachine) -> None:
    process = WindowsProcess(windows_machine({}, {}))

    assert process.open("KERNEL32.dll").faults == ()
    assert [fault.name for fault in process.open("gone.dll").faults] == ["gone.dll"]
