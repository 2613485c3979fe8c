"""Our verbose scopes beside torch's, on the MKL and oneDNN inside torch: which lines the process prints.

Each program runs in a process of its own, forked from one that has imported torch, and its standard output
is read as the terminal would.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import FakeLibrary

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

#: Imports torch once, and forks for each program: its body comes as a line, its output goes to a file.
FORKS = """
import json, os, sys, torch
from torch.backends import mkl, mkldnn
from mlbackends.tracing.verbose import MklVerbose, OnednnVerbose
for line in sys.stdin:
    body, output = json.loads(line)
    child = os.fork()
    if not child:
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), 1)
        exec(body)
        sys.exit()
    print(os.waitpid(child, 0)[1], flush=True)
"""
#: What begins a program, in the fork: threads that compute do not outlive one.
START = """
matrix = torch.ones(64, 64)
opaque = torch.ones(256, 256).to_mkldnn()
def say(text): print("==", text, flush=True)
def use_mkl(): matrix @ matrix
def use_onednn(): opaque.relu()
"""

MKL = pytest.param("MKL_VERBOSE ", "mkl.verbose", "MklVerbose", "use_mkl", id="mkl")
ONEDNN = pytest.param("onednn_verbose,", "mkldnn.verbose", "OnednnVerbose", "use_onednn", id="onednn")


#: What forks, by the variables under which it was started.
started: dict[frozenset[tuple[str, str]], subprocess.Popen[str]] = {}


def forking(variables: dict[str, str]) -> subprocess.Popen[str]:
    key = frozenset(variables.items())
    if key not in started:
        inherited = {k: v for k, v in os.environ.items() if not k.endswith("_VERBOSE")}
        started[key] = subprocess.Popen(
            [sys.executable, "-c", FORKS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**inherited, **variables},
        )
    return started[key]


def printed(body: str, **variables: str) -> dict[str, list[str]]:
    """Run a program, and return the lines that it printed behind each `say`."""
    process = forking(variables)
    assert process.stdin and process.stdout
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "output")
        process.stdin.write(json.dumps([START + body, str(output)]) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "0\n"
        text = output.read_text()
    now: list[str] = []
    lines: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("== "):
            now = lines.setdefault(line[3:], [])
        else:
            now.append(line)
    return lines


def counts(marker: str, body: str, **variables: str) -> dict[str, bool]:
    """Return, for each `say`, whether a line of the library followed."""
    return {
        said: any(line.startswith(marker) for line in lines)
        for said, lines in printed(body, **variables).items()
    }


@pytest.fixture(scope="module", autouse=True)
def _both_libraries_print() -> Iterator[None]:
    try:
        if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
            pytest.skip("this torch has no MKL or no oneDNN")
        lines = printed("say('')\nwith mkldnn.verbose(1): use_onednn()")[""]
        if not any("primitive,exec" in line for line in lines):
            pytest.skip("this torch prints nothing of oneDNN")
        yield
    finally:
        while started:
            started.popitem()[1].communicate()  # it ends with its input


@pytest.mark.parametrize(("marker", "theirs", "ours", "use"), [MKL, ONEDNN])
@pytest.mark.parametrize("level", [1, 2])
def test_a_scope_prints_as_torchs_does(marker: str, theirs: str, ours: str, use: str, level: int) -> None:
    for scope in (theirs, ours):
        assert counts(
            marker,
            f"say('before'); {use}()\nwith {scope}({level}): say('inside'); {use}()\nsay('after'); {use}()\n",
        ) == {"before": False, "inside": True, "after": False}


def test_a_level_has_torchs_lines() -> None:
    def kinds(scope: str) -> list[str]:
        lines = printed(f"say('')\nwith {scope}(2): use_onednn()")[""]
        return [line.rpartition(",")[0].replace("cache_hit", "cache_miss") for line in lines]

    assert kinds("OnednnVerbose") == kinds("mkldnn.verbose")
    assert any("primitive,create" in line for line in kinds("OnednnVerbose"))


@pytest.mark.parametrize(("marker", "theirs", "ours", "use"), [MKL, ONEDNN])
def test_an_inner_exit_silences_torchs_outer_scope_and_not_ours(
    marker: str, theirs: str, ours: str, use: str
) -> None:
    body = f"with {{0}}(1):\n    with {{0}}(1): pass\n    say('outer'); {use}()\nsay('after'); {use}()\n"
    assert counts(marker, body.format(theirs)) == {"outer": False, "after": False}
    assert counts(marker, body.format(ours)) == {"outer": True, "after": False}


@pytest.mark.parametrize(("marker", "theirs", "ours", "use"), [MKL, ONEDNN])
def test_an_exit_cancels_the_environment_in_torch_and_not_in_ours(
    marker: str, theirs: str, ours: str, use: str
) -> None:
    body = f"with {{0}}(1): pass\nsay('after'); {use}()\n"
    asked = {"MKL_VERBOSE": "1", "ONEDNN_VERBOSE": "1"}
    assert counts(marker, body.format(theirs), **asked) == {"after": False}
    assert counts(marker, body.format(ours), **asked) == {"after": True}


@pytest.mark.parametrize(("marker", "theirs", "ours", "use"), [MKL, ONEDNN])
def test_level_0_silences_in_ours_and_does_nothing_in_torch(
    marker: str, theirs: str, ours: str, use: str
) -> None:
    body = f"{use}()\nwith {{0}}(0): say('inside'); {use}()\nsay('after'); {use}()\n"
    asked = {"MKL_VERBOSE": "1", "ONEDNN_VERBOSE": "1"}
    assert counts(marker, body.format(theirs), **asked) == {"inside": True, "after": False}
    assert counts(marker, body.format(ours), **asked) == {"inside": False, "after": True}


def test_our_scope_gives_back_what_torchs_scope_had_set_in_mkl() -> None:
    body = (
        "with mkl.verbose(1):\n"
        "    with MklVerbose(0): say('inner'); use_mkl()\n"
        "    say('outer'); use_mkl()\n"
        "say('after'); use_mkl()\n"
    )
    assert counts("MKL_VERBOSE ", body) == {"inner": False, "outer": True, "after": False}


@pytest.mark.parametrize("scope", ["mkl.verbose", "MklVerbose", "mkldnn.verbose", "OnednnVerbose"])
def test_bad_levels_raise_what_torch_raises_and_only_on_entering(scope: str) -> None:
    body = (
        "for level in ('1', 1.5, None, [], -1, 7):\n"
        f"    scope = {scope}(level)\n"
        "    try: scope.__enter__()\n"
        "    except TypeError: say(f'{level} is of a wrong type')\n"
        "    except AssertionError: say(f'{level} is no level')\n"
    )
    assert list(printed(body)) == [
        *["1 is of a wrong type", "1.5 is of a wrong type", "None is of a wrong type"],
        *["[] is of a wrong type", "-1 is no level", "7 is no level"],
    ]


@pytest.mark.parametrize(
    ("scope", "kinds"),
    [
        ("mkl.verbose", ["taken", "TypeError"]),
        ("mkldnn.verbose", ["taken", "TypeError"]),
        ("MklVerbose", ["TypeError", "AssertionError"]),
        ("OnednnVerbose", ["TypeError", "AssertionError"]),
    ],
)
def test_0_point_0_is_level_0_in_torch_and_a_wrong_type_here(scope: str, kinds: list[str]) -> None:
    body = (
        "for level in (0.0, 2**40):\n"
        "    try: {0}(level).__enter__()\n"
        "    except TypeError: say(f'{{level}} TypeError')\n"
        "    except AssertionError: say(f'{{level}} AssertionError')\n"
        "    else: say(f'{{level}} taken')\n"
    )
    assert list(printed(body.format(scope))) == [
        f"0.0 {kinds[0]}", f"{2**40} {kinds[1]}",
    ]  # fmt: skip


@pytest.mark.parametrize(("scope", "level"), [("mkldnn.verbose", 0), ("OnednnVerbose", 1)])
def test_a_copy_beside_torchs_own_is_switched_here_alone(
    scope: str, level: int, fake_library: FakeLibrary
) -> None:
    file = fake_library("fake_onednn", "libdnnl.so.3", defines=("MAJOR=3", "MINOR=12"))
    body = (
        f"import ctypes\nlibrary = ctypes.CDLL({str(file)!r})\nwith {scope}(1): say(library.fake_level())\n"
    )
    assert list(printed(body)) == [str(level)]


def installed(*names: str) -> str:
    """Return the path of a library that Intel's wheels or conda put beside Python, or skip."""
    variables = ("MKLROOT", "DNNLROOT", "CONDA_PREFIX")
    for root in (sys.prefix, *filter(None, map(os.environ.get, variables))):
        for name in names:
            if os.path.exists(path := os.path.join(root, "lib", name)):
                return path
    pytest.skip(f"no {names[0]} is installed")


def test_an_mkl_on_disk_is_switched_beside_the_one_in_torch() -> None:
    body = (
        "import ctypes\n"
        f"library = ctypes.CDLL({installed('libmkl_rt.so.3', 'libmkl_rt.so.2')!r})\n"
        "numbers = (ctypes.c_double * 4)(1, 2, 3, 4)\n"
        "library.cblas_ddot.restype = ctypes.c_double\n"
        "def use(): library.cblas_ddot(4, numbers, 1, numbers, 1)\n"
        "with MklVerbose(1):\n"
        "    with MklVerbose(2): say('torch'); use_mkl()\n"
        "    say('other'); use()\n"
        "say('after'); use_mkl(); use()\n"
    )
    printing = counts("MKL_VERBOSE ", body, MKL_THREADING_LAYER="GNU")
    assert printing == {"torch": True, "other": True, "after": False}


def test_a_onednn_on_disk_is_switched_beside_the_one_in_torch() -> None:
    body = (
        "import ctypes\n"
        f"library = ctypes.CDLL({installed('libdnnl.so.3', 'libdnnl.so.2')!r})\n"
        "size, one = ctypes.c_int64(2), ctypes.c_float(1)\n"
        "numbers = (ctypes.c_float * 4)(1, 2, 3, 4)\n"
        "letter = ctypes.c_char(b'N')\n"
        "def use(): library.dnnl_sgemm(letter, letter, size, size, size, one, numbers, size,\n"
        "    numbers, size, one, (ctypes.c_float * 4)(), size)\n"
        "with OnednnVerbose(1):\n"
        "    with OnednnVerbose(2): say('torch'); use_onednn()\n"
        "    say('other'); use()\n"
        "say('after'); use_onednn(); use()\n"
    )
    printing = counts("onednn_verbose,", body)
    assert printing == {"torch": True, "other": True, "after": False}
