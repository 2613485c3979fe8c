/* Vectors of this translation unit's instruction set. Everything is local to it: another one's code must not
   be taken. */
#pragma once
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif
#if defined(__aarch64__)
#include <arm_neon.h>
#endif
#if defined(__ARM_FEATURE_SVE)
#include <arm_sve.h>
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#elif defined(__ARM_FEATURE_SVE)
#define VECTOR_BYTES (__ARM_FEATURE_SVE_BITS / 8)
#else
#define VECTOR_BYTES 16
#endif
#define INLINED static inline __attribute__((always_inline))

namespace {

struct Single {
  typedef float Real;
  typedef int32_t Whole;
  typedef float Vector __attribute__((vector_size(VECTOR_BYTES)));
  typedef int32_t Wholes __attribute__((vector_size(VECTOR_BYTES)));
  static constexpr int lanes = VECTOR_BYTES / 4;
};

struct Double {
  typedef double Real;
  typedef int64_t Whole;
  typedef double Vector __attribute__((vector_size(VECTOR_BYTES)));
  typedef int64_t Wholes __attribute__((vector_size(VECTOR_BYTES)));
  static constexpr int lanes = VECTOR_BYTES / 8;
};

template <class T>
INLINED typename T::Vector load(const void *at) {
  typename T::Vector vector;
  memcpy(&vector, at, sizeof vector);
  return vector;
}

template <class T>
INLINED void store(void *at, typename T::Vector vector) {
  memcpy(at, &vector, sizeof vector);
}

/* x - 0 is x for every x, the negative zero too. */
template <class T>
INLINED typename T::Vector splat(typename T::Real number) {
  return number - typename T::Vector{};
}

/* maximum: the larger one of each lane; `second` where `first` is NaN.
   minimum: the smaller one; `second` where either is NaN. */
#if defined(__AVX512F__)
#define LANEWISE(operation) _mm512_##operation(first, second)
#elif defined(__AVX2__)
#define LANEWISE(operation) _mm256_##operation(first, second)
#elif defined(__SSE2__)
#define LANEWISE(operation) _mm_##operation(first, second)
#endif
#if defined(LANEWISE)
INLINED Single::Vector maximum(Single::Vector first, Single::Vector second) { return LANEWISE(max_ps); }
INLINED Double::Vector maximum(Double::Vector first, Double::Vector second) { return LANEWISE(max_pd); }
INLINED Single::Vector minimum(Single::Vector first, Single::Vector second) { return LANEWISE(min_ps); }
INLINED Double::Vector minimum(Double::Vector first, Double::Vector second) { return LANEWISE(min_pd); }
#else
#if defined(__ARM_FEATURE_SVE)
#define LARGER(bits) svmaxnm_f##bits##_x(svptrue_b##bits(), first, second)
#elif defined(__aarch64__)
#define LARGER(bits) vmaxnmq_f##bits(first, second)
#else
#define LARGER(bits) first > second ? first : second
#endif
INLINED Single::Vector maximum(Single::Vector first, Single::Vector second) { return LARGER(32); }
INLINED Double::Vector maximum(Double::Vector first, Double::Vector second) { return LARGER(64); }
INLINED Single::Vector minimum(Single::Vector first, Single::Vector second) { return first < second ? first : second; }
INLINED Double::Vector minimum(Double::Vector first, Double::Vector second) { return first < second ? first : second; }
#endif

template <class T>
INLINED typename T::Vector absolute(typename T::Vector x) {
  return (typename T::Vector)(
      (typename T::Wholes)x &
      ~((typename T::Wholes){} + ((typename T::Whole)1 << (sizeof(typename T::Real) * 8 - 1))));
}

/* Half the lanes against the other half, and so on: a lane after the other would wait for each one before. */
template <class T>
INLINED typename T::Real largest_lane(typename T::Vector vector) {
  typename T::Real lanes[T::lanes];
  store<T>(lanes, vector);
#pragma GCC unroll 8
  for (int half = T::lanes / 2; half; half /= 2)
#pragma GCC unroll 16
    for (int i = 0; i < half; i++) /* a NaN is passed over */
      lanes[i] = lanes[i + half] > lanes[i] || lanes[i] != lanes[i] ? lanes[i + half] : lanes[i];
  return lanes[0] > -__builtin_huge_val() ? lanes[0] : -__builtin_huge_val();
}

template <class T>
INLINED typename T::Real sum_of_lanes(typename T::Vector vector) {
  typename T::Real lanes[T::lanes];
  store<T>(lanes, vector);
#pragma GCC unroll 8
  for (int half = T::lanes / 2; half; half /= 2)
#pragma GCC unroll 16
    for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
  return lanes[0];
}

/* Interleave the lower halves of two vectors, and the upper halves: a0 b0 a1 b1 ... */
#if defined(__clang__)
#define SHUFFLED(T, ...) __builtin_shufflevector(first, second, __VA_ARGS__)
#else
#define SHUFFLED(T, ...) __builtin_shuffle(first, second, (T::Wholes){__VA_ARGS__})
#endif
#define PAIR(at, lanes) at, at + lanes
#define PAIRS_2(at, lanes) PAIR(at, lanes), PAIR(at + 1, lanes)
#define PAIRS_4(at, lanes) PAIRS_2(at, lanes), PAIRS_2(at + 2, lanes)
#define PAIRS_8(at, lanes) PAIRS_4(at, lanes), PAIRS_4(at + 4, lanes)
#define HALVES(T, PAIRS, lanes)                                                                             \
  INLINED T::Vector lower_halves(T::Vector first, T::Vector second) { return SHUFFLED(T, PAIRS(0, lanes)); } \
  INLINED T::Vector upper_halves(T::Vector first, T::Vector second) {                                       \
    return SHUFFLED(T, PAIRS(lanes / 2, lanes));                                                            \
  }
#if VECTOR_BYTES == 64
HALVES(Single, PAIRS_8, 16)
HALVES(Double, PAIRS_4, 8)
#elif VECTOR_BYTES == 32
HALVES(Single, PAIRS_4, 8)
HALVES(Double, PAIRS_2, 4)
#else
HALVES(Single, PAIRS_2, 4)
HALVES(Double, PAIR, 2)
#endif

/* Transpose a square of vectors: as many times as halving the lanes leaves more than one, each half is dealt
   out between the other. */
template <class T>
INLINED void transpose(typename T::Vector (&rows)[T::lanes]) {
  constexpr int half = T::lanes / 2;
#pragma GCC unroll 4
  for (int stage = 1; stage < T::lanes; stage *= 2) {
    typename T::Vector dealt[T::lanes];
#pragma GCC unroll 16
    for (int i = 0; i < half; i++) {
      dealt[2 * i] = lower_halves(rows[i], rows[i + half]);
      dealt[2 * i + 1] = upper_halves(rows[i], rows[i + half]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < T::lanes; i++) rows[i] = dealt[i];
  }
}

template <class T, int half>
INLINED void halve(typename T::Vector (&each)[T::lanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < half; i++)
    each[i] = lower_halves(each[i], each[i + half]) + upper_halves(each[i], each[i + half]);
  if constexpr (half > 1) halve<T, half / 2>(each);
}

/* Return the vector whose lane i is the sum of the lanes of vector i. */
template <class T>
INLINED typename T::Vector sums(typename T::Vector (&each)[T::lanes]) {
  halve<T, T::lanes / 2>(each);
  return each[0];
}

} // namespace
