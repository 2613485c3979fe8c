/* How a problem is cut into tasks. Which rows are computed together may depend on the threads, for no row's
   result depends on it; how the keys are split depends on the problem and its level alone. */
#pragma once
#include "problem.h"

typedef mlbackends_attention_problem Problem;
typedef mlbackends_attention_gradients GradientsProblem;

/* A number of [0, most]. */
inline int64_t clamp(int64_t number, int64_t most) { return number < 0 ? 0 : number < most ? number : most; }

/* The keys [first, end). */
struct Range {
  int64_t first, end;
};

/* One sequence: a batch, or a part of what is packed. Keys in pages are counted from 0. */
struct Sequence {
  int64_t rows, keys, first_row, first_key;
};

inline Sequence sequence_of(const Problem &p, int64_t batch) {
  Sequence own = {p.query_length, p.key_length, 0, 0};
  if (p.query_offsets) {
    own.first_row = p.query_offsets[batch];
    own.rows = p.query_offsets[batch + 1] - own.first_row;
  }
  if (p.key_offsets) {
    own.first_key = p.pages ? 0 : p.key_offsets[batch];
    own.keys = p.key_offsets[batch + 1] - p.key_offsets[batch];
  }
  return own;
}

/* How far the position of a row is behind its place. */
inline int64_t diagonal_of(const Problem &p, const Sequence &own) {
  return p.lower_right ? own.keys - own.rows : 0;
}

/* The keys in the window of a row. */
inline Range window_of(const Problem &p, const Sequence &own, int64_t row) {
  const int64_t position = row + diagonal_of(p, own);
  return {clamp(position - p.window[0], own.keys), clamp(position + p.window[1] + 1, own.keys)};
}

/* The keys in any row's window; the first is a multiple of 32, so that steps of keys begin alike. */
inline Range keys_in_windows(const Problem &p, const Sequence &own) {
  return {window_of(p, own, 0).first / 32 * 32, window_of(p, own, own.rows - 1).end};
}

/* A unit is a run of query heads that share key and value; its rows are those of all its heads, one head
   after the other. A task is a block of rows of one unit against one chunk of the keys. */
struct Partition {
  const Problem *problem;
  int64_t heads_together, units_per_batch, units;
  int64_t rows, block_rows, blocks;
  int64_t chunk, splits;
  int64_t tasks;
  bool few_rows; /* lanes hold elements of a row, and not rows */
};

struct GradientsLevel;

/* What the compilation for one instruction set offers. */
struct Level {
  const char *name;
  int64_t vector_bytes;
  const GradientsLevel *gradients;
  int64_t (*scratch_bytes)(const Partition *);
  void (*run)(const Partition *, int64_t task, char *scratch);
};

/* A task whose keys are split keeps, for each row, its maximum, its sum and its unfinished output. */
inline int64_t partial_stride(const Problem &problem) { return problem.value_dim + 2; }

/* On a clock that only goes forward. */
int64_t microseconds();

/* How the computation of gradients is cut into tasks.

   In one pass, a task is a unit: the blocks of its keys follow each other, each adds its share to the
   gradient of the query, which is summed in a place as large as that of the unit. In two passes the tasks are
   blocks of keys, then blocks of rows: each computes the weights again (seven products in place of five), and
   needs no such place. Both ways add the same numbers in the same order, so the way may depend on the threads
   and the lengths, and the result does not. */

struct GradientsPartition {
  const GradientsProblem *problem;
  int64_t heads_together, units_per_batch, units;
  int64_t block_rows, row_blocks, block_keys, key_blocks;
  bool one_pass, sums_apart; /* sums_apart: elements of the query are too narrow to sum in */
  int64_t sums_bytes;        /* of one unit, where apart */
  int64_t key_tasks, row_tasks, mask_tasks, tasks; /* of two passes and of the mask */
  int64_t refine_tasks;                            /* where a call refines, and nothing else */
  /* What tasks of the mask share out, and what each of them sums: 1 where it is the other's. */
  int64_t mask_batches, mask_heads, mask_row_blocks, mask_key_blocks;
};

enum GradientsKind { START_UNIT, KEYS_OF_UNIT, END_UNIT, KEYS, ROWS, MASK, REFINE };

struct GradientsTask {
  GradientsKind kind;
  int64_t unit, block; /* of MASK: its number, in `unit` */
  char *sums;          /* where a unit's are apart */
};

/* What the compilation for one instruction set offers. */
struct GradientsLevel {
  int64_t (*scratch_bytes)(const GradientsPartition *);
  void (*run)(const GradientsPartition *, const GradientsTask *, char *scratch);
};
