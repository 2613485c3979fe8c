/* The products of a tile. Lanes hold rows of the query, so key and value are read in place, a number at a
   time.

       scores^T (keys, rows) = key (keys, depth) @ query^T (depth, rows)
       output^T (width, rows) = value^T (width, keys) @ weights^T (keys, rows)

   A product names the unit in which the numbers of both sides come: one number, or a pair of bfloat16. */
#pragma once
#include "elements.h"

namespace {

template <class T>
struct Plain {
  typedef T Inner;
  typedef typename T::Real Unit;
  typedef typename T::Vector Units;
  static constexpr bool pairs = false, tiles = false;
  INLINED Units load_units(const void *at) { return load<T>(at); }
  INLINED void accumulate(typename T::Vector &sum, Unit number, Units units) { sum += number * units; }
  INLINED void accumulate(typename T::Vector &sum, Units first, Units second) { sum += first * second; }
};

#if defined(MLBACKENDS_BFLOAT16_PAIRS)
#include "pairs.h"
#endif
#if defined(__aarch64__)
#include "by_lane.h"
#endif

/* sums[i][v] += number i at each step, times the units of all rows at that step. The strides are in bytes. */
template <class P, int vectors, int count>
INLINED void multiply(typename P::Inner::Vector (&sums)[count][vectors], const char *numbers, int64_t stride,
                      int64_t step, const typename P::Unit *units, int64_t depth) {
  int64_t d = 0;
#if defined(__aarch64__)
  d = multiply_by_lane<P, vectors, count>(sums, numbers, stride, step, units, depth);
  numbers += d * step;
#endif
#pragma GCC unroll 4 /* so few rounds that the processor foresees the last one */
  for (; d < depth; d++) {
    typename P::Units loaded[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) loaded[v] = P::load_units(units + (d * vectors + v) * P::Inner::lanes);
#pragma GCC unroll 16
    for (int i = 0; i < count; i++) {
      typename P::Unit number;
      memcpy(&number, numbers + i * stride, sizeof number);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; v++) P::accumulate(sums[i][v], number, loaded[v]);
    }
    numbers += step;
  }
}

/* Write the scores of `count` keys, and fold them into the maximum of each row. */
template <class P, int vectors, int count>
static __attribute__((noinline)) void score(const char *key, int64_t stride, const typename P::Unit *query,
                                            int64_t depth, typename P::Inner::Real *scores,
                                            typename P::Inner::Real *largest) {
  typedef typename P::Inner T;
  typename T::Vector sums[count][vectors] = {};
  multiply<P, vectors, count>(sums, key, stride, sizeof(typename P::Unit), query, depth);
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) {
    typename T::Vector most = load<T>(largest + v * T::lanes);
#pragma GCC unroll 16
    for (int i = 0; i < count; i++) {
      most = maximum(sums[i][v], most);
      store<T>(scores + (i * vectors + v) * T::lanes, sums[i][v]);
    }
    store<T>(largest + v * T::lanes, most);
  }
}

/* Set `count` columns of the output to themselves times `factor`, which is null where there are none yet,
   plus the weighted sum of these keys' values. A block of keys is summed from zero: its rounding errors then
   do not grow with the number of keys. */
template <class P, int vectors, int count>
static __attribute__((noinline)) void weigh(const char *value, int64_t step, const typename P::Unit *weights,
                                            int64_t keys, const typename P::Inner::Real *factor,
                                            typename P::Inner::Real *output) {
  typedef typename P::Inner T;
  typename T::Vector sums[count][vectors] = {};
  multiply<P, vectors, count>(sums, value, sizeof(typename P::Unit), step, weights, keys);
  if (!factor) {
#pragma GCC unroll 16
    for (int i = 0; i < count; i++)
#pragma GCC unroll 8
      for (int v = 0; v < vectors; v++) store<T>(output + (i * vectors + v) * T::lanes, sums[i][v]);
    return;
  }
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) {
    const typename T::Vector shrunk = load<T>(factor + v * T::lanes);
#pragma GCC unroll 16
    for (int i = 0; i < count; i++) {
      typename T::Real *at = output + (i * vectors + v) * T::lanes;
      store<T>(at, load<T>(at) * shrunk + sums[i][v]);
    }
  }
}

/* Numbers on one side at a time, by the vectors on the other: as many sums as the registers hold. */
#if VECTOR_BYTES == 16 && defined(__aarch64__)
constexpr int vectors_at_once = 4;
#elif VECTOR_BYTES == 16 || defined(__aarch64__)
constexpr int vectors_at_once = 2;
#else
constexpr int vectors_at_once = 3;
#endif

template <int vectors>
constexpr int at_once() {
#if defined(__aarch64__) && VECTOR_BYTES == 16
  return vectors > 2 ? 4 : 8;
#elif VECTOR_BYTES == 64 || defined(__aarch64__)
  return 8;
#else
  return vectors == 3 ? 4 : vectors == 2 ? (VECTOR_BYTES == 16 ? 4 : 6) : 8;
#endif
}

template <class P, int vectors, int count = at_once<vectors>()>
INLINED void score_all(const char *key, int64_t stride, int64_t keys, const typename P::Unit *query,
                       int64_t depth, typename P::Inner::Real *scores, typename P::Inner::Real *largest) {
  constexpr int width = vectors * P::Inner::lanes;
  int64_t k = 0;
  for (; k + count <= keys; k += count)
    score<P, vectors, count>(key + k * stride, stride, query, depth, scores + k * width, largest);
  if constexpr (count > 1)
    if (k < keys)
      score_all<P, vectors, count / 2>(key + k * stride, stride, keys - k, query, depth, scores + k * width,
                                       largest);
}

template <class P, int vectors, int count = at_once<vectors>()>
INLINED void weigh_all(const char *value, int64_t step, int64_t columns, const typename P::Unit *weights,
                       int64_t keys, const typename P::Inner::Real *factor, typename P::Inner::Real *output) {
  constexpr int width = vectors * P::Inner::lanes;
  int64_t c = 0;
  for (; c + count <= columns; c += count)
    weigh<P, vectors, count>(value + c * (int64_t)sizeof(typename P::Unit), step, weights, keys, factor,
                             output + c * width);
  if constexpr (count > 1)
    if (c < columns)
      weigh_all<P, vectors, count / 2>(value + c * (int64_t)sizeof(typename P::Unit), step, columns - c,
                                       weights, keys, factor, output + c * width);
}

} // namespace

#if defined(MLBACKENDS_TILES)
#include "amx.h"
#endif
