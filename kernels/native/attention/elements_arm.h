/* Elements of 16 bits and of masks, on AArch64. Included by elements.h, in its namespace. NEON and SVE round
   to the nearest, halfway to the even one, and a NaN stays one. */

#if defined(__ARM_FEATURE_SVE)

INLINED Single::Vector load_elements(Brain, const char *at) {
  return (Single::Vector)((Single::Wholes)svld1uh_s32(svptrue_b32(), (const uint16_t *)at) << 16);
}

INLINED Single::Vector load_elements(Half, const char *at) {
  return svcvt_f32_f16_x(svptrue_b32(),
                         svreinterpret_f16_s32(svld1uh_s32(svptrue_b32(), (const uint16_t *)at)));
}

INLINED void store_elements(Half, char *at, Single::Vector numbers) {
  const svfloat16_t halves = svcvt_f16_f32_x(svptrue_b32(), numbers);
  svst1h_s32(svptrue_b32(), (int16_t *)at, svreinterpret_s32_f16(halves));
}

INLINED void store_elements(Brain, char *at, Single::Vector numbers) {
  const Single::Wholes bits = (Single::Wholes)numbers;
  const Single::Wholes rounded = bits + 0x7fff + (bits >> 16 & 1);
  const Single::Wholes kept = numbers == numbers ? rounded : (bits | 0x400000);
  svst1h_s32(svptrue_b32(), (int16_t *)at, kept >> 16);
}

INLINED Single::Vector load_elements(Seen<Single>, const char *at) {
  const Single::Wholes stored = svld1ub_s32(svptrue_b32(), (const uint8_t *)at);
  return stored == 0 ? splat<Single>(-__builtin_huge_valf()) : Single::Vector{};
}

#else

INLINED Single::Vector load_elements(Brain, const char *at) {
  uint16x4_t stored;
  memcpy(&stored, at, sizeof stored);
  return (Single::Vector)vshll_n_u16(stored, 16);
}

INLINED Single::Vector load_elements(Half, const char *at) {
  float16x4_t stored;
  memcpy(&stored, at, sizeof stored);
  return vcvt_f32_f16(stored);
}

INLINED void store_elements(Half, char *at, Single::Vector numbers) {
  const float16x4_t stored = vcvt_f16_f32(numbers);
  memcpy(at, &stored, sizeof stored);
}

INLINED void store_elements(Brain, char *at, Single::Vector numbers) {
  const Single::Wholes bits = (Single::Wholes)numbers;
  const Single::Wholes rounded = bits + 0x7fff + (bits >> 16 & 1);
  const Single::Wholes kept = numbers == numbers ? rounded : (bits | 0x400000);
  const int16x4_t stored = vshrn_n_s32(kept, 16);
  memcpy(at, &stored, sizeof stored);
}

INLINED Single::Vector load_elements(Seen<Single>, const char *at) {
  uint32_t stored;
  memcpy(&stored, at, sizeof stored);
  const Single::Wholes each = (Single::Wholes)vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(stored))));
  return each == 0 ? splat<Single>(-__builtin_huge_valf()) : Single::Vector{};
}

#endif
