from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.host.host import Host
from mlbackends.model.records import Presence
from mlbackends.survey import survey
from mlbackends_probes import packages

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Machine


def on(*folders: str) -> dict[str, Any]:
    """Return a Python with these folders as its import path."""
    return {"executable": "/venv/bin/python", "path": folders}


def test_every_distribution_is_listed_once(machine: Machine) -> None:
    files = {
        "site/zlib_ng-1.0.dist-info/METADATA": "",
        "site/Alpha-2.0-py3.11.egg-info/PKG-INFO": "",
        "site/alpha/__init__.py": "",
    }

    finding = packages.find(machine(files))

    assert finding.presence is Presence.FOUND
    assert finding.facts == {"count": 2, "distributions": {"alpha": "2.0", "zlib-ng": "1.0"}}
    assert finding.warnings == ()


def test_a_machine_without_python_says_so(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    assert packages.find(Host(str(tmp_path))).reasons[0].message == "no Python is known"


@pytest.mark.parametrize(
    ("names", "codes"),
    [
        (("nvidia_nccl_cu12-2.27.5", "nvidia_cublas-13.1.1.3"), ["cuda-majors-mixed"]),
        (("nvidia_nccl_cu13-2.27.5", "nvidia_cublas-13.1.1.3"), []),
        # Both libraries of the DSL serve one installation.
        (("nvidia_cutlass_dsl_libs_cu12-4.8.1", "nvidia_cutlass_dsl_libs_cu13-4.8.1"), []),
        (("nvidia_nccl_cu12-2.27.5", "nvidia_ml_py-13.615.71", "nvidia_cufft-0.0.0a0"), []),
    ],
)
def test_two_majors_of_cuda_are_a_conflict(
    machine: Machine, names: tuple[str, ...], codes: list[str]
) -> None:
    files = {f"site/{name}.dist-info/METADATA": "" for name in names}

    finding = packages.find(machine(files))

    assert [warning.code for warning in finding.warnings] == codes


def test_old_metadata_in_the_same_folder_is_a_conflict(machine: Machine) -> None:
    files = {
        "site/thing-1.0.dist-info/RECORD": "thing/a.py,sha256=1,1\n",
        "site/thing-1.1.dist-info/RECORD": "thing/a.py,sha256=2,2\n",
    }

    finding = packages.find(machine(files))

    assert finding.facts["count"] == 1
    assert [warning.code for warning in finding.warnings] == ["installed-twice"]
    assert finding.warnings[0].message == "/site has metadata of thing 1.0 and 1.1"


def test_the_same_name_in_another_folder_is_told_without_a_warning(machine: Machine) -> None:
    files = {"user/thing-1.1.dist-info/METADATA": "", "site/thing-1.0.dist-info/METADATA": ""}

    finding = packages.find(machine(files, python=on("/user", "/site")))

    assert finding.facts["distributions"] == {"thing": "1.1"}
    assert finding.facts["installed_twice"] == [
        {"name": "thing", "version": "1.1", "folder": "/user"},
        {"name": "thing", "version": "1.0", "folder": "/site"},
    ]
    assert finding.warnings == ()


def test_what_a_broken_uninstall_left_is_listed(machine: Machine) -> None:
    files = {"site/thing-1.0.dist-info/METADATA": "", "site/~umpy-2.0.dist-info/METADATA": ""}

    facts = packages.find(machine(files)).facts

    assert facts["leftovers"] == ["/site/~umpy-2.0.dist-info"]
    assert facts["distributions"] == {"thing": "1.0"}


@pytest.mark.parametrize("data", [b"", b"\0\xff", b",,\n,,\n", b"a" * 100_000, b'"', b"\r\n" * 999])
def test_a_broken_record_never_raises(machine: Machine, data: bytes) -> None:
    files = {
        "site/one-1.0.dist-info/RECORD": data,
        "site/two-1.0.dist-info/RECORD": b"two.py,sha256=1,1\n" + data,
        "site/three-.dist-info": b"a file, no folder",
        "site/-1.dist-info/RECORD": data,
    }

    finding = packages.find(machine(files))

    assert finding.presence is Presence.FOUND
    assert finding.facts.get("owned_twice", []) == []
    assert finding.facts["distributions"] == {"one": "1.0", "three": "", "two": "1.0"}


def test_an_egg_info_beside_a_dist_info_is_the_same_installation(machine: Machine) -> None:
    files = {
        "site/cryptography-38.0.4.dist-info/METADATA": "",
        "site/cryptography.egg-info/PKG-INFO": "",
    }

    finding = packages.find(machine(files))

    assert finding.facts == {"count": 1, "distributions": {"cryptography": "38.0.4"}}
    assert finding.warnings == ()


def test_an_egg_info_of_another_folder_is_another_installation(machine: Machine) -> None:
    files = {"site/thing-2.0.dist-info/METADATA": "", "dist/thing-1.0.egg-info": ""}

    finding = packages.find(machine(files, python=on("/site", "/dist")))

    assert [package["version"] for package in finding.facts["installed_twice"]] == ["2.0", "1.0"]  # type: ignore[index, union-attr]


def test_metadata_without_a_version_is_told_as_such(machine: Machine) -> None:
    files = {"site/thing-1.0.egg-info": "", "site/thing.egg-info": ""}

    (warning,) = packages.find(machine(files)).warnings

    assert warning.message in (
        "/site has metadata of thing 1.0 and without a version",
        "/site has metadata of thing without a version and 1.0",
    )


@pytest.mark.parametrize("name", sorted(packages._WITH_PROBES))
def test_what_is_installed_twice_is_told_by_one_probe(machine: Machine, name: str) -> None:
    escaped = name.replace("-", "_")
    files = {f"site/{escaped}-{version}.dist-info/METADATA": "" for version in ("1.0", "2.0")}
    report = survey((), machine(files), Presence.FOUND)

    tellers = {
        probe: warning.message
        for probe, answer in report.probes.items()
        for warning in answer.warnings
        if "1.0" in warning.message and "2.0" in warning.message
    }

    assert len(tellers) == 1
    assert "packages" not in tellers
