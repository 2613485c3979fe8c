"""`backends conform`: NumPy of this environment, and programs that are wrong, crash, hang or refuse."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import msgspec
import pytest
from running import backends

from mlbackends.conform import running
from mlbackends.conform.outcome import outcome_of
from mlbackends.conform.problems import parse
from mlbackends.model.audit import Severity, Status
from mlbackends.model.conformity import Answer, Conformities, LibraryConformity
from mlbackends_cli.report.commands.conform import text
from mlbackends_cli.report.judgement import code
from mlbackends_cli.terminal import Page

if TYPE_CHECKING:
    from collections.abc import Callable

    Asked = Callable[..., Conformities]

RIGHT = """
    import numpy as np
    VERSION, TYPES = "1.2", ("float32", "float64")
    OPERATIONS = {"sum": lambda x: x.sum(-1), "max": lambda x: x.max(-1)}
"""
OF_NUMPY = {"gemm", "exp", "log", "sum", "max", "cast", "fft"}
SUM = "sum float32 rows=3 size=40 seed=1"


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    """Return a function that asks a program, whose text it is given, for some problems."""

    def ask(program: str, *lines: str, **options: Any) -> Conformities:
        (tmp_path / "stub.py").write_text(textwrap.dedent(program))
        given = tuple(map(parse, lines))
        return running.conform(problems=given, folder=str(tmp_path), **{"quick": True, **options})

    return ask


def only(found: Conformities) -> LibraryConformity:
    (library,) = found.libraries
    return library


def exit_code(found: Conformities, fail_on: str = "error") -> int:
    return code(outcome_of(found), fail_on=fail_on, strict=True)


def test_a_right_library_is_right(asked: Asked) -> None:
    found = asked(RIGHT)
    answers = only(found).answers

    assert only(found).version == "1.2"
    assert {(one.operation, one.dtype, one.answer.value) for one in answers} == {
        (operation, dtype, "right") for operation in ("sum", "max") for dtype in ("float32", "float64")
    }
    assert all(one.repeats and one.digest for one in answers)
    assert exit_code(found) == 0
    assert "None of 4 answers is wrong." in text(found, Page())


def test_a_wrong_number_is_an_error_and_at_an_edge_a_warning(asked: Asked) -> None:
    wrong = RIGHT.replace("x.sum(-1)", "x.sum(-1) + 1")

    found = asked(wrong, SUM)
    assert (only(found).answers[0].answer, exit_code(found)) == (Answer.WRONG, 1)
    (check,) = outcome_of(found).failed(Severity.ERROR)
    assert check.command == f"backends conform stub --python {found.python} --problem '{SUM}'"
    assert "wrong: sum float32 rows=3 size=40 seed=1: the error is" in text(found, Page(width=200))

    found = asked(wrong, "sum float32 rows=3 size=0", "sum float32 rows=3 size=7 values=subnormal")
    assert (exit_code(found), exit_code(found, "warning"), exit_code(found, "never")) == (0, 1, 0)
    assert not outcome_of(found).failed(Severity.ERROR)


@pytest.mark.parametrize(
    ("library", "message"),
    [
        ("import no_such_module", "the module no_such_module is not installed in that environment"),
        ("import ctypes; ctypes.CDLL('/no/lib.so')", "its import fails: OSError: /no/lib.so"),
        ("import os; os.abort()", "its process was killed by SIGABRT"),
        ("raise SystemExit(5)", "its process ended with exit code 5 and no answer"),
        ("import time; time.sleep(60)", "it did not answer within 1 s, and was killed"),
        ("VERSION = '1'", "its import fails: AttributeError"),
    ],
)
def test_a_library_that_cannot_be_asked_is_a_line(asked: Asked, library: str, message: str) -> None:
    found = asked(library, timeout=1.0 if "sleep" in library else 20.0)

    assert message in only(found).failure
    assert [check.status for check in outcome_of(found).checks] == [Status.UNKNOWN]
    assert exit_code(found) == 3
    assert len([line for line in text(found, Page(width=200)).splitlines() if "cannot be asked" in line]) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [("__import__('os').abort()", "killed by SIGABRT"), ("__import__('time').sleep(60)", "within 3 s")],
)
def test_a_problem_on_which_it_crashes_or_hangs_fails_and_the_next_is_asked(
    asked: Asked, call: str, message: str
) -> None:
    program = RIGHT.replace("x.sum(-1)", f"{call} if x.shape[1] == 40 else x.sum(-1)")
    found = asked(program, SUM, SUM.replace("40", "50"), timeout=3.0)

    assert [one.answer for one in only(found).answers] == [Answer.FAILED, Answer.RIGHT]
    assert message in only(found).answers[0].message
    assert exit_code(found) == 1


def test_a_library_that_always_fails_is_not_asked_for_ever(asked: Asked) -> None:
    program = RIGHT.replace("x.sum(-1)", "__import__('os')._exit(3)")
    found = asked(program, *[SUM.replace("40", str(size)) for size in range(20)])

    assert len(only(found).answers) < 8
    assert "fails too often" in only(found).failure


def test_what_it_does_not_support_is_no_error_but_nothing_else_is_unknown(asked: Asked) -> None:
    program = RIGHT.replace("x.sum(-1)", "x.no_such_thing")
    found = asked(program, SUM, "max float32 rows=1 size=4")

    assert [one.answer for one in only(found).answers] == [Answer.REFUSED, Answer.RIGHT]
    assert exit_code(found) == 0
    found = asked(program, "exp float32 rows=1 size=4")
    assert (only(found).failure, exit_code(found)) == ("it has no such operation or type", 3)


def test_what_it_prints_is_no_answer(asked: Asked) -> None:
    noisy = "import os; print('{\"answer\": 1}'); os.write(1, b'garbage\\n')\n"
    found = asked(noisy + textwrap.dedent(RIGHT), SUM)

    assert only(found).answers[0].answer is Answer.RIGHT


def test_a_library_that_cannot_be_asked_is_not_asked_again_with_variables(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit(5)")

    assert len(running.conform(folder=str(tmp_path)).libraries) == 1


def test_variables_that_change_bits_are_counted(tmp_path: Path) -> None:
    (tmp_path / "scipy.py").write_text(
        textwrap.dedent(RIGHT).replace("x.sum(-1)", "x.sum(-1) * (1 + ONE)")
        + "import os\nONE = 2.0**-22 if os.environ.get('OPENBLAS_NUM_THREADS') == '1' else 0\n"
    )
    found = running.conform(folder=str(tmp_path), problems=[parse(SUM)])
    first, *_, last = found.libraries

    assert first.answers[0].digest != last.answers[0].digest
    assert {one.answer for library in found.libraries for one in library.answers} == {Answer.RIGHT}
    page = text(found, Page(width=200))
    assert "scipy 1.2 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1: 0 of 1 wrong, 1 with other bits" in page


def test_results_that_differ_from_call_to_call_are_listed(asked: Asked) -> None:
    program = RIGHT.replace("x.sum(-1)", "x.sum(-1) * (1 + 1e-9 * np.random.rand())").replace(
        '("float32", "float64")', '("float64", "float32")'
    )
    found = asked(program, SUM.replace("float32", "float64"))

    assert not only(found).answers[0].repeats
    assert "1 results differ from call to call" in text(found, Page(width=200))


def test_a_shorter_type_brings_the_librarys_hint(asked: Asked) -> None:
    program = """
        import numpy as np
        VERSION, TYPES, HINT = "1", ("float32",), "set precision=f32"
        OPERATIONS = {"gemm": lambda a, b: (a.astype("f2").astype("f4") @ b.astype("f2").astype("f4"))}
    """
    found = asked(program, "gemm float32 m=9 n=9 k=50 seed=1")
    (check,) = outcome_of(found).failed()

    assert check.hint == "set precision=f32"
    assert check.message.endswith("it is computed in float16")
    assert "→ set precision=f32" in text(found, Page())


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_its_processes_end_with_it(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "stub.py").write_text(
        f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    )
    program = (
        "from mlbackends.conform.running import conform; from mlbackends_cli.exits import cleared_up\n"
        f"with cleared_up(): conform(folder={str(tmp_path)!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not (tmp_path / "pid").is_file() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child = int((tmp_path / "pid").read_text())

    process.send_signal(number)

    assert process.wait(20) != 0
    while os.path.exists(f"/proc/{child}") and _is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _is_running(process: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    done = backends("conform", "numpy", "--quick", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    read: dict[str, Any] = msgspec.json.decode(done.stdout)
    return read


def test_numpy_is_right(record: dict[str, Any]) -> None:
    (library,) = record["libraries"]

    assert (library["library"], library["failure"]) == ("numpy", "")
    assert {one["answer"] for one in library["answers"]} == {"right"}
    assert {one["operation"] for one in library["answers"]} == OF_NUMPY


def test_its_record_has_a_schema(record: dict[str, Any]) -> None:
    schema = msgspec.json.decode(backends("schema", "conform").stdout)

    jsonschema.validate(record, schema)


def test_a_problem_is_repeated_by_its_line(record: dict[str, Any]) -> None:
    (first, *_) = record["libraries"][0]["answers"]
    done = backends("conform", "numpy", "--quick", "--problem", first["problem"], "--format", "json")
    (again,) = msgspec.json.decode(done.stdout)["libraries"][0]["answers"]

    assert (again["units"], again["digest"]) == (first["units"], first["digest"])


@pytest.mark.parametrize("form", ["junit", "html", "markdown", "sarif", "table"])
def test_every_format_has_each_answer(form: str) -> None:
    done = backends("conform", "numpy", "--quick", "--problem", SUM, "--format", form)

    assert (done.returncode, done.stderr) == (0, "")
    if form == "junit":
        (case,) = ET.fromstring(done.stdout).iter("testcase")
        assert SUM in str(case.attrib)
    assert "numpy" in done.stdout or form == "markdown"  # which has what failed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nump"], "did you mean 'numpy'?"),
        (["--problem", "gemm float32 m=1"], "is not a problem"),
        (["--problem", ""], "--problem has an empty value"),
        (["--python", "/no/python"], "/no/python does not exist"),
        (["--seed", "-1"], "--seed"),
        (["--output", "/no/folder/x"], "/no/folder/x"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(words: list[str], message: str) -> None:
    done = backends("conform", "--quick", *words)

    assert done.returncode == 2
    assert message in done.stderr


def test_an_environment_without_any_library_is_named(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    python = tmp_path / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = backends("conform", "--python", str(python))

    assert done.returncode == 2
    assert f"no library that can be asked is installed in the environment of {tmp_path}" in done.stderr
    done = backends("conform", "torch", "--python", str(python))
    assert (done.returncode, "torch is not installed in" in done.stderr) == (2, True)
