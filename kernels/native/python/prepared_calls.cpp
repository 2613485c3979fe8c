/* Prepared calls: functions of Python that compute attention or its gradients for tensors of types that are
   known.

   A module of Python's stable ABI, built where Python.h is. What is left to find for a call is where its
   tensors lie, and how: NumPy's arrays by the buffer protocol, torch's tensors by DLPack's exchange API
   (dlpack.h 1.3). A call whose tensors are of other types, do not go together or cannot be read in place
   returns None, and nothing is done. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include <stdlib.h>
#include <string.h>

#include "problem.h"

namespace {

typedef mlbackends_attention_problem Problem;
typedef mlbackends_attention_gradients Gradients;

constexpr int most_dimensions = 4;
/* Up to so many operations, some microseconds, it takes longer to release the GIL and to take it again. */
constexpr double most_at_once = 1 << 17;
/* After so long Python gets to handle signals. */
constexpr int64_t milliseconds = 50;

/* ---- DLPack --------------------------------------------------------------------------------- */

struct DlpackTensor {
  void *data;
  int32_t device_kind, device_index, rank;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape, *strides;
  uint64_t byte_offset;
};

/* The beginning of DLPackExchangeAPI. */
struct DlpackExchange {
  uint32_t major, minor;
  void *previous, *allocate, *from_object, *to_object;
  int (*tensor_of)(void *object, DlpackTensor *tensor); /* dltensor_from_py_object_no_sync */
};

constexpr uint32_t dlpack_major = 1;
constexpr int32_t dlpack_cpu = 1;

/* ---- tensors -------------------------------------------------------------------------------- */

/* FAILED: with an exception of Python. */
enum State { FITS, DIFFERS, FAILED };

/* What tensors of one role have in common. `element`: NumPy's dtype object, or DLPack's code, bits and lanes;
   0 where NumPy's dtype is known. `bytes`: of one element, a power of two; 0 where there is no such
   tensor. */
struct Elements {
  uint64_t element;
  int64_t bytes;
};

/* Sizes, and strides in elements. What a tensor lacks of four dimensions stands in front, of size 1. */
struct View {
  void *data;
  int64_t rank, size[most_dimensions], stride[most_dimensions];
};

PyObject *dtype_name, *shape_name; /* "dtype", "shape" */

uint64_t element_of(const DlpackTensor &tensor) {
  return (uint64_t)tensor.code << 32 | (uint64_t)tensor.bits << 16 | tensor.lanes;
}

/* Write a view of a tensor. `unit`: of its strides; both that and the address must be multiples of whole
   elements. */
State view_of(void *data, int64_t rank, const int64_t *shape, const int64_t *strides, int64_t unit,
              int64_t bytes, View *view) {
  if (rank > most_dimensions || (rank && !strides) || (uint64_t)data & (uint64_t)(bytes - 1)) return DIFFERS;
  const int64_t missing = most_dimensions - rank;
  const int shift = __builtin_ctzll((uint64_t)unit);
  *view = {data, rank, {1, 1, 1, 1}, {}};
  for (int64_t i = 0; i < rank; i++) {
    if (strides[i] & (unit - 1)) return DIFFERS;
    view->size[missing + i] = shape[i];
    view->stride[missing + i] = strides[i] >> shift;
  }
  return FITS;
}

/* How objects of exactly one type are read. Without an exchange API, by the buffer protocol. */
struct Reader {
  PyTypeObject *type;
  const DlpackExchange *exchange;

  State read(PyObject *object, const Elements &elements, View *view) const {
    if (Py_TYPE(object) != type) return DIFFERS;
    return exchange ? read_dlpack(object, elements, view) : read_buffer(object, elements, view);
  }

  /* As `read`, of rows whose elements follow each other. */
  State read_rows(PyObject *object, const Elements &elements, View *view) const {
    const State state = read(object, elements, view);
    return state != FITS ? state : view->rank < 2 || view->stride[most_dimensions - 1] != 1 ? DIFFERS : FITS;
  }

  /* Find what tensors like one have in common, of no more dimensions than can be read. */
  State elements_of(PyObject *object, Elements *elements) const {
    if (object == Py_None) return *elements = {}, FITS;
    if (Py_TYPE(object) != type) return DIFFERS;
    if (exchange) {
      DlpackTensor tensor;
      if (exchange->tensor_of(object, &tensor)) return FAILED;
      *elements = {element_of(tensor), tensor.bits / 8};
    } else {
      Py_buffer buffer;
      PyObject *dtype = PyObject_GetAttr(object, dtype_name);
      if (!dtype) return FAILED;
      Py_DECREF(dtype); /* a prepared call keeps its tensors' dtypes */
      if (PyObject_GetBuffer(object, &buffer, PyBUF_STRIDES)) return FAILED;
      *elements = {(uint64_t)dtype, buffer.itemsize};
      PyBuffer_Release(&buffer);
    }
    const bool whole = elements->bytes > 0 && !(elements->bytes & (elements->bytes - 1));
    return whole ? FITS : DIFFERS;
  }

 private:
  State read_dlpack(PyObject *object, const Elements &elements, View *view) const {
    DlpackTensor tensor;
    if (exchange->tensor_of(object, &tensor)) return FAILED;
    if (tensor.device_kind != dlpack_cpu || !tensor.data || element_of(tensor) != elements.element)
      return DIFFERS;
    return view_of((char *)tensor.data + tensor.byte_offset, tensor.rank, tensor.shape, tensor.strides, 1,
                   elements.bytes, view);
  }

  State read_buffer(PyObject *object, const Elements &elements, View *view) const {
    if (elements.element) {
      PyObject *dtype = PyObject_GetAttr(object, dtype_name);
      if (!dtype) return FAILED;
      Py_DECREF(dtype);
      if ((uint64_t)dtype != elements.element) return DIFFERS;
    }
    Py_buffer buffer;
    if (PyObject_GetBuffer(object, &buffer, PyBUF_STRIDES)) return FAILED;
    static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "64-bit processors alone");
    const State state = view_of(buffer.buf, buffer.ndim, (const int64_t *)buffer.shape,
                                (const int64_t *)buffer.strides, elements.bytes, elements.bytes, view);
    PyBuffer_Release(&buffer); /* the caller keeps the object, and with it the memory */
    return state;
  }
};

/* ---- one problem ---------------------------------------------------------------------------- */

/* The size that three dimensions are broadcast to, 0 for none. */
int64_t common(int64_t a, int64_t b, int64_t c) {
  const int64_t size = a != 1 ? a : b != 1 ? b : c;
  return (a == size || a == 1) && (b == size || b == 1) && (c == size || c == 1) ? size : 0;
}

/* Write address and strides. Where a dimension is broadcast, or there is but one, it has no stride. */
template <class Pointer, int count>
void write_place(const View &view, Pointer *data, int64_t (&strides)[count]) {
  *data = view.data;
  for (int i = 0; i < count; i++) strides[i] = view.size[i] == 1 ? 0 : view.stride[i];
}

bool has_sizes(const View &view, int64_t rank, const int64_t (&sizes)[most_dimensions]) {
  return view.rank == rank && !memcmp(view.size, sizes, sizeof sizes);
}

bool has_result_sizes(const View &view, int64_t rank, const Problem &p) {
  return has_sizes(view, rank, {p.batch, p.heads, p.query_length, p.value_dim});
}

bool is_mask(const View &mask, int64_t rank, const Problem &p) {
  const int64_t scores[] = {p.batch, p.heads, p.query_length, p.key_length};
  for (int i = 0; i < most_dimensions; i++)
    if (mask.size[i] != 1 && mask.size[i] != scores[i]) return false;
  return mask.rank >= 2 && mask.rank <= rank;
}

bool is_logsumexp(const View &sums, int64_t rank, const Problem &p) {
  return has_sizes(sums, rank - 1, {1, p.batch, p.heads, p.query_length}) &&
         (rank < 4 || sums.stride[1] == p.heads * p.query_length) &&
         (rank < 3 || sums.stride[2] == p.query_length) && sums.stride[3] == 1;
}

/* Whether the rows of a tensor lie before its heads, as `is_rows_first` of attention_cpu/forward.py. */
bool is_rows_first(const View &view) {
  return view.rank > 2 && view.size[1] > 1 && view.size[2] > 1 && 0 < view.stride[1] &&
         view.stride[1] < view.stride[2];
}

/* Whether an output of its sizes lies as `room` of attention_cpu/forward.py makes it. */
bool lies_as_made(const View &output, bool rows_first, const Problem &p) {
  const int64_t width = p.value_dim, rank = output.rank;
  return (rank < 4 || output.stride[0] == p.heads * p.query_length * width) &&
         (rank < 3 || output.stride[1] == (rows_first ? width : p.query_length * width)) &&
         output.stride[2] == (rows_first ? p.heads * width : width);
}

/* The tensors of a call, and of how many dimensions its result is. */
struct Views {
  View query, key, value, mask, output, logsumexp;
  int64_t rank;
};

struct Tensors {
  PyObject *query, *key, *value, *mask, *output, *logsumexp;
};

/* What calls of a kind have in common: element types, widths and options. Lengths, heads, batches and strides
   may be any. */
struct Kind {
  Reader reader;
  Elements numbers, mask, logsumexp;
  bool lower_right, grouped, makes_rows_first;
  Problem problem;       /* without addresses, strides and the other sizes */
  double fine;           /* the largest logarithm that needs no refinement */
  PyObject *make_output; /* room for the output: for a query, or with a dtype for a query's shape and that */
  PyObject *dtype;       /* null where `make_output` takes a query */
  PyObject
      *make_sums; /* and for the log-sum-exp; None without one. For gradients both make that of a tensor. */
  PyObject *count_threads; /* for operations and bytes that are moved */
  PyObject *dtypes;        /* which are recognised by their addresses */

  /* Write the problem of tensors that go together, wherever the output lies. `is_forward`: the dtypes of
     query and mask were compared by the cache of prepared calls, and the results were made here. */
  State fill(const Tensors &tensors, bool is_forward, Views *seen, Problem *problem) const {
    const bool is_known = is_forward && !reader.exchange;
    const Elements checked = {is_known ? 0 : numbers.element, numbers.bytes};
    const Elements checked_mask = {is_known ? 0 : mask.element, mask.bytes};
    const Elements checked_sums = {is_known ? 0 : logsumexp.element, logsumexp.bytes};
    State state = reader.read_rows(tensors.query, checked, &seen->query);
    if (state == FITS) state = reader.read_rows(tensors.key, numbers, &seen->key);
    if (state == FITS) state = reader.read_rows(tensors.value, numbers, &seen->value);
    if (state == FITS && mask.bytes) state = reader.read(tensors.mask, checked_mask, &seen->mask);
    if (state == FITS) state = reader.read_rows(tensors.output, checked, &seen->output);
    if (state == FITS && logsumexp.bytes)
      state = reader.read(tensors.logsumexp, checked_sums, &seen->logsumexp);
    if (state != FITS) return state;
    *problem = this->problem;
    return measure(seen, problem) && place(*seen, problem) ? FITS : DIFFERS;
  }

 private:
  /* Write sizes and groups. Returns whether the inputs go together and there is something to compute. */
  bool measure(Views *seen, Problem *p) const {
    const View &query = seen->query, &key = seen->key, &value = seen->value;
    if (grouped && (query.rank < 3 || key.rank < 3 || value.rank < 3)) return false;
    const int64_t keys_rank = key.rank > value.rank ? key.rank : value.rank;
    seen->rank = query.rank > keys_rank ? query.rank : keys_rank;
    p->batch = common(query.size[0], key.size[0], value.size[0]);
    p->heads = grouped ? query.size[1] : common(query.size[1], key.size[1], value.size[1]);
    p->query_length = query.size[2];
    p->key_length = key.size[2];
    if (p->batch <= 0 || p->heads <= 0 || p->query_length <= 0 || p->key_length <= 0) return false;
    if (key.size[1] <= 0 || p->heads % key.size[1] || value.size[1] <= 0 || p->heads % value.size[1])
      return false;
    p->key_group = p->heads / key.size[1];
    p->value_group = p->heads / value.size[1];
    p->diagonal = lower_right ? p->key_length - p->query_length : 0;
    return query.size[3] == p->head_dim && key.size[3] == p->head_dim && value.size[3] == p->value_dim &&
           value.size[2] == p->key_length;
  }

  /* Write addresses and strides. Returns whether mask and results go with the inputs. */
  bool place(const Views &seen, Problem *p) const {
    if (!has_result_sizes(seen.output, seen.rank, *p)) return false;
    if (mask.bytes) {
      if (!is_mask(seen.mask, seen.rank, *p)) return false;
      write_place(seen.mask, &p->mask, p->mask_strides);
    }
    if (logsumexp.bytes) {
      if (!is_logsumexp(seen.logsumexp, seen.rank, *p)) return false;
      p->logsumexp = seen.logsumexp.data;
    }
    write_place(seen.query, &p->query, p->query_strides);
    write_place(seen.key, &p->key, p->key_strides);
    write_place(seen.value, &p->value, p->value_strides);
    write_place(seen.output, &p->output, p->output_strides);
    return true;
  }
};

/* ---- computing ------------------------------------------------------------------------------ */

/* Additions and multiplications, and the bytes of key and value: as doubles, for strides of 0 make tensors of
   any size. */
struct Work {
  double operations, moved;

  Work(const Kind &kind, const Views &seen, const Problem &p) {
    const double rows = (double)p.batch * (double)p.heads * (double)p.query_length;
    const double keys = (double)p.key_length;
    const double of_key = (double)seen.key.size[0] * (double)seen.key.size[1] * (double)p.head_dim;
    const double of_value = (double)seen.value.size[0] * (double)seen.value.size[1] * (double)p.value_dim;
    operations = 2 * rows * keys * (double)(p.head_dim + p.value_dim);
    moved = keys * (double)kind.numbers.bytes * (of_key + of_value);
  }
};

/* Write how many threads some work is worth. Returns whether Python could tell. */
bool count_threads(const Kind &kind, double operations, double moved, Problem *p) {
  PyObject *found = PyObject_CallFunction(kind.count_threads, "dd", operations, moved);
  const long threads = found ? PyLong_AsLong(found) : -1;
  Py_XDECREF(found);
  p->threads = (int32_t)threads;
  return threads > 0;
}

/* Write the seed that an object is, or that it returns when called; None is 0. */
bool read_seed(PyObject *object, uint64_t *seed) {
  *seed = 0;
  if (object == Py_None) return true;
  PyObject *drawn = PyCallable_Check(object) ? PyObject_CallNoArgs(object) : (Py_INCREF(object), object);
  if (drawn) *seed = PyLong_AsUnsignedLongLongMask(drawn);
  Py_XDECREF(drawn);
  return !PyErr_Occurred();
}

/* Memory of one call. */
struct Memory {
  void *start = nullptr;

  Memory() = default;
  Memory(const Memory &) = delete;
  ~Memory() { free(start); }
  bool take(int64_t bytes) {
    start = bytes > 0 ? malloc((size_t)bytes) : nullptr;
    if (bytes > 0 && !start) PyErr_NoMemory();
    return bytes <= 0 || start;
  }
};

/* Call the library without the GIL until all is computed; Python handles signals in between. */
template <class Given>
State compute(int64_t (*function)(const Given *, int64_t, int64_t), const Given &given) {
  int64_t next = 0;
  do {
    Py_BEGIN_ALLOW_THREADS next = function(&given, next, milliseconds);
    Py_END_ALLOW_THREADS if (PyErr_CheckSignals()) return FAILED;
  } while (next >= 0);
  if (next != -1) PyErr_NoMemory();
  return next == -1 ? FITS : FAILED;
}

State attend(const Kind &kind, const Tensors &tensors, PyObject *seed) {
  Views seen;
  Problem p;
  const State state = kind.fill(tensors, true, &seen, &p);
  if (state != FITS) return state;
  const bool rows_first = seen.query.rank == seen.rank && is_rows_first(seen.query);
  /* The buffer protocol does not show the strides of dimensions of one element. */
  if (!kind.reader.exchange && rows_first != kind.makes_rows_first) return DIFFERS;
  if (!lies_as_made(seen.output, rows_first, p)) return DIFFERS;
  const Work work(kind, seen, p);
  if (p.dropout && !read_seed(seed, &p.seed)) return FAILED;
  if (work.operations <= most_at_once && mlbackends_attention_forward(&p, 0, 0) == -1) return FITS;
  Memory workspace;
  if (!count_threads(kind, work.operations, work.moved, &p) ||
      !workspace.take(mlbackends_attention_workspace(&p)))
    return FAILED;
  p.workspace = workspace.start;
  return compute(mlbackends_attention_forward, p);
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

/* Compute gradients in tensors made for those of query, key and value. */
State differentiate(const Kind &kind, const Tensors &tensors, PyObject *of_output, PyObject *const (&made)[3],
                    PyObject *seed, int32_t level) {
  Views seen;
  View coming, found[3];
  Gradients gradients = {};
  Problem &p = gradients.forward;
  State state = kind.fill(tensors, false, &seen, &p);
  if (state == FITS) state = kind.reader.read_rows(of_output, kind.numbers, &coming);
  const View *const inputs[] = {&seen.query, &seen.key, &seen.value};
  for (int i = 0; i < 3 && state == FITS; i++) {
    state = kind.reader.read_rows(made[i], kind.numbers, &found[i]);
    if (state != FITS) return state;
    /* No sum over a dimension that was broadcast may be left. */
    const View &input = *inputs[i];
    if (input.rank != seen.rank || input.size[0] != p.batch || !has_sizes(found[i], input.rank, input.size))
      return DIFFERS;
  }
  if (state != FITS) return state;
  if (!has_result_sizes(coming, seen.rank, p) || seen.query.size[1] != p.heads) return DIFFERS;
  write_place(coming, &gradients.of_output, gradients.of_output_strides);
  write_place(found[0], &gradients.query, gradients.query_strides);
  write_place(found[1], &gradients.key, gradients.key_strides);
  write_place(found[2], &gradients.value, gradients.value_strides);
  p.level = level;
  const Work work(kind, seen, p);
  if (!count_threads(kind, 2 * work.operations, 2 * work.moved, &p) || !read_seed(seed, &p.seed))
    return FAILED;
  Memory workspace, refined;
  if (!workspace.take(mlbackends_attention_gradients_workspace(&gradients))) return FAILED;
  p.workspace = workspace.start;
  const int64_t rows = p.batch * p.heads * p.query_length;
  const bool wide = kind.logsumexp.bytes == 8;
  if (wide ? is_above<double>(p.logsumexp, rows, kind.fine) : is_above<float>(p.logsumexp, rows, kind.fine)) {
    if (!refined.take(3 * rows * kind.logsumexp.bytes)) return FAILED;
    gradients.refined = refined.start;
    if (compute(mlbackends_attention_refine, gradients) != FITS) return FAILED;
  }
  return compute(mlbackends_attention_backward, gradients);
}

/* ---- functions of Python -------------------------------------------------------------------- */

constexpr char capsule_name[] = "mlbackends prepared call";

const Kind &kind_of(PyObject *self) { return *(const Kind *)PyCapsule_GetPointer(self, capsule_name); }

/* Return a result; None in its place where nothing was done. Whatever a tensor's owner says of it, but for an
   exception that ends the process, it will say again to the call that is not prepared. */
PyObject *returned(State state, PyObject *result) {
  if (state == FITS) return result;
  Py_XDECREF(result);
  if (state == FAILED) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
    PyErr_Clear();
  }
  Py_RETURN_NONE;
}

/* Make room for the output of a query. */
PyObject *make_output(const Kind &kind, PyObject *query) {
  if (!kind.dtype) return PyObject_CallFunctionObjArgs(kind.make_output, query, nullptr);
  PyObject *shape = PyObject_GetAttr(query, shape_name);
  PyObject *output =
      shape ? PyObject_CallFunctionObjArgs(kind.make_output, shape, kind.dtype, nullptr) : nullptr;
  Py_XDECREF(shape);
  return output;
}

PyObject *call_forward(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  if (count != 5) return PyErr_Format(PyExc_TypeError, "query, key, value, mask and seed are wanted");
  const Kind &kind = kind_of(self);
  if (Py_TYPE(given[0]) != kind.reader.type) Py_RETURN_NONE;
  const bool has_sums = kind.make_sums != Py_None;
  PyObject *output = make_output(kind, given[0]), *sums = nullptr;
  if (output && has_sums) sums = PyObject_CallFunctionObjArgs(kind.make_sums, given[0], nullptr);
  State state = FAILED;
  if (output && (sums || !has_sums))
    state = attend(kind, {given[0], given[1], given[2], given[3], output, sums}, given[4]);
  if (!has_sums) return returned(state, output);
  PyObject *both = state == FITS ? PyTuple_Pack(2, output, sums) : nullptr;
  Py_XDECREF(output);
  Py_XDECREF(sums);
  return state == FITS && !both ? nullptr : returned(state, both);
}

PyObject *call_backward(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  if (count != 9)
    return PyErr_Format(PyExc_TypeError, "grad_out, the tensors of the call, seed and level are wanted");
  const Kind &kind = kind_of(self);
  PyObject *made[3] = {};
  State state = FITS;
  for (int i = 0; i < 3 && state == FITS; i++) {
    state = Py_TYPE(given[1 + i]) != kind.reader.type ? DIFFERS : FITS;
    if (state == FITS) made[i] = PyObject_CallFunctionObjArgs(kind.make_output, given[1 + i], nullptr);
    if (state == FITS && !made[i]) state = FAILED;
  }
  const long level = PyLong_AsLong(given[8]);
  if (PyErr_Occurred()) state = FAILED;
  if (state == FITS)
    state = differentiate(kind, {given[1], given[2], given[3], given[4], given[5], given[6]}, given[0], made,
                          given[7], (int32_t)level);
  PyObject *all = state == FITS ? PyTuple_Pack(3, made[0], made[1], made[2]) : nullptr;
  for (PyObject *each : made) Py_XDECREF(each);
  return state == FITS && !all ? nullptr : returned(state, all);
}

void release_kind(PyObject *capsule) {
  Kind *kind = (Kind *)PyCapsule_GetPointer(capsule, capsule_name);
  PyObject *const kept[] = {kind->make_output, kind->make_sums, kind->count_threads, kind->dtypes,
                            (PyObject *)kind->reader.type};
  for (PyObject *each : kept) Py_DECREF(each);
  free(kind);
}

PyMethodDef forward_method = {"forward", (PyCFunction)(void *)call_forward, METH_FASTCALL, nullptr};
PyMethodDef backward_method = {"backward", (PyCFunction)(void *)call_backward, METH_FASTCALL, nullptr};

/* Find how tensors of a type are read. */
State find_reader(PyTypeObject *type, Reader *reader) {
  *reader = {type, nullptr};
  PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
  if (!capsule) { /* NumPy's arrays, whose elements are told apart by their dtype */
    PyErr_Clear();
    return FITS;
  }
  reader->exchange = (const DlpackExchange *)PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  Py_DECREF(capsule);
  if (!reader->exchange) return FAILED;
  return reader->exchange->major == dlpack_major && reader->exchange->tensor_of ? FITS : DIFFERS;
}

/* Return a function for calls like the one of an example, None where they cannot be read in place. */
PyObject *prepare(PyObject *arguments, PyMethodDef *method) {
  PyObject *query, *mask, *logsumexp, *dtypes, *make_output, *dtype, *make_sums, *threads;
  Kind found = {};
  Problem &p = found.problem;
  int causal, lower_right, grouped, makes_rows_first;
  if (!PyArg_ParseTuple(arguments, "OOOOOOpOOLLiiiddpppd", &query, &mask, &logsumexp, &dtypes, &make_output,
                        &dtype, &makes_rows_first, &make_sums, &threads, &p.head_dim, &p.value_dim,
                        &p.element, &p.mask_element, &p.level, &p.scale, &p.dropout, &causal, &lower_right,
                        &grouped, &found.fine))
    return nullptr;
  State state = find_reader(Py_TYPE(query), &found.reader);
  if (state == FITS) state = found.reader.elements_of(query, &found.numbers);
  if (state == FITS) state = found.reader.elements_of(mask, &found.mask);
  if (state == FITS) state = found.reader.elements_of(logsumexp, &found.logsumexp);
  if (state != FITS) return returned(state, nullptr);
  p.causal = causal, p.threads = 1, found.lower_right = lower_right, found.grouped = grouped;
  found.makes_rows_first = makes_rows_first;
  found.dtype = dtype == Py_None ? nullptr : dtype; /* one of `dtypes`, which keeps it */
  found.make_output = make_output, found.make_sums = make_sums, found.count_threads = threads,
  found.dtypes = dtypes;
  Kind *kind = (Kind *)malloc(sizeof *kind);
  if (!kind) return PyErr_NoMemory();
  *kind = found;
  PyObject *capsule = PyCapsule_New(kind, capsule_name, release_kind);
  if (!capsule) return free(kind), nullptr;
  PyObject *const kept[] = {make_output, make_sums, threads, dtypes, (PyObject *)kind->reader.type};
  for (PyObject *each : kept) Py_INCREF(each);
  PyObject *function = PyCFunction_NewEx(method, capsule, nullptr);
  Py_DECREF(capsule);
  return function;
}

PyObject *prepare_forward(PyObject *, PyObject *arguments) { return prepare(arguments, &forward_method); }
PyObject *prepare_backward(PyObject *, PyObject *arguments) { return prepare(arguments, &backward_method); }

PyMethodDef methods[] = {{"prepare_forward", prepare_forward, METH_VARARGS, nullptr},
                         {"prepare_backward", prepare_backward, METH_VARARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "prepared_calls", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

} // namespace

PyMODINIT_FUNC PyInit_prepared_calls(void) {
  dtype_name = PyUnicode_InternFromString("dtype"), shape_name = PyUnicode_InternFromString("shape");
  PyObject *module = dtype_name && shape_name ? PyModule_Create(&definition) : nullptr;
  if (module && PyModule_AddIntConstant(module, "abi", MLBACKENDS_ATTENTION_ABI)) Py_CLEAR(module);
  return module;
}
