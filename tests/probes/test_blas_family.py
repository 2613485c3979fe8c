"""openblas, mkl, blis, flexiblas, accelerate and blas: told apart, asked, and made to multiply."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry
from mlbackends.host.host import Host
from mlbackends.model.records import Presence
from mlbackends.survey import survey
from mlbackends_probes import accelerate

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FakeLibrary
    from tests.probes.conftest import Asked


DGEMM = """
void DGEMM(char *a, char *b, int *m, int *n, int *k, double *alpha, double *x, int *ldx,
           double *y, int *ldy, double *beta, double *c, int *ldc) {
    (void)a; (void)b; (void)beta;
    for (int i = 0; i < *m; i++)
        for (int j = 0; j < *n; j++) {
            double sum = SPOIL;
            for (int l = 0; l < *k; l++) sum += x[i + l * *ldx] * y[l + j * *ldy];
            c[i + j * *ldc] = *alpha * sum;
        }
}
"""
RIGHT = DGEMM.replace("SPOIL", "0")

OPENBLAS = (
    """
char *PREFIXopenblas_get_configSUFFIX(void) {
    return "OpenBLAS 0.3.21 DYNAMIC_ARCH BITS MAX_THREADS=64";
}
char *PREFIXopenblas_get_corenameSUFFIX(void) { return "Zen"; }
int PREFIXopenblas_get_parallelSUFFIX(void) { return 2; }
int PREFIXopenblas_get_num_threadsSUFFIX(void) { return 8; }
"""
    + RIGHT
)

MKL = (
    """
#include <string.h>
void MKL_Get_Version_String(char *text, int length) {
    strncpy(text, "Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for"
                  " Intel(R) 64 architecture applications", length);
}
int MKL_Get_Max_Threads(void) { return 4; }
int MKL_Set_Threading_Layer(int layer) { return layer == -1 ? 3 : 0; }
"""
    + RIGHT
)


@pytest.mark.parametrize("prefix", ["", "scipy_"])
@pytest.mark.parametrize("suffix", ["", "64_"])
def test_openblas_is_asked_whatever_stands_around_its_names(
    asked: Asked, fake_library: FakeLibrary, prefix: str, suffix: str
) -> None:
    source = OPENBLAS.replace("PREFIX", prefix).replace("SUFFIX", suffix)
    source = source.replace("DGEMM", f"{prefix}dgemm_{suffix}")
    source = source.replace("BITS", "USE64BITINT" if suffix else "NO_AFFINITY")
    if suffix:
        source = source.replace("int *", "long long *")
    path = fake_library("openblas", "libopenblas.so.0", source=source)

    report, library = asked("openblas", path)

    assert (library.presence, library.version) == (Presence.USABLE, "0.3.21")
    assert report.version == "0.3.21"
    assert report.facts["architecture"] == "Zen"
    assert report.facts["threading"] == "openmp"
    assert report.facts["threads"] == 8
    assert report.facts["built_for_threads"] == 64
    assert report.facts["integer_bits"] == (64 if suffix else 32)
    assert report.facts.get("symbol_prefix", "") == prefix
    assert report.facts.get("symbol_suffix", "") == suffix


def test_a_product_that_is_wrong_keeps_openblas_below_usable(asked: Asked, fake_library: FakeLibrary) -> None:
    source = OPENBLAS.replace(RIGHT, DGEMM.replace("SPOIL", "1")).replace("DGEMM", "dgemm_")
    source = source.replace("PREFIX", "").replace("SUFFIX", "")
    path = fake_library("openblas", "libopenblas.so.0", source=source)

    _, library = asked("openblas", path)

    assert library.presence is Presence.LOADABLE
    assert [reason.code for reason in library.reasons] == ["wrong-result"]
    assert "58.0" in library.reasons[0].message


def test_an_openblas_that_returns_no_text_is_not_asked_further_for_it(
    asked: Asked, fake_library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    source = "char *openblas_get_config(void) { return 0; }\n" + RIGHT.replace("DGEMM", "dgemm_")
    path = fake_library("openblas", "libopenblas.so.0", source=source)

    report, library = asked("openblas", path)

    assert (library.presence, library.version) == (Presence.USABLE, "")
    assert report.facts == {"integer_bits": 32}


def test_a_core_type_that_openblas_does_not_take_is_a_warning(
    asked: Asked, fake_library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = OPENBLAS.replace("PREFIX", "").replace("SUFFIX", "").replace("DGEMM", "dgemm_")
    path = fake_library("openblas", "libopenblas.so.0", source=source)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalim")

    report, _ = asked("openblas", path)

    (warning,) = report.warnings
    assert warning.code == "override-invalid"
    assert warning.message == "OPENBLAS_CORETYPE is 'Nehalim', and OpenBLAS uses the kernels for Zen"


def test_the_copies_of_numpy_before_2_are_found_under_their_long_names(
    tmp_path: Path, fake_library: FakeLibrary
) -> None:
    built = fake_library("openblas", "libopenblas.so.0", source="int nothing;")
    names = ("libopenblas64_p-r0-0cf96a72.3.23.dev.so", "libopenblasp-r0-01191904.3.27.so")
    (tmp_path / "numpy.libs").mkdir()
    for name in names:
        shutil.copy(built, tmp_path / "numpy.libs" / name)

    finding = registry.load("mlbackends_probes", "openblas").find(
        Host(python={"path": [str(tmp_path)]}, environment={})
    )

    found = [library.path for library in finding.libraries if library.path.startswith(str(tmp_path))]
    assert found == [f"{tmp_path}/numpy.libs/{name}" for name in names]


def test_variables_of_openblas_are_facts_and_nonsense_in_them_is_a_warning(
    fake_library: FakeLibrary,
) -> None:
    path = fake_library("openblas", "libopenblas.so.0", source="int nothing;")
    environment = {
        "LD_LIBRARY_PATH": str(path.parent),
        "OPENBLAS_NUM_THREADS": "many",
        "GOTO_NUM_THREADS": "4",
        "HOME": "/root",
    }

    finding = registry.load("mlbackends_probes", "openblas").find(
        Host(python={"path": []}, environment=environment)
    )

    assert finding.facts["environment"] == {"OPENBLAS_NUM_THREADS": "many", "GOTO_NUM_THREADS": "4"}
    (warning,) = finding.warnings
    assert warning.code == "override-invalid"
    assert "whole number of at least 1" in warning.message


def test_mkl_tells_its_version_and_multiplies(asked: Asked, fake_library: FakeLibrary) -> None:
    path = fake_library("mkl", "libmkl_rt.so.2", source=MKL.replace("DGEMM", "dgemm_"))

    report, library = asked("mkl", path)

    assert (library.presence, report.version) == (Presence.USABLE, "2024.2")
    assert report.facts["build"] == "20240605"
    assert (report.facts["max_threads"], report.facts["threading"]) == (4, "gnu")


def test_mkl_inside_torch_is_found_by_its_function(tmp_path: Path, fake_library: FakeLibrary) -> None:
    built = fake_library("mkl", "libtorch_cpu.so", source=MKL.replace("DGEMM", "dgemm_"))
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    inner = tmp_path / "torch" / "lib" / "libtorch_cpu.so"
    shutil.copy(built, inner)
    host = Host(python={"path": [str(tmp_path)]}, environment={})

    report = survey(("mkl",), host, Presence.USABLE).probes["mkl"]

    (library,) = (library for library in report.libraries if library.path == str(inner))
    assert library.found_by.startswith("inside ")
    assert (library.presence, library.version) == (Presence.USABLE, "2024.2")


def test_an_mkl_that_ends_the_process_over_a_missing_layer_keeps_its_rung(
    asked: Asked, fake_library: FakeLibrary
) -> None:
    source = MKL.replace(
        "int MKL_Get_Max_Threads(void) { return 4; }", "#include <stdio.h>\n#include <stdlib.h>\n"
    ).replace("(void)a;", '(void)a; fprintf(stderr, "Cannot load libmkl_tbb_thread.so.2.\\n"); exit(2);')
    path = fake_library("mkl", "libmkl_rt.so.2", source=source.replace("DGEMM", "dgemm_"))

    _, library = asked("mkl", path)

    assert (library.presence, library.version) == (Presence.LOADABLE, "2024.2")
    (reason,) = library.reasons
    assert reason.code == "exited"
    assert "Cannot load libmkl_tbb_thread" in reason.message


@pytest.mark.parametrize(
    ("variable", "value", "codes"),
    [
        ("MKL_THREADING_LAYER", "gnu", []),
        ("MKL_THREADING_LAYER", "PGI", ["override-invalid"]),
        ("MKL_INTERFACE_LAYER", "GNU,LP64", []),
        ("MKL_INTERFACE_LAYER", "LP46", ["override-invalid"]),
        ("MKL_CBWR", "AVX2,STRICT", []),
        ("MKL_CBWR", "BRANCH=AVX512", ["override-exceeds-hardware"]),
        ("MKL_CBWR", "FAST", ["override-invalid"]),
        ("MKL_CBWR", "BRANCH=COMPATIBLE, STRICT", []),
        ("MKL_CBWR", "compatible", ["override-invalid"]),
        ("MKL_CBWR", "avx512", ["override-invalid"]),
        ("MKL_CBWR", "COMPATIBLE ", ["override-invalid"]),
        ("MKL_CBWR", "OFF", ["override-invalid"]),
        ("MKL_ENABLE_INSTRUCTIONS", "AVX512_E1", ["override-exceeds-hardware"]),
        ("MKL_ENABLE_INSTRUCTIONS", "AVX2", []),
        ("MKL_NUM_THREADS", "0", ["override-invalid"]),
        ("MKL_VERBOSE", "on", ["override-invalid"]),
        ("MKL_DEBUG_CPU_TYPE", "5", ["override-invalid"]),
        ("MKL_DYNAMIC", "False", []),
    ],
)
def test_what_variables_ask_of_mkl_is_held_against_what_it_takes(
    tmp_path: Path, fake_library: FakeLibrary, variable: str, value: str, codes: list[str]
) -> None:
    folder = tmp_path / "root" / "opt" / "intel" / "oneapi" / "mkl" / "latest" / "lib"
    folder.mkdir(parents=True)
    built = fake_library("mkl", "libmkl_rt.so.2", source=MKL.replace("DGEMM", "dgemm_"))
    shutil.copy(built, folder / "libmkl_rt.so.2")
    (tmp_path / "root" / "proc").mkdir()
    (tmp_path / "root" / "proc" / "cpuinfo").write_text("processor : 0\nflags : fpu avx avx2 fma\n")
    (tmp_path / "host.json").write_text(json.dumps({"environment": {variable: value}}))

    finding = registry.load("mlbackends_probes", "mkl").find(Host(str(tmp_path)))

    assert len(finding.libraries) == 1
    assert finding.facts == {"environment": {variable: value}}
    assert [warning.code for warning in finding.warnings] == codes


def test_blis_names_its_kernels_and_threads(asked: Asked, fake_library: FakeLibrary) -> None:
    source = """
    char *bli_info_get_version_str(void) { return "0.9.0"; }
    int bli_arch_query_id(void) { return 3; }
    char *bli_arch_string(int id) { return id == 3 ? "zen3" : 0; }
    long bli_info_get_enable_openmp(void) { return 0; }
    long bli_info_get_enable_pthreads(void) { return 1; }
    long bli_thread_get_num_threads(void) { return -1; }
    long bli_info_get_blas_int_type_size(void) { return 32; }
    """
    path = fake_library("blis", "libblis.so.4", source=source + RIGHT.replace("DGEMM", "dgemm_"))

    report, library = asked("blis", path)

    assert (library.presence, library.version) == (Presence.USABLE, "0.9.0")
    assert report.facts == {
        "architecture": "zen3",
        "threading": "pthreads",
        "threads": 1,
        "integer_bits": 32,
    }


def test_a_blis_without_the_names_of_blas_is_loadable_and_says_why(
    asked: Asked, fake_library: FakeLibrary
) -> None:
    source = 'char *bli_info_get_version_str(void) { return "1.0"; }\n'
    path = fake_library("blis", "libblis.so.4", source=source)

    _, library = asked("blis", path)

    assert (library.presence, library.version) == (Presence.LOADABLE, "1.0")
    assert [reason.code for reason in library.reasons] == ["no-use-check"]


def test_flexiblas_tells_the_backend_that_it_passes_calls_to(asked: Asked, fake_library: FakeLibrary) -> None:
    source = """
    #include <string.h>
    void flexiblas_get_version(int *a, int *b, int *c) { *a = 3; *b = 4; *c = 2; }
    int flexiblas_current_backend(char *name, unsigned long length) {
        strncpy(name, "OPENBLAS-OPENMP", length);
        return 15;
    }
    int flexiblas_list(char *name, unsigned long length, long position) {
        static const char *names[] = {"NETLIB", "__FALLBACK__", "OPENBLAS-OPENMP"};
        if (name) strncpy(name, names[position], length);
        return 3;
    }
    """
    path = fake_library("flexiblas", "libflexiblas.so.3", source=source + RIGHT.replace("DGEMM", "dgemm_"))

    report, library = asked("flexiblas", path)

    assert (library.presence, library.version) == (Presence.USABLE, "3.4.2")
    assert report.facts["backend"] == "OPENBLAS-OPENMP"
    assert report.facts["backends"] == ["NETLIB", "OPENBLAS-OPENMP"]


@pytest.mark.parametrize("plist", ["", "\0\ufffd", "bplist00", "<key>CFBundleVersion</key>"])
def test_accelerate_is_found_on_macos_though_no_file_is_there(tmp_path: Path, plist: str) -> None:
    folder = tmp_path / "root/System/Library/Frameworks/Accelerate.framework/Resources"
    folder.mkdir(parents=True)
    (folder / "Info.plist").write_text(plist, encoding="utf-8")
    (tmp_path / "host.json").write_text(json.dumps({"platform": "darwin"}))

    finding = accelerate.find(Host(str(tmp_path)))

    (library,) = finding.libraries
    assert library.path == "/System/Library/Frameworks/Accelerate.framework/Accelerate"
    assert (library.version, library.reasons, finding.facts) == ("", (), {})


def test_the_version_of_accelerate_stands_in_its_property_list(tmp_path: Path) -> None:
    folder = tmp_path / "root/System/Library/Frameworks/Accelerate.framework/Resources"
    folder.mkdir(parents=True)
    (folder / "Info.plist").write_text(
        "<plist><dict><key>CFBundleShortVersionString</key>\n\t<string>4.0</string>"
        "<key>CFBundleVersion</key><string>1.11</string></dict></plist>"
    )
    (tmp_path / "host.json").write_text(json.dumps({"platform": "darwin"}))

    finding = accelerate.find(Host(str(tmp_path)))

    assert (finding.version, finding.facts) == ("4.0", {"build": "1.11"})


@pytest.mark.parametrize(
    ("sign", "implementation"),
    [
        ("char *openblas_get_config(void) { return 0; }", "openblas"),
        ("char *scipy_openblas_get_config64_(void) { return 0; }", "openblas"),
        ("void MKL_Get_Version_String(void) {}", "mkl"),
        ("void MKL_Get_Version_String(void) {} void flexiblas_get_version(void) {}", "flexiblas"),
        ("int bli_arch_query_id(void) { return 0; }", "blis"),
        ("void ATL_dgemm(void) {}", "atlas"),
        ("int lsame_(void) { return 0; }", "netlib"),
        ("int something_else(void) { return 0; }", None),
    ],
)
def test_a_libblas_is_told_by_the_functions_inside(
    fake_library: FakeLibrary, sign: str, implementation: str | None
) -> None:
    path = fake_library("blas", "libblas.so.3", source=sign + "\n")

    finding = registry.load("mlbackends_probes", "blas").find(
        Host(python={"path": []}, environment={"LD_LIBRARY_PATH": str(path.parent)})
    )

    (library,) = (library for library in finding.libraries if library.path == str(path))
    assert library.facts.get("implementation") == implementation
    # One of the machine's own may tell what this one does not.
    assert implementation is None or finding.facts["blas"] == implementation


def test_the_links_of_the_alternatives_are_followed(tmp_path: Path, fake_library: FakeLibrary) -> None:
    source = "char *openblas_get_config(void) { return 0; }\n"
    built = fake_library("blas", "libblas.so.3", source=source)
    real = tmp_path / "usr/lib/openblas-pthread/libblas.so.3"
    real.parent.mkdir(parents=True)
    shutil.copy(built, real)
    (tmp_path / "etc/alternatives").mkdir(parents=True)
    (tmp_path / "etc/alternatives/libblas.so.3").symlink_to("/usr/lib/openblas-pthread/libblas.so.3")
    (tmp_path / "usr/lib/libblas.so.3").symlink_to("/etc/alternatives/libblas.so.3")

    finding = registry.load("mlbackends_probes", "blas").find(Host(str(tmp_path)))

    (library,) = finding.libraries
    assert library.path == "/usr/lib/libblas.so.3"
    assert library.facts["real_path"] == "/usr/lib/openblas-pthread/libblas.so.3"
    assert finding.facts == {"blas": "openblas"}


def test_a_lapack_tells_its_version_and_solves(asked: Asked, fake_library: FakeLibrary) -> None:
    source = """
    void ilaver_(int *a, int *b, int *c) { *a = 3; *b = 11; *c = 0; }
    void dgesv_(int *n, int *k, double *a, int *lda, int *p, double *b, int *ldb, int *info) {
        (void)k; (void)p; (void)ldb;
        for (int i = 0; i < *n; i++) b[i] /= a[i * *lda + i];
        *info = 0;
    }
    """
    path = fake_library("lapack", "liblapack.so.3", source=source)

    report, library = asked("blas", path)

    assert (library.presence, library.version) == (Presence.USABLE, "3.11.0")
    assert {**library.facts, **report.facts}["lapack_version"] == "3.11.0"


def test_a_cblas_alone_multiplies_too(asked: Asked, fake_library: FakeLibrary) -> None:
    source = """
    void cblas_dgemm(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a,
                     int lda, const double *b, int ldb, double beta, double *c, int ldc) {
        (void)order; (void)ta; (void)tb; (void)beta;
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) {
                double sum = 0;
                for (int l = 0; l < k; l++) sum += a[i * lda + l] * b[l * ldb + j];
                c[i * ldc + j] = alpha * sum;
            }
    }
    """
    path = fake_library("cblas", "libcblas.so.3", source=source)

    _, library = asked("blas", path)

    assert library.presence is Presence.USABLE
