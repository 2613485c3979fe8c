/* The weights that dropout keeps, as in kernels/tensors/dropout.py, for as many weights at a time as a
   vector has lanes.
   Source: Salmon and others 2011, Parallel Random Numbers: As Easy as 1, 2, 3. */
#pragma once
#include "partition.h"
#include "simd.h"

namespace {

struct Dropout {
  uint32_t key[2];
  uint32_t least; /* the least word that is kept */
  double factor;  /* of kept weights; 0 if none is kept, whatever `least` is */

  explicit Dropout(const Problem &p) : key{(uint32_t)p.seed, (uint32_t)(p.seed >> 32)} {
    const double words = p.dropout * 4294967296.0;
    least = words < 4294967295.0 ? (uint32_t)words : 0xffffffff;
    factor = p.dropout < 1 ? 1 / (1 - p.dropout) : 0;
  }
};

/* 32-bit words, each in the lower half of a lane of 64 bits; the upper halves do not count. */
typedef uint64_t Words __attribute__((vector_size(VECTOR_BYTES)));

INLINED Words product(Words words, uint32_t by) {
#if defined(__AVX512F__)
  return (Words)_mm512_mul_epu32((__m512i)words, _mm512_set1_epi64(by));
#elif defined(__AVX2__)
  return (Words)_mm256_mul_epu32((__m256i)words, _mm256_set1_epi64x(by));
#elif defined(__SSE2__)
  return (Words)_mm_mul_epu32((__m128i)words, _mm_set1_epi64x(by));
#elif defined(__aarch64__) && VECTOR_BYTES == 16
  return (Words)vmull_u32(vmovn_u64((uint64x2_t)words), vdup_n_u32(by));
#else
  return (words & 0xffffffff) * by;
#endif
}

/* Philox4x32-10 of a counter of four words in each lane, in place. */
INLINED void philox(Words (&counter)[4], const uint32_t (&seed)[2]) {
  uint32_t low = seed[0], high = seed[1];
#pragma GCC unroll 10
  for (int round = 0; round < 10; round++) {
    const Words first = product(counter[0], 0xd2511f53), second = product(counter[2], 0xcd9e8d57);
    counter[0] = second >> 32 ^ counter[1] ^ low;
    counter[1] = second;
    counter[2] = first >> 32 ^ counter[3] ^ high;
    counter[3] = first;
    low += 0x9e3779b9;
    high += 0xbb67ae85;
  }
}

/* Which of four weights in each lane are kept: all bits of a lane, or none. The counter is (quad, row, head,
   batch) of the lane; the weights are those of keys 4 quad to 4 quad + 3. */
template <class T>
static __attribute__((noinline)) void find_kept(const Dropout &dropout, typename T::Wholes quad,
                                                typename T::Wholes row, typename T::Wholes head,
                                                int64_t batch, typename T::Wholes (&kept)[4]) {
  constexpr int parts = sizeof(typename T::Real) == 4 ? 2 : 1; /* words of even and of odd lanes */
  Words found[parts][4];
#pragma GCC unroll 2
  for (int part = 0; part < parts; part++) {
    found[part][0] = (Words)quad >> 32 * part;
    found[part][1] = (Words)row >> 32 * part;
    found[part][2] = (Words)head >> 32 * part;
    found[part][3] = Words{} + (uint32_t)batch;
    philox(found[part], dropout.key);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const Words even = found[0][i] & 0xffffffff;
    if constexpr (parts == 2) {
      typedef uint32_t Dealt __attribute__((vector_size(VECTOR_BYTES)));
      kept[i] = (typename T::Wholes)((Dealt)(even | found[parts - 1][i] << 32) >= dropout.least);
    } else {
      kept[i] = (typename T::Wholes)(even >= (uint64_t)dropout.least);
    }
  }
}

/* The factors of the same weights: 0, or that of a weight that is kept. */
template <class T>
INLINED void dropout_factors(const Dropout &dropout, typename T::Wholes quad, typename T::Wholes row,
                             typename T::Wholes head, int64_t batch, typename T::Vector (&factors)[4]) {
  typename T::Wholes kept[4];
  find_kept<T>(dropout, quad, row, head, batch, kept);
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
    factors[i] =
        (typename T::Vector)((typename T::Wholes)splat<T>((typename T::Real)dropout.factor) & kept[i]);
}

} // namespace
