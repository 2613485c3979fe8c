/* The gradients of a block of rows against a block of keys, with rows across the lanes as in block.h:

       weights^T = 2^(c key @ query^T - logsumexp)          changes^T = weights^T * (value @ of_output^T -
   delta) of_value += weights^T @ of_output                    delta     = rowsum(output * of_output) of_key
   += changes^T @ query scale                  of_query^T += key^T @ changes^T scale

   Weights and changes are there for a strip of keys and a block of rows at a time.
   Source: Dao 2023, FlashAttention-2, algorithm 2. */
#pragma once
#include "differentiate.h"
#include "gradients_layout.h"
#include "partition.h"
#include "mask.h"
#include "scratch.h"
#include "task.h"

namespace {

/* The keys whose weights and changes are in memory at the same time. */
constexpr int64_t gradients_strip = 64;

template <class T>
int64_t padded(int64_t width) {
  return (width + T::lanes - 1) / T::lanes * T::lanes;
}

/* What a thread needs for one task. */
template <class E>
struct GradientsMemory {
  typedef typename E::Inner T;
  typedef typename T::Real Real;

  Real *query_lanes, *output_lanes; /* (groups of rows, head_dim or value_dim, rows) */
  Real *query_rows, *output_rows;   /* (groups of columns, rows, columns) */
  Real *weights, *changes;          /* (groups of rows, keys of a strip, rows) */
  Real *query_sum;                  /* (groups of rows, head_dim, rows): of one block of keys */
  Real *row_sum;                    /* (rows, head_dim): of all blocks, where a task is a block of rows */
  Real *key_sum, *value_sum;        /* (groups of columns, keys, columns) */
  Real *key, *value;                /* (keys, head_dim or value_dim), widened */
  Real *mask_sum;                   /* (keys, rows) */
  Real *exponent, *largest, *factor, *delta, *sum_of_changes, *size_of_scores; /* (rows) */

  GradientsMemory(const GradientsPartition &partition, Scratch &scratch) {
    const Problem &p = partition.problem->forward;
    const int64_t rows = partition.block_rows, keys = partition.block_keys, head_dim = padded<T>(p.head_dim),
                  value_dim = padded<T>(p.value_dim);
    query_lanes = scratch.take<Real>(rows * head_dim);
    output_lanes = scratch.take<Real>(rows * value_dim);
    query_rows = scratch.take<Real>(rows * head_dim);
    output_rows = scratch.take<Real>(rows * value_dim);
    weights = scratch.take<Real>(rows * gradients_strip);
    changes = scratch.take<Real>(rows * gradients_strip);
    query_sum = scratch.take<Real>(rows * head_dim);
    row_sum = scratch.take<Real>(partition.one_pass ? 0 : rows * head_dim);
    key_sum = scratch.take<Real>(keys * head_dim);
    value_sum = scratch.take<Real>(keys * value_dim);
    key = scratch.take<Real>(sizeof(typename E::Stored) == 2 ? keys * p.head_dim : 0);
    value = scratch.take<Real>(sizeof(typename E::Stored) == 2 ? keys * p.value_dim : 0);
    mask_sum = scratch.take<Real>(partition.mask_tasks ? keys * rows : 0);
    exponent = scratch.take<Real>(rows);
    largest = scratch.take<Real>(rows);
    factor = scratch.take<Real>(rows);
    delta = scratch.take<Real>(rows);
    sum_of_changes = scratch.take<Real>(rows);
    size_of_scores = scratch.take<Real>(rows);
  }
};
template <class E>
struct Gradients {
  typedef typename E::Inner T;
  typedef typename T::Real Real;
  typedef typename T::Vector Vector;
  typedef Plain<T> P;

  static constexpr int64_t size = sizeof(typename E::Stored);
  static constexpr int most_vectors = vectors_at_once, most_rows = most_vectors * T::lanes;
  static constexpr int degree = size == 2 ? 4 : 5;
  static constexpr bool widens = size == 2;

  const GradientsPartition &partition;
  const GradientsProblem &g;
  const Problem &p;
  const Scaling scaling;
  const Dropout dropout;
  GradientsMemory<E> memory;
  Task task; /* the head, and the rows of the block */
  Groups<T> row_groups;
  const Groups<T> head_groups, value_groups; /* of columns */
  Span spans[64]; /* of the groups of rows */
  Real ones[most_rows];

  static int64_t scratch_bytes(const GradientsPartition &partition) {
    Scratch counted = {};
    GradientsMemory<E> memory(partition, counted);
    return counted.taken;
  }

  Gradients(const GradientsPartition &partition_, Scratch &scratch)
      : partition(partition_),
        g(*partition_.problem),
        p(g.forward),
        scaling(p),
        dropout(p),
        memory(partition_, scratch),
        task(),
        row_groups(0),
        head_groups(p.head_dim),
        value_groups(p.value_dim) {
    task.p = &p, task.own = sequence_of(p, 0);
    for (Real &one : ones) one = 1;
  }

  void run(const GradientsTask &given) {
    task.batch = given.unit / partition.units_per_batch;
    task.head = given.unit % partition.units_per_batch * partition.heads_together;
    switch (given.kind) {
      case START_UNIT: return clear_sums(given.sums);
      case KEYS_OF_UNIT: return add_keys(given.block, given.sums, true);
      case END_UNIT: return write_sums((const Real *)given.sums);
      case KEYS: return add_keys(given.block, nullptr, false);
      case ROWS: return add_rows(given.unit, given.block);
      case MASK: return add_mask_block(given.unit);
      case REFINE: return refine_rows(given.unit, given.block);
    }
  }

 private:
  /* ---- the ways through a unit -------------------------------------------------------------- */

  /* The gradients of a block of keys and of its values; with `with_query` also its share in that of the
     query. */
  void add_keys(int64_t block, char *sums, bool with_query) {
    const int64_t first = block * partition.block_keys, head = task.head;
    const int64_t count =
        p.key_length - first < partition.block_keys ? p.key_length - first : partition.block_keys;
    for (int64_t i = 0; i < partition.heads_together; i++) {
      task.head = head + i;
      if (i % p.key_group == 0)
        memset(memory.key_sum, 0, sizeof(Real) * (size_t)(partition.block_keys * padded<T>(p.head_dim)));
      if (i % p.value_group == 0)
        memset(memory.value_sum, 0, sizeof(Real) * (size_t)(partition.block_keys * padded<T>(p.value_dim)));
      const Tile tile = read_keys(first, count, i % p.key_group == 0, i % p.value_group == 0);
      const Range blocks = blocks_that_see({first, first + count});
      for (int64_t rows = blocks.first; rows < blocks.end; rows++) {
        read_rows(rows);
        if (with_query)
          memset(memory.query_sum, 0, sizeof(Real) * (size_t)(partition.block_rows * padded<T>(p.head_dim)));
        if (!add_tile(tile, true, with_query) || !with_query) continue;
        if (partition.sums_apart)
          add_query_sum((Real *)sums + (i * p.query_length + task.first_row) * p.head_dim, p.head_dim);
        else
          add_query_sum((Real *)of_query_row(task.first_row), g.query_strides[2]);
      }
      const int64_t key_head = task.head / p.key_group, value_head = task.head / p.value_group;
      if ((i + 1) % p.key_group == 0)
        write_columns<E>(memory.key_sum, head_groups, p.head_dim, partition.block_keys, count, (Real)p.scale,
                         place(g.key, g.key_strides, key_head, first), g.key_strides[2] * size);
      if ((i + 1) % p.value_group == 0)
        write_columns<E>(memory.value_sum, value_groups, p.value_dim, partition.block_keys, count, (Real)1,
                         place(g.value, g.value_strides, value_head, first), g.value_strides[2] * size);
    }
  }

  /* The gradient of a block of rows of one head, `number` counted through all batches. */
  void add_rows(int64_t number, int64_t block) {
    task.batch = number / p.heads;
    task.head = number % p.heads;
    read_rows(block);
    memset(memory.row_sum, 0, sizeof(Real) * (size_t)(partition.block_rows * p.head_dim));
    const Range seen = seen_by_block();
    for (int64_t first = seen.first; first < seen.end; first += partition.block_keys) {
      const int64_t count =
          p.key_length - first < partition.block_keys ? p.key_length - first : partition.block_keys;
      memset(memory.query_sum, 0, sizeof(Real) * (size_t)(partition.block_rows * padded<T>(p.head_dim)));
      if (add_tile(read_keys(first, count, true, true), false, true))
        add_query_sum(memory.row_sum, p.head_dim);
    }
    for (int64_t row = task.first_row; row < task.last_row; row++)
      write_row<E>(memory.row_sum + (row - task.first_row) * p.head_dim, p.head_dim, of_query_row(row));
  }

  /* One block of the mask's gradient, summed over all of what the mask is broadcast over. */
  void add_mask_block(int64_t number) {
    const int64_t key_block = number % partition.mask_key_blocks,
                  row_block = number / partition.mask_key_blocks % partition.mask_row_blocks;
    const int64_t above = number / partition.mask_key_blocks / partition.mask_row_blocks;
    const int64_t head = above % partition.mask_heads, batch = above / partition.mask_heads;
    memset(memory.mask_sum, 0, sizeof(Real) * (size_t)(partition.block_keys * partition.block_rows));
    for (task.batch = batch; task.batch < (partition.mask_batches > 1 ? batch + 1 : p.batch); task.batch++)
      for (task.head = head; task.head < (partition.mask_heads > 1 ? head + 1 : p.heads); task.head++)
        for (int64_t keys = key_block;
             keys < (partition.mask_key_blocks > 1 ? key_block + 1 : partition.key_blocks); keys++) {
          const int64_t first = keys * partition.block_keys;
          const int64_t count =
              p.key_length - first < partition.block_keys ? p.key_length - first : partition.block_keys;
          const Tile tile = read_keys(first, count, true, true);
          for (int64_t rows = row_block;
               rows < (partition.mask_row_blocks > 1 ? row_block + 1 : partition.row_blocks); rows++) {
            read_rows(rows);
            add_tile(tile, false, false);
          }
        }
    write_mask(batch, head, row_block, key_block);
  }

  /* The refined sums of the rows; see problem.h. */
  void refine_rows(int64_t number, int64_t block) {
    task.batch = number / p.heads;
    task.head = number % p.heads;
    read_rows(block, false);
    for (int64_t row = 0; row < row_groups.vectors * T::lanes; row++) {
      memory.largest[row] = -(Real)__builtin_huge_val();
      memory.factor[row] = memory.sum_of_changes[row] = memory.size_of_scores[row] = 0;
    }
    const Range seen = seen_by_block();
    for (int64_t first = seen.first; first < seen.end; first += partition.block_keys) {
      const int64_t count =
          p.key_length - first < partition.block_keys ? p.key_length - first : partition.block_keys;
      refine_tile(read_keys(first, count, true, true));
    }
    Real *largest = (Real *)g.refined + first_place(), *factors = largest + all_rows(),
         *deltas = factors + all_rows();
    for (int64_t row = 0; row < task.last_row - task.first_row; row++) {
      const Real sum = memory.factor[row];
      largest[row] = memory.largest[row];
      factors[row] = is_whole(row, sum) ? 1 / sum : 0;
      deltas[row] = memory.sum_of_changes[row] / sum;
    }
  }

  /* Tell whether the log-sum-exp of a row is that of these keys but for the rounding of scores. Else it is of
     more keys, and right as it is. */
  bool is_whole(int64_t row, Real sum) const {
    if (!(sum > 0)) return false;
    const double largest = scaling.natural * memory.largest[row],
                 size = scaling.natural * memory.size_of_scores[row];
    const double off = largest + logarithm(sum) - given_sum(row),
                 rounding = sizeof(Real) == 8 ? 0x1p-50 : 0x1p-21;
    return (off < 0 ? -off : off) <= rounding * (1 + size + (largest < 0 ? -largest : largest));
  }

  /* The log-sum-exp that was given of a row at hand. */
  double given_sum(int64_t row) const {
    const int64_t place = first_place() + row;
    return sizeof(Real) == 8 ? ((const double *)p.logsumexp)[place]
                             : (double)((const float *)p.logsumexp)[place];
  }

  /* The position of the current rows among those of all heads and batches, and their number. */
  int64_t first_place() const { return (task.batch * p.heads + task.head) * p.query_length + task.first_row; }
  int64_t all_rows() const { return p.batch * p.heads * p.query_length; }

  /* The blocks of rows whose windows may have some of these keys. */
  Range blocks_that_see(const Range &keys) const {
    const int64_t diagonal = diagonal_of(p, task.own);
    const int64_t first = clamp(keys.first - p.window[1] - diagonal, p.query_length),
                  end = clamp(keys.end + p.window[0] - diagonal, p.query_length);
    return {first / partition.block_rows, (end + partition.block_rows - 1) / partition.block_rows};
  }

  /* The keys that the current rows see, from the first of a block on. */
  Range seen_by_block() const {
    const Range seen = span_of(task, task.first_row, task.last_row).any;
    return {seen.first / partition.block_keys * partition.block_keys, seen.end};
  }

  /* ---- what a tile reads -------------------------------------------------------------------- */

  /* Keys and values as the products read them; strides in bytes. */
  struct Tile {
    int64_t first, count;
    const char *key, *value;
    int64_t key_stride, value_stride;
  };

  Tile read_keys(int64_t first, int64_t count, bool other_key, bool other_value) {
    Tile tile = {first,
                 count,
                 key_row(task, first),
                 value_row(task, first),
                 p.key_strides[2] * size,
                 p.value_strides[2] * size};
    if constexpr (widens) {
      if (other_key) widen_rows<E>(tile.key, tile.key_stride, count, p.head_dim, memory.key);
      if (other_value) widen_rows<E>(tile.value, tile.value_stride, count, p.value_dim, memory.value);
      tile.key = (const char *)memory.key, tile.key_stride = p.head_dim * (int64_t)sizeof(Real);
      tile.value = (const char *)memory.value, tile.value_stride = p.value_dim * (int64_t)sizeof(Real);
    }
    return tile;
  }

  void read_rows(int64_t block, bool refined_too = true) {
    task.first_row = block * partition.block_rows;
    task.last_row = p.query_length < task.first_row + partition.block_rows
                        ? p.query_length
                        : task.first_row + partition.block_rows;
    const int64_t rows = task.last_row - task.first_row;
    row_groups = Groups<T>(rows);
    const Real sign = scaling.ignored ? 0 : scaling.negated ? -1 : 1;
    lay_rows<E>(query_row(task, task.first_row), p.query_strides[2] * size, rows, p.head_dim, row_groups,
                head_groups, partition.block_rows, sign, memory.query_rows, memory.query_lanes);
    const char *of_output = place(g.of_output, g.of_output_strides, task.head, task.first_row);
    const int64_t stride = g.of_output_strides[2] * size;
    lay_rows<E>(of_output, stride, rows, p.value_dim, row_groups, value_groups, partition.block_rows, (Real)1,
                memory.output_rows, memory.output_lanes);
    const int64_t output_stride = p.output_strides[2] * size;
    multiply_rows<E>(of_output, stride, output_row(task, task.first_row), output_stride, rows, p.value_dim,
                     memory.delta);
    const Real *refined = (const Real *)g.refined + first_place();
    for (int64_t group = 0, row = 0; group < row_groups.count; group++) {
      const int64_t at = task.first_row + row, end = at + row_groups.width(group);
      spans[group] = span_of(task, at, end < task.last_row ? end : task.last_row);
      for (int64_t i = 0; i < row_groups.width(group); i++, row++) {
        const bool is_refined = refined_too && g.refined && row < rows && refined[all_rows() + row] != 0;
        memory.exponent[row] = is_refined || row >= rows ? 0 : (Real)(given_sum(row) * 1.4426950408889634);
        memory.largest[row] = is_refined ? refined[row] : 0;
        memory.factor[row] = is_refined ? refined[all_rows() + row] : 1;
        if (is_refined) memory.delta[row] = refined[2 * all_rows() + row];
      }
    }
  }

  /* ---- one tile ----------------------------------------------------------------------------- */

  template <class Action, class... More>
  INLINED void with_vectors(int64_t vectors, Gradients &self, More &&...more) {
    if (vectors == 1) return Action::template call<1>(self, more...);
    if constexpr (most_vectors >= 4)
      if (vectors == 4) return Action::template call<4>(self, more...);
    if constexpr (most_vectors >= 3)
      if (vectors == 3) return Action::template call<3>(self, more...);
    if constexpr (most_vectors >= 2) return Action::template call<2>(self, more...);
  }

  /* Add what the rows at hand give to a tile of keys, and, `with_query`, the other way round. Tell whether
     any sees any. */
  bool add_tile(const Tile &tile, bool with_keys, bool with_query) {
    bool any = false;
    for (int64_t first = 0; first < tile.count; first += gradients_strip) {
      const Tile strip = strip_of(tile, first);
      Part<Real> parts[64];
      int64_t seen = 0;
      for (int64_t group = 0; group < row_groups.count; group++) {
        Part<Real> &part = parts[group];
        part = part_of(group);
        with_vectors<Score>(row_groups.vectors_in(group), *this, group, strip, part);
        if (part.keys > seen) seen = part.keys;
      }
      if (!seen) continue;
      any = true;
      if (with_keys) {
        for (int64_t c = 0; c < value_groups.count; c++)
          with_vectors<Gather<false>>(value_groups.vectors_in(c), *this, parts, seen,
                                      memory.output_rows + value_groups.first(c) * partition.block_rows,
                                      memory.value_sum + value_groups.first(c) * partition.block_keys +
                                          first * value_groups.width(c));
        for (int64_t c = 0; c < head_groups.count; c++)
          with_vectors<Gather<true>>(
              head_groups.vectors_in(c), *this, parts, seen,
              memory.query_rows + head_groups.first(c) * partition.block_rows,
              memory.key_sum + head_groups.first(c) * partition.block_keys + first * head_groups.width(c));
      }
      if (with_query)
        for (int64_t group = 0; group < row_groups.count; group++)
          if (parts[group].keys)
            with_vectors<Spread>(row_groups.vectors_in(group), *this, strip, parts[group]);
      if (!with_keys && !with_query)
        for (int64_t group = 0; group < row_groups.count; group++) add_changes(strip, parts[group]);
    }
    return any;
  }

  Tile strip_of(const Tile &tile, int64_t first) const {
    const int64_t count = tile.count - first < gradients_strip ? tile.count - first : gradients_strip;
    return {tile.first + first,
            count,
            tile.key + first * tile.key_stride,
            tile.value + first * tile.value_stride,
            tile.key_stride,
            tile.value_stride};
  }

  Part<Real> part_of(int64_t group) const {
    const int64_t at = row_groups.first(group), left = task.last_row - task.first_row - at;
    return {memory.weights + at * gradients_strip,
            memory.changes + at * gradients_strip,
            row_groups.width(group),
            at,
            left < row_groups.width(group) ? left : row_groups.width(group),
            0};
  }

  void refine_tile(const Tile &tile) {
    for (int64_t first = 0; first < tile.count; first += gradients_strip) {
      const Tile strip = strip_of(tile, first);
      for (int64_t group = 0; group < row_groups.count; group++) {
        Part<Real> part = part_of(group);
        with_vectors<Refine>(row_groups.vectors_in(group), *this, group, strip, part);
      }
    }
  }

  struct Refine {
    template <int vectors>
    static void call(Gradients &self, int64_t group, const Tile &strip, Part<Real> &part) {
      self.template refine_group<vectors>(group, strip, part);
    }
  };

  template <int vectors>
  void refine_group(int64_t group, const Tile &strip, Part<Real> &part) {
    if (!score<vectors>(group, strip, part)) return;
    const int64_t at = part.first_row;
    const RefinedRows<Real> found = {memory.largest + at, memory.factor + at, memory.sum_of_changes + at,
                                     memory.size_of_scores + at};
    const DropoutPlace where = dropout_place(part, strip);
    if (p.dropout > 0)
      refine<T, vectors, degree, true>(part.weights, part.changes, part.keys, (Real)scaling.power(), where,
                                       found);
    else
      refine<T, vectors, degree, false>(part.weights, part.changes, part.keys, (Real)scaling.power(), where,
                                        found);
  }

  DropoutPlace dropout_place(const Part<Real> &part, const Tile &strip) const {
    return {dropout, p.first_batch + task.batch, task.head, task.first_row + part.first_row, strip.first};
  }

  struct Score {
    template <int vectors>
    static void call(Gradients &self, int64_t group, const Tile &strip, Part<Real> &part) {
      self.template score_group<vectors>(group, strip, part);
    }
  };

  /* Scores and the gradients of weights, where those and changes are to be; `part.keys` is how many keys of
     the strip the group sees. Tell whether it is any. */
  template <int vectors>
  bool score(int64_t group, const Tile &strip, Part<Real> &part) {
    const Span &span = spans[group];
    const int64_t keys = clamp(span.any.end - strip.first, strip.count);
    if (!keys || span.any.first >= strip.first + keys) return false;
    Real ignored[vectors * T::lanes] = {};
    Real *weights = (Real *)part.weights, *changes = (Real *)part.changes;
    MaskRows<T, vectors> mask;
    const bool is_added = p.mask_element && p.mask_element != MLBACKENDS_ATTENTION_BOOL;
    bool masked = is_added;
    if (p.mask_element) {
      find_mask<T, vectors>(task, task.first_row + part.first_row, part.rows, mask);
      if (!is_added) {
        const Visibility found = visibility(mask, strip.first, keys);
        if (found == NOTHING) return false;
        masked = found == SOME;
      }
    }
    part.keys = keys;
    score_all<P, vectors>(strip.key, strip.key_stride, keys, memory.query_lanes + part.first_row * p.head_dim,
                          p.head_dim, weights, ignored);
    if (masked) add_mask<T, vectors>(mask, strip.first, keys, weights, (Real)scaling.scale, ignored);
    if (span.all.first > strip.first || span.all.end < strip.first + keys) {
      const Ends<T, vectors> ends(task, task.first_row + part.first_row, part.rows, strip.first, keys);
      hide<T, vectors>(weights, keys, ends, ignored);
    }
    score_all<P, vectors>(strip.value, strip.value_stride, keys,
                          memory.output_lanes + part.first_row * p.value_dim, p.value_dim, changes, ignored);
    return true;
  }

  /* The weights and changes of a group, in whole steps of a product whose rows behind are zeros. */
  template <int vectors>
  void score_group(int64_t group, const Tile &strip, Part<Real> &part) {
    if (!score<vectors>(group, strip, part)) return;
    Real *weights = (Real *)part.weights, *changes = (Real *)part.changes;
    const int64_t at = part.first_row, keys = part.keys;
    const RowStatistics<Real> statistics = {memory.exponent + at, memory.largest + at, memory.factor + at,
                                            memory.delta + at, (Real)scaling.power()};
    const DropoutPlace where = dropout_place(part, strip);
    if (p.dropout > 0)
      differentiate<T, vectors, degree, true>(weights, changes, keys, statistics, where);
    else
      differentiate<T, vectors, degree, false>(weights, changes, keys, statistics, where);
    const int64_t behind = strip.count - keys < 8 ? strip.count - keys : 8;
    memset(weights + keys * vectors * T::lanes, 0, sizeof(Real) * (size_t)(behind * vectors * T::lanes));
    memset(changes + keys * vectors * T::lanes, 0, sizeof(Real) * (size_t)(behind * vectors * T::lanes));
  }

  template <bool of_changes>
  struct Gather {
    template <int vectors>
    static void call(Gradients &self, const Part<Real> (&parts)[64], int64_t keys, const Real *columns,
                     Real *sum) {
      gather_all<P, vectors, of_changes>(parts, self.row_groups.count, 0, keys, columns, sum);
    }
  };

  struct Spread {
    template <int vectors>
    static void call(Gradients &self, const Tile &strip, const Part<Real> &part) {
      weigh_all<P, vectors>(strip.key, strip.key_stride, self.p.head_dim, part.changes, part.keys, self.ones,
                            self.memory.query_sum + part.first_row * self.p.head_dim);
    }
  };

  /* ---- what a tile leaves ------------------------------------------------------------------- */

  /* Add the rows' gradients of one block of keys to what others gave; the stride in numbers. */
  void add_query_sum(Real *to, int64_t stride) const {
    const int64_t rows = task.last_row - task.first_row;
    add_groups_of_rows<T>(memory.query_sum, row_groups, rows, p.head_dim, (Real)p.scale, to, stride);
  }

  void clear_sums(char *sums) const {
    const size_t width = (size_t)p.head_dim;
    if (partition.sums_apart) {
      memset(sums, 0, sizeof(Real) * width * (size_t)(partition.heads_together * p.query_length));
      return;
    }
    Task each = task;
    for (int64_t i = 0; i < partition.heads_together; i++, each.head++)
      for (int64_t row = 0; row < p.query_length; row++)
        memset(place(g.query, g.query_strides, each.head, row), 0, sizeof(Real) * width);
  }

  void write_sums(const Real *sums) {
    if (!partition.sums_apart) return;
    for (int64_t i = 0; i < partition.heads_together; i++, task.head++)
      for (int64_t row = 0; row < p.query_length; row++, sums += p.head_dim)
        write_row<E>(sums, p.head_dim, of_query_row(row));
  }

  /* Add a group's changes to the sum of the mask's block, whose broadcast dimensions have one place. */
  void add_changes(const Tile &strip, const Part<Real> &part) {
    const bool many_rows = g.mask_strides[2] != 0, many_keys = g.mask_strides[3] != 0;
    for (int64_t k = 0; k < part.keys; k++) {
      Real *to =
          memory.mask_sum + (many_keys ? (strip.first + k) % partition.block_keys : 0) * partition.block_rows;
      const Real *from = part.changes + k * part.width;
      for (int64_t i = 0; i < part.rows; i++) to[many_rows ? part.first_row + i : 0] += from[i];
    }
  }

  void write_mask(int64_t batch, int64_t head, int64_t row_block, int64_t key_block) const {
    const int64_t first_row = row_block * partition.block_rows, first_key = key_block * partition.block_keys;
    Real *to = (Real *)g.mask + batch * g.mask_strides[0] + head * g.mask_strides[1];
    for (int64_t i = 0; i < (g.mask_strides[2] ? partition.block_rows : 1) && first_row + i < p.query_length;
         i++)
      for (int64_t k = 0; k < (g.mask_strides[3] ? partition.block_keys : 1) && first_key + k < p.key_length;
           k++)
        to[(first_row + i) * g.mask_strides[2] + (first_key + k) * g.mask_strides[3]] =
            memory.mask_sum[k * partition.block_rows + i];
  }

  char *place(const void *tensor, const int64_t (&strides)[3], int64_t head, int64_t row) const {
    return (char *)tensor + size * (task.batch * strides[0] + head * strides[1] + row * strides[2]);
  }
  char *of_query_row(int64_t row) const { return place(g.query, g.query_strides, task.head, row); }
};

} // namespace
