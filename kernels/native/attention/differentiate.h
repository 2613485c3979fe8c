/* From scores to weights, and from the weights' gradients to those of the scores, for a tile whose lanes are
   rows. */
#pragma once
#include "dropout.h"
#include "exponential.h"

namespace {

/* What is known of each row: its log-sum-exp in powers of two; or, where that is too coarse, nothing of it
   (0), its largest score and one divided by the sum of its weights less that; and delta. c is what scores are
   multiplied by. */
template <class Real>
struct RowStatistics {
  const Real *exponent, *largest, *factor, *delta;
  Real c;
};

/* The position of a tile in all weights; `key` is a multiple of four. */
struct DropoutPlace {
  const Dropout &dropout;
  int64_t batch, head, row, key;
};

/* weights: scores in, weights out, those that are dropped 0 and the others enlarged. changes: the gradients
   of weights in, those of scores out. A weight is at most 1: the rounding of a large exponent must not make
   it infinite. */
template <class T, int vectors, int degree, bool drops>
static __attribute__((noinline)) void differentiate(typename T::Real *weights, typename T::Real *changes,
                                                    int64_t keys,
                                                    const RowStatistics<typename T::Real> &statistics,
                                                    const DropoutPlace &where) {
  typedef typename T::Vector Vector;
  Vector exponent[vectors], largest[vectors], rest[vectors], delta[vectors], factors[vectors][4];
  typename T::Wholes row[vectors];
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) {
    exponent[v] = load<T>(statistics.exponent + v * T::lanes);
    largest[v] = load<T>(statistics.largest + v * T::lanes);
    rest[v] = load<T>(statistics.factor + v * T::lanes);
    delta[v] = load<T>(statistics.delta + v * T::lanes);
    if (drops)
      for (int i = 0; i < T::lanes; i++) row[v][i] = (typename T::Whole)(where.row + v * T::lanes + i);
  }
  for (int64_t k = 0; k < keys; k++) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
      typename T::Real *weight_at = weights + (k * vectors + v) * T::lanes,
                       *change_at = changes + (k * vectors + v) * T::lanes;
      const Vector power = (load<T>(weight_at) - largest[v]) * statistics.c - exponent[v];
      const Vector weight = power_of_two<degree>(minimum(Vector{}, power)) * rest[v];
      if constexpr (drops) {
        typedef typename T::Wholes Wholes;
        typedef typename T::Whole Whole;
        if (k % 4 == 0)
          dropout_factors<T>(where.dropout, Wholes{} + (Whole)((where.key + k) / 4), row[v],
                             Wholes{} + (Whole)where.head, where.batch, factors[v]);
        const Vector factor = factors[v][k % 4];
        store<T>(change_at, weight * (load<T>(change_at) * factor - delta[v]));
        store<T>(weight_at, weight * factor);
      } else {
        store<T>(change_at, weight * (load<T>(change_at) - delta[v]));
        store<T>(weight_at, weight);
      }
    }
  }
}

/* Of each row so far: the largest score; the sum of weights, and of weights times their gradients, less that;
   and the size of its scores. */
template <class Real>
struct RefinedRows {
  Real *largest, *sum, *delta, *size;
};

/* Fold a tile into what was found of its rows. changes: the gradients of the weights. */
template <class T, int vectors, int degree, bool drops>
static __attribute__((noinline)) void refine(const typename T::Real *scores, const typename T::Real *changes,
                                             int64_t keys, typename T::Real c, const DropoutPlace &where,
                                             const RefinedRows<typename T::Real> &found) {
  typedef typename T::Vector Vector;
  typedef typename T::Wholes Wholes;
  typedef typename T::Whole Whole;
  const Vector nothing = splat<T>(-(typename T::Real)__builtin_huge_val());
  const typename T::Real fill = -65536; /* lower values come from a mask, not from scores */
  for (int v = 0; v < vectors; v++) {
    const int64_t at = v * T::lanes;
    const Vector before = load<T>(found.largest + at);
    Vector largest = before, size = load<T>(found.size + at), sum = {}, delta = {}, factors[4];
    for (int64_t k = 0; k < keys; k++) {
      const Vector score = load<T>(scores + (k * vectors + v) * T::lanes);
      largest = maximum(score, largest);
      size = maximum(score < fill ? Vector{} : absolute<T>(score), size);
    }
    const Vector from = largest == nothing ? Vector{} : largest;
    for (int64_t k = 0; k < keys; k++) {
      const Vector weight = power_of_two<degree>((load<T>(scores + (k * vectors + v) * T::lanes) - from) * c);
      Vector change = load<T>(changes + (k * vectors + v) * T::lanes);
      if constexpr (drops) {
        if (k % 4 == 0) {
          Wholes row;
          for (int i = 0; i < T::lanes; i++) row[i] = (Whole)(where.row + at + i);
          dropout_factors<T>(where.dropout, Wholes{} + (Whole)((where.key + k) / 4), row,
                             Wholes{} + (Whole)where.head, where.batch, factors);
        }
        change *= factors[k % 4];
      }
      sum += weight;
      delta += weight * change;
    }
    const Vector kept = power_of_two<degree>((before - from) * c);
    store<T>(found.largest + at, largest);
    store<T>(found.size + at, size);
    store<T>(found.sum + at, load<T>(found.sum + at) * kept + sum);
    store<T>(found.delta + at, load<T>(found.delta + at) * kept + delta);
  }
}

} // namespace
