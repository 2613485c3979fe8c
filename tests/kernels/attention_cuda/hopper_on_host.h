// What Hopper adds, on the CPU: mbarriers, bulk copies of boxes of tensors, and products of warpgroups.
//
// Written from the PTX manual and not from the kernel: a box is swizzled as the manual says, and a product reads shared
// memory through its descriptors. What is asynchronous happens as late as it may, and what it will overwrite is NaN
// until then: a copy or a product when it is waited for. Threads that wait for each
// other end the launch with a message.
#pragma once
#include "cuda_on_host.h"
#include <deque>
#include <map>

#define __grid_constant__

namespace hopper {
using namespace host;
enum { FIRST_ADDRESS = 16 };  // of dynamic shared memory: aligned to no more than 16
static unsigned grid_size, shared_size, registers_taken;
static char failure[200];
static unsigned long progress;

// A tensor map as tests/.../hopper.py packs it; sizes and box count elements of 16 bits, steps bytes.
struct BoxMap {
  uint64_t address, steps[4];
  uint32_t sizes[5];
  uint16_t box[5];
  uint8_t rank, swizzle, type, filled_with_nan, interleaved;
};
struct Phase { int count, pending, parity; long bytes; };
struct Copy { BoxMap map; uint32_t to, barrier; int at[4]; };
struct Product {
  float* sums;
  const uint32_t* left;  // fragments, else a descriptor
  uint64_t left_at, right_at;
  int columns;
  bool half, added, turned;
};
struct Products {
  std::vector<Product> open;
  std::deque<std::vector<Product>> closed;
  bool fenced;
};
struct Named { unsigned come, passed, threads; };
static std::map<uint32_t, Phase> phases;
static std::vector<Copy> copies;
static Products products[MOST];
static Named named[16];

[[noreturn]] static void fail(const char* what, long number = 0) {
  snprintf(failure, sizeof failure, "block %u, thread %u: %s (%ld)", block_index, current, what, number);
  _longjmp(finished, 1);
}
static char* shared_at(uint32_t address, unsigned bytes) {
  if (address < FIRST_ADDRESS || address + bytes > FIRST_ADDRESS + shared_size) fail("an address is outside shared memory", address);
  return shared_memory + address - FIRST_ADDRESS;
}
// 128-byte swizzle: the 16-byte column of an address is that of its bits 4 to 6, xored with its bits 7 to 9.
static uint32_t swizzled(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

static Phase& phase_at(uint32_t barrier) {
  if (!phases.count(barrier)) fail("an mbarrier is not initialised", barrier);
  return phases[barrier];
}
static void advance(Phase& phase) {
  progress++;
  if (phase.pending < 0) fail("more threads arrive at an mbarrier than it counts");
  if (phase.pending || phase.bytes) return;
  phase.parity ^= 1;
  phase.pending = phase.count;
}
// Runs the newest copy that counts at a barrier, if there is one.
static bool run_copy(uint32_t barrier) {
  auto found = std::find_if(copies.rbegin(), copies.rend(), [&](const Copy& each) { return each.barrier == barrier; });
  if (found == copies.rend()) return false;
  Copy copy = *found;
  copies.erase(found.base() - 1);
  const BoxMap& map = copy.map;
  unsigned width = map.box[0], height = map.box[1];
  for (unsigned row = 0; row < height; row++)
    for (unsigned x = 0; x < width; x++) {
      const long at[4] = {copy.at[0] + (long)x, copy.at[1] + (long)row, copy.at[2], copy.at[3]};
      bool inside = true;
      uint64_t from = map.address + 2 * at[0];
      for (int i = 0; i < 4; i++) {
        inside &= at[i] >= 0 && at[i] < (long)map.sizes[i];
        if (i) from += at[i] * map.steps[i - 1];
      }
      *(uint16_t*)shared_at(swizzled(copy.to + (row * width + x) * 2), 2) = inside ? *(const uint16_t*)from : 0;
    }
  Phase& phase = phase_at(copy.barrier);
  phase.bytes -= (long)width * height * 2;
  advance(phase);
  return true;
}
template <class Ready> static void wait_until(uint32_t barrier, Ready ready) {
  unsigned long seen = progress;
  for (unsigned turns = 0; !ready(); give_way())
    if (progress != seen) {
      seen = progress;
      turns = 0;
    } else if (++turns > 32 && !run_copy(barrier) && turns > 50000) {
      fail("threads wait for each other for ever");
    }
}

static float number(uint16_t bits, bool half) { return half ? half_to_float(bits) : __int_as_float((uint32_t)bits << 16); }

// An element of a matrix in shared memory. line: the row of the left or the column of the right matrix, or where
// turned, the place along their sum; place: the other.
static float element(uint64_t matrix, unsigned line, unsigned k, bool turned, bool half) {
  unsigned start = (matrix & 0x3fff) << 4, leading = (matrix >> 16 & 0x3fff) << 4, stride = (matrix >> 32 & 0x3fff) << 4;
  if (matrix >> 62 != 1 || (matrix >> 49 & 7)) fail("a descriptor has another swizzle than of 128 bytes from a whole pattern on");
  unsigned at = turned ? start + line / 64 * leading + line % 64 * 2 + k / 8 * stride + k % 8 * 128
                       : start + line / 8 * stride + line % 8 * 128 + k * 2;
  return number(*(const uint16_t*)shared_at(swizzled(at), 2), half);
}
// Computes the 16 rows of a warp.
static void multiply(unsigned first, unsigned group, unsigned index) {
  const Product& one = products[first].closed[group][index];
  static float left[16][16], right[256][16];
  for (unsigned lane = 0; lane < 32; lane++)
    for (unsigned i = 0; i < 4; i++)
      for (unsigned j = 0; j < 2; j++) {
        unsigned row = lane / 4 + i % 2 * 8, k = lane % 4 * 2 + j + i / 2 * 8;
        const Product& own = products[first + lane].closed[group][index];
        left[row][k] = one.left ? number(own.left[i] >> 16 * j, one.half)
                                : element(one.left_at, first % 128 / 2 + row, k, false, one.half);
      }
  for (int n = 0; n < one.columns; n++)
    for (int k = 0; k < 16; k++) right[n][k] = element(one.right_at, n, k, one.turned, one.half);
  for (unsigned lane = 0; lane < 32; lane++) {
    const Product& own = products[first + lane].closed[group][index];
    for (int i = 0; i < one.columns / 2; i++) {
      const float *x = left[lane / 4 + i / 2 % 2 * 8], *y = right[i / 4 * 8 + lane % 4 * 2 + i % 2];
      float total = own.added ? own.sums[i] : 0;
      for (int k = 0; k < 16; k++) total += x[k] * y[k];
      own.sums[i] = total;
    }
  }
}
static void issue(Product product) {
  Products& own = products[current];
  if (!own.fenced) fail("products begin without wgmma.fence");
  if (!product.added) memset(product.sums, 0xff, product.columns * 2);
  own.open.push_back(product);
}
static void finish_products(unsigned left) {
  if (!products[current].open.empty()) fail("products are waited for that were not committed");
  products[current].fenced = false;
  host::meet(warp().meeting, 32, [&] {
    unsigned first = current / 32 * 32;
    while (products[first].closed.size() > left) {
      for (unsigned i = 0; i < products[first].closed[0].size(); i++) multiply(first, 0, i);
      for (unsigned lane = 0; lane < 32; lane++) products[first + lane].closed.pop_front();
      progress++;
    }
  });
}
static void reset() {
  phases.clear();
  copies.clear();
  registers_taken = 0;
  memset(named, 0, sizeof named);
  for (Products& each : products) each = Products();
}
// Runs a kernel, and returns nothing or what went wrong.
template <class Work> static const char* run(unsigned grid, unsigned threads, unsigned bytes, Work work);
}  // namespace hopper

static struct { struct { operator unsigned() const { return hopper::grid_size; } } x; } gridDim;

static uint32_t in_shared(const void* at) { return (uint32_t)((const char*)at - shared_memory) + hopper::FIRST_ADDRESS; }
static int first_lane(int x) {
  host::Warp& warp = host::warp();
  warp.left_float[LANE] = x;
  host::meet(warp.meeting, 32, [] {});
  int first = (int)warp.left_float[0];
  host::meet(warp.meeting, 32, [] {});
  return first;
}
static uint16_t float_to_bfloat(float x) {
  uint32_t bits = __float_as_int(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float __fdividef(float x, float y) { return y > 0x1p126f ? 0 : x / y; }

static void start_barrier(uint32_t at, int count) {
  hopper::shared_at(at, 8);
  if (at % 8) hopper::fail("an mbarrier is not aligned", at);
  hopper::phases[at] = {count, count, 0, 0};
}
static void publish_barriers() {}
static void arrive(uint32_t at) {
  hopper::Phase& phase = hopper::phase_at(at);
  phase.pending--;
  hopper::advance(phase);
}
static void arrive_and_expect(uint32_t at, int bytes) {
  hopper::phase_at(at).bytes += bytes;
  arrive(at);
}
static void wait(uint32_t at, int parity) {
  hopper::phase_at(at);
  hopper::wait_until(at, [&] { return hopper::phases[at].parity != parity; });
}
static void copy_box(uint32_t to, const void* map, uint32_t barrier, int x, int y, int head, int batch) {
  hopper::Copy copy;
  memcpy(&copy.map, map, sizeof copy.map);
  copy.to = to;
  copy.barrier = barrier;
  const int at[4] = {x, y, head, batch};
  memcpy(copy.at, at, sizeof at);
  if ((uintptr_t)map % 64) hopper::fail("a tensor map is not aligned to 64 bytes");
  if (to % 128) hopper::fail("a box is not aligned to 128 bytes", to);
  if (copy.map.rank != 4 || copy.map.swizzle != 3 || copy.map.box[2] != 1 || copy.map.box[3] != 1) hopper::fail("a tensor map of another kind");
  unsigned bytes = copy.map.box[0] * copy.map.box[1] * 2;
  memset(hopper::shared_at(to, bytes), 0xff, bytes);
  hopper::copies.push_back(copy);
  hopper::progress++;
}
static void meet(int barrier, int threads) {
  hopper::Named& one = hopper::named[barrier];
  unsigned passed = one.passed;
  hopper::progress++;
  if (one.come && one.threads != (unsigned)threads) hopper::fail("threads meet in different numbers", barrier);
  one.threads = threads;
  if (++one.come == one.threads) {
    one.come = 0;
    one.passed++;
  } else {
    hopper::wait_until(0, [&] { return hopper::named[barrier].passed != passed; });
  }
}
static void come_by(int barrier, int threads) {
  hopper::Named& one = hopper::named[barrier];
  hopper::progress++;
  if (one.come && one.threads != (unsigned)threads) hopper::fail("threads meet in different numbers", barrier);
  one.threads = threads;
  if (++one.come == one.threads) {
    one.come = 0;
    one.passed++;
  }
}
template <int COUNT> static void take_registers() {
  static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "setmaxnreg takes multiples of 8 from 24 to 256");
  hopper::registers_taken += COUNT;
  if (hopper::registers_taken > 65536) hopper::fail("more registers than there are", hopper::registers_taken);
}
template <int COUNT> static void fewer_registers() { take_registers<COUNT>(); }
template <int COUNT> static void more_registers() { take_registers<COUNT>(); }

static void begin_products() { hopper::products[host::current].fenced = true; }
static void end_products() {
  hopper::Products& own = hopper::products[host::current];
  own.closed.push_back(own.open);
  own.open.clear();
}
template <int N> static void hold(float (&)[N]) {}
template <int LEFT, int N> static void wait_for_products(float (&)[N]) { hopper::finish_products(LEFT); }
template <bool HALF, int N> static void across(float (&sums)[N], uint64_t left, uint64_t right, int added) {
  hopper::issue({sums, nullptr, left, right, 2 * N, HALF, added != 0, false});
}
template <bool HALF, int N> static void along(float (&sums)[N], const uint32_t* left, uint64_t right) {
  hopper::issue({sums, left, 0, right, 2 * N, HALF, true, true});
}

template <class Work> static const char* hopper::run(unsigned grid, unsigned threads, unsigned bytes, Work work) {
  if (bytes > sizeof shared_memory) return "more shared memory than a block of Hopper has";
  grid_size = grid;
  shared_size = bytes;
  failure[0] = 0;
  host::launch(grid, threads, shared_memory, bytes, [&] {
    if (failure[0]) return;
    if (current == 0) reset();
    work();
    if (living == 1 && !failure[0] && !copies.empty()) fail("a block ends while copies are under way");
  });
  return failure;
}
