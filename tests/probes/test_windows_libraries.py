"""What probes find of libraries on recorded Windows machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.base import registry
from mlbackends_probes import cudnn, packages, python, torch

if TYPE_CHECKING:
    from tests.conftest import WindowsMachine

PYTHON = "C:/Python311"
SITE = f"{PYTHON}/Lib/site-packages"
TORCH = f"{SITE}/torch/lib"
LIBRARY = f"{PYTHON}/Library/bin"


def dll(*needed: str, **fields: Any) -> dict[str, Any]:
    return {"machine": "x86_64", "needed": list(needed), **fields}


INTEL = {
    "ProductName": "Intel(R) OpenMP* Runtime Library",
    "ProductVersion": "5.0",
    "FileVersion": "20260213",
}
TWO = {
    f"{SITE}/numpy/_core/_multiarray_umath.cp311-win_amd64.pyd": dll("mkl_rt.2.dll"),
    f"{LIBRARY}/mkl_rt.2.dll": dll(file_version="2024.2.0.0"),
    f"{LIBRARY}/mkl_intel_thread.2.dll": dll(delayed=["libiomp5md.dll"]),
    f"{LIBRARY}/mkl_avx2.2.dll": dll(),
    f"{LIBRARY}/mkl_def.2.dll": dll(),
    f"{LIBRARY}/libiomp5md.dll": dll(file_version="5.0.2026.213", strings=INTEL),
    f"{TORCH}/torch_cpu.dll": dll("libiomp5md.dll", "c10.dll", "KERNEL32.dll"),
    f"{TORCH}/c10.dll": dll("MSVCP140.dll", "VCRUNTIME140_1.dll"),
    f"{TORCH}/libiomp5md.dll": dll(),
    "C:/Windows/System32/kernel32.dll": dll(),
}
MODULES = {f"{SITE}/numpy/__init__.py": b"", f"{SITE}/torch/__init__.py": b""}


def test_condas_mkl_and_pips_torch_bring_a_libiomp5md_each(windows_machine: WindowsMachine) -> None:
    found = registry.load("mlbackends_probes", "openmp").find(windows_machine(TWO, MODULES))

    assert [(library.path, library.used_by, library.wins) for library in found.libraries] == [
        (f"{TORCH}/libiomp5md.dll", ("torch",), True),
        (f"{LIBRARY}/libiomp5md.dll", ("numpy",), True),
    ]
    assert found.libraries[1].version == "5.0.20260213"
    (warning,) = found.warnings
    assert warning.message.startswith(f"torch includes {TORCH}/libiomp5md.dll and numpy includes")
    assert "OMP: Error #15" in warning.message
    assert warning.hint.startswith("import torch first")


def test_one_libiomp5md_for_all_is_no_conflict(windows_machine: WindowsMachine) -> None:
    alone = {path: headers for path, headers in TWO.items() if not path.startswith(TORCH)}

    found = registry.load("mlbackends_probes", "openmp").find(windows_machine(alone, MODULES))

    assert [library.used_by for library in found.libraries] == [("numpy",)]
    assert not found.warnings


def test_mkl_has_its_version_and_kernels_from_its_files(windows_machine: WindowsMachine) -> None:
    (library,) = registry.load("mlbackends_probes", "mkl").find(windows_machine(TWO, MODULES)).libraries

    assert (library.version, library.wins, library.used_by) == ("2024.2.0", True, ("numpy",))
    assert library.facts["kernel_libraries"] == ["avx2", "def"]


@pytest.mark.parametrize("has_runtime", [False, True])
def test_torch_tells_what_its_dlls_lack_and_which_runtime_they_get(
    windows_machine: WindowsMachine, has_runtime: bool
) -> None:
    runtime = {
        "C:/Windows/System32/msvcp140.dll": dll(file_version="14.36.32532.0"),
        "C:/Windows/System32/vcruntime140_1.dll": dll(),
    }
    host = windows_machine({**TWO, **(runtime if has_runtime else {})}, MODULES)

    (library,) = torch.find(host).libraries

    if has_runtime:
        assert library.facts["cxx_runtime_path"] == "C:/Windows/System32/msvcp140.dll"
        assert library.facts["cxx_runtime_version"] == "14.36.32532"
        assert "missing_libraries" not in library.facts
    else:
        assert library.facts == {"missing_libraries": ["MSVCP140.dll", "VCRUNTIME140_1.dll"]}


def test_cudnns_sub_libraries_are_those_beside_it(windows_machine: WindowsMachine) -> None:
    folder = f"{SITE}/nvidia/cudnn/bin"
    parts = [*cudnn.SUB_LIBRARIES[9][:-1], "engines_tensor_ir"]
    files = {f"{folder}/cudnn_{part}64_9.dll": dll() for part in parts}
    main = {f"{folder}/cudnn64_9.dll": dll(file_version="9.10.2.21")}

    found = cudnn.find(windows_machine({**files, **main}))

    (library,) = found.libraries
    assert library.version == "9.10.2"
    assert library.facts["version_source"] == "resource"
    assert library.facts["missing_sub_libraries"] == ["engines_runtime_compiled"]
    assert [warning.code for warning in found.warnings] == ["sub-library-missing"]


def test_the_longest_path_of_a_package_is_measured(windows_machine: WindowsMachine) -> None:
    record = b"short.py,,\n../../Scripts/" + b"x" * 300 + b".exe,,\n" + b"y" * 240 + b",,\n"
    texts = {f"{SITE}/a-1.0.dist-info/RECORD": record, f"{SITE}/a-1.0.dist-info/METADATA": b""}

    facts = packages.find(windows_machine({}, texts)).facts

    assert facts["longest_path"] == len(SITE) + 241


@pytest.mark.parametrize(
    ("path", "is_on"), [(r"C:\Windows;C:\PYTHON311\Library\bin\;", True), (r"C:\Windows", False)]
)
def test_a_conda_environment_tells_whether_its_libraries_are_on_path(
    windows_machine: WindowsMachine, path: str, is_on: bool
) -> None:
    texts = {f"{PYTHON}/conda-meta/history": b"", f"{LIBRARY}/tbb12.dll": b""}

    facts = python.find(windows_machine({}, texts, Path=path)).facts

    assert (facts["manager"], facts["library_folder_on_path"]) == ("conda", is_on)
