"""What probes find of libraries on recorded Windows machines."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.host.host import Host
from mlbackends_probes import cudnn, mkl, openmp, packages, python, torch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="a folder of Windows can have no colon in its name"
)

PYTHON = "C:/conda/envs/a"
SITE = f"{PYTHON}/Lib/site-packages"
TORCH = f"{SITE}/torch/lib"
LIBRARY = f"{PYTHON}/Library/bin"


def dll(*needed: str, **fields: Any) -> dict[str, Any]:
    return {"machine": "x86_64", "needed": list(needed), **fields}


def machine(
    folder: Path, dlls: dict[str, dict[str, Any]], texts: dict[str, str] | None = None, **more: str
) -> Host:
    """Record a Windows with these DLLs, by path, with what their headers say, and these other files."""
    for path, text in {**dict.fromkeys(dlls, ""), **(texts or {})}.items():
        target = folder / "root" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode())
    description = {
        "platform": "win32",
        "uname": {"machine": "AMD64"},
        "environment": {"SystemRoot": r"C:\Windows", **more},
        "python": {
            "executable": f"{PYTHON}/python.exe",
            "version": "3.11.9",
            "prefix": PYTHON,
            "base_prefix": PYTHON,
            "path": [f"{PYTHON}/Lib", SITE],
        },
    }
    (folder / "host.json").write_text(json.dumps(description))
    extracts = {path: {"read_pe": headers} for path, headers in dlls.items()}
    (folder / "extracts.json").write_text(json.dumps(extracts))
    return Host(str(folder))


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
MODULES = {f"{SITE}/numpy/__init__.py": "", f"{SITE}/torch/__init__.py": ""}


def test_condas_mkl_and_pips_torch_bring_a_libiomp5md_each(tmp_path: Path) -> None:
    found = openmp.find(machine(tmp_path, TWO, MODULES))

    assert [(one.path, one.used_by, one.wins) for one in found.libraries] == [
        (f"{TORCH}/libiomp5md.dll", ("torch",), True),
        (f"{LIBRARY}/libiomp5md.dll", ("numpy",), True),
    ]
    assert found.libraries[1].version == "5.0.20260213"
    (warning,) = found.warnings
    assert warning.message.startswith(f"torch brings {TORCH}/libiomp5md.dll and numpy brings")
    assert "OMP: Error #15" in warning.message
    assert warning.hint.startswith("import torch first")


def test_one_libiomp5md_for_all_is_no_conflict(tmp_path: Path) -> None:
    alone = {path: headers for path, headers in TWO.items() if not path.startswith(TORCH)}

    found = openmp.find(machine(tmp_path, alone, MODULES))

    assert [one.used_by for one in found.libraries] == [("numpy",)]
    assert not found.warnings


def test_mkl_has_its_version_and_kernels_from_its_files(tmp_path: Path) -> None:
    (library,) = mkl.find(machine(tmp_path, TWO, MODULES)).libraries

    assert (library.version, library.wins, library.used_by) == ("2024.2.0", True, ("numpy",))
    assert library.facts["kernel_libraries"] == ["avx2", "def"]


@pytest.mark.parametrize("has_runtime", [False, True])
def test_torch_tells_what_its_dlls_lack_and_which_runtime_they_get(
    tmp_path: Path, has_runtime: bool
) -> None:
    runtime = {
        "C:/Windows/System32/msvcp140.dll": dll(file_version="14.36.32532.0"),
        "C:/Windows/System32/vcruntime140_1.dll": dll(),
    }
    host = machine(tmp_path, {**TWO, **(runtime if has_runtime else {})}, MODULES)

    (library,) = torch.find(host).libraries

    if has_runtime:
        assert library.facts["cxx_runtime_path"] == "C:/Windows/System32/msvcp140.dll"
        assert library.facts["cxx_runtime_version"] == "14.36.32532"
        assert "missing_libraries" not in library.facts
    else:
        assert library.facts == {"missing_libraries": ["MSVCP140.dll", "VCRUNTIME140_1.dll"]}


def test_cudnns_sub_libraries_are_those_beside_it(tmp_path: Path) -> None:
    folder = f"{SITE}/nvidia/cudnn/bin"
    parts = [*cudnn.SUB_LIBRARIES[9][:-1], "engines_tensor_ir"]
    files = {f"{folder}/cudnn_{part}64_9.dll": dll() for part in parts}
    main = {f"{folder}/cudnn64_9.dll": dll(file_version="9.10.2.21")}

    found = cudnn.find(machine(tmp_path, {**files, **main}))

    (library,) = found.libraries
    assert library.version == "9.10.2"
    assert library.facts["version_source"] == "resource"
    assert library.facts["missing_sub_libraries"] == ["engines_runtime_compiled"]
    assert [warning.code for warning in found.warnings] == ["sub-library-missing"]


def test_the_longest_path_of_a_package_is_measured(tmp_path: Path) -> None:
    record = "short.py,,\n../../Scripts/" + "x" * 300 + ".exe,,\n" + "y" * 240 + ",,\n"
    texts = {f"{SITE}/a-1.0.dist-info/RECORD": record, f"{SITE}/a-1.0.dist-info/METADATA": ""}

    facts = packages.find(machine(tmp_path, {}, texts)).facts

    assert facts["longest_path"] == len(SITE) + 241


@pytest.mark.parametrize(
    ("path", "is_on"), [(r"C:\Windows;C:\CONDA\envs\a\Library\bin\;", True), (r"C:\Windows", False)]
)
def test_a_conda_environment_tells_whether_its_libraries_are_on_path(
    tmp_path: Path, path: str, is_on: bool
) -> None:
    texts = {f"{PYTHON}/conda-meta/history": "", f"{LIBRARY}/tbb12.dll": ""}

    facts = python.find(machine(tmp_path, {}, texts, Path=path)).facts

    assert (facts["manager"], facts["library_folder_on_path"]) == ("conda", is_on)
