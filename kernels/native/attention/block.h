/* A task of many rows: rows are across the lanes, in groups of a few vectors. */
#pragma once
#include "dropout_tile.h"
#include "mask.h"
#include "scratch.h"
#include "softmax.h"
#include "task.h"

namespace {

/* E: the elements of query, key and value. P: the product that computes them. */
template <class E, class P>
struct Block {
  typedef typename P::Inner T;
  typedef typename T::Real Real;
  typedef typename P::Unit Unit;

  /* Vectors of rows that are computed together at most: more sums than three by eight have no registers. */
  static constexpr int most_vectors = vectors_at_once;
  static constexpr int most_rows = most_vectors * T::lanes;
  /* 16-bit elements are widened once for all rows of a task; with pairs, only the values need to be
     changed. */
  static constexpr bool widens = sizeof(typename E::Stored) == 2;
  static constexpr int degree = widens ? 4 : 5;

  static int64_t keys_at_once(const Problem &p) {
    const int64_t width = p.head_dim > p.value_dim ? p.head_dim : p.value_dim;
    int64_t keys = 256;
    while (keys > 32 && keys * width * (int64_t)sizeof(Real) > 131072) keys /= 2;
    return keys;
  }
  static int64_t depth(const Problem &p) {
    return P::tiles ? (p.head_dim + 31) / 32 * 16 : P::pairs ? (p.head_dim + 1) / 2 : p.head_dim;
  }
  static bool key_is_read_as_it_lies(const Problem &p) {
    return !p.pages && (!widens || (P::pairs && p.head_dim % (P::tiles ? 32 : 2) == 0));
  }
  static bool value_is_read_as_it_lies(const Problem &p) { return !p.pages && !widens; }

  struct Memory {
    Unit *query;          /* (groups, depth, rows) */
    Real *output;         /* (groups, value_dim, rows) */
    Real *scores;         /* (keys, rows) */
    Unit *key, *value;    /* (keys, depth), (keys or pairs, value_dim) */
    Real *largest, *sum;  /* (groups, rows) */
    Real *found, *factor; /* (rows) */
    Real *finished;       /* (lanes, value_dim up to whole vectors) */

    Memory(const Partition &partition, Scratch &scratch) {
      const Problem &p = *partition.problem;
      const int64_t keys = keys_at_once(p),
                    rows = (partition.block_rows + T::lanes - 1) / T::lanes * T::lanes;
      query = scratch.take<Unit>(rows * depth(p));
      output = scratch.take<Real>(rows * p.value_dim);
      scores = scratch.take<Real>(keys * most_rows);
      key = scratch.take<Unit>(key_is_read_as_it_lies(p) ? 0 : keys * depth(p));
      const int64_t columns = P::tiles ? (p.value_dim + 15) / 16 * 16 : p.value_dim;
      value = scratch.take<Unit>(value_is_read_as_it_lies(p) ? 0 : keys / (P::pairs ? 2 : 1) * columns);
      largest = scratch.take<Real>(rows);
      sum = scratch.take<Real>(rows);
      found = scratch.take<Real>(most_rows);
      factor = scratch.take<Real>(most_rows);
      finished = scratch.take<Real>(T::lanes * ((p.value_dim + T::lanes - 1) / T::lanes * T::lanes));
    }
  };

  const Task &task;
  const Problem &p;
  const Scaling scaling;
  const Dropout dropout;
  Memory memory;
  Span spans[64]; /* of the groups */
  bool is_begun[64]; /* whether a group has an output yet */
  int64_t vectors_of_all, groups;

  static int64_t scratch_bytes(const Partition &partition) {
    Scratch counted = {};
    Memory memory(partition, counted);
    return counted.taken;
  }

  Block(const Partition &partition, const Task &task_, Scratch &scratch)
      : task(task_), p(*partition.problem), scaling(p), dropout(p), memory(partition, scratch) {
    vectors_of_all = (task.last_row - task.first_row + T::lanes - 1) / T::lanes;
    groups = (vectors_of_all + most_vectors - 1) / most_vectors;
  }

  /* Groups differ by at most one vector: four vectors are two and two, for one alone would be slow. */
  int64_t vectors_in(int64_t group) const {
    return vectors_of_all / groups + (group < vectors_of_all % groups);
  }
  int64_t first_of(int64_t group) const {
    const int64_t larger = vectors_of_all % groups;
    return (group * (vectors_of_all / groups) + (group < larger ? group : larger)) * T::lanes;
  }
  int64_t rows_in(int64_t group) const {
    const int64_t left = task.last_row - task.first_row - first_of(group),
                  whole = vectors_in(group) * T::lanes;
    return left < whole ? left : whole;
  }

  void run() {
    for (int64_t g = 0; g < groups; g++) with_vectors<Gather>(g);
    const Range seen = span_of(task, task.first_row, task.last_row).any;
    const int64_t last = seen.end < task.last_key ? seen.end : task.last_key, keys = keys_at_once(p);
    if constexpr (P::tiles) P::begin();
    for (int64_t first = seen.first / 32 * 32 > task.first_key ? seen.first / 32 * 32 : task.first_key;
         first < last; first += keys) {
      const int64_t count = last - first < keys ? last - first : keys;
      const Tile tile = read_tile(first, count);
      for (int64_t g = 0; g < groups; g++)
        if (spans[g].any.end > first && spans[g].any.first < first + count) with_vectors<Step>(g, tile);
    }
    if constexpr (P::tiles) P::end();
    for (int64_t g = 0; g < groups; g++) with_vectors<Finish>(g);
  }

 private:
  /* Keys and values as the products read them; strides in bytes. */
  struct Tile {
    int64_t first, count;
    const char *key, *value;
    int64_t key_stride, value_stride;

    /* What a group sees of it, from a multiple of 32 keys on. */
    Tile seen_by(const Range &any) const {
      Tile part = *this;
      const int64_t before = any.first > first ? (any.first - first) / 32 * 32 : 0;
      part.first += before;
      part.count = clamp(any.end - part.first, count - before);
      part.key += before * key_stride;
      const int64_t units = before / (P::pairs ? 2 : 1);
      part.value += units * (P::tiles ? (int64_t)sizeof(Unit) : value_stride);
      return part;
    }
  };

  template <class Action, class... More>
  void with_vectors(int64_t group, const More &...more) {
    const int64_t vectors = vectors_in(group);
    if (vectors == 1) return Action::template call<1>(*this, group, more...);
    if constexpr (most_vectors >= 4)
      if (vectors == 4) return Action::template call<4>(*this, group, more...);
    if constexpr (most_vectors >= 3)
      if (vectors == 3) return Action::template call<3>(*this, group, more...);
    if constexpr (most_vectors >= 2) return Action::template call<2>(*this, group, more...);
  }

  Real *lanes_of(Real *each, int64_t group) const { return each + first_of(group); }

  /* ---- the query, transposed ---------------------------------------------------------------- */

  struct Gather {
    template <int vectors>
    static void call(Block &self, int64_t group) {
      constexpr int width = vectors * T::lanes;
      const int64_t first = self.task.first_row + self.first_of(group), rows = self.rows_in(group);
      Unit *query = self.memory.query + self.first_of(group) * depth(self.p);
      Real *largest = self.lanes_of(self.memory.largest, group), *sum = self.lanes_of(self.memory.sum, group);
      for (int lane = 0; lane < width; lane++) {
        largest[lane] = -(Real)__builtin_huge_val();
        sum[lane] = 0;
      }
      self.spans[group] = span_of(self.task, first, first + rows);
      self.is_begun[group] = false;
      for (int v = 0; v < vectors; v++)
        self.template transposed<vectors>(first + v * T::lanes, rows - v * T::lanes, query, v);
    }
  };

  template <int vectors>
  void transposed(int64_t first, int64_t rows, Unit *query, int v) {
    if (!P::pairs && rows >= T::lanes && p.head_dim % T::lanes == 0 && !scaling.ignored)
      return transposed_whole<vectors>(first, query, v);
    const char *row[T::lanes];
    for (int i = 0; i < T::lanes; i++) row[i] = i < rows ? query_row(task, first + i) : nullptr;
    constexpr int64_t per_unit = P::pairs ? 2 : 1;
    for (int64_t d = 0; d < p.head_dim; d += T::lanes * per_unit) {
      typename T::Vector square[T::lanes];
      for (int i = 0; i < T::lanes; i++) {
        square[i] = typename T::Vector{};
        if (row[i]) square[i] = query_units(row[i], d);
      }
      transpose<T>(square);
      const int64_t left = depth(p) - d / per_unit;
      for (int i = 0; i < (left < T::lanes ? left : T::lanes); i++)
        memcpy(query + ((d / per_unit + i) * vectors + v) * T::lanes, &square[i], sizeof square[i]);
    }
  }

  /* The usual case: whole vectors of as many rows as there are lanes. */
  template <int vectors>
  void transposed_whole(int64_t first, Unit *query, int v) {
    const char *row[T::lanes];
    for (int i = 0; i < T::lanes; i++) row[i] = query_row(task, first + i);
    const typename T::Vector sign = splat<T>(scaling.negated ? (Real)-1 : (Real)1);
    for (int64_t d = 0; d < p.head_dim; d += T::lanes) {
      typename T::Vector square[T::lanes];
#pragma GCC unroll 16
      for (int i = 0; i < T::lanes; i++)
        square[i] = load_elements(E{}, row[i] + d * (int64_t)sizeof(typename E::Stored)) * sign;
      transpose<T>(square);
#pragma GCC unroll 16
      for (int i = 0; i < T::lanes; i++)
        memcpy(query + ((d + i) * vectors + v) * T::lanes, &square[i], sizeof square[i]);
    }
  }

  /* A vector of units of a row, from element d on, zeros behind the row. */
  typename T::Vector query_units(const char *row, int64_t d) const {
    const char *at = row + d * (int64_t)sizeof(typename E::Stored);
    if constexpr (P::pairs) {
      uint16_t halves[2 * T::lanes] = {};
      const int64_t left = p.head_dim - d;
      memcpy(halves, at, (size_t)(left < 2 * T::lanes ? left : 2 * T::lanes) * 2);
      if (scaling.negated)
        for (uint16_t &half : halves) half ^= 0x8000;
      if (scaling.ignored) memset(halves, 0, sizeof halves);
      return load<T>(halves);
    } else {
      const int64_t left = p.head_dim - d;
      const typename T::Vector numbers = left >= T::lanes ? load_elements(E{}, at) : load_some(E{}, at, left);
      return scaling.ignored ? numbers * (Real)0 : scaling.negated ? -numbers : numbers;
    }
  }

  /* ---- keys and values ---------------------------------------------------------------------- */

  Tile read_tile(int64_t first, int64_t count) {
    const int64_t size = sizeof(typename E::Stored);
    Tile tile = {first,
                 count,
                 key_row(task, first),
                 value_row(task, first),
                 p.key_strides[2] * size,
                 p.value_strides[2] * size};
    if (!key_is_read_as_it_lies(p)) {
      with_rows(key_row, tile.key, tile.key_stride, first, count, [&](const auto &rows) {
        for (int64_t k = 0; k < count; k++) widen_row(rows[k], memory.key + k * depth(p), p.head_dim);
      });
      tile.key = (const char *)memory.key;
      tile.key_stride = depth(p) * (int64_t)sizeof(Unit);
    }
    if (!value_is_read_as_it_lies(p)) {
      with_rows(value_row, tile.value, tile.value_stride, first, count, [&](const auto &rows) {
        if constexpr (P::tiles)
          P::transpose_values_of(rows, count, p.value_dim, memory.value, keys_at_once(p) / 2);
        else if constexpr (P::pairs)
          pair_rows(rows, count);
        else
          for (int64_t k = 0; k < count; k++) widen_row(rows[k], memory.value + k * p.value_dim, p.value_dim);
      });
      tile.value = (const char *)memory.value;
      tile.value_stride = (P::tiles ? keys_at_once(p) / 2 : p.value_dim) * (int64_t)sizeof(Unit);
    }
    return tile;
  }

  /* Where the rows of a tile's keys are: as far apart as a stride says, or in pages. */
  struct Evenly {
    const char *row;
    int64_t stride;
    const char *operator[](int64_t k) const { return row + k * stride; }
  };
  struct InPages {
    const char *rows[256];
    const char *operator[](int64_t k) const { return rows[k]; }
  };

  /* Call `use` with the rows of keys [first, first + count), of which the first is at `row`. */
  template <class RowOf, class Use>
  void with_rows(const RowOf &row_of, const char *row, int64_t stride, int64_t first, int64_t count,
                 const Use &use) const {
    if (!p.pages) return use(Evenly{row, stride});
    InPages found;
    for (int64_t k = 0; k < count;) {
      row = row_of(task, first + k);
      for (const int64_t end = k + clamp(task.even_keys(first + k), count - k); k < end; k++, row += stride)
        found.rows[k] = row;
    }
    use(found);
  }

  void widen_row(const char *row, Unit *to, int64_t width) const {
    if constexpr (P::pairs) {
      for (int64_t pair = width / 2; pair < depth(p); pair++)
        to[pair] = 0; /* after the end of the row, and next to an odd last element */
      memcpy(to, row, (size_t)width * 2);
    } else {
      int64_t c = 0;
      for (; c + T::lanes <= width; c += T::lanes)
        store<T>(to + c, load_elements(E{}, row + c * (int64_t)sizeof(typename E::Stored)));
      for (; c < width; c++) {
        typename E::Stored stored;
        memcpy(&stored, row + c * (int64_t)sizeof stored, sizeof stored);
        to[c] = widened(E{}, stored);
      }
    }
  }

  /* (keys / 2, value_dim) pairs of two keys' values; an odd last key is paired with zeros. */
  template <class Lines>
  void pair_rows(const Lines &rows, int64_t count) {
    for (int64_t k = 0; k < count; k += 2) {
      const char *lower = rows[k], *upper = k + 1 < count ? rows[k + 1] : nullptr;
      Unit *to = memory.value + k / 2 * p.value_dim;
      int64_t c = 0;
      for (; c + T::lanes <= p.value_dim; c += T::lanes) {
        const typename P::Units both = P::load_paired(lower + 2 * c, upper ? upper + 2 * c : nullptr);
        memcpy(to + c, &both, sizeof both);
      }
      for (; c < p.value_dim; c++) {
        uint16_t pair[2] = {};
        memcpy(&pair[0], lower + 2 * c, 2);
        if (upper) memcpy(&pair[1], upper + 2 * c, 2);
        memcpy(to + c, pair, sizeof pair);
      }
    }
  }

  /* ---- one tile ----------------------------------------------------------------------------- */

  struct Step {
    template <int vectors>
    static void call(Block &self, int64_t group, const Tile &tile) {
      self.template step<vectors>(group, tile);
    }
  };

  template <int vectors>
  void step(int64_t group, const Tile &whole) {
    const Span &span = spans[group];
    const Tile tile = whole.seen_by(span.any);
    const int64_t keys = tile.count;
    MaskRows<T, vectors> mask;
    const bool is_added = p.mask_element && p.mask_element != MLBACKENDS_ATTENTION_BOOL;
    bool masked = is_added;
    if (p.mask_element) {
      find_mask<T, vectors>(task, task.first_row + first_of(group), rows_in(group), mask);
      if (!is_added) {
        const Visibility seen = visibility(mask, tile.first, keys);
        if (seen == NOTHING) return;
        masked = seen == SOME;
      }
    }
    Real *largest = lanes_of(memory.largest, group);
    memcpy(memory.found, largest, sizeof(Real) * vectors * T::lanes);
    /* The keys that every row sees are scored with their maxima; those of what a mask or a window hides are
       found behind it. */
    Range plain = {clamp(span.all.first - tile.first, keys), clamp(span.all.end - tile.first, keys)};
    const bool hidden = plain.first > 0 || plain.end < keys;
    plain.first = clamp((plain.first + 15) / 16 * 16, keys);
    if (plain.end < keys) plain.end = plain.end / 16 * 16;
    if (masked || plain.end < plain.first) plain = {0, 0};
    Real ignored[most_rows] = {};
    score_keys<vectors>(group, tile, {0, plain.first}, ignored);
    score_keys<vectors>(group, tile, plain, memory.found);
    score_keys<vectors>(group, tile, {plain.end, keys}, ignored);
    if (masked)
      add_mask<T, vectors>(mask, tile.first, keys, memory.scores, (Real)scaling.scale,
                           hidden ? ignored : memory.found);
    if (hidden) {
      hide_keys<vectors>(group, tile, {0, plain.first});
      hide_keys<vectors>(group, tile, {plain.end, keys});
    }
    const Running<T> running = {largest, lanes_of(memory.sum, group)};
    fold<P, vectors, degree>(memory.scores, keys, memory.found, (Real)scaling.power(), running,
                             memory.factor);
    if (p.dropout) {
      const Counted<T, vectors> counted(task, task.first_row + first_of(group), rows_in(group));
      drop<P, vectors>(dropout, counted, p.first_batch + task.batch, tile.first, keys, (Unit *)memory.scores);
    }
    Real *output = memory.output + first_of(group) * p.value_dim;
    const Real *factor = is_begun[group] ? memory.factor : nullptr;
    is_begun[group] = true;
    if constexpr (P::tiles)
      P::template weigh<vectors>(tile.value, tile.value_stride, p.value_dim, (Unit *)memory.scores,
                                 (keys + 1) / 2, factor, output);
    else
      weigh_all<P, vectors>(tile.value, tile.value_stride, p.value_dim, (const Unit *)memory.scores,
                            P::pairs ? (keys + 1) / 2 : keys, factor, output);
  }

  /* Write the scores of some keys of a tile, bent where the problem has a cap or slopes. */
  template <int vectors>
  void score_keys(int64_t group, const Tile &tile, const Range &keys, Real *maxima) const {
    const int64_t count = keys.end - keys.first;
    if (!count) return;
    Real straight[most_rows] = {}, *const found = scaling.bent ? straight : maxima;
    const char *key = tile.key + keys.first * tile.key_stride;
    const Unit *query = memory.query + first_of(group) * depth(p);
    Real *scores = memory.scores + keys.first * vectors * T::lanes;
    if constexpr (P::tiles)
      P::template score<vectors>(key, tile.key_stride, count, query, depth(p), scores, found);
    else
      score_all<P, vectors>(key, tile.key_stride, count, query, depth(p), scores, found);
    if (scaling.bent) bend_scores<vectors>(group, tile.first + keys.first, count, scores, maxima);
  }

  template <int vectors>
  void bend_scores(int64_t group, int64_t key, int64_t keys, Real *scores, Real *maxima) const {
    Real slopes[most_rows] = {}, from[most_rows] = {};
    for (int64_t i = 0; p.slopes && i < rows_in(group); i++) {
      const int64_t row = task.first_row + first_of(group) + i;
      slopes[i] = of_head<T>(p.slopes, task.head_of(row)), from[i] = (Real)(task.position(row) - key);
    }
    const auto with = [&](auto bend) {
      bend(scores, keys, (Real)scaling.bending, (Real)p.softcap, slopes, from, maxima);
    };
    if (!p.slopes) return with(bend<T, vectors, true, false>);
    if (p.softcap > 0) return with(bend<T, vectors, true, true>);
    with(bend<T, vectors, false, true>);
  }

  /* Hide some keys of a tile from the rows that do not see them. */
  template <int vectors>
  void hide_keys(int64_t group, const Tile &tile, const Range &keys) const {
    const int64_t count = keys.end - keys.first;
    if (!count) return;
    const Ends<T, vectors> ends(task, task.first_row + first_of(group), rows_in(group),
                                tile.first + keys.first, count);
    hide<T, vectors>(memory.scores + keys.first * vectors * T::lanes, count, ends, memory.found);
  }

  /* ---- the output, transposed back ---------------------------------------------------------- */

  struct Finish {
    template <int vectors>
    static void call(Block &self, int64_t group) {
      self.template finish<vectors>(group);
    }
  };

  template <int vectors>
  void finish(int64_t group) {
    const int64_t first = task.first_row + first_of(group), rows = rows_in(group);
    const int64_t padded = (p.value_dim + T::lanes - 1) / T::lanes * T::lanes;
    Real *output = memory.output + first_of(group) * p.value_dim;
    if (!is_begun[group]) memset(output, 0, sizeof(Real) * vectors * T::lanes * (size_t)p.value_dim);
    const Real *largest = lanes_of(memory.largest, group), *sum = lanes_of(memory.sum, group);
    for (int v = 0; v < vectors; v++) {
      if (!task.partial && rows >= (v + 1) * T::lanes && p.value_dim % T::lanes == 0) {
        finish_whole<vectors>(first + v * T::lanes, output + v * T::lanes, largest + v * T::lanes,
                              sum + v * T::lanes);
        continue;
      }
      for (int64_t c = 0; c < p.value_dim; c += T::lanes) {
        typename T::Vector square[T::lanes];
        for (int i = 0; i < T::lanes; i++)
          square[i] = c + i < p.value_dim ? load<T>(output + ((c + i) * vectors + v) * T::lanes)
                                          : typename T::Vector{};
        transpose<T>(square);
#pragma GCC unroll 16
        for (int i = 0; i < T::lanes; i++) store<T>(memory.finished + i * padded + c, square[i]);
      }
      for (int i = 0; i < T::lanes && v * T::lanes + i < rows; i++) {
        const int64_t lane = v * T::lanes + i;
        finish_row_or_store<E>(task, first + lane, memory.finished + i * padded, (double)largest[lane],
                               (double)sum[lane], scaling.natural);
      }
    }
  }

  /* The usual case, as in transposed_whole: the rows are divided by their sums while they lie across the
     lanes. */
  template <int vectors>
  void finish_whole(int64_t first, const Real *output, const Real *largest, const Real *sum) {
    Real factors[T::lanes];
    if (p.sinks || p.logsumexp) {
      for (int i = 0; i < T::lanes; i++)
        factors[i] = (Real)end_row<T>(task, first + i, (double)largest[i], (double)sum[i], scaling.natural);
    } else {
      for (int i = 0; i < T::lanes; i++) factors[i] = (Real)whole_sum(task, first + i, (double)sum[i]);
      const typename T::Vector sums = load<T>(factors);
      const Real kept = (Real)dropout_scale(p);
      store<T>(factors, kept == 0 ? typename T::Vector{} : sums == (Real)0 ? sums : kept / sums);
    }
    const typename T::Vector inverse = load<T>(factors);
    char *row[T::lanes];
    for (int i = 0; i < T::lanes; i++) row[i] = output_row(task, first + i);
    for (int64_t c = 0; c < p.value_dim; c += T::lanes) {
      typename T::Vector square[T::lanes];
#pragma GCC unroll 16
      for (int i = 0; i < T::lanes; i++) square[i] = load<T>(output + (c + i) * vectors * T::lanes) * inverse;
      transpose<T>(square);
#pragma GCC unroll 16
      for (int i = 0; i < T::lanes; i++)
        store_elements(E{}, row[i] + c * (int64_t)sizeof(typename E::Stored), square[i]);
    }
  }
};

} // namespace
