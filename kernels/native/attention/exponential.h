/* 2^x in vectors, and the logarithm that the log-sum-exp ends with. */
#pragma once
#include "simd.h"

namespace {

/* Polynomials for 2^f that are 1 at 0. The largest relative error is 2.9e-6 at degree 4, 9.1e-8 at degree 5;
   f is in [-1/2, 1/2], but in [0, 1] for degree 4 with AVX-512. */
template <int degree>
INLINED Single::Vector exponential_polynomial(Single::Vector f) {
  static_assert(degree == 4 || degree == 5, "there are coefficients for these");
  Single::Vector p;
  if (degree == 4) {
#if defined(__AVX512F__)
    p = f * 1.3426685531e-2f + 5.2242472201e-2f;
    p = p * f + 2.412802057e-1f;
    p = p * f + 6.9304484478e-1f;
#else
    p = f * 9.5828530952e-3f + 5.5906424597e-2f;
    p = p * f + 2.402409861e-1f;
    p = p * f + 6.9312419342e-1f;
#endif
  } else {
    p = f * 1.3264727197e-3f + 9.6715126397e-3f;
    p = p * f + 5.5507337353e-2f;
    p = p * f + 2.4022242085e-1f;
    p = p * f + 6.931469776e-1f;
  }
  return p * f + 1.0f;
}

/* (2^f - 1) / f; Taylor's series up to the twelfth power of f has a remainder below 2e-16. */
INLINED Double::Vector exponential_slope(Double::Vector f) {
  Double::Vector p = f * 2.5678435993488206e-11 + 4.4455382718708116e-10;
  p = p * f + 7.0549116208011234e-09;
  p = p * f + 1.0178086009239699e-07;
  p = p * f + 1.3215486790144307e-06;
  p = p * f + 1.5252733804059841e-05;
  p = p * f + 1.5403530393381609e-04;
  p = p * f + 1.3333558146428443e-03;
  p = p * f + 9.6181291076284772e-03;
  p = p * f + 5.5504108664821580e-02;
  p = p * f + 2.4022650695910072e-01;
  return p * f + 6.9314718055994531e-01;
}

template <int degree>
INLINED Double::Vector exponential_polynomial(Double::Vector f) {
  return exponential_slope(f) * f + 1.0;
}

/* Its largest relative error is 2.1e-8; those of the polynomials above are larger near 0. */
INLINED Single::Vector exponential_slope(Single::Vector f) {
  Single::Vector p = f * 1.5403512e-4f + 1.3390735e-3f;
  p = p * f + 9.6182376e-3f;
  p = p * f + 5.5503573e-2f;
  p = p * f + 2.4022649e-1f;
  return p * f + 6.9314718e-1f;
}

/* 2^x for x <= 0 or little above: 1 for 0, 0 for minus infinity and for underflow, NaN for NaN. */
template <int degree>
INLINED Single::Vector power_of_two(Single::Vector x) {
#if defined(__AVX512F__)
  /* Scaling by 2^x rounds x down. Degree 4 takes x less that, which saves the subtraction; degree 5 needs the
     nearest. */
  const __m512 f = _mm512_reduce_ps(
      (__m512)x, (degree == 4 ? _MM_FROUND_TO_NEG_INF : _MM_FROUND_TO_NEAREST_INT) | _MM_FROUND_NO_EXC);
  const __m512 whole = degree == 4 ? (__m512)x : _mm512_sub_ps((__m512)x, f);
  const __m512 p = (__m512)exponential_polynomial<degree>((Single::Vector)f);
  /* Subnormal weights would count for nothing and cost a lot. */
  const __mmask16 normal = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
  return (Single::Vector)_mm512_maskz_scalef_ps(normal, p, whole);
#else
  const Single::Vector lowest = splat<Single>(-127.0f), magic = splat<Single>(12582912.0f);
  const Single::Vector held = maximum(lowest, x);
  const Single::Vector moved = held + magic; /* its last bits are the nearest whole number */
  const Single::Vector p = exponential_polynomial<degree>(held - (moved - magic));
  const Single::Vector scaled = (Single::Vector)((Single::Wholes)p + ((Single::Wholes)moved << 23));
  const Single::Vector flushed = x < -126.0f ? Single::Vector{} : scaled;
  return x == x ? flushed : x;
#endif
}

template <int degree>
INLINED Double::Vector power_of_two(Double::Vector x) {
  const Double::Vector lowest = splat<Double>(-1023.0), magic = splat<Double>(6755399441055744.0);
  const Double::Vector held = maximum(lowest, x);
  const Double::Vector moved = held + magic;
  const Double::Vector p = exponential_polynomial<degree>(held - (moved - magic));
  const Double::Vector scaled = (Double::Vector)((Double::Wholes)p + ((Double::Wholes)moved << 52));
  const Double::Vector flushed = x < -1022.0 ? Double::Vector{} : scaled;
  return x == x ? flushed : x;
}

/* tanh |x| = e / (e + 2) of e = exp(2 |x|) - 1, which is computed without a difference of large numbers. */
template <class T>
INLINED typename T::Vector hyperbolic_tangent(typename T::Vector x) {
  typedef typename T::Real Real;
  constexpr bool wide = sizeof(Real) == 8;
  const typename T::Vector one = splat<T>((Real)1),
                           magic = splat<T>(wide ? (Real)6755399441055744.0 : (Real)12582912.0);
  const typename T::Vector exponent =
      minimum(splat<T>((Real)64), absolute<T>(x) * (Real)2.8853900817779268); /* a NaN stays one */
  const typename T::Vector moved = exponent + magic, f = exponent - (moved - magic);
  const auto power =
      (typename T::Vector)((typename T::Wholes)one + ((typename T::Wholes)moved << (wide ? 52 : 23)));
  const typename T::Vector e = power * (f * exponential_slope(f)) + (power - one), size = e / (e + (Real)2);
  const auto sign = (typename T::Wholes)x ^ (typename T::Wholes)absolute<T>(x);
  return (typename T::Vector)((typename T::Wholes)size | sign);
}

/* e^x of one number, not above 0. */
static inline double exponential(double x) {
  Double::Real lanes[Double::lanes];
  store<Double>(lanes, power_of_two<5>(splat<Double>(x * 1.4426950408889634)));
  return lanes[0];
}

/* The natural logarithm of a normal number above 0, or of infinity. */
static inline double logarithm(double x) {
  if (!(x < __builtin_huge_val())) return x;
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int64_t exponent = (int64_t)(bits >> 52) - 1022;
  bits = (bits & 0xfffffffffffff) | (uint64_t)1022 << 52; /* in [1/2, 1) */
  double m;
  memcpy(&m, &bits, sizeof m);
  if (m < 0.70710678118654752) m *= 2, exponent--;
  const double t = (m - 1) / (m + 1), square = t * t;
  double series = 0;
  for (int power = 23; power > 0; power -= 2) series = series * square + 1.0 / power;
  return 2 * t * series + (double)exponent * 0.69314718055994531;
}

} // namespace
