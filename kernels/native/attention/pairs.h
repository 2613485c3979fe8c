/* Products of pairs of bfloat16, two keys or two elements of a row at a time. Included by products.h, in its namespace.

   With MLBACKENDS_EMULATED_PAIRS AVX-512's three instructions are computed by others, for tests on a CPU that lacks them:
   subnormal numbers count as zero, sums are rounded to the nearest. */

#if defined(__aarch64__)
#include "pairs_arm.h"
#else
#if defined(MLBACKENDS_EMULATED_PAIRS)
INLINED __m512 without_subnormal(__m512 x) {
  const __mmask16 normal = _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(0x1p-126f), _CMP_NLT_UQ);
  return _mm512_maskz_mov_ps(normal, x);
}
INLINED Single::Vector dot(Single::Vector sum, Single::Wholes former, Single::Wholes latter) {
  const __m512i first = (__m512i)former, second = (__m512i)latter;
  const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
  const __m512 odd = _mm512_mul_ps(without_subnormal((__m512)_mm512_and_si512(first, upper)),
                                   without_subnormal((__m512)_mm512_and_si512(second, upper)));
  const __m512 even = _mm512_fmadd_ps(without_subnormal((__m512)_mm512_slli_epi32(first, 16)),
                                      without_subnormal((__m512)_mm512_slli_epi32(second, 16)), odd);
  return (Single::Vector)without_subnormal(_mm512_add_ps((__m512)sum, even));
}
INLINED Single::Wholes paired(Single::Vector lower, Single::Vector upper) {
  __m512i rounded[2] = {(__m512i)without_subnormal((__m512)lower), (__m512i)without_subnormal((__m512)upper)};
  for (int i = 0; i < 2; i++) {
    const __mmask16 number = _mm512_cmp_ps_mask((__m512)rounded[i], (__m512)rounded[i], _CMP_ORD_Q);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(rounded[i], 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(rounded[i], _mm512_set1_epi32(0x7fff)), odd);
    rounded[i] = _mm512_mask_mov_epi32(_mm512_or_si512(rounded[i], _mm512_set1_epi32(0x400000)), number, up);
  }
  return (Single::Wholes)_mm512_or_si512(_mm512_srli_epi32(rounded[0], 16),
                                         _mm512_and_si512(rounded[1], _mm512_set1_epi32((int)0xffff0000)));
}
#else
INLINED Single::Vector dot(Single::Vector sum, Single::Wholes first, Single::Wholes second) {
  return (Single::Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)first, (__m512bh)second);
}
INLINED Single::Wholes paired(Single::Vector lower, Single::Vector upper) {
  const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh((__m512)upper, (__m512)lower);
  const __m512i dealt = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return (Single::Wholes)_mm512_permutexvar_epi16(dealt, halves);
}
#endif
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
  INLINED void accumulate(Single::Vector &sum, Unit pair, Units units) { sum = dot(sum, pair - Units{}, units); }
  INLINED Units paired(Single::Vector lower, Single::Vector upper) { return ::paired(lower, upper); }
};
