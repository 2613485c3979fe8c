"""Programs that make a call of MKL again: they compile, and give a stand-in of MKL the same arguments."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from mlbackends.model.registry import load
from mlbackends.model.trace import MklCall
from mlbackends.tracing.repro.mkl_program import program

if TYPE_CHECKING:
    from pathlib import Path

    from mlbackends.tracing.repro.mkl_program import Program

TAIL = " 1.50us CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:2"
SGEMM = "SGEMM(T,N,8,4,16,0x7ffd,0x5579,16,0x7f12,16,0x7ffe,0x5578,8)"
DSYEVD = "DSYEVD(V,U,12,0x1,12,0x2,0x3,289,0x4,63,0)"

STAND_IN = r"""
#include <stdio.h>
void sgemm_(char *ta, char *tb, int *m, int *n, int *k, float *alpha, float *a, int *lda, float *b,
            int *ldb, float *beta, float *c, int *ldc) {
    int columns = *ta == 'N' ? *k : *m;
    a[*lda * columns - 1] = b[*ldb * *n - 1] = c[*ldc * *n - 1] = *alpha * *beta;
    printf("SGEMM(%c,%c,%d,%d,%d,%d,%d,%d)\n", *ta, *tb, *m, *n, *k, *lda, *ldb, *ldc);
}
void dsyevd_(char *job, char *uplo, int *n, double *a, int *lda, double *w, double *work, int *lwork,
             int *iwork, int *liwork, int *info) {
    a[*lda * *n - 1] = w[*n - 1] = work[*lwork - 1] = iwork[*liwork - 1] = 1;
    printf("DSYEVD(%c,%c,%d,%d,%d,%d)\n", *job, *uplo, *n, *lda, *lwork, *liwork);
}
"""


def test_the_command_keeps_libm_which_mkls_libraries_need_loaded() -> None:
    assert "-Wl,--no-as-needed -lmkl_rt -lm" in made(DSYEVD).text.splitlines()[0]


def made(call: str) -> Program:
    record = load("mlbackends.tracing.formats", "mkl").parse(f"MKL_VERBOSE {call}{TAIL}")
    assert isinstance(record, MklCall), call
    return program(record.signature, record.derived)


def ran(text: str, folder: Path) -> list[str]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    (folder / "call.c").write_text(text)
    (folder / "mkl.c").write_text(STAND_IN)
    command = [compiler, "-std=gnu11", "-fsanitize=address", "-w", "call.c", "mkl.c", "-o", "call"]
    if subprocess.run(command, cwd=folder, check=False, capture_output=True).returncode:
        command.remove("-fsanitize=address")  # its library is not installed everywhere
        subprocess.run(command, cwd=folder, check=True)
    environment = {"ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        ["./call"], cwd=folder, check=True, capture_output=True, text=True, env=environment
    )
    return done.stdout.splitlines()


def test_a_product_gets_the_same_sizes(tmp_path: Path) -> None:
    lines = ran(made(SGEMM).text, tmp_path)
    assert lines[0] == "SGEMM(T,N,8,4,16,16,16,8)"
    assert lines[1].endswith(" ms")
    assert len(lines) == 6


def test_a_decomposition_gets_room_for_its_work(tmp_path: Path) -> None:
    assert ran(made(DSYEVD).text, tmp_path)[0] == "DSYEVD(V,U,12,12,289,63)"


def test_mkls_own_copies_take_values() -> None:
    found = made("MKL_DOMATCOPY(c, t, 64, 32, 1.000000, 0x5579, 512, 0x557a, 512)").text
    assert "MKL_Domatcopy('c', 't', 64, 32, 1.000000, a, 512, b, 512);" in found


def test_a_long_and_flat_product_takes_no_more_than_its_operands() -> None:
    text = made("SGEMM(T,N,50257,8,768,0x7f,0x55,768,0x7e,768,0x7d,0x54,50257)").text
    assert f"*a = calloc({50257 * 768}, " in text
    assert f"*b = calloc({768 * 8}, " in text
    assert f"*c = calloc({50257 * 8}, " in text
    assert "calloc(57600, " in made("SGEMM(N,N,14400,10,4,0x1,0x2,14400,0x3,4,0x4,0x5,14400)").text


def test_what_does_not_fit_says_how_much_it_is() -> None:
    (note,) = made("SGEMM(N,N,99999,99999,9,0x1,0x2,99999,0x3,99999,0x4,0x5,99999)").notes
    assert note == "its arrays take 74.5 GiB, and none is made for more than 16 GiB"


def test_a_norm_of_complex_numbers_gets_complex_numbers() -> None:
    assert "float _Complex *x = calloc(9, " in made("SCNRM2(8,0x1,1)").text


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (
            "FFT(dcfi1024,tLim:1,desc:0x55d3)",
            ["DFTI_DOUBLE, DFTI_COMPLEX, 1, (MKL_LONG)1024", "DftiComputeForward(h, x)"],
        ),
        ("FFT(scbi128x64,tLim:1,desc:0x55d3)", ["2, (MKL_LONG[]){128, 64}", "Backward(h, x)"]),
        (
            "FFT(srfo128*64,tLim:1,desc:0x55d3)",
            ["DFTI_NUMBER_OF_TRANSFORMS, (MKL_LONG)64", "DFTI_NOT_INPLACE", "Forward(h, x, y)"],
        ),
    ],
)
def test_a_transform_gets_its_descriptor(call: str, parts: list[str]) -> None:
    text = made(call).text
    for part in parts:
        assert part in text


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("vdRngGaussian(2,0x55,1000,0x56,0.000000,1.000000)", "not all told"),
        (
            "SGEMM_BATCH(0x1,0x2,0x3,0x4,0x5,0x6,0x7,0x8,0x9,0xa,0xb,0xc,0xd,0xe,0xf)",
            "not all told",
        ),
        ("SGEMM(N,N,99999,99999,9,0x1,0x2,99999,0x3,99999,0x4,0x5,99999)", "more than 16 GiB"),
        ("unheard(1,2,3)", "not known by name"),
        ("FFT(nonsense)", "cannot be read"),
    ],
)
def test_what_cannot_be_repeated_says_why(call: str, why: str) -> None:
    found = made(call)
    assert found.text == ""
    assert why in found.notes[0]
