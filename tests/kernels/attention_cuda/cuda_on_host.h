// CUDA C++ on the CPU: a fiber stands for each thread of a block, and a fiber that waits lets another one run.
//
// What warps do together (shuffles, matrix loads and products) is done by the last lane that comes, from what all have
// left; fragments lie as the PTX manual says. Shared memory starts as NaN, so that what was not written is noticed;
// what an asynchronous copy writes is NaN from when it is asked for until its thread has waited for it.
#pragma once
#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <ucontext.h>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define _Pragma(text)
using std::max;
using std::min;

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct Index { unsigned x; };

namespace host {
enum { STACK = 1 << 17, MOST = 1024 };
struct Copy { void* to; const void* from; };
struct Fiber {
  ucontext_t start;
  jmp_buf at;
  bool started, done;
  std::vector<Copy> open;
  std::deque<std::vector<Copy> > groups;
};
struct Meeting { unsigned come, passed; };
struct Warp {
  Meeting meeting;
  float left_float[32], sums[32][4], result[32][4];
  uint32_t a[32][4], b[32][2], loaded[32][4];
  const uint16_t* row[32];
};
static Fiber fibers[MOST];
static std::vector<char> stacks;
static Warp warps[MOST / 32];
static Meeting block;
static unsigned current, threads, living, block_index, disorder;
static jmp_buf finished;
static void (*body)();

static void resume(unsigned next) {
  current = next;
  if (fibers[next].started) _longjmp(fibers[next].at, 1);
  fibers[next].started = true;
  setcontext(&fibers[next].start);
}
// The lanes of a warp run in turn, and now and then another warp: one may be far ahead, so that a missing barrier shows.
static unsigned following(unsigned next) {
  disorder ^= disorder << 13;
  disorder ^= disorder >> 17;
  disorder ^= disorder << 5;
  next = disorder % 32 ? next / 32 * 32 + (next + 1) % 32 : disorder / 32 % threads;
  while (fibers[next].done) next = (next + 1) % threads;
  return next;
}
static void give_way() {
  unsigned next = following(current);
  if (next != current && !_setjmp(fibers[current].at)) resume(next);
}
static void run_fiber() {
  body();
  fibers[current].done = true;
  if (--living == 0) _longjmp(finished, 1);
  resume(following(current));
}
// Waits for `count`; the last that comes does `work` for all.
template <class Work> static void meet(Meeting& meeting, unsigned count, Work work) {
  unsigned passed = meeting.passed;
  if (++meeting.come == count) {
    work();
    meeting.come = 0;
    meeting.passed++;
  } else {
    for (unsigned turns = 0; meeting.passed == passed; give_way())
      if (++turns > 1000000) { fprintf(stderr, "threads wait for each other for ever\n"); abort(); }
  }
}
static unsigned lane() { return current % 32; }
static Warp& warp() { return warps[current / 32]; }
static unsigned row_of(unsigned lane, int i) { return lane / 4 + i / 2 * 8; }
static unsigned column_of(unsigned lane, int i) { return lane % 4 * 2 + i % 2; }

template <class Body> static void launch(unsigned grid, unsigned count, char* shared, size_t bytes, Body work) {
  static Body* now;
  now = &work;
  body = [] { (*now)(); };
  threads = count;
  stacks.resize((size_t)MOST * STACK);
  for (volatile unsigned at = 0; at < grid; at = at + 1) {
    block_index = at;
    disorder = at + 1;
    living = threads;
    memset(shared, 0xff, bytes + 4096);
    memset(warps, 0, sizeof warps);
    block = Meeting();
    for (unsigned i = 0; i < threads; i++) {
      Fiber& fiber = fibers[i];
      fiber.started = fiber.done = false;
      fiber.open.clear();
      fiber.groups.clear();
      getcontext(&fiber.start);
      fiber.start.uc_stack.ss_sp = &stacks[(size_t)i * STACK];
      fiber.start.uc_stack.ss_size = STACK;
      fiber.start.uc_link = nullptr;
      makecontext(&fiber.start, run_fiber, 0);
    }
    if (!_setjmp(finished)) resume(0);
    for (int i = 0; i < 4096; i++)
      if (shared[bytes + i] != '\xff') { fprintf(stderr, "a block wrote behind its shared memory\n"); abort(); }
  }
}
}  // namespace host

static struct { struct { operator unsigned() const { return host::current; } } x; } threadIdx;
static struct { struct { operator unsigned() const { return host::block_index; } } x; } blockIdx;
#define LANE ((int)host::lane())
#define WARP ((int)(host::current / 32))

alignas(128) static char shared_memory[232448 + 4096];

static void __syncthreads() { host::meet(host::block, host::threads, [] {}); }
static void __syncwarp() { host::meet(host::warp().meeting, 32, [] {}); }
static float __shfl_xor_sync(unsigned, float mine, int apart) {
  host::Warp& warp = host::warp();
  warp.left_float[LANE] = mine;
  host::meet(warp.meeting, 32, [] {});
  float other = warp.left_float[LANE ^ apart];
  host::meet(warp.meeting, 32, [] {});
  return other;
}
static bool __any_sync(unsigned, bool mine) {
  float any = mine;
  for (int apart = 1; apart < 32; apart *= 2) any = max(any, __shfl_xor_sync(0, any, apart));
  return any != 0;
}
template <class To, class From> static To bits_as(From from) {
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
static float __int_as_float(uint32_t bits) { return bits_as<float>(bits); }
static uint32_t __float_as_int(float x) { return bits_as<uint32_t>(x); }
static float exp2_of(float x) { return exp2f(x); }

static float half_to_float(uint16_t x) {
  uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = x & 0x7fff;
  if (rest >= 0x7c00) return __int_as_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  float size = rest < 0x400 ? rest * 0x1p-24f : __int_as_float((rest << 13) + 0x38000000);
  return sign ? -size : size;
}
static uint16_t float_to_half(float x) {
  uint16_t sign = __float_as_int(x) >> 16 & 0x8000;
  float size = fabsf(x);
  if (x != x) return 0x7fff;
  if (size >= 65520) return sign | 0x7c00;
  if (size < 0x1p-14f) return sign | (uint16_t)nearbyintf(size * 0x1p24f);
  uint32_t bits = __float_as_int(size);
  bits += 0xfff + (bits >> 13 & 1);
  return sign | (uint16_t)((bits - 0x38000000) >> 13);
}
static uint32_t two_halves(float low, float high) { return float_to_half(low) | (uint32_t)float_to_half(high) << 16; }
static uint16_t float_to_bfloat(float);
static uint32_t two_bfloats(float low, float high) { return float_to_bfloat(low) | (uint32_t)float_to_bfloat(high) << 16; }

template <bool TURNED> static void load_matrices(uint32_t* to, const uint16_t* row) {
  host::Warp& warp = host::warp();
  if ((uintptr_t)row % 16) { fprintf(stderr, "a row of a matrix is not aligned to 16 bytes\n"); abort(); }
  warp.row[LANE] = row;
  host::meet(warp.meeting, 32, [&] {
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++) {
        const uint16_t* const* rows = warp.row + 8 * i;
        int column = lane % 4 * 2, line = lane / 4;
        warp.loaded[lane][i] = TURNED ? rows[column][line] | (uint32_t)rows[column + 1][line] << 16
                                      : rows[line][column] | (uint32_t)rows[line][column + 1] << 16;
      }
  });
  memcpy(to, warp.loaded[LANE], 16);
}

// sum (16 x 8) += a (16 x K) times b (K x 8). PACKED numbers are in a register of a fragment.
template <int K, int PACKED, class Number> static void multiply(float* sum, const uint32_t* a, const uint32_t* b, Number number) {
  host::Warp& warp = host::warp();
  memcpy(warp.a[LANE], a, 16);
  memcpy(warp.b[LANE], b, 8);
  memcpy(warp.sums[LANE], sum, 16);
  host::meet(warp.meeting, 32, [&] {
    float left[16][K], right[8][K];
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < PACKED; j++) {
          int k = lane % 4 * PACKED + j + i / 2 * (K / 2);
          left[lane / 4 + i % 2 * 8][k] = number(warp.a[lane][i] >> (16 * j));
          if (i / 2 == i % 2) right[lane / 4][k] = number(warp.b[lane][i / 2] >> (16 * j));
        }
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++) {
        float total = warp.sums[lane][i];
        const float *x = left[host::row_of(lane, i)], *y = right[host::column_of(lane, i)];
        for (int k = 0; k < K; k++) total += x[k] * y[k];
        warp.result[lane][i] = total;
      }
  });
  memcpy(sum, warp.result[LANE], 16);
}
static void multiply_half(float* sum, const uint32_t* a, const uint32_t* b) {
  multiply<16, 2>(sum, a, b, [](uint32_t x) { return half_to_float((uint16_t)x); });
}
static void multiply_bfloat(float* sum, const uint32_t* a, const uint32_t* b) {
  multiply<16, 2>(sum, a, b, [](uint32_t x) { return __int_as_float(x << 16); });
}
static void multiply_tf32(float* sum, const uint32_t* a, const uint32_t* b) {  // the lower 13 bits are not read
  multiply<8, 1>(sum, a, b, [](uint32_t x) { return __int_as_float(x & 0xffffe000); });
}

static void copy_chunk(void* to, const void* from, bool inside) {
  if (((uintptr_t)to | (inside ? (uintptr_t)from : 0)) % 16) { fprintf(stderr, "a copy of 16 bytes is not aligned\n"); abort(); }
  memset(to, 0xff, 16);
  host::fibers[host::current].open.push_back(host::Copy{to, inside ? from : nullptr});
}
static void end_group() {
  host::Fiber& fiber = host::fibers[host::current];
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
}
template <int OPEN> static void wait_for_groups() {
  for (auto& groups = host::fibers[host::current].groups; groups.size() > OPEN; groups.pop_front())
    for (const host::Copy& each : groups.front())
      if (each.from) memcpy(each.to, each.from, 16); else memset(each.to, 0, 16);
}
static void wait_for_copies() {
  end_group();
  wait_for_groups<0>();
}
