"""What the probes of NVIDIA's libraries do with opened libraries: small fakes in C.

The fake driver's device memory is the host's, so the fake libraries compute in it as the real ones
do on a device, in the order of arguments that NVIDIA's headers give.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from mlbackends.host.host import Host
from mlbackends.model.records import Presence
from mlbackends.survey import survey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import FakeLibrary

    from mlbackends.model.records import Library, ProbeReport

    Asked = Callable[..., tuple[ProbeReport, Library]]

COMMON = """
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include <stdint.h>
static int told(const char *name, int otherwise) {
    const char *value = getenv(name);
    return value ? atoi(value) : otherwise;
}
static float off(void) { return told("FAKE_WRONG", 0); }
static int property(int kind, int *value, int a, int b, int c) {
    *value = kind == 0 ? a : kind == 1 ? b : c;
    return told("FAKE_PROPERTY", 0);
}
static int status(void) { return told("FAKE_STATUS", 0); }
"""

FAKES = {
    "cublas": (
        "libcublas.so.13",
        """
int cublasGetProperty(int kind, int *value) { return property(kind, value, 13, 10, 0); }
int cublasCreate_v2(void **handle) { *handle = handle; return status(); }
int cublasSgemm_v2(void *handle, int ta, int tb, int m, int n, int k, const float *alpha,
                   const float *a, int lda, const float *b, int ldb, const float *beta,
                   float *c, int ldc) {
    if (!handle || ta || tb) return 7;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int l = 0; l < k; l++) sum += a[i + l * lda] * b[l + j * ldb];
            c[i + j * ldc] = *alpha * sum + *beta * c[i + j * ldc] + off();
        }
    return 0;
}
""",
    ),
    "cublasLt": (
        "libcublasLt.so.13",
        """
typedef struct { int kind; uint64_t rows, columns; int64_t leading; } layout;
typedef struct { int compute, scale; } operation;
int cublasLtGetProperty(int kind, int *value) { return property(kind, value, 13, 10, 0); }
int cublasLtCreate(void **handle) { *handle = handle; return status(); }
int cublasLtMatmulDescCreate(operation **o, int compute, int scale) {
    *o = malloc(sizeof **o); **o = (operation){compute, scale};
    return compute == 68 && scale == 0 ? 0 : 7;
}
int cublasLtMatrixLayoutCreate(layout **l, int kind, uint64_t rows, uint64_t columns, int64_t ld) {
    *l = malloc(sizeof **l); **l = (layout){kind, rows, columns, ld}; return 0;
}
int cublasLtMatmul(void *handle, operation *o, const float *alpha, const float *a, layout *la,
                   const float *b, layout *lb, const float *beta, const float *c, layout *lc,
                   float *d, layout *ld, const void *algorithm, void *workspace, size_t bytes,
                   void *stream) {
    if (!handle || !o || algorithm || workspace || bytes || stream) return 7;
    for (uint64_t i = 0; i < ld->rows; i++)
        for (uint64_t j = 0; j < ld->columns; j++) {
            float sum = 0;
            for (uint64_t l = 0; l < la->columns; l++)
                sum += a[i + l * la->leading] * b[l + j * lb->leading];
            d[i + j * ld->leading] = *alpha * sum + *beta * c[i + j * lc->leading] + off();
        }
    return 0;
}
""",
    ),
    "cufft": (
        "libcufft.so.12",
        """
static int length;
int cufftGetProperty(int kind, int *value) { return property(kind, value, 12, 5, 0); }
int cufftPlan1d(int *plan, int n, int kind, int batch) {
    *plan = 7; length = n; return kind == 0x29 && batch == 1 ? status() : 3;
}
int cufftExecC2C(int plan, float *in, float *out, int direction) {
    static const float turn[4][2] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
    if (plan != 7 || length != 4) return 1;
    for (int k = 0; k < 4; k++) {
        out[2 * k] = out[2 * k + 1] = off();
        for (int j = 0; j < 4; j++) {
            const float *w = turn[(direction * j * k % 4 + 4) % 4];
            out[2 * k] += in[2 * j] * w[0] - in[2 * j + 1] * w[1];
            out[2 * k + 1] += in[2 * j] * w[1] + in[2 * j + 1] * w[0];
        }
    }
    return 0;
}
""",
    ),
    "curand": (
        "libcurand.so.10",
        """
static const float sobol[] = {1.2e-10f, 0.5f, 0.75f, 0.25f, 0.375f, 0.875f, 0.625f, 0.125f};
int curandGetProperty(int kind, int *value) { return property(kind, value, 10, 4, 5); }
int curandCreateGeneratorHost(void **g, int kind) { *g = (void *)1; return kind == 201 ? 0 : 103; }
int curandCreateGenerator(void **g, int kind) { *g = (void *)2; return status(); }
int curandGenerateUniform(void *g, float *out, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = sobol[i] + (g == (void *)2 ? off() : 0);
    return 0;
}
""",
    ),
    "cusparse": (
        "libcusparse.so.12",
        """
typedef struct { int64_t size, count; int32_t *places; float *values; } vector;
int cusparseGetProperty(int kind, int *value) { return property(kind, value, 12, 9, 4); }
const char *cusparseGetErrorName(int s) { return s == 1 ? "CUSPARSE_STATUS_NOT_INITIALIZED" : "?"; }
int cusparseCreate(void **handle) { *handle = handle; return status(); }
int cusparseCreateDnVec(vector **v, int64_t size, void *values, int kind) {
    *v = malloc(sizeof **v); **v = (vector){size, size, 0, values}; return kind;
}
int cusparseCreateSpVec(vector **v, int64_t size, int64_t count, void *places, void *values,
                        int index, int base, int kind) {
    *v = malloc(sizeof **v); **v = (vector){size, count, places, values};
    return index == 2 && base == 0 && kind == 0 ? 0 : 3;
}
int cusparseGather(void *handle, vector *dense, vector *sparse) {
    for (int i = 0; i < sparse->count; i++)
        sparse->values[i] = dense->values[sparse->places[i]] + off();
    return handle ? 0 : 1;
}
""",
    ),
    "cusolver": (
        "libcusolver.so.12",
        """
float sqrtf(float);
int cusolverGetProperty(int kind, int *value) { return property(kind, value, 12, 4, 1); }
int cusolverDnCreate(void **handle) { *handle = handle; return status(); }
int cusolverDnSpotrf_bufferSize(void *h, int uplo, int n, float *a, int lda, int *size) {
    *size = 4; return uplo;
}
int cusolverDnSpotrf(void *h, int uplo, int n, float *a, int lda, float *work, int size,
                     int *info) {
    if (uplo || n != 2 || size != 4 || !work) return 3;
    a[0] = 2 + off(); a[1] = a[1] / a[0]; a[1 + lda] = 2;
    *info = 0;
    return 0;
}
""",
    ),
    "cusparselt": (
        "libcusparseLt.so.0",
        """
int cusparseLtGetProperty(int kind, int *value) { return property(kind, value, 0, 8, 1); }
const char *cusparseLtGetErrorName(int s) {
    return s == 4 ? "CUSPARSE_STATUS_ARCH_MISMATCH" : "CUSPARSE_STATUS_INTERNAL_ERROR";
}
int cusparseLtInit(void *handle) {
    if ((uintptr_t)handle % 16) return 7;
    memset(handle, 1, 2048);
    return status();
}
""",
    ),
    "nccl": (
        "libnccl.so.2",
        """
int ncclGetVersion(int *version) { *version = 23007; return told("FAKE_PROPERTY", 0); }
const char *ncclGetErrorString(int s) { return s == 2 ? "unhandled system error" : "?"; }
int ncclCommInitAll(void **c, int count, const int *devices) {
    *c = c; return count == 1 && *devices == 0 ? status() : 4;
}
int ncclAllReduce(const float *in, float *out, size_t n, int kind, int op, void *c, void *stream) {
    for (size_t i = 0; i < n; i++) out[i] = in[i] + off();
    return kind == 7 && op == 0 && c && !stream ? 0 : 4;
}
""",
    ),
    "nvshmem": (
        "libnvshmem_host.so.3",
        """
void nvshmemx_vendor_get_version_info(int *a, int *b, int *c) { *a = 3; *b = 4; *c = 5; }
""",
    ),
    "cutensor": (
        "libcutensor.so.2",
        """
size_t cutensorGetVersion(void) { return 20801; }
size_t cutensorGetCudartVersion(void) { return 13040; }
const char *cutensorGetErrorString(int s) { return "CUTENSOR_STATUS_CUDA_ERROR"; }
int cutensorCreate(void **handle) { *handle = handle; return status(); }
""",
    ),
    "cupti": (
        "libcupti.so.13",
        """
int cuptiGetVersion(uint32_t *version) { *version = 130500; return 0; }
int cuptiActivityEnable(int kind) { return kind == 3 ? status() : 1; }
""",
    ),
    "nvrtc": (
        "libnvrtc.so.13",
        """
int nvrtcVersion(int *major, int *minor) {
    *major = 13; *minor = 5; return told("FAKE_PROPERTY", 0);
}
int nvrtcGetNumSupportedArchs(int *count) { *count = 3; return 0; }
int nvrtcGetSupportedArchs(int *known) { known[0] = 75; known[1] = 90; known[2] = 103; return 0; }
const char *nvrtcGetErrorString(int s) { return s == 7 ? "NVRTC_ERROR_BUILTIN" : "NVRTC_ERROR"; }
int nvrtcCreateProgram(void **program, const char *source, const char *name, int count,
                       const char *const *headers, const char *const *names) {
    *program = strstr(source, "seven") && !count ? program : 0; return 0;
}
int nvrtcCompileProgram(void *program, int count, const char *const *options) {
    return program && !count ? status() : 3;
}
int nvrtcGetProgramLogSize(void *program, size_t *size) { *size = 9; return 0; }
int nvrtcGetProgramLog(void *program, char *log) { strcpy(log, "a \\n log\\n"); return 0; }
static const char *ptx(void) { return off() ? ".entry eight()" : ".visible .entry seven()"; }
int nvrtcGetPTXSize(void *program, size_t *size) { *size = strlen(ptx()) + 1; return 0; }
int nvrtcGetPTX(void *program, char *out) { strcpy(out, ptx()); return 0; }
""",
    ),
    "nvjitlink": (
        "libnvJitLink.so.13",
        """
int nvJitLinkVersion(unsigned *major, unsigned *minor) { *major = 13; *minor = 5; return 0; }
int nvJitLinkCreate(void **linker, uint32_t count, const char **options) {
    *linker = linker; return count == 1 && !strcmp(options[0], "-arch=sm_90") ? status() : 1;
}
int nvJitLinkAddData(void *linker, int kind, const void *data, size_t size, const char *name) {
    return kind == 2 && size == strlen(data) + 1 ? 0 : 3;
}
int nvJitLinkComplete(void *linker) { return 0; }
int nvJitLinkGetLinkedCubinSize(void *linker, size_t *size) { *size = 6; return 0; }
int nvJitLinkGetLinkedCubin(void *linker, void *out) {
    memcpy(out, off() ? "nothing" : "\\177ELF\\2\\1", 6); return 0;
}
""",
    ),
    "cudnn": (
        "libcudnn.so.9",
        """
static int handles;
static void needs(const char *name) {
    if (strstr(getenv("FAKE_LACKS") ? getenv("FAKE_LACKS") : "", name)) {
        fprintf(stderr, "Invalid handle. Cannot load symbol\\n"); abort();
    }
}
size_t cudnnGetVersion(void) { needs("graph"); return told("FAKE_VERSION", 92600); }
size_t cudnnGetCudartVersion(void) { return 13040; }
size_t cudnnGetMaxDeviceVersion(void) { return 1210; }
const char *cudnnGetErrorString(int s) {
    return s == 1002 ? "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH" : "CUDNN_STATUS_NOT_INITIALIZED";
}
int cudnnGraphVersionCheck(void) { needs("graph"); return 0; }
int cudnnOpsVersionCheck(void) { needs("ops"); return told("FAKE_OPS", 0); }
int cudnnCnnVersionCheck(void) { needs("cnn"); return 0; }
int cudnnAdvVersionCheck(void) { needs("adv"); return 0; }
int cudnnCreate(void **handle) { *handle = &handles; return status(); }
int cudnnCreateTensorDescriptor(int **shape) { *shape = malloc(4); return 0; }
int cudnnSetTensor4dDescriptor(int *shape, int format, int kind, int n, int c, int h, int w) {
    *shape = n * c * h * w; return format || kind;
}
int cudnnSoftmaxForward(void *handle, int algorithm, int mode, const float *alpha, int *x_shape,
                        const float *x, const float *beta, int *y_shape, float *y) {
    needs("ops");
    if (handle != &handles || algorithm != 1 || mode != 1 || *x_shape != 4 || *beta) return 3;
    for (int i = 0; i < *y_shape; i++) y[i] = *alpha * (1 + x[i]) / 4 + off();
    return 0;
}
""",
    ),
}
ON_A_DEVICE = tuple(name for name in FAKES if name not in ("nvrtc", "nvjitlink", "nvshmem"))
COMPUTING = tuple(
    name for name in FAKES if name not in ("nvshmem", "cutensor", "cupti", "cusparselt")
)
VERSIONS = {
    "cublas": "13.10.0", "cublasLt": "13.10.0", "cufft": "12.5.0", "curand": "10.4.5",
    "cusparse": "12.9.4", "cusolver": "12.4.1", "cusparselt": "0.8.1", "nccl": "2.30.7",
    "nvshmem": "3.4.5", "cutensor": "2.8.1", "cupti": "13.5", "nvrtc": "13.5", "nvjitlink": "13.5",
    "cudnn": "9.26.0",
}  # fmt: skip
CUDNN_PARTS = (
    *("graph", "ops", "adv", "cnn", "heuristic"),
    *("engines_precompiled", "engines_runtime_compiled"),
)


@pytest.fixture
def fakes(fake_library: FakeLibrary) -> Callable[[str], Path]:
    """Return a compiled fake; each is compiled once."""

    def compiled(name: str) -> Path:
        if name == "driver":
            return fake_library("computing_driver", "libcuda.so.1")
        soname, source = FAKES[name]
        return fake_library(name, soname, source=COMMON + source)

    return compiled


@pytest.fixture
def asked(fakes: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Survey the probe of a fake, with the fake before whatever this machine has."""

    def ask(
        name: str,
        driver: bool = True,
        **variables: str,
    ) -> tuple[ProbeReport, Library]:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        for needed in (name, "driver") if driver else (name,):
            shutil.copy(fakes(needed), tmp_path)
        if name == "cudnn":
            lacked = variables.get("FAKE_LACKS", "")
            for part in CUDNN_PARTS:
                if part not in lacked:
                    shutil.copy(fakes(name), tmp_path / f"libcudnn_{part}.so.9")
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        probe = "cublas" if name == "cublasLt" else name
        report = survey((probe,), Host(), Presence.USABLE).probes[probe]
        path = str(tmp_path / FAKES[name][0])
        (library,) = (one for one in report.libraries if one.path == path)
        assert report.failure is None
        return report, library

    return ask


def only_reason(library: Library) -> tuple[str, str]:
    (reason,) = library.reasons
    return reason.code, reason.message


@pytest.mark.parametrize("name", [name for name in FAKES if name != "nvshmem"])
def test_a_library_that_computes_right_is_usable(name: str, asked: Asked) -> None:
    _, library = asked(name)

    assert library.reasons == ()
    assert (library.presence, library.version) == (Presence.USABLE, VERSIONS[name])
    assert library.facts["version_source"] == "library"


def test_nothing_is_claimed_of_nvshmem_but_its_version(asked: Asked) -> None:
    _, library = asked("nvshmem")

    assert (library.presence, library.version) == (Presence.LOADABLE, "3.4.5")
    assert only_reason(library)[0] == "no-use-check"


@pytest.mark.parametrize("name", COMPUTING)
def test_a_library_that_computes_wrong_is_not_usable(name: str, asked: Asked) -> None:
    _, library = asked(name, FAKE_WRONG="1")

    assert library.presence is Presence.LOADABLE
    assert only_reason(library)[0] == "wrong-result"


@pytest.mark.parametrize("name", [name for name in ON_A_DEVICE if name != "curand"])
def test_a_library_without_a_device_is_loadable(name: str, asked: Asked) -> None:
    _, library = asked(name, FAKE_INIT="100", CUDA_VISIBLE_DEVICES="")

    code, message = only_reason(library)
    assert (library.presence, code) == (Presence.LOADABLE, "no-device")
    assert message == "cuInit returned 100 (CUDA_ERROR_NO_DEVICE); CUDA_VISIBLE_DEVICES is ''"
    assert library.version == ("" if name == "cupti" else VERSIONS[name])


@pytest.mark.parametrize(
    ("variables", "code", "words"),
    [
        ({"FAKE_CUDA_GPUS": "0"}, "no-device", "counted 0 devices"),
        ({"FAKE_CUDA": "12040"}, "driver-too-old", "CUDA 13, and the driver offers CUDA 12.4"),
        ({"FAKE_SYNC": "700"}, "call-failed", "returned 700 (CUDA_ERROR_ILLEGAL_ADDRESS)"),
        ({"FAKE_STATUS": "1"}, "call-failed", "returned 1 (CUBLAS_STATUS_NOT_INITIALIZED)"),
        ({"FAKE_STATUS": "77"}, "call-failed", "cublasCreate_v2 returned 77 (an unnamed status)"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else None,
)
def test_what_breaks_on_the_way_to_the_device_is_told(
    variables: dict[str, str], code: str, words: str, asked: Asked
) -> None:
    _, library = asked("cublas", **variables)

    assert (library.presence, only_reason(library)[0]) == (Presence.LOADABLE, code)
    assert words in only_reason(library)[1]


@pytest.mark.parametrize("name", ["cublas", "cublasLt", "cusolver", "nccl", "nvrtc"])
def test_a_library_that_does_not_tell_its_version_is_not_loadable(name: str, asked: Asked) -> None:
    _, library = asked(name, FAKE_PROPERTY="2")

    assert (library.presence, only_reason(library)[0]) == (Presence.FOUND, "call-failed")


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("cusparse", "1", "cusparseCreate returned 1 (CUSPARSE_STATUS_NOT_INITIALIZED)"),
        ("cudnn", "1001", "cudnnCreate returned 1001 (CUDNN_STATUS_NOT_INITIALIZED)"),
        ("nccl", "2", "ncclCommInitAll returned 2 (unhandled system error)"),
        ("cutensor", "18", "cutensorCreate returned 18 (CUTENSOR_STATUS_CUDA_ERROR)"),
        ("cufft", "5", "cufftPlan1d returned 5 (CUFFT_INTERNAL_ERROR)"),
        ("curand", "203", "curandCreateGenerator returned 203 (CURAND_STATUS_INITIALIZATION_FAIL"),
        ("cusolver", "7", "cusolverDnCreate returned 7 (CUSOLVER_STATUS_INTERNAL_ERROR)"),
        ("nvjitlink", "4", "nvJitLinkCreate returned 4 (NVJITLINK_ERROR_PTX_COMPILE)"),
        ("nvrtc", "6", "nvrtcCompileProgram returned 6 (NVRTC_ERROR): a log"),
    ],
)
def test_a_failed_call_is_told_by_function_code_and_name(
    name: str, status: str, words: str, asked: Asked
) -> None:
    _, library = asked(name, FAKE_STATUS=status)

    code, message = only_reason(library)
    assert (library.presence, code) == (Presence.LOADABLE, "call-failed")
    assert words in message


def test_a_driver_that_does_not_open_is_no_driver(
    asked: Asked, tmp_path: Path, fakes: Callable[[str], Path]
) -> None:
    (tmp_path / "libcuda.so.1").write_text("a file that is too short or no library at all\n" * 9)
    _, library = asked("cublas", driver=False)

    code, message = only_reason(library)
    assert (library.presence, code) == (Presence.LOADABLE, "no-driver")
    assert "libcuda.so.1" in message


def test_an_old_device_is_not_a_failed_call_to_cusparselt(asked: Asked) -> None:
    _, library = asked("cusparselt", FAKE_STATUS="4")

    assert only_reason(library)[0] == "unsupported-hardware"


def test_nvrtc_without_its_builtins_lacks_a_dependency(asked: Asked) -> None:
    _, library = asked("nvrtc", FAKE_STATUS="7")

    assert (library.presence, only_reason(library)[0]) == (Presence.LOADABLE, "missing-dependency")


def test_nvrtc_tells_for_what_it_compiles(asked: Asked) -> None:
    report, _ = asked("nvrtc", driver=False)

    assert report.facts == {"compute_capabilities": ["7.5", "9.0", "10.3"]}


def test_curand_without_a_device_is_usable_on_the_host(asked: Asked) -> None:
    report, library = asked("curand", FAKE_INIT="100")

    assert (library.presence, report.facts) == (Presence.USABLE, {"checked_on": "host"})


def test_curand_with_a_broken_driver_says_so(asked: Asked) -> None:
    _, library = asked("curand", FAKE_INIT="803")

    assert (library.presence, only_reason(library)[0]) == (Presence.LOADABLE, "driver-mismatch")


# ---- cuDNN -----------------------------------------------------------------------------------


def test_cudnn_tells_its_cuda_and_the_chips_it_knows(asked: Asked) -> None:
    report, _ = asked("cudnn", FAKE_VERSION="90100")

    assert (report.version, report.warnings) == ("9.1.0", ())
    assert report.facts == {"cuda_version": "13.4", "max_compute_capability": "12.1"}


def test_cudnn_without_its_graph_is_not_called_and_does_not_crash(asked: Asked) -> None:
    _, library = asked("cudnn", FAKE_LACKS="graph")

    code, message = only_reason(library)
    assert (library.presence, code) == (Presence.FOUND, "sub-library-missing")
    assert "needs libcudnn_graph.so.9, which is not next to it" in message


def test_cudnn_without_its_operations_is_usable_by_its_handle(asked: Asked) -> None:
    report, library = asked("cudnn", FAKE_LACKS="ops")

    assert library.presence is Presence.USABLE
    assert [warning.code for warning in report.warnings] == ["sub-library-missing"]


def test_cudnn_that_refuses_a_sub_library_is_a_warning(asked: Asked) -> None:
    report, _ = asked("cudnn", FAKE_OPS="1002")

    (warning,) = report.warnings
    assert warning.code == "sub-library-mismatch"
    assert "cudnnOpsVersionCheck returned 1002 (CUDNN_STATUS_SUBLIBRARY_VERSION" in warning.message


# ---- what files said before -------------------------------------------------------------------


def test_a_library_of_another_version_than_its_name_is_a_conflict(
    asked: Asked, fakes: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "libcufft.so.12").symlink_to("libcufft.so.12.3.1.2")
    report, library = asked("cufft")

    (warning,) = report.warnings
    assert (library.version, warning.code) == ("12.5.0", "conflict")
    assert "reports version 12.5.0; its file name has 12.3.1" in warning.message


@pytest.mark.parametrize("name", ["cublas", "cudnn", "nccl", "nvrtc"])
def test_a_library_without_its_functions_lacks_a_symbol(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fakes: Callable[[str], Path]
) -> None:
    soname = FAKES[name][0]
    shutil.copy(fakes("nvshmem"), tmp_path / soname)
    for part in CUDNN_PARTS:
        shutil.copy(fakes("nvshmem"), tmp_path / f"libcudnn_{part}.so.9")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))

    report = survey((name,), Host(), Presence.USABLE).probes[name]

    (library,) = (one for one in report.libraries if one.path == str(tmp_path / soname))
    assert only_reason(library)[0] == "missing-symbol"
