/* The running softmax of a tile whose lanes are rows.

   Source: Milakov and Gimelshein 2018, algorithm 3. Scores are kept as they are; c = factor is what they are
   multiplied by to be powers of two, and is above 0. */
#pragma once
#include "exponential.h"
#include "products.h"

namespace {

/* What is known of each row so far: the largest score, and the sum of 2^(c (score - largest)). */
template <class T>
struct Running {
  typename T::Real *largest, *sum;
};

/* From where on the product of a score and c is so large that its rounding would show in the weights. */
template <class T>
constexpr typename T::Real coarse() {
  return sizeof(typename T::Real) == 4 ? (typename T::Real)65536 : (typename T::Real)0x1p40;
}

/* A product that must not be fused with a following addition. clang has no vectors of SVE's length in the
   registers of assembly. */
template <class T>
INLINED typename T::Vector rounded(typename T::Vector product) {
  __asm__(""
          : "+"
#if defined(__SSE2__)
            "x"
#elif defined(__aarch64__) && !(defined(__clang__) && defined(__ARM_FEATURE_SVE_BITS))
            "w"
#else
            "m"
#endif
          (product));
  return product;
}

/* Turn the scores (keys, rows) into weights in place, pairs of keys for P::pairs. `largest` has the tile's
   maxima, the earlier ones folded in; `factor` is set to what the earlier output must be multiplied by. */
template <class P, int vectors, int degree>
static __attribute__((noinline)) void fold(typename P::Inner::Real *scores, int64_t keys,
                                           const typename P::Inner::Real *largest, typename P::Inner::Real c,
                                           Running<typename P::Inner> running,
                                           typename P::Inner::Real *factor) {
  typedef typename P::Inner T;
  typedef typename T::Vector Vector;
  const typename T::Real infinity = (typename T::Real)__builtin_huge_val();
  Vector most[vectors], scaled[vectors], sum[vectors];
  bool is_coarse = false;
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) {
    const Vector now = load<T>(largest + v * T::lanes), before = load<T>(running.largest + v * T::lanes);
    /* A row without a key so far is measured from 0: its scores of -inf then weigh nothing. */
    most[v] = now == -infinity ? Vector{} : now;
    scaled[v] = most[v] * c;
    is_coarse |= largest_lane<T>(absolute<T>(scaled[v])) > coarse<T>();
    /* The same rounding as in the weights of earlier tiles, so that it cancels. */
    store<T>(factor + v * T::lanes, power_of_two<5>(rounded<T>(before * c) - scaled[v]));
    sum[v] = Vector{};
  }
  const int64_t width = vectors * T::lanes;
  if (__builtin_expect(is_coarse, 0)) {
    for (int v = 0; v < vectors; v++)
      store<T>(factor + v * T::lanes,
               power_of_two<5>((load<T>(running.largest + v * T::lanes) - most[v]) * c));
    for (int64_t k = 0; k < keys; k++)
      for (int v = 0; v < vectors; v++) {
        typename T::Real *at = scores + k * width + v * T::lanes;
        store<T>(at, (load<T>(at) - most[v]) * c);
      }
    c = 1;
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) scaled[v] = Vector{};
  }
  if constexpr (P::pairs) {
    for (int64_t k = 0; k < keys; k += 2) {
#pragma GCC unroll 8
      for (int v = 0; v < vectors; v++) {
        const typename T::Real *at = scores + k * width + v * T::lanes;
        const Vector lower = power_of_two<degree>(load<T>(at) * c - scaled[v]);
        const Vector upper =
            k + 1 < keys ? power_of_two<degree>(load<T>(at + width) * c - scaled[v]) : Vector{};
        sum[v] += lower + upper;
        const typename P::Units pair = P::paired(lower, upper);
        memcpy((char *)scores + (k / 2 * vectors + v) * VECTOR_BYTES, &pair, sizeof pair);
      }
    }
  } else {
    for (int64_t k = 0; k < keys; k++) {
#pragma GCC unroll 8
      for (int v = 0; v < vectors; v++) {
        typename T::Real *at = scores + k * width + v * T::lanes;
        const Vector weight = power_of_two<degree>(load<T>(at) * c - scaled[v]);
        sum[v] += weight;
        store<T>(at, weight);
      }
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) {
    typename T::Real *at = running.sum + v * T::lanes;
    store<T>(running.largest + v * T::lanes, load<T>(largest + v * T::lanes));
    store<T>(at, load<T>(at) * load<T>(factor + v * T::lanes) + sum[v]);
  }
}

} // namespace
