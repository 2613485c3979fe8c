/* A problem whose layout is known beforehand: what a call like it needs is a look at the layout and five addresses. */
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

/* `alignment`: the bytes that an address must be a multiple of; of the mask, 0 for none. */
typedef struct mlbackends_attention_plan {
  mlbackends_attention_problem problem; /* but for its addresses */
  mlbackends_attention_owner owner;
  mlbackends_attention_layout query, key, value, output, mask;
  int64_t alignment, mask_alignment;
} mlbackends_attention_plan;

/* What must be known of the Python that runs: behind how many bytes of a `bytes` object its content begins, Py_IncRef, and
   None. */
typedef struct mlbackends_attention_python {
  int64_t bytes_header;
  void (*take)(void *object);
  void *none;
} mlbackends_attention_python;

/* Tell it, once, before anything below is called. */
void mlbackends_attention_meet(const mlbackends_attention_python *python);

/* What follows is called with the GIL held. `tensors`: query, key, value, mask and output; the mask is not looked at where
   the plan has none. */

/* Tell how a tensor on the CPU lies. Returns its address; null where it is another's, lies elsewhere or has more than
   four dimensions. An owner may have set a Python exception then. */
const void *mlbackends_attention_layout_of(const mlbackends_attention_owner *owner, void *object,
                                           mlbackends_attention_layout *layout);

/* Write the problem with these tensors' addresses. Returns 0; 1 where one of them lies otherwise than planned; -1 where an
   owner has set an exception. */
int64_t mlbackends_attention_placed(const mlbackends_attention_plan *plan, void *const *tensors,
                                    mlbackends_attention_problem *problem);

/* Compute it, where no workspace is needed: a function of CPython's convention METH_FASTCALL. `plan`: a bytes object that
   holds one. Returns a new reference to the output, or to None where a tensor lies otherwise or memory lacks; null where
   an owner has set an exception. */
void *mlbackends_attention_planned(void *plan, void *const *tensors, int64_t count);

#ifdef __cplusplus
}
#endif
