"""Every child process is started in one of few places, and none of ours runs code of the current folder."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mlbackends.fleet import payload
from mlbackends.host.command import start_group
from mlbackends.sdpa.verify.processes import program_command

ROOT = Path(__file__).resolve().parents[2]
STARTS = re.compile(
    r"(subprocess\.)?(Popen|run|call|check_call|check_output|getoutput)"
    r"|(os\.)?(posix_spawnp?|exec[lv]p?e?|spawn[lv]p?e?|system|popen)|multiprocessing\.(Process|Pool)"
)
#: Where our children are started; with `inherits=True` they have the environment of the user's programs.
OURS = {"core/mlbackends/host/command.py", "core/mlbackends/base/reader.py"}
#: What starts the programs of users, man and pip, and what runs on nodes, where nothing of ours is installed.
OF_USERS = {
    "core/mlbackends/fleet/bundle.py",
    "core/mlbackends/fleet/unpacker.py",
    "core/mlbackends/inject/start.py",
    "core/mlbackends/launch/launcher.py",
    "core/mlbackends/launch/processes.py",
    "core/mlbackends/tracing/capture/process.py",
    "cli/mlbackends_cli/commands/help.py",
}
HOSTILE = (
    "click", "linecache", "json", "os", "site", "sitecustomize", "usercustomize", "runpy", "msgspec",
    "encodings", "mlbackends_cli", "mlbackends", "numpy", "subprocess", "venv", "pip", "cpuinfo",
    "traceback", "importlib",
)  # fmt: skip


def calls(path: Path) -> list[ast.Call]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def sources() -> list[Path]:
    return [
        path
        for folder in ("core", "cli", "probes", "kernels")
        for path in ROOT.glob(f"{folder}/mlbackends*/**/*.py")
    ]


def test_no_other_file_starts_a_process() -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for path in sources()
        for call in calls(path)
        # `Process` of loading/linker.py is what the loader would have mapped.
        if STARTS.fullmatch(name := ast.unparse(call.func)) and name not in {"run", "call"}
    }

    assert files == OURS | OF_USERS


def test_a_command_with_our_interpreter_is_isolated() -> None:
    """`Host.python` and the like name it; a list or tuple with it first is a command."""
    commands = [
        (path.relative_to(ROOT).as_posix(), ast.unparse(node))
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.List | ast.Tuple)
        and node.elts
        and ast.unparse(node.elts[0]) == "sys.executable"
    ]

    assert commands
    for path, command in commands:
        assert path in OF_USERS or re.match(r"[\[(]sys\.executable, '-[IP]'", command), (
            path,
            command,
        )


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """Make a folder of modules that leave a mark when they are imported."""
    folder = tmp_path / "trap"
    folder.mkdir()
    for name in HOSTILE:
        (folder / f"{name}.py").write_text(
            f"open({str(tmp_path / 'marks')!r}, 'a').write({name!r} + '\\n')\nraise SystemExit(99)\n"
        )
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "info python numpy",
        f"info python numpy --python {shlex.quote(sys.executable)}",
        "info torch numpy --depth usable",
        "doctor",
        "fleet envelope -- info python",
        f"sdpa check --shape 1,1,8,8 --peers --backend math --python {shlex.quote(sys.executable)}",
        "sdpa check --shape 1,1,8,8 --backend math",
        "trace onednn --output ../log -- true",
    ],
)
def test_nothing_of_the_current_folder_is_imported(trap: Path, words: str) -> None:
    command = [sys.executable, "-P", "-m", "mlbackends", *shlex.split(words)]
    done = subprocess.run(command, cwd=trap, capture_output=True, text=True, check=False, timeout=300)

    marks = trap.parent / "marks"
    assert not marks.exists(), marks.read_text()
    assert "Traceback" not in done.stderr
    assert done.returncode != 99


def test_interpreters_of_any_age_import_nothing_from_it(trap: Path) -> None:
    """CPython 3.13 imports linecache before the first line of -c; before 3.11 there is no PYTHONSAFEPATH."""
    roots = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin/python")
    packages = trap.parent / "packages"
    (packages / "torch").mkdir(parents=True)
    (packages / "torch-2.13.0.dist-info").mkdir()
    (packages / "torch-2.13.0.dist-info" / "METADATA").write_text("Name: torch\nVersion: 2.13.0\n")
    (packages / "torch" / "__init__.py").write_text(f"open({str(packages / 'ran')!r}, 'a').close()\n")
    (trap.parent / "peer.py").write_text("import json; print(json.dumps(input()))")
    for python in (sys.executable, *map(str, roots)):
        words = ["info", "torch", "--depth", "usable", "--format", "json", "--python", python]
        done = subprocess.run(
            [sys.executable, "-P", "-m", "mlbackends", *words],
            env={**os.environ, "PYTHONPATH": str(packages)},
            cwd=trap, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        peer = program_command(python, str(trap.parent / "peer.py"), ())
        with start_group(
            peer, os.environ, cwd=trap, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            answer, _ = process.communicate(b'"it"\n', 60)
        assert answer.strip() in (b'"\\"it\\""', b'"it"'), python  # Python 2 evaluates its input

    assert (packages / "ran").exists()
    marks = trap.parent / "marks"
    assert not marks.exists(), marks.read_text()


def test_the_users_own_program_imports_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "sibling.py").write_text("print('imported')\n")
    (tmp_path / "train.py").write_text("import os, sibling; print('PYTHONSAFEPATH' in os.environ)\n")
    ours, program = [sys.executable, "-P", "-m", "mlbackends"], [sys.executable, "train.py"]
    for launcher in (["trace", "onednn", "--output", "log", "--"], ["run", "--"]):
        done = subprocess.run(
            [*ours, *launcher, *program], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.stdout == "imported\nFalse\n", done.stderr


def test_what_an_envelope_runs_has_the_users_variables() -> None:
    program = "import os; print('PYTHONSAFEPATH' in os.environ)"

    assert payload.run([sys.executable, "-c", program], 60)[3] == "False\n"
