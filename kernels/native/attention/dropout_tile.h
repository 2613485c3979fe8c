/* Dropout in a tile of weights whose lanes are rows. The tile's sums are those before it, and what is kept is
   enlarged when the output is finished: here weights are only set to 0. */
#pragma once
#include "dropout.h"
#include "products.h"
#include "task.h"

namespace {

/* The places and heads of the rows in the lanes of one group; those of lanes without a row do not count. */
template <class T, int vectors>
struct Counted {
  typename T::Wholes row[vectors], head[vectors];

  Counted(const Task &task, int64_t first, int64_t rows) {
    typename T::Whole place[vectors * T::lanes], heads[vectors * T::lanes];
    for (int64_t lane = 0; lane < vectors * T::lanes; lane++) {
      const int64_t number = first + (lane < rows ? lane : rows - 1);
      place[lane] = (typename T::Whole)task.place_of(number);
      heads[lane] = (typename T::Whole)task.head_of(number);
    }
    memcpy(row, place, sizeof row);
    memcpy(head, heads, sizeof head);
  }
};

/* Set the dropped weights (keys, rows) to 0, pairs of keys for P::pairs. `first`: the number of
   their first key, a multiple of 4. */
template <class P, int vectors>
static __attribute__((noinline)) void drop(const Dropout &dropout,
                                           const Counted<typename P::Inner, vectors> &counted, int64_t batch,
                                           int64_t first, int64_t keys, typename P::Unit *weights) {
  typedef typename P::Inner T;
  typedef typename T::Wholes Wholes;
  constexpr int per_unit = P::pairs ? 2 : 1, units = 4 / per_unit;
  for (int64_t k = 0; k < keys; k += 4)
    for (int v = 0; v < vectors; v++) {
      Wholes kept[4];
      find_kept<T>(dropout, Wholes{} + (typename T::Whole)((first + k) / 4), counted.row[v], counted.head[v],
                   batch, kept);
      for (int u = 0; u < units && k + u * per_unit < keys; u++) {
        typename P::Unit *at = weights + ((k / per_unit + u) * vectors + v) * T::lanes;
        Wholes weight;
        memcpy(&weight, at, sizeof weight);
        weight &= P::pairs ? (kept[2 * u] & 0xffff) | kept[(2 * u + 1) % 4] << 16 : kept[u];
        memcpy(at, &weight, sizeof weight);
      }
    }
}

} // namespace
