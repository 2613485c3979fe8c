// The weights of attention's rows, of scores that stand in memory. NVRTC compiles this without headers.
//
// A warp takes a row, three times: for its largest score, for the sum of its exponentials, and to write.
// On the host (ON_HOST) the first lane does the work of all. The caller's structure is `Call` of softmax.py.

typedef long long i64;
enum { NO_MASK, BOOLEANS, HALVES, BFLOATS, FLOATS, DOUBLES };

struct Call {
    const void *scores;  // (rows, keys), float, or double for weights of double
    void *weights;       // (rows, keys), in the type of the kernel's name
    void *logarithms;    // (rows), in the type of the scores; null where nobody wants them
    const void *mask;
    i64 rows, heads, length, keys;
    i64 mask_batch, mask_head, mask_row, mask_column;  // in elements
    i64 shift;                                         // row i of a head sees key j if j <= i + shift, where causal
    double scale;
    int causal, mask_kind;
};

struct Half { unsigned short bits; };
struct Bfloat { unsigned short bits; };

static __device__ float wide(Half half) {
#ifdef ON_HOST
    _Float16 number;
    memcpy(&number, &half.bits, 2);
    return number;
#else
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(half.bits));
    return number;
#endif
}
static __device__ float wide(Bfloat number) {
    unsigned bits = (unsigned)number.bits << 16;
    return *(float *)&bits;
}

static __device__ void narrow(float number, Half &half) {
#ifdef ON_HOST
    _Float16 rounded = number;
    memcpy(&half.bits, &rounded, 2);
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(number));
#endif
}
static __device__ void narrow(float number, Bfloat &to) {  // to nearest, ties to even; NaN stays NaN
    unsigned bits = *(unsigned *)&number;
    to.bits = number != number ? 0x7FC0 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
static __device__ void narrow(float number, float &to) { to = number; }
static __device__ void narrow(double number, double &to) { to = number; }

template <class REAL> static __device__ REAL over_lanes(REAL number, bool is_sum) {
#ifndef ON_HOST
    for (int apart = 16; apart; apart /= 2) {
        REAL other = __shfl_xor_sync(0xffffffff, number, apart);
        // Beside a NaN the result is NaN, as of the sum.
        number = is_sum ? number + other : number != number || number > other ? number : other;
    }
#endif
    return number;
}

template <class REAL> struct Row {
    const Call &call;
    const REAL *scores;
    i64 mask, row;

    __device__ Row(const Call &call, i64 number) : call(call), scores((const REAL *)call.scores + number * call.keys) {
        i64 head = number / call.length;
        row = number % call.length;
        mask = head / call.heads * call.mask_batch + head % call.heads * call.mask_head + row * call.mask_row;
    }
    // Returns the score of a key with scale and mask, -inf where the row does not see it; seen: if it does.
    __device__ REAL score(i64 key, bool &seen) const {
        REAL added = 0, nothing = -(REAL)1 / (REAL)0;
        i64 at = mask + key * call.mask_column;
        switch (call.mask_kind) {
        case BOOLEANS: added = ((const char *)call.mask)[at] ? 0 : nothing; break;
        case HALVES: added = wide(((const Half *)call.mask)[at]); break;
        case BFLOATS: added = wide(((const Bfloat *)call.mask)[at]); break;
        case FLOATS: added = ((const float *)call.mask)[at]; break;
        case DOUBLES: added = ((const double *)call.mask)[at]; break;
        }
        seen = added != nothing && (!call.causal || key <= row + call.shift);
        return seen ? scores[key] * (REAL)call.scale + added : nothing;
    }
};

template <class REAL, class WEIGHT> static __device__ void softmax(const Call &call) {
    i64 thread = blockIdx.x * (i64)blockDim.x + threadIdx.x, number = thread / 32;
    int lane = thread % 32, step = 32;
#ifdef ON_HOST
    if (lane) return;
    step = 1;
#endif
    if (number >= call.rows) return;
    Row<REAL> row(call, number);
    REAL nothing = -(REAL)1 / (REAL)0, largest = nothing, total = 0, sees = 0;
    bool seen;
    for (i64 key = lane; key < call.keys; key += step) {
        REAL score = row.score(key, seen);
        largest = score != score || score > largest ? score : largest;
        if (seen) sees = 1;
    }
    largest = over_lanes(largest, false);
    sees = over_lanes(sees, true);
    bool is_blind = !sees;
    for (i64 key = lane; key < call.keys; key += step)
        if (!is_blind) total += exp(row.score(key, seen) - largest);  // -inf less -inf is NaN: all overflowed
    total = over_lanes(total, true);
    for (i64 key = lane; key < call.keys; key += step)
        narrow(is_blind ? 0 : exp(row.score(key, seen) - largest) / total, ((WEIGHT *)call.weights)[number * call.keys + key]);
    if (call.logarithms && !lane) ((REAL *)call.logarithms)[number] = is_blind ? 0 : largest + log(total);
}

extern "C" __global__ void softmax_float16(const Call call) { softmax<float, Half>(call); }
extern "C" __global__ void softmax_bfloat16(const Call call) { softmax<float, Bfloat>(call); }
extern "C" __global__ void softmax_float32(const Call call) { softmax<float, float>(call); }
extern "C" __global__ void softmax_float64(const Call call) { softmax<double, double>(call); }
