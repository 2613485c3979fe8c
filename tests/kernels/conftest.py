"""A process with an NVIDIA device that is not there: its libraries are those of tests/fakelibs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_LIBRARIES = (("computing_driver", "libcuda.so.1"), ("fake_nvrtc", "libnvrtc.so.13"))

_BEFORE = """
import json
import numpy as np
import mlbackends
from mlbackends_kernels.cuda.device_array import to_device as on_device
rng = np.random.default_rng(7)
def report(thing): print(json.dumps(thing))
def error_of(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
"""


@dataclass(frozen=True)
class Output:
    """The values that a program reported, and the lines that the stub libraries logged."""

    values: list[Any]
    log: list[str]

    def lines(self, start: str) -> list[str]:
        return [line for line in self.log if line.startswith(start)]


class OnFakeCuda(Protocol):
    """Run a program in a process that finds the fake libraries; variables of its environment."""

    def __call__(self, program: str, **variables: str) -> Output: ...


class Forks:
    """A process with the bindings imported over the stand-in libraries, of which programs are forks."""

    def __init__(self, folders: Sequence[Path]) -> None:
        variables = {"LD_LIBRARY_PATH": ":".join(map(str, folders)), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "error", str(Path(__file__).with_name("forked.py"))]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
            cwd="/",
        )

    def run(self, program: str, variables: dict[str, str], folder: Path) -> tuple[int, str, str]:
        """Return a program's exit status, and what it wrote on stdout and on stderr."""
        out, errors = folder / "stdout", folder / "stderr"
        task = {
            "program": program,
            "variables": variables,
            "stdout": str(out),
            "stderr": str(errors),
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(task), file=self.process.stdin, flush=True)
        status = self.process.stdout.readline()
        assert status, "the process that forks is gone"
        return int(status), out.read_text(), errors.read_text()


@pytest.fixture(scope="session")
def forks(fake_library: Any) -> Iterator[Forks]:
    folders = [fake_library(name, soname).parent for name, soname in _LIBRARIES]
    made = Forks(folders)
    with made.process:
        yield made


@pytest.fixture
def on_fake_cuda(request: pytest.FixtureRequest, tmp_path: Path) -> OnFakeCuda:
    if not find_spec("cuda"):
        pytest.skip("cuda-core is not installed")
    forks: Forks = request.getfixturevalue("forks")

    def run(program: str, **variables: str) -> Output:
        log = tmp_path / "log"
        log.write_text("")
        added = {
            "FAKE_CUDA_LOG": str(log),
            "FAKE_KERNELS": "/nothing",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            **variables,
        }
        status, out, errors = forks.run(_BEFORE + program, added, tmp_path)
        assert not status and not errors, errors
        return Output([json.loads(line) for line in out.splitlines()], log.read_text().splitlines())

    return run


@pytest.fixture
def any_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """As many threads as a test wants, however many CPUs there are and small the work is."""
    from mlbackends_kernels.attention_cpu import forward

    def use(count: int) -> None:
        monkeypatch.setattr(forward, "worth", lambda operations, moved: count)

    return use
