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

/* See a tensor of elements that lie where whole ones may. `bytes`: a power of two, so that nothing need be divided. */
int see(const mlbackends_attention_owner &owner, uint64_t element, int64_t bytes, void *object, View *view) {
  Told seen;
  if (const int state = told(owner, object, &seen)) return state;
  if (seen.element != element || (uint64_t)seen.data & (uint64_t)(bytes - 1)) return differs;
  const int64_t missing = most_dimensions - seen.rank, unit = owner.tell ? 1 : bytes;
  const int shift = __builtin_ctzll((uint64_t)unit);
  *view = {seen.data, seen.rank, {1, 1, 1, 1}, {}};
  for (int64_t i = 0; i < seen.rank; i++) {
    if (seen.strides[i] & (unit - 1)) return differs;
    view->size[missing + i] = seen.shape[i];
    view->stride[missing + i] = seen.strides[i] >> shift;
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

/* Whether a tensor is of the shape of the output. */
bool is_result(const View &view, int64_t rank, const mlbackends_attention_problem &p) {
  const int64_t sizes[] = {p.batch, p.heads, p.query_length, p.value_dim};
  return has(view, rank, sizes);
}

/* Whether an output of its shape lies as `room` of kernels/attention_cpu/forward.py makes it. */
bool lies_as_made(const View &output, int64_t rank, const View &query, const mlbackends_attention_problem &p) {
  const int64_t width = p.value_dim;
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

/* The tensors of a call, and of how many dimensions its result is. */
struct Views {
  View query, key, value, mask, output, sums;
  int64_t rank;
};

/* Write the problem of tensors that go together, wherever the output lies. */
int fill(const mlbackends_attention_plan &plan, void *const *tensors, Views *seen, mlbackends_attention_problem *problem) {
  mlbackends_attention_problem &p = *problem = plan.problem;
  View &query = seen->query, &key = seen->key, &value = seen->value, &mask = seen->mask, &sums = seen->sums;
  int state = see_rows(plan, tensors[0], &query);
  if (!state) state = see_rows(plan, tensors[1], &key);
  if (!state) state = see_rows(plan, tensors[2], &value);
  if (!state && plan.mask_bytes) state = see(plan.owner, plan.mask_element, plan.mask_bytes, tensors[3], &mask);
  if (!state) state = see_rows(plan, tensors[4], &seen->output);
  if (!state && plan.logsumexp_bytes) state = see(plan.owner, plan.logsumexp_element, plan.logsumexp_bytes, tensors[5], &sums);
  if (state) return state;
  const int64_t keys_rank = key.rank > value.rank ? key.rank : value.rank;
  seen->rank = query.rank > keys_rank ? query.rank : keys_rank;
  if (!measure(plan, query, key, value, &p) || !is_result(seen->output, seen->rank, p)) return differs;
  if (plan.mask_bytes) {
    if (!extends(mask, seen->rank, p)) return differs;
    p.mask = mask.data;
    write_strides(mask, p.mask_strides, 4);
  }
  if (plan.logsumexp_bytes) {
    if (!is_logsumexp(sums, seen->rank, p)) return differs;
    p.logsumexp = (void *)sums.data;
  }
  p.query = query.data;
  p.key = key.data;
  p.value = value.data;
  p.output = (void *)seen->output.data;
  write_strides(query, p.query_strides, 3);
  write_strides(key, p.key_strides, 3);
  write_strides(value, p.value_strides, 3);
  write_strides(seen->output, p.output_strides, 3);
  return fits;
}

mlbackends_attention_work work_of(const mlbackends_attention_plan &plan, const Views &seen,
                                  const mlbackends_attention_problem &p) {
  const double rows = (double)p.batch * (double)p.heads * (double)p.query_length, keys = (double)p.key_length;
  const double of_key = (double)seen.key.size[0] * (double)seen.key.size[1] * (double)p.head_dim;
  const double of_value = (double)seen.value.size[0] * (double)seen.value.size[1] * (double)p.value_dim;
  return {2 * rows * keys * (double)(p.head_dim + p.value_dim), keys * (double)plan.bytes * (of_key + of_value)};
}

/* See where the gradient of a tensor goes, which is of its shape; no sum over a dimension that was broadcast is left. */
int see_gradient(const mlbackends_attention_plan &plan, const View &of, const Views &seen, void *object, View *view) {
  if (const int state = see_rows(plan, object, view)) return state;
  return of.rank == seen.rank && of.size[0] == seen.output.size[0] && has(*view, of.rank, of.size) ? fits : differs;
}

/* Whether the largest logarithm of a row, of those that are finite, is above a limit. */
template <class Real>
bool is_above(const void *sums, int64_t count, double limit) {
  for (int64_t i = 0; i < count; i++) {
    const double size = __builtin_fabs((double)((const Real *)sums)[i]);
    if (size > limit && size < __builtin_huge_val()) return true;
  }
  return false;
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
  Views seen;
  if (const int state = fill(*plan, tensors, &seen, &call->problem)) return state;
  if (!lies_as_made(seen.output, seen.rank, seen.query, call->problem)) return differs;
  call->work = work_of(*plan, seen, call->problem);
  return fits;
}

EXPORTED int64_t mlbackends_attention_gradients_placed(const mlbackends_attention_plan *plan, void *const *tensors,
                                                       double fine, mlbackends_attention_gradients_call *call) {
  mlbackends_attention_gradients &gradients = call->problem;
  const mlbackends_attention_problem &p = gradients.forward;
  Views seen;
  View of_output, query, key, value;
  gradients = {};
  int state = fill(*plan, tensors, &seen, &gradients.forward);
  if (!state) state = see_rows(*plan, tensors[6], &of_output);
  if (!state) state = see_gradient(*plan, seen.query, seen, tensors[7], &query);
  if (!state) state = see_gradient(*plan, seen.key, seen, tensors[8], &key);
  if (!state) state = see_gradient(*plan, seen.value, seen, tensors[9], &value);
  if (state) return state;
  if (!is_result(of_output, seen.rank, p) || seen.query.size[1] != p.heads) return differs;
  gradients.of_output = of_output.data;
  gradients.query = (void *)query.data;
  gradients.key = (void *)key.data;
  gradients.value = (void *)value.data;
  write_strides(of_output, gradients.of_output_strides, 3);
  write_strides(query, gradients.query_strides, 3);
  write_strides(key, gradients.key_strides, 3);
  write_strides(value, gradients.value_strides, 3);
  call->work = work_of(*plan, seen, p);
  const int64_t rows = p.batch * p.heads * p.query_length;
  const bool wide = plan->logsumexp_bytes == 8;
  const bool coarse = wide ? is_above<double>(p.logsumexp, rows, fine) : is_above<float>(p.logsumexp, rows, fine);
  call->coarse_rows = coarse ? rows : 0;
  return fits;
}

EXPORTED void *mlbackends_attention_planned(void *self, void *const *tensors, int64_t count) {
  const mlbackends_attention_plan &plan = *(const mlbackends_attention_plan *)((const char *)self + python.bytes_header);
  mlbackends_attention_call call;
  void *result = python.none;
  const int64_t state = count == 6 ? mlbackends_attention_placed(&plan, tensors, &call) : differs;
  if (state == refused) return nullptr;
  if (state == fits) {
    const bool at_once = call.work.operations <= (double)plan.most_at_once;
    result = at_once && mlbackends_attention_forward(&call.problem, 0, 0) == -1 ? tensors[4] : python.no;
  }
  python.take(result);
  return result;
}
