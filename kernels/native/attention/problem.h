/* The C ABI of the attention library: a problem, and the functions that compute it. */
#pragma once
#include <stdint.h>

#define MLBACKENDS_ATTENTION_ABI 10

#ifdef __cplusplus
extern "C" {
#endif

enum mlbackends_attention_element {
  MLBACKENDS_ATTENTION_NONE = 0, /* no mask */
  MLBACKENDS_ATTENTION_FLOAT32 = 1,
  MLBACKENDS_ATTENTION_FLOAT16 = 2,
  MLBACKENDS_ATTENTION_BFLOAT16 = 3,
  MLBACKENDS_ATTENTION_FLOAT64 = 4,
  MLBACKENDS_ATTENTION_BOOL = 5, /* a mask only: one byte, 0 hides a key */
};

/* Shapes: query (batch, heads, query_length, head_dim), key (batch, heads / key_group, key_length, head_dim),
   value (batch, heads / value_group, key_length, value_dim), mask (batch, heads, query_length, key_length),
   output (batch, heads, query_length, value_dim). Strides are in elements and cover all dimensions but the
   last, which is contiguous; a mask also has a stride for its last dimension. Broadcast dimensions have a
   stride of 0. */
typedef struct mlbackends_attention_problem {
  const void *query, *key, *value, *mask;
  void *output;
  void *logsumexp; /* (batch, heads, query_length), contiguous; float64 for float64, otherwise float32; or null */
  const void *parallel; /* GOMP_parallel of the OpenMP runtime whose threads help; null for the library's own */
  const void *sinks;  /* (heads): one more score of each row, without a value; or null */
  const void *slopes; /* (heads): a score is lowered by its head's slope for each key between its own and the
                         row's position; or null. Sinks and slopes have the element type of `logsumexp` */
  /* Of sequences of several lengths, where each begins, and where the last one ends: (batch + 1); or null. They
     are packed: query, output and logsumexp have one batch with the rows of all, and so have key and value, if
     they have no pages; query_length and key_length are then the longest. */
  const int64_t *query_offsets, *key_offsets;
  const int32_t *pages; /* (batch, pages_stride): the batches of key and value that hold the keys of a sequence,
                           page_size in each; or null. There are key_offsets then */
  int64_t pages_stride, page_size;
  void *workspace; /* of mlbackends_attention_workspace bytes */
  int64_t batch, heads, query_length, key_length, head_dim, value_dim;
  int64_t key_group, value_group; /* number of query heads that share one head */
  int64_t query_strides[3], key_strides[3], value_strides[3], output_strides[3], mask_strides[4];
  int64_t window[2]; /* how many keys to the left and right of its own position a row sees, 2^60 at most */
  double scale;
  double softcap;      /* scaled scores become softcap tanh(score / softcap) before slopes and masks; 0 for none */
  double dropout;      /* the probability that a weight is dropped: 0 for none, 1 for all */
  uint64_t seed;       /* which weights are dropped; see kernels/tensors/dropout.py */
  int64_t first_batch; /* for dropout: the number of batches before those of this call */
  int32_t lower_right; /* whether the position of row i is i + key_length - query_length, and not i */
  int32_t element, mask_element, level, threads;
} mlbackends_attention_problem;

/* The gradients of one call, given the gradient of its output (of_output). The output and log-sum-exp in
   `forward` are read; its workspace has mlbackends_attention_gradients_workspace bytes. Gradients have the
   shapes of their tensors, separate strides, and a contiguous last dimension. Those of key and value are
   summed over the query heads that share a head. The gradient of a float mask is float64 for float64,
   otherwise float32; it is null if not wanted, and summed over dimensions with a stride of 0. */
typedef struct mlbackends_attention_gradients {
  mlbackends_attention_problem forward;
  const void *of_output;
  void *query, *key, *value, *mask;
  void *refined; /* the result of `refine`; null if the log-sum-exp is precise enough */
  int64_t of_output_strides[3], query_strides[3], key_strides[3], value_strides[3], mask_strides[4];
} mlbackends_attention_gradients;

/* MLBACKENDS_ATTENTION_ABI of the library. */
int32_t mlbackends_attention_abi(void);

/* Return the name of a compiled instruction set by its number, from 0 for the lowest; null after the last. */
const char *mlbackends_attention_level_name(int32_t level);

/* Return the name of an instruction set that this CPU and system can run but was not compiled; null after the
   last. */
const char *mlbackends_attention_missing_level(int32_t number);

/* Return whether this CPU and system can run a level. */
int32_t mlbackends_attention_level_runs(int32_t level);

/* Return the bytes of workspace that the problem needs. */
int64_t mlbackends_attention_workspace(const mlbackends_attention_problem *problem);

/* Return the most bytes of memory that one thread allocates for the problem. */
int64_t mlbackends_attention_scratch(const mlbackends_attention_problem *problem);

/* Compute tasks from `first` on for about this number of milliseconds (0: to the end), and return the first
   task that was not computed; -1 when all were, -2 without memory, -3 without a needed workspace. Call it
   again with its return value; the caller can handle signals in between. The result does not depend on the
   threads or on interruptions. */
int64_t mlbackends_attention_forward(const mlbackends_attention_problem *problem, int64_t first,
                                     int64_t milliseconds);

/* The same for gradients. `backward` and `refine` are called again with their return value, first with 0.

   Weights computed from a log-sum-exp are only as precise as its last place, which is coarse for large
   scores. If it covers no keys but these, `refine` computes from the scores of each row: their maximum, the
   factor that makes the weights sum to 1 (0 elsewhere), and delta from such weights. These are three arrays
   of (batch, heads, query_length) in `refined`, float64 for float64, otherwise float32. */
int64_t mlbackends_attention_gradients_workspace(const mlbackends_attention_gradients *problem);
int64_t mlbackends_attention_gradients_scratch(const mlbackends_attention_gradients *problem);
int64_t mlbackends_attention_refine(const mlbackends_attention_gradients *problem, int64_t from,
                                    int64_t milliseconds);
int64_t mlbackends_attention_backward(const mlbackends_attention_gradients *problem, int64_t from,
                                      int64_t milliseconds);

#ifdef __cplusplus
}
#endif
