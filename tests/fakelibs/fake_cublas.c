// A stand-in for libcublas.so.13, or with -DLT for libcublasLt.so.13. See README.md.
//
// It computes the product, number by number, in the precision that it is asked for, and writes what
// it was asked to the file FAKE_CUDA_LOG: math mode, compute type, workspace, reduction schemes.
#include <math.h>
#include <stdint.h>

#include "steering.h"

typedef int Status;
enum { OK = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_64F = 1, R_16F = 2, C_32F = 4, C_64F = 5, R_16BF = 14 };
enum { COMPUTE_16F = 64, COMPUTE_32F = 68, COMPUTE_64F = 70, COMPUTE_32F_FAST_TF32 = 77 };

static void note(const char *line) {
    const char *path = getenv("FAKE_CUDA_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s\n", line);
    fclose(file);
}

static float from_half(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = exponent == 0    ? ldexpf((float)fraction, -24)
                 : exponent == 31 ? (fraction ? NAN : INFINITY)
                                  : ldexpf((float)(1024 + fraction), exponent - 25);
    return bits >> 15 ? -size : size;
}
static uint16_t to_half(float number) {
    uint16_t sign = signbit(number) ? 0x8000 : 0, best = 0;
    float size = fabsf(number);
    if (isnan(size)) return sign | 0x7E00;
    if (size >= 65520) return sign | 0x7C00;
    if (size > 0) {
        int exponent;
        frexpf(size, &exponent);
        if (exponent < -13) exponent = -13;
        // nearbyintf rounds ties to even; a carry into the exponent is what it should be
        int fraction = (int)nearbyintf(ldexpf(size, 11 - exponent));
        best = (uint16_t)(((exponent + 13) << 10) + fraction);
    }
    return sign | best;
}
static float to_tf32(float number) {
    uint32_t bits;
    memcpy(&bits, &number, 4);
    bits = (bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000u;
    memcpy(&number, &bits, 4);
    return number;
}

typedef struct { double real, imaginary; } Number;

static size_t size_of(int type) {
    return type == R_16F || type == R_16BF ? 2 : type == R_32F ? 4 : type == C_64F ? 16 : 8;
}
static Number number_at(const char *at, int type) {
    Number number = {0, 0};
    uint16_t half;
    uint32_t word;
    float single[2];
    double both[2];
    switch (type) {
    case R_16F: memcpy(&half, at, 2); number.real = from_half(half); break;
    case R_16BF:
        memcpy(&half, at, 2);
        word = (uint32_t)half << 16;
        memcpy(single, &word, 4);
        number.real = single[0];
        break;
    case R_32F: memcpy(single, at, 4); number.real = single[0]; break;
    case R_64F: memcpy(both, at, 8); number.real = both[0]; break;
    case C_32F: memcpy(single, at, 8); number = (Number){single[0], single[1]}; break;
    default: memcpy(both, at, 16); number = (Number){both[0], both[1]};
    }
    return number;
}
static void write_number(char *at, int type, Number number) {
    float single[2] = {(float)number.real, (float)number.imaginary};
    double both[2] = {number.real, number.imaginary};
    uint16_t half;
    uint32_t word;
    switch (type) {
    case R_16F: half = to_half(single[0]); memcpy(at, &half, 2); break;
    case R_16BF:
        memcpy(&word, single, 4);
        half = (uint16_t)((word + 0x7FFF + (word >> 16 & 1)) >> 16);
        memcpy(at, &half, 2);
        break;
    case R_32F: memcpy(at, single, 4); break;
    case R_64F: memcpy(at, both, 8); break;
    case C_32F: memcpy(at, single, 8); break;
    default: memcpy(at, both, 16);
    }
}

typedef struct { const char *at; int transposed; int64_t leading, step; } Matrix;

static Number element(Matrix matrix, int64_t row, int64_t column, int type, int is_tf32) {
    int64_t place = matrix.transposed ? column + row * matrix.leading : row + column * matrix.leading;
    Number number = number_at(matrix.at + place * (int64_t)size_of(type), type);
    if (is_tf32) number = (Number){to_tf32((float)number.real), to_tf32((float)number.imaginary)};
    return number;
}

// By columns; the result replaces what is there. Half precision adds up in half precision.
static Status multiply(int64_t m, int64_t n, int64_t k, Matrix left, Matrix right, char *result,
                       int64_t leading, int64_t step, int64_t batch, int type, int out, int compute, int is_tf32) {
    if (left.leading < (left.transposed ? k : m) || right.leading < (right.transposed ? n : k) ||
        leading < m)
        return INVALID_VALUE;
    if ((compute == COMPUTE_64F) != (type == R_64F || type == C_64F)) return NOT_SUPPORTED;
    if (out != type && (out != R_32F || compute != COMPUTE_32F || size_of(type) != 2)) return NOT_SUPPORTED;
    int64_t size = (int64_t)size_of(type);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t row = 0; row < m; row++)
            for (int64_t column = 0; column < n; column++) {
                Matrix a = left, c = right;
                Number sum = {0, 0};
                a.at += b * left.step * size;
                c.at += b * right.step * size;
                for (int64_t i = 0; i < k; i++) {
                    Number x = element(a, row, i, type, is_tf32), y = element(c, i, column, type, is_tf32);
                    sum.real += x.real * y.real - x.imaginary * y.imaginary;
                    sum.imaginary += x.real * y.imaginary + x.imaginary * y.real;
                    if (compute == COMPUTE_16F) sum.real = from_half(to_half((float)sum.real));
                }
                write_number(result + (b * step + column * leading + row) * (int64_t)size_of(out), out, sum);
            }
    return OK;
}

#ifndef LT

typedef struct { int mode; void *workspace; size_t workspace_bytes; } Handle;

Status cublasGetProperty(int kind, int *number) {
    *number = kind ? 0 : 13;
    return OK;
}
Status cublasCreate_v2(Handle **handle) {
    behave();
    if (value("FAKE_CUBLAS", 0)) return (Status)value("FAKE_CUBLAS", 0);
    *handle = calloc(1, sizeof **handle);
    note("cublasCreate");
    return OK;
}
Status cublasSetMathMode(Handle *handle, int mode) {
    handle->mode = mode;
    return OK;
}
Status cublasSetWorkspace_v2(Handle *handle, void *workspace, size_t bytes) {
    char line[80];
    if (workspace) memset(workspace, 0, bytes);
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    snprintf(line, sizeof line, "cublasSetWorkspace %zu %s", bytes, workspace ? "given" : "none");
    note(line);
    return OK;
}

Status cublasSetStream_v2(Handle *handle, void *stream) {
    char line[80];
    handle->workspace_bytes = 0;  // a new stream takes the workspace away
    snprintf(line, sizeof line, "cublasSetStream %ld", (long)(intptr_t)stream);
    note(line);
    return OK;
}

static Status gemm(Handle *handle, int left_transposed, int right_transposed, int64_t m, int64_t n,
                   int64_t k, const char *left, int64_t left_leading, int64_t left_step,
                   const char *right, int64_t right_leading, int64_t right_step, char *result,
                   int64_t leading, int64_t step, int64_t batch, int type, int out, int compute) {
    char line[200];
    int is_tf32 = compute == COMPUTE_32F_FAST_TF32 || (handle->mode == 3 && type == R_32F);
    Matrix a = {left, left_transposed, left_leading, left_step};
    Matrix b = {right, right_transposed, right_leading, right_step};
    snprintf(line, sizeof line,
             "gemm mode=%d compute=%d type=%d out=%d m=%ld n=%ld k=%ld batch=%ld transposed=%d%d workspace=%zu",
             handle->mode, compute, type, out, (long)m, (long)n, (long)k, (long)batch, left_transposed,
             right_transposed, handle->workspace_bytes);
    note(line);
    return multiply(m, n, k, a, b, result, leading, step, batch, type, out, compute, is_tf32);
}
// Real factors of the compute type: cuBLAS would scale by another 1 if we gave the wrong type.
static int is_one(const void *alpha, int type, int compute) {
    if (compute == COMPUTE_16F) return number_at(alpha, R_16F).real == 1;
    if (type == R_64F || type == C_64F) return number_at(alpha, type).real == 1;
    return number_at(alpha, type == C_32F ? C_32F : R_32F).real == 1;
}

Status cublasGemmStridedBatchedEx(Handle *handle, int left_transposed, int right_transposed, int m,
                                  int n, int k, const void *alpha, const void *left, int left_type,
                                  int left_leading, long long left_step, const void *right,
                                  int right_type, int right_leading, long long right_step,
                                  const void *beta, void *result, int out, int leading,
                                  long long step, int batch, int compute, int algorithm) {
    int type = left_type;
    if (right_type != type || algorithm != -1) return INVALID_VALUE;
    if (!is_one(alpha, type, compute) || is_one(beta, type, compute)) return INVALID_VALUE;
    return gemm(handle, left_transposed, right_transposed, m, n, k, left, left_leading, left_step,
                right, right_leading, right_step, result, leading, step, batch, type, out, compute);
}

#define SCALE(NAME, REAL, PARTS)                                              \
    Status NAME(Handle *handle, int count, const REAL *factor, REAL *at, int step) { \
        if (!handle || step != 1) return INVALID_VALUE;                              \
        for (long i = 0; i < (long)count * PARTS; i++) at[i] *= *factor;             \
        note(#NAME);                                                                 \
        return OK;                                                                   \
    }
SCALE(cublasSscal_v2, float, 1)
SCALE(cublasDscal_v2, double, 1)

#else

typedef struct { int compute, scale_type, transposed[2]; } Description;
typedef struct { int type; uint64_t rows, columns; int64_t leading; int32_t batch; int64_t step; } Layout;
typedef struct { uint64_t workspace_bytes; uint32_t schemes, alignments[4]; } Preference;
typedef struct { uint64_t algorithm[8]; size_t bytes; int status; float waves; int reserved[4]; } Found;

Status cublasLtGetProperty(int kind, int *number) {
    *number = kind ? 0 : 13;
    return OK;
}
Status cublasLtCreate(void **handle) {
    behave();
    *handle = malloc(1);
    note("cublasLtCreate");
    return OK;
}
Status cublasLtMatmulDescCreate(Description **made, int compute, int scale_type) {
    *made = calloc(1, sizeof **made);
    (*made)->compute = compute;
    (*made)->scale_type = scale_type;
    return OK;
}
Status cublasLtMatmulDescDestroy(Description *description) {
    free(description);
    return OK;
}
Status cublasLtMatmulDescSetAttribute(Description *description, int attribute, const void *value,
                                      size_t size) {
    if (size != 4 || (attribute != 3 && attribute != 4)) return INVALID_VALUE;
    memcpy(&description->transposed[attribute - 3], value, size);
    return OK;
}
Status cublasLtMatrixLayoutCreate(Layout **made, int type, uint64_t rows, uint64_t columns,
                                  int64_t leading) {
    if ((uint64_t)leading < rows) return INVALID_VALUE;
    *made = calloc(1, sizeof **made);
    **made = (Layout){type, rows, columns, leading, 1, 0};
    return OK;
}
Status cublasLtMatrixLayoutDestroy(Layout *layout) {
    free(layout);
    return OK;
}
Status cublasLtMatrixLayoutSetAttribute(Layout *layout, int attribute, const void *value, size_t size) {
    if (attribute == 5 && size == 4) memcpy(&layout->batch, value, size);
    else if (attribute == 6 && size == 8) memcpy(&layout->step, value, size);
    else return INVALID_VALUE;
    return OK;
}
Status cublasLtMatmulPreferenceCreate(Preference **made) {
    *made = calloc(1, sizeof **made);
    (*made)->schemes = 7;
    return OK;
}
Status cublasLtMatmulPreferenceDestroy(Preference *preference) {
    free(preference);
    return OK;
}
Status cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute, const void *value,
                                            size_t size) {
    if (attribute == 1 && size == 8) memcpy(&preference->workspace_bytes, value, size);
    else if (attribute == 3 && size == 4) memcpy(&preference->schemes, value, size);
    else if (attribute >= 5 && attribute <= 8 && size == 4)
        memcpy(&preference->alignments[attribute - 5], value, size);
    else return INVALID_VALUE;
    return OK;
}
Status cublasLtMatmulAlgoGetHeuristic(void *handle, Description *description, Layout *left,
                                      Layout *right, Layout *result, Layout *target,
                                      Preference *preference, int wanted, Found *found, int *count) {
    char line[160];
    (void)left, (void)right, (void)result, (void)target;
    if (!handle || wanted < 1) return INVALID_VALUE;
    snprintf(line, sizeof line, "heuristic workspace=%lu schemes=%u compute=%d alignment=%u",
             (unsigned long)preference->workspace_bytes, preference->schemes, description->compute,
             preference->alignments[0]);
    note(line);
    *count = value("FAKE_NO_ALGORITHM", 0) ? 0 : 1;
    if (!*count) return NOT_SUPPORTED;
    memset(found, 0, sizeof *found);
    found->algorithm[0] = 42;
    found->bytes = preference->workspace_bytes;
    return OK;
}
Status cublasLtMatmul(void *handle, Description *description, const void *alpha, const void *left,
                      Layout *left_layout, const void *right, Layout *right_layout, const void *beta,
                      const void *source, Layout *source_layout, void *result, Layout *layout,
                      const uint64_t *algorithm, void *workspace, size_t bytes, void *stream) {
    char line[160];
    int64_t k = (int64_t)(description->transposed[0] ? left_layout->rows : left_layout->columns);
    Matrix a = {left, description->transposed[0], left_layout->leading, left_layout->step};
    Matrix b = {right, description->transposed[1], right_layout->leading, right_layout->step};
    (void)alpha, (void)beta;
    if (!handle || algorithm[0] != 42 || source != result || source_layout != layout )
        return INVALID_VALUE;
    if (bytes && !workspace) return INVALID_VALUE;
    if (workspace) memset(workspace, 0, bytes);
    snprintf(line, sizeof line, "matmul compute=%d scale=%d type=%d batch=%d workspace=%zu stream=%ld",
             description->compute, description->scale_type, layout->type, layout->batch, bytes, (long)(intptr_t)stream);
    note(line);
    return multiply((int64_t)layout->rows, (int64_t)layout->columns, k, a, b, result, layout->leading,
                    layout->step, layout->batch, left_layout->type, layout->type, description->compute,
                    description->compute == COMPUTE_32F_FAST_TF32);
}

#endif
