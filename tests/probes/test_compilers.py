from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.base import registry
from mlbackends.model.records import Presence
from mlbackends_probes import compilers, python

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import Machine

    from mlbackends.model.records import Finding


def look(machine: Machine, files: Mapping[str, str], **environment: str) -> Finding:
    """Look for compilers on a machine whose PATH is /usr/local/bin and /usr/bin, unless another is given."""
    return compilers.find(machine(files, **{"PATH": "/usr/local/bin:/usr/bin", **environment}))


DEBIAN = {
    "usr/bin/x86_64-linux-gnu-gcc-12": "ELF",
    "var/lib/dpkg/info/gcc-12.list": "/.\n/usr/bin/gcc-12\n/usr/bin/x86_64-linux-gnu-gcc-12\n",
    "var/lib/dpkg/info/gcc.list": "/.\n/usr/bin/gcc\n",
    "var/lib/dpkg/status": (
        "Package: gcc\nStatus: install ok installed\nArchitecture: amd64\nVersion: 4:12.2.0-3\n\n"
        "Package: gcc-12\nStatus: install ok installed\nArchitecture: amd64\n"
        "Version: 12.2.0-14+deb12u1\n\n"
    ),
    "usr/bin/gcc": "->gcc-12",
    "usr/bin/gcc-12": "->x86_64-linux-gnu-gcc-12",
    "etc/alternatives/cc": "->/usr/bin/gcc",
    "usr/bin/cc": "->/etc/alternatives/cc",
}


def test_debians_links_lead_to_the_compiler_and_its_package(machine: Machine) -> None:
    finding = look(machine, DEBIAN)

    assert finding.presence is Presence.FOUND
    target = "/usr/bin/x86_64-linux-gnu-gcc-12"
    package = "gcc-12 12.2.0-14+deb12u1"
    assert finding.facts["compilers"] == [
        {
            "name": "cc",
            "path": "/usr/bin/cc",
            "target": target,
            "package": package,
            "version": "12.2.0",
        },
        {
            "name": "gcc",
            "path": "/usr/bin/gcc",
            "target": target,
            "package": package,
            "version": "12.2.0",
        },
    ]
    assert finding.facts["versions"] == {"cc": "12.2.0", "gcc": "12.2.0"}


def test_a_compiler_without_a_package_has_its_numbered_name(machine: Machine) -> None:
    facts = look(machine, {"usr/bin/clang-18": "ELF", "usr/bin/clang": "->clang-18"}).facts

    assert facts["versions"] == {"clang": "18"}


def test_a_compiler_of_which_nothing_tells_a_version_has_none(machine: Machine) -> None:
    facts = look(machine, {"usr/bin/icx": "ELF"}).facts

    assert facts["compilers"] == [{"name": "icx", "path": "/usr/bin/icx"}]
    assert "versions" not in facts


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('{"cuda_nvcc": {"name": "CUDA NVCC", "version": "13.0.88"}}', "13.0.88"),
        ("", "13.0"),
        ('{"cuda_nvcc": {', "13.0"),
    ],
)
def test_nvcc_has_its_toolkits_version(machine: Machine, told: str, version: str) -> None:
    files = {"usr/local/cuda-13.0/bin/nvcc": "ELF", "usr/local/cuda-13.0/version.json": told}
    facts = look(machine, files | {"usr/local/cuda": "->cuda-13.0"}, PATH="/usr/local/cuda/bin").facts

    assert facts["compilers"] == [
        {
            "name": "nvcc",
            "path": "/usr/local/cuda/bin/nvcc",
            "target": "/usr/local/cuda-13.0/bin/nvcc",
            "version": version,
        }
    ]


def test_a_script_of_one_line_is_followed(machine: Machine) -> None:
    files = {
        "usr/local/bin/nvcc": '#!/bin/sh\nexec /usr/local/cuda-13.0/bin/nvcc "$@"\n',
        "usr/local/cuda-13.0/bin/nvcc": "ELF",
    }

    facts = look(machine, files).facts

    assert facts["compilers"] == [
        {
            "name": "nvcc",
            "path": "/usr/local/bin/nvcc",
            "target": "/usr/local/cuda-13.0/bin/nvcc",
            "version": "13.0",
        }
    ]


def test_a_script_that_does_more_is_the_compiler_itself(machine: Machine) -> None:
    files = {
        "usr/local/bin/nvcc": '#!/bin/sh\nexport A=1\nexec /opt/nvcc "$@"\n',
        "opt/nvcc": "ELF",
    }

    facts = look(machine, files).facts

    assert facts["compilers"] == [{"name": "nvcc", "path": "/usr/local/bin/nvcc"}]


def test_the_first_folder_of_path_wins_and_relative_ones_are_left_out(machine: Machine) -> None:
    files = {"a/clang": "ELF", "b/clang": "ELF"}

    facts = look(machine, files, PATH=":.:bin:/a/:/b").facts

    assert facts["compilers"] == [{"name": "clang", "path": "/a/clang"}]


def test_links_in_a_circle_are_no_compiler(machine: Machine) -> None:
    links = {"usr/bin/cc": "->c99", "usr/bin/c99": "->cc", "usr/bin/gcc": "->/gone"}

    finding = look(machine, links)

    assert finding.presence is None
    assert finding.reasons[0].message == "no compiler in /usr/local/bin:/usr/bin"


def test_a_folder_with_a_compilers_name_is_none(machine: Machine) -> None:
    assert look(machine, {"usr/bin/nvcc/readme": ""}).presence is None


def test_a_variable_that_names_no_compiler_is_a_warning(machine: Machine) -> None:
    files = {"usr/bin/gcc": "ELF", "opt/g++": "ELF"}
    finding = look(machine, files, CC="gcc -m64", CXX="/opt/g++", CUDACXX="/gone/nvcc", FC="")

    assert finding.facts["environment"] == {
        "CC": "gcc -m64",
        "CXX": "/opt/g++",
        "CUDACXX": "/gone/nvcc",
    }
    (warning,) = finding.warnings
    assert warning.code == "override-invalid"
    assert warning.message == "CUDACXX is '/gone/nvcc', and there is no such program"


def test_without_path_it_says_so(machine: Machine) -> None:
    finding = look(machine, {}, PATH="")

    assert finding.reasons[0].message == "no compiler in PATH, which is not set"


def test_the_command_line_tools_of_macos_are_looked_for(machine: Machine) -> None:
    clang = {"Library/Developer/CommandLineTools/usr/bin/clang++": "", "usr/bin/clang++": ""}
    for files, expected in ((clang, True), ({"usr/bin/clang++": ""}, None)):
        host = machine(files, platform="darwin", environment={"PATH": "/usr/bin"})
        assert compilers.find(host).facts.get("has_command_line_tools") is expected


def test_paths_of_windows_have_semicolons_backslashes_and_blanks(machine: Machine) -> None:
    files = {
        "C/LLVM/bin/clang.exe": "",
        "C/MPI Tools/Bin/mpiexec.exe": "",
        "D/py/lib/python3.9/site-packages/x.py": "",
    }
    environment = {
        "PATH": 'C:\\LLVM\\bin;"C:\\MPI Tools\\Bin\\"',
        "CC": "C:\\LLVM\\bin\\clang.exe",
        "CXX": "C:\\MPI Tools\\Bin\\mpiexec.exe",
        "PYTHONPATH": "C:\\src;D:\\py\\lib\\python3.9\\site-packages",
    }
    inspected = {"executable": "C:/py/python.exe", "prefix": "C:/py", "version": "3.12.4"}
    host = machine(files, platform="win32", environment=environment, python=inspected)

    found = compilers.find(host)
    launchers: Any = registry.load("mlbackends_probes", "mpi").find(host).facts["launchers"]
    warnings = [warning.message for warning in python.find(host).warnings]

    assert found.warnings == ()
    assert found.facts["compilers"] == [{"name": "clang", "path": "C:/LLVM/bin/clang.exe"}]
    assert [row["path"] for row in launchers] == ["C:/MPI Tools/Bin/mpiexec.exe"]
    folder = "D:/py/lib/python3.9/site-packages"
    assert warnings == [f"PYTHONPATH names {folder}, for Python 3.9; this is Python 3.12"]
