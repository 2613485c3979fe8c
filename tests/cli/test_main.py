"""Every way in which the command can end, and what it says then."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from running import PLAIN, backends

import mlbackends
from mlbackends_cli import exits
from mlbackends_cli.lazy import Command
from mlbackends_cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    FakeLibrary = Callable[..., Path]


def test_version_is_one_line() -> None:
    done = backends("--version")

    assert (done.returncode, done.stdout) == (0, f"backends {mlbackends.__version__}\n")


def test_a_bare_backends_says_what_it_is_and_what_to_type_next_on_a_narrow_terminal() -> None:
    done = backends(environment={"COLUMNS": "60"})
    lines = done.stdout.splitlines()

    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, lines)) <= 60
    assert len(lines) < 24
    assert lines[0] == "Show what hardware and libraries this machine has, and what"
    assert lines[3] == "  backends info · what was found, on one page"


@pytest.mark.parametrize("group", ["fleet", "flags", "sdpa", "trace"])
def test_a_bare_group_prints_its_help(group: str) -> None:
    done = backends(group)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == backends(group, "--help").stdout


def test_the_help_lists_every_command_once_and_in_groups() -> None:
    text = backends("--help").stdout
    listed = re.findall(r"^    backends ([a-z]+)", text, re.MULTILINE)

    assert {*listed} == {*main.list_commands(click.Context(main))}
    assert "Commands:" not in text
    page = backends(environment={"COLUMNS": "80"}).stdout
    assert "  backends doctor                             what is wrong, and the fix" in page.splitlines()


def test_an_example_is_printed_once_and_the_most_used_options_come_first() -> None:
    for ctx in every_command(main):
        text = ctx.get_help()
        example = text.splitlines()[0].removeprefix("Example: ").partition("   ")[0]
        commands = [line.removeprefix("Example:").strip() for line in text.splitlines()]
        commands = [command.partition("   ")[0] for command in commands]
        assert commands.count(example) == 1, ctx.command_path
        assert isinstance(ctx.command, Command)
        headings = [*ctx.command.option_sections(ctx)]
        assert "Most used" not in headings[1:], ctx.command_path


def test_the_help_breaks_no_command_and_no_word_with_a_hyphen() -> None:
    for ctx in every_command(main):
        ctx.terminal_width = 72
        for line in ctx.get_help().partition("xamples:")[0].splitlines():
            assert line.count("`") % 2 == 0, (ctx.command_path, line)
            assert not re.search(r"\w-$", line), (ctx.command_path, line)


def every_command(group: click.Group, above: click.Context | None = None) -> Iterator[click.Context]:
    """Yield the context of every command."""
    settings = group.context_settings
    ctx = click.Context(group, above, "backends" if above is None else group.name, **settings)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from every_command(command, ctx)
        yield command.context_class(command, ctx, name, terminal_width=100)


def test_every_help_begins_with_an_example_of_the_command_and_groups_many_options() -> None:
    for ctx in every_command(main):
        first, blank, usage, *_ = ctx.get_help().splitlines()
        assert first.startswith("Example: ") and ctx.command_path in first, ctx.command_path
        assert (blank, usage[:7]) == ("", "Usage: ")
        assert isinstance(ctx.command, Command)
        sections = ctx.command.option_sections(ctx)
        assert "Options" not in sections or len(sections) == 1, ctx.command_path


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (("inof",), "did you mean 'info'?"),
        (("info", "cudn"), "did you mean 'cudnn'?"),
        (("info", "--get", "cpu.capabilty"), "did you mean 'cpu.capability'?"),
        (("info", "--get", "cpux.capability"), "did you mean 'cpu'?"),
        (("info", "--require", "cudn>=9"), "did you mean 'cudnn'?"),
        (("info", "--get", "cpu"), "try cpu.presence"),
        (("info", "CUDNN"), "did you mean 'cudnn'?"),
        (("info", "cuda"), "'cuda_driver' or 'cuda_runtime' or 'cuda_toolkit'"),
        (("info", "lapack"), "did you mean 'accelerate' or 'blas' or"),
        (("info", "--require", "lapack"), "did you mean 'accelerate' or 'blas' or"),
        (("explain", "lapack"), "lists the kinds of topics"),
        (("info", "--require", "numpy=9"), "did you mean ==9?"),
        (("info", "--require", "numpy=2,>=9"), "did you mean ==2?"),
        (("info", "--require", "numpy>=9,"), "a clause is one of"),
        (("info", "--require", "numpy=>9"), "did you mean >=9?"),
        (("info", "--require", "cpu.cores>=8 GB"), "write cpu.cores>=8"),
        (("info", "--require", "cpu.capability>=AMX"), "DEFAULT < AVX2 < AVX512"),
        (("info", "--require", "cpu.hypervisor>=1"), ""),
        (("info", "--require", "host.kernel_name>=5"), ""),
    ],
)
def test_a_wrong_name_is_told_the_nearest(arguments: tuple[str, ...], suggestion: str) -> None:
    done = backends(*arguments)

    assert done.returncode == exits.USAGE
    assert suggestion in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", "--format", "yaml"),
        ("info", "--depth", "absent"),
        ("info", "--timeout", "0"),
        ("info", "--timeout", "nan-ish"),
        ("info", "--root", "/nonexistent"),
        ("info", "--root", "/etc/passwd"),
        ("info", "--python", "/nonexistent/python"),
        ("info", "--python", "/bin/true"),
        ("info", "--pid", "0"),
        ("info", "--pid", "2147483646"),
        ("info", "--root", "/", "--pid", "1"),
        ("info", "cpu", "--output", "/nonexistent/folder/file"),
        ("info", "--require", ">=9"),
        ("info", "--require", "cpu.threads>=many"),
        ("info", "--bogus"),
        ("schema", "nothing"),
        ("completion", "csh"),
    ],
)
def test_a_wrong_question_is_one_clear_message_and_exit_2(arguments: tuple[str, ...]) -> None:
    done = backends(*arguments)

    assert done.returncode == exits.USAGE
    assert "Traceback" not in done.stderr
    assert 1 <= len(done.stderr.splitlines()) <= 6


@pytest.mark.parametrize(
    "arguments",
    ["schema report", "info --format json --depth found", "--help", "info --format html"],
)
def test_a_reader_that_takes_nothing_ends_us_as_sigpipe_does(arguments: str) -> None:
    shell = f"{sys.executable} -m mlbackends {arguments} | (exec <&-; sleep 0.5); exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, env=PLAIN, check=False)

    assert (done.returncode, done.stderr) == (exits.CLOSED_PIPE, "")


def test_an_interrupt_is_exit_130(fake_library: FakeLibrary) -> None:
    hang = "#include <unistd.h>\n__attribute__((constructor)) void f(void) { for (;;) pause(); }"
    library = fake_library("hang", "libnccl.so.2", source=hang)
    process = subprocess.Popen(
        [sys.executable, "-m", "mlbackends", "info", "nccl", "--timeout", "600"],
        env={**PLAIN, "LD_LIBRARY_PATH": str(library.parent)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not opens(library) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)

    assert process.returncode == exits.INTERRUPTED
    assert said.strip() == "backends: interrupted"
    while opens(library) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not opens(library)


def opens(library: Path) -> bool:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if str(library) in Path(f"/proc/{entry}/maps").read_text():
                    return True
            except OSError:
                continue
    return False


def test_a_bug_is_exit_70_and_says_where_the_traceback_is(tmp_path: Path) -> None:
    program = (
        "import sys; sys.argv = ['backends', 'info', 'python']\n"
        "import mlbackends.host.redaction as r; r.redacted = None\n"
        "from mlbackends_cli import program; program()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**PLAIN, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == exits.BUG
    assert "this is a bug in backends" in done.stderr
    (file,) = tmp_path.iterdir()
    assert str(file) in done.stderr
    assert "TypeError" in file.read_text()


def test_the_console_script_and_the_module_say_the_same() -> None:
    script = Path(sys.executable).with_name("backends")
    if not script.exists():
        pytest.skip("this interpreter has no backends script beside it")
    done = subprocess.run([script, "schema", "report"], capture_output=True, text=True, check=True)

    assert done.stdout == backends("schema", "report").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_a_completion_script_is_taken_by_its_shell(shell: str, tmp_path: Path) -> None:
    done = backends("completion", shell)
    assert done.returncode == 0
    script = tmp_path / "script"
    script.write_text(done.stdout)
    if shell == "bash" and os.name != "nt":
        subprocess.run(["bash", "-n", script], check=True)
    assert "_BACKENDS_COMPLETE" in done.stdout


def completed(*words: str) -> list[str]:
    done = backends(
        environment={
            "_BACKENDS_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["backends", *words]),
            "COMP_CWORD": str(len(words)),
        }
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_completion_knows_commands_probes_and_dotted_names() -> None:
    assert completed("inf") == ["info"]
    assert completed("info", "cudnn") == ["cudnn"]
    assert completed("info", "--format", "js") == ["json", "jsonl"]
    assert "cpu.capability" in completed("info", "--get", "cpu.cap")
    assert "cpu.presence" in completed("info", "--get", "cpu.p")


def test_the_exit_codes_of_the_page_are_those_of_the_program() -> None:
    page = (Path(__file__).parents[2] / "docs" / "scripts.md").read_text()
    section = page.partition("## Exit codes")[2].partition("\n## ")[0]
    told = {
        int(code) for row in re.findall(r"^\| ([\d, ]+) \|", section, re.MULTILINE) for code in row.split(",")
    }

    assert told == set(exits.MEANINGS)


def test_an_interrupt_that_falls_into_a_callback_is_not_lost() -> None:
    script = """
import sys, time
from mlbackends_cli import main
class Callback:
    def __del__(self):
        raise KeyboardInterrupt
def swallow(*arguments, **options):
    callback = Callback()
    del callback  # Python can only report what is raised there
    time.sleep(30)
main.main.main = swallow
sys.exit(main.guarded_main([]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 130
    assert done.stderr == "backends: interrupted\n"
