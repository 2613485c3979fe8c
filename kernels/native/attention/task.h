/* What both ways of computing a task begin and end with. */
#pragma once
#include "exponential.h"
#include "elements.h"
#include "partition.h"

namespace {

/* Rows [first_row, last_row) of a unit against the keys [first_key, last_key). */
struct Task {
  const Problem *p;
  int64_t batch, head, first_row, last_row, first_key, last_key;
  void *partial; /* where a split task leaves its rows, (rows, 2 + value_dim); null for a whole one */

  bool many_heads; /* whether the unit has rows of more than one; dividing for each row would take long */

  Sequence own;

  int64_t head_of(int64_t row) const { return many_heads ? head + row / own.rows : head; }
  int64_t place_of(int64_t row) const { return many_heads ? row % own.rows : row; }

  int64_t position(int64_t row) const { return place_of(row) + diagonal_of(*p, own); }
  Range seen(int64_t row) const { return window_of(*p, own, place_of(row)); }

  /* How many keys from this one on have the same distance in memory. */
  int64_t even_keys(int64_t key) const {
    return p->pages ? p->page_size - key % p->page_size : (int64_t)1 << 62;
  }
};

/* The keys that any row of some sees, and those that all of them see. */
struct Span {
  Range any, all;
};

/* Of rows [first, end): the position grows with the row, until the next head begins. */
static inline Span span_of(const Task &task, int64_t first, int64_t end) {
  const Problem &p = *task.p;
  const bool is_one_head = task.head_of(first) == task.head_of(end - 1);
  const Range least = window_of(p, task.own, is_one_head ? task.place_of(first) : 0),
              most = window_of(p, task.own, is_one_head ? task.place_of(end - 1) : task.own.rows - 1);
  return {{least.first, most.end}, {most.first, least.end}};
}

static inline int64_t bytes_of(int element) {
  return element == MLBACKENDS_ATTENTION_FLOAT32 ? 4 : element == MLBACKENDS_ATTENTION_FLOAT64 ? 8 : 2;
}

static inline const char *query_row(const Task &task, int64_t row) {
  const Problem &p = *task.p;
  return (const char *)p.query +
         bytes_of(p.element) * (task.batch * p.query_strides[0] + task.head_of(row) * p.query_strides[1] +
                                (task.own.first_row + task.place_of(row)) * p.query_strides[2]);
}

/* The row of a key in key or value. */
static inline const char *row_of_key(const Task &task, const void *tensor, const int64_t *strides,
                                     int64_t group, int64_t key) {
  const Problem &p = *task.p;
  int64_t batch = task.batch, place = task.own.first_key + key;
  if (p.pages) batch = p.pages[batch * p.pages_stride + key / p.page_size], place = key % p.page_size;
  return (const char *)tensor +
         bytes_of(p.element) * (batch * strides[0] + task.head / group * strides[1] + place * strides[2]);
}

static inline const char *key_row(const Task &task, int64_t key) {
  return row_of_key(task, task.p->key, task.p->key_strides, task.p->key_group, key);
}

static inline const char *value_row(const Task &task, int64_t key) {
  return row_of_key(task, task.p->value, task.p->value_strides, task.p->value_group, key);
}

static inline char *output_row(const Task &task, int64_t row) {
  const Problem &p = *task.p;
  return (char *)p.output +
         bytes_of(p.element) * (task.batch * p.output_strides[0] + task.head_of(row) * p.output_strides[1] +
                                (task.own.first_row + task.place_of(row)) * p.output_strides[2]);
}

static inline const char *mask_row(const Task &task, int64_t row, int64_t bytes) {
  const Problem &p = *task.p;
  return (const char *)p.mask +
         bytes * (task.batch * p.mask_strides[0] + task.head_of(row) * p.mask_strides[1] +
                  task.place_of(row) * p.mask_strides[2]);
}

/* How scores become powers of two: with an additive mask, a cap or slopes they are scaled before that. */
struct Scaling {
  double scale;   /* what the scores are multiplied by before they are kept, if they are not bent */
  double natural; /* what a kept score is multiplied by to be the exponent of e */
  double bending; /* what a score is multiplied by before its cap and slope */
  bool negated, ignored, bent; /* bent: by a cap or slopes */

  explicit Scaling(const Problem &p) {
    bent = p.softcap > 0 || p.slopes;
    const bool added = bent || (p.mask_element && p.mask_element != MLBACKENDS_ATTENTION_BOOL);
    negated = p.scale < 0;
    ignored = p.scale == 0;
    const double size = ignored ? 1 : negated ? -p.scale : p.scale;
    scale = added && !bent ? size : 1;
    natural = added ? 1 : size;
    bending = p.softcap > 0 ? size / p.softcap : size;
  }
  double power() const { return natural * 1.4426950408889634; }
};

/* What the sums of the weights that dropout keeps are multiplied by. */
static inline double dropout_scale(const Problem &p) { return p.dropout < 1 ? 1 / (1 - p.dropout) : 0; }

INLINED int64_t mask_bytes(int element) {
  switch (element) {
    case MLBACKENDS_ATTENTION_BOOL: return 1;
    case MLBACKENDS_ATTENTION_FLOAT32: return 4;
    case MLBACKENDS_ATTENTION_FLOAT64: return 8;
    default: return 2;
  }
}

/* Whether a mask shows a row one of `keys` keys: true, or above minus infinity. */
template <class M>
static bool shows(const char *at, int64_t stride, int64_t keys) {
  for (int64_t k = 0; k < keys; k++) {
    typename M::Stored stored;
    memcpy(&stored, at + k * stride, sizeof stored);
    if (widened(M{}, stored) > -(typename M::Inner::Real)__builtin_huge_val()) return true;
  }
  return false;
}

static bool sees_a_key(const Task &task, int64_t row) {
  const Problem &p = *task.p;
  const Range seen = task.seen(row);
  const int64_t keys = seen.end - seen.first, bytes = mask_bytes(p.mask_element),
                stride = p.mask_strides[3] * bytes;
  if (!p.mask_element || !keys) return keys > 0;
  const char *at = mask_row(task, row, bytes) + seen.first * stride;
  if (p.mask_element == MLBACKENDS_ATTENTION_BOOL) return shows<Seen<Single>>(at, stride, keys);
  if (p.mask_element == MLBACKENDS_ATTENTION_FLOAT64) return shows<Wide>(at, stride, keys);
  if (p.mask_element == MLBACKENDS_ATTENTION_FLOAT32) return shows<Float>(at, stride, keys);
  if (p.mask_element == MLBACKENDS_ATTENTION_FLOAT16) return shows<Half>(at, stride, keys);
  return shows<Brain>(at, stride, keys);
}

/* The sum of a row's weights: NaN where it sees keys, and the score of each overflowed to minus infinity. */
static double whole_sum(const Task &task, int64_t row, double sum) {
  return sum == 0 && sees_a_key(task, row) ? __builtin_nan("") : sum;
}

/* The sink or slope of a head. */
template <class T>
INLINED typename T::Real of_head(const void *numbers, int64_t head) {
  return ((const typename T::Real *)numbers)[head];
}

/* Write the log-sum-exp of a row, 0 where it saw no key and has no sink, and return what its numbers are
   multiplied by. */
template <class T>
static double end_row(const Task &task, int64_t row, double largest, double sum, double natural) {
  const Problem &p = *task.p;
  const double infinity = __builtin_huge_val(), kept = (double)(typename T::Real)dropout_scale(p),
               sink = p.sinks ? of_head<T>(p.sinks, task.head_of(row)) : -infinity;
  double share = 1, from = largest * natural;
  if (sink == -infinity) {
    sum = whole_sum(task, row, sum);
    if (sum == 0) from = 0;
  } else {
    const double most = sum == 0 || sink > from ? sink : from;
    share = sum == 0 ? 0 : exponential(from - most);
    sum = sum * share + exponential(sink - most);
    from = most;
  }
  if (p.logsumexp) {
    const int64_t batch = p.query_offsets ? 0 : task.batch,
                  rows = p.query_offsets ? p.query_offsets[p.batch] : p.query_length,
                  head = batch * p.heads + task.head_of(row),
                  place = head * rows + task.own.first_row + task.place_of(row);
    const double total = sum == 0 ? 0 : from + logarithm(sum);
    if (sizeof(typename T::Real) == 8)
      ((double *)p.logsumexp)[place] = total;
    else
      ((float *)p.logsumexp)[place] = (float)total;
  }
  return sum == 0 || kept == 0 ? 0 : kept * share / sum;
}

/* Write a finished row: `numbers` (value_dim) unfinished, of the sum and maximum given. */
template <class E>
static void finish_row(const Task &task, int64_t row, const typename E::Inner::Real *numbers, double largest,
                       double sum, double natural) {
  typedef typename E::Inner T;
  const Problem &p = *task.p;
  const typename T::Real inverse = (typename T::Real)end_row<T>(task, row, largest, sum, natural);
  char *at = output_row(task, row);
  int64_t c = 0;
  for (; c + T::lanes <= p.value_dim; c += T::lanes)
    store_elements(E{}, at + c * (int64_t)sizeof(typename E::Stored), load<T>(numbers + c) * inverse);
  if (c < p.value_dim) {
    const typename T::Vector rest = load_rest<T>(numbers + c, p.value_dim - c);
    store_some(E{}, at + c * (int64_t)sizeof(typename E::Stored), rest * inverse, p.value_dim - c);
  }
}

/* Finish a row, or leave it for the last task of its rows. */
template <class E>
static void finish_row_or_store(const Task &task, int64_t row, const typename E::Inner::Real *numbers,
                                double largest, double sum, double natural) {
  typedef typename E::Inner::Real Real;
  if (!task.partial) return finish_row<E>(task, row, numbers, largest, sum, natural);
  const int64_t width = task.p->value_dim;
  Real *at = (Real *)task.partial + (row - task.first_row) * (width + 2);
  at[0] = (Real)largest;
  at[1] = (Real)sum;
  memcpy(at + 2, numbers, (size_t)width * sizeof *at);
}

/* Join what the tasks of all chunks left, in the order of the chunks. `sum` is scratch for one row. */
template <class E>
static void join(const Task &task, const void *partials, int64_t splits, int64_t stride,
                 typename E::Inner::Real *joined) {
  typedef typename E::Inner T;
  typedef typename T::Real Real;
  const Scaling scaling(*task.p);
  const int64_t width = task.p->value_dim;
  for (int64_t row = task.first_row; row < task.last_row; row++) {
    const Real *first = (const Real *)partials + (row - task.first_row) * (width + 2);
    Real largest = -(Real)__builtin_huge_val(), sum = 0;
    for (int64_t s = 0; s < splits; s++) largest = first[s * stride] > largest ? first[s * stride] : largest;
    const Real from = largest == -(Real)__builtin_huge_val() ? 0 : largest;
    memset(joined, 0, (size_t)width * sizeof *joined);
    for (int64_t s = 0; s < splits; s++) {
      const Real *at = first + s * stride;
      Real lanes[T::lanes];
      store<T>(lanes, power_of_two<5>(splat<T>((at[0] - from) * (Real)scaling.power())));
      sum += at[1] * lanes[0];
      for (int64_t c = 0; c < width; c++) joined[c] += at[2 + c] * lanes[0];
    }
    finish_row<E>(task, row, joined, largest, sum, scaling.natural);
  }
}

} // namespace
