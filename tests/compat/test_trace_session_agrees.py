"""Tracing on real libraries: the MKL and the oneDNN inside torch, and those of wheels, live."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

import mlbackends
from mlbackends.model.trace import Malformed, MklCall, Primitive, Text
from mlbackends.tracing import reader
from mlbackends.tracing.capture.preload import shim_path

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

if not torch.backends.mkldnn.is_available() or not torch.backends.mkl.is_available():
    pytest.skip("this torch has no MKL and oneDNN", allow_module_level=True)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MKL_VERBOSE", "MKL_VERBOSE_OUTPUT_FILE", "ONEDNN_VERBOSE", "DNNL_VERBOSE"):
        monkeypatch.delenv(name, raising=False)


def convolve() -> Any:
    layer = torch.nn.Conv2d(16, 32, 3, padding=1)
    with torch.no_grad():
        return layer(torch.randn(8, 16, 56, 56))


def multiply(size: int = 256) -> Any:
    return torch.randn(size, size) @ torch.randn(size, size)


def test_a_session_has_torchs_primitives(capfd: pytest.CaptureFixture[str]) -> None:
    with mlbackends.trace("onednn") as session:
        convolve()
        os.write(1, b"the program's\n")
    ran = [record for record in session.records if isinstance(record, Primitive) and record.executed]
    assert "convolution" in {call.operation for call in ran}
    assert all(call.duration_ns is not None for call in ran)
    assert not [record for record in session if isinstance(record, Malformed)]
    assert {record.process for record in session} == {os.getpid()}
    if shim_path():
        assert {call.thread for call in ran} == {threading.get_native_id()}
        starts = [call.start_ns for call in ran]
        assert all(starts)
    assert capfd.readouterr().out == "the program's\n"


def test_a_session_has_the_calls_of_the_mkl_inside_torch() -> None:
    with mlbackends.trace("mkl") as session:
        multiply(257)
    calls = [record for record in session.records if isinstance(record, MklCall)]
    assert [(call.operation, call.shape) for call in calls] == [("SGEMM", "m257n257k257")]
    assert [call.process for call in calls] == [os.getpid()]
    assert not shim_path() or [call.thread for call in calls] == [threading.get_native_id()]


def test_lines_are_those_that_torchs_own_scope_prints(capfd: pytest.CaptureFixture[str]) -> None:
    multiply()
    with torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON):
        multiply()
    (printed,) = [
        record for line in capfd.readouterr().out.splitlines(True)
        for record in reader.line_records(line.encode())
        if isinstance(record, MklCall)
    ]  # fmt: skip
    with mlbackends.trace("mkl") as session:
        multiply()
    (collected,) = [record for record in session if isinstance(record, MklCall)]
    assert collected.operation == printed.operation
    assert collected.shape == printed.shape
    assert collected.dtype == printed.dtype


def test_both_in_one_session_and_torchs_scope_inside(capfd: pytest.CaptureFixture[str]) -> None:
    with mlbackends.trace() as session:
        convolve()
        with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
            multiply()
            convolve()
    assert {record.tracer for record in session.records} == {"mkl", "onednn"}
    multiply()
    convolve()
    assert "verbose" not in capfd.readouterr().out.lower()


def test_every_line_round_trips() -> None:
    with mlbackends.trace() as session:
        convolve()
        multiply()
        torch.linalg.lu_factor(torch.randn(64, 64))
        torch.fft.fft(torch.randn(128))
    for record in session.records:
        assert not isinstance(record, Malformed | Text)
        again = list(reader.line_records(f"{record}\n".encode()))
        assert [str(call) for call in again] == [str(record)]
