// The weights of attention's rows, of scores that stand in memory, and their slopes. NVRTC compiles this without headers.
//
// A warp takes a row: for its largest score, for the sum of its exponentials, and to write.
// On the host (ON_HOST) the first lane does the work of all. The caller's structure is `Call` of softmax.py.

typedef long long i64;
enum { NO_MASK, BOOLEANS, HALVES, BFLOATS, FLOATS, DOUBLES };

struct Call {
    const void *scores;  // (rows, keys), float, or double for weights of double
    void *weights;       // (rows, keys), in the type of the kernel's name
    void *logarithms;    // (rows), in the type of the scores; null where nobody wants them
    const void *mask;
    void *products;                    // (rows, keys) of the scores' type: of grad_out and value; see `differentiate`
    const void *out, *grad_out;        // (rows, value_dim)
    void *slopes;                      // (rows, keys), in the type of the kernel's name: the gradient of the products of query and key
    i64 rows, heads, length, keys;
    i64 mask_batch, mask_head, mask_row, mask_column;  // in elements
    i64 shift;                                         // row i of a head sees key j if j <= i + shift, where causal
    double scale;
    int causal, mask_kind, value_dim, keeps_products;
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

static __device__ float wide(float number) { return number; }
static __device__ double wide(double number) { return number; }

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
static __device__ void narrow(float number, double &to) { to = number; }
static __device__ void narrow(double number, double &to) { to = number; }
static __device__ void narrow(double number, float &to) { to = number; }
static __device__ void narrow(double number, Half &to) { narrow((float)number, to); }
static __device__ void narrow(double number, Bfloat &to) { narrow((float)number, to); }

// Finds what a thread works at, which of the lanes that share it, and how far apart the parts are that it takes.
static __device__ bool has_work(int lanes, i64 &number, int &lane, int &step) {
    i64 thread = blockIdx.x * (i64)blockDim.x + threadIdx.x;
    number = thread / lanes;
    lane = thread % lanes;
#ifdef ON_HOST
    step = 1;
    return !lane;
#else
    step = lanes;
    return true;
#endif
}

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
    // Finds the largest score and the sum of the exponentials beside it; returns whether the row sees a key.
    __device__ bool measure(int lane, int step, REAL &largest, REAL &total) const {
        REAL sees = 0;
        bool seen;
        largest = -(REAL)1 / (REAL)0;
        for (i64 key = lane; key < call.keys; key += step) {
            REAL score = this->score(key, seen);
            largest = score != score || score > largest ? score : largest;
            if (seen) sees = 1;
        }
        largest = over_lanes(largest, false);
        sees = over_lanes(sees, true);
        total = 0;
        for (i64 key = lane; key < call.keys; key += step)
            if (sees) total += exp(this->score(key, seen) - largest);  // -inf less -inf is NaN: all overflowed
        total = over_lanes(total, true);
        return sees > 0;
    }
};

template <class REAL, class WEIGHT> static __device__ void softmax(const Call &call) {
    i64 number;
    int lane, step;
    if (!has_work(32, number, lane, step) || number >= call.rows) return;
    Row<REAL> row(call, number);
    REAL largest, total;
    bool seen, is_blind = !row.measure(lane, step, largest, total);
    for (i64 key = lane; key < call.keys; key += step)
        narrow(is_blind ? 0 : exp(row.score(key, seen) - largest) / total, ((WEIGHT *)call.weights)[number * call.keys + key]);
    if (call.logarithms && !lane) ((REAL *)call.logarithms)[number] = is_blind ? 0 : largest + log(total);
}

// With weights P = exp(score - logarithm) and the sum D of grad_out times out of each row, the gradient of the scores is
// P (products - D). It is written scaled, and where the products are kept, over them as it is: a mask's gradient.
template <class REAL, class WEIGHT> static __device__ void differentiate(const Call &call) {
    i64 number;
    int lane, step;
    if (!has_work(32, number, lane, step) || number >= call.rows) return;
    Row<REAL> row(call, number);
    REAL along = 0, top = ((const REAL *)call.logarithms)[number], rest = 0;
    for (int i = lane; i < call.value_dim; i += step)
        along += (REAL)wide(((const WEIGHT *)call.out)[number * call.value_dim + i]) *
                 (REAL)wide(((const WEIGHT *)call.grad_out)[number * call.value_dim + i]);
    along = over_lanes(along, true);
    // Beside a score of -1e9, which a mask may make, float32 loses the logarithm of the sum.
    REAL total;
    if (top > 16384 || top < -16384)
        if (row.measure(lane, step, top, total)) rest = log(total);
    for (i64 key = lane; key < call.keys; key += step) {
        bool seen;
        REAL score = row.score(key, seen), weight = seen ? exp(score - top - rest) : 0;
        i64 at = number * call.keys + key;
        REAL slope = seen ? weight * (((REAL *)call.products)[at] - along) : 0;
        narrow(weight, ((WEIGHT *)call.weights)[at]);
        if (call.keeps_products) ((REAL *)call.products)[at] = slope;
        narrow(slope * (REAL)call.scale, ((WEIGHT *)call.slopes)[at]);
    }
}

// Adds (B, H, L, S) up to the shape of a mask, `own`, each number in the order of batch, head, row and key: one after the
// other, or 32 lanes in turn whose sums are then added.
struct Sum {
    const void *of;
    void *to;
    i64 own[4], shared[4];  // their products are B, H, L and S
    int is_wide, lanes;
};

template <class REAL, class MASK> static __device__ void sum(const Sum &call) {
    i64 number, count = 1;
    int lane, step;
    if (!has_work(call.lanes, number, lane, step)) return;
    i64 rest = number, place[4], steps[4], along = 1, from = 0;
    for (int axis = 3; axis >= 0; axis--) {
        place[axis] = rest % call.own[axis];
        rest /= call.own[axis];
        steps[axis] = along;
        along *= call.own[axis] * call.shared[axis];
        from += place[axis] * steps[axis];
        count *= call.shared[axis];
    }
    if (rest) return;  // behind the last number; with lanes, all of a warp
    REAL total = 0;
    for (i64 i = lane; i < count; i += step) {
        i64 left = i, at = from;
        for (int axis = 3; axis >= 0; axis--) {
            at += left % call.shared[axis] * steps[axis];
            left /= call.shared[axis];
        }
        total += ((const REAL *)call.of)[at];
    }
    if (call.lanes > 1) total = over_lanes(total, true);
    if (!lane) narrow(total, ((MASK *)call.to)[number]);
}
template <class MASK> static __device__ void sum_of(const Sum &call) {
    if (call.is_wide) sum<double, MASK>(call);
    else sum<float, MASK>(call);
}

extern "C" __global__ void softmax_float16(const Call call) { softmax<float, Half>(call); }
extern "C" __global__ void softmax_bfloat16(const Call call) { softmax<float, Bfloat>(call); }
extern "C" __global__ void softmax_float32(const Call call) { softmax<float, float>(call); }
extern "C" __global__ void softmax_float64(const Call call) { softmax<double, double>(call); }
extern "C" __global__ void differentiate_float16(const Call call) { differentiate<float, Half>(call); }
extern "C" __global__ void differentiate_bfloat16(const Call call) { differentiate<float, Bfloat>(call); }
extern "C" __global__ void differentiate_float32(const Call call) { differentiate<float, float>(call); }
extern "C" __global__ void differentiate_float64(const Call call) { differentiate<double, double>(call); }
extern "C" __global__ void sum_float16(const Sum call) { sum_of<Half>(call); }
extern "C" __global__ void sum_bfloat16(const Sum call) { sum_of<Bfloat>(call); }
extern "C" __global__ void sum_float32(const Sum call) { sum_of<float>(call); }
extern "C" __global__ void sum_float64(const Sum call) { sum_of<double>(call); }
