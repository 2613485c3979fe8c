"""Every line that real copies of oneDNN and MKL print becomes a record, and is that record's text.

The copies are those beside this Python, as Intel's wheels put them, and those in the folders that
TRACE_TEST_LIBRARIES names. They are called by ctypes, each in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlbackends.model.trace import Header, Malformed, Record, Text
from mlbackends.tracing import reader

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBOSE = {"MKL_VERBOSE": "1", "DNNL_VERBOSE": "2", "ONEDNN_VERBOSE": "2,dispatch"}


def copies(stem: str) -> list[Path]:
    """Return the copies of a library, one of each size: wheels have links as copies."""
    folders = [os.path.join(sys.prefix, "lib")]
    folders += os.environ.get("TRACE_TEST_LIBRARIES", "").split(os.pathsep)
    found = [path for folder in filter(None, folders) for path in sorted(Path(folder).glob(stem))]
    return list({path.stat().st_size: path for path in found}.values())


def run(calls: str, library: Path) -> bytes:
    """Return what a few calls of a library print, under the tracing of its own variables."""
    program = Path(__file__).with_name(f"{calls}.py")
    environment = {**os.environ, **VERBOSE}
    done = subprocess.run(
        [sys.executable, program, library], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def records(printed: bytes) -> Sequence[Record]:
    """Read what was printed, and hold that nothing of it is lost or misread."""
    found: list[Record] = list(reader.records([printed]))
    assert not [record for record in found if isinstance(record, Malformed | Text)]
    assert "\n".join(map(str, found)).encode() == printed.rstrip(b"\n")
    return found


def versions(found: Sequence[Record]) -> set[str]:
    return {record.version for record in found if isinstance(record, Header) and record.version}


def test_every_line_of_onednn_is_a_record() -> None:
    libraries = copies("libdnnl.so*")
    if not libraries:
        pytest.skip("no wheel of oneDNN (onednn-cpu-gomp) is installed")
    for library in libraries:
        found = records(run("onednn_calls", library))
        assert versions(found)
        assert {"matmul", "reorder"} <= {record.operation for record in found}


def test_versions_of_onednn_years_apart_are_read_alike() -> None:
    libraries = copies("libdnnl.so*")
    if len(libraries) < 2:
        pytest.skip("no second wheel of oneDNN is installed; TRACE_TEST_LIBRARIES names folders")
    by_version = {}
    for library in libraries:
        found = records(run("onednn_calls", library))
        (version,) = versions(found)
        executed = [record for record in found if record.executed and record.operation == "matmul"]
        by_version[version] = {(call.dtype, call.flops) for call in executed}
    assert len(by_version) >= 2
    first, *others = by_version.values()
    assert first
    assert all(other == first for other in others)


def test_every_line_of_mkl_is_a_record() -> None:
    libraries = copies("libmkl_rt.so*")
    if not libraries:
        pytest.skip("no wheel of MKL (mkl) is installed")
    for library in libraries:
        found = records(run("mkl_calls", library))
        assert versions(found)
        assert {"SGEMM", "DGEMM", "DGETRF"} <= {record.operation for record in found}
