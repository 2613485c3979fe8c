from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import (
    assigned_flag,
    assigned_text,
    built_for_torch,
    entry_points,
    found,
    found_set,
    gpu_unused,
    package,
)
from mlbackends.host.python.packages import (
    distribution,
    distributions,
    module_location,
    origin_of,
    python_folders,
)
from mlbackends.host.python.wheel_files import missing_files
from mlbackends.model.records import Presence

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.conftest import Machine

    from mlbackends.model.records import Finding


def on(*folders: str) -> dict[str, Any]:
    """Return a Python with these folders as its import path."""
    return {"executable": "/venv/bin/python", "path": folders}


def about(host: Host, *names: str, version_file: str = "") -> Finding:
    return found(host, package(host, names or ("thing",), "thing", version_file), "thing")


def codes(finding: Finding) -> list[str]:
    return [warning.code for warning in finding.warnings]


# ---- distributions -------------------------------------------------------------------------------


def test_names_are_compared_as_pep_503_says(machine: Machine) -> None:
    host = machine({"site/Typing_Extensions-4.16.0.dist-info/METADATA": ""})

    one = distribution(host, "typing.extensions")

    assert one is not None
    assert (one.name, one.version) == ("typing-extensions", "4.16.0")


def test_an_egg_info_file_is_a_distribution_too(machine: Machine) -> None:
    files = {"site/PyYAML-6.0.1-py3.11.egg-info": "", "site/~umpy-2.0.dist-info/METADATA": ""}

    host = machine(files)

    assert {name: all_of[0].version for name, all_of in distributions(host).items()} == {"pyyaml": "6.0.1"}


# ---- one package ---------------------------------------------------------------------------------


def test_a_machine_without_python_says_so(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (reason,) = about(Host(str(tmp_path))).reasons

    assert reason.message == "no thing: no Python is known"


def test_what_is_no_folder_in_an_answer_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    python = {"version": "3.12.4", "path": [["/usr"], 1, "/site", "/site"]}

    assert python_folders(Host(str(tmp_path), python=python)) == ["/site"]


def test_metadata_without_files_is_a_reason(machine: Machine) -> None:
    finding = about(machine({"site/thing-1.2.dist-info/METADATA": ""}))

    assert (finding.presence, finding.version) == (Presence.FOUND, "1.2")
    assert [reason.code for reason in finding.reasons] == ["metadata-only"]


def test_a_folder_that_this_user_may_not_read_does_not_count_as_missing(
    unprivileged: Callable[[], AbstractContextManager[None]],
) -> None:
    """Installed by root with umask 077, as on shared clusters."""
    with TemporaryDirectory() as name:
        Path(name, "site/thing/libs").mkdir(parents=True)
        Path(name, "proc").mkdir()
        info = Path(name, "site/thing-1.2.dist-info")
        info.mkdir()
        (info / "RECORD").write_text("thing/libs/_core.so,,\n")
        Path(name).chmod(0o755)
        Path(name, "site/thing").chmod(0)
        try:
            with unprivileged():
                host = Host(name, python=on("/site"))
                (reason,) = about(host).reasons
                lacking = missing_files(host, distributions(host)["thing"])
        finally:
            Path(name, "site/thing").chmod(0o755)

    assert reason.message == "thing 1.2 is installed, but this user may not read /site/thing"
    assert (reason.hint, lacking) == ("make it readable: chmod -R a+rX /site/thing", [])


def test_a_package_of_no_version_is_named_without_one(machine: Machine) -> None:
    files = {"site/thing.dist-info/METADATA": "Name: thing\nRequires-Dist: part==1\n"}

    finding = about(machine(files), "thing")

    (reason,) = finding.reasons
    assert "  " not in reason.message


def test_files_without_metadata_are_found(machine: Machine) -> None:
    host = machine({"src/thing/__init__.py": "__version__ = '3.0'\n"}, python=on("/site", "/src"))

    finding = about(host, version_file="__init__.py")

    assert (finding.presence, finding.version) == (Presence.FOUND, "3.0")
    assert finding.facts == {"location": "/src/thing"}


def test_a_folder_that_an_uninstall_left_behind_is_nothing(machine: Machine) -> None:
    files: dict[str, str | bytes] = {
        "site/thing/__pycache__/a.pyc": b"",
        "site/thing/tuning_cache.json": "{}",
    }

    assert about(machine(files)).presence is None


def test_a_package_without_init_is_found_by_its_metadata(machine: Machine) -> None:
    files = {"site/thing-1.2.dist-info/METADATA": "", "site/thing/part.py": ""}

    finding = about(machine(files))

    assert finding.facts["location"] == "/site/thing"
    assert finding.reasons == ()


def test_a_single_file_and_a_part_of_a_namespace_are_modules(machine: Machine) -> None:
    host = machine({"site/one.py": "", "site/cuda/tile/__init__.py": ""})

    assert module_location(host, "one") == "/site/one.py"
    assert module_location(host, "cuda/tile") == "/site/cuda/tile"
    assert module_location(host, "cuda") == ""


def test_what_its_files_say_comes_before_the_metadata(machine: Machine) -> None:
    files = {
        "site/thing-13.5.0.dist-info/METADATA": "",
        "site/thing/__init__.py": '__version__ = "12.6.2.post1"\n',
    }

    finding = about(machine(files), version_file="__init__.py")

    assert finding.version == "12.6.2.post1"
    (warning,) = finding.warnings
    assert warning.code == "metadata-mismatch"
    assert "has version 13.5.0, and its files have 12.6.2.post1" in warning.message


def test_a_local_part_in_the_files_is_no_disagreement(machine: Machine) -> None:
    files = {
        "site/thing-2.13.0.dist-info/METADATA": "",
        "site/thing/version.py": "__version__ = '2.13.0+cpu'\n",
    }

    finding = about(machine(files), version_file="version.py")

    assert finding.version == "2.13.0+cpu"
    assert finding.warnings == ()


# ---- several installations -----------------------------------------------------------------------


def test_the_first_on_the_import_path_hides_the_others(machine: Machine) -> None:
    files = {
        "user/thing-1.0.dist-info/METADATA": "",
        "user/thing/__init__.py": "",
        "site/thing-2.0.dist-info/METADATA": "",
        "site/thing/__init__.py": "",
    }

    finding = about(machine(files, python=on("/user", "/site")))

    assert finding.version == "1.0"
    assert finding.facts["installations"] == [
        {"name": "thing", "version": "1.0", "folder": "/user"},
        {"name": "thing", "version": "2.0", "folder": "/site"},
    ]
    (warning,) = finding.warnings
    assert warning.code == "installation-hidden"
    assert warning.message == "thing 1.0 in /user is imported, and hides thing 2.0 in /site"


def test_a_users_own_copy_before_the_environments_is_told_apart(machine: Machine) -> None:
    user, site = "/home/me/.local/lib/python3.11/site-packages", "/env/site-packages"
    files = {
        f"{folder[1:]}/{name}": ""
        for folder, version in ((user, "1.0"), (site, "2.0"))
        for name in (f"thing-{version}.dist-info/METADATA", "thing/__init__.py")
    }

    assert codes(about(machine(files, python=on(user, site)))) == ["hidden-by-user-site"]
    assert codes(about(machine(files, python=on(site, user)))) == ["installation-hidden"]


def test_metadata_that_lies_with_the_files_is_the_right_one(machine: Machine) -> None:
    files = {
        "user/thing-1.0.dist-info/METADATA": "",
        "site/thing-2.0.dist-info/METADATA": "",
        "site/thing/__init__.py": "",
    }

    finding = about(machine(files, python=on("/user", "/site")))

    assert finding.version == "2.0"


# ---- where it came from --------------------------------------------------------------------------


def test_an_editable_install_is_followed_to_its_source(machine: Machine) -> None:
    url = {"url": "file:///src/thing", "dir_info": {"editable": True}}
    files = {
        "site/thing-1.0.dist-info/METADATA": "",
        "site/thing-1.0.dist-info/direct_url.json": json.dumps(url),
        "site/__editable___thing_1_0_finder.py": "MAPPING: dict = {'thing': '/src/thing/python'}\n",
        "src/thing/python/__init__.py": "",
    }

    finding = about(machine(files))

    assert finding.facts == {
        "distribution": "thing",
        "location": "/src/thing/python",
        "editable": True,
        "source": "file:///src/thing",
    }
    assert finding.reasons == ()


def test_an_editable_install_without_a_finder_is_not_without_files(machine: Machine) -> None:
    url = {"url": "file:///src/thing", "dir_info": {"editable": True}}
    files = {"site/thing-1.0.dist-info/direct_url.json": json.dumps(url)}

    finding = about(machine(files))

    assert finding.reasons == ()
    assert "location" not in finding.facts


def test_a_source_tree_with_an_egg_link_is_editable(machine: Machine) -> None:
    files = {
        "site/thing.egg-link": "/src/thing\n.\n",
        "src/thing.egg-info/PKG-INFO": "",
        "src/thing/__init__.py": "",
    }

    finding = about(machine(files, python=on("/site", "/src")))

    assert finding.facts["editable"] is True
    assert finding.facts["source"] == "file:///src"


@pytest.mark.parametrize(
    ("told", "source"),
    [
        ("https://user:secret@example.org/thing.whl", "https://example.org/thing.whl"),
        ("git+ssh://git@example.org/thing", "git+ssh://example.org/thing"),
        ("https://example.org/a@b/thing.whl", "https://example.org/a@b/thing.whl"),
    ],
)
def test_a_source_is_told_without_credentials(machine: Machine, told: str, source: str) -> None:
    files = {"site/thing-1.0.dist-info/direct_url.json": json.dumps({"url": told})}
    host = machine(files)

    assert origin_of(host, distributions(host)["thing"][0]) == {"url": source}


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\xff", b"[]", b"{", b'{"url": 1, "dir_info": [1]}', b'{"dir_info": 0}', b"[" * 99999],
)
def test_garbage_in_direct_url_is_no_origin(machine: Machine, data: bytes) -> None:
    host = machine({"site/thing-1.0.dist-info/direct_url.json": data})

    assert origin_of(host, distributions(host)["thing"][0]) == {}


# ---- pins and ranges -----------------------------------------------------------------------------


def test_pins_are_held_to_what_is_installed(machine: Machine) -> None:
    metadata = (
        "Requires-Dist: right==1.0\n"
        "Requires-Dist: wrong==1.0\n"
        "Requires-Dist: missing==1.0\n"
        'Requires-Dist: elsewhere==1.0; sys_platform == "win32"\n'
        "Requires-Dist: ranged>=1.0\n\n"
    )
    files = {
        "site/thing-1.0.dist-info/METADATA": metadata,
        "site/thing/__init__.py": "",
        "site/right-1.0+cpu.dist-info/METADATA": "",
        "site/wrong-1.1.dist-info/METADATA": "",
    }

    finding = about(machine(files))

    assert finding.facts["pins"] == [
        {"package": "right", "wanted": "1.0", "installed": "1.0+cpu"},
        {"package": "wrong", "wanted": "1.0", "installed": "1.1"},
        {"package": "missing", "wanted": "1.0", "installed": ""},
    ]


# ---- several packages as one thing ---------------------------------------------------------------


def test_a_set_has_the_version_of_the_first_that_is_there(machine: Machine) -> None:
    files = {
        "site/two-2.0.dist-info/METADATA": "Requires-Dist: lib==1\n\n",
        "site/two/__init__.py": "",
        "site/three-3.0.dist-info/METADATA": "",
    }
    host = machine(files)

    packages = [package(host, (name,), name) for name in ("one", "two", "three")]
    finding = found_set(host, packages, "one or two", "thing")

    assert (finding.presence, finding.version) == (Presence.FOUND, "2.0")
    assert finding.facts == {
        "packages": {"two": "2.0", "three": "3.0"},
        "locations": {"two": "/site/two"},
        "pins": [{"package": "lib", "wanted": "1", "installed": "", "by": "two"}],
    }
    assert [reason.code for reason in finding.reasons] == ["metadata-only"]


# ---- text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cuda = '12.1'", "12.1"),
        ('cuda: Optional[str] = "13.0"', "13.0"),
        ("cuda: Optional[str] = None", ""),
        ("cuda = r'13'  # of the build", "13"),
        ("  cuda = '12'", "12"),
        ("mcuda = '12'", ""),
        ("cuda == '12'", ""),
        ("cuda = f()", ""),
        ("cuda = '12", ""),
        ("cuda =", ""),
        ("", ""),
    ],
)
def test_an_assigned_text_is_read_from_source(text: str, value: str) -> None:
    assert assigned_text(f"first = 1\n{text}\nlast = '0'\n", "cuda") == value


def test_an_assigned_flag_is_true_false_or_nothing() -> None:
    assert assigned_flag("debug = False\n", "debug") is False
    assert assigned_flag("debug: bool = True", "debug") is True
    assert assigned_flag("debug = None", "debug") is None
    assert assigned_flag("", "debug") is None


def test_entry_points_of_a_group_come_from_every_distribution(machine: Machine) -> None:
    files: dict[str, str | bytes] = {
        "site/one-1.dist-info/entry_points.txt": "[console_scripts]\nx = y\n\n[group]\na = m:f\n",
        "site/two-1.dist-info/entry_points.txt": "[group]\nb=n\nnothing\n= c\n[other]\nd = e\n",
        "site/three-1.dist-info/entry_points.txt": b"\0\xff[group",
    }

    assert entry_points(machine(files), "group") == {"a": "m:f", "b": "n"}


# ---- other things of the machine -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "installed", "warns"),
    [
        ("2.10.0+cu128", "2.10.0+cu128", False),
        ("2.10.0+cu128", "2.10.0", False),
        ("2.10.0", "2.10.0+cu128", False),
        ("2.8", "2.8.1+cu128", False),
        ("2.10.0+cu128", "2.10.0+cu130", True),
        ("2.10.0+cu128", "2.13.0+cpu", True),
        ("2.1", "2.10.0", True),
    ],
)
def test_what_was_built_for_another_torch_is_named(
    machine: Machine, wanted: str, installed: str, warns: bool
) -> None:
    files = {
        "site/torch/__init__.py": "",
        "site/torch/version.py": f"__version__ = '{installed}'\n",
    }

    reason = built_for_torch(machine(files), "xformers", wanted)

    assert (reason is not None) is warns
    if reason:
        assert reason.message.startswith(f"xformers is built for torch {wanted}, and torch")


def test_another_device_of_the_same_maker_is_no_gpu(machine: Machine) -> None:
    uevent = "PCI_CLASS=40300\nPCI_ID=10DE:22BA\n"
    files = {"sys/bus/pci/devices/0000:65:00.1/uevent": uevent}

    assert gpu_unused(machine(files), "torch", "") is None


@pytest.mark.parametrize("path", [["/nowhere"], ["nowhere"], [""], []])
def test_an_import_path_that_leads_nowhere_finds_nothing(tmp_path: Path, path: Any) -> None:
    (tmp_path / "host.json").write_text(json.dumps({"python": {"path": path}}))

    assert about(Host(str(tmp_path))).presence is None
