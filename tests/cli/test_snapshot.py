"""`backends snapshot`: what it writes, what it says of it, and how it ends."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import pytest
from running import backends

HGX = str(Path(__file__).resolve().parents[2] / "tests/hosts/hgx-h100-eight-gpus.machine")


def test_a_report_is_what_the_machine_says(tmp_path: Path) -> None:
    path = tmp_path / "good.json"
    done = backends("snapshot", str(path), "--root", HGX)
    assert (done.returncode, done.stderr) == (0, "")
    assert " probes at depth found\n" in done.stdout
    assert backends("diff", str(path), HGX).returncode == 0
    assert json.loads(path.read_text())["redacted"] is True


@pytest.mark.parametrize("name", ["good.json", "machine", "node.machine"])
def test_what_is_there_is_replaced_only_when_asked(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    command = ("snapshot", str(target), "--root", HGX)
    assert backends(*command).returncode == 0
    mark = target if target.is_file() else target / "about.txt"
    mark.write_text("mine")

    refused = backends(*command)
    assert (refused.returncode, refused.stdout, mark.read_text()) == (2, "", "mine")
    assert "hint: add --overwrite to replace it, or name a" in refused.stderr

    assert backends(*command, "--overwrite").returncode == 0
    assert mark.read_text() != "mine"
    assert os.listdir(tmp_path) == [name]


def test_a_folder_that_is_no_recorded_machine_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")

    done = backends("snapshot", str(tmp_path), "--root", HGX, "--overwrite")
    assert done.returncode == 2
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_identity_is_kept_only_where_it_is_asked_for(tmp_path: Path) -> None:
    node = platform.node()
    for name, options in (("with", ("--keep-identity",)), ("without", ())):
        path = tmp_path / f"{name}.json"
        done = backends("snapshot", str(path), "--depth", "found", *options)
        told = json.loads(path.read_text())
        assert (told["probes"]["host"]["facts"]["host_name"] == node) is (name == "with")
        assert ("nothing was replaced" in done.stdout) is (name == "with")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "needs FILE.json|FILE.machine|DIR"),
        (("-",), "a snapshot needs a name"),
        (("",), "a snapshot needs a name"),
        (("x.json", "--root", "/no/such"), "--root: '/no/such' is neither a folder nor a file"),
        (("m", "--root", HGX, "--python", "python3"), "cannot be combined with --python"),
        (("m", "--depth", "usable"), "is for FILE.json"),
        (
            ("x.json", "--timeout", "nan"),
            "invalid value nan for --timeout; it must be a number from 0.01 to 3600",
        ),
        (("/no/such/folder/x.json", "--root", HGX), "cannot be written"),
        (("/no/such/folder/m", "--root", HGX), "cannot be written"),
        (("/no/such/folder/m.machine", "--root", HGX), "cannot be written"),
        ((HGX, "--root", HGX), "already exists"),
        ((str(Path(HGX).parent), "--root", HGX), "is not empty"),
    ],
)
def test_what_cannot_be_done_ends_with_2_and_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = backends("snapshot", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
