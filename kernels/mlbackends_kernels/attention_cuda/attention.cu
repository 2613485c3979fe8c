// Attention forward and backward on NVIDIA GPUs from sm75 on: any lengths, strides and masks.
//
// Compiled by NVRTC without headers, one tile and pass at a time: see compiling.py. On the CPU the tests compile it
// with cuda_on_host.h, whose fibers stand for threads. It has not run on a GPU yet.
//
// Source: Dao 2023, FlashAttention-2; Milakov and Gimelshein 2018 for the running maximum; the PTX manual for the
// fragments of mma.m16n8k8 and m16n8k16: lane l holds row l / 4 and, of the sums, columns 2 (l % 4) and one more.

#ifndef __CUDACC__
#include "cuda_on_host.h"
#endif

typedef unsigned int u32;
typedef unsigned short u16;
typedef long long i64;

// A tensor (B, H, rows, width) or what extends to it. Strides count elements and are 0 along what repeats; `group`
// heads of the result share one of its own, of which there are `batches` times H / group. fast: rows of whole and
// aligned 16 bytes. Call and Operand stand in launches.py, too.
struct Operand {
  char* at;
  i64 batch, head, row, column;
  int batches, group, fast, reserved;
};

struct Call {
  Operand query, key, value, mask, out, logsumexp;
  Operand grad_out, grad_query, grad_key, grad_value;
  Operand summary;  // (B, H, L, 4) of float32: see `summarize`
  Operand sinks, grad_sinks;  // (H)
  int batches, heads, rows, keys, head_dim, value_dim;
  int shift, left, right;  // row i sees key j if i + shift - left <= j <= i + shift + right
  int mask_kind, sink_kind;
  float scale, softcap;  // softcap: c of c tanh(score / c), or 0
};

enum { NO_MASK, BOOLEANS, ELEMENTS, FLOATS };

#ifndef MASKS
#define MASKS 1  // 0: there is never a mask
#endif

#define FOR(i, n) _Pragma("unroll") for (int i = 0; i < (n); i++)

// ---- instructions ---------------------------------------------------------------

#ifdef __CUDACC__
#define LANE (threadIdx.x % 32)
#define WARP (threadIdx.x / 32)

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
static __device__ u16 float_to_half(float x) {
  u16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
static __device__ u32 two_halves(float low, float high) {
#if __CUDA_ARCH__ >= 800
  u32 both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  return float_to_half(low) | (u32)float_to_half(high) << 16;
#endif
}
static __device__ u32 two_bfloats(float low, float high) {
  u32 both = 0;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#endif
  return both;
}
static __device__ u32 in_shared(const void* at) { return (u32)__cvta_generic_to_shared(at); }

// Loads four 8 x 8 matrices of 16 bits; lane l points to row l % 8 of matrix l / 8.
template <bool TURNED> static __device__ void load_matrices(u32* to, const u16* row) {
  if (TURNED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(in_shared(row)) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(in_shared(row)) : "memory");
}

#define MMA(SHAPE_AND_TYPES)                                                                                     \
  asm("mma.sync.aligned." SHAPE_AND_TYPES " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"               \
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                                                   \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

static __device__ void multiply_half(float* sum, const u32* a, const u32* b) {
#if __CUDA_ARCH__ >= 800
  MMA("m16n8k16.row.col.f32.f16.f16.f32");
#else
  FOR(i, 2)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(a[2 * i]), "r"(a[2 * i + 1]), "r"(b[i]));
#endif
}
static __device__ void multiply_bfloat(float* sum, const u32* a, const u32* b) {
#if __CUDA_ARCH__ >= 800
  MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
#endif
}
static __device__ void multiply_tf32(float* sum, const u32* a, const u32* b) {
#if __CUDA_ARCH__ >= 800
  MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
#endif
}

// Copies 16 bytes into shared memory, zeros where `inside` is false.
static __device__ void copy_chunk(void* to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(in_shared(to)), "l"(from), "r"(inside ? 16 : 0) : "memory");
#else
  *(uint4*)to = inside ? *(const uint4*)from : uint4{0, 0, 0, 0};
#endif
}
static __device__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
extern __shared__ char shared_memory[];
#endif

static __device__ float infinity() { return __int_as_float(0x7f800000); }
static __device__ float not_a_number() { return __int_as_float(0x7fc00000); }
static __device__ float bfloat_to_float(u16 x) { return __int_as_float((u32)x << 16); }
static __device__ u16 float_to_bfloat(float x) {
  u32 bits = __float_as_int(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// ---- arithmetic: how tiles are kept, and how two are multiplied -------------------
//
// across: sums (16 R x 8 N) += left (16 R x DEPTH) times right (8 N x DEPTH) turned.
// along:  sums (16 R x WIDTH) += weights (16 R x 8 N) times right (8 N x WIDTH); weights lie as sums do.
// left and right are in shared memory, their rows STEP(width) elements apart, so that no two lanes that
// read at once meet in a bank. scratch: room for the weights of a warp, where one is needed.

struct HalfBits {
  typedef u16 Element;
  static __device__ float wide(u16 x) { return half_to_float(x); }
  static __device__ u16 narrow(float x) { return float_to_half(x); }
  static __device__ u32 pair(float low, float high) { return two_halves(low, high); }
  static __device__ void multiply(float* sum, const u32* a, const u32* b) { multiply_half(sum, a, b); }
};
struct BFloatBits {
  typedef u16 Element;
  static __device__ float wide(u16 x) { return bfloat_to_float(x); }
  static __device__ u16 narrow(float x) { return float_to_bfloat(x); }
  static __device__ u32 pair(float low, float high) { return two_bfloats(low, high); }
  static __device__ void multiply(float* sum, const u32* a, const u32* b) { multiply_bfloat(sum, a, b); }
};

template <class BITS> struct Narrow : BITS {
  typedef u16 Stored;
  enum { SCRATCH = 0 };
  static __host__ __device__ constexpr int STEP(int width) { return width + 8; }

  template <int DEPTH, int R, int N>
  static __device__ void across(float (&sums)[R][N][4], const u16* left, const u16* right) {
    FOR(k, DEPTH / 16) {
      u32 a[R][4], b[4];
      FOR(r, R) load_matrices<false>(a[r], left + (16 * r + LANE % 16) * STEP(DEPTH) + 16 * k + LANE / 16 * 8);
      FOR(n, N / 2) {
        load_matrices<false>(b, right + (16 * n + LANE / 16 * 8 + LANE % 8) * STEP(DEPTH) + 16 * k + LANE / 8 % 2 * 8);
        FOR(r, R) {
          BITS::multiply(sums[r][2 * n], a[r], b);
          BITS::multiply(sums[r][2 * n + 1], a[r], b + 2);
        }
      }
    }
  }

  template <int WIDTH, int R, int N>
  static __device__ void along(float (&sums)[R][WIDTH / 8][4], const float (&weights)[R][N][4], const u16* right, float*) {
    FOR(k, N / 2) {
      u32 a[R][4], b[4];
      FOR(r, R) FOR(i, 4) {
        const float* two = &weights[r][2 * k + i / 2][i % 2 * 2];
        a[r][i] = BITS::pair(two[0], two[1]);
      }
      FOR(n, WIDTH / 16) {
        load_matrices<true>(b, right + (16 * k + LANE % 16) * STEP(WIDTH) + 16 * n + LANE / 16 * 8);
        FOR(r, R) {
          BITS::multiply(sums[r][2 * n], a[r], b);
          BITS::multiply(sums[r][2 * n + 1], a[r], b + 2);
        }
      }
    }
  }
};
typedef Narrow<HalfBits> Float16;
typedef Narrow<BFloatBits> BFloat16;

struct FloatBits {
  typedef float Element;
  static __device__ float wide(float x) { return x; }
  static __device__ float narrow(float x) { return x; }
};

// float32 as the sum of two numbers of TF32: three products, without that of the two small parts.
struct ThreeTF32 : FloatBits {
  typedef float Stored;
  enum { SCRATCH = 0 };
  static __host__ __device__ constexpr int STEP(int width) { return width + 4; }

  // Rounded to nearest by hand, which is faster than cvt. What is infinite has no small part.
  static __device__ void split(float x, u32& large, u32& small) {
    large = (__float_as_int(x) + 0x1000) & 0xffffe000;
    small = (large & 0x7fffffff) == 0x7f800000 ? 0 : __float_as_int(x - __int_as_float(large));
  }

  template <int R> struct Left {
    u32 large[R][4], small[R][4];
  };
  template <int R, int N>
  static __device__ void multiply(float (&sums)[R][N][4], int n, const Left<R>& left, float first, float second) {
    u32 large[2], small[2];
    split(first, large[0], small[0]);
    split(second, large[1], small[1]);
    FOR(r, R) {
      multiply_tf32(sums[r][n], left.small[r], large);
      multiply_tf32(sums[r][n], left.large[r], small);
      multiply_tf32(sums[r][n], left.large[r], large);
    }
  }

  template <int DEPTH, int R, int N>
  static __device__ void across(float (&sums)[R][N][4], const float* left, const float* right) {
    FOR(k, DEPTH / 8) {
      Left<R> a;
      FOR(r, R) FOR(i, 4) {
        const float* at = left + (16 * r + i % 2 * 8 + LANE / 4) * STEP(DEPTH) + 8 * k + i / 2 * 4 + LANE % 4;
        split(*at, a.large[r][i], a.small[r][i]);
      }
      FOR(n, N) {
        const float* b = right + (8 * n + LANE / 4) * STEP(DEPTH) + 8 * k + LANE % 4;
        multiply(sums, n, a, b[0], b[4]);
      }
    }
  }

  // The order of the keys within a sum is free: column 2 i of the weights stands for k = i, 2 i + 1 for i + 4.
  template <int WIDTH, int R, int N>
  static __device__ void along(float (&sums)[R][WIDTH / 8][4], const float (&weights)[R][N][4], const float* right, float*) {
    FOR(k, N) {
      Left<R> a;
      FOR(r, R) FOR(i, 4) split(weights[r][k][i % 2 * 2 + i / 2], a.large[r][i], a.small[r][i]);
      FOR(n, WIDTH / 8) {
        const float* b = right + (8 * k + LANE % 4 * 2) * STEP(WIDTH) + 8 * n + LANE / 4;
        multiply(sums, n, a, b[0], b[STEP(WIDTH)]);
      }
    }
  }
};

// Products of float32 in full, without tensor cores. bfloat16 on sm75, whose tensor cores lack it, is widened.
template <class BITS> struct Full : BITS {
  typedef float Stored;
  enum { SCRATCH = 1 };
  static __host__ __device__ constexpr int STEP(int width) { return width + 4; }

  template <int DEPTH, int R, int N>
  static __device__ void across(float (&sums)[R][N][4], const float* left, const float* right) {
#pragma unroll 4
    for (int k = 0; k < DEPTH; k += 4) {
      float4 a[R][2];
      FOR(r, R) FOR(i, 2) a[r][i] = *(const float4*)(left + (16 * r + 8 * i + LANE / 4) * STEP(DEPTH) + k);
      FOR(n, N) FOR(j, 2) {
        float4 b = *(const float4*)(right + (8 * n + LANE % 4 * 2 + j) * STEP(DEPTH) + k);
        FOR(r, R) FOR(i, 2) {
          float& sum = sums[r][n][2 * i + j];
          sum = fmaf(a[r][i].x, b.x, fmaf(a[r][i].y, b.y, fmaf(a[r][i].z, b.z, fmaf(a[r][i].w, b.w, sum))));
        }
      }
    }
  }

  template <int WIDTH, int R, int N>
  static __device__ void along(float (&sums)[R][WIDTH / 8][4], const float (&weights)[R][N][4], const float* right, float* scratch) {
    __syncwarp();
    FOR(r, R) FOR(n, N) FOR(i, 4) {
      int row = 16 * r + i / 2 * 8 + LANE / 4;
      scratch[row * STEP(8 * N) + 8 * n + LANE % 4 * 2 + i % 2] = weights[r][n][i];
    }
    __syncwarp();
#pragma unroll 4
    for (int k = 0; k < 8 * N; k++) {
      float a[R][2];
      FOR(r, R) FOR(i, 2) a[r][i] = scratch[(16 * r + 8 * i + LANE / 4) * STEP(8 * N) + k];
      FOR(n, WIDTH / 8) {
        float2 b = *(const float2*)(right + k * STEP(WIDTH) + 8 * n + LANE % 4 * 2);
        FOR(r, R) FOR(i, 2) {
          sums[r][n][2 * i] = fmaf(a[r][i], b.x, sums[r][n][2 * i]);
          sums[r][n][2 * i + 1] = fmaf(a[r][i], b.y, sums[r][n][2 * i + 1]);
        }
      }
    }
  }
};
typedef Full<FloatBits> FullFloat32;
typedef Full<BFloatBits> FullBFloat16;

// ---- tiles ------------------------------------------------------------------------

// A block of WARPS warps has ROWS rows of one side of the scores, and takes COLUMNS of the other at a time.
template <class MATH, int HEAD_, int VALUE_, int R_, int COLUMNS_, int WARPS_> struct Tile {
  typedef MATH Math;
  typedef typename MATH::Element Element;
  typedef typename MATH::Stored Stored;
  enum {
    HEAD = HEAD_, VALUE = VALUE_, R = R_, N = COLUMNS_ / 8, COLUMNS = COLUMNS_, WARPS = WARPS_,
    ROWS = 16 * R_ * WARPS_, THREADS = 32 * WARPS_,
    HEAD_STEP = MATH::STEP(HEAD_), VALUE_STEP = MATH::STEP(VALUE_),
    SCRATCH_STEP = 16 * R_ * MATH::STEP(COLUMNS_),
  };

  // The rows of a warp in a tile, and the thread's row and column of its first sum.
  static __device__ int warp_row() { return WARP * 16 * R; }
  static __device__ int row() { return warp_row() + LANE / 4; }
  static __device__ int column() { return LANE % 4 * 2; }

  template <int DEPTH>
  static __device__ void across(float (&sums)[R][N][4], const Stored* left, const Stored* right) {
    FOR(r, R) FOR(n, N) FOR(i, 4) sums[r][n][i] = 0;
    MATH::template across<DEPTH>(sums, left + warp_row() * MATH::STEP(DEPTH), right);
  }
  template <int WIDTH>
  static __device__ void along(float (&sums)[R][WIDTH / 8][4], const float (&weights)[R][N][4], const Stored* right, Stored* scratch) {
    MATH::template along<WIDTH>(sums, weights, right, (float*)scratch + (MATH::SCRATCH ? WARP * SCRATCH_STEP : 0));
  }

  // Brings COUNT rows from `first` on into shared memory; zeros from row `end` and element `width` on.
  template <int COUNT, int WIDTH>
  static __device__ void bring(Stored* to, const Operand& from, int batch, int head, int first, int end, int width);
};

template <class E> static __device__ E* place(const Operand& of, int batch, int head) {
  return (E*)of.at + batch * of.batch + head / of.group * of.head;
}

template <class A, class B> struct Same { enum { value = 0 }; };
template <class A> struct Same<A, A> { enum { value = 1 }; };

template <class M, int H, int V, int R, int C, int W>
template <int COUNT, int WIDTH>
__device__ void Tile<M, H, V, R, C, W>::bring(Stored* to, const Operand& from, int batch, int head, int first, int end, int width) {
  const Element* source = place<const Element>(from, batch, head);
  if (Same<Element, Stored>::value && from.fast) {
    const int chunk = 16 / sizeof(Element), chunks = WIDTH / chunk;
#pragma unroll 4
    for (int i = threadIdx.x; i < COUNT * chunks; i += THREADS) {
      int row = first + i / chunks, column = i % chunks * chunk;
      bool inside = row < end && column < width;
      copy_chunk(to + i / chunks * M::STEP(WIDTH) + column, inside ? source + row * from.row + column : source, inside);
    }
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < COUNT * WIDTH; i += THREADS) {
      int row = first + i / WIDTH, column = i % WIDTH;
      bool inside = row < end && column < width;
      Element element = inside ? source[row * from.row + column * from.column] : Element(0);
      to[i / WIDTH * M::STEP(WIDTH) + column] = Same<Element, Stored>::value ? Stored(element) : Stored(M::wide(element));
    }
  }
}

// Waits until what this block has asked for lies in shared memory, and all are done with what lay there.
static __device__ void arrive() {
  wait_for_copies();
  __syncthreads();
}

// Writes the rows of a tile that are before `end`, each times its factor.
template <class T, int WIDTH>
static __device__ void write(const Operand& to, int batch, int head, int first, int end, int width, float (&sums)[T::R][WIDTH / 8][4], float (&factor)[T::R][2]) {
  typename T::Element* target = place<typename T::Element>(to, batch, head);
  FOR(r, T::R) FOR(n, WIDTH / 8) FOR(i, 4) {
    int row = first + T::row() + 16 * r + i / 2 * 8, column = T::column() + 8 * n + i % 2;
    if (row < end && column < width)
      target[row * to.row + column * to.column] = T::Math::narrow(sums[r][n][i] * factor[r][i / 2]);
  }
}

// ---- scores -------------------------------------------------------------------------

static __device__ bool has_mask(const Call& call) { return MASKS && call.mask_kind != NO_MASK; }
static __device__ i64 mask_offset(const Call& call, int batch, int head) {
  return !has_mask(call) ? 0 : batch * call.mask.batch + head / call.mask.group * call.mask.head;
}

// The keys that a row sees: from `first` on, and before `end`.
struct Range {
  int first, end;
  __device__ Range(const Call& call, int row, int shift, int keys)
      : first(max(row + shift - call.left, 0)), end(min(row + shift + call.right + 1, keys)) {}
  __device__ bool has(int key) const { return first <= key && key < end; }
};

static __device__ float exp_of(float x) { return exp2_of(x * 1.44269504f); }
static __device__ float tanh_of(float x) { return 1 - 2 / (exp_of(2 * x) + 1); }

// Makes scores of products. slopes: times what a small change of the product, scaled, does to its score.
template <int R, int N>
static __device__ void make_scores(const Call& call, float (&products)[R][N][4], float (*slopes)[N][4]) {
  if (call.softcap == 0) {
    FOR(r, R) FOR(n, N) FOR(i, 4) products[r][n][i] *= call.scale;
    return;
  }
  float factor = call.scale / call.softcap;
  FOR(r, R) FOR(n, N) FOR(i, 4) {
    float share = tanh_of(products[r][n][i] * factor);
    products[r][n][i] = share * call.softcap;
    if (slopes) slopes[r][n][i] *= 1 - share * share;
  }
}

// The sink of a head: one more score of its rows, that has no value; -inf where there is none.
template <class Math> static __device__ float sink_of(const Call& call, int head) {
  if (call.sink_kind == NO_MASK) return -infinity();
  i64 index = head * call.sinks.head;
  const char* at = call.sinks.at;
  return call.sink_kind == FLOATS ? ((const float*)at)[index] : Math::wide(((const typename Math::Element*)at)[index]);
}

// Adds the mask to a score, -inf where the row does not see the key, and tells whether it does.
template <class Math>
static __device__ bool masked(const Call& call, i64 offset, int row, int key, float& score) {
  bool shown = row < call.rows && Range(call, row, call.shift, call.keys).has(key);
  if (shown && has_mask(call)) {
    i64 index = offset + row * call.mask.row + key * call.mask.column;
    if (call.mask_kind == BOOLEANS) {
      shown = call.mask.at[index] != 0;
    } else {
      const void* mask = call.mask.at;
      float added = call.mask_kind == FLOATS ? ((const float*)mask)[index] : Math::wide(((const typename Math::Element*)mask)[index]);
      score += added;
      shown = added != -infinity();
    }
  }
  if (!shown) score = -infinity();
  return shown;
}

// Tells whether each row of a tile, from `row` on, sees each of its keys, and nothing is added to the scores.
static __device__ bool sees_all(const Call& call, int row, int rows, int key, int keys) {
  return !has_mask(call) && row + rows <= call.rows && Range(call, row + rows - 1, call.shift, call.keys).first <= key &&
         key + keys <= Range(call, row, call.shift, call.keys).end;
}

// The largest or the sum of the 4 lanes that share a row, or of all 32 lanes.
static __device__ float over(int lanes, float x, bool sum) {
#pragma unroll
  for (int apart = 1; apart < lanes; apart *= 2) {
    float other = __shfl_xor_sync(0xffffffff, x, apart);
    x = sum ? x + other : fmaxf(x, other);
  }
  return x;
}

// ---- forward --------------------------------------------------------------------------

// A block computes ROWS rows of one head. logsumexp is natural, and 0 for a row that sees no key, as its output is.
template <class T> static __device__ void forward(const Call& call) {
  typedef typename T::Stored Stored;
  Stored* queries = (Stored*)shared_memory;
  Stored* keys = queries + T::ROWS * T::HEAD_STEP;
  Stored* values = keys + T::COLUMNS * T::HEAD_STEP;
  Stored* scratch = values + T::COLUMNS * T::VALUE_STEP;
  int blocks = (call.rows + T::ROWS - 1) / T::ROWS;
  int unit = blockIdx.x / blocks, batch = unit / call.heads, head = unit % call.heads;
  int first = (blocks - 1 - blockIdx.x % blocks) * T::ROWS;  // the longest first, where causal
  int begin = Range(call, first, call.shift, call.keys).first / T::COLUMNS * T::COLUMNS;
  int end = Range(call, first + T::ROWS - 1, call.shift, call.keys).end;
  bool working = first + T::warp_row() < call.rows;
  i64 offset = mask_offset(call, batch, head);

  float out[T::R][T::VALUE / 8][4], top[T::R][2], sum[T::R][2];
  bool seen[T::R][2];
  FOR(r, T::R) FOR(n, T::VALUE / 8) FOR(i, 4) out[r][n][i] = 0;
  FOR(r, T::R) FOR(i, 2) {
    int row = first + T::row() + 16 * r + 8 * i;
    top[r][i] = -infinity();
    sum[r][i] = 0;
    Range range(call, row, call.shift, call.keys);
    seen[r][i] = !has_mask(call) && range.first < range.end;
  }
  T::template bring<T::ROWS, T::HEAD>(queries, call.query, batch, head, first, call.rows, call.head_dim);
  T::template bring<T::COLUMNS, T::HEAD>(keys, call.key, batch, head, begin, call.keys, call.head_dim);
  for (int start = begin; start < end; start += T::COLUMNS) {
    float weights[T::R][T::N][4];
    arrive();
    T::template bring<T::COLUMNS, T::VALUE>(values, call.value, batch, head, start, call.keys, call.value_dim);
    if (working) {
      T::template across<T::HEAD>(weights, queries, keys);
      make_scores(call, weights, (float(*)[T::N][4])0);
      if (!sees_all(call, first, T::ROWS, start, T::COLUMNS)) {
        FOR(r, T::R) FOR(n, T::N) FOR(i, 4) {
          int row = first + T::row() + 16 * r + i / 2 * 8, key = start + T::column() + 8 * n + i % 2;
          seen[r][i / 2] |= masked<typename T::Math>(call, offset, row, key, weights[r][n][i]);
        }
      }
      FOR(r, T::R) FOR(i, 2) {
        float largest = top[r][i];
        FOR(n, T::N) largest = fmaxf(largest, fmaxf(weights[r][n][2 * i], weights[r][n][2 * i + 1]));
        largest = over(4, largest, false);
        float origin = largest == -infinity() ? 0 : largest;  // -inf less -inf is no number
        float shrink = exp_of(top[r][i] - origin);
        top[r][i] = largest;
        sum[r][i] *= shrink;
        FOR(n, T::VALUE / 8) FOR(j, 2) out[r][n][2 * i + j] *= shrink;
        FOR(n, T::N) FOR(j, 2) {
          float& weight = weights[r][n][2 * i + j];
          weight = exp_of(weight - origin);
          sum[r][i] += weight;
        }
      }
    }
    arrive();
    if (start + T::COLUMNS < end)
      T::template bring<T::COLUMNS, T::HEAD>(keys, call.key, batch, head, start + T::COLUMNS, call.keys, call.head_dim);
    if (working) T::template along<T::VALUE>(out, weights, values, scratch);
  }
  wait_for_copies();
  if (!working) return;
  float factor[T::R][2], sink = sink_of<typename T::Math>(call, head);
  float* logarithms = call.logsumexp.at ? place<float>(call.logsumexp, batch, head) : 0;
  FOR(r, T::R) FOR(i, 2) {
    int row = first + T::row() + 16 * r + 8 * i;
    bool sees = over(4, seen[r][i], false) > 0;
    float total = over(4, sum[r][i], true);
    if (total == 0 && sees) total = not_a_number();  // each score overflowed
    float origin = fmaxf(top[r][i], sink), shrink = total == 0 ? 0 : 1;
    if (sink != -infinity()) {
      shrink *= exp_of(top[r][i] - origin);
      total = total * shrink + exp_of(sink - origin);
    }
    factor[r][i] = total == 0 ? 0 : shrink / total;
    if (logarithms && LANE % 4 == 0 && row < call.rows)
      logarithms[row * call.logsumexp.row] = total == 0 ? 0 : origin + logf(total);
  }
  write<T, T::VALUE>(call.out, batch, head, first, call.rows, call.value_dim, out, factor);
}

// ---- backward ---------------------------------------------------------------------------
//
// With weights P of a row, as exp(score - logsumexp), and its sum D of grad_out times out:
//
//   grad value = P turned times grad_out        grad S = P (grad_out times value turned - D)
//   grad query = grad S times key, scaled       grad key = grad S turned times query, scaled
//
// One pass gives the gradient of the query, one or two those of key and value. Each block adds up what all batches and
// heads that share its rows give, in one order: the result is the same each time.

// Writes what the passes need of each row: D, and two numbers whose sum is the logsumexp. One is 0, but where the
// logarithm of the sum would be lost beside the largest score, which is what a mask of -1e9 or less adds.
template <class T> static __device__ void summarize(const Call& call) {
  typedef typename T::Element Element;
  i64 unit = (i64)blockIdx.x * T::WARPS + WARP;
  if (unit >= (i64)call.batches * call.heads * call.rows) return;
  int row = unit % call.rows, head = unit / call.rows % call.heads, batch = unit / call.rows / call.heads;
  const Element* out = place<const Element>(call.out, batch, head) + row * call.out.row;
  const Element* coming = place<const Element>(call.grad_out, batch, head) + row * call.grad_out.row;
  float along = 0;
  for (int i = LANE; i < call.value_dim; i += 32)
    along += T::Math::wide(coming[i * call.grad_out.column]) * T::Math::wide(out[i * call.out.column]);
  along = over(32, along, true);
  float top = place<const float>(call.logsumexp, batch, head)[row * call.logsumexp.row], rest = 0;
  if (fabsf(top) > 16384) {
    const Element* query = place<const Element>(call.query, batch, head) + row * call.query.row;
    const Element* keys = place<const Element>(call.key, batch, head);
    i64 offset = mask_offset(call, batch, head);
    float sink = sink_of<typename T::Math>(call, head);
    float largest = LANE ? -infinity() : sink, sum = LANE || sink == -infinity() ? 0 : 1;
    for (int key = LANE; key < call.keys; key += 32) {
      float products[1][1][4] = {}, &score = products[0][0][0];
      for (int i = 0; i < call.head_dim; i++)
        score = fmaf(T::Math::wide(query[i * call.query.column]), T::Math::wide(keys[key * call.key.row + i * call.key.column]), score);
      make_scores(call, products, (float(*)[1][4])0);
      if (!masked<typename T::Math>(call, offset, row, key, score)) continue;
      float before = largest;
      largest = fmaxf(largest, score);
      sum = sum * exp_of(before - largest) + exp_of(score - largest);
    }
    float whole = over(32, largest, false);
    sum = over(32, largest == -infinity() ? 0 : sum * exp_of(largest - whole), true);
    if (sum > 0) {
      top = whole;
      rest = logf(sum);
    }
  }
  if (LANE == 0) *((float4*)call.summary.at + unit) = float4{along, top, rest, 0};
}

static __device__ float4 summary_of(const Call& call, int batch, int head, int row) {
  i64 unit = ((i64)batch * call.heads + head) * call.rows + row;
  return row < call.rows ? *((const float4*)call.summary.at + unit) : float4{0, 0, 0, 0};
}

static __device__ float weight_of(float score, const float4& summary) {
  float apart = score - summary.y - summary.z;
  return exp_of(apart > 0 ? 0 : apart);  // no weight is above 1, however scores are rounded
}

// The batches and heads of the result that share rows of a tensor with gradient `own`.
struct Sharers {
  int batch, batches, head, heads;
  __device__ Sharers(const Call& call, const Operand& own, int unit) {
    int own_heads = max(call.heads / own.group, 1);
    bool one = own.batches == 1;
    batch = one ? 0 : unit / own_heads;
    batches = one ? call.batches : batch + 1;
    head = unit % own_heads * own.group;
    heads = min(head + own.group, call.heads);
  }
};

template <class T> static __device__ void differentiate_query(const Call& call) {
  typedef typename T::Stored Stored;
  Stored* queries = (Stored*)shared_memory;
  Stored* coming = queries + T::ROWS * T::HEAD_STEP;
  Stored* keys = coming + T::ROWS * T::VALUE_STEP;
  Stored* values = keys + T::COLUMNS * T::HEAD_STEP;
  Stored* scratch = values + T::COLUMNS * T::VALUE_STEP;
  int blocks = (call.rows + T::ROWS - 1) / T::ROWS, unit = blockIdx.x / blocks;
  int first = (blocks - 1 - blockIdx.x % blocks) * T::ROWS;
  int begin = Range(call, first, call.shift, call.keys).first / T::COLUMNS * T::COLUMNS;
  int end = Range(call, first + T::ROWS - 1, call.shift, call.keys).end;
  bool working = first + T::warp_row() < call.rows;
  Sharers sharers(call, call.grad_query, unit);

  float sums[T::R][T::HEAD / 8][4], factor[T::R][2];
  FOR(r, T::R) FOR(n, T::HEAD / 8) FOR(i, 4) sums[r][n][i] = 0;
  FOR(r, T::R) FOR(i, 2) factor[r][i] = call.scale;
  for (int batch = sharers.batch; batch < sharers.batches; batch++)
    for (int head = sharers.head; head < sharers.heads; head++) {
      float4 summary[T::R][2];
      FOR(r, T::R) FOR(i, 2) summary[r][i] = summary_of(call, batch, head, first + T::row() + 16 * r + 8 * i);
      T::template bring<T::ROWS, T::HEAD>(queries, call.query, batch, head, first, call.rows, call.head_dim);
      T::template bring<T::ROWS, T::VALUE>(coming, call.grad_out, batch, head, first, call.rows, call.value_dim);
      T::template bring<T::COLUMNS, T::HEAD>(keys, call.key, batch, head, begin, call.keys, call.head_dim);
      i64 offset = mask_offset(call, batch, head);
      for (int start = begin; start < end; start += T::COLUMNS) {
        float weights[T::R][T::N][4], slopes[T::R][T::N][4];
        arrive();
        T::template bring<T::COLUMNS, T::VALUE>(values, call.value, batch, head, start, call.keys, call.value_dim);
        if (working) T::template across<T::HEAD>(weights, queries, keys);
        arrive();
        if (working) {
          T::template across<T::VALUE>(slopes, coming, values);
          FOR(r, T::R) FOR(n, T::N) FOR(i, 4) slopes[r][n][i] -= summary[r][i / 2].x;
          make_scores(call, weights, slopes);
          if (!sees_all(call, first, T::ROWS, start, T::COLUMNS)) {
            FOR(r, T::R) FOR(n, T::N) FOR(i, 4) {
              int row = first + T::row() + 16 * r + i / 2 * 8, key = start + T::column() + 8 * n + i % 2;
              masked<typename T::Math>(call, offset, row, key, weights[r][n][i]);
            }
          }
          FOR(r, T::R) FOR(n, T::N) FOR(i, 4) slopes[r][n][i] *= weight_of(weights[r][n][i], summary[r][i / 2]);
          T::template along<T::HEAD>(sums, slopes, keys, scratch);
        }
        __syncthreads();
        if (start + T::COLUMNS < end)
          T::template bring<T::COLUMNS, T::HEAD>(keys, call.key, batch, head, start + T::COLUMNS, call.keys, call.head_dim);
      }
      arrive();
    }
  if (working)
    write<T, T::HEAD>(call.grad_query, sharers.batch, sharers.head, first, call.rows, call.head_dim, sums, factor);
}

template <class T, bool KEY, bool VALUE> static __device__ void differentiate_keys(const Call& call) {
  typedef typename T::Stored Stored;
  Stored* keys = (Stored*)shared_memory;
  Stored* values = keys + T::ROWS * T::HEAD_STEP;
  Stored* queries = values + T::ROWS * T::VALUE_STEP;
  Stored* coming = queries + T::COLUMNS * T::HEAD_STEP;
  Stored* scratch = coming + T::COLUMNS * T::VALUE_STEP;
  int blocks = (call.keys + T::ROWS - 1) / T::ROWS, unit = blockIdx.x / blocks;
  int first = blockIdx.x % blocks * T::ROWS;
  int begin = max(first - call.right - call.shift, 0) / T::COLUMNS * T::COLUMNS;
  int end = min(first + T::ROWS + call.left - call.shift, call.rows);
  bool working = first + T::warp_row() < call.keys;
  Sharers sharers(call, KEY ? call.grad_key : call.grad_value, unit);

  float for_key[T::R][T::HEAD / 8][4], for_value[T::R][T::VALUE / 8][4], factor[T::R][2];
  FOR(r, T::R) FOR(n, T::HEAD / 8) FOR(i, 4) for_key[r][n][i] = 0;
  FOR(r, T::R) FOR(n, T::VALUE / 8) FOR(i, 4) for_value[r][n][i] = 0;
  for (int batch = sharers.batch; batch < sharers.batches; batch++)
    for (int head = sharers.head; head < sharers.heads; head++) {
      T::template bring<T::ROWS, T::HEAD>(keys, call.key, batch, head, first, call.keys, call.head_dim);
      T::template bring<T::ROWS, T::VALUE>(values, call.value, batch, head, first, call.keys, call.value_dim);
      T::template bring<T::COLUMNS, T::HEAD>(queries, call.query, batch, head, begin, call.rows, call.head_dim);
      i64 offset = mask_offset(call, batch, head);
      for (int start = begin; start < end; start += T::COLUMNS) {
        float weights[T::R][T::N][4], slopes[T::R][T::N][4];
        arrive();
        T::template bring<T::COLUMNS, T::VALUE>(coming, call.grad_out, batch, head, start, call.rows, call.value_dim);
        if (working) T::template across<T::HEAD>(weights, keys, queries);
        arrive();
        if (working) {
          if (KEY) T::template across<T::VALUE>(slopes, values, coming);
          float4 summary[T::N][2];
          FOR(n, T::N) FOR(j, 2) summary[n][j] = summary_of(call, batch, head, start + T::column() + 8 * n + j);
          if (KEY) FOR(r, T::R) FOR(n, T::N) FOR(i, 4) slopes[r][n][i] -= summary[n][i % 2].x;
          make_scores(call, weights, KEY ? slopes : (float(*)[T::N][4])0);
          if (!sees_all(call, start, T::COLUMNS, first, T::ROWS)) {
            FOR(r, T::R) FOR(n, T::N) FOR(i, 4)
              masked<typename T::Math>(call, offset, start + T::column() + 8 * n + i % 2, first + T::row() + 16 * r + i / 2 * 8, weights[r][n][i]);
          }
          FOR(r, T::R) FOR(n, T::N) FOR(i, 4) {
            weights[r][n][i] = weight_of(weights[r][n][i], summary[n][i % 2]);
            if (KEY) slopes[r][n][i] *= weights[r][n][i];
          }
          if (VALUE) T::template along<T::VALUE>(for_value, weights, coming, scratch);
          if (KEY) T::template along<T::HEAD>(for_key, slopes, queries, scratch);
        }
        __syncthreads();
        if (start + T::COLUMNS < end)
          T::template bring<T::COLUMNS, T::HEAD>(queries, call.query, batch, head, start + T::COLUMNS, call.rows, call.head_dim);
      }
      arrive();
    }
  if (!working) return;
  if (KEY) {
    FOR(r, T::R) FOR(i, 2) factor[r][i] = call.scale;
    write<T, T::HEAD>(call.grad_key, sharers.batch, sharers.head, first, call.keys, call.head_dim, for_key, factor);
  }
  if (VALUE) {
    FOR(r, T::R) FOR(i, 2) factor[r][i] = 1;
    write<T, T::VALUE>(call.grad_value, sharers.batch, sharers.head, first, call.keys, call.value_dim, for_value, factor);
  }
}
template <class T> static __device__ void differentiate_key(const Call& call) { differentiate_keys<T, true, false>(call); }
template <class T> static __device__ void differentiate_value(const Call& call) { differentiate_keys<T, false, true>(call); }
template <class T> static __device__ void differentiate_both(const Call& call) { differentiate_keys<T, true, true>(call); }

// A block adds up the gradient of the sink of a head: what it takes from each row.
template <class T> static __device__ void differentiate_sinks(const Call& call) {
  int head = blockIdx.x;
  float* sums = (float*)shared_memory;
  float sink = sink_of<typename T::Math>(call, head), sum = 0;
  for (i64 i = threadIdx.x; i < (i64)call.batches * call.rows; i += T::THREADS) {
    float4 row = summary_of(call, i / call.rows, head, i % call.rows);
    sum -= weight_of(sink, row) * row.x;
  }
  sum = over(32, sum, true);
  if (LANE == 0) sums[WARP] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  FOR(i, T::WARPS - 1) sum += sums[i + 1];
  char* at = call.grad_sinks.at;
  i64 index = head * call.grad_sinks.head;
  if (call.sink_kind == FLOATS) ((float*)at)[index] = sum;
  else ((typename T::Element*)at)[index] = T::Math::narrow(sum);
}

#ifdef TILE
#define NAMED(pass) attention_##pass
#define ENTRY(pass) NAMED(pass)
extern "C" __global__ void __launch_bounds__(Tile<TILE>::THREADS) ENTRY(PASS)(const Call call) { PASS<Tile<TILE> >(call); }
#endif
