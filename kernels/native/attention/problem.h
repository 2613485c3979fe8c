/* The C ABI of the attention library: one problem, and the calls that compute it. */
#pragma once
#include <stdint.h>

#define MLBACKENDS_ATTENTION_ABI 6

#ifdef __cplusplus
extern "C" {
#endif

enum mlbackends_attention_element {
  MLBACKENDS_ATTENTION_NONE = 0, /* of a mask: there is none */
  MLBACKENDS_ATTENTION_FLOAT32 = 1,
  MLBACKENDS_ATTENTION_FLOAT16 = 2,
  MLBACKENDS_ATTENTION_BFLOAT16 = 3,
  MLBACKENDS_ATTENTION_FLOAT64 = 4,
  MLBACKENDS_ATTENTION_BOOL = 5, /* of a mask: one byte, 0 where a key is not seen */
};

/* Shapes: query (batch, heads, query_length, head_dim), key (batch, heads / key_group, key_length, head_dim),
   value (batch, heads / value_group, key_length, value_dim), mask (batch, heads, query_length, key_length),
   output (batch, heads, query_length, value_dim). Strides are in elements, of all dimensions but the last,
   which is contiguous; a mask has a stride of the last one too, and 0 wherever it is broadcast. A tensor
   whose batch or heads are broadcast has a stride of 0 there. */
typedef struct mlbackends_attention_problem {
  const void *query, *key, *value, *mask;
  void *output;
  void *logsumexp; /* (batch, heads, query_length), contiguous; float64 for float64, else float32; or null */
  void *workspace; /* of the size that mlbackends_attention_workspace gives */
  int64_t batch, heads, query_length, key_length, head_dim, value_dim;
  int64_t key_group, value_group; /* heads of the query that share one of key and value */
  int64_t query_strides[3], key_strides[3], value_strides[3], output_strides[3], mask_strides[4];
  int64_t diagonal; /* where causal, row i sees the keys up to i + diagonal */
  double scale;
  double dropout;      /* the probability that a weight is dropped: 0 for none, 1 for all */
  uint64_t seed;       /* says which are; see kernels/tensors/dropout.py */
  int64_t first_batch; /* for what is dropped: how many batches there are before those of this call */
  int32_t element, mask_element, causal, level, threads;
} mlbackends_attention_problem;

/* The gradients of one call, given that of its output. Of `forward`, the output and the log-sum-exp are what
   the call gave, and are read; the workspace is of the size that mlbackends_attention_gradients_workspace
   gives. Shapes and strides are those of the tensors that the gradients are of, with strides of their own;
   the last dimension is contiguous. That of key and of value is summed over the heads that share one. That of
   the mask, which has numbers, is float64 for float64, else float32, null where none is wanted, and is summed
   over each dimension of which it has a stride of 0. */
typedef struct mlbackends_attention_gradients {
  mlbackends_attention_problem forward;
  const void *of_output;
  void *query, *key, *value, *mask;
  void *refined; /* what `refine` found; null where the log-sum-exp is exact enough */
  int64_t of_output_strides[3], query_strides[3], key_strides[3], value_strides[3], mask_strides[4];
} mlbackends_attention_gradients;

/* MLBACKENDS_ATTENTION_ABI of the library. */
int32_t mlbackends_attention_abi(void);

/* Name an instruction set by its number, 0 for the least; null beyond the last one that was compiled. */
const char *mlbackends_attention_level_name(int32_t level);

/* Name an instruction set that this CPU and this system can run and that was not compiled; null beyond the last
   one. */
const char *mlbackends_attention_missing_level(int32_t number);

/* Tell whether this CPU and this system can run a level. */
int32_t mlbackends_attention_level_runs(int32_t level);

/* The bytes of workspace that the problem needs; 0 for none. */
int64_t mlbackends_attention_workspace(const mlbackends_attention_problem *problem);

/* The most bytes of memory that one thread takes for the problem while it works. */
int64_t mlbackends_attention_scratch(const mlbackends_attention_problem *problem);

/* Compute tasks from `first` on for about so many milliseconds (0: to the end), and return the first one that
   is not computed; -1 when all are, -2 when memory lacks, -3 when there is no workspace and one is needed.
   Call it again with what it returned, so that its caller can look at signals in between. The result does not
   depend on the threads or on the interruptions. */
int64_t mlbackends_attention_forward(const mlbackends_attention_problem *problem, int64_t first,
                                     int64_t milliseconds);

/* The same for gradients. What `backward` and `refine` return is what they are to be called with again; 0
   begins.

   A log-sum-exp of one number gives weights no better than its own last place, which is coarse where scores
   are large. Where it is of no more keys than these, `refine` computes, from the scores as `backward` will
   see them, their largest, what weights less that must be multiplied by to have the sum of 1 (0 elsewhere),
   and delta from such weights: three arrays of (batch, heads, query_length) in `refined`, float64 for
   float64, else float32. */
int64_t mlbackends_attention_gradients_workspace(const mlbackends_attention_gradients *problem);
int64_t mlbackends_attention_gradients_scratch(const mlbackends_attention_gradients *problem);
int64_t mlbackends_attention_refine(const mlbackends_attention_gradients *problem, int64_t from,
                                    int64_t milliseconds);
int64_t mlbackends_attention_backward(const mlbackends_attention_gradients *problem, int64_t from,
                                      int64_t milliseconds);

#ifdef __cplusplus
}
#endif
