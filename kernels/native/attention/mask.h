/* What a tile's scores get from a causal limit and from a mask, whose rows lie across the lanes. */
#pragma once
#include "products.h"
#include "problem.h"

namespace {

/* The mask of the rows that stand in one vector group. */
template <class T, int vectors>
struct MaskRows {
  static constexpr int width = vectors * T::lanes;
  const char *row[width]; /* of each lane, at key 0; of lanes without a row, that of lane 0 */
  int64_t stride;         /* from a key to the next, in bytes */
  int element;
  bool alike; /* every lane has the same row */
};

enum Sight { NOTHING, SOME, EVERYTHING };

/* Tell what booleans let through of keys [first, first + keys). */
template <class T, int vectors>
static Sight sight(const MaskRows<T, vectors> &mask, int64_t first, int64_t keys) {
  if (mask.stride > 1) return SOME;
  if (mask.stride == 0) keys = 1, first = 0;
  const uint64_t all = 0x0101010101010101;
  bool any_seen = false, any_hidden = false;
  for (int lane = 0; lane < (mask.alike ? 1 : mask.width); lane++) {
    const char *at = mask.row[lane] + first;
    int64_t k = 0;
    for (; k + 8 <= keys && !(any_seen && any_hidden); k += 8) {
      uint64_t word;
      memcpy(&word, at + k, sizeof word);
      any_seen |= word != 0;
      any_hidden |= word != all;
    }
    for (; k < keys; k++) {
      any_seen |= at[k] != 0;
      any_hidden |= at[k] != 1;
    }
    if (any_seen && any_hidden) return SOME;
  }
  return any_hidden ? NOTHING : EVERYTHING;
}

/* Write the mask (keys, rows) of some keys as numbers that are added to scores. */
template <class E, int vectors>
static __attribute__((noinline)) void spread(E element, const MaskRows<typename E::Inner, vectors> &mask, int64_t first,
                                             int64_t keys, typename E::Inner::Real *tile) {
  typedef typename E::Inner T;
  typedef typename E::Stored Stored;
  constexpr int width = vectors * T::lanes;
  if (mask.alike || mask.stride != (int64_t)sizeof(Stored)) {
    for (int64_t k = 0; k < keys; k++)
      for (int lane = 0; lane < width; lane++) {
        if (mask.alike && lane) {
          tile[k * width + lane] = tile[k * width];
          continue;
        }
        Stored stored;
        memcpy(&stored, mask.row[lane] + (first + k) * mask.stride, sizeof stored);
        tile[k * width + lane] = widened(element, stored);
      }
    return;
  }
  for (int v = 0; v < vectors; v++)
    for (int64_t k = 0; k < keys; k += T::lanes) {
      const int64_t left = keys - k;
      typename T::Vector square[T::lanes];
#pragma GCC unroll 16
      for (int i = 0; i < T::lanes; i++) {
        const char *at = mask.row[v * T::lanes + i] + (first + k) * (int64_t)sizeof(Stored);
        square[i] = left >= T::lanes ? load_elements(element, at) : load_some(element, at, left);
      }
      transpose<T>(square);
      if (left >= T::lanes) {
#pragma GCC unroll 16
        for (int i = 0; i < T::lanes; i++) store<T>(tile + (k + i) * width + v * T::lanes, square[i]);
      } else {
        for (int i = 0; i < left; i++) store<T>(tile + (k + i) * width + v * T::lanes, square[i]);
      }
    }
}

/* scores = scores * scale + tile, and their maxima; `largest` holds the earlier ones. */
template <class T, int vectors>
static __attribute__((noinline)) void add_mask(typename T::Real *scores, const typename T::Real *tile, int64_t keys,
                                               typename T::Real scale, typename T::Real *largest) {
  for (int v = 0; v < vectors; v++) {
    typename T::Vector most = load<T>(largest + v * T::lanes);
    for (int64_t k = 0; k < keys; k++) {
      const int64_t at = (k * vectors + v) * T::lanes;
      const typename T::Vector sum = load<T>(scores + at) * scale + load<T>(tile + at);
      most = maximum(sum, most);
      store<T>(scores + at, sum);
    }
    store<T>(largest + v * T::lanes, most);
  }
}

/* Hide key k from the rows whose limit is k or less, and find the maxima of what is left. */
template <class T, int vectors>
static __attribute__((noinline)) void hide(typename T::Real *scores, int64_t keys, const typename T::Real *limits,
                                           typename T::Real *largest) {
  const typename T::Vector hidden = splat<T>(-(typename T::Real)__builtin_huge_val());
  for (int v = 0; v < vectors; v++) {
    typename T::Vector most = load<T>(largest + v * T::lanes);
    const typename T::Vector limit = load<T>(limits + v * T::lanes);
    for (int64_t k = 0; k < keys; k++) {
      typename T::Real *at = scores + (k * vectors + v) * T::lanes;
      const typename T::Vector kept = limit > (typename T::Real)k ? load<T>(at) : hidden;
      most = maximum(kept, most);
      store<T>(at, kept);
    }
    store<T>(largest + v * T::lanes, most);
  }
}

/* Call `spread` with the element type that a mask has. */
template <class T, int vectors>
static void spread_any(const MaskRows<T, vectors> &mask, int64_t first, int64_t keys, typename T::Real *tile) {
  if (mask.element == MLBACKENDS_ATTENTION_BOOL) return spread(Seen<T>{}, mask, first, keys, tile);
  if constexpr (sizeof(typename T::Real) == 8) {
    spread(Wide{}, mask, first, keys, tile);
  } else {
    if (mask.element == MLBACKENDS_ATTENTION_FLOAT32) spread(Float{}, mask, first, keys, tile);
    if (mask.element == MLBACKENDS_ATTENTION_FLOAT16) spread(Half{}, mask, first, keys, tile);
    if (mask.element == MLBACKENDS_ATTENTION_BFLOAT16) spread(Brain{}, mask, first, keys, tile);
  }
}

INLINED int64_t mask_bytes(int element) {
  switch (element) {
    case MLBACKENDS_ATTENTION_BOOL: return 1;
    case MLBACKENDS_ATTENTION_FLOAT32: return 4;
    case MLBACKENDS_ATTENTION_FLOAT64: return 8;
    default: return 2;
  }
}

}  // namespace
