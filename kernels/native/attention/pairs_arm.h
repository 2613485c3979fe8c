/* Products of pairs of bfloat16 on AArch64. Included by pairs.h. Both instructions are the CPU's own whatever FPCR says:
   subnormal numbers count as zero in a product. */

#if defined(__ARM_FEATURE_SVE)
INLINED Single::Vector dot(Single::Vector sum, Single::Wholes first, Single::Wholes second) {
  return svbfdot_f32(sum, svreinterpret_bf16_s32(first), svreinterpret_bf16_s32(second));
}
INLINED Single::Wholes paired(Single::Vector lower, Single::Vector upper) {
  const svbfloat16_t even = svcvt_bf16_f32_x(svptrue_b32(), lower);
  return svreinterpret_s32_bf16(svcvtnt_bf16_f32_m(even, svptrue_b32(), upper));
}
#else
INLINED Single::Vector dot(Single::Vector sum, Single::Wholes first, Single::Wholes second) {
  return vbfdotq_f32(sum, vreinterpretq_bf16_s32(first), vreinterpretq_bf16_s32(second));
}
INLINED Single::Wholes paired(Single::Vector lower, Single::Vector upper) {
  const uint16x8_t both = vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(lower), upper));
  return (Single::Wholes)vzip1q_u16(both, vextq_u16(both, both, 4));
}
#endif
