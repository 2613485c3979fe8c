/* How a problem is cut into tasks. Which rows are computed together may depend on the threads, for no row's result
   depends on it; how the keys are split depends on the problem and its level alone. */
#pragma once
#include "problem.h"

/* A unit is a run of query heads that share key and value; its rows are those of all its heads, one head after the
   other. A task is a block of rows of one unit against one chunk of the keys. */
struct Plan {
  const mlbackends_attention_problem *problem;
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
  int64_t (*scratch_bytes)(const Plan *);
  void (*run)(const Plan *, int64_t task, char *scratch);
};

/* A task whose keys are split keeps, for each row, its maximum, its sum and its unfinished output. */
inline int64_t partial_stride(const mlbackends_attention_problem &problem) { return problem.value_dim + 2; }

/* On a clock that only goes forward. */
int64_t microseconds();
