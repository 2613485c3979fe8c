/* Products of pairs of bfloat16 by AMX's tiles: 16 numbers of each side at a time, 32
   elements deep. Included by products.h.

   The query and the weights lie as for pairs, which is as a tile's right side is read: (depth in pairs,
   rows). Keys are a left side as they lie, where their depth is a multiple of 32; values must be transposed,
   (columns, keys). What does not fill a tile is filled with zeros, but for the last keys: the products of
   pairs compute their scores. */
#pragma once

namespace {

#include "tiles.h"

template <int number>
struct Number {
  static constexpr int value = number;
};

/* Call `action` with Number<0>, Number<1>, ...: a tile is named in the instruction. */
template <int count, int number = 0, class Action>
INLINED void each(const Action &action) {
  if constexpr (number < count) {
    action(Number<number>{});
    each<count, number + 1>(action);
  }
}

/* to (16 blocks, rows) = left (16 blocks, depth) @ right (depth, rows), the depth in pairs and a multiple of
   16; the stride of `left` in bytes. Two blocks by three vectors are six sums; the last two tiles hold what
   is multiplied. */
template <int vectors, int blocks>
static __attribute__((noinline)) void multiply_blocks(const char *left, int64_t stride, const int32_t *right,
                                                      int64_t depth, float *to) {
  static_assert(vectors * blocks <= 6, "there are eight tiles");
  constexpr int64_t width = vectors * Single::lanes;
  each<vectors * blocks>([](auto sum) { zero_tile<decltype(sum)::value>(); });
  for (int64_t d = 0; d < depth; d += tile_rows)
    each<blocks>([=](auto block) {
      constexpr int b = decltype(block)::value;
      load_tile<6>(left + b * tile_rows * stride + d * (int64_t)sizeof(int32_t), stride);
      each<vectors>([=](auto vector) {
        constexpr int v = decltype(vector)::value;
        load_tile<7>(right + d * width + v * Single::lanes, width * (int64_t)sizeof(int32_t));
        multiply_tiles<b * vectors + v, 6, 7>();
      });
    });
  each<vectors * blocks>([=](auto sum) {
    constexpr int s = decltype(sum)::value;
    store_tile<s>(to + s / vectors * tile_rows * width + s % vectors * Single::lanes,
                  width * (int64_t)sizeof(float));
  });
}

/* As score_all. */
template <int vectors, int blocks = 2>
static void score_tiles(const char *key, int64_t stride, int64_t keys, const int32_t *query, int64_t depth,
                        float *scores, float *largest) {
  constexpr int width = vectors * Single::lanes, count = blocks * tile_rows;
  int64_t k = 0;
  for (; k + count <= keys; k += count) {
    float *found = scores + k * width;
    multiply_blocks<vectors, blocks>(key + k * stride, stride, query, depth, found);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
      Single::Vector most = load<Single>(largest + v * Single::lanes);
      for (int i = 0; i < count; i++)
        most = maximum(load<Single>(found + i * width + v * Single::lanes), most);
      store<Single>(largest + v * Single::lanes, most);
    }
  }
  if (k == keys) return;
  if constexpr (blocks > 1)
    score_tiles<vectors, 1>(key + k * stride, stride, keys - k, query, depth, scores + k * width, largest);
  else
    score_all<Pairs, vectors>(key + k * stride, stride, keys - k, query, depth, scores + k * width, largest);
}

/* As weigh_all, of values (columns, pairs) whose stride is in bytes, both filled with zeros to multiples of
   16. The weights are filled up here: there is room for as many as there were scores. */
template <int vectors>
static void weigh_tiles(const char *value, int64_t stride, int64_t columns, int32_t *weights, int64_t pairs,
                        const float *factor, float *output) {
  constexpr int width = vectors * Single::lanes;
  const int64_t depth = (pairs + tile_rows - 1) / tile_rows * tile_rows;
  memset(weights + pairs * width, 0, sizeof(int32_t) * (size_t)((depth - pairs) * width));
  float sums[2 * tile_rows * width];
  for (int64_t c = 0; c < columns; c += 2 * tile_rows) {
    const int64_t left = columns - c < 2 * tile_rows ? columns - c : 2 * tile_rows;
    if (left > tile_rows)
      multiply_blocks<vectors, 2>(value + c * stride, stride, weights, depth, sums);
    else
      multiply_blocks<vectors, 1>(value + c * stride, stride, weights, depth, sums);
    for (int64_t i = 0; i < left; i++)
#pragma GCC unroll 8
      for (int v = 0; v < vectors; v++) {
        float *at = output + (c + i) * width + v * Single::lanes;
        const Single::Vector sum = load<Single>(sums + i * width + v * Single::lanes);
        store<Single>(at, factor ? load<Single>(at) * load<Single>(factor + v * Single::lanes) + sum : sum);
      }
  }
}

/* Transpose the values of some keys: (columns, pairs of keys), filled with zeros to multiples of 16. The
   stride of what is written is in pairs. */
template <class Lines>
static void transpose_values(const Lines &rows, int64_t count, int64_t columns, int32_t *to,
                             int64_t to_stride) {
  const auto bits = [=](int64_t key, int64_t column) {
    if (key >= count) return Single::Wholes{};
    const char *at = rows[key] + 2 * column;
    const int64_t left = columns - column;
    return (Single::Wholes)(left >= Single::lanes ? load_elements(Brain{}, at)
                                                  : load_some(Brain{}, at, left));
  };
  for (int64_t c = 0; c < columns; c += Single::lanes)
    for (int64_t pair = 0; 2 * pair < count; pair += Single::lanes) {
      Single::Vector square[Single::lanes];
      for (int i = 0; i < Single::lanes; i++)
        square[i] = (Single::Vector)((bits(2 * (pair + i), c) >> 16 & 0xffff) | bits(2 * (pair + i) + 1, c));
      transpose<Single>(square);
      for (int i = 0; i < Single::lanes; i++) store<Single>(to + (c + i) * to_stride + pair, square[i]);
    }
}

/* The product, with what a task does otherwise than with pairs. */
struct Tiles : Pairs {
  static constexpr bool tiles = true;
  INLINED void begin() { configure_tiles(); }
  INLINED void end() { release_tiles(); }
  template <int vectors, class... Given>
  INLINED void score(Given... given) {
    score_tiles<vectors>(given...);
  }
  template <int vectors, class... Given>
  INLINED void weigh(Given... given) {
    weigh_tiles<vectors>(given...);
  }
  template <class... Given>
  INLINED void transpose_values_of(const Given &...given) {
    transpose_values(given...);
  }
};

} // namespace
