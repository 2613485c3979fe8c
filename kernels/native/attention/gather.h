/* The product that sums over rows, which the other two of products.h have across their lanes:

       sum (keys, columns) += weights^T (keys, rows) @ columns (rows, columns)

   Here lanes hold columns, and the rows are read from the groups in which they lie. */
#pragma once
#include "products.h"

namespace {

/* A number of rows or columns as vectors, in groups of a few: groups differ by at most one vector. */
template <class T>
struct Groups {
  int64_t vectors, count, each, larger;

  explicit Groups(int64_t width)
      : vectors((width + T::lanes - 1) / T::lanes),
        count((vectors + vectors_at_once - 1) / vectors_at_once),
        each(count ? vectors / count : 0),
        larger(count ? vectors % count : 0) {}
  int64_t vectors_in(int64_t group) const { return each + (group < larger); }
  int64_t width(int64_t group) const { return vectors_in(group) * T::lanes; }
  int64_t first(int64_t group) const { return (group * each + (group < larger ? group : larger)) * T::lanes; }
  int64_t of(int64_t vector) const {
    const int64_t in_larger = larger * (each + 1);
    return vector < in_larger ? vector / (each + 1) : larger + (vector - in_larger) / each;
  }
};

/* What a group of rows has for a strip of keys: (keys, width), zeros for some keys behind the ones that it
   sees. */
template <class Real>
struct Part {
  const Real *weights, *changes;
  int64_t width, first_row, rows, keys;
};

template <class P, int vectors, bool of_changes, int count>
static __attribute__((noinline)) void gather(const Part<typename P::Unit> *parts, int64_t groups, int64_t key,
                                             const typename P::Unit *columns, typename P::Inner::Real *sum) {
  typedef typename P::Inner T;
  typename T::Vector sums[count][vectors] = {};
  for (int64_t group = 0; group < groups; group++) {
    const auto &part = parts[group];
    if (part.keys <= key) continue;
    const typename P::Unit *numbers = (of_changes ? part.changes : part.weights) + key * part.width;
    multiply<P, vectors, count>(sums, (const char *)numbers, part.width * (int64_t)sizeof *numbers,
                                sizeof *numbers, columns + part.first_row * vectors * T::lanes, part.rows);
  }
#pragma GCC unroll 16
  for (int i = 0; i < count; i++)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
      typename T::Real *at = sum + ((key + i) * vectors + v) * T::lanes;
      store<T>(at, load<T>(at) + sums[i][v]);
    }
}

template <class P, int vectors, bool of_changes, int count = at_once<vectors>()>
INLINED void gather_all(const Part<typename P::Unit> *parts, int64_t groups, int64_t key, int64_t keys,
                        const typename P::Unit *columns, typename P::Inner::Real *sum) {
  for (; key + count <= keys; key += count)
    gather<P, vectors, of_changes, count>(parts, groups, key, columns, sum);
  if constexpr (count > 1)
    if (key < keys) gather_all<P, vectors, of_changes, count / 2>(parts, groups, key, keys, columns, sum);
}

} // namespace
