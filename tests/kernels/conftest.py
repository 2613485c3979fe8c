"""A process with an NVIDIA device that is not there: its libraries are those of tests/fakelibs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LIBRARIES = (
    ("cuda", "libcuda.so.1", ()),
    ("fake_cudart", "libcudart.so.13", ()),
    ("fake_cublas", "libcublas.so.13", ()),
    ("fake_cublas", "libcublasLt.so.13", ("LT",)),
    ("fake_cufft", "libcufft.so.12", ()),
)

_BEFORE = """
import json
import numpy as np
import mlbackends
from mlbackends_kernels.cuda.device_array import on_device
rng = np.random.default_rng(7)
def tell(thing): print(json.dumps(thing))
def error_of(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
"""


@dataclass(frozen=True)
class Told:
    """What a program told by `tell(...)`, and the lines that the libraries wrote."""

    values: list[Any]
    log: list[str]

    def lines(self, start: str) -> list[str]:
        return [line for line in self.log if line.startswith(start)]


class OnFakeCuda(Protocol):
    """Run a program in a process that finds the fake libraries, but those of `without`."""

    def __call__(self, program: str, *, without: Sequence[str] = (), **variables: str) -> Told: ...


@pytest.fixture
def on_fake_cuda(fake_library: Any, tmp_path: Path) -> OnFakeCuda:
    def run(program: str, *, without: Sequence[str] = (), **variables: str) -> Told:
        folders = [
            fake_library(name, soname, defines=defines).parent
            for name, soname, defines in _LIBRARIES
            if soname not in without
        ]
        log = tmp_path / "log"
        log.write_text("")
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": ":".join(map(str, folders)),
            "FAKE_CUDA_LOG": str(log),
            **variables,
        }
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", _BEFORE + program],
            check=False,
            capture_output=True,
            text=True,
            env=environment,
            cwd="/",
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return Told(
            [json.loads(line) for line in done.stdout.splitlines()], log.read_text().splitlines()
        )

    return run
