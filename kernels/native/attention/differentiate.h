/* From scores to weights, and from the weights' gradients to those of the scores, for a tile whose lanes are rows. */
#pragma once
#include "dropping.h"
#include "exponential.h"

namespace {

/* What is known of each row: its log-sum-exp in powers of two, and delta; c is what scores are multiplied by. */
template <class Real>
struct Known {
  const Real *exponent, *delta;
  Real c;
};

/* Where in all weights a tile lies; `key` is a multiple of four. */
struct Dropped {
  const Dropping &dropping;
  int64_t batch, head, row, key;
};

/* weights: scores in, weights out, those that are dropped 0 and the others enlarged. changes: the gradients of weights
   in, those of scores out. A weight is at most 1: the rounding of a large exponent must not make it infinite. */
template <class T, int vectors, int degree, bool drops>
static __attribute__((noinline)) void differentiate(typename T::Real *weights, typename T::Real *changes, int64_t keys,
                                                    const Known<typename T::Real> &known, const Dropped &where) {
  typedef typename T::Vector Vector;
  Vector exponent[vectors], delta[vectors], factors[vectors][4];
  typename T::Wholes row[vectors];
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) {
    exponent[v] = load<T>(known.exponent + v * T::lanes);
    delta[v] = load<T>(known.delta + v * T::lanes);
    if (drops)
      for (int i = 0; i < T::lanes; i++) row[v][i] = (typename T::Whole)(where.row + v * T::lanes + i);
  }
  for (int64_t k = 0; k < keys; k++) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
      typename T::Real *weight_at = weights + (k * vectors + v) * T::lanes, *change_at = changes + (k * vectors + v) * T::lanes;
      const Vector power = load<T>(weight_at) * known.c - exponent[v];
      const Vector weight = power_of_two<degree>(minimum(Vector{}, power));
      if constexpr (drops) {
        typedef typename T::Wholes Wholes;
        typedef typename T::Whole Whole;
        if (k % 4 == 0)
          dropped<T>(where.dropping, Wholes{} + (Whole)((where.key + k) / 4), row[v], Wholes{} + (Whole)where.head, where.batch, factors[v]);
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

}  // namespace
