/* Calls of a planned problem. Python's objects are only read, so nothing of Python's library is needed.

   Sources: numpy/ndarraytypes.h, PyArrayObject_fields, which every extension is compiled against; dlpack.h 1.3,
   DLPackExchangeAPI. */
#include "planned.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

struct ArrayFields {
  void *data;
  int rank;
  const int64_t *shape, *strides;
  const void *owner, *descriptor;
};

mlbackends_attention_python python;

constexpr int most_dimensions = 4, on_cpu = 1; /* DLPack's kDLCPU */

bool is_owners(const mlbackends_attention_owner &owner, const void *object) {
  return ((const void *const *)((const char *)object + owner.header))[-1] == owner.type;
}

/* A tensor as its owner tells it, by either way. */
struct Told {
  const void *data;
  int64_t rank;
  const int64_t *shape, *strides;
  uint64_t element;
};

constexpr int fits = 0, differs = 1, refused = -1; /* refused: and the owner has set an exception */

int told(const mlbackends_attention_owner &owner, void *object, Told *found) {
  if (!is_owners(owner, object)) return differs;
  if (!owner.tell) {
    const ArrayFields &array = *(const ArrayFields *)((const char *)object + owner.header);
    *found = {array.data, array.rank, array.shape, array.strides, (uint64_t)array.descriptor};
    return found->rank <= most_dimensions ? fits : differs;
  }
  mlbackends_dlpack_tensor tensor;
  if (owner.tell(object, &tensor)) return refused;
  const uint64_t element = (uint64_t)tensor.code << 32 | (uint64_t)tensor.bits << 16 | tensor.lanes;
  *found = {(const char *)tensor.data + tensor.byte_offset, tensor.rank, tensor.shape, tensor.strides, element};
  const bool there = tensor.device_kind == on_cpu && tensor.data && (tensor.strides || !tensor.rank);
  return there && found->rank <= most_dimensions ? fits : differs;
}

int lies(const mlbackends_attention_owner &owner, const mlbackends_attention_layout &layout, int64_t alignment, void *object,
         const void **data) {
  Told seen;
  if (const int state = told(owner, object, &seen)) return state;
  if (seen.rank != layout.rank || seen.element != layout.element) return differs;
  for (int64_t i = 0; i < seen.rank; i++)
    if (seen.shape[i] != layout.shape[i] || seen.strides[i] != layout.strides[i]) return differs;
  *data = seen.data;
  return (uint64_t)seen.data % (uint64_t)alignment ? differs : fits;
}

}  // namespace

EXPORTED void mlbackends_attention_meet(const mlbackends_attention_python *met) { python = *met; }

EXPORTED const void *mlbackends_attention_layout_of(const mlbackends_attention_owner *owner, void *object,
                                                    mlbackends_attention_layout *layout) {
  Told seen;
  if (told(*owner, object, &seen)) return nullptr;
  *layout = {{}, {}, seen.element, seen.rank};
  for (int64_t i = 0; i < seen.rank; i++) {
    layout->shape[i] = seen.shape[i];
    layout->strides[i] = seen.strides[i];
  }
  return seen.data;
}

EXPORTED int64_t mlbackends_attention_placed(const mlbackends_attention_plan *plan, void *const *items,
                                             mlbackends_attention_problem *problem) {
  const mlbackends_attention_owner &owner = plan->owner;
  const void *written;
  *problem = plan->problem;
  int state = lies(owner, plan->query, plan->alignment, items[0], &problem->query);
  if (!state) state = lies(owner, plan->key, plan->alignment, items[1], &problem->key);
  if (!state) state = lies(owner, plan->value, plan->alignment, items[2], &problem->value);
  if (!state && plan->mask_alignment) state = lies(owner, plan->mask, plan->mask_alignment, items[3], &problem->mask);
  if (!state) state = lies(owner, plan->output, plan->alignment, items[4], &written);
  if (state) return state;
  problem->output = (void *)written;
  return 0;
}

EXPORTED void *mlbackends_attention_planned(void *self, void *const *tensors, int64_t count) {
  const mlbackends_attention_plan &plan = *(const mlbackends_attention_plan *)((const char *)self + python.bytes_header);
  mlbackends_attention_problem problem;
  void *result = python.none;
  const int64_t state = count == 5 ? mlbackends_attention_placed(&plan, tensors, &problem) : differs;
  if (state == refused) return nullptr;
  if (state == fits && mlbackends_attention_forward(&problem, 0, 0) == -1) result = tensors[4];
  python.take(result);
  return result;
}
