"""The Python probe on composed environments."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.host.host import Host
from mlbackends.model.records import Presence
from mlbackends_probes import python as probe

if TYPE_CHECKING:
    from pathlib import Path

    from mlbackends.model.records import Finding


def look(
    folder: Path,
    files: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    **python: Any,
) -> Finding:
    (folder / "root").mkdir(exist_ok=True)
    for name, text in (files or {}).items():
        path = folder / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    told = {"prefix": "/env", "base_prefix": "/usr", "version": "3.12.4"} | python
    record = {"python": told, "environment": environment or {}}
    (folder / "host.json").write_text(json.dumps(record))
    return probe.find(Host(str(folder)))


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at on Linux")
def test_a_process_without_python_is_no_recorded_machine() -> None:
    found = probe.find(Host("/", pid=os.getpid(), python={}))
    assert found.presence is Presence.ABSENT
    assert found.reasons[0].message == f"process {os.getpid()} is not a Python"


def test_a_virtual_environment_is_told_by_its_two_prefixes(tmp_path: Path) -> None:
    found = look(tmp_path, executable="/env/bin/python", implementation="cpython")
    assert found.version == "3.12.4"
    assert found.facts["is_virtual_environment"] is True
    assert found.facts["executable"] == "/env/bin/python"
    assert found.facts["implementation"] == "cpython"


@pytest.mark.parametrize(
    ("file", "has_headers"),
    [
        ("usr/include/python3.12/Python.h", True),
        ("env/include/python3.12/Python.h", True),
        ("usr/include/python3.11/Python.h", False),
        ("usr/bin/python", None),  # the recording has no headers at all
    ],
)
def test_the_headers_are_those_of_the_environment_or_its_base(
    tmp_path: Path, file: str, has_headers: bool | None
) -> None:
    assert look(tmp_path, {file: ""}).facts.get("has_headers") is has_headers


@pytest.mark.parametrize(
    ("settings", "manager", "version"),
    [
        ("home = /usr/bin\nversion = 3.12.4\n", "venv", None),
        ("home = /usr/bin\nuv = 0.9.2\n", "uv", "0.9.2"),
        ("home = /usr/bin\nvirtualenv = 20.26.3\n", "virtualenv", "20.26.3"),
        ("home = /usr/bin\nuv = garbage\n", "uv", None),
        ("", None, None),
        ("\0\udcff", None, None),
    ],
)
def test_pyvenv_cfg_tells_who_made_the_environment(
    tmp_path: Path, settings: str, manager: str | None, version: str | None
) -> None:
    facts = look(tmp_path, {"env/pyvenv.cfg": settings}).facts
    assert facts.get("manager") == manager
    assert facts.get("manager_version") == version


@pytest.mark.parametrize(
    ("prefix", "base", "manager"),
    [
        ("/home/u/.local/share/pipx/venvs/x", "/usr", "pipx"),
        ("/home/u/.cache/pypoetry/virtualenvs/x-py3.12", "/usr", "poetry"),
        ("/home/u/.pyenv/versions/3.12.4", "/home/u/.pyenv/versions/3.12.4", "pyenv"),
        ("/home/u/.local/share/uv/python/cpython-3.12", None, "uv"),
        ("/opt/homebrew/opt/python@3.12", None, "homebrew"),
        ("/usr", "/usr", "system"),
        ("/usr/local", "/usr/local", None),
    ],
)
def test_places_tell_who_made_the_rest(
    tmp_path: Path, prefix: str, base: str | None, manager: str | None
) -> None:
    facts = look(tmp_path, prefix=prefix, base_prefix=base or prefix).facts
    assert facts.get("manager") == manager


def test_conda_is_told_by_its_records(tmp_path: Path) -> None:
    found = look(tmp_path, {"opt/conda/conda-meta/history": ""}, prefix="/opt/conda", base_prefix="")
    assert found.facts["manager"] == "conda"
    assert found.facts["is_virtual_environment"] is False


def test_an_environment_may_see_its_bases_packages(tmp_path: Path) -> None:
    files = {"env/pyvenv.cfg": "include-system-site-packages = true\n"}
    assert look(tmp_path, files).facts["sees_system_packages"] is True


def test_site_folders_and_distributions_are_those_of_the_path(tmp_path: Path) -> None:
    site = "/env/lib/python3.12/site-packages"
    files = {f"{site[1:]}/{name}-1.0.dist-info/METADATA": "" for name in ("one", "two")}
    facts = look(tmp_path, files, path=["/usr/lib/python3.12", site]).facts
    assert facts["site_folders"] == [site]
    assert facts["distribution_count"] == 2
    assert facts["user_site_on_path"] is False


@pytest.mark.parametrize(
    ("environment", "folder", "expected"),
    [
        ({"HOME": "/home/u"}, "/home/u/.local/lib/python3.12/site-packages", True),
        ({"HOME": "/home/u"}, "/home/v/.local/lib/python3.12/site-packages", False),
        ({}, "/home/v/.local/lib/python3.12/site-packages", True),
        ({"PYTHONUSERBASE": "/data/py/"}, "/data/py/lib/python3.12/site-packages", True),
        ({"HOME": "/home/u"}, "/usr/lib/python3/dist-packages", False),
    ],
)
def test_the_users_own_site_folder_is_noticed(
    tmp_path: Path, environment: dict[str, str], folder: str, *, expected: bool
) -> None:
    facts = look(tmp_path, environment=environment, path=[folder]).facts
    assert facts["user_site_on_path"] is expected


@pytest.mark.parametrize(
    ("version", "folders", "expected"),
    [
        ("3.14.0", ["/usr/lib/python3.14t", "/usr/lib/python3.14t/site-packages"], True),
        ("3.14.0", ["/usr/lib/python3.14"], False),
        ("3.14.0", ["/somewhere"], None),
        ("3.11.7", [], False),
    ],
)
def test_the_build_without_the_gil_is_told_by_its_folders(
    tmp_path: Path, version: str, folders: list[str], expected: bool | None
) -> None:
    assert look(tmp_path, version=version, path=folders).facts.get("free_threaded") is expected


@pytest.mark.parametrize(("prefix", "expected"), [("/usr", True), ("/env", False)])
def test_the_marker_of_pep_668_counts_outside_of_environments(
    tmp_path: Path, prefix: str, *, expected: bool
) -> None:
    files = {"usr/lib/python3.12/EXTERNALLY-MANAGED": "[externally-managed]\n"}
    facts = look(tmp_path, files, prefix=prefix, path=["/usr/lib/python3.12"]).facts
    assert facts["externally_managed"] is expected


def test_another_active_environment_is_a_warning_with_the_way_to_it(tmp_path: Path) -> None:
    found = look(tmp_path, {"project/.venv/bin/python": ""}, {"VIRTUAL_ENV": "/project/.venv"})
    (warning,) = found.warnings
    assert warning.code == "other-environment"
    assert warning.message == ("VIRTUAL_ENV names /project/.venv; the environment that is inspected is /env")
    assert warning.hint == "inspect that one with --python /project/.venv/bin/python"


def test_an_active_environment_that_is_gone_is_to_be_unset(tmp_path: Path) -> None:
    (warning,) = look(tmp_path, environment={"VIRTUAL_ENV": "/gone"}).warnings
    assert warning.hint == "unset VIRTUAL_ENV"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"VIRTUAL_ENV": ""},
        {"VIRTUAL_ENV": "/env/"},
        {"VIRTUAL_ENV": "/env", "CONDA_PREFIX": "/opt/conda"},
        {"CONDA_PREFIX": "/usr"},
    ],
    ids=str,
)
def test_the_environment_itself_and_its_base_are_no_warning(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    assert not look(tmp_path, environment=environment).warnings


def test_an_active_conda_environment_is_named_too(tmp_path: Path) -> None:
    (warning,) = look(tmp_path, environment={"CONDA_PREFIX": "/opt/conda"}).warnings
    assert warning.message.startswith("CONDA_PREFIX names /opt/conda;")


def test_packages_of_another_python_on_pythonpath_are_a_warning(tmp_path: Path) -> None:
    path = "/opt/tools:/opt/x/lib/python3.9/site-packages"
    found = look(tmp_path, environment={"PYTHONPATH": path})
    (warning,) = found.warnings
    assert warning.code == "other-python"
    assert "Python 3.9; this is Python 3.12" in warning.message
    assert found.facts["environment"] == {"PYTHONPATH": path}


def test_packages_of_this_python_on_pythonpath_are_fine(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": "/opt/x/lib/python3.12/site-packages"}
    assert not look(tmp_path, environment=environment).warnings
