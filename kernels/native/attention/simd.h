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

/* The larger one of each lane; `second` where `first` is NaN. */
INLINED Single::Vector maximum(Single::Vector first, Single::Vector second) {
#if defined(__AVX512F__)
  return (Single::Vector)_mm512_max_ps((__m512)first, (__m512)second);
#elif defined(__AVX2__)
  return (Single::Vector)_mm256_max_ps((__m256)first, (__m256)second);
#elif defined(__SSE2__)
  return (Single::Vector)_mm_max_ps((__m128)first, (__m128)second);
#elif defined(__ARM_FEATURE_SVE)
  return svmaxnm_f32_x(svptrue_b32(), first, second);
#elif defined(__aarch64__)
  return vmaxnmq_f32(first, second);
#else
  return first > second ? first : second;
#endif
}

INLINED Double::Vector maximum(Double::Vector first, Double::Vector second) {
#if defined(__AVX512F__)
  return (Double::Vector)_mm512_max_pd((__m512d)first, (__m512d)second);
#elif defined(__AVX2__)
  return (Double::Vector)_mm256_max_pd((__m256d)first, (__m256d)second);
#elif defined(__SSE2__)
  return (Double::Vector)_mm_max_pd((__m128d)first, (__m128d)second);
#elif defined(__ARM_FEATURE_SVE)
  return svmaxnm_f64_x(svptrue_b64(), first, second);
#elif defined(__aarch64__)
  return vmaxnmq_f64(first, second);
#else
  return first > second ? first : second;
#endif
}

/* The smaller one of each lane; `second` where either is NaN. */
INLINED Single::Vector minimum(Single::Vector first, Single::Vector second) {
#if defined(__AVX512F__)
  return (Single::Vector)_mm512_min_ps((__m512)first, (__m512)second);
#elif defined(__AVX2__)
  return (Single::Vector)_mm256_min_ps((__m256)first, (__m256)second);
#elif defined(__SSE2__)
  return (Single::Vector)_mm_min_ps((__m128)first, (__m128)second);
#else
  return first < second ? first : second;
#endif
}

INLINED Double::Vector minimum(Double::Vector first, Double::Vector second) {
#if defined(__AVX512F__)
  return (Double::Vector)_mm512_min_pd((__m512d)first, (__m512d)second);
#elif defined(__AVX2__)
  return (Double::Vector)_mm256_min_pd((__m256d)first, (__m256d)second);
#elif defined(__SSE2__)
  return (Double::Vector)_mm_min_pd((__m128d)first, (__m128d)second);
#else
  return first < second ? first : second;
#endif
}

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
#if VECTOR_BYTES == 64
INLINED Single::Vector lower_halves(Single::Vector first, Single::Vector second) {
  return SHUFFLED(Single, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
INLINED Single::Vector upper_halves(Single::Vector first, Single::Vector second) {
  return SHUFFLED(Single, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
INLINED Double::Vector lower_halves(Double::Vector first, Double::Vector second) {
  return SHUFFLED(Double, 0, 8, 1, 9, 2, 10, 3, 11);
}
INLINED Double::Vector upper_halves(Double::Vector first, Double::Vector second) {
  return SHUFFLED(Double, 4, 12, 5, 13, 6, 14, 7, 15);
}
#elif VECTOR_BYTES == 32
INLINED Single::Vector lower_halves(Single::Vector first, Single::Vector second) {
  return SHUFFLED(Single, 0, 8, 1, 9, 2, 10, 3, 11);
}
INLINED Single::Vector upper_halves(Single::Vector first, Single::Vector second) {
  return SHUFFLED(Single, 4, 12, 5, 13, 6, 14, 7, 15);
}
INLINED Double::Vector lower_halves(Double::Vector first, Double::Vector second) {
  return SHUFFLED(Double, 0, 4, 1, 5);
}
INLINED Double::Vector upper_halves(Double::Vector first, Double::Vector second) {
  return SHUFFLED(Double, 2, 6, 3, 7);
}
#else
INLINED Single::Vector lower_halves(Single::Vector first, Single::Vector second) {
  return SHUFFLED(Single, 0, 4, 1, 5);
}
INLINED Single::Vector upper_halves(Single::Vector first, Single::Vector second) {
  return SHUFFLED(Single, 2, 6, 3, 7);
}
INLINED Double::Vector lower_halves(Double::Vector first, Double::Vector second) {
  return SHUFFLED(Double, 0, 2);
}
INLINED Double::Vector upper_halves(Double::Vector first, Double::Vector second) {
  return SHUFFLED(Double, 1, 3);
}
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
