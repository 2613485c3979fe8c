/* Products of pairs of bfloat16, two keys or two elements of a row at a time. Included by products.h, in its
   namespace. With MLBACKENDS_EMULATED_PAIRS a header of the tests stands in for AVX-512's instructions. */

#if defined(__aarch64__)
#include "pairs_arm.h"
#else
#if defined(MLBACKENDS_EMULATED_PAIRS)
#include "emulated_pairs.h"
#else
INLINED Single::Vector dot(Single::Vector sum, Single::Wholes first, Single::Wholes second) {
  return (Single::Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)first, (__m512bh)second);
}
INLINED Single::Wholes halves(Single::Vector lower, Single::Vector upper) {
  return (Single::Wholes)_mm512_cvtne2ps_pbh((__m512)upper, (__m512)lower);
}
#endif
INLINED Single::Wholes paired(Single::Vector lower, Single::Vector upper) {
  const __m512i dealt = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return (Single::Wholes)_mm512_permutexvar_epi16(dealt, (__m512i)halves(lower, upper));
}
INLINED Single::Wholes load_pairs(const char *lower, const char *upper) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)lower));
  if (!upper) return (Single::Wholes)low;
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)upper));
  return (Single::Wholes)_mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}
#endif

struct Pairs {
  typedef Single Inner;
  typedef int32_t Unit;
  typedef Single::Wholes Units;
  static constexpr bool pairs = true, tiles = false;
  INLINED Units load_units(const void *at) {
    Units units;
    memcpy(&units, at, sizeof units);
    return units;
  }
  INLINED void accumulate(Single::Vector &sum, Unit pair, Units units) {
    sum = dot(sum, pair - Units{}, units);
  }
  INLINED void accumulate(Single::Vector &sum, Units first, Units second) { sum = dot(sum, first, second); }
  /* The rounded numbers of two vectors, interleaved or one after the other. */
  INLINED Units paired(Single::Vector lower, Single::Vector upper) { return ::paired(lower, upper); }
  INLINED Units halves(Single::Vector lower, Single::Vector upper) { return ::halves(lower, upper); }

  /* The first `count` elements of those that make up as many pairs as a vector has, zeros behind. */
  INLINED Units load_some_units(const char *at, int64_t count) {
#if defined(__AVX512BW__)
    return (Units)_mm512_maskz_loadu_epi16((__mmask32)(((uint64_t)1 << count) - 1), at);
#else
    uint16_t stored[2 * Single::lanes] = {};
    memcpy(stored, at, (size_t)count * sizeof *stored);
    return load_units(stored);
#endif
  }

  /* As many elements of a row as there are lanes, interleaved with those of another row; null for a row of
     zeros. */
  INLINED Units load_paired(const char *lower, const char *upper) { return load_pairs(lower, upper); }
  INLINED Units load_some_paired(const char *lower, const char *upper, int64_t count) {
    uint16_t stored[2][Single::lanes] = {};
    memcpy(stored[0], lower, (size_t)count * 2);
    if (upper) memcpy(stored[1], upper, (size_t)count * 2);
    return load_pairs((const char *)stored[0], (const char *)stored[1]);
  }
};
