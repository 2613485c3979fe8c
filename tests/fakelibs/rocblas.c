// A stand-in for librocblas, and for the HIP that comes with it. FAKE_INIT is what
// rocblas_create_handle returns.
#include "hip.c"

int rocblas_get_version_string(char *text, size_t size) {
    snprintf(text, size, "4.2.0.8a3b6c1");
    return 0;
}
int rocblas_create_handle(void **handle) {
    static int made;
    *handle = &made;
    return (int)value("FAKE_INIT", 0);
}
int rocblas_destroy_handle(void *handle) { return handle ? 0 : 1; }
int rocblas_sgemm(void *handle, int left_op, int right_op, int m, int n, int k, const float *alpha,
                  const float *left, int left_step, const float *right, int right_step,
                  const float *beta, float *out, int out_step) {
    if (!handle || left_op != 111 || right_op != 111) return 1;
    for (int row = 0; row < m; row++)
        for (int column = 0; column < n; column++) {
            float sum = 0;
            for (int i = 0; i < k; i++)
                sum += left[row + i * left_step] * right[i + column * right_step];
            float *at = &out[row + column * out_step];
            *at = *alpha * sum + (*beta ? *beta * *at : 0);
        }
    return 0;
}
