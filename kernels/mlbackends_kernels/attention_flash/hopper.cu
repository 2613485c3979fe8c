// Attention forward on Hopper (sm_90a): tiles come by bulk copies (TMA), products are those of four warps (wgmma).
//
// A block takes 64 rows for each of its warpgroups but the first, of which one thread copies tiles of keys and values
// into a ring in shared memory. The others compute: while one multiplies, another takes exponentials, and within each
// the scores of the next tile are multiplied beside the values of this one. Blocks stay and take tile after tile.
//
// Compiled ahead of time by kernels/builder/cubins.py, without headers; on the CPU the tests compile it with
// hopper_on_host.h, whose fibers stand for threads. It has not run on a GPU yet.
//
// Source: Shah et al. 2024, FlashAttention-3, algorithms 1 and 2; the PTX manual for tensor maps, mbarriers, the
// descriptors of matrices in shared memory, and the fragments of wgmma: lane l of warp w holds row 16 w + l / 4 and the
// one 8 below, and of each 8 columns 2 (l % 4) and one more.

#ifndef __CUDACC__
#include "hopper_on_host.h"
#endif

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef long long i64;

struct alignas(64) TensorMap { u64 words[16]; };

// A tensor (batches, heads, rows, width) to copy from, of which `group` heads of the result share one; zeros lie outside.
struct Source {
  TensorMap map;
  int group, batches, reserved[14];
};

// A tensor to write to. Strides count elements.
struct Target {
  char* at;
  i64 batch, head, row;
  int width, reserved;
};

// Products are of the rows of `left` and those of `right`, turned. Call stands in hopper.py, too.
//
//   forward:  left query, right key and value, out the output.
//   backward: left query and grad_out, right key and value, out grad_query; or
//             left key and value, right query and grad_out, out grad_key and grad_value.
struct Call {
  Source left[2], right[2];
  Target out[2];
  float* logsumexp;         // (B, H, L), contiguous, or null
  const float4* summary;    // (B, H, L): see summarize in attention.cu
  const char* sinks;        // or null
  i64 sink_step;
  int heads, shared;        // of the result, and how many of `right` each takes
  int rows, columns;        // of left, of right
  int lower, upper;         // row i sees the columns from i + lower to i + upper
  int blocks, per_unit;     // of rows of one head, and how many pieces of work these are: one block each, or two
  int pieces;               // of all heads
  int wide_sinks;           // of float32
  int capped;               // scores are soft(inner * product) * factor, to the base 2: soft is tanh
  float inner, factor, scale;
  int reserved[6];
};

#define FOR(i, n) _Pragma("unroll") for (int i = 0; i < (n); i++)

// ---- instructions ---------------------------------------------------------------

#ifdef __CUDACC__
#define LANE (threadIdx.x % 32)

static __device__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
static __device__ float half_to_float(u16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
static __device__ u32 two_halves(float low, float high) {
  u32 both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
static __device__ u32 two_bfloats(float low, float high) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
static __device__ u32 in_shared(const void* at) { return (u32)__cvta_generic_to_shared(at); }
static __device__ int first_lane(int x) { return __shfl_sync(0xffffffff, x, 0); }

static __device__ void start_barrier(u32 at, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at), "r"(count) : "memory");
}
static __device__ void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
static __device__ void arrive(u32 at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at) : "memory");
}
static __device__ void arrive_and_expect(u32 at, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at), "r"(bytes) : "memory");
}
static __device__ void wait(u32 at, int parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }"
      :: "r"(at), "r"(parity) : "memory");
}
// Copies a box from element x of row y on; its bytes count at the barrier.
static __device__ void copy_box(u32 to, const TensorMap* map, u32 barrier, int x, int y, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], [%2];"
      :: "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(head), "r"(batch) : "memory");
}
// Threads that meet at one of the 16 barriers of a block; those that arrive do not wait.
static __device__ void meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" :: "r"(barrier), "r"(threads) : "memory");
}
static __device__ void come_by(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" :: "r"(barrier), "r"(threads) : "memory");
}
template <int COUNT> static __device__ void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(COUNT)); }
template <int COUNT> static __device__ void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(COUNT)); }

static __device__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
static __device__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Keeps the compiler from reading sums before this.
template <int N> static __device__ void hold(float (&sums)[N]) { FOR(i, N) asm volatile("" : "+f"(sums[i]) :: "memory"); }
// Waits until at most `LEFT` of the groups of products are under way, of which `sums` are not among.
template <int LEFT, int N> static __device__ void wait_for_products(float (&sums)[N]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LEFT) : "memory");
  hold(sums);
}

#define TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define LIST_32 TEN() TEN(1) TEN(2) "%30,%31"
#define LIST_40 TEN() TEN(1) TEN(2) "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39"
#define LIST_48 TEN() TEN(1) TEN(2) TEN(3) "%40,%41,%42,%43,%44,%45,%46,%47"
#define LIST_56 TEN() TEN(1) TEN(2) TEN(3) TEN(4) "%50,%51,%52,%53,%54,%55"
#define LIST_64 TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) "%60,%61,%62,%63"
#define LIST_88 TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) "%80,%81,%82,%83,%84,%85,%86,%87"
#define LIST_96 TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) "%90,%91,%92,%93,%94,%95"
#define LIST_128                                                                                                  \
  TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) TEN(11)                            \
  "%120,%121,%122,%123,%124,%125,%126,%127"
#define SUMS_8(i)                                                                                                 \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]),   \
      "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define SUMS_32 SUMS_8(0), SUMS_8(8), SUMS_8(16), SUMS_8(24)
#define SUMS_40 SUMS_32, SUMS_8(32)
#define SUMS_48 SUMS_40, SUMS_8(40)
#define SUMS_56 SUMS_48, SUMS_8(48)
#define SUMS_64 SUMS_56, SUMS_8(56)
#define SUMS_88 SUMS_64, SUMS_8(64), SUMS_8(72), SUMS_8(80)
#define SUMS_96 SUMS_88, SUMS_8(88)
#define SUMS_128 SUMS_96, SUMS_8(96), SUMS_8(104), SUMS_8(112), SUMS_8(120)

#define PRODUCT(N, COUNT, TYPE, LEFT, RIGHT, ADDED, TURNED, ...)                                                  \
  asm volatile("{ .reg .pred added; setp.ne.b32 added, " ADDED ", 0;\n"                                           \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" LIST_##COUNT "}, " LEFT ", " RIGHT  \
               ", added, 1, 1, " TURNED "; }"                                                                     \
               : SUMS_##COUNT : __VA_ARGS__)

// sums (64 x N) = left (64 x 16) times right (N x 16) turned, and the sums before if `added`.
#define ACROSS(N, COUNT, A, B, C)                                                                                 \
  template <bool HALF> static __device__ void across(float (&sums)[COUNT], u64 left, u64 right, int added) {      \
    if (HALF) PRODUCT(N, COUNT, "f16", A, B, C, "0, 0", "l"(left), "l"(right), "r"(added));                       \
    else PRODUCT(N, COUNT, "bf16", A, B, C, "0, 0", "l"(left), "l"(right), "r"(added));                           \
  }
ACROSS(64, 32, "%32", "%33", "%34")
ACROSS(80, 40, "%40", "%41", "%42")
ACROSS(112, 56, "%56", "%57", "%58")
ACROSS(128, 64, "%64", "%65", "%66")
ACROSS(176, 88, "%88", "%89", "%90")

// sums (64 x N) += left (64 x 16), in registers, times right (16 x N).
#define ALONG(N, COUNT, A, B, C)                                                                                  \
  template <bool HALF> static __device__ void along(float (&sums)[COUNT], const u32* left, u64 right) {           \
    if (HALF)                                                                                                     \
      PRODUCT(N, COUNT, "f16", A, B, C, "1", "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(1));   \
    else                                                                                                          \
      PRODUCT(N, COUNT, "bf16", A, B, C, "1", "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(1));  \
  }
ALONG(64, 32, "{%32,%33,%34,%35}", "%36", "%37")
ALONG(96, 48, "{%48,%49,%50,%51}", "%52", "%53")
ALONG(128, 64, "{%64,%65,%66,%67}", "%68", "%69")
ALONG(192, 96, "{%96,%97,%98,%99}", "%100", "%101")
ALONG(256, 128, "{%128,%129,%130,%131}", "%132", "%133")
extern __shared__ char shared_memory[];
#endif

static __device__ float infinity() { return __int_as_float(0x7f800000); }
static __device__ float not_a_number() { return __int_as_float(0x7fc00000); }

// ---- tiles ----------------------------------------------------------------------

// A tile in shared memory is made of slabs: 128 bytes of each row, swizzled by groups of 8 rows. Half of the last is not
// read where WIDTH is no multiple of 64. LEFTS tiles of rows stay, the others come in a ring.
template <int HALF_, int WIDTH_, int COLUMNS_, int GROUPS_, int STAGES_, int LEFTS_> struct Tile {
  enum {
    HALF = HALF_, WIDTH = WIDTH_, COLUMNS = COLUMNS_, GROUPS = GROUPS_, STAGES = STAGES_, LEFTS = LEFTS_,
    ROWS = 64 * GROUPS_, THREADS = 128 * (GROUPS_ + 1), SLABS = (WIDTH_ + 63) / 64,
    SCORES = COLUMNS_ / 2, OUT = WIDTH_ / 2,  // sums of a thread
    LEFT_BYTES = ROWS * SLABS * 128, RIGHT_BYTES = COLUMNS * SLABS * 128,
    // The barriers: one is complete when copies have come, the next when all have read what they brought.
    LEFT = 0, FIRST = 1, SECOND = FIRST + STAGES, BARRIERS = SECOND + STAGES,
    PATTERN = 1024,
    SHARED_BYTES = PATTERN + LEFTS * LEFT_BYTES + 2 * STAGES * RIGHT_BYTES + 16 * BARRIERS,
  };
  u32 start;

  __device__ Tile() { start = (in_shared(shared_memory) + PATTERN - 1) / PATTERN * PATTERN; }
  __device__ u32 left(int i) const { return start + i * LEFT_BYTES; }
  __device__ u32 first(int stage) const { return left(LEFTS) + stage * RIGHT_BYTES; }
  __device__ u32 second(int stage) const { return first(STAGES + stage); }
  __device__ u32 full(int barrier) const { return first(2 * STAGES) + 16 * barrier; }
  __device__ u32 empty(int barrier) const { return full(barrier) + 8; }
};

// The descriptor of a matrix in slabs, from where its groups of 8 rows start. leading: between slabs, where rows are
// summed over.
static __device__ u64 matrix_at(u32 at, u32 leading) {
  const u64 swizzle_128 = 1ull << 62, group = 1024 >> 4;
  return swizzle_128 | group << 32 | (u64)(leading >> 4) << 16 | (at & 0x3ffff) >> 4;
}

// A place in the ring.
template <class T> struct Turn {
  int stage, parity;
  __device__ Turn() : stage(0), parity(0) {}
  __device__ void next() {
    if (++stage == T::STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// The work of a block, piece after piece: some rows of one head, and the tiles of columns that one of them sees. Where
// later rows see more or fewer, a piece is two blocks of rows that see the same number together.
template <class T> struct Work {
  int batch, head, first, begin, end;  // begin, end: of tiles of columns
  int piece, half;

  __device__ Work() : piece(blockIdx.x), half(-1) {}
  __device__ bool next(const Call& call) {
    int halves = call.per_unit == call.blocks ? 1 : 2;
    if (++half == halves || (half == 1 && 2 * (piece % call.per_unit) + 1 == call.blocks)) {
      half = 0;
      piece += gridDim.x;
    }
    if (piece >= call.pieces) return false;
    int unit = piece / call.per_unit, place = piece % call.per_unit;
    batch = unit / call.heads;
    head = unit % call.heads;
    first = (half ? place : call.blocks - 1 - place) * T::ROWS;
    int last = min(first + T::ROWS, call.rows) - 1;
    begin = max(first + call.lower, 0) / T::COLUMNS;
    end = (max(min(last + call.upper + 1, call.columns), 0) + T::COLUMNS - 1) / T::COLUMNS;
    return true;
  }
};

// ---- copies -----------------------------------------------------------------------

// Where a head starts in a source.
struct Origin {
  const TensorMap* map;
  int head, batch;
  __device__ Origin(const Source& source, int head, int batch)
      : map(&source.map), head(head / source.group), batch(source.batches == 1 ? 0 : batch) {}
};

template <class T, int ROWS> static __device__ void copy_rows(const Origin& from, int first, u32 to, u32 barrier) {
  arrive_and_expect(barrier, ROWS * T::SLABS * 128);
#pragma unroll 1
  for (int slab = 0; slab < T::SLABS; slab++) copy_box(to + slab * ROWS * 128, from.map, barrier, 64 * slab, first, from.head, from.batch);
}

// In the forward, keys come one tile before the values beside which they are multiplied.
template <class T> static __device__ void copy_tiles(const Call& call, const T& tile) {
  const int LAG = T::LEFTS == 1;
  Turn<T> first, second;
  int parity = 1;
  for (Work<T> work; work.next(call);) {
    if (work.begin >= work.end) continue;
    wait(tile.empty(T::LEFT), parity);
    parity ^= 1;
#pragma unroll 1
    for (int i = 0; i < T::LEFTS; i++)
      copy_rows<T, T::ROWS>(Origin(call.left[i], work.head, work.batch), work.first, tile.left(i), tile.full(T::LEFT));
#pragma unroll 1
    for (int shared = 0; shared < call.shared; shared++) {
      int head = work.head * call.shared + shared;
      Origin one(call.right[0], head, work.batch), other(call.right[1], head, work.batch);
#pragma unroll 1
      for (int n = work.end - 1; n >= work.begin - LAG; n--) {
        if (n >= work.begin) {
          wait(tile.empty(T::FIRST + first.stage), first.parity ^ 1);
          copy_rows<T, T::COLUMNS>(one, n * T::COLUMNS, tile.first(first.stage), tile.full(T::FIRST + first.stage));
          first.next();
        }
        if (n + LAG < work.end) {
          wait(tile.empty(T::SECOND + second.stage), second.parity ^ 1);
          copy_rows<T, T::COLUMNS>(other, (n + LAG) * T::COLUMNS, tile.second(second.stage), tile.full(T::SECOND + second.stage));
          second.next();
        }
      }
    }
  }
}

// ---- products and scores --------------------------------------------------------------

// The largest or the sum of the 4 lanes that share a row.
static __device__ float over_row(float x, bool sum) {
  FOR(i, 2) {
    float other = __shfl_xor_sync(0xffffffff, x, i + 1);
    x = sum ? x + other : fmaxf(x, other);
  }
  return x;
}

// 1 - 2 / (exp(2 x) + 1), which is exact enough where x is small, as its error is not made larger than cap * 2^-23.
static __device__ float tanh_of(float x) { return 1 - __fdividef(2, exp2_of(x * 2.88539008f) + 1); }

// sums = left (64 rows) times right (COLUMNS rows) turned.
template <class T> static __device__ void multiply(float (&sums)[T::SCORES], u32 left, u32 right) {
  FOR(k, T::WIDTH / 16) {
    u32 part = k % 4 * 32;
    across<T::HALF>(sums, matrix_at(left + k / 4 * T::ROWS * 128 + part, 16), matrix_at(right + k / 4 * T::COLUMNS * 128 + part, 16), k);
  }
}
// sums += weights (64 x COLUMNS) times right (COLUMNS rows).
template <class T> static __device__ void add(float (&sums)[T::OUT], const u32 (&weights)[T::SCORES / 2], u32 right) {
  FOR(k, T::COLUMNS / 16) along<T::HALF>(sums, weights + 4 * k, matrix_at(right + k * 16 * 128, T::COLUMNS * 128));
}

template <class T> static __device__ u32 pair(float low, float high) { return T::HALF ? two_halves(low, high) : two_bfloats(low, high); }
template <class T> static __device__ void pack(u32 (&weights)[T::SCORES / 2], const float (&from)[T::SCORES]) {
  FOR(i, T::SCORES / 2) weights[i] = pair<T>(from[2 * i], from[2 * i + 1]);
}

// Whether each of the 64 rows of a warpgroup sees all columns of a tile.
template <class T> static __device__ bool sees_all(const Call& call, int group_row, int first) {
  return first + T::COLUMNS <= call.columns && first + T::COLUMNS - 1 <= group_row + call.upper && first >= group_row + 63 + call.lower;
}
// Hides the scores of columns that a row does not see. row: the thread's first; first: the tile's first column.
template <class T> static __device__ void hide(const Call& call, float (&scores)[T::SCORES], int row, int first) {
  int column = first + LANE % 4 * 2;
  FOR(i, 2) {
    int low = row + 8 * i + call.lower - column, high = min(row + 8 * i + call.upper, call.columns - 1) - column;
    FOR(n, T::COLUMNS / 8) FOR(j, 2) {
      int at = 8 * n + j;
      if (at < low || at > high) scores[4 * n + 2 * i + j] = -infinity();
    }
  }
}

// Writes a row of sums times a share, of which the thread has every eighth and ninth.
template <class T> static __device__ void write_row(const Target& to, const Work<T>& work, int row, const float* sums, float share) {
  u32* line = (u32*)(to.at + 2 * (work.batch * to.batch + work.head * to.head + row * to.row + LANE % 4 * 2));
  int width = to.width - LANE % 4 * 2;
  FOR(n, T::WIDTH / 8) {
    u32 both = pair<T>(sums[4 * n] * share, sums[4 * n + 1] * share);
    if (8 * n < width) line[4 * n] = both;
  }
}

// ---- forward --------------------------------------------------------------------------

template <class T> struct Rows {
  enum { MARGIN = 8 };
  float out[T::OUT], top[2], sum[2], shrink[2];  // top: of base 2
  float scores[T::SCORES];
  u32 weights[T::SCORES / 2];

  __device__ void clear() {
    FOR(i, T::OUT) out[i] = 0;
    FOR(i, 2) {
      top[i] = -infinity();
      sum[i] = 0;
    }
  }

  // Turns scores into weights, as shares of about the largest that a row has had. Where that grew, `shrink` lessens what
  // was summed: weights may be up to 2^MARGIN before they are scaled anew.
  __device__ bool take_exponentials(const Call& call, int row, int group_row, int key) {
    if (call.capped) FOR(i, T::SCORES) scores[i] = tanh_of(scores[i] * call.inner);
    if (!sees_all<T>(call, group_row, key)) hide<T>(call, scores, row, key);
    bool grew = false;
    FOR(i, 2) {
      float largest = scores[2 * i], before = top[i];
      FOR(n, T::COLUMNS / 8) largest = fmaxf(largest, fmaxf(scores[4 * n + 2 * i], scores[4 * n + 2 * i + 1]));
      largest = over_row(largest, false) * call.factor;
      if (largest > before + MARGIN) top[i] = largest;
      shrink[i] = top[i] == before ? 1 : exp2_of(before - top[i]);
      grew |= top[i] != before;
      float origin = top[i] == -infinity() ? 0 : top[i], added = 0;  // -inf less -inf is no number
      FOR(n, T::COLUMNS / 8) FOR(j, 2) {
        float& score = scores[4 * n + 2 * i + j];
        score = exp2_of(fmaf(score, call.factor, -origin));
        added += score;
      }
      sum[i] = fmaf(sum[i], shrink[i], added);
    }
    return __any_sync(0xffffffff, grew);
  }
  __device__ void lessen() { FOR(i, T::OUT) out[i] *= shrink[i / 2 % 2]; }

  // logsumexp is natural, with the sink of a head in it, and 0 for a row that has neither that nor a key.
  __device__ void write(const Call& call, const Work<T>& work, int row) {
    i64 unit = (i64)work.batch * call.heads + work.head;
    FOR(i, 2) {
      int at = row + 8 * i;
      float total = over_row(sum[i], true), peak = top[i], part = 1;
      bool sees = max(at + call.lower, 0) <= min(at + call.upper, call.columns - 1);
      if (call.sinks) {
        const char* own = call.sinks + work.head * call.sink_step * (call.wide_sinks ? 4 : 2);
        float sink = call.wide_sinks ? *(const float*)own : T::HALF ? half_to_float(*(const u16*)own) : __int_as_float((u32) * (const u16*)own << 16);
        sink *= 1.44269504f;
        float higher = fmaxf(peak, sink), origin = higher == -infinity() ? 0 : higher;
        part = exp2_of(peak - origin);
        total = total * part + exp2_of(sink - origin);
        peak = higher;
      } else if (total == 0 && sees) {
        total = not_a_number();  // each score overflowed
      }
      float share = total == 0 ? 0 : part / total;
      if (at >= call.rows) continue;
      if (call.logsumexp && LANE % 4 == 0)
        call.logsumexp[unit * call.rows + at] = total == 0 ? 0 : (peak + log2f(total)) * 0.693147181f;
      write_row<T>(call.out[0], work, at, out + 2 * i, share);
    }
  }
};

// One warp tells that it has read what a barrier guards.
static __device__ void release(u32 barrier) {
  if (LANE == 0) arrive(barrier);
}

// Warpgroups issue their products one after the other: meeting at a barrier of its own, each waits for the one before.
template <class T> static __device__ void take_turn(int group) { meet(1 + group, 256); }
template <class T> static __device__ void give_turn(int group) { come_by(1 + (group + 1) % T::GROUPS, 256); }

template <class T> static __device__ void attend(const Call& call, const T& tile, int group) {
  Rows<T> rows;
  Turn<T> keys, values;
  int parity = 0, of_group = 64 * group, of_thread = of_group + threadIdx.x % 128 / 32 * 16 + LANE / 4;
  u32 queries = tile.left(0) + of_group * 128;
  if (group == T::GROUPS - 1) give_turn<T>(group);
  for (Work<T> work; work.next(call);) {
    rows.clear();
    if (work.begin < work.end) {
      wait(tile.full(T::LEFT), parity);
      parity ^= 1;
      wait(tile.full(T::FIRST + keys.stage), keys.parity);
      take_turn<T>(group);
      begin_products();
      multiply<T>(rows.scores, queries, tile.first(keys.stage));
      end_products();
      give_turn<T>(group);
      wait_for_products<0>(rows.scores);
      release(tile.empty(T::FIRST + keys.stage));
      keys.next();
      int n = work.end - 1;
      rows.take_exponentials(call, work.first + of_thread, work.first + of_group, n * T::COLUMNS);
      pack<T>(rows.weights, rows.scores);
      for (n--; n >= work.begin; n--) {
        wait(tile.full(T::FIRST + keys.stage), keys.parity);
        take_turn<T>(group);
        begin_products();
        multiply<T>(rows.scores, queries, tile.first(keys.stage));
        end_products();
        wait(tile.full(T::SECOND + values.stage), values.parity);
        add<T>(rows.out, rows.weights, tile.second(values.stage));
        end_products();
        give_turn<T>(group);
        wait_for_products<1>(rows.scores);
        release(tile.empty(T::FIRST + keys.stage));
        keys.next();
        bool grew = rows.take_exponentials(call, work.first + of_thread, work.first + of_group, n * T::COLUMNS);
        wait_for_products<0>(rows.out);
        release(tile.empty(T::SECOND + values.stage));
        values.next();
        if (grew) rows.lessen();
        pack<T>(rows.weights, rows.scores);
      }
      release(tile.empty(T::LEFT));
      wait(tile.full(T::SECOND + values.stage), values.parity);
      begin_products();
      add<T>(rows.out, rows.weights, tile.second(values.stage));
      end_products();
      wait_for_products<0>(rows.out);
      release(tile.empty(T::SECOND + values.stage));
      values.next();
    }
    rows.write(call, work, work.first + of_thread);
  }
}

// ---- backward ---------------------------------------------------------------------------
//
// With weights P of a row, as exp(score - logsumexp), and its sum D of grad_out times out:
//
//   grad S = P (grad_out times value turned - D)          grad query = grad S times key, scaled
//   grad value = P turned times grad_out                  grad key = grad S turned times query, scaled
//
// P and grad S come turned where the keys are the rows (BOTH): then D and logsumexp belong to columns. A block adds up
// what all heads that share its rows give, in one order: the result is the same each time.

template <class T, bool BOTH> struct Slopes {
  float sums[T::OUT], more[BOTH ? T::OUT : 1], scores[T::SCORES], slopes[T::SCORES];
  u32 weights[T::SCORES / 2], turned[BOTH ? T::SCORES / 2 : 1];
  float along[2], logarithm[2];

  static __device__ float4 summary_of(const Call& call, const Work<T>& work, int head, int length, int at) {
    i64 unit = (i64)work.batch * call.heads * call.shared + head;
    return call.summary[unit * length + min(at, length - 1)];
  }
  static __device__ float to_base_2(const float4& summary) { return (summary.y + summary.z) * 1.44269504f; }

  __device__ void take_rows(const Call& call, const Work<T>& work, int row) {
    FOR(i, T::OUT) sums[i] = 0;
    if (BOTH) FOR(i, T::OUT) more[i] = 0;
    else FOR(i, 2) {
      float4 summary = summary_of(call, work, work.head, call.rows, row + 8 * i);
      along[i] = summary.x;
      logarithm[i] = to_base_2(summary);
    }
  }

  // Turns products into grad S, and P where both are wanted.
  template <bool CAPPED> __device__ void differentiate(const Call& call, const Work<T>& work, int head, int row, int group_row, int first) {
    if (CAPPED) FOR(i, T::SCORES) scores[i] = tanh_of(scores[i] * call.inner);
    if (!sees_all<T>(call, group_row, first)) hide<T>(call, scores, row, first);
    FOR(n, T::COLUMNS / 8) FOR(j, 2) {
      float4 summary;
      if (BOTH) summary = summary_of(call, work, head, call.columns, first + LANE % 4 * 2 + 8 * n + j);
      FOR(i, 2) {
        int at = 4 * n + 2 * i + j;
        float bend = CAPPED ? fmaxf(scores[at], -1) : 0;  // of what is hidden, any number
        scores[at] = exp2_of(fmaf(scores[at], call.factor, -(BOTH ? to_base_2(summary) : logarithm[i])));
        slopes[at] = scores[at] * (slopes[at] - (BOTH ? summary.x : along[i]));
        if (CAPPED) slopes[at] *= fmaf(-bend, bend, 1);
      }
    }
    pack<T>(weights, slopes);
    if (BOTH) FOR(i, T::SCORES / 2) turned[i] = pair<T>(scores[2 * i], scores[2 * i + 1]);
  }
};

template <class T, bool BOTH> static __device__ void differentiate(const Call& call, const T& tile, int group) {
  Slopes<T, BOTH> rows;
  Turn<T> turn;
  int parity = 0, of_group = 64 * group, of_thread = of_group + threadIdx.x % 128 / 32 * 16 + LANE / 4;
  for (Work<T> work; work.next(call);) {
    rows.take_rows(call, work, work.first + of_thread);
    if (work.begin < work.end) {
      wait(tile.full(T::LEFT), parity);
      parity ^= 1;
      for (int shared = 0; shared < call.shared; shared++)
        for (int n = work.end - 1; n >= work.begin; n--, turn.next()) {
          u32 first = tile.first(turn.stage), second = tile.second(turn.stage);
          wait(tile.full(T::FIRST + turn.stage), turn.parity);
          wait(tile.full(T::SECOND + turn.stage), turn.parity);
          begin_products();
          multiply<T>(rows.scores, tile.left(0) + of_group * 128, first);
          multiply<T>(rows.slopes, tile.left(1) + of_group * 128, second);
          end_products();
          wait_for_products<0>(rows.scores);
          hold(rows.slopes);
          int head = work.head * call.shared + shared;
          if (call.capped) rows.template differentiate<true>(call, work, head, work.first + of_thread, work.first + of_group, n * T::COLUMNS);
          else rows.template differentiate<false>(call, work, head, work.first + of_thread, work.first + of_group, n * T::COLUMNS);
          begin_products();
          add<T>(rows.sums, rows.weights, first);
          if constexpr (BOTH) add<T>(rows.more, rows.turned, second);
          end_products();
          wait_for_products<0>(rows.sums);
          if constexpr (BOTH) hold(rows.more);
          release(tile.empty(T::FIRST + turn.stage));
          release(tile.empty(T::SECOND + turn.stage));
        }
      release(tile.empty(T::LEFT));
    }
    FOR(i, 2) {
      int row = work.first + of_thread + 8 * i;
      if (row >= call.rows) continue;
      write_row<T>(call.out[0], work, row, rows.sums + 2 * i, call.scale);
      if constexpr (BOTH) write_row<T>(call.out[1], work, row, rows.more + 2 * i, 1);
    }
  }
}

// ---- kernels ----------------------------------------------------------------------------

// One warpgroup copies, and gives registers to the others, which compute.
template <class T, class Compute> static __device__ void run(const Call& call, Compute compute) {
  T tile;
  if (threadIdx.x == 0) {
    FOR(i, T::BARRIERS) {
      start_barrier(tile.full(i), i == T::LEFT ? T::LEFTS : 1);
      start_barrier(tile.empty(i), 4 * T::GROUPS);
    }
    publish_barriers();
  }
  __syncthreads();
  int group = first_lane(threadIdx.x / 128) - 1;
  if (group < 0) {
    fewer_registers<T::GROUPS == 2 ? 40 : 32>();
    if (threadIdx.x == 0) copy_tiles<T>(call, tile);
  } else {
    more_registers<T::GROUPS == 2 ? 232 : 160>();
    compute(tile, group);
  }
}
template <class T> static __device__ void forward(const Call& call) {
  run<T>(call, [&](const T& tile, int group) { attend<T>(call, tile, group); });
}
template <class T> static __device__ void query(const Call& call) {
  run<T>(call, [&](const T& tile, int group) { differentiate<T, false>(call, tile, group); });
}
template <class T> static __device__ void both(const Call& call) {
  run<T>(call, [&](const T& tile, int group) { differentiate<T, true>(call, tile, group); });
}

#define ENTRY(NAME, PASS, ...)                                                                                    \
  extern "C" __global__ void __launch_bounds__(Tile<__VA_ARGS__>::THREADS, 1) NAME(const __grid_constant__ Call call) { \
    PASS<Tile<__VA_ARGS__> >(call);                                                                               \
  }
#ifdef HOPPER_WHOLE
ENTRY(hopper_whole, forward, HOPPER_WHOLE)
#endif
#ifdef HOPPER_BANDED
ENTRY(hopper_banded, forward, HOPPER_BANDED)
#endif
#ifdef HOPPER_QUERY
ENTRY(hopper_query, query, HOPPER_QUERY)
#endif
#ifdef HOPPER_BOTH
ENTRY(hopper_both, both, HOPPER_BOTH)
#endif
