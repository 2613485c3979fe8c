"""Which programs a demonstration takes, and that they make the calls they should."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mlbackends.base.errors import NoBackend
from mlbackends.base.reasons import Reason
from mlbackends.model.records import Library, Presence, ProbeReport, Report
from mlbackends.tracing.demo import mkl_calls, onednn_calls
from mlbackends.tracing.demo.demonstrations import TORCH_PROGRAM, demonstrations

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FakeLibrary

# Everything that an engine, a description or a plan is made by succeeds, and running says so.
ONEDNN = r"""
#include <stddef.h>
#include <stdio.h>
#define MAKES(name) int name(void **made) { static int thing; *made = &thing; return 0; }
MAKES(dnnl_engine_create)
MAKES(dnnl_stream_create)
MAKES(dnnl_memory_create)
MAKES(dnnl_primitive_create)
MAKES(dnnl_reorder_primitive_desc_create)
size_t dnnl_memory_desc_get_size(void) { return 64; }
int dnnl_primitive_execute(void) { puts("runs"); return REFUSES; }
int dnnl_stream_wait(void) { fflush(stdout); return 0; }
#ifdef OLD
MAKES(dnnl_primitive_desc_create)
int dnnl_memory_desc_init_by_tag(void) { return 0; }
int dnnl_memory_desc_init_by_strides(void) { return 0; }
int dnnl_matmul_desc_init(void) { return 0; }
#else
MAKES(dnnl_memory_desc_create_with_tag)
MAKES(dnnl_memory_desc_create_with_strides)
MAKES(dnnl_matmul_primitive_desc_create)
MAKES(dnnl_convolution_forward_primitive_desc_create)
MAKES(dnnl_eltwise_forward_primitive_desc_create)
MAKES(dnnl_softmax_forward_primitive_desc_create)
const void *dnnl_primitive_desc_query_md(void) { return ""; }
#endif
"""
MKL = r"""
#include <stdio.h>
void cblas_sgemm(void) { puts("sgemm"); fflush(stdout); }
void cblas_dgemm(void) { puts("dgemm"); fflush(stdout); }
double cblas_ddot(int length, const double *left, int step) {
    printf("ddot %d %g %d\n", length, left[length - 1], step);
    fflush(stdout);
    return 0;
}
void dgetrf_(int *rows, int *columns, double *matrix, int *leading) {
    printf("dgetrf %d %d %g %d\n", *rows, *columns, matrix[*rows + 1], *leading);
    fflush(stdout);
}
void dpotrf_(const char *part, int *order, double *matrix, int *leading) {
    printf("dpotrf %c %d %g %d\n", *part, *order, matrix[0], *leading);
    fflush(stdout);
}
"""


def report(**libraries: Library) -> Report:
    """Return what a survey would that found one copy of each."""
    probes = {
        name: ProbeReport(presence=each.presence, libraries=(each,))
        for name, each in libraries.items()
    }
    for name in ("mkl", "onednn"):
        why = Reason("not-found", f"no lib{name} anywhere")
        probes.setdefault(name, ProbeReport(presence=Presence.ABSENT, reasons=(why,)))
    return Report("", "", Presence.USABLE, "/", "", 0.0, False, probes)


def copy(name: str, path: str, presence: Presence = Presence.USABLE, why: str = "") -> Library:
    reasons = (Reason("no-use-check", why),) if why else ()
    return Library(name=name, path=path, version="3.2.0", presence=presence, reasons=reasons)


def test_a_usable_copy_is_called() -> None:
    (each,) = demonstrations(("onednn",), report(onednn=copy("onednn", "/lib/libdnnl.so.3")))
    assert each.tracers == ("onednn",)
    assert each.what == "oneDNN 3.2.0 (/lib/libdnnl.so.3)"
    assert each.command[0] == sys.executable
    assert "/lib/libdnnl.so.3" in each.command[-1]


def test_mkl_gets_integers_of_32_bits_whatever_the_environment_says() -> None:
    (each,) = demonstrations(("mkl",), report(mkl=copy("mkl", "/lib/libmkl_rt.so.3")))
    assert each.variables == {"MKL_INTERFACE_LAYER": "LP64"}


def test_each_library_has_a_program() -> None:
    found = report(mkl=copy("mkl", "/a/libmkl_rt.so"), onednn=copy("onednn", "/a/libdnnl.so"))
    assert [each.tracers for each in demonstrations(("mkl", "onednn"), found)] == [
        ("mkl",),
        ("onednn",),
    ]


def test_one_that_is_not_here_is_left_out() -> None:
    found = report(mkl=copy("mkl", "/a/libmkl_rt.so"))
    assert [each.tracers for each in demonstrations(("mkl", "onednn"), found)] == [("mkl",)]


def test_nothing_here_says_what_to_install() -> None:
    with pytest.raises(NoBackend, match="no libmkl anywhere") as raised:
        demonstrations(("mkl", "onednn"), report())
    assert "pip install mkl" in raised.value.hint
    assert "pip install onednn-cpu-gomp" in raised.value.hint
    assert raised.value.exit_code == 1


def test_a_copy_that_computes_nothing_is_told_with_its_reason() -> None:
    sycl = copy("onednn", "/lib/libdnnl.so.3", Presence.LOADABLE, "its CPU runtime is SYCL")
    with pytest.raises(NoBackend, match="no oneDNN can be called here: its CPU runtime is SYCL"):
        demonstrations(("onednn",), report(onednn=sycl))


def test_the_program_for_torch_is_python() -> None:
    compile(TORCH_PROGRAM, "program", "exec")


def runs(calls: str, library: Path) -> list[str]:
    program = f"from mlbackends.tracing.demo import {calls} as c; c.main({str(library)!r})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(("version", "primitives"), [("NEW", 9), ("OLD", 4)])
def test_onednn_runs_each_primitive_five_times(
    fake_library: FakeLibrary, version: str, primitives: int
) -> None:
    defines = ("REFUSES=0", version)
    library = fake_library("calling_onednn", "libdnnl.so.3", source=ONEDNN, defines=defines)
    assert runs("onednn_calls", library) == ["runs"] * 5 * primitives


def test_a_call_that_fails_says_which(fake_library: FakeLibrary) -> None:
    library = fake_library(
        "calling_onednn", "libdnnl.so.3", source=ONEDNN, defines=("REFUSES=3", "NEW")
    )
    with pytest.raises(onednn_calls.Failed, match="dnnl_primitive_execute returned 3"):
        onednn_calls.main(str(library))


def test_mkl_gets_matrices_that_can_be_factorized(fake_library: FakeLibrary) -> None:
    lines = runs("mkl_calls", fake_library("calling_mkl", "libmkl_rt.so.3", source=MKL))
    assert lines.count("sgemm") == lines.count("dgemm") == 15
    assert lines.count("ddot 100000 0 1") == 5
    assert lines.count("dgetrf 256 256 1 256") == 5
    assert lines.count("dpotrf L 256 1 256") == 5


@pytest.mark.parametrize("calls", [mkl_calls, onednn_calls])
def test_a_file_that_is_no_library_is_an_error(calls: object, tmp_path: Path) -> None:
    (tmp_path / "no.so").write_text("no library")
    with pytest.raises(OSError, match=r"no\.so|WinError 193"):
        calls.main(os.fspath(tmp_path / "no.so"))  # type: ignore[attr-defined]
