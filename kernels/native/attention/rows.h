/* A task of few rows, as when one token is generated: lanes hold elements of a row of key or value, each of
   which is read once for all rows. */
#pragma once
#include "dropout.h"
#include "exponential.h"
#include "mask.h"
#include "products.h"
#include "scratch.h"
#include "task.h"

namespace {

/* E: the elements of query, key and value. P: the product that computes them. */
template <class E, class P>
struct Rows {
  typedef typename E::Inner T;
  typedef typename P::Unit Unit;
  typedef typename P::Units Units;
  typedef typename T::Real Real;
  typedef typename T::Vector Vector;
  static constexpr int64_t size = sizeof(typename E::Stored);
  static constexpr int64_t keys_at_once = 128;
  static constexpr int most = T::lanes < 8 ? T::lanes : 8;
  static constexpr int degree = size == 2 ? 4 : 5;
  static constexpr int per_unit = P::pairs ? 2 : 1;        /* elements of a row, or keys */
  static constexpr int64_t elements = T::lanes * per_unit; /* of a row, that a vector of units holds */

  struct Memory {
    Unit *query;   /* (rows, head_dim up to whole vectors) */
    Real *output;  /* (rows, value_dim up to whole vectors) */
    Real *scores;  /* (rows, keys) */
    Unit *weights; /* (rows, keys): where they are no pairs, the scores' place */

    Memory(const Partition &partition, Scratch &scratch) {
      const Problem &p = *partition.problem;
      query = scratch.take<Unit>(most * depth(p));
      output = scratch.take<Real>(most * padded(p.value_dim));
      scores = scratch.take<Real>(most * (keys_at_once + T::lanes));
      if constexpr (P::pairs)
        weights = scratch.take<Unit>(most * keys_at_once / 2);
      else
        weights = scores;
    }
  };
  static constexpr int64_t weights_stride = P::pairs ? keys_at_once / 2 : keys_at_once + T::lanes;
  static int64_t depth(const Problem &p) { return (p.head_dim + elements - 1) / elements * T::lanes; }
  static int64_t padded(int64_t width) { return (width + T::lanes - 1) / T::lanes * T::lanes; }

  static int64_t scratch_bytes(const Partition &partition) {
    Scratch counted = {};
    Memory memory(partition, counted);
    return counted.taken;
  }

  const Task &task;
  const Problem &p;
  const Scaling scaling;
  const Dropout dropout;
  Memory memory;
  Real largest[most], sum[most], factor[most];
  Range seen[most];

  Rows(const Partition &partition, const Task &task_, Scratch &scratch)
      : task(task_), p(*partition.problem), scaling(p), dropout(p), memory(partition, scratch) {}

  void run() {
    const int64_t rows = task.last_row - task.first_row;
    if (rows == 1) return run_with<1>();
    if (rows == 2 && most >= 2) return run_with<2>();
    if constexpr (most >= 4)
      if (rows <= 4) return run_with<4>();
    if constexpr (most >= 8) return run_with<8>();
  }

 private:
  /* `count` rows, of which the last ones may be repetitions of the last that there is. */
  template <int count>
  void run_with() {
    const int64_t rows = task.last_row - task.first_row;
    for (int r = 0; r < count; r++) {
      const int64_t row = task.first_row + (r < rows ? r : rows - 1);
      seen[r] = task.seen(row);
      largest[r] = -(Real)__builtin_huge_val();
      sum[r] = 0;
      gather(query_row(task, row), memory.query + r * depth(p));
    }
    memset(memory.output, 0, sizeof(Real) * (size_t)(count * padded(p.value_dim)));
    const Range any = span_of(task, task.first_row, task.last_row).any;
    const int64_t last = any.end < task.last_key ? any.end : task.last_key;
    int64_t keys;
    for (int64_t first = any.first / 32 * 32 > task.first_key ? any.first / 32 * 32 : task.first_key;
         first < last; first += keys) {
      keys = clamp(task.even_keys(first), last - first < keys_at_once ? last - first : keys_at_once);
      score<count>(first, keys);
      for (int r = 0; r < count; r++) {
        const int64_t row = task.first_row + (r < rows ? r : rows - 1);
        fold(r, first, keys, row);
        if (p.dropout) drop(row, first, keys, memory.scores + r * (keys_at_once + T::lanes));
        if constexpr (P::pairs) pair_weights(r, keys);
      }
      weigh<count>(first, keys);
    }
    for (int64_t r = 0; r < rows; r++)
      finish_row_or_store<E>(task, task.first_row + r, memory.output + r * padded(p.value_dim),
                             (double)largest[r], (double)sum[r], scaling.natural);
  }

  void gather(const char *row, Unit *to) const {
    for (int64_t d = 0; d < p.head_dim; d += elements) {
      const int64_t left = p.head_dim - d;
      Units units = left >= elements ? whole_units(row + d * size) : some_units(row + d * size, left);
      if constexpr (P::pairs)
        units = scaling.ignored ? Units{} : scaling.negated ? units ^ (int32_t)0x80008000 : units;
      else
        units = scaling.ignored ? units * (Real)0 : scaling.negated ? -units : units;
      memcpy(to + d / per_unit, &units, sizeof units);
    }
  }

  INLINED Units whole_units(const char *at) {
    if constexpr (P::pairs)
      return P::load_units(at);
    else
      return load_elements(E{}, at);
  }
  INLINED Units some_units(const char *at, int64_t count) {
    if constexpr (P::pairs)
      return P::load_some_units(at, count);
    else
      return load_some(E{}, at, count);
  }

  /* Whether the processor foresees what is read: few rows at once, whose keys or values follow each other in
     memory, and are not in pages. Then requests of ours would delay it, but for the next page of memory. */
  template <int count>
  bool is_foreseen(int64_t stride, int64_t width) const {
    return count <= 2 && stride == width && !p.pages;
  }

  /* Ask for a row of a later step; or, where it is foreseen, for a page that begins with it. */
  INLINED void prefetch(const char *row, int64_t width, bool foreseen) {
    constexpr uintptr_t page = 4096;
    if (!foreseen)
      for (int64_t at = 0; at < width * size; at += 64) __builtin_prefetch(row + at, 0, 2);
    else if ((uintptr_t)row % page < (uintptr_t)(width * size))
      __builtin_prefetch(row, 0, 2);
  }

  /* scores[r][k] = query[r] . key[k]: as many keys at a time as make one vector of scores. */
  template <int count>
  void score(int64_t first, int64_t keys) const {
    constexpr int together = T::lanes / count;
    const int64_t stride = p.key_strides[2] * size, units_of_row = depth(p),
                  whole = p.head_dim / elements * elements;
    const bool foreseen = is_foreseen<count>(p.value_strides[2], p.value_dim);
    const char *const keys_at = key_row(task, first), *const values_at = value_row(task, first);
    for (int64_t k = 0; k < keys; k += together) {
      const char *key[together];
#pragma GCC unroll 16
      for (int i = 0; i < together; i++) key[i] = keys_at + (k + i < keys ? k + i : keys - 1) * stride;
      for (int i = 0; i < together && k + i < keys; i++)
        prefetch(values_at + (k + i) * p.value_strides[2] * size, p.value_dim, foreseen);
      Vector sums_of[T::lanes] = {};
      const auto multiply = [&](int i, int64_t d) __attribute__((always_inline)) {
        const Units units = whole_units(key[i] + d * size);
#pragma GCC unroll 16
        for (int r = 0; r < count; r++)
          P::accumulate(sums_of[r * together + i], units,
                        P::load_units(memory.query + d / per_unit + r * units_of_row));
      };
      if (p.key_strides[2] == p.head_dim) { /* in the order of memory */
#pragma GCC unroll 16
        for (int i = 0; i < together; i++)
          for (int64_t d = 0; d < whole; d += elements) multiply(i, d);
      } else {
        for (int64_t d = 0; d < whole; d += elements)
#pragma GCC unroll 16
          for (int i = 0; i < together; i++) multiply(i, d);
      }
      if (whole < p.head_dim) {
#pragma GCC unroll 16
        for (int i = 0; i < together; i++) {
          const Units units = some_units(key[i] + whole * size, p.head_dim - whole);
#pragma GCC unroll 16
          for (int r = 0; r < count; r++)
            P::accumulate(sums_of[r * together + i], units,
                          P::load_units(memory.query + whole / per_unit + r * units_of_row));
        }
      }
      Real lanes[T::lanes];
      store<T>(lanes, sums<T>(sums_of));
#pragma GCC unroll 16
      for (int r = 0; r < count; r++)
        memcpy(memory.scores + r * (keys_at_once + T::lanes) + k, lanes + r * together,
               sizeof(Real) * together);
    }
  }

  /* Turn a row's scores into weights, and fold them into its running sums. */
  void fold(int r, int64_t first, int64_t keys, int64_t row) {
    Real *scores = memory.scores + r * (keys_at_once + T::lanes);
    if (scaling.bent) bend(row, first, keys, scores);
    if (p.mask_element) add_mask(row, first, keys, scores);
    const Real infinity = (Real)__builtin_huge_val(), c = (Real)scaling.power();
    const int64_t end = padded(keys);
    const Range own = {clamp(seen[r].first - first, keys), clamp(seen[r].end - first, keys)};
    for (int64_t k = 0; k < own.first; k++) scores[k] = -infinity;
    for (int64_t k = own.end; k < end; k++) scores[k] = -infinity;
    Vector most_of = splat<T>(largest[r]);
    for (int64_t k = 0; k < end; k += T::lanes) most_of = maximum(load<T>(scores + k), most_of);
    const Real now = largest_lane<T>(most_of), from = now == -infinity ? 0 : now;
    Vector total = {};
    for (int64_t k = 0; k < end; k += T::lanes) {
      const Vector weight = power_of_two<degree>((load<T>(scores + k) - from) * c);
      total += weight;
      store<T>(scores + k, weight);
    }
    Real lanes[T::lanes];
    store<T>(lanes, power_of_two<5>(splat<T>((largest[r] - from) * c)));
    factor[r] = lanes[0];
    sum[r] = sum[r] * factor[r] + sum_of_lanes<T>(total);
    largest[r] = now;
  }

  void bend(int64_t row, int64_t first, int64_t keys, Real *scores) const {
    const Real cap = (Real)p.softcap, scale = (Real)scaling.bending,
               slope = p.slopes ? of_head<T>(p.slopes, task.head_of(row)) : 0;
    Real lanes[T::lanes];
    for (int i = 0; i < T::lanes; i++) lanes[i] = (Real)(task.position(row) - first - i);
    const Vector distance = load<T>(lanes);
    for (int64_t k = 0; k < keys; k += T::lanes) {
      Vector score = load<T>(scores + k) * scale;
      if (cap > 0) score = hyperbolic_tangent<T>(score) * cap;
      if (slope != 0) score -= absolute<T>(distance - (Real)k) * slope;
      store<T>(scores + k, score);
    }
  }

  /* Round a row's weights, those of two keys in a pair; an odd last key is paired with a weight of 0. */
  void pair_weights(int r, int64_t keys) {
    const Real *from = memory.scores + r * (keys_at_once + T::lanes);
    for (int64_t k = 0; k < keys; k += 2 * T::lanes) {
      const Units pairs =
          P::halves(load<T>(from + k), k + T::lanes < keys ? load<T>(from + k + T::lanes) : Vector{});
      memcpy(memory.weights + r * weights_stride + k / 2, &pairs, sizeof pairs);
    }
  }

  /* Set the dropped weights of a row to 0: a lane has those of four keys. */
  void drop(int64_t row, int64_t first, int64_t keys, Real *weights) const {
    typedef typename T::Wholes Wholes;
    typedef typename T::Whole Whole;
    const Wholes place = Wholes{} + (Whole)task.place_of(row), head = Wholes{} + (Whole)task.head_of(row);
    for (int64_t k = 0; k < keys; k += 4 * T::lanes) {
      Wholes quad, kept[4];
      for (int lane = 0; lane < T::lanes; lane++) quad[lane] = (Whole)((first + k) / 4 + lane);
      find_kept<T>(dropout, quad, place, head, p.first_batch + task.batch, kept);
      Whole found[4][T::lanes];
      memcpy(found, kept, sizeof found);
      for (int64_t i = 0; i < 4 * T::lanes && k + i < keys; i++)
        if (!found[i % 4][i / 4]) weights[k + i] = 0;
    }
  }

  void add_mask(int64_t row, int64_t first, int64_t keys, Real *scores) const {
    const int64_t bytes = mask_bytes(p.mask_element);
    const MaskRows<T, 1> mask = {
        {mask_row(task, row, bytes)}, p.mask_strides[3] * bytes, p.mask_element, true};
    if (p.mask_element == MLBACKENDS_ATTENTION_BOOL)
      return add_elements(Seen<T>{}, mask, first, keys, scores);
    if constexpr (sizeof(Real) == 8) {
      add_elements(Wide{}, mask, first, keys, scores);
    } else {
      if (p.mask_element == MLBACKENDS_ATTENTION_FLOAT32) add_elements(Float{}, mask, first, keys, scores);
      if (p.mask_element == MLBACKENDS_ATTENTION_FLOAT16) add_elements(Half{}, mask, first, keys, scores);
      if (p.mask_element == MLBACKENDS_ATTENTION_BFLOAT16) add_elements(Brain{}, mask, first, keys, scores);
    }
  }

  template <class M>
  void add_elements(M element, const MaskRows<T, 1> &mask, int64_t first, int64_t keys, Real *scores) const {
    typedef typename M::Stored Stored;
    const Real scale = (Real)scaling.scale;
    int64_t k = 0;
    if (mask.stride == (int64_t)sizeof(Stored))
      for (; k + T::lanes <= keys; k += T::lanes)
        store<T>(scores + k, load<T>(scores + k) * scale +
                                 load_elements(element, mask.row[0] + (first + k) * mask.stride));
    for (; k < keys; k++) {
      Stored stored;
      memcpy(&stored, mask.row[0] + (first + k) * mask.stride, sizeof stored);
      scores[k] = scores[k] * scale + widened(element, stored);
    }
  }

  /* output[r] = output[r] * factor[r] + weights[r] @ value, some vectors of columns at a time. */
  template <int count>
  void weigh(int64_t first, int64_t keys) {
    constexpr int vectors = VECTOR_BYTES == 64 ? (count < 2 ? 8 : 16 / count) : (count < 2 ? 4 : 8 / count);
    const int64_t whole = p.value_dim / T::lanes * T::lanes;
    int64_t c = 0;
    for (; c + vectors * T::lanes <= whole; c += vectors * T::lanes)
      columns<count, vectors, false>(first, keys, c);
    for (; c < whole; c += T::lanes) columns<count, 1, false>(first, keys, c);
    if (c < p.value_dim) columns<count, 1, true>(first, keys, c);
  }

  template <int count, int vectors, bool partly>
  void columns(int64_t first, int64_t keys, int64_t column) {
    const int64_t stride = p.value_strides[2] * size, width = padded(p.value_dim);
    const char *value = value_row(task, first) + column * size;
    Vector sums_of[count][vectors] = {};
    /* Prefetch the next keys piece by piece, as many columns as are computed: more would have to wait. */
    const bool foreseen = is_foreseen<count>(p.key_strides[2], p.head_dim);
    const int64_t next = first + keys, prefetched = column < p.head_dim ? task.last_key - next : 0;
    const char *key = prefetched > 0 ? key_row(task, next) + column * size : nullptr;
    for (int64_t k = 0; k < keys; k += per_unit, value += per_unit * stride) {
      for (int64_t next_key = k; next_key < k + per_unit && next_key < prefetched; next_key++)
        prefetch(key + next_key * p.key_strides[2] * size, vectors * T::lanes, foreseen);
#pragma GCC unroll 16
      for (int v = 0; v < vectors; v++) {
        Units units;
        if constexpr (P::pairs) {
          const char *lower = value + v * T::lanes * size, *upper = k + 1 < keys ? lower + stride : nullptr;
          units =
              partly ? P::load_some_paired(lower, upper, p.value_dim - column) : P::load_paired(lower, upper);
        } else {
          units = partly ? load_some(E{}, value, p.value_dim - column)
                         : load_elements(E{}, value + v * T::lanes * size);
        }
#pragma GCC unroll 16
        for (int r = 0; r < count; r++)
          P::accumulate(sums_of[r][v], memory.weights[r * weights_stride + k / per_unit], units);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < count; r++)
#pragma GCC unroll 16
      for (int v = 0; v < vectors; v++) {
        Real *at = memory.output + r * width + column + v * T::lanes;
        store<T>(at, load<T>(at) * factor[r] + sums_of[r][v]);
      }
  }
};

} // namespace
