"""Errors of the command line: what is wrong, and what to type, in one dialect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from running import PLAIN, backends, machine

HOSTS = Path(__file__).parents[1] / "hosts"


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ("info --fomrat json", "`backends info` has no option --fomrat", "did you mean '--format'?"),
        ("info --zzz", "`backends info` has no option --zzz", "`backends info --help` lists them all"),
        ("info --format jsn",
         ("invalid value 'jsn' for --format; choose from frame, html, json, jsonl, markdown, nfd, slurm,"
         " table"), "did you mean 'json'?"),
        ("info --format", "--format needs a value",
         "write --format frame|html|json|jsonl|markdown|nfd|slurm|table"),
        ("info --pid", "--pid needs a value", "write --pid N"),
        ("info --strict=1", "--strict does not accept a value", "write --strict alone"),
        ("info --pid 0", "invalid value 0 for --pid; it must be a whole number, at least 1", ""),
        ("info --timeout x", "invalid value 'x' for --timeout; it must be a number from 0.01 to 3600", ""),
        ("diff a", "`backends diff` needs B", "usage: backends diff [OPTIONS] A B"),
        ("diff a b c", "`backends diff` does not expect 'c'", "usage: backends diff [OPTIONS] A B"),
        ("completion", "`backends completion` needs SHELL", "it is one of bash, zsh, fish, powershell"),
        ("completion bsh", "invalid value 'bsh' for SHELL; choose from bash, zsh, fish, powershell",
         "did you mean 'bash'?"),
        ("--format json info cpu", "--format belongs behind `backends info`, not before it",
         "write `backends info --format json cpu`"),
        ("trace --top 3 show a.log", "--top belongs behind `backends trace show`, not before it",
         "write `backends trace show --top 3 a.log`"),
        ("--fomrat json info", "`backends` has no option --fomrat", "did you mean '--format'?"),
        ("--strict", "--strict is an option of audit, doctor, info, and no command is named",
         "write `backends info --strict`"),
        ("--verson", "`backends` has no option --verson", "did you mean '--version'?"),
        ("help trase", "there is no command named 'trase'", "did you mean 'trace'?"),
        ("help trace shwo", "there is no trace command named 'shwo'", "did you mean 'show'?"),
        ("help info cpu", "`backends info` has no subcommands", "write `backends help info`"),
        ("doctor --root x", "`backends doctor` has no option --root",
         "`backends doctor --help` lists them all"),
        ("cudnn", "there is no command named 'cudnn'", "write `backends info cudnn`"),
        ("zzz", "there is no command named 'zzz'", "`backends --help` lists them all"),
        ("explain mps", "there is no topic named 'mps'", "write `backends explain device mps`"),
        ("explain torch", "there is no topic named 'torch'", "did you mean `backends info torch`?"),
        ("info gpu", "there is no probe named 'gpu'",
         "did you mean 'cuda_driver' or 'mps' or 'nvidia' or 'rocm' or 'xpu'?"),
        ("audit --require torch",
         "--require 'torch': is only a name: write 'torch present', or 'torch >= VALUE'", ""),
        ("explain governor", "there is no topic named 'governor'", "did you mean 'cpu-governor'?"),
    ],
)  # fmt: skip
def test_an_error_has_what_is_wrong_and_what_to_type(arguments: str, message: str, hint: str) -> None:
    done = backends(*arguments.split())

    lines = [f"backends: {message}", *([f"hint: {hint}"] if hint else [])]
    assert (done.returncode, done.stderr.splitlines(), done.stdout) == (2, lines, "")


@pytest.mark.parametrize("sign", ["pyvenv.cfg", "conda-meta"])
@pytest.mark.parametrize("command", ["doctor {}", "info --root {}", "diff {} -", "snapshot --root {} x.json"])
def test_an_environment_is_not_a_machine(tmp_path: Path, sign: str, command: str) -> None:
    (tmp_path / "lib" / "python3.11").mkdir(parents=True)
    (tmp_path / sign).mkdir()

    done = backends(*command.format(tmp_path).split())

    python = "Scripts/python.exe" if os.name == "nt" else "bin/python"
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"backends: {tmp_path} is a Python environment, not a machine description",
        f"hint: name its interpreter: --python {tmp_path.as_posix()}/{python}",
    ]


@pytest.mark.parametrize("head", [b"\x7fELF\2\1\1", b"MZ\x90\0", b"\xcf\xfa\xed\xfe\x0c\0\0\1"])
def test_a_program_is_named_where_a_report_is_expected(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "python").write_bytes(head + bytes(64))

    done = backends("diff", str(tmp_path / "python"), "-")

    assert done.returncode == 2
    assert "is a program, whose environment --python inspects if it is a Python, not a report" in done.stderr


NAME = "x\n::error::y\x1b[31m\x9b\r##[error]z"


@pytest.mark.parametrize(
    "arguments",
    [
        (NAME,),
        (f"--{NAME}",),
        ("info", NAME),
        ("info", f"--{NAME}"),
        ("info", "--format", NAME),
        ("info", "cpu", "--output", f"/nonexistent/{NAME}"),
        ("info", "--python", f"/nonexistent/{NAME}"),
        ("info", "--root", f"/nonexistent/{NAME}"),
        ("doctor", f"/nonexistent/{NAME}"),
        ("diff", f"/nonexistent/{NAME}", "-"),
        ("flags", "check", f"/nonexistent/{NAME}"),
        ("snapshot", f"/nonexistent/{NAME}"),
        ("audit", "--policy", f"/nonexistent/{NAME}"),
        ("run", f"/nonexistent/{NAME}"),
        ("trace", "show", f"/nonexistent/{NAME}"),
        ("trace", "mkl", "-o", f"/nonexistent/{NAME}", "--", "true"),
    ],
)
def test_an_error_is_one_line_that_nobody_takes_for_a_command(arguments: tuple[str, ...]) -> None:
    done = backends(*arguments)

    assert done.returncode in (2, 127)
    assert 1 <= done.stderr.count("\n") <= 2
    assert all(line.isprintable() or line == "\n" for line in done.stderr)
    assert "##[" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("info", "--format"), ("info", "--pid"), ("info", "--get"), ("explain",), ("doctor",)],
)
def test_an_error_about_a_long_word_is_short(arguments: tuple[str, ...]) -> None:
    done = backends(*arguments, "9" * 5000)

    assert done.returncode == 2
    assert len(done.stderr) < 2500


def test_an_output_with_an_odd_name_is_named_on_one_line(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("cudnn.benchmark = true\n")

    checked = backends("flags", "check", str(tmp_path / NAME))
    root = str(HOSTS / "docker-cgroup1.machine")
    written = backends("snapshot", str(tmp_path / f"{NAME}.json"), "--root", root)

    assert checked.stdout.count("\n") == 1
    for done in (checked, written):
        assert done.returncode == 0
        assert not {"\x1b", "\x9b", "\r"} & set(done.stdout)
        assert not any(line.lstrip().startswith("::") for line in done.stdout.splitlines())


def test_an_interrupt_while_modules_are_imported_is_one_word_and_130(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    program = "import mlbackends_cli; mlbackends_cli.program()"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {program}"],
        env=PLAIN,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (130, "backends: interrupted\n")


def test_json_escapes_what_a_terminal_executes(tmp_path: Path) -> None:
    host = '{"environment": {"OMP_NUM_THREADS": "\x9b31m\x7f"}}'
    root = str(machine(tmp_path, {"/proc/cpuinfo": "processor : 0\n"}, host))

    texts = [
        backends("info", "--root", root, "environment", *options).stdout
        for options in (
            ("--format", "json"),
            ("--format", "jsonl"),
            ("--get", "environment.variables"),
        )
    ]
    for text in texts:
        assert "\\u009b31m\\u007f" in text
        assert not {"\x9b", "\x7f"} & set(text)


def test_a_manual_page_is_that_of_the_installation_wherever_the_command_lies(
    tmp_path: Path,
) -> None:
    man = tmp_path / "man"
    man.write_text(f'#!/bin/sh\nfor page; do echo "$page"; done >{tmp_path}/shown\nexit 3\n')
    man.chmod(0o755)

    done = backends("help", "--man", "flags", environment={"PATH": str(tmp_path)})

    assert done.returncode == 3, done.stderr
    pages = (tmp_path / "shown").read_text().split()
    assert sorted(Path(page).name for page in pages) == ["backends-flags.1", "backends-flags.7"]
    assert all(Path(page).read_text().startswith(".") for page in pages)


def test_without_man_the_error_names_the_page() -> None:
    done = backends("help", "--man", "trace", "show", environment={"PATH": "/nonexistent"})

    assert done.returncode == 2
    assert "backends-trace-show.1; or write `backends help trace show`" in done.stderr
