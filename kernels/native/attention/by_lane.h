/* The products of a tile on AArch64, which multiplies a vector by one lane of another: numbers are loaded 16
   bytes at a time, on SVE into each 16 bytes of a vector. Included by products.h, in its namespace. */

#if defined(__ARM_FEATURE_SVE)
INLINED void load_numbers(Single::Vector &numbers, const char *at) {
  numbers = svld1rq_f32(svptrue_b32(), (const float *)at);
}
INLINED void load_numbers(Single::Wholes &numbers, const char *at) {
  numbers = svld1rq_s32(svptrue_b32(), (const int32_t *)at);
}
INLINED void load_numbers(Double::Vector &numbers, const char *at) {
  numbers = svld1rq_f64(svptrue_b64(), (const double *)at);
}
#define MULTIPLIED_BY_LANE(element, sum, units, numbers) svmla_lane_##element(sum, units, numbers, lane)
#define DOT_BY_LANE(sum, units, numbers) \
  svbfdot_lane_f32(sum, svreinterpret_bf16_s32(units), svreinterpret_bf16_s32(numbers), lane)
#else
template <class Units>
INLINED void load_numbers(Units &numbers, const char *at) {
  memcpy(&numbers, at, sizeof numbers);
}
#define MULTIPLIED_BY_LANE(element, sum, units, numbers) vfmaq_laneq_##element(sum, units, numbers, lane)
#define DOT_BY_LANE(sum, units, numbers) \
  vbfdotq_laneq_f32(sum, vreinterpretq_bf16_s32(units), vreinterpretq_bf16_s32(numbers), lane)
#endif

template <int lane>
INLINED void accumulate_lane(Single::Vector &sum, Single::Vector numbers, Single::Vector units) {
  sum = MULTIPLIED_BY_LANE(f32, sum, units, numbers);
}
template <int lane>
INLINED void accumulate_lane(Double::Vector &sum, Double::Vector numbers, Double::Vector units) {
  sum = MULTIPLIED_BY_LANE(f64, sum, units, numbers);
}
#if defined(MLBACKENDS_BFLOAT16_PAIRS)
template <int lane>
INLINED void accumulate_lane(Single::Vector &sum, Single::Wholes numbers, Single::Wholes units) {
  sum = DOT_BY_LANE(sum, units, numbers);
}
#endif

/* How many numbers are loaded at a time. */
template <class P>
constexpr int together() {
  return 16 / sizeof(typename P::Unit);
}

/* Consecutive numbers of one sum: a lane is a step. */
template <class P, int vectors, int count, int lane = 0>
INLINED void multiply_steps(typename P::Inner::Vector (&sums)[count][vectors],
                            const typename P::Units (&numbers)[count], const typename P::Unit *units) {
  typename P::Units loaded[vectors];
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) loaded[v] = P::load_units(units + v * P::Inner::lanes);
#pragma GCC unroll 16
  for (int i = 0; i < count; i++)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) accumulate_lane<lane>(sums[i][v], numbers[i], loaded[v]);
  if constexpr (lane + 1 < together<P>())
    multiply_steps<P, vectors, count, lane + 1>(sums, numbers, units + vectors * P::Inner::lanes);
}

/* Consecutive numbers of one step: a lane is a sum. */
template <class P, int vectors, int count, int first, int lane = 0>
INLINED void multiply_lanes(typename P::Inner::Vector (&sums)[count][vectors], typename P::Units numbers,
                            const typename P::Units (&loaded)[vectors]) {
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) accumulate_lane<lane>(sums[first + lane][v], numbers, loaded[v]);
  if constexpr (lane + 1 < together<P>())
    multiply_lanes<P, vectors, count, first, lane + 1>(sums, numbers, loaded);
}
template <class P, int vectors, int count, int first = 0>
INLINED void multiply_numbers(typename P::Inner::Vector (&sums)[count][vectors], const char *numbers,
                              const typename P::Units (&loaded)[vectors]) {
  if constexpr (first < count) {
    typename P::Units some;
    load_numbers(some, numbers + first * sizeof(typename P::Unit));
    multiply_lanes<P, vectors, count, first>(sums, some, loaded);
    multiply_numbers<P, vectors, count, first + together<P>()>(sums, numbers, loaded);
  }
}

/* As `multiply` of products.h, as far as 16 bytes of numbers at a time reach; return how many steps that
   are. */
template <class P, int vectors, int count>
INLINED int64_t multiply_by_lane(typename P::Inner::Vector (&sums)[count][vectors], const char *numbers,
                                 int64_t stride, int64_t step, const typename P::Unit *units, int64_t depth) {
  constexpr int lanes = P::Inner::lanes, some = together<P>();
  int64_t d = 0;
  if (__builtin_constant_p(step) && step == (int64_t)sizeof(typename P::Unit)) {
    for (; d + some <= depth; d += some) {
      typename P::Units each[count];
#pragma GCC unroll 16
      for (int i = 0; i < count; i++) load_numbers(each[i], numbers + i * stride + d * step);
      multiply_steps<P, vectors, count>(sums, each, units + d * vectors * lanes);
    }
  } else if (count % some == 0 && stride == (int64_t)sizeof(typename P::Unit)) {
    for (; d < depth; d++) {
      typename P::Units loaded[vectors];
#pragma GCC unroll 8
      for (int v = 0; v < vectors; v++) loaded[v] = P::load_units(units + (d * vectors + v) * lanes);
      if constexpr (count % some == 0) multiply_numbers<P, vectors, count>(sums, numbers + d * step, loaded);
    }
  }
  return d;
}
