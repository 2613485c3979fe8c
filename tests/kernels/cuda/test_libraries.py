"""Which copy of one of NVIDIA's libraries this process opens, and what is said where none opens."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.host.host import Host
from mlbackends_kernels.cuda.errors import CudaError, CudaUnavailable
from mlbackends_kernels.cuda.libraries import Opened, open_library

if TYPE_CHECKING:
    from pathlib import Path


def machine(folder: Path, **variables: str) -> Host:
    (folder / "etc").mkdir()
    return Host(str(folder), environment=variables)


def test_a_library_that_is_nowhere_is_named_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(
        CudaUnavailable, match=r"no cublas can be opened: no libcublas\.so in"
    ) as at:
        open_library("cublas", "cublas", machine(tmp_path))
    assert at.value.hint == "`backends info cublas` tells where it was looked for"
    assert isinstance(at.value, RuntimeError)


def test_a_file_that_is_no_library_is_named_with_the_reason(tmp_path: Path) -> None:
    host = machine(tmp_path, LD_LIBRARY_PATH="/opt/here")
    (tmp_path / "opt/here").mkdir(parents=True)
    (tmp_path / "opt/here/libcufft.so.12").write_text("not a library")
    with pytest.raises(CudaUnavailable, match=r"libcufft\.so\.12"):
        open_library("cufft", "cufft", host)


def test_of_two_libraries_of_a_probe_the_named_one_is_opened(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
from mlbackends_kernels.cuda.libraries import open_library
for name in ("cublas", "cublasLt"):
    tell(open_library("cublas", name).path)
"""
    )
    assert [path.rpartition("/")[2] for path in told.values] == [
        "libcublas.so.13",
        "libcublasLt.so.13",
    ]


def test_the_copy_that_the_process_has_open_comes_first(
    fake_library: Any, on_fake_cuda: Any
) -> None:
    other = fake_library("fake_cublas", "libcublas.so.13", defines=("COPY=1",))
    told = on_fake_cuda(
        f"""
import ctypes
from mlbackends_kernels.cuda.libraries import open_library
theirs = ctypes.CDLL({str(other)!r})
ours = open_library("cublas", "cublas")
address = lambda handle: ctypes.cast(handle.cublasCreate_v2, ctypes.c_void_p).value
tell([address(theirs) == address(ours._handle), ours.path])
"""
    )
    assert told.values == [[True, "libcublas.so.13"]]


def test_a_function_that_a_library_lacks_is_named(fake_library: Any) -> None:
    path = fake_library("fake_cufft", "libcufft.so.12")
    opened = Opened(ctypes.CDLL(str(path)), str(path), {})
    assert not opened.has("cufftNewest")
    with pytest.raises(CudaUnavailable, match="has no function cufftNewest"):
        opened("cufftNewest")


def test_a_status_that_nothing_names_is_told_as_a_number(fake_library: Any) -> None:
    path = fake_library("fake_cufft", "libcufft.so.12")
    opened = Opened(ctypes.CDLL(str(path)), str(path), {1: "CUFFT_INVALID_PLAN"})
    with pytest.raises(CudaError, match=r"cufftDestroy returned 1 \(CUFFT_INVALID_PLAN\)") as at:
        opened("cufftDestroy", ctypes.c_int(3))
    assert at.value.status == 1
    with pytest.raises(CudaError, match="an unnamed status"):
        Opened(ctypes.CDLL(str(path)), str(path), {})("cufftDestroy", ctypes.c_int(3))
