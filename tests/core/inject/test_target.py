"""The Python that a command starts, and its torch."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from mlbackends.inject.target import python_command, target_of

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def torch_in(folder: Path, version: str) -> Path:
    """Write as much of a torch as is asked: its folder and version.py."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("")
    (folder / "torch" / "version.py").write_text(version)
    return folder


def script(path: Path, text: str) -> str:
    path.write_bytes(text.encode())
    path.chmod(0o755)
    return str(path)


def test_a_torch_beside_the_script_is_the_one_that_is_imported(tmp_path: Path) -> None:
    torch_in(tmp_path, "__version__ = '9.9'\ncuda: Optional[str] = '13.0'\nhip = None\n")
    program = tmp_path / "train.py"
    target = target_of([sys.executable, "-u", str(program), "-I"], ENVIRONMENT)
    assert target is not None
    assert target.executable == sys.executable.replace("\\", "/")
    assert target.hook_ignored_by == ""
    assert target.torch is not None
    assert target.torch.version == "9.9"
    assert target.torch.parts == frozenset({"cuda", "cudnn"})


def test_isolated_python_does_not_look_beside_the_script(tmp_path: Path) -> None:
    torch_in(tmp_path, "__version__ = '9.9'\n")
    target = target_of([sys.executable, "-I", str(tmp_path / "train.py")], ENVIRONMENT)
    assert target is not None
    assert target.hook_ignored_by == "-I"
    assert target.torch is None or target.torch.version != "9.9"


def test_code_and_modules_look_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(torch_in(tmp_path, "__version__ = '9.9'\nxpu = '2025.1'\n"))
    target = target_of([sys.executable, "-c", "import torch"], ENVIRONMENT)
    assert target is not None
    assert target.torch is not None
    assert target.torch.parts == frozenset({"xpu"})


def test_of_a_torch_that_does_not_tell_nothing_is_claimed(tmp_path: Path) -> None:
    torch_in(tmp_path, "garbage (")
    target = target_of([sys.executable, str(tmp_path / "train.py")], ENVIRONMENT)
    assert target is not None
    assert target.torch is not None
    assert target.torch.parts is None


def test_a_build_for_amd_has_what_torch_calls_cuda(tmp_path: Path) -> None:
    torch_in(tmp_path, "__version__ = '9.9'\ncuda = None\nhip = '6.4'\n")
    target = target_of([sys.executable, str(tmp_path / "train.py")], ENVIRONMENT)
    assert target is not None
    assert target.torch is not None
    assert target.torch.parts == frozenset({"cuda", "cudnn"})


def test_a_script_is_started_by_its_first_line(tmp_path: Path) -> None:
    name = script(tmp_path / "train", f"#!{sys.executable} -E\nimport torch\n")
    target = target_of([name, "-S"], ENVIRONMENT)
    assert target is not None
    assert (target.executable, target.hook_ignored_by) == (sys.executable, "-E")


def test_a_script_on_the_path_is_found_there_and_so_is_its_interpreter(tmp_path: Path) -> None:
    name = os.path.basename(sys.executable)
    os.symlink(sys.executable, tmp_path / name)
    path = script(tmp_path / "train", f"#!/usr/bin/env {name}\n")
    assert python_command(["train", "--lr", "1"], f"/nowhere:{tmp_path}") == (
        str(tmp_path / name),
        path,
        "--lr",
        "1",
    )


@pytest.mark.parametrize(
    "text", ["#!/bin/sh\npython $1\n", "#!/bin/sh\n", "\x7fELF", "", "#!/nowhere/python3\n"]
)
def test_where_the_interpreter_cannot_be_told_there_is_no_target(tmp_path: Path, text: str) -> None:
    assert target_of([script(tmp_path / "run", text)], ENVIRONMENT) is None


@pytest.mark.parametrize("name", ["python3-config", "pythonic", "ipython", "python.sh"])
def test_what_is_only_named_alike_is_not_asked(tmp_path: Path, name: str) -> None:
    assert target_of([script(tmp_path / name, "#!/bin/sh\necho {}\n")], ENVIRONMENT) is None


def test_a_python_that_does_not_answer_is_left_to_say_so_itself(tmp_path: Path) -> None:
    assert target_of([script(tmp_path / "python3", "#!/bin/sh\nexit 7\n")], ENVIRONMENT) is None


@pytest.mark.parametrize("name", ["nosuch", "", "a\0b", "/"])
def test_what_is_no_program_has_no_target(name: str) -> None:
    assert target_of([name], ENVIRONMENT) is None


def test_a_script_that_is_a_link_looks_where_the_file_lies(tmp_path: Path) -> None:
    torch_in(tmp_path / "real", "__version__ = '9.9'\n")
    (tmp_path / "real" / "train.py").write_text("")
    (tmp_path / "train.py").symlink_to(tmp_path / "real" / "train.py")
    target = target_of([sys.executable, str(tmp_path / "train.py")], ENVIRONMENT)
    assert target is not None
    assert target.torch is not None
    assert target.torch.version == "9.9"


def test_a_current_folder_that_was_deleted_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert target_of([sys.executable, "-c", ""], ENVIRONMENT) is not None
