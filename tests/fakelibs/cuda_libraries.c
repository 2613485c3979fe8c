// NVIDIA's libraries, one for each OF_NAME: they compute in the memory of computing_driver.c, which is the
// host's, in the order of arguments of NVIDIA's headers. FAKE_STATUS is what making a handle returns,
// FAKE_PROPERTY what asking for the version does; with FAKE_WRONG the results are wrong.
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

#ifdef OF_cublas
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
#endif

#ifdef OF_cublasLt
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
#endif

#ifdef OF_cufft
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
#endif

#ifdef OF_curand
static const float sobol[] = {1.2e-10f, 0.5f, 0.75f, 0.25f, 0.375f, 0.875f, 0.625f, 0.125f};
int curandGetProperty(int kind, int *value) { return property(kind, value, 10, 4, 5); }
int curandCreateGeneratorHost(void **g, int kind) { *g = (void *)1; return kind == 201 ? 0 : 103; }
int curandCreateGenerator(void **g, int kind) { *g = (void *)2; return status(); }
int curandGenerateUniform(void *g, float *out, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = sobol[i] + (g == (void *)2 ? off() : 0);
    return 0;
}
#endif

#ifdef OF_cusparse
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
#endif

#ifdef OF_cusolver
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
#endif

#ifdef OF_cusparselt
int cusparseLtGetProperty(int kind, int *value) { return property(kind, value, 0, 8, 1); }
const char *cusparseLtGetErrorName(int s) {
    return s == 4 ? "CUSPARSE_STATUS_ARCH_MISMATCH" : "CUSPARSE_STATUS_INTERNAL_ERROR";
}
int cusparseLtInit(void *handle) {
    if ((uintptr_t)handle % 16) return 7;
    memset(handle, 1, 2048);
    return status();
}
#endif

#ifdef OF_nccl
int ncclGetVersion(int *version) { *version = 23007; return told("FAKE_PROPERTY", 0); }
const char *ncclGetErrorString(int s) { return s == 2 ? "unhandled system error" : "?"; }
int ncclCommInitAll(void **c, int count, const int *devices) {
    *c = c; return count == 1 && *devices == 0 ? status() : 4;
}
int ncclAllReduce(const float *in, float *out, size_t n, int kind, int op, void *c, void *stream) {
    for (size_t i = 0; i < n; i++) out[i] = in[i] + off();
    return kind == 7 && op == 0 && c && !stream ? 0 : 4;
}
#endif

#ifdef OF_nvshmem
void nvshmemx_vendor_get_version_info(int *a, int *b, int *c) { *a = 3; *b = 4; *c = 5; }
#endif

#ifdef OF_cutensor
size_t cutensorGetVersion(void) { return 20801; }
size_t cutensorGetCudartVersion(void) { return 13040; }
const char *cutensorGetErrorString(int s) { return "CUTENSOR_STATUS_CUDA_ERROR"; }
int cutensorCreate(void **handle) { *handle = handle; return status(); }
#endif

#ifdef OF_cupti
int cuptiGetVersion(uint32_t *version) { *version = 130500; return 0; }
int cuptiActivityEnable(int kind) { return kind == 3 ? status() : 1; }
#endif

#ifdef OF_nvrtc
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
int nvrtcGetProgramLog(void *program, char *log) { strcpy(log, "a \n log\n"); return 0; }
static const char *ptx(void) { return off() ? ".entry eight()" : ".visible .entry seven()"; }
int nvrtcGetPTXSize(void *program, size_t *size) { *size = strlen(ptx()) + 1; return 0; }
int nvrtcGetPTX(void *program, char *out) { strcpy(out, ptx()); return 0; }
#endif

#ifdef OF_nvjitlink
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
    memcpy(out, off() ? "nothing" : "\177ELF\2\1", 6); return 0;
}
#endif

#ifdef OF_cudnn
static int handles;
static void needs(const char *name) {
    if (strstr(getenv("FAKE_LACKS") ? getenv("FAKE_LACKS") : "", name)) {
        fprintf(stderr, "Invalid handle. Cannot load symbol\n"); abort();
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
#endif
