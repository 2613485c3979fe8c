"""Variables as sh, PowerShell and cmd set them: each gets the text that was meant."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mlbackends.base.errors import BadInput
from mlbackends.base.shells import assignment, command_line, in_powershell, own_shell

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = (
    "1",
    "",
    "a b",
    "it's",
    '"',
    "$HOME",
    "`id`",
    "a;b|c&d<e>f^g",
    "%PATH%",
    "!x!",
    "\u2019",
    "é",
    "a\nb",
    "\\",
)
PRINT = "import os, sys; sys.stdout.buffer.write(os.environ['NAME'].encode())"


@pytest.mark.parametrize("text", TEXTS)
def test_sh_gets_the_text(text: str) -> None:
    script = f'{assignment("NAME", text, "sh")}; printf %s "$NAME"'
    printed = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, check=True).stdout
    assert printed.decode() == text


@pytest.mark.parametrize("text", TEXTS)
def test_nothing_ends_a_text_of_powershell_before_its_end(text: str) -> None:
    before, _, rest = assignment("NAME", text, "powershell").partition(" = ")
    assert before == "$env:NAME"
    assert rest[0] == rest[-1] == "'"
    # Inside of single quotes a doubled quote is one, and nothing else means anything.
    inside, read = rest[1:-1], ""
    while inside:
        size = 2 if inside[0] in "'\u2018\u2019\u201a\u201b" else 1
        assert inside[:size] == inside[0] * size
        read, inside = read + inside[0], inside[size:]
    assert read == text


@pytest.mark.parametrize("text", ['a"b', "%PATH%", "a\nb", "a\tb"])
def test_what_cmd_would_read_otherwise_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="which `set` of cmd cannot express"):
        assignment("NAME", text, "cmd")


@pytest.mark.windows
@pytest.mark.parametrize("text", ["1", "a b", "it's", "$HOME", "a;b|c&d<e>f^g", "\\", "x=y", "[1, 2]"])
def test_cmd_gets_the_text(tmp_path: Path, text: str) -> None:
    script = tmp_path / "run.cmd"
    script.write_text(f'@{assignment("NAME", text, "cmd")}\n@"{sys.executable}" -c "{PRINT}"\n')
    printed = subprocess.run(["cmd", "/c", str(script)], stdout=subprocess.PIPE, check=True).stdout
    assert printed.decode() == text


@pytest.mark.parametrize(
    ("programs", "environment", "shell"),
    [
        (("backends.exe", "pwsh.exe", "explorer.exe"), {"PROMPT": "$P$G"}, "powershell"),
        (("python.exe", "CMD.EXE", "powershell.exe"), {}, "cmd"),
        (("backends.exe", "bash.exe"), {}, "sh"),
        ((), {"MSYSTEM": "MINGW64"}, "sh"),
        ((), {"PROMPT": "$P$G"}, "cmd"),
        (("explorer.exe",), {}, "powershell"),
    ],
)
def test_the_nearest_shell_is_ours(
    programs: tuple[str, ...], environment: dict[str, str], shell: str
) -> None:
    assert own_shell(programs, environment) == shell


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("unset OMP_NUM_THREADS", "Remove-Item Env:OMP_NUM_THREADS"),
        ("export OMP_NUM_THREADS=4", "$env:OMP_NUM_THREADS = '4'"),
        ("export A='it'\"'\"'s'", "$env:A = 'it''s'"),
        (
            "'C:/Program Files/python.exe' -m pip install x",
            "& 'C:/Program Files/python.exe' -m pip install x",
        ),
        ("uv pip install x", "uv pip install x"),
    ],
)
def test_a_command_of_a_hazard_is_written_for_powershell(command: str, typed: str) -> None:
    assert in_powershell(command) == typed


def test_a_line_can_be_typed_here() -> None:
    words = [sys.executable, "-c", "import sys; print(sys.argv[1:])", "a b", "c"]
    line = command_line(words)
    shell = ["cmd", "/s", "/c", f'"{line}"'] if os.name == "nt" else [str(shutil.which("sh")), "-c", line]
    arguments = " ".join(shell) if os.name == "nt" else shell
    printed = subprocess.run(arguments, stdout=subprocess.PIPE, check=True, text=True).stdout
    assert printed.strip() == "['a b', 'c']"
