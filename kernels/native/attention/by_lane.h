/* The products of a tile on NEON, which multiplies a vector by one lane of another: numbers are loaded as many at a time
   as a vector holds. Included by products.h, in its namespace. */

template <int lane>
INLINED void accumulate_lane(Single::Vector &sum, Single::Vector numbers, Single::Vector units) {
  sum = vfmaq_laneq_f32(sum, units, numbers, lane);
}
template <int lane>
INLINED void accumulate_lane(Double::Vector &sum, Double::Vector numbers, Double::Vector units) {
  sum = vfmaq_laneq_f64(sum, units, numbers, lane);
}
#if defined(MLBACKENDS_BFLOAT16_PAIRS)
template <int lane>
INLINED void accumulate_lane(Single::Vector &sum, Single::Wholes numbers, Single::Wholes units) {
  sum = vbfdotq_laneq_f32(sum, vreinterpretq_bf16_s32(units), vreinterpretq_bf16_s32(numbers), lane);
}
#endif

/* Numbers that lie one step after the other: lane is the step. */
template <class P, int vectors, int count, int lane = 0>
INLINED void multiply_steps(typename P::Inner::Vector (&sums)[count][vectors], const typename P::Units (&numbers)[count],
                            const typename P::Unit *units) {
  typename P::Units loaded[vectors];
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) loaded[v] = P::load_units(units + v * P::Inner::lanes);
#pragma GCC unroll 16
  for (int i = 0; i < count; i++)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) accumulate_lane<lane>(sums[i][v], numbers[i], loaded[v]);
  if constexpr (lane + 1 < P::Inner::lanes)
    multiply_steps<P, vectors, count, lane + 1>(sums, numbers, units + vectors * P::Inner::lanes);
}

template <class P, int vectors, int count, int first, int lane>
INLINED void multiply_lanes(typename P::Inner::Vector (&sums)[count][vectors], typename P::Units numbers,
                            const typename P::Units (&loaded)[vectors]) {
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) accumulate_lane<lane>(sums[first + lane][v], numbers, loaded[v]);
  if constexpr (lane + 1 < P::Inner::lanes) multiply_lanes<P, vectors, count, first, lane + 1>(sums, numbers, loaded);
}

/* Numbers of one step that lie one after the other: number i is a lane of vector i / lanes. */
template <class P, int vectors, int count, int i = 0>
INLINED void multiply_numbers(typename P::Inner::Vector (&sums)[count][vectors], const char *numbers,
                              const typename P::Units (&loaded)[vectors]) {
  if constexpr (i < count) {
    const typename P::Units some = P::load_units(numbers + i * sizeof(typename P::Unit));
    multiply_lanes<P, vectors, count, i, 0>(sums, some, loaded);
    multiply_numbers<P, vectors, count, i + P::Inner::lanes>(sums, numbers, loaded);
  }
}

/* As `multiply` of products.h, as far as whole vectors of numbers reach; return how many steps that are. */
template <class P, int vectors, int count>
INLINED int64_t multiply_by_lane(typename P::Inner::Vector (&sums)[count][vectors], const char *numbers, int64_t stride,
                                 int64_t step, const typename P::Unit *units, int64_t depth) {
  constexpr int lanes = P::Inner::lanes;
  int64_t d = 0;
  if (__builtin_constant_p(step) && step == (int64_t)sizeof(typename P::Unit)) {
    for (; d + lanes <= depth; d += lanes) {
      typename P::Units each[count];
#pragma GCC unroll 16
      for (int i = 0; i < count; i++) each[i] = P::load_units(numbers + i * stride + d * step);
      multiply_steps<P, vectors, count>(sums, each, units + d * vectors * lanes);
    }
  } else if (count % lanes == 0 && stride == (int64_t)sizeof(typename P::Unit)) {
    for (; d < depth; d++) {
      typename P::Units loaded[vectors];
#pragma GCC unroll 8
      for (int v = 0; v < vectors; v++) loaded[v] = P::load_units(units + (d * vectors + v) * lanes);
      if constexpr (count % lanes == 0) multiply_numbers<P, vectors, count>(sums, numbers + d * step, loaded);
    }
  }
  return d;
}
