"""What starting costs, as the names of modules: a number of milliseconds would depend on the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "asyncio",
    "cpuinfo",
    "cuda",
    "email",
    "http",
    "importlib.metadata",
    "importlib.resources",
    "logging",
    "multiprocessing",
    "numpy",
    "packaging",
    "pkg_resources",
    "psutil",
    "pynvml",
    "rich",
    "socket",
    "ssl",
    "tomllib",
    "torch",
    "urllib.request",
    "xml",
}


def loaded(*arguments: str) -> set[str]:
    """Every module that a run of the command has loaded at its end, by a clean interpreter."""
    program = (
        "import sys; before = set(sys.modules)\n"
        f"sys.argv = ['backends', *{arguments!r}]\n"
        "from mlbackends.cli import run\n"
        "try: run()\n"
        "except SystemExit: pass\n"
        "print('\\n', *sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path("/")
    )
    return set(done.stderr.split())


def tops(modules: set[str]) -> set[str]:
    return {
        name for name in modules for heavy in HEAVY if name == heavy or name.startswith(f"{heavy}.")
    }


def test_version_loads_nothing_but_the_package() -> None:
    assert loaded("--version") == {"mlbackends", "mlbackends.cli"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("info", "--depth", "found", "--format", "json"),
        ("info", "--depth", "found", "--format", "jsonl"),
        ("info", "--depth", "found", "--get", "cpu.capability"),
    ],
    ids=" ".join,
)
def test_what_scripts_call_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    modules = loaded(*arguments)

    assert tops(modules) == set()
    assert not modules & {"subprocess", "json", "tempfile", "pathlib", "dataclasses"}


def test_the_full_page_loads_rich_and_nothing_else_that_is_heavy() -> None:
    assert {name.partition(".")[0] for name in tops(loaded("info"))} <= {"rich", "logging"}


def test_help_imports_no_command() -> None:
    commands = {name for name in loaded("--help") if name.startswith("mlbackends.cli.commands.")}

    assert commands == set()


def test_a_named_probe_imports_no_other() -> None:
    probes = {name for name in loaded("info", "cpu", "--depth", "found") if ".probes." in name}

    assert probes == {"mlbackends.probes.cpu"}


def test_importing_the_library_loads_no_record() -> None:
    program = "import sys; before = set(sys.modules); import mlbackends; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert set(done.stdout.split()) == {"mlbackends"}
