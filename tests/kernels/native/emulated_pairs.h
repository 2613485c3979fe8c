/* The three instructions of AVX-512 BF16 by others of AVX-512, for a CPU that lacks them. Included by pairs.h.
   Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS: the odd elements
   are added first, then the even ones, each time rounded to the nearest; subnormal numbers count as zero. */

INLINED __m512 without_subnormal(__m512 x) {
  const __mmask16 subnormal = _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(0x1p-126f), _CMP_LT_OQ);
  return (__m512)_mm512_mask_and_epi32((__m512i)x, subnormal, (__m512i)x, _mm512_set1_epi32((int)0x80000000));
}
INLINED __m512 multiplied_in(__m512 sum, __m512i first, __m512i second) {
  return without_subnormal(_mm512_fmadd_round_ps(without_subnormal((__m512)first),
                                                 without_subnormal((__m512)second), sum,
                                                 _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINED Single::Vector dot(Single::Vector sum, Single::Wholes former, Single::Wholes latter) {
  const __m512i first = (__m512i)former, second = (__m512i)latter;
  const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
  const __m512 odd = multiplied_in(without_subnormal((__m512)sum), _mm512_and_si512(first, upper),
                                   _mm512_and_si512(second, upper));
  return (Single::Vector)multiplied_in(odd, _mm512_slli_epi32(first, 16), _mm512_slli_epi32(second, 16));
}
INLINED Single::Wholes halves(Single::Vector lower, Single::Vector upper) {
  __m512i rounded[2] = {(__m512i)without_subnormal((__m512)lower), (__m512i)without_subnormal((__m512)upper)};
  for (int i = 0; i < 2; i++) {
    const __mmask16 number = _mm512_cmp_ps_mask((__m512)rounded[i], (__m512)rounded[i], _CMP_ORD_Q);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(rounded[i], 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(rounded[i], _mm512_set1_epi32(0x7fff)), odd);
    rounded[i] = _mm512_mask_mov_epi32(_mm512_or_si512(rounded[i], _mm512_set1_epi32(0x400000)), number, up);
    rounded[i] = _mm512_srli_epi32(rounded[i], 16);
  }
  const __m512i first = _mm512_castsi256_si512(_mm512_cvtepi32_epi16(rounded[0]));
  return (Single::Wholes)_mm512_inserti64x4(first, _mm512_cvtepi32_epi16(rounded[1]), 1);
}
