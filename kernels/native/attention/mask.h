/* Apply a window and a mask to a tile's scores, with rows across the lanes. */
#pragma once
#include "products.h"
#include "problem.h"
#include "task.h"

namespace {

/* The mask of the rows in one vector group. */
template <class T, int vectors>
struct MaskRows {
  static constexpr int width = vectors * T::lanes;
  const char *row[width]; /* of each lane, at key 0; of lanes without a row, that of lane 0 */
  int64_t stride;         /* from a key to the next, in bytes */
  int element;
  bool alike; /* every lane has the same row */
};

/* The keys that `rows` rows from `row` on see, of `keys` keys from `key` on, counted from that one. Lanes
   without a row are as the last row. */
template <class T, int vectors>
struct Ends {
  typename T::Real first[vectors * T::lanes], end[vectors * T::lanes];

  Ends(const Task &task, int64_t row, int64_t rows, int64_t key, int64_t keys) {
    for (int lane = 0; lane < vectors * T::lanes; lane++) {
      const Range seen = task.seen(row + (lane < rows ? lane : rows - 1));
      first[lane] = (typename T::Real)clamp(seen.first - key, keys);
      end[lane] = (typename T::Real)clamp(seen.end - key, keys);
    }
  }
};

enum Visibility { NOTHING, SOME, EVERYTHING };

/* Tell what booleans let through of keys [first, first + keys). */
template <class T, int vectors>
static Visibility visibility(const MaskRows<T, vectors> &mask, int64_t first, int64_t keys) {
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

/* scores = scores * scale + mask for some keys, and the maxima; `largest` holds the earlier ones. */
template <class E, int vectors>
static __attribute__((noinline)) void add_elements(
    E element, const MaskRows<typename E::Inner, vectors> &mask, int64_t first, int64_t keys,
    typename E::Inner::Real *scores, typename E::Inner::Real scale, typename E::Inner::Real *largest) {
  typedef typename E::Inner T;
  typedef typename E::Stored Stored;
  const int64_t width = vectors * T::lanes;
  for (int v = 0; v < vectors; v++) {
    typename T::Vector most = load<T>(largest + v * T::lanes);
    const auto add = [&](int64_t k, typename T::Vector numbers) {
      typename T::Real *at = scores + k * width + v * T::lanes;
      const typename T::Vector sum = load<T>(at) * scale + numbers;
      most = maximum(sum, most);
      store<T>(at, sum);
    };
    int64_t k = 0;
    if (!mask.alike && mask.stride == (int64_t)sizeof(Stored))
      for (; k + T::lanes <= keys; k += T::lanes) { /* a square of rows and keys */
        typename T::Vector square[T::lanes];
#pragma GCC unroll 16
        for (int i = 0; i < T::lanes; i++)
          square[i] =
              load_elements(element, mask.row[v * T::lanes + i] + (first + k) * (int64_t)sizeof(Stored));
        transpose<T>(square);
#pragma GCC unroll 16
        for (int i = 0; i < T::lanes; i++) add(k + i, square[i]);
      }
    for (; k < keys; k++) {
      typename T::Real numbers[T::lanes];
      for (int i = 0; i < T::lanes; i++) {
        Stored stored;
        memcpy(&stored, mask.row[v * T::lanes + i] + (first + k) * mask.stride, sizeof stored);
        numbers[i] = widened(element, stored);
        if (mask.alike) {
          add(k, splat<T>(numbers[0]));
          break;
        }
      }
      if (!mask.alike) add(k, load<T>(numbers));
    }
    store<T>(largest + v * T::lanes, most);
  }
}

/* Call `add_elements` with the element type that a mask has. */
template <class T, int vectors>
static void add_mask(const MaskRows<T, vectors> &mask, int64_t first, int64_t keys, typename T::Real *scores,
                     typename T::Real scale, typename T::Real *largest) {
  const auto add = [&](auto element) { add_elements(element, mask, first, keys, scores, scale, largest); };
  if (mask.element == MLBACKENDS_ATTENTION_BOOL) return add(Seen<T>{});
  if constexpr (sizeof(typename T::Real) == 8) {
    add(Wide{});
  } else {
    if (mask.element == MLBACKENDS_ATTENTION_FLOAT32) add(Float{});
    if (mask.element == MLBACKENDS_ATTENTION_FLOAT16) add(Half{});
    if (mask.element == MLBACKENDS_ATTENTION_BFLOAT16) add(Brain{});
  }
}

/* Hide the keys before those that a row sees, and behind, and find the maxima of the rest. */
template <class T, int vectors>
static __attribute__((noinline)) void hide(typename T::Real *scores, int64_t keys,
                                           const Ends<T, vectors> &ends, typename T::Real *largest) {
  const typename T::Vector hidden = splat<T>(-(typename T::Real)__builtin_huge_val());
  for (int v = 0; v < vectors; v++) {
    typename T::Vector most = load<T>(largest + v * T::lanes);
    const typename T::Vector first = load<T>(ends.first + v * T::lanes),
                             end = load<T>(ends.end + v * T::lanes);
    for (int64_t k = 0; k < keys; k++) {
      typename T::Real *at = scores + (k * vectors + v) * T::lanes;
      const typename T::Real place = (typename T::Real)k;
      const typename T::Vector kept = (first <= place) & (end > place) ? load<T>(at) : hidden;
      most = maximum(kept, most);
      store<T>(at, kept);
    }
    store<T>(largest + v * T::lanes, most);
  }
}

/* Scale scores, cap them and lower them by the distances of their keys, and find the maxima. `from`: how far
   the rows' positions are behind the first key. */
template <class T, int vectors, bool capped, bool sloped>
static __attribute__((noinline)) void bend(typename T::Real *scores, int64_t keys, typename T::Real scale,
                                           typename T::Real cap, const typename T::Real *slopes,
                                           const typename T::Real *from, typename T::Real *largest) {
  typename T::Vector most[vectors], slope[vectors] = {}, distance[vectors] = {};
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) {
    most[v] = load<T>(largest + v * T::lanes);
    if (sloped) slope[v] = load<T>(slopes + v * T::lanes), distance[v] = load<T>(from + v * T::lanes);
  }
  for (int64_t k = 0; k < keys; k++)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
      typename T::Real *at = scores + (k * vectors + v) * T::lanes;
      typename T::Vector score = load<T>(at) * scale;
      if (capped) score = hyperbolic_tangent<T>(score) * cap;
      if (sloped) score -= absolute<T>(distance[v] - (typename T::Real)k) * slope[v];
      most[v] = maximum(score, most[v]);
      store<T>(at, score);
    }
#pragma GCC unroll 8
  for (int v = 0; v < vectors; v++) store<T>(largest + v * T::lanes, most[v]);
}

/* The mask of `rows` rows of a task from `first` on. */
template <class T, int vectors>
static void find_mask(const Task &task, int64_t first, int64_t rows, MaskRows<T, vectors> &mask) {
  const int64_t bytes = mask_bytes(task.p->mask_element);
  mask.element = task.p->mask_element;
  mask.stride = task.p->mask_strides[3] * bytes;
  mask.alike = true;
  for (int lane = 0; lane < mask.width; lane++) {
    mask.row[lane] = mask_row(task, first + (lane < rows ? lane : 0), bytes);
    mask.alike &= mask.row[lane] == mask.row[0];
  }
}

} // namespace
