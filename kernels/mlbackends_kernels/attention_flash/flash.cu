// The forward of flash_cuda on NVIDIA GPUs from sm80 on: float16 and bfloat16, long queries and single ones.
//
// Compiled ahead of time by kernels/builder/cubins.py. Tiles, ranges and gradients are attention.cu's. On the CPU the
// tests compile both with cuda_on_host.h. It has not run on a GPU yet.
//
// Source: Dao 2023, FlashAttention-2; Dao et al. 2023, Flash-Decoding, for keys in parts; the PTX manual, cp.async.

#define MASKS 0
#include "../attention_cuda/attention.cu"

#ifdef __CUDACC__
static __device__ void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int OPEN> static __device__ void wait_for_groups() { asm volatile("cp.async.wait_group %0;" :: "n"(OPEN) : "memory"); }
#endif

// One sequence: where its rows and keys begin in tensors of one batch, and how many there are.
struct Span {
  int row, rows, key, keys;
};

// Serving in launches.py. spans: one a sequence; without, each batch is one. pages: the page of each `page_size` keys of
// a sequence, `page_step` from one sequence to the next and `page_across` from one page. pack: heads that share keys, all in one tile: row i of it is row i / pack of
// head i % pack. Keys are taken in `parts`, whose results `combine` joins.
struct Serving {
  Call call;
  const Span* spans;
  const int* pages;
  float *partial, *logarithms;  // (units, parts, WIDTH), and of base 2 (units, parts); a unit is a row of the result
  i64 page_step, page_across;
  int page_size, sequences, blocks, pack, parts, lower_right;
};

struct Sequence {
  int batch, rows, keys, row_0, key_0, shift;
  const int* pages;
  __device__ Sequence(const Serving& all, int index) : batch(index), rows(all.call.rows), keys(all.call.keys), row_0(0), key_0(0), pages(0) {
    if (all.spans) {
      Span span = all.spans[index];
      rows = span.rows, keys = span.keys, row_0 = span.row, key_0 = span.key;
    }
    if (all.pages) pages = all.pages + index * all.page_step;
    shift = all.lower_right ? keys - rows : 0;
  }
};

// A block has ROWS rows. Its warps share the tiles of COLUMNS keys and each has 16 R rows of its own (TEAMS 1), or each
// warp takes every TEAMS-th tile and all have the same rows. STAGES tiles of keys and values are in shared memory.
template <class MATH, int WIDTH_, int R_, int COLUMNS_, int WARPS_, int TEAMS_, int STAGES_> struct Flash {
  typedef MATH Math;
  typedef typename MATH::Element Element;
  enum {
    WIDTH = WIDTH_, R = R_, COLUMNS = COLUMNS_, N = COLUMNS_ / 8, WARPS = WARPS_, TEAMS = TEAMS_, STAGES = STAGES_,
    THREADS = 32 * WARPS_, MEMBERS = THREADS / TEAMS_, ROWS = 16 * R_ * WARPS_ / TEAMS_,
    STEP = MATH::STEP(WIDTH_), STAGE = 2 * COLUMNS_ * STEP,
  };
  static __device__ int team() { return TEAMS == 1 ? 0 : WARP; }
  static __device__ int member() { return TEAMS == 1 ? threadIdx.x : LANE; }
  static __device__ int warp_row() { return TEAMS == 1 ? WARP * 16 * R : 0; }
  static __device__ void meet() {
    if (TEAMS == 1) __syncthreads();
    else __syncwarp();
  }
};

// Brings rows into shared memory, zeros from row `end` and element `width` on: packed heads of the query. SIZE: elements
// that a thread copies at once, 8 of rows of whole and aligned 16 bytes.
template <class T, int SIZE>
static __device__ void bring_rows(u16* to, const Serving& all, const Sequence& own, int head, int first) {
  const Operand& from = all.call.query;
  const u16* source = place<const u16>(from, own.batch, head) + own.row_0 * from.row;
  int end = own.rows * all.pack, width = all.call.head_dim;
#pragma unroll 1
  for (int i = threadIdx.x; i < T::ROWS * (T::WIDTH / SIZE); i += T::THREADS) {
    int row = i / (T::WIDTH / SIZE), column = i % (T::WIDTH / SIZE) * SIZE, packed = first + row;
    bool inside = packed < end && column < width;
    const u16* at = source + packed % all.pack * from.head + packed / all.pack * from.row;
    u16* there = to + row * T::STEP + column;
    if (SIZE > 1) copy_chunk(there, inside ? at + column : source, inside);
    else *there = inside ? at[column * from.column] : 0;
  }
}

// Asks for the tile of keys and values from `start` on.
template <class T, int SIZE>
static __device__ void bring_tile(u16* to, const Serving& all, const Sequence& own, int head, int start) {
  const Call& call = all.call;
  const Operand &key = call.key, &value = call.value;
  const u16* keys = place<const u16>(key, 0, head);
  const u16* values = place<const u16>(value, 0, head);
#pragma unroll(SIZE > 1 ? 4 : 1)
  for (int i = T::member(); i < T::COLUMNS * (T::WIDTH / SIZE); i += T::MEMBERS) {
    int row = i / (T::WIDTH / SIZE), column = i % (T::WIDTH / SIZE) * SIZE, index = start + row;
    bool inside = index < own.keys;
    i64 page = own.batch, within = own.key_0 + index;
    if (own.pages) {
      page = inside ? own.pages[index / all.page_size * all.page_across] : 0;
      within = index % all.page_size;
    }
    const u16* a = keys + page * key.batch + within * key.row;
    const u16* b = values + page * value.batch + within * value.row;
    u16 *c = to + row * T::STEP + column, *d = c + T::COLUMNS * T::STEP;
    bool in_key = inside && column < call.head_dim, in_value = inside && column < call.value_dim;
    if (SIZE > 1) {
      copy_chunk(c, in_key ? a + column : keys, in_key);
      copy_chunk(d, in_value ? b + column : values, in_value);
    } else {
      *c = in_key ? a[column * key.column] : 0;
      *d = in_value ? b[column * value.column] : 0;
    }
  }
}
template <class T>
static __device__ void bring_tile(u16* to, const Serving& all, const Sequence& own, int head, int start) {
  if (all.call.key.fast && all.call.value.fast) bring_tile<T, 8>(to, all, own, head, start);
  else bring_tile<T, 1>(to, all, own, head, start);
}

// Writes rows of a warp that lie in shared memory.
template <class T, int SIZE>
static __device__ void write_rows(const u16* staged, const Serving& all, const Sequence& own, int head, int first) {
  const Operand& to = all.call.out;
  u16* target = place<u16>(to, own.batch, head) + own.row_0 * to.row;
#pragma unroll 1
  for (int i = LANE; i < 16 * T::R * (T::WIDTH / SIZE); i += 32) {
    int line = i / (T::WIDTH / SIZE), column = i % (T::WIDTH / SIZE) * SIZE, packed = first + line;
    if (packed >= own.rows * all.pack || column >= all.call.value_dim) continue;
    u16* at = target + packed % all.pack * to.head + packed / all.pack * to.row;
    const u16* from = staged + line * T::STEP + column;
    if (SIZE > 1) *(uint4*)(at + column) = *(const uint4*)from;
    else at[column * to.column] = *from;
  }
}

// The share of a row's own sum in that with a sink, and the logarithm of it all; all of base 2, sink: -inf for none.
static __device__ float settle(float top, float total, float sink, float& logarithm) {
  float origin = fmaxf(top, sink), shrink = total == 0 ? 0 : 1;
  if (sink != -infinity()) {
    shrink *= exp2_of(top - origin);
    total = total * shrink + exp2_of(sink - origin);
  }
  logarithm = total == 0 ? -infinity() : origin + log2f(total);
  return total == 0 ? 0 : shrink / total;
}

static __device__ void write_logarithm(const Call& call, int batch, int head, int row, float logarithm) {
  if (call.logsumexp.at)
    place<float>(call.logsumexp, batch, head)[row * call.logsumexp.row] = logarithm == -infinity() ? 0 : logarithm * 0.693147181f;
}

// What one step of the largest score is left to grow before sums are scaled anew, as a power of 2.
#define SLACK 8

template <class T> static __device__ void flash_attend(const Serving& all) {
  const Call& call = all.call;
  u16* queries = (u16*)shared_memory;
  u16* ring = queries + T::ROWS * T::STEP + T::team() * T::STAGES * T::STAGE;
  int part = blockIdx.x % all.parts, unit = blockIdx.x / all.parts;
  int first = (all.blocks - 1 - unit % all.blocks) * T::ROWS, heads = call.heads / all.pack;  // the longest first
  unit /= all.blocks;
  int head = unit % heads * all.pack;
  Sequence own(all, unit / heads);
  int rows = own.rows * all.pack;
  if (first >= rows) return;

  // The keys that any row of the tile sees, those that all do, and those of this part.
  Range highest(call, first / all.pack, own.shift, own.keys);
  Range lowest(call, (min(first + T::ROWS, rows) - 1) / all.pack, own.shift, own.keys);
  int begin = highest.first / T::COLUMNS * T::COLUMNS, end = lowest.end;
  if (all.parts > 1) {
    int tiles = (max(end - begin, 0) + T::COLUMNS - 1) / T::COLUMNS, each = (tiles + all.parts - 1) / all.parts;
    begin += part * each * T::COLUMNS;
    end = min(end, begin + each * T::COLUMNS);
  }
  const int next = T::TEAMS * T::COLUMNS;
  int start = begin + T::team() * T::COLUMNS;
  bool working = first + T::warp_row() < rows;

  if (call.query.fast) bring_rows<T, 8>(queries, all, own, head, first);
  else bring_rows<T, 1>(queries, all, own, head, first);
  end_group();
  FOR(i, T::STAGES - 1) {
    if (start + i * next < end) bring_tile<T>(ring + i * T::STAGE, all, own, head, start + i * next);
    end_group();
  }
  wait_for_groups<T::STAGES - 1>();
  __syncthreads();

  float out[T::R][T::WIDTH / 8][4], top[T::R][2], sum[T::R][2];
  FOR(r, T::R) FOR(n, T::WIDTH / 8) FOR(i, 4) out[r][n][i] = 0;
  FOR(r, T::R) FOR(i, 2) {
    top[r][i] = -infinity();
    sum[r][i] = 0;
  }
  bool lifted = call.softcap == 0 && call.scale > 0;  // else scores are made of products before all else
  float factor = (lifted ? call.scale : 1) * 1.44269504f;
  for (int stage = 0; start < end; start += next, stage = (stage + 1) % T::STAGES) {
    wait_for_groups<T::STAGES - 2>();
    T::meet();
    int ahead = start + (T::STAGES - 1) * next;
    if (ahead < end) bring_tile<T>(ring + (stage + T::STAGES - 1) % T::STAGES * T::STAGE, all, own, head, ahead);
    end_group();
    if (!working) continue;
    const u16 *keys = ring + stage * T::STAGE, *values = keys + T::COLUMNS * T::STEP;
    float weights[T::R][T::N][4];
    FOR(r, T::R) FOR(n, T::N) FOR(i, 4) weights[r][n][i] = 0;
    T::Math::template across<T::WIDTH>(weights, queries + T::warp_row() * T::STEP, keys);
    if (!lifted) make_scores(call, weights, (float(*)[T::N][4])0);
    if (start < lowest.first || start + T::COLUMNS > highest.end) {
      FOR(r, T::R) FOR(i, 2) {
        Range range(call, (first + T::warp_row() + LANE / 4 + 16 * r + 8 * i) / all.pack, own.shift, own.keys);
        FOR(n, T::N) FOR(j, 2)
          if (!range.has(start + LANE % 4 * 2 + 8 * n + j)) weights[r][n][2 * i + j] = -infinity();
      }
    }
    float origin[T::R][2];
    bool grew = false;
    FOR(r, T::R) FOR(i, 2) {
      float largest = weights[r][0][2 * i];
      FOR(n, T::N) largest = fmaxf(largest, fmaxf(weights[r][n][2 * i], weights[r][n][2 * i + 1]));
      largest = over(4, largest, false) * factor;
      origin[r][i] = largest > top[r][i] + SLACK ? largest : top[r][i];
      grew |= origin[r][i] != top[r][i];
    }
    if (__any_sync(0xffffffff, grew)) {
      FOR(r, T::R) FOR(i, 2) {
        float shrink = top[r][i] == origin[r][i] ? 1 : exp2_of(top[r][i] - origin[r][i]);
        top[r][i] = origin[r][i];
        sum[r][i] *= shrink;
        FOR(n, T::WIDTH / 8) FOR(j, 2) out[r][n][2 * i + j] *= shrink;
      }
    }
    FOR(r, T::R) FOR(i, 2) {
      float from = top[r][i] == -infinity() ? 0 : top[r][i];
      FOR(n, T::N) FOR(j, 2) {
        float& weight = weights[r][n][2 * i + j];
        weight = exp2_of(fmaf(weight, factor, -from));
        sum[r][i] += weight;
      }
    }
    T::Math::template along<T::WIDTH>(out, weights, values, (float*)0);
  }
  wait_for_groups<0>();

  FOR(r, T::R) FOR(i, 2) sum[r][i] = over(4, sum[r][i], true);
  if (T::TEAMS > 1) {  // the first warp adds up what all have
    __syncthreads();
    float4* left = (float4*)(queries + T::ROWS * T::STEP);
    const int each = T::R * (T::WIDTH / 8 + 1) * 32;
    if (WARP) {
      float4* own_left = left + (WARP - 1) * each;
      FOR(r, T::R) {
        FOR(n, T::WIDTH / 8) own_left[(r * (T::WIDTH / 8 + 1) + n) * 32 + LANE] = float4{out[r][n][0], out[r][n][1], out[r][n][2], out[r][n][3]};
        own_left[(r * (T::WIDTH / 8 + 1) + T::WIDTH / 8) * 32 + LANE] = float4{top[r][0], top[r][1], sum[r][0], sum[r][1]};
      }
    }
    __syncthreads();
    if (WARP) return;
    for (int other = 0; other < T::WARPS - 1; other++) FOR(r, T::R) {
      const float4* theirs = left + other * each + r * (T::WIDTH / 8 + 1) * 32 + LANE;
      float4 sums = theirs[T::WIDTH / 8 * 32];
      float mine[2], shares[2];
      FOR(i, 2) {
        float their_top = i ? sums.y : sums.x, whole = fmaxf(top[r][i], their_top);
        float from = whole == -infinity() ? 0 : whole;
        mine[i] = exp2_of(top[r][i] - from);
        shares[i] = exp2_of(their_top - from);
        sum[r][i] = sum[r][i] * mine[i] + (i ? sums.w : sums.z) * shares[i];
        top[r][i] = whole;
      }
      FOR(n, T::WIDTH / 8) {
        float4 there = theirs[n * 32];
        out[r][n][0] = out[r][n][0] * mine[0] + there.x * shares[0];
        out[r][n][1] = out[r][n][1] * mine[0] + there.y * shares[0];
        out[r][n][2] = out[r][n][2] * mine[1] + there.z * shares[1];
        out[r][n][3] = out[r][n][3] * mine[1] + there.w * shares[1];
      }
    }
  }
  if (!working) return;

  u16* staged = queries + T::warp_row() * T::STEP;  // no other warp reads these rows
  __syncwarp();
  FOR(r, T::R) FOR(i, 2) {
    int line = LANE / 4 + 16 * r + 8 * i, packed = first + T::warp_row() + line;
    int row = own.row_0 + packed / all.pack, its_head = head + packed % all.pack;
    Range range(call, packed / all.pack, own.shift, own.keys);
    bool exists = packed < rows;
    if (sum[r][i] == 0 && max(range.first, begin) < min(range.end, end)) sum[r][i] = not_a_number();  // each score overflowed
    float logarithm;
    if (all.parts == 1) {
      float sink = exists ? sink_of<typename T::Math>(call, its_head) * 1.44269504f : -infinity();
      float share = settle(top[r][i], sum[r][i], sink, logarithm);
      if (exists && LANE % 4 == 0) write_logarithm(call, own.batch, its_head, row, logarithm);
      FOR(n, T::WIDTH / 8)
        *(u32*)(staged + line * T::STEP + 8 * n + LANE % 4 * 2) = T::Math::pair(out[r][n][2 * i] * share, out[r][n][2 * i + 1] * share);
    } else if (exists) {
      i64 place_of_part = (((i64)min(own.batch, call.batches - 1) * call.heads + its_head) * call.rows + row) * all.parts + part;
      float share = settle(top[r][i], sum[r][i], -infinity(), logarithm);
      if (LANE % 4 == 0) all.logarithms[place_of_part] = logarithm != logarithm ? -3e38f : logarithm;
      FOR(n, T::WIDTH / 8)
        *(float2*)(all.partial + place_of_part * T::WIDTH + 8 * n + LANE % 4 * 2) = float2{out[r][n][2 * i] * share, out[r][n][2 * i + 1] * share};
    }
  }
  if (all.parts > 1) return;
  __syncwarp();
  if (call.out.fast) write_rows<T, 8>(staged, all, own, head, first + T::warp_row());
  else write_rows<T, 1>(staged, all, own, head, first + T::warp_row());
}

// Joins the parts of each row, a warp a row.
template <class T> static __device__ void flash_combine(const Serving& all) {
  const Call& call = all.call;
  i64 unit = (i64)blockIdx.x * T::WARPS + WARP;
  if (unit >= (i64)call.batches * call.heads * call.rows) return;
  int row = unit % call.rows, head = unit / call.rows % call.heads, batch = unit / call.rows / call.heads;
  const float* logarithms = all.logarithms + unit * all.parts;
  float top = -infinity(), total = 0, logarithm;
  for (int i = LANE; i < all.parts; i += 32) top = fmaxf(top, logarithms[i]);
  top = over(32, top, false);
  for (int i = LANE; i < all.parts; i += 32) total += top == -infinity() ? 0 : exp2_of(logarithms[i] - top);
  total = over(32, total, true);
  float sink = sink_of<typename T::Math>(call, head) * 1.44269504f;
  float share = settle(top, total, sink, logarithm);
  u16* target = place<u16>(call.out, batch, head) + row * call.out.row;
  for (int column = LANE; column < call.value_dim; column += 32) {
    float whole = 0;
    for (int i = 0; i < all.parts; i++) {
      float weight = top == -infinity() ? 0 : exp2_of(logarithms[i] - top);
      if (weight != 0) whole += weight * all.partial[(unit * all.parts + i) * T::WIDTH + column];
    }
    target[column * call.out.column] = T::Math::narrow(whole * share);
  }
  if (LANE == 0) write_logarithm(call, batch, head, row, top == -3e38f ? not_a_number() : logarithm);
}

#ifdef WIDTH_OF_ROWS
typedef Flash<MATH, WIDTH_OF_ROWS, FORWARD> Long;
typedef Flash<MATH, WIDTH_OF_ROWS, DECODE> Short;
typedef Tile<MATH, WIDTH_OF_ROWS, WIDTH_OF_ROWS, BACKWARD> Back;
extern "C" {
__global__ void __launch_bounds__(Long::THREADS) flash_long(const Serving all) { flash_attend<Long>(all); }
__global__ void __launch_bounds__(Short::THREADS) flash_short(const Serving all) { flash_attend<Short>(all); }
__global__ void __launch_bounds__(Short::THREADS) flash_combine(const Serving all) { flash_combine<Short>(all); }
__global__ void __launch_bounds__(Back::THREADS) flash_differentiate_sinks(const Call call) { differentiate_sinks<Back>(call); }
__global__ void __launch_bounds__(Back::THREADS) flash_summarize(const Call call) { summarize<Back>(call); }
__global__ void __launch_bounds__(Back::THREADS) flash_differentiate_query(const Call call) { differentiate_query<Back>(call); }
#if WIDTH_OF_ROWS <= 128
__global__ void __launch_bounds__(Back::THREADS) flash_differentiate_both(const Call call) { differentiate_both<Back>(call); }
#else
__global__ void __launch_bounds__(Back::THREADS) flash_differentiate_key(const Call call) { differentiate_key<Back>(call); }
__global__ void __launch_bounds__(Back::THREADS) flash_differentiate_value(const Call call) { differentiate_value<Back>(call); }
#endif
}
#endif
