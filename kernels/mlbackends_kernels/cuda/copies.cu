// Copies between arrays of any strides, one element a thread. NVRTC compiles this without headers.
//
// The index runs over `total` elements, its last axis fastest; steps are in bytes. Axes that there are not
// have size 1. SIZE is that of an element; wider ones move as several words, so 8 bytes need no more
// alignment than a complex number has.

typedef long long i64;

template <typename WORD, int WORDS>
__device__ void copy(char *to, const char *of, i64 total, const i64 *sizes, const i64 *to_steps, const i64 *of_steps) {
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < total; i += (i64)gridDim.x * blockDim.x) {
        i64 rest = i, there = 0, here = 0;
        for (int axis = 5; axis >= 0; axis--) {
            i64 place = rest % sizes[axis];
            rest /= sizes[axis];
            there += place * to_steps[axis];
            here += place * of_steps[axis];
        }
        for (int word = 0; word < WORDS; word++) ((WORD *)(to + there))[word] = ((const WORD *)(of + here))[word];
    }
}

#define COPY(SIZE, WORD, WORDS)                                                                              \
    extern "C" __global__ void copy_##SIZE(char *to, const char *of, i64 total, i64 s0, i64 s1, i64 s2,      \
                                           i64 s3, i64 s4, i64 s5, i64 t0, i64 t1, i64 t2, i64 t3, i64 t4,   \
                                           i64 t5, i64 o0, i64 o1, i64 o2, i64 o3, i64 o4, i64 o5) {         \
        const i64 sizes[6] = {s0, s1, s2, s3, s4, s5}, to_steps[6] = {t0, t1, t2, t3, t4, t5};               \
        const i64 of_steps[6] = {o0, o1, o2, o3, o4, o5};                                                    \
        copy<WORD, WORDS>(to, of, total, sizes, to_steps, of_steps);                                         \
    }
COPY(1, char, 1)
COPY(2, short, 1)
COPY(4, int, 1)
COPY(8, int, 2)
COPY(16, int, 4)
