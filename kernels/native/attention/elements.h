/* Elements of tensors, and their conversion to vectors and back. */
#pragma once
#include "simd.h"

namespace {

struct Float {
  typedef Single Inner;
  typedef float Stored;
};
struct Wide {
  typedef Double Inner;
  typedef double Stored;
};
struct Half {
  typedef Single Inner;
  typedef uint16_t Stored;
};
struct Brain {
  typedef Single Inner;
  typedef uint16_t Stored;
};
/* Of a mask: 0 where a key is seen, else minus infinity. */
template <class T>
struct Seen {
  typedef T Inner;
  typedef uint8_t Stored;
};

INLINED float bits_to_float(uint32_t bits) {
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

INLINED uint32_t float_to_bits(float number) {
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  return bits;
}

/* ---- one element ---------------------------------------------------------------------------- */

INLINED float widened(Float, float stored) { return stored; }
INLINED double widened(Wide, double stored) { return stored; }
INLINED float widened(Brain, uint16_t stored) { return bits_to_float((uint32_t)stored << 16); }

INLINED float widened(Half, uint16_t stored) {
  const uint32_t sign = (uint32_t)(stored & 0x8000) << 16, magnitude = stored & 0x7fff;
  if (magnitude >= 0x7c00)
    return bits_to_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13 | (magnitude > 0x7c00 ? 0x400000 : 0));
  /* 2^112 moves the exponent's bias, and makes subnormal numbers normal ones. */
  return bits_to_float(sign | float_to_bits(bits_to_float(magnitude << 13) * 0x1p112f));
}

template <class T>
INLINED typename T::Real widened(Seen<T>, uint8_t stored) {
  return stored ? (typename T::Real)0 : -(typename T::Real)__builtin_huge_val();
}

INLINED float narrowed(Float, float number) { return number; }
INLINED double narrowed(Wide, double number) { return number; }

INLINED uint16_t narrowed(Brain, float number) {
  const uint32_t bits = float_to_bits(number);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

INLINED uint16_t narrowed(Half, float number) {
  const uint32_t bits = float_to_bits(number), magnitude = bits & 0x7fffffff;
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and more */
  if (magnitude < 0x38800000) { /* subnormal: adding a half's smallest step times 2^23 rounds to it */
    const float shifted = bits_to_float(magnitude) + 0.5f;
    return (uint16_t)(sign | (float_to_bits(shifted) - 0x3f000000));
  }
  return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

/* ---- as many as a vector has lanes ---------------------------------------------------------- */

INLINED Single::Vector load_elements(Float, const char *at) { return load<Single>(at); }
INLINED Double::Vector load_elements(Wide, const char *at) { return load<Double>(at); }

#if defined(__aarch64__)
#include "elements_arm.h"
#else
typedef uint16_t Halves __attribute__((vector_size(VECTOR_BYTES / 2)));

INLINED Single::Vector load_elements(Brain, const char *at) {
#if defined(__AVX512F__)
  return (Single::Vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at)),
                                           16);
#elif defined(__AVX2__)
  return (Single::Vector)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)at)), 16);
#else
  Halves stored;
  memcpy(&stored, at, sizeof stored);
  return (Single::Vector)(__builtin_convertvector(stored, Single::Wholes) << 16);
#endif
}

INLINED Single::Vector load_elements(Half, const char *at) {
#if defined(__AVX512F__)
  return (Single::Vector)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
#elif defined(__AVX2__)
  return (Single::Vector)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
#else
  uint16_t stored[Single::lanes];
  memcpy(stored, at, sizeof stored);
  Single::Vector numbers;
  for (int i = 0; i < Single::lanes; i++) numbers[i] = widened(Half{}, stored[i]);
  return numbers;
#endif
}

/* Rounded to the nearest, halfway to the even one; a NaN stays one. */
INLINED void store_elements(Brain, char *at, Single::Vector numbers) {
  const Single::Wholes bits = (Single::Wholes)numbers;
  const Single::Wholes rounded = bits + 0x7fff + (bits >> 16 & 1);
  const Single::Wholes kept = numbers == numbers ? rounded : (bits | 0x400000);
  const Halves stored = __builtin_convertvector(kept >> 16, Halves);
  memcpy(at, &stored, sizeof stored);
}

INLINED void store_elements(Half, char *at, Single::Vector numbers) {
#if defined(__AVX512F__)
  _mm256_storeu_si256((__m256i *)at,
                      _mm512_cvtps_ph((__m512)numbers, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__AVX2__)
  _mm_storeu_si128((__m128i *)at,
                   _mm256_cvtps_ph((__m256)numbers, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  uint16_t stored[Single::lanes];
  for (int i = 0; i < Single::lanes; i++) stored[i] = narrowed(Half{}, numbers[i]);
  memcpy(at, stored, sizeof stored);
#endif
}

#endif

template <class T>
INLINED typename T::Vector load_elements(Seen<T>, const char *at) {
#if defined(__AVX512F__)
  if constexpr (T::lanes == 16) {
    const __m128i stored = _mm_loadu_si128((const __m128i *)at);
    const __mmask16 unseen = _mm_cmpeq_epi8_mask(stored, _mm_setzero_si128());
    return (typename T::Vector)_mm512_maskz_mov_ps(unseen, _mm512_set1_ps(-__builtin_huge_valf()));
  }
#endif
  typename T::Real numbers[T::lanes];
  for (int i = 0; i < T::lanes; i++) numbers[i] = widened(Seen<T>{}, (uint8_t)at[i]);
  return load<T>(numbers);
}

/* The first `count` elements, and zeros behind: nothing is read beyond them. */
template <class E>
INLINED typename E::Inner::Vector load_some(E element, const char *at, int64_t count) {
  typename E::Stored stored[E::Inner::lanes] = {};
  memcpy(stored, at, (size_t)count * sizeof *stored);
  return load_elements(element, (const char *)stored);
}

/* What the processor masks need not take the way over memory, where a narrow store would delay a wide
   load. */
#if defined(__AVX512F__)
INLINED Single::Vector load_some(Float, const char *at, int64_t count) {
  return (Single::Vector)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), at);
}
INLINED Double::Vector load_some(Wide, const char *at, int64_t count) {
  return (Double::Vector)_mm512_maskz_loadu_pd((__mmask8)((1u << count) - 1), at);
}
INLINED void store_some(Float, char *at, Single::Vector numbers, int64_t count) {
  _mm512_mask_storeu_ps(at, (__mmask16)((1u << count) - 1), (__m512)numbers);
}
INLINED void store_some(Wide, char *at, Double::Vector numbers, int64_t count) {
  _mm512_mask_storeu_pd(at, (__mmask8)((1u << count) - 1), (__m512d)numbers);
}
#elif defined(__AVX2__)
INLINED Single::Vector load_some(Float, const char *at, int64_t count) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return (Single::Vector)_mm256_maskload_ps((const float *)at,
                                            _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), lanes));
}
INLINED Double::Vector load_some(Wide, const char *at, int64_t count) {
  const __m256i lanes = _mm256_setr_epi64x(0, 1, 2, 3);
  return (Double::Vector)_mm256_maskload_pd((const double *)at,
                                            _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), lanes));
}
#endif

INLINED void store_elements(Float, char *at, Single::Vector numbers) { store<Single>(at, numbers); }
INLINED void store_elements(Wide, char *at, Double::Vector numbers) { store<Double>(at, numbers); }

template <class E>
INLINED void store_some(E element, char *at, typename E::Inner::Vector numbers, int64_t count) {
  typename E::Stored stored[E::Inner::lanes];
  store_elements(element, (char *)stored, numbers);
  memcpy(at, stored, (size_t)count * sizeof *stored);
}

/* The first `count` numbers of the type that is computed with, and zeros behind. */
template <class T>
INLINED typename T::Vector load_rest(const typename T::Real *at, int64_t count) {
  if constexpr (sizeof(typename T::Real) == 8)
    return load_some(Wide{}, (const char *)at, count);
  else
    return load_some(Float{}, (const char *)at, count);
}

} // namespace
