from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mlbackends.host.host import Host
from mlbackends.model.records import Presence
from mlbackends.survey import survey
from mlbackends_probes import packages

if TYPE_CHECKING:
    from pathlib import Path


def machine(folder: Path, files: dict[str, str | bytes], *path: str) -> Host:
    """Compose a machine with files below /, and the import path, /site by default."""
    for name, data in files.items():
        at = folder / "root" / name
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(data if isinstance(data, bytes) else data.encode())
    (folder / "root").mkdir(exist_ok=True)
    (folder / "host.json").write_text(json.dumps({"python": {"path": list(path or ("/site",))}}))
    return Host(str(folder))


def test_every_distribution_is_listed_once(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "site/zlib_ng-1.0.dist-info/METADATA": "",
        "site/Alpha-2.0-py3.11.egg-info/PKG-INFO": "",
        "site/alpha/__init__.py": "",
    }

    finding = packages.find(machine(tmp_path, files))

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
    tmp_path: Path, names: tuple[str, ...], codes: list[str]
) -> None:
    files: dict[str, str | bytes] = {f"site/{name}.dist-info/METADATA": "" for name in names}

    finding = packages.find(machine(tmp_path, files))

    assert [warning.code for warning in finding.warnings] == codes


def test_old_metadata_in_the_same_folder_is_a_conflict(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "site/thing-1.0.dist-info/RECORD": "thing/a.py,sha256=1,1\n",
        "site/thing-1.1.dist-info/RECORD": "thing/a.py,sha256=2,2\n",
    }

    finding = packages.find(machine(tmp_path, files))

    assert finding.facts["count"] == 1
    assert [one.code for one in finding.warnings] == ["installed-twice"]
    assert finding.warnings[0].message == "/site has metadata of thing 1.0 and 1.1"


def test_the_same_name_in_another_folder_is_told_without_a_warning(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "user/thing-1.1.dist-info/METADATA": "",
        "site/thing-1.0.dist-info/METADATA": "",
    }

    finding = packages.find(machine(tmp_path, files, "/user", "/site"))

    assert finding.facts["distributions"] == {"thing": "1.1"}
    assert finding.facts["installed_twice"] == [
        {"name": "thing", "version": "1.1", "folder": "/user"},
        {"name": "thing", "version": "1.0", "folder": "/site"},
    ]
    assert finding.warnings == ()


def test_what_a_broken_uninstall_left_is_listed(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "site/thing-1.0.dist-info/METADATA": "",
        "site/~umpy-2.0.dist-info/METADATA": "",
    }

    facts = packages.find(machine(tmp_path, files)).facts

    assert facts["leftovers"] == ["/site/~umpy-2.0.dist-info"]
    assert facts["distributions"] == {"thing": "1.0"}


@pytest.mark.parametrize("data", [b"", b"\0\xff", b",,\n,,\n", b"a" * 100_000, b'"', b"\r\n" * 999])
def test_a_broken_record_never_raises(tmp_path: Path, data: bytes) -> None:
    files: dict[str, str | bytes] = {
        "site/one-1.0.dist-info/RECORD": data,
        "site/two-1.0.dist-info/RECORD": b"two.py,sha256=1,1\n" + data,
        "site/three-.dist-info": b"a file, no folder",
        "site/-1.dist-info/RECORD": data,
    }

    finding = packages.find(machine(tmp_path, files))

    assert finding.presence is Presence.FOUND
    assert finding.facts.get("owned_twice", []) == []
    assert finding.facts["distributions"] == {"one": "1.0", "three": "", "two": "1.0"}


def test_an_egg_info_beside_a_dist_info_is_the_same_installation(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "site/cryptography-38.0.4.dist-info/METADATA": "",
        "site/cryptography.egg-info/PKG-INFO": "",
    }

    finding = packages.find(machine(tmp_path, files))

    assert finding.facts == {"count": 1, "distributions": {"cryptography": "38.0.4"}}
    assert finding.warnings == ()


def test_an_egg_info_of_another_folder_is_another_installation(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "site/thing-2.0.dist-info/METADATA": "",
        "dist/thing-1.0.egg-info": "",
    }

    finding = packages.find(machine(tmp_path, files, "/site", "/dist"))

    assert [one["version"] for one in finding.facts["installed_twice"]] == ["2.0", "1.0"]  # type: ignore[index, union-attr]


def test_metadata_without_a_version_is_told_as_such(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "site/thing-1.0.egg-info": "",
        "site/thing.egg-info": "",
    }

    (warning,) = packages.find(machine(tmp_path, files)).warnings

    assert warning.message in (
        "/site has metadata of thing 1.0 and without a version",
        "/site has metadata of thing without a version and 1.0",
    )


@pytest.mark.parametrize("name", sorted(packages._WITH_PROBES))
def test_what_is_installed_twice_is_told_by_one_probe(tmp_path: Path, name: str) -> None:
    escaped = name.replace("-", "_")
    files: dict[str, str | bytes] = {
        f"site/{escaped}-{version}.dist-info/METADATA": "" for version in ("1.0", "2.0")
    }
    report = survey((), machine(tmp_path, files), Presence.FOUND)

    tellers = {
        probe: warning.message
        for probe, told in report.probes.items()
        for warning in told.warnings
        if "1.0" in warning.message and "2.0" in warning.message
    }

    assert len(tellers) == 1
    assert "packages" not in tellers
