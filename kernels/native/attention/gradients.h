/* The gradients of a block of rows against a block of keys, with rows across the lanes as in block.h:

       weights^T = 2^(c key @ query^T - logsumexp)          changes^T = weights^T * (value @ of_output^T - delta)
       of_value += weights^T @ of_output                    delta     = rowsum(output * of_output)
       of_key   += changes^T @ query scale                  of_query^T += key^T @ changes^T scale

   Weights and changes are there for a strip of keys and a block of rows at a time.
   Source: Dao 2023, FlashAttention-2, algorithm 2. */
#pragma once
#include "differentiate.h"
#include "gather.h"
#include "gradients_plan.h"
#include "mask.h"
#include "scratch.h"
#include "task.h"

namespace {

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
  static constexpr int64_t strip_keys = 64;

  struct Memory {
    Real *query_lanes, *output_lanes; /* (groups of rows, head_dim or value_dim, rows) */
    Real *query_rows, *output_rows;   /* (groups of columns, rows, columns) */
    Real *weights, *changes;          /* (groups of rows, keys of a strip, rows) */
    Real *query_sum;                  /* (groups of rows, head_dim, rows): of one block of keys */
    Real *row_sum;                    /* (rows, head_dim): of all blocks, where a task is a block of rows */
    Real *key_sum, *value_sum;        /* (groups of columns, keys, columns) */
    Real *key, *value;                /* (keys, head_dim or value_dim), widened */
    Real *mask_sum;                   /* (keys, rows) */
    Real *exponent, *largest, *factor, *delta, *sum_of_changes, *size_of_scores; /* (rows) */
    int64_t *limits;                  /* (rows): how many keys a row sees */

    Memory(const GradientsPlan &plan, Scratch &scratch) {
      const mlbackends_attention_problem &p = plan.problem->forward;
      const int64_t rows = plan.block_rows, keys = plan.block_keys, head_dim = padded(p.head_dim), value_dim = padded(p.value_dim);
      query_lanes = scratch.take<Real>(rows * head_dim);
      output_lanes = scratch.take<Real>(rows * value_dim);
      query_rows = scratch.take<Real>(rows * head_dim);
      output_rows = scratch.take<Real>(rows * value_dim);
      weights = scratch.take<Real>(rows * strip_keys);
      changes = scratch.take<Real>(rows * strip_keys);
      query_sum = scratch.take<Real>(rows * head_dim);
      row_sum = scratch.take<Real>(plan.one_pass ? 0 : rows * head_dim);
      key_sum = scratch.take<Real>(keys * head_dim);
      value_sum = scratch.take<Real>(keys * value_dim);
      key = scratch.take<Real>(widens ? keys * p.head_dim : 0);
      value = scratch.take<Real>(widens ? keys * p.value_dim : 0);
      mask_sum = scratch.take<Real>(plan.mask_tasks ? keys * rows : 0);
      exponent = scratch.take<Real>(rows);
      largest = scratch.take<Real>(rows);
      factor = scratch.take<Real>(rows);
      delta = scratch.take<Real>(rows);
      sum_of_changes = scratch.take<Real>(rows);
      size_of_scores = scratch.take<Real>(rows);
      limits = scratch.take<int64_t>(rows);
    }
  };
  static int64_t padded(int64_t width) { return (width + T::lanes - 1) / T::lanes * T::lanes; }

  const GradientsPlan &plan;
  const mlbackends_attention_gradients &g;
  const mlbackends_attention_problem &p;
  const Scaling scaling;
  const Dropping dropping;
  Memory memory;
  Task task; /* the head, and the rows of the block */
  Groups<T> row_groups;
  const Groups<T> head_groups, value_groups; /* of columns */
  int64_t group_limit[64];
  Real ones[most_rows];

  static int64_t scratch_bytes(const GradientsPlan &plan) {
    Scratch counted = {};
    Memory memory(plan, counted);
    return counted.taken;
  }

  Gradients(const GradientsPlan &plan_, Scratch &scratch)
      : plan(plan_), g(*plan_.problem), p(g.forward), scaling(p), dropping(p), memory(plan_, scratch), task(), row_groups(0),
        head_groups(p.head_dim), value_groups(p.value_dim) {
    task.p = &p;
    for (Real &one : ones) one = 1;
  }

  void run(const GradientsTask &asked) {
    task.batch = asked.unit / plan.units_per_batch;
    task.head = asked.unit % plan.units_per_batch * plan.heads_together;
    switch (asked.kind) {
      case START_UNIT: return clear_sums(asked.sums);
      case KEYS_OF_UNIT: return add_keys(asked.block, asked.sums, true);
      case END_UNIT: return write_sums((const Real *)asked.sums);
      case KEYS: return add_keys(asked.block, nullptr, false);
      case ROWS: return add_rows(asked.unit, asked.block);
      case MASK: return add_mask_block(asked.unit);
      case REFINE: return refine_rows(asked.unit, asked.block);
    }
  }

 private:
  /* ---- the ways through a unit ------------------------------------------------------------------------------- */

  /* The gradients of a block of keys and of its values; with `with_query` also its share in that of the query. */
  void add_keys(int64_t block, char *sums, bool with_query) {
    const int64_t first = block * plan.block_keys, head = task.head;
    const int64_t count = p.key_length - first < plan.block_keys ? p.key_length - first : plan.block_keys;
    for (int64_t i = 0; i < plan.heads_together; i++) {
      task.head = head + i;
      if (i % p.key_group == 0) memset(memory.key_sum, 0, sizeof(Real) * (size_t)(plan.block_keys * padded(p.head_dim)));
      if (i % p.value_group == 0) memset(memory.value_sum, 0, sizeof(Real) * (size_t)(plan.block_keys * padded(p.value_dim)));
      const Tile tile = bring_keys(first, count, i % p.key_group == 0, i % p.value_group == 0);
      for (int64_t rows = p.causal ? first_block_that_sees(first) : 0; rows < plan.row_blocks; rows++) {
        bring_rows(rows);
        if (with_query) memset(memory.query_sum, 0, sizeof(Real) * (size_t)(plan.block_rows * padded(p.head_dim)));
        if (!add_tile(tile, true, with_query) || !with_query) continue;
        if (plan.sums_apart)
          add_query_sum((Real *)sums + (i * p.query_length + task.first_row) * p.head_dim, p.head_dim);
        else
          add_query_sum((Real *)of_query_row(task.first_row), g.query_strides[2]);
      }
      const int64_t key_head = task.head / p.key_group, value_head = task.head / p.value_group;
      if ((i + 1) % p.key_group == 0)
        write_columns(memory.key_sum, head_groups, p.head_dim, count, (Real)p.scale, place(g.key, g.key_strides, key_head, first), g.key_strides[2] * size);
      if ((i + 1) % p.value_group == 0)
        write_columns(memory.value_sum, value_groups, p.value_dim, count, 1, place(g.value, g.value_strides, value_head, first), g.value_strides[2] * size);
    }
  }

  /* The gradient of a block of rows of one head, `number` counted through all batches. */
  void add_rows(int64_t number, int64_t block) {
    task.batch = number / p.heads;
    task.head = number % p.heads;
    bring_rows(block);
    memset(memory.row_sum, 0, sizeof(Real) * (size_t)(plan.block_rows * p.head_dim));
    int64_t last = 0;
    for (int64_t group = 0; group < row_groups.count; group++) last = group_limit[group] > last ? group_limit[group] : last;
    for (int64_t first = 0; first < last; first += plan.block_keys) {
      const int64_t count = p.key_length - first < plan.block_keys ? p.key_length - first : plan.block_keys;
      memset(memory.query_sum, 0, sizeof(Real) * (size_t)(plan.block_rows * padded(p.head_dim)));
      if (add_tile(bring_keys(first, count, true, true), false, true)) add_query_sum(memory.row_sum, p.head_dim);
    }
    for (int64_t row = task.first_row; row < task.last_row; row++)
      write_row(memory.row_sum + (row - task.first_row) * p.head_dim, of_query_row(row));
  }

  /* One block of the mask's gradient, summed over all of what the mask is broadcast over. */
  void add_mask_block(int64_t number) {
    const int64_t key_block = number % plan.mask_key_blocks, row_block = number / plan.mask_key_blocks % plan.mask_row_blocks;
    const int64_t above = number / plan.mask_key_blocks / plan.mask_row_blocks;
    const int64_t head = above % plan.mask_heads, batch = above / plan.mask_heads;
    memset(memory.mask_sum, 0, sizeof(Real) * (size_t)(plan.block_keys * plan.block_rows));
    for (task.batch = batch; task.batch < (plan.mask_batches > 1 ? batch + 1 : p.batch); task.batch++)
      for (task.head = head; task.head < (plan.mask_heads > 1 ? head + 1 : p.heads); task.head++)
        for (int64_t keys = key_block; keys < (plan.mask_key_blocks > 1 ? key_block + 1 : plan.key_blocks); keys++) {
          const int64_t first = keys * plan.block_keys;
          const int64_t count = p.key_length - first < plan.block_keys ? p.key_length - first : plan.block_keys;
          const Tile tile = bring_keys(first, count, true, true);
          for (int64_t rows = row_block; rows < (plan.mask_row_blocks > 1 ? row_block + 1 : plan.row_blocks); rows++) {
            bring_rows(rows);
            add_tile(tile, false, false);
          }
        }
    write_mask(batch, head, row_block, key_block);
  }

  /* What one number for each row cannot tell of its weights; see problem.h. */
  void refine_rows(int64_t number, int64_t block) {
    task.batch = number / p.heads;
    task.head = number % p.heads;
    bring_rows(block, false);
    for (int64_t row = 0; row < row_groups.vectors * T::lanes; row++) {
      memory.largest[row] = -(Real)__builtin_huge_val();
      memory.factor[row] = memory.sum_of_changes[row] = memory.size_of_scores[row] = 0;
    }
    int64_t last = 0;
    for (int64_t group = 0; group < row_groups.count; group++) last = group_limit[group] > last ? group_limit[group] : last;
    for (int64_t first = 0; first < last; first += plan.block_keys) {
      const int64_t count = p.key_length - first < plan.block_keys ? p.key_length - first : plan.block_keys;
      refine_tile(bring_keys(first, count, true, true));
    }
    Real *largest = (Real *)g.refined + first_place(), *factors = largest + all_rows(), *deltas = factors + all_rows();
    for (int64_t row = 0; row < task.last_row - task.first_row; row++) {
      const Real sum = memory.factor[row];
      largest[row] = memory.largest[row];
      factors[row] = is_whole(row, sum) ? 1 / sum : 0;
      deltas[row] = memory.sum_of_changes[row] / sum;
    }
  }

  /* Tell whether the log-sum-exp of a row is that of these keys but for the rounding of scores. Else it is of more keys, and
     right as it is. */
  bool is_whole(int64_t row, Real sum) const {
    if (!(sum > 0)) return false;
    const double largest = scaling.natural * memory.largest[row], size = scaling.natural * memory.size_of_scores[row];
    const double off = largest + logarithm(sum) - given_sum(row), rounding = sizeof(Real) == 8 ? 0x1p-50 : 0x1p-21;
    return (off < 0 ? -off : off) <= rounding * (1 + size + (largest < 0 ? -largest : largest));
  }

  /* The log-sum-exp that was given of a row at hand. */
  double given_sum(int64_t row) const {
    const int64_t place = first_place() + row;
    return sizeof(Real) == 8 ? ((const double *)p.logsumexp)[place] : (double)((const float *)p.logsumexp)[place];
  }

  /* Where the rows at hand stand among those of all heads and batches, and how many those are. */
  int64_t first_place() const { return (task.batch * p.heads + task.head) * p.query_length + task.first_row; }
  int64_t all_rows() const { return p.batch * p.heads * p.query_length; }

  /* The rows from which on something is seen of the keys from `first` on. */
  int64_t first_block_that_sees(int64_t first) const {
    const int64_t row = first - p.diagonal;
    return row <= 0 ? 0 : row / plan.block_rows;
  }

  /* ---- what a tile reads ------------------------------------------------------------------------------------- */

  /* Keys and values as the products read them; strides in bytes. */
  struct Tile {
    int64_t first, count;
    const char *key, *value;
    int64_t key_stride, value_stride;
  };

  Tile bring_keys(int64_t first, int64_t count, bool other_key, bool other_value) {
    Tile tile = {first, count, key_row(task, first), value_row(task, first), p.key_strides[2] * size, p.value_strides[2] * size};
    if constexpr (widens) {
      if (other_key) widen(tile.key, tile.key_stride, count, p.head_dim, memory.key);
      if (other_value) widen(tile.value, tile.value_stride, count, p.value_dim, memory.value);
      tile.key = (const char *)memory.key, tile.key_stride = p.head_dim * (int64_t)sizeof(Real);
      tile.value = (const char *)memory.value, tile.value_stride = p.value_dim * (int64_t)sizeof(Real);
    }
    return tile;
  }

  static void widen(const char *rows, int64_t stride, int64_t count, int64_t width, Real *to) {
    for (int64_t k = 0; k < count; k++, rows += stride, to += width) {
      int64_t c = 0;
      for (; c + T::lanes <= width; c += T::lanes) store<T>(to + c, load_elements(E{}, rows + c * size));
      if (c < width) {
        const Vector rest = load_some(E{}, rows + c * size, width - c);
        memcpy(to + c, &rest, (size_t)(width - c) * sizeof(Real));
      }
    }
  }

  void bring_rows(int64_t block, bool refined_too = true) {
    task.first_row = block * plan.block_rows;
    task.last_row = p.query_length < task.first_row + plan.block_rows ? p.query_length : task.first_row + plan.block_rows;
    const int64_t rows = task.last_row - task.first_row;
    row_groups = Groups<T>(rows);
    const Real sign = scaling.ignored ? 0 : scaling.negated ? -1 : 1;
    lay(query_row(task, task.first_row), p.query_strides[2] * size, p.head_dim, head_groups, sign, memory.query_rows, memory.query_lanes);
    const char *of_output = place(g.of_output, g.of_output_strides, task.head, task.first_row);
    const int64_t stride = g.of_output_strides[2] * size;
    lay(of_output, stride, p.value_dim, value_groups, 1, memory.output_rows, memory.output_lanes);
    dot(of_output, stride, output_row(task, task.first_row), p.output_strides[2] * size);
    const Real *refined = (const Real *)g.refined + first_place();
    for (int64_t group = 0; group < row_groups.count; group++) group_limit[group] = 0;
    for (int64_t group = 0, row = 0; group < row_groups.count; group++)
      for (int64_t i = 0; i < row_groups.width(group); i++, row++) {
        const bool is_refined = refined_too && g.refined && row < rows && refined[all_rows() + row] != 0;
        memory.exponent[row] = is_refined || row >= rows ? 0 : (Real)(given_sum(row) * 1.4426950408889634);
        memory.largest[row] = is_refined ? refined[row] : 0;
        memory.factor[row] = is_refined ? refined[all_rows() + row] : 1;
        if (is_refined) memory.delta[row] = refined[2 * all_rows() + row];
        memory.limits[row] = row < rows ? task.limit(task.first_row + row) : group_limit[group];
        if (memory.limits[row] > group_limit[group]) group_limit[group] = memory.limits[row];
      }
  }

  /* Lay out rows (rows, width) in groups of columns as they are, and in groups of rows transposed and times `sign`. */
  void lay(const char *from, int64_t stride, int64_t width, const Groups<T> &columns, Real sign, Real *as_rows, Real *as_lanes) {
    const int64_t rows = task.last_row - task.first_row;
    for (int64_t v = 0; v < row_groups.vectors; v++, from += T::lanes * stride) {
      const int64_t group = row_groups.of(v), together = row_groups.width(group);
      Real *lanes = as_lanes + row_groups.first(group) * width + (v * T::lanes - row_groups.first(group));
      for (int64_t c = 0; c < columns.vectors; c++) {
        const int64_t column_group = columns.of(c), beside = columns.width(column_group), first = columns.first(column_group);
        Real *to = as_rows + first * plan.block_rows + (c * T::lanes - first) + v * T::lanes * beside;
        const char *at = from + c * T::lanes * size;
        if (rows >= (v + 1) * T::lanes && width >= (c + 1) * T::lanes)
          lay_square(at, stride, to, beside, lanes + c * T::lanes * together, together, sign);
        else
          lay_some(at, stride, rows - v * T::lanes, width - c * T::lanes, to, beside, lanes + c * T::lanes * together, together, sign);
      }
    }
  }

  /* As many rows as there are lanes, and as many columns; the strides of what is written are in numbers. */
  INLINED void lay_square(const char *from, int64_t stride, Real *as_rows, int64_t beside, Real *as_lanes, int64_t together, Real sign) {
    Vector square[T::lanes];
#pragma GCC unroll 16
    for (int i = 0; i < T::lanes; i++) {
      square[i] = load_elements(E{}, from + i * stride);
      store<T>(as_rows + i * beside, square[i]);
      square[i] *= sign;
    }
    transpose<T>(square);
#pragma GCC unroll 16
    for (int i = 0; i < T::lanes; i++) store<T>(as_lanes + i * together, square[i]);
  }

  /* Fewer rows or columns: what there is none of is 0. */
  static __attribute__((noinline)) void lay_some(const char *from, int64_t stride, int64_t rows, int64_t columns, Real *as_rows,
                                                 int64_t beside, Real *as_lanes, int64_t together, Real sign) {
    Vector square[T::lanes] = {};
    for (int i = 0; i < T::lanes && i < rows; i++) {
      const Vector numbers = elements(from + i * stride, columns);
      store<T>(as_rows + i * beside, numbers);
      square[i] = numbers * sign;
    }
    transpose<T>(square);
    for (int i = 0; i < T::lanes && i < columns; i++) store<T>(as_lanes + i * together, square[i]);
  }

  /* delta (rows) = the products of rows of `first` and of `second`, which are value_dim wide. */
  void dot(const char *first, int64_t first_stride, const char *second, int64_t second_stride) {
    const int64_t rows = task.last_row - task.first_row;
    for (int64_t row = 0; row < row_groups.vectors * T::lanes; row += T::lanes) {
      Vector dots[T::lanes] = {};
      for (int i = 0; i < T::lanes && row + i < rows; i++) {
        const char *a = first + (row + i) * first_stride, *b = second + (row + i) * second_stride;
        Vector sum = {};
        int64_t c = 0;
        for (; c + T::lanes <= p.value_dim; c += T::lanes) sum += load_elements(E{}, a + c * size) * load_elements(E{}, b + c * size);
        if (c < p.value_dim) sum += load_some(E{}, a + c * size, p.value_dim - c) * load_some(E{}, b + c * size, p.value_dim - c);
        dots[i] = sum;
      }
      store<T>(memory.delta + row, sums<T>(dots));
    }
  }

  INLINED Vector elements(const char *at, int64_t left) {
    return left >= T::lanes ? load_elements(E{}, at) : load_some(E{}, at, left);
  }

  /* ---- one tile ---------------------------------------------------------------------------------------------- */

  template <class Action, class... More>
  INLINED void with_vectors(int64_t vectors, Gradients &self, More &&...more) {
    if (vectors == 1) return Action::template call<1>(self, more...);
    if constexpr (most_vectors >= 4)
      if (vectors == 4) return Action::template call<4>(self, more...);
    if constexpr (most_vectors >= 3)
      if (vectors == 3) return Action::template call<3>(self, more...);
    if constexpr (most_vectors >= 2) return Action::template call<2>(self, more...);
  }

  /* Add what the rows at hand give to a tile of keys, and, `with_query`, the other way round. Tell whether any sees any. */
  bool add_tile(const Tile &tile, bool with_keys, bool with_query) {
    bool any = false;
    for (int64_t first = 0; first < tile.count; first += strip_keys) {
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
          with_vectors<Gather<false>>(value_groups.vectors_in(c), *this, parts, seen, memory.output_rows + value_groups.first(c) * plan.block_rows,
                                      memory.value_sum + value_groups.first(c) * plan.block_keys + first * value_groups.width(c));
        for (int64_t c = 0; c < head_groups.count; c++)
          with_vectors<Gather<true>>(head_groups.vectors_in(c), *this, parts, seen, memory.query_rows + head_groups.first(c) * plan.block_rows,
                                     memory.key_sum + head_groups.first(c) * plan.block_keys + first * head_groups.width(c));
      }
      if (with_query)
        for (int64_t group = 0; group < row_groups.count; group++)
          if (parts[group].keys) with_vectors<Spread>(row_groups.vectors_in(group), *this, strip, parts[group]);
      if (!with_keys && !with_query)
        for (int64_t group = 0; group < row_groups.count; group++) add_changes(strip, parts[group]);
    }
    return any;
  }

  Tile strip_of(const Tile &tile, int64_t first) const {
    const int64_t count = tile.count - first < strip_keys ? tile.count - first : strip_keys;
    return {tile.first + first, count, tile.key + first * tile.key_stride, tile.value + first * tile.value_stride,
            tile.key_stride, tile.value_stride};
  }

  Part<Real> part_of(int64_t group) const {
    const int64_t at = row_groups.first(group), left = task.last_row - task.first_row - at;
    return {memory.weights + at * strip_keys, memory.changes + at * strip_keys, row_groups.width(group), at,
            left < row_groups.width(group) ? left : row_groups.width(group), 0};
  }

  void refine_tile(const Tile &tile) {
    for (int64_t first = 0; first < tile.count; first += strip_keys) {
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
    const Found<Real> found = {memory.largest + at, memory.factor + at, memory.sum_of_changes + at, memory.size_of_scores + at};
    const Dropped where = dropped_of(part, strip);
    if (p.dropout > 0)
      refine<T, vectors, degree, true>(part.weights, part.changes, part.keys, (Real)scaling.power(), where, found);
    else
      refine<T, vectors, degree, false>(part.weights, part.changes, part.keys, (Real)scaling.power(), where, found);
  }

  Dropped dropped_of(const Part<Real> &part, const Tile &strip) const {
    return {dropping, p.first_batch + task.batch, task.head, task.first_row + part.first_row, strip.first};
  }

  struct Score {
    template <int vectors>
    static void call(Gradients &self, int64_t group, const Tile &strip, Part<Real> &part) {
      self.template score_group<vectors>(group, strip, part);
    }
  };

  /* Scores and the gradients of weights, where those and changes are to be; `part.keys` is how many keys of the strip
     the group sees. Tell whether it is any. */
  template <int vectors>
  bool score(int64_t group, const Tile &strip, Part<Real> &part) {
    const int64_t *limits = memory.limits + part.first_row;
    const int64_t left = group_limit[group] - strip.first, keys = left < strip.count ? left : strip.count;
    if (keys <= 0) return false;
    Real ignored[vectors * T::lanes] = {};
    Real *weights = (Real *)part.weights, *changes = (Real *)part.changes;
    MaskRows<T, vectors> mask;
    const bool is_added = p.mask_element && p.mask_element != MLBACKENDS_ATTENTION_BOOL;
    bool masked = is_added;
    if (p.mask_element) {
      find_mask<T, vectors>(task, task.first_row + part.first_row, part.rows, mask);
      if (!is_added) {
        const Sight found = sight(mask, strip.first, keys);
        if (found == NOTHING) return false;
        masked = found == SOME;
      }
    }
    part.keys = keys;
    score_all<P, vectors>(strip.key, strip.key_stride, keys, memory.query_lanes + part.first_row * p.head_dim, p.head_dim, weights, ignored);
    if (masked) add_mask<T, vectors>(mask, strip.first, keys, weights, (Real)scaling.scale, ignored);
    bool hidden = false;
    for (int i = 0; p.causal && i < vectors * T::lanes; i++) hidden |= limits[i] < strip.first + keys;
    if (hidden) {
      Real relative[vectors * T::lanes];
      for (int i = 0; i < vectors * T::lanes; i++) relative[i] = (Real)(limits[i] - strip.first < keys ? limits[i] - strip.first : keys);
      hide<T, vectors>(weights, keys, relative, ignored);
    }
    score_all<P, vectors>(strip.value, strip.value_stride, keys, memory.output_lanes + part.first_row * p.value_dim, p.value_dim, changes, ignored);
    return true;
  }

  /* The weights and changes of a group, in whole steps of a product whose rows behind are zeros. */
  template <int vectors>
  void score_group(int64_t group, const Tile &strip, Part<Real> &part) {
    if (!score<vectors>(group, strip, part)) return;
    Real *weights = (Real *)part.weights, *changes = (Real *)part.changes;
    const int64_t at = part.first_row, keys = part.keys;
    const Known<Real> known = {memory.exponent + at, memory.largest + at, memory.factor + at, memory.delta + at, (Real)scaling.power()};
    const Dropped where = dropped_of(part, strip);
    if (p.dropout > 0)
      differentiate<T, vectors, degree, true>(weights, changes, keys, known, where);
    else
      differentiate<T, vectors, degree, false>(weights, changes, keys, known, where);
    const int64_t behind = strip.count - keys < 8 ? strip.count - keys : 8;
    memset(weights + keys * vectors * T::lanes, 0, sizeof(Real) * (size_t)(behind * vectors * T::lanes));
    memset(changes + keys * vectors * T::lanes, 0, sizeof(Real) * (size_t)(behind * vectors * T::lanes));
  }

  template <bool of_changes>
  struct Gather {
    template <int vectors>
    static void call(Gradients &self, const Part<Real> (&parts)[64], int64_t keys, const Real *columns, Real *sum) {
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

  /* ---- what a tile leaves ------------------------------------------------------------------------------------ */

  /* Add the rows' gradients of one block of keys to what others gave: (rows, head_dim), the stride in numbers. */
  void add_query_sum(Real *to, int64_t stride) const {
    const int64_t rows = task.last_row - task.first_row;
    for (int64_t v = 0; v < row_groups.vectors; v++) {
      const int64_t group = row_groups.of(v), together = row_groups.vectors_in(group);
      const Real *from = memory.query_sum + row_groups.first(group) * p.head_dim + (v * T::lanes - row_groups.first(group));
      for (int64_t c = 0; c < p.head_dim; c += T::lanes) {
        if (rows >= (v + 1) * T::lanes && p.head_dim >= c + T::lanes)
          add_square(from + c * together * T::lanes, together * T::lanes, to + v * T::lanes * stride + c, stride, (Real)p.scale);
        else
          add_some(from + c * together * T::lanes, together * T::lanes, to + v * T::lanes * stride + c, stride, (Real)p.scale, rows - v * T::lanes, p.head_dim - c);
      }
    }
  }

  INLINED void add_square(const Real *from, int64_t together, Real *to, int64_t stride, Real scale) {
    Vector square[T::lanes];
#pragma GCC unroll 16
    for (int j = 0; j < T::lanes; j++) square[j] = load<T>(from + j * together) * scale;
    transpose<T>(square);
#pragma GCC unroll 16
    for (int i = 0; i < T::lanes; i++) store<T>(to + i * stride, load<T>(to + i * stride) + square[i]);
  }

  static __attribute__((noinline)) void add_some(const Real *from, int64_t together, Real *to, int64_t stride, Real scale, int64_t rows, int64_t columns) {
    Vector square[T::lanes] = {};
    for (int j = 0; j < T::lanes && j < columns; j++) square[j] = load<T>(from + j * together) * scale;
    transpose<T>(square);
    for (int i = 0; i < T::lanes && i < rows; i++) {
      Real numbers[T::lanes];
      store<T>(numbers, square[i]);
      for (int j = 0; j < T::lanes && j < columns; j++) to[i * stride + j] += numbers[j];
    }
  }

  void clear_sums(char *sums) const {
    const size_t width = (size_t)p.head_dim;
    if (plan.sums_apart) {
      memset(sums, 0, sizeof(Real) * width * (size_t)(plan.heads_together * p.query_length));
      return;
    }
    Task each = task;
    for (int64_t i = 0; i < plan.heads_together; i++, each.head++)
      for (int64_t row = 0; row < p.query_length; row++) memset(place(g.query, g.query_strides, each.head, row), 0, sizeof(Real) * width);
  }

  void write_sums(const Real *sums) {
    if (!plan.sums_apart) return;
    for (int64_t i = 0; i < plan.heads_together; i++, task.head++)
      for (int64_t row = 0; row < p.query_length; row++, sums += p.head_dim) write_row(sums, of_query_row(row));
  }

  void write_row(const Real *numbers, char *to) const {
    for (int64_t c = 0; c < p.head_dim; c += T::lanes) {
      if (c + T::lanes <= p.head_dim) {
        store_elements(E{}, to + c * size, load<T>(numbers + c));
        continue;
      }
      Real rest[T::lanes] = {};
      memcpy(rest, numbers + c, sizeof(Real) * (size_t)(p.head_dim - c));
      store_some(E{}, to + c * size, load<T>(rest), p.head_dim - c);
    }
  }

  /* Write sums (groups of columns, keys, columns), times `scale`, as rows. */
  void write_columns(const Real *sums, const Groups<T> &columns, int64_t width, int64_t count, Real scale, char *to, int64_t stride) const {
    for (int64_t c = 0; c < columns.vectors; c++) {
      const int64_t group = columns.of(c), left = width - c * T::lanes;
      const Real *from = sums + columns.first(group) * plan.block_keys + (c * T::lanes - columns.first(group));
      for (int64_t k = 0; k < count; k++) {
        const Vector numbers = load<T>(from + k * columns.width(group)) * scale;
        char *at = to + k * stride + c * T::lanes * size;
        if (left >= T::lanes)
          store_elements(E{}, at, numbers);
        else
          store_some(E{}, at, numbers, left);
      }
    }
  }

  /* Add a group's changes to the sum of the mask's block, whose broadcast dimensions have one place. */
  void add_changes(const Tile &strip, const Part<Real> &part) {
    const bool many_rows = g.mask_strides[2] != 0, many_keys = g.mask_strides[3] != 0;
    for (int64_t k = 0; k < part.keys; k++) {
      Real *to = memory.mask_sum + (many_keys ? (strip.first + k) % plan.block_keys : 0) * plan.block_rows;
      const Real *from = part.changes + k * part.width;
      for (int64_t i = 0; i < part.rows; i++) to[many_rows ? part.first_row + i : 0] += from[i];
    }
  }

  void write_mask(int64_t batch, int64_t head, int64_t row_block, int64_t key_block) const {
    const int64_t first_row = row_block * plan.block_rows, first_key = key_block * plan.block_keys;
    Real *to = (Real *)g.mask + batch * g.mask_strides[0] + head * g.mask_strides[1];
    for (int64_t i = 0; i < (g.mask_strides[2] ? plan.block_rows : 1) && first_row + i < p.query_length; i++)
      for (int64_t k = 0; k < (g.mask_strides[3] ? plan.block_keys : 1) && first_key + k < p.key_length; k++)
        to[(first_row + i) * g.mask_strides[2] + (first_key + k) * g.mask_strides[3]] = memory.mask_sum[k * plan.block_rows + i];
  }

  char *place(const void *tensor, const int64_t (&strides)[3], int64_t head, int64_t row) const {
    return (char *)tensor + size * (task.batch * strides[0] + head * strides[1] + row * strides[2]);
  }
  char *of_query_row(int64_t row) const { return place(g.query, g.query_strides, task.head, row); }
};

}  // namespace
