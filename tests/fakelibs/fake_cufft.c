// A stand-in for libcufft.so.12: the transform by its definition, over plans of any layout. See README.md.
//
// Plans that are made and destroyed, and each transform, are lines of the file FAKE_CUDA_LOG.
#include <complex.h>
#include <math.h>
#include <stdint.h>

#include "steering.h"

typedef int Result;
enum { OK = 0, INVALID_PLAN = 1, INVALID_VALUE = 4 };
enum { C2C = 0x29, R2C = 0x2A, C2R = 0x2C, Z2Z = 0x69, D2Z = 0x6A, Z2D = 0x6C };

typedef long long Count;
typedef struct {
    int alive, rank, type;
    void *work;
    Count sizes[3], in_embed[3], in_step, in_distance, out_embed[3], out_step, out_distance, batch;
} Plan;

static Plan plans[4096];
static int made;

static void note(const char *what, int plan, long detail) {
    const char *path = getenv("FAKE_CUDA_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s %d %ld\n", what, plan, detail);
    fclose(file);
}

Result cufftGetProperty(int kind, int *number) {
    *number = kind ? 0 : 12;
    return OK;
}
Result cufftCreate(int *plan) {
    behave();
    if (value("FAKE_CUFFT", 0)) return (Result)value("FAKE_CUFFT", 0);
    if (made == 4096) return 2;
    plans[made].alive = 1;
    *plan = made++;
    note("cufftCreate", *plan, 0);
    return OK;
}
Result cufftMakePlanMany64(int number, int rank, Count *sizes, Count *in_embed, Count in_step,
                           Count in_distance, Count *out_embed, Count out_step, Count out_distance,
                           int type, Count batch, size_t *work_bytes) {
    Plan *plan = &plans[number];
    if (!plan->alive) return INVALID_PLAN;
    if (rank < 1 || rank > 3 || batch < 1 || in_step < 1 || out_step < 1) return INVALID_VALUE;
    if (value("FAKE_PLAN", 0)) return (Result)value("FAKE_PLAN", 0);
    // As cuFFT does for less than three axes: the missing ones, in front, have size 1.
    for (int axis = 0; axis < 3; axis++) {
        int own = axis - (3 - rank);
        plan->sizes[axis] = own < 0 ? 1 : sizes[own];
        plan->in_embed[axis] = own < 0 ? 1 : in_embed[own];
        plan->out_embed[axis] = own < 0 ? 1 : out_embed[own];
        if (plan->sizes[axis] < 1) return INVALID_VALUE;
    }
    plan->rank = rank;
    plan->type = type;
    plan->in_step = in_step;
    plan->in_distance = in_distance;
    plan->out_step = out_step;
    plan->out_distance = out_distance;
    plan->batch = batch;
    *work_bytes = 64;
    note("cufftMakePlanMany64", number, (long)batch);
    return OK;
}
Result cufftDestroy(int plan) {
    if (plan < 0 || plan >= made || !plans[plan].alive) return INVALID_PLAN;
    plans[plan].alive = 0;
    note("cufftDestroy", plan, 0);
    return OK;
}

Result cufftSetAutoAllocation(int plan, int is_automatic) { return (void)plan, is_automatic ? INVALID_VALUE : OK; }
Result cufftSetWorkArea(int plan, void *area) { return plans[plan].work = area, area ? OK : INVALID_VALUE; }
Result cufftSetStream(int plan, void *stream) { return note("cufftSetStream", plan, (long)(intptr_t)stream), OK; }

static double complex get(const void *at, Count place, int is_double, int is_complex) {
    if (is_double) return is_complex ? ((double complex *)at)[place] : ((double *)at)[place];
    return is_complex ? ((float complex *)at)[place] : ((float *)at)[place];
}
static void put(void *at, Count place, int is_double, int is_complex, double complex number) {
    if (is_double && is_complex) ((double complex *)at)[place] = number;
    else if (is_double) ((double *)at)[place] = creal(number);
    else if (is_complex) ((float complex *)at)[place] = (float complex)number;
    else ((float *)at)[place] = (float)creal(number);
}

static Result transform(int number, void *in, void *out, int type, int direction) {
    Plan *plan = &plans[number];
    if (number < 0 || number >= made || !plan->alive || plan->type != type) return INVALID_PLAN;
    if (!plan->work) return INVALID_VALUE;
    memset(plan->work, 0xFF, 64);
    plan->work = NULL;
    int is_double = type & 0x40, real_in = type == R2C || type == D2Z, real_out = type == C2R || type == Z2D;
    Count nx = plan->sizes[0], ny = plan->sizes[1], nz = plan->sizes[2], half = nz / 2 + 1;
    note("cufftExec", number, direction);
    for (Count b = 0; b < plan->batch; b++)
        for (Count x = 0; x < nx; x++)
            for (Count y = 0; y < ny; y++)
                for (Count z = 0; z < (real_in ? half : nz); z++) {
                    double complex sum = 0;
                    for (Count i = 0; i < nx; i++)
                        for (Count j = 0; j < ny; j++)
                            for (Count k = 0; k < nz; k++) {
                                // The half that is not stored mirrors the other.
                                int mirrored = real_out && k >= half;
                                Count ii = mirrored ? (nx - i) % nx : i, jj = mirrored ? (ny - j) % ny : j;
                                Count kk = mirrored ? nz - k : k;
                                Count place = b * plan->in_distance +
                                              ((ii * plan->in_embed[1] + jj) * plan->in_embed[2] + kk) * plan->in_step;
                                double complex number_in = get(in, place, is_double, !real_in);
                                if (mirrored) number_in = conj(number_in);
                                if (real_out && (kk == 0 || 2 * kk == nz) && plan->rank == 1)
                                    number_in = creal(number_in);
                                double turn = (double)(x * i) / (double)nx + (double)(y * j) / (double)ny +
                                              (double)(z * k) / (double)nz;
                                sum += number_in * cexp(direction * 2 * M_PI * I * turn);
                            }
                    Count place = b * plan->out_distance +
                                  ((x * plan->out_embed[1] + y) * plan->out_embed[2] + z) * plan->out_step;
                    put(out, place, is_double, !real_out, sum);
                }
    // cuFFT uses the source of a complex-to-real transform as room for its work.
    if (real_out) memset(in, 0xFF, sizeof(float));
    return OK;
}
Result cufftExecC2C(int plan, void *in, void *out, int direction) { return transform(plan, in, out, C2C, direction); }
Result cufftExecZ2Z(int plan, void *in, void *out, int direction) { return transform(plan, in, out, Z2Z, direction); }
Result cufftExecR2C(int plan, void *in, void *out) { return transform(plan, in, out, R2C, -1); }
Result cufftExecD2Z(int plan, void *in, void *out) { return transform(plan, in, out, D2Z, -1); }
Result cufftExecC2R(int plan, void *in, void *out) { return transform(plan, in, out, C2R, 1); }
Result cufftExecZ2D(int plan, void *in, void *out) { return transform(plan, in, out, Z2D, 1); }
