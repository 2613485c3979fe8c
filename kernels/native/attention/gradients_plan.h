/* How the computation of gradients is cut into tasks.

   In one pass, a task is a unit: the blocks of its keys follow each other, each adds its share to the gradient of the
   query, which is summed in a place as large as that of the unit. In two passes the tasks are blocks of keys, then blocks
   of rows: each computes the weights again (seven products in place of five), and needs no such place. Both ways add the
   same numbers in the same order, so the way may depend on the threads and the lengths, and the result does not. */
#pragma once
#include "problem.h"

/* A unit is a run of query heads that share key and value. */
struct GradientsPlan {
  const mlbackends_attention_gradients *problem;
  int64_t heads_together, units_per_batch, units;
  int64_t block_rows, row_blocks, block_keys, key_blocks;
  bool one_pass, sums_apart; /* sums_apart: elements of the query are too narrow to sum in */
  int64_t sums_bytes;        /* of one unit, where apart */
  int64_t key_tasks, row_tasks, mask_tasks, tasks; /* of two passes and of the mask */
  int64_t refine_tasks;                            /* where that is what is asked for, and nothing else */
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
  int64_t (*scratch_bytes)(const GradientsPlan *);
  void (*run)(const GradientsPlan *, const GradientsTask *, char *scratch);
};
