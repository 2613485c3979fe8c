/* Calls of a planned problem. Python's objects are only read, so nothing of Python's library is needed.

   Sources: numpy/ndarraytypes.h, PyArrayObject_fields, which every extension is compiled against; dlpack.h 1.3,
   DLPackExchangeAPI. */
#include "planned.h"

#include <string.h>

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

/* Sizes, and strides in elements; what a tensor lacks of four dimensions stands in front, of size 1. */
struct View {
  const void *data;
  int64_t rank, size[most_dimensions], stride[most_dimensions];
};

/* See a tensor of elements that lie where whole ones may. */
int see(const mlbackends_attention_owner &owner, uint64_t element, int64_t bytes, void *object, View *view) {
  Told seen;
  if (const int state = told(owner, object, &seen)) return state;
  if (seen.element != element || (uint64_t)seen.data % (uint64_t)bytes) return differs;
  const int64_t missing = most_dimensions - seen.rank, unit = owner.tell ? 1 : bytes;
  *view = {seen.data, seen.rank, {1, 1, 1, 1}, {}};
  for (int64_t i = 0; i < seen.rank; i++) {
    if (seen.strides[i] % unit) return differs;
    view->size[missing + i] = seen.shape[i];
    view->stride[missing + i] = seen.strides[i] / unit;
  }
  return fits;
}

/* As `see`, of a tensor of rows whose elements follow each other. */
int see_rows(const mlbackends_attention_plan &plan, void *object, View *view) {
  const int state = see(plan.owner, plan.element, plan.bytes, object, view);
  return state ? state : view->rank < 2 || view->stride[3] != 1 ? differs : fits;
}

/* The size that three dimensions are broadcast to, 0 for none. */
int64_t common(int64_t a, int64_t b, int64_t c) {
  const int64_t size = a != 1 ? a : b != 1 ? b : c;
  return (a == size || a == 1) && (b == size || b == 1) && (c == size || c == 1) ? size : 0;
}

/* Where a dimension is broadcast, or there is but one, it has no stride. */
void write_strides(const View &view, int64_t *strides, int64_t count) {
  for (int64_t i = 0; i < count; i++) strides[i] = view.size[i] == 1 ? 0 : view.stride[i];
}

/* Write sizes and groups. Returns whether the tensors go together and there is something to compute. */
bool measure(const mlbackends_attention_plan &plan, const View &query, const View &key, const View &value,
             mlbackends_attention_problem *p) {
  if (plan.grouped && (query.rank < 3 || key.rank < 3 || value.rank < 3)) return false;
  p->batch = common(query.size[0], key.size[0], value.size[0]);
  p->heads = plan.grouped ? query.size[1] : common(query.size[1], key.size[1], value.size[1]);
  p->query_length = query.size[2];
  p->key_length = key.size[2];
  if (p->batch <= 0 || p->heads <= 0 || p->query_length <= 0 || p->key_length <= 0) return false;
  if (key.size[1] <= 0 || p->heads % key.size[1] || value.size[1] <= 0 || p->heads % value.size[1]) return false;
  p->key_group = p->heads / key.size[1];
  p->value_group = p->heads / value.size[1];
  p->diagonal = plan.lower_right ? p->key_length - p->query_length : 0;
  return query.size[3] == p->head_dim && key.size[3] == p->head_dim && value.size[3] == p->value_dim &&
         value.size[2] == p->key_length;
}

bool extends(const View &mask, int64_t rank, const mlbackends_attention_problem &p) {
  const int64_t scores[] = {p.batch, p.heads, p.query_length, p.key_length};
  for (int i = 0; i < most_dimensions; i++)
    if (mask.size[i] != 1 && mask.size[i] != scores[i]) return false;
  return mask.rank >= 2 && mask.rank <= rank;
}

bool has(const View &view, int64_t rank, const int64_t *sizes) {
  return view.rank == rank && !memcmp(view.size, sizes, sizeof view.size);
}

/* Whether the output is of its shape and lies as `room` of kernels/attention_cpu/forward.py makes it. */
bool is_output(const View &output, int64_t rank, const View &query, const mlbackends_attention_problem &p) {
  const int64_t sizes[] = {p.batch, p.heads, p.query_length, p.value_dim}, width = p.value_dim;
  if (!has(output, rank, sizes)) return false;
  const bool rows_first = rank > 2 && query.rank == rank && 0 < query.stride[1] && query.stride[1] < query.stride[2];
  return (rank < 4 || output.stride[0] == p.heads * p.query_length * width) &&
         (rank < 3 || output.stride[1] == (rows_first ? width : p.query_length * width)) &&
         output.stride[2] == (rows_first ? p.heads * width : width);
}

bool is_logsumexp(const View &sums, int64_t rank, const mlbackends_attention_problem &p) {
  const int64_t sizes[] = {1, p.batch, p.heads, p.query_length};
  return has(sums, rank - 1, sizes) && (rank < 4 || sums.stride[1] == p.heads * p.query_length) &&
         (rank < 3 || sums.stride[2] == p.query_length) && sums.stride[3] == 1;
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

EXPORTED int64_t mlbackends_attention_placed(const mlbackends_attention_plan *plan, void *const *tensors,
                                             mlbackends_attention_call *call) {
  View query, key, value, mask, output, sums;
  mlbackends_attention_problem &p = call->problem = plan->problem;
  int state = see_rows(*plan, tensors[0], &query);
  if (!state) state = see_rows(*plan, tensors[1], &key);
  if (!state) state = see_rows(*plan, tensors[2], &value);
  if (!state && plan->mask_bytes) state = see(plan->owner, plan->mask_element, plan->mask_bytes, tensors[3], &mask);
  if (!state) state = see_rows(*plan, tensors[4], &output);
  if (!state && plan->logsumexp_bytes)
    state = see(plan->owner, plan->logsumexp_element, plan->logsumexp_bytes, tensors[5], &sums);
  if (state) return state;
  const int64_t keys_rank = key.rank > value.rank ? key.rank : value.rank, rank = query.rank > keys_rank ? query.rank : keys_rank;
  if (!measure(*plan, query, key, value, &p) || !is_output(output, rank, query, p)) return differs;
  if (plan->mask_bytes) {
    if (!extends(mask, rank, p)) return differs;
    p.mask = mask.data;
    write_strides(mask, p.mask_strides, 4);
  }
  if (plan->logsumexp_bytes) {
    if (!is_logsumexp(sums, rank, p)) return differs;
    p.logsumexp = (void *)sums.data;
  }
  p.query = query.data;
  p.key = key.data;
  p.value = value.data;
  p.output = (void *)output.data;
  write_strides(query, p.query_strides, 3);
  write_strides(key, p.key_strides, 3);
  write_strides(value, p.value_strides, 3);
  write_strides(output, p.output_strides, 3);
  const double rows = (double)p.batch * (double)p.heads * (double)p.query_length, keys = (double)p.key_length;
  call->operations = 2 * rows * keys * (double)(p.head_dim + p.value_dim);
  call->moved = keys * (double)plan->bytes *
                ((double)key.size[0] * (double)key.size[1] * (double)p.head_dim +
                 (double)value.size[0] * (double)value.size[1] * (double)p.value_dim);
  return fits;
}

EXPORTED void *mlbackends_attention_planned(void *self, void *const *tensors, int64_t count) {
  const mlbackends_attention_plan &plan = *(const mlbackends_attention_plan *)((const char *)self + python.bytes_header);
  mlbackends_attention_call call;
  void *result = python.none;
  const int64_t state = count == 6 ? mlbackends_attention_placed(&plan, tensors, &call) : differs;
  if (state == refused) return nullptr;
  if (state == fits) {
    if (call.operations > (double)plan.most_at_once || mlbackends_attention_workspace(&call.problem))
      result = python.no;
    else if (mlbackends_attention_forward(&call.problem, 0, 0) == -1)
      result = tensors[4];
  }
  python.take(result);
  return result;
}
