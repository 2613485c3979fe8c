/* Calls of a kind that is known beforehand: what is left to be found is where its tensors lie, and how. */
#pragma once
#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor of DLPack, as dlpack.h lays it out. */
typedef struct mlbackends_dlpack_tensor {
  void *data;
  int32_t device_kind, device_index, rank;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape, *strides;
  uint64_t byte_offset;
} mlbackends_dlpack_tensor;

/* How a tensor lies. `strides`: in its owner's unit, bytes for NumPy, elements for DLPack. `element`: NumPy's descriptor,
   or DLPack's code, bits and lanes. */
typedef struct mlbackends_attention_layout {
  int64_t shape[4], strides[4];
  uint64_t element;
  int64_t rank;
} mlbackends_attention_layout;

/* Whose tensors these are. An object is asked only if `type` is exactly its type, which is the last word of the `header`
   bytes that every Python object begins with. `tell`: `dltensor_from_py_object_no_sync` of DLPack's exchange API; null
   for NumPy, whose arrays have their public fields (PyArrayObject_fields) behind the header. */
typedef struct mlbackends_attention_owner {
  const void *type;
  int64_t header;
  int (*tell)(void *object, mlbackends_dlpack_tensor *told);
} mlbackends_attention_owner;

/* What calls of a kind have in common: element types, widths and options. Lengths, heads, batches and strides may be any.
   `problem`: but for its addresses, the other sizes and the strides. `bytes`, `mask_bytes`: of one element; 0 for no mask.
   The elements are as in a layout; `logsumexp_element` counts where `logsumexp_bytes` is not 0. `lower_right`: the
   diagonal ends in that corner. `grouped`: heads may share keys. `most_at_once`: the operations up to which a call is
   computed without giving the GIL away; -1 for none. */
typedef struct mlbackends_attention_plan {
  mlbackends_attention_problem problem;
  mlbackends_attention_owner owner;
  uint64_t element, mask_element, logsumexp_element;
  int64_t bytes, mask_bytes, logsumexp_bytes;
  int64_t lower_right, grouped, most_at_once;
} mlbackends_attention_plan;

/* `operations`: additions and multiplications. `moved`: the bytes of key and value. Both may be more than fit in 64 bits:
   strides of 0 make tensors of any size. */
typedef struct mlbackends_attention_work {
  double operations, moved;
} mlbackends_attention_work;

typedef struct mlbackends_attention_call {
  mlbackends_attention_problem problem;
  mlbackends_attention_work work;
} mlbackends_attention_call;

/* `work`: that of the forward call. `coarse_rows`: how many rows there are if `refine` is to be called first, else 0. */
typedef struct mlbackends_attention_gradients_call {
  mlbackends_attention_gradients problem;
  mlbackends_attention_work work;
  int64_t coarse_rows;
} mlbackends_attention_gradients_call;

/* What must be known of the Python that runs: behind how many bytes of a `bytes` object its content begins, Py_IncRef, None
   and False. */
typedef struct mlbackends_attention_python {
  int64_t bytes_header;
  void (*take)(void *object);
  void *none, *no;
} mlbackends_attention_python;

/* Tell it, once, before anything below is called. */
void mlbackends_attention_meet(const mlbackends_attention_python *python);

/* What follows is called with the GIL held. `tensors`: query, key, value, mask, output and logsumexp; mask and logsumexp are
   not looked at where the plan has none. */

/* Tell how a tensor on the CPU lies. Returns its address; null where it is another's, lies elsewhere or has more than
   four dimensions. An owner may have set a Python exception then. */
const void *mlbackends_attention_layout_of(const mlbackends_attention_owner *owner, void *object,
                                           mlbackends_attention_layout *layout);

/* Write the problem of these tensors. Returns 0; 1 where they are of another kind, lie otherwise than this can compute in
   place, are empty or do not go together, or the output does not lie as it should: (..., H, L, Ev) or, where the query
   does, (..., L, H, Ev); -1 where an owner has set an exception. */
int64_t mlbackends_attention_placed(const mlbackends_attention_plan *plan, void *const *tensors,
                                    mlbackends_attention_call *call);

/* The same for gradients. `tensors`: also, after those, the gradient of the output, and room for those of query, key and
   value, each of its tensor's shape. The plan has a logsumexp; it and the output are what the call gave, of which the
   latter may lie anyhow. 1 also where a gradient would have to be summed over what was broadcast. `fine`: the largest
   logarithm that needs no refinement. */
int64_t mlbackends_attention_gradients_placed(const mlbackends_attention_plan *plan, void *const *tensors, double fine,
                                              mlbackends_attention_gradients_call *call);

/* Compute it: a function of CPython's convention METH_FASTCALL. `plan`: a bytes object that holds one. Returns a new
   reference to the output; to False where it was left, for it is long, needs a workspace or memory lacks; to None where
   `placed` gives 1; null where an owner has set an exception. */
void *mlbackends_attention_planned(void *plan, void *const *tensors, int64_t count);

#ifdef __cplusplus
}
#endif
