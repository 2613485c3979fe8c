/* Products of pairs of bfloat16 on AArch64. Included by pairs.h. Both instructions are the CPU's own whatever
   FPCR says: subnormal numbers count as zero in a product. */

#if defined(__ARM_FEATURE_SVE)
INLINED Single::Vector dot(Single::Vector sum, Single::Wholes first, Single::Wholes second) {
  return svbfdot_f32(sum, svreinterpret_bf16_s32(first), svreinterpret_bf16_s32(second));
}
INLINED Single::Wholes paired(Single::Vector lower, Single::Vector upper) {
  const svbfloat16_t even = svcvt_bf16_f32_x(svptrue_b32(), lower);
  return svreinterpret_s32_bf16(svcvtnt_bf16_f32_m(even, svptrue_b32(), upper));
}
INLINED Single::Wholes halves(Single::Vector lower, Single::Vector upper) {
  const svuint16_t first = svreinterpret_u16_bf16(svcvt_bf16_f32_x(svptrue_b32(), lower));
  const svuint16_t second = svreinterpret_u16_bf16(svcvt_bf16_f32_x(svptrue_b32(), upper));
  return svreinterpret_s32_u16(svuzp1_u16(first, second));
}
INLINED Single::Wholes load_pairs(const char *lower, const char *upper) {
  const svuint32_t low = svld1uh_u32(svptrue_b32(), (const uint16_t *)lower);
  if (!upper) return svreinterpret_s32_u32(low);
  const svuint32_t high =
      svlsl_n_u32_x(svptrue_b32(), svld1uh_u32(svptrue_b32(), (const uint16_t *)upper), 16);
  return svreinterpret_s32_u32(svorr_u32_x(svptrue_b32(), low, high));
}
#else
INLINED Single::Vector dot(Single::Vector sum, Single::Wholes first, Single::Wholes second) {
  return vbfdotq_f32(sum, vreinterpretq_bf16_s32(first), vreinterpretq_bf16_s32(second));
}
INLINED Single::Wholes halves(Single::Vector lower, Single::Vector upper) {
  return vreinterpretq_s32_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(lower), upper));
}
INLINED Single::Wholes paired(Single::Vector lower, Single::Vector upper) {
  const uint16x8_t both = vreinterpretq_u16_s32(halves(lower, upper));
  return (Single::Wholes)vzip1q_u16(both, vextq_u16(both, both, 4));
}
INLINED Single::Wholes load_pairs(const char *lower, const char *upper) {
  const uint16x4_t low = vld1_u16((const uint16_t *)lower),
                   high = upper ? vld1_u16((const uint16_t *)upper) : vdup_n_u16(0);
  return (Single::Wholes)vzip1q_u16(vcombine_u16(low, low), vcombine_u16(high, high));
}
#endif
