from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mlbackends.base.specifiers import narrowed
from mlbackends.host.host import Host
from mlbackends.host.python.packages import distributions
from mlbackends.host.python.requirements import Requirement, holds, marker_environment, required

if TYPE_CHECKING:
    from pathlib import Path

LINUX = {
    "extra": "",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "os_name": "posix",
    "python_version": "3.12",
    "python_full_version": "3.12.4",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}


@pytest.mark.parametrize(
    ("marker", "verdict"),
    [
        ('platform_system == "Linux"', True),
        ("platform_system=='Windows'", False),
        ("'linux' == sys_platform", True),
        ('platform_system == "Linux" and platform_machine == "aarch64"', False),
        ('platform_machine == "aarch64" or platform_machine == "x86_64"', True),
        ('(sys_platform == "win32" or sys_platform == "linux") and os_name == "posix"', True),
        ('sys_platform != "win32"', True),
        ('python_version >= "3.9"', True),
        ('python_version < "3.9"', False),
        ('python_full_version <= "3.12.4"', True),
        ('platform_machine in "x86_64 AMD64"', True),
        ('sys_platform not in "win32 darwin"', True),
        ('extra == "cuda"', False),
        ('platform_system == "Linux" and extra == "cuda"', False),
        ('platform_release >= "5"', None),
        ('platform_release >= "5" and sys_platform == "win32"', False),
        ('platform_release >= "5" or sys_platform == "linux"', True),
        ("", None),
        ("platform_system ==", None),
        ('platform_system == "Linux', None),
        ('platform_system == "Linux" platform_machine', None),
        ('platform_system < "Linux"', None),
        ("((((", None),
        ("(" * 400, None),
        ("(" * 100_000, None),
        ("\0\xff", None),
    ],
)
def test_a_marker_holds_fails_or_is_not_understood(marker: str, verdict: bool | None) -> None:
    assert holds(marker, LINUX) is verdict


def machine(folder: Path, requires: str, *installed: str) -> Host:
    """Compose a machine whose distribution `asks` has a METADATA, beside others with a name only."""
    site = folder / "root" / "site"
    for name in ("asks-1.0", *installed):
        (site / f"{name}.dist-info").mkdir(parents=True)
    text = f"Metadata-Version: 2.4\nName: asks\nVersion: 1.0\n{requires}\n\nRequires-Dist: body==1\n"
    (site / "asks-1.0.dist-info" / "METADATA").write_bytes(text.encode())
    told = {
        "platform": "linux",
        "uname": {"machine": "x86_64"},
        "python": {"path": ["/site"], "version": "3.12.4", "implementation": "cpython"},
    }
    (folder / "host.json").write_text(json.dumps(told))
    return Host(str(folder))


def asked(host: Host) -> list[Requirement]:
    return required(host, distributions(host)["asks"][0])


def test_requirements_carry_what_is_installed(tmp_path: Path) -> None:
    lines = (
        'Requires-Dist: nvidia-cudnn-cu12==9.10.2.21; platform_system == "Linux"\n'
        "Requires-Dist: Typing_Extensions>=4.8\n"
        "Requires-Dist: jinja2\n"
        "Requires-Dist: old-style (==2.0)\n"
        "Requires-Dist: with-extra[cuda,x]==1.5\n"
        'Requires-Dist: windows-only==1; sys_platform == "win32"\n'
        'Requires-Dist: optional==1; extra == "opt"\n'
        "Requires-Dist: from-url @ https://example.org/from-url.whl\n"
        "Requires-Dist: ==1.0\n"
        "Requires-Dist: \n"
    )
    host = machine(tmp_path, lines, "nvidia_cudnn_cu12-9.10.1.4", "typing_extensions-4.16.0")

    found = {requirement.name: requirement for requirement in asked(host)}

    assert list(found) == [
        "nvidia-cudnn-cu12",
        "typing-extensions",
        "jinja2",
        "old-style",
        "with-extra",
        "from-url",
    ]
    cudnn = found["nvidia-cudnn-cu12"]
    assert (cudnn.pinned, cudnn.installed, cudnn.is_met) == ("9.10.2.21", "9.10.1.4", False)
    extensions = found["typing-extensions"]
    assert (extensions.pinned, extensions.is_met) == ("", True)
    assert found["jinja2"].is_met is False
    assert found["old-style"].pinned == "2.0"
    assert found["with-extra"].pinned == "1.5"


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])  # the latter by tools of Windows
def test_a_wildcard_is_no_pin(tmp_path: Path, end: bytes) -> None:
    host = machine(tmp_path, "Requires-Dist: triton==3.5.*", "triton-3.5.1")
    metadata = tmp_path / "root/site/asks-1.0.dist-info/METADATA"
    metadata.write_bytes(metadata.read_bytes().replace(b"\n", end))
    (one,) = asked(host)

    assert one.pinned == ""
    assert one.is_met is True


@pytest.mark.parametrize("lines", ["", "\0\xff", "Requires-Dist:", "Requires-Dist: " + "(" * 9999])
def test_garbage_in_metadata_requires_nothing(tmp_path: Path, lines: str) -> None:
    assert asked(machine(tmp_path, lines)) == []


def test_a_machine_that_tells_nothing_has_few_variables(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    environment = marker_environment(Host(str(tmp_path)))

    assert "platform_machine" not in environment
    assert "python_version" not in environment


@pytest.mark.parametrize(
    ("clauses", "text"),
    [
        ("<2.8,<3,>=1.20.0,>=1.4,>=2,>=2.0.2", "<2.8,>=2.0.2"),
        ("==2.9.0,==2.9.1", "==2.9.0,==2.9.1"),
        ("!=1.5,<2,>=1.3.dev0,>=1.20,~=1.4", "!=1.5,<2,>=1.20,>=1.3.dev0,~=1.4"),
    ],
)
def test_of_several_bounds_the_narrowest_is_installed(clauses: str, text: str) -> None:
    assert narrowed(clauses.split(",")) == text
