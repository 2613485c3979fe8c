"""`backends run`: another program, with our switches, and nothing else of ours."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from running import PLAIN, backends

if os.name != "nt":
    import pty

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT = (sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))")
SHOW = "import torch; print(torch.backends.cudnn.benchmark, torch.backends.cudnn.enabled)"


@pytest.fixture
def torch(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a Python that has a torch of two switches."""
    folder = tmp_path / "site"
    (folder / "torch" / "backends").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("__version__ = '9.9'\nimport torch.backends.cudnn\n")
    (folder / "torch" / "version.py").write_text("__version__ = '9.9'\ncuda = None\n")
    (folder / "torch" / "backends" / "__init__.py").write_text("")
    (folder / "torch" / "backends" / "cudnn.py").write_text("benchmark = False\nenabled = True\n")
    return {"PYTHONPATH": str(folder)}


def raw(*arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the command with bytes at its input."""
    return subprocess.run(
        [sys.executable, "-m", "mlbackends", "run", *arguments],
        input=data,
        capture_output=True,
        timeout=60,
        check=False,
        env=PLAIN,
    )


# ---- the switches arrive ------------------------------------------------------


def test_the_program_sees_settings_and_files(torch: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "exact.toml"
    file.write_text("[cudnn]\nbenchmark = true\nenabled = true\n")
    arguments = ("--flags", str(file), "--set", "cudnn.enabled=off")
    done = backends("run", *arguments, "--", sys.executable, "-c", SHOW, environment=torch)
    assert (done.stdout, done.stderr, done.returncode) == ("True False\n", "", 0)


def test_a_run_in_a_run_carries_both(torch: dict[str, str]) -> None:
    inner = (sys.executable, "-m", "mlbackends", "run", "--set", "cudnn.enabled=false")
    outer = ("run", "--set", "cudnn.benchmark=true")
    done = backends(*outer, "--", *inner, "--", sys.executable, "-c", SHOW, environment=torch)
    assert (done.stdout, done.stderr) == ("True False\n", "")


def test_the_variables_and_the_file_of_the_environment_arrive(torch: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "flags.toml"
    file.write_text("cudnn.enabled = false\n")
    said = {**torch, "MLBACKENDS_CUDNN_BENCHMARK": "1"}
    command = (sys.executable, "-c", SHOW)

    alone = backends("run", "--", *command, environment=said)
    both = backends("run", "--", *command, environment={**said, "MLBACKENDS_FLAGS": str(file)})
    beside = backends("run", "--set", "cudnn.enabled=0", "--", *command, environment=said)
    above = backends("run", "--set", "cudnn.benchmark=0", "--", *command, environment=said)

    assert [run.stdout for run in (alone, both, beside, above)] == [
        "True True\n", "True False\n", "True False\n", "False True\n",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["MLBACKENDS_CUDNN_BENCHMRAK", "MLBACKENDS_CUDNN_BENCHMARK"])
def test_a_wrong_variable_of_ours_ends_with_2_before_the_start(name: str) -> None:
    done = backends(
        "run", "--", sys.executable, "-c", "print(1)", environment={name: "maybe"}
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (2, "")
    assert name in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_program_behind_a_shell_gets_them_too(torch: dict[str, str]) -> None:
    line = f"{sys.executable} -c '{SHOW}'"
    done = backends("run", "--set", "cudnn.benchmark=1", "sh", "-c", line, environment=torch)
    assert (done.stdout, done.stderr) == ("True True\n", "")


def test_our_own_library_in_the_program_has_them_from_the_environment() -> None:
    code = (
        "from mlbackends import flag_store as s; import json\n"
        "names = ('cuda.math_sdp', 'cuda.matmul.allow_tf32', 'mkl.num_threads')\n"
        "print(json.dumps([[s.read(name), s.origin(name)] for name in names]))"
    )
    settings = ("cuda.math_sdp=false", "cuda.matmul.allow_tf32=true", "mkl.num_threads=3")
    options = [word for text in settings for word in ("--set", text)]
    done = backends("run", *options, "--", sys.executable, "-c", code)
    assert json.loads(done.stdout) == [
        [False, "environment"],
        [True, "environment"],
        [3, "environment"],
    ]


def test_libraries_get_their_variables_and_no_hook() -> None:
    settings = ("mkldnn.verbose_level=1", "openmp.num_threads=2", "mkl.num_threads=none")
    options = [word for text in settings for word in ("--set", text)]
    environment = {"MKL_NUM_THREADS": "8", "OMP_NUM_THREADS": "8"}
    done = backends("run", *options, "--", *ENVIRONMENT, environment=environment)
    variables = json.loads(done.stdout)
    assert {name: text for name, text in variables.items() if name not in PLAIN} == {
        "ONEDNN_VERBOSE": "1",
        "OMP_NUM_THREADS": "2",
    }


def test_without_switches_the_environment_is_untouched() -> None:
    done = backends("run", "--", *ENVIRONMENT, environment={"PYTHONPATH": ":"})
    assert json.loads(done.stdout) == {**PLAIN, "PYTHONPATH": ":"}


# ---- the program is itself ----------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 2, 7, 70, 127, 255])
def test_the_exit_code_is_the_programs(code: int) -> None:
    assert raw("--", sys.executable, "-c", f"raise SystemExit({code})").returncode == code


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGINT", "SIGPIPE"])
def test_death_by_a_signal_is_seen_as_such(name: str) -> None:
    number = signal.Signals[name]
    assert raw("--", "sh", "-c", f"kill -{number.value} $$").returncode == -number


def test_the_process_is_the_one_that_was_started() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "mlbackends", "run", "--", "sh", "-c", "echo $$"],
        stdout=subprocess.PIPE,
        env=PLAIN,
    )
    assert process.communicate(timeout=60)[0].split() == [b"%d" % process.pid]


def test_input_and_output_are_not_touched() -> None:
    data = bytes(range(256)) * 4096
    cat = (sys.executable, "-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())")
    done = raw("--set", "mkl.num_threads=1", "--", *cat, data=data)
    assert done.stdout == data
    assert done.stderr == b""


def test_what_follows_the_command_is_its_own() -> None:
    for dashes in ((), ("--",)):
        echo = (sys.executable, "-c", "import sys; print(*sys.argv[1:])")
        done = raw(*dashes, *echo, "--set", "-h", "--", "x=y", "--cores")
        assert done.stdout.split() == b"--set -h -- x=y --cores".split()


def test_words_that_are_no_text_arrive() -> None:
    done = raw("--", "printf", "%s", os.fsdecode(b"\xff\xfe"))
    assert done.stdout == b"\xff\xfe"


def test_the_terminal_is_the_programs_and_so_is_its_interrupt_key() -> None:
    code = (
        "import os, sys, time\n"
        "try:\n"
        "    print(all(map(os.isatty, range(3))), os.tcgetpgrp(0) == os.getpgrp(), flush=True)\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    sys.exit(9)\n"
    )
    child, terminal = pty.fork()
    if child == 0:
        words = ["-m", "mlbackends", "run", "--", sys.executable, "-c", code]
        os.execve(sys.executable, [sys.executable, *words], PLAIN)
    shown = b""
    while b"\n" not in shown and select.select([terminal], [], [], 60)[0]:
        shown += os.read(terminal, 1024)
    os.write(terminal, b"\x03")
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert shown.split() == [b"True", b"True"]
    assert os.waitstatus_to_exitcode(status) == 9


# ---- what is refused, before anything starts ------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "cudnn.benchmrk=1"), "did you mean 'cudnn.benchmark'?"),
        (("--set", "cudnn.benchmark=2"), "cudnn.benchmark cannot be '2'"),
        (("--set", "cudnn.benchmark"), "write NAME=VALUE"),
        (("--set", "xnnpack.enabled=1"), "read-only"),
        (("--set", "cudnn.benchmark=1", "--set", "cudnn.benchmark=0"), "set twice"),
        (("--set", "cudnn.allow_tf32=0", "--set", "fp32_precision=tf32"), "contradict each other"),
        (("--set", "cudnn.benchmark_limit=4"), "needs a torch that was built with cuDNN"),
        (("--flags", "/nonexistent.toml"), "/nonexistent.toml cannot be read"),
        (("--ninstances", "many"), "invalid value 'many' for --ninstances; it must be a whole number"),
    ],
)  # fmt: skip
def test_the_program_is_not_started(torch: dict[str, str], words: tuple[str, ...], said: str) -> None:
    done = backends("run", *words, "--", sys.executable, "-c", "print(1)", environment=torch)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_python_that_passes_over_the_hook_is_refused(torch: dict[str, str]) -> None:
    command = (sys.executable, "-E", "-c", "print(1)")
    done = backends("run", "--set", "cudnn.benchmark=1", "--", *command, environment=torch)
    assert (done.returncode, done.stdout) == (2, "")
    assert "python -E ignores" in done.stderr
    assert "hint: " in done.stderr


def test_what_only_torch_knows_ends_the_program_at_its_import(torch: dict[str, str]) -> None:
    command = (sys.executable, "-c", "print(1, flush=True); import torch; print(2)")
    done = backends("run", "--set", "cudnn.deterministic=1", "--", *command, environment=torch)
    assert (done.returncode, done.stdout) == (2, "1\n")
    assert done.stderr == (
        "backends run: cudnn.deterministic=true cannot be applied to torch 9.9:"
        " it has no torch.backends.cudnn.deterministic\n"
    )


@pytest.mark.parametrize("words", [("run",), ("run", "--"), ("run", "--", "nosuch-program")])
def test_without_a_program_it_is_a_usage_error(words: tuple[str, ...]) -> None:
    assert backends(*words).returncode == 2


# ---- on chosen cores, with the names completed ------------------------------------


def test_instances_get_their_cores_and_the_switches(torch: dict[str, str]) -> None:
    core = min(os.sched_getaffinity(0))
    code = f"import os; print(os.sched_getaffinity(0) == {{{core}}}); {SHOW}"
    options = ("--cores", str(core), "--use-default-allocator", "--set", "cudnn.benchmark=1")
    done = backends("run", *options, "--", sys.executable, "-c", code, environment=torch)
    assert done.stdout == "True\nTrue True\n"
    assert done.returncode == 0


def test_a_script_with_cores_is_started_by_python_as_run_cpu_does(tmp_path: Path) -> None:
    script = tmp_path / "serve.py"
    script.write_text("import sys; print(sys.argv[1:], sys.version_info[0])\n")
    done = backends("run", "--ninstances", "1", str(script), "--rank", "7")
    assert done.stdout == "['--rank', '7'] 3\n"


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: elsewhere cores cannot be bound")
def test_a_program_gets_as_many_threads_as_there_are_cores_and_keeps_what_is_set() -> None:
    environment = {**PLAIN, "MKL_NUM_THREADS": "9"}
    environment.pop("OMP_NUM_THREADS", None)
    done = backends("run", "--fit", "--", *ENVIRONMENT, environment=environment)
    found = json.loads(done.stdout)
    assert 1 <= int(found["OMP_NUM_THREADS"]) <= len(os.sched_getaffinity(0))
    assert found["MKL_NUM_THREADS"] == "9"
    assert "warning: MKL_NUM_THREADS is set already and stays 9" in done.stderr
    both = backends("run", "--fit", "--cores", "0", "--", *ENVIRONMENT)
    assert (both.returncode, both.stdout) == (2, "")


@pytest.mark.parametrize(
    ("word", "offered"),
    [
        ("cudnn.ben", ["cudnn.benchmark=", "cudnn.benchmark_limit="]),
        ("cudnn.enabled=", ["cudnn.enabled=true", "cudnn.enabled=false"]),
        ("mkldnn.conv.fp32_precision=b", ["mkldnn.conv.fp32_precision=bf16"]),
        ("xnnpack", []),
        ("nosuch=", []),
        ("cuda.sdp_priority_order=", []),
    ],
)
def test_names_and_values_are_completed(word: str, offered: list[str]) -> None:
    environment = {
        "_BACKENDS_COMPLETE": "fish_complete",
        "COMP_WORDS": f"backends run --set {word}",
        "COMP_CWORD": word,
    }
    done = backends(environment=environment)
    found = [line.partition("\t")[0].partition(",")[2] for line in done.stdout.splitlines()]
    assert [line for line in found if line] == offered
