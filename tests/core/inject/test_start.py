"""What can be started, and how."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mlbackends.base.errors import BadInput
from mlbackends.inject.start import startable

if TYPE_CHECKING:
    from pathlib import Path

PATH = "/usr/bin:/bin"


def become(*command: str, path: str = PATH) -> subprocess.CompletedProcess[str]:
    """Let a process of ours become a command."""
    code = (
        "import sys\nfrom mlbackends.inject.start import replace_process\n"
        f"replace_process(sys.argv[1:], {{'PATH': {path!r}, 'GIVEN': 'yes'}})"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_python_script_that_is_not_executable_gets_our_python(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    assert startable([str(script), "x"], PATH) == [sys.executable, str(script), "x"]
    script.chmod(0o755)
    assert startable([str(script), "x"], PATH) == [str(script), "x"]


def test_another_file_that_is_not_executable_is_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "train").write_text("")
    with pytest.raises(BadInput, match="is not executable") as caught:
        startable([str(tmp_path / "train")], PATH)
    assert "interpreter" in caught.value.hint


@pytest.mark.parametrize("name", ["nosuch", "nosuch.py", "", "a\0b", "/"])
def test_what_is_no_program_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="is not a program that can be run"):
        startable([name], PATH)


def test_a_script_without_a_first_line_is_the_shells(tmp_path: Path) -> None:
    script = tmp_path / "without-first-line"
    script.write_text('echo "$GIVEN" "$1"; exit 7\n')
    script.chmod(0o755)
    done = become("without-first-line", "word", path=f"{PATH}:{tmp_path}")
    assert (done.stdout, done.returncode) == ("yes word\n", 7)


def test_a_writer_to_a_closed_pipe_ends_as_it_would_alone() -> None:
    """Python ignores SIGPIPE, and `yes` would complain if it inherited that."""
    done = become("sh", "-c", "yes | head -n 1")
    assert (done.stdout, done.stderr) == ("y\n", "")


def test_a_program_of_another_machine_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/nowhere/interpreter\n")
    script.chmod(0o755)
    done = become(str(script))
    assert "BadInput" in done.stderr
    assert f"{os.strerror(2)}" in done.stderr
