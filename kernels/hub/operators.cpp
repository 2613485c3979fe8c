/* flash_cpu as operators of torch, in its stable C ABI: what kernel.py calls.

   Neither torch nor its headers are needed to compile: the functions declared here have been in libtorch_cpu
   since 2.9. A boxed operator owns the tensors on its stack, and what it returns replaces the first slot. No
   exception may leave it, so both operators return a status: -1 for success, -2 without memory.
   Source: torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/library.h of torch 2.9. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../native/attention/problem.h"

extern "C" {
typedef struct AtenTensorOpaque *Tensor;
typedef struct TorchLibraryOpaque *Library;
typedef uint64_t Value; /* a tensor's handle, an int, a float or a bool, in the low bytes */
int32_t aoti_torch_delete_tensor_object(Tensor tensor);
int32_t aoti_torch_get_data_ptr(Tensor tensor, void **result);
int32_t aoti_torch_get_sizes(Tensor tensor, int64_t **result);
int32_t aoti_torch_get_strides(Tensor tensor, int64_t **result);
int32_t aoti_torch_library_init_def(const char *name, const char *file, uint32_t line, Library *result);
int32_t aoti_torch_library_init_impl(const char *name, const char *key, const char *file, uint32_t line,
                                     Library *result);
int32_t aoti_torch_library_def(Library library, const char *schema);
int32_t aoti_torch_library_impl(Library library, const char *name, void (*run)(Value *, uint64_t, uint64_t));
/* Of the OpenMP runtime that libtorch_cpu brings; null without one. */
__attribute__((weak)) void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);
}

namespace {

enum { QUERY, KEY, VALUE, MASK, OUT, LOGSUMEXP, FIRST_NUMBER };
enum { LEFT = FIRST_NUMBER, RIGHT, LOWER_RIGHT, SCALE, ELEMENT, MASK_ELEMENT, THREADS, FIRST_GRADIENT };
enum { OF_OUT = FIRST_GRADIENT, REFINED, OF_QUERY, OF_KEY, OF_VALUE, END };

/* Return the sizes of a tensor on the stack, its data, null if it has no elements, and the strides of its
   first `dims` dimensions, 0 for those that broadcast. */
template <class Data> int64_t *read(Value value, Data *&data, int64_t *strides, int dims) {
  Tensor tensor = (Tensor)(uintptr_t)value;
  void *found;
  int64_t *sizes, *steps;
  aoti_torch_get_data_ptr(tensor, &found);
  aoti_torch_get_sizes(tensor, &sizes), aoti_torch_get_strides(tensor, &steps);
  data = (Data *)found;
  for (int at = 0; data && at < dims; at++) strides[at] = sizes[at] == 1 ? 0 : steps[at];
  return sizes;
}

int32_t best_level() {
  int32_t level = 0;
  while (mlbackends_attention_level_name(level + 1)) level++;
  while (level && !mlbackends_attention_level_runs(level)) level--;
  return level;
}

mlbackends_attention_problem problem_of(const Value *stack) {
  static const int32_t level = best_level();
  mlbackends_attention_problem problem = {};
  const int64_t *query = read(stack[QUERY], problem.query, problem.query_strides, 3);
  const int64_t *key = read(stack[KEY], problem.key, problem.key_strides, 3);
  const int64_t *value = read(stack[VALUE], problem.value, problem.value_strides, 3);
  read(stack[MASK], problem.mask, problem.mask_strides, 4);
  read(stack[OUT], problem.output, problem.output_strides, 3);
  read(stack[LOGSUMEXP], problem.logsumexp, nullptr, 0);
  problem.batch = query[0], problem.heads = query[1], problem.query_length = query[2];
  problem.key_length = key[2], problem.head_dim = query[3], problem.value_dim = value[3];
  problem.key_group = problem.value_group = query[1] / key[1];
  problem.window[0] = (int64_t)stack[LEFT], problem.window[1] = (int64_t)stack[RIGHT];
  problem.lower_right = stack[LOWER_RIGHT] & 1;
  memcpy(&problem.scale, &stack[SCALE], sizeof problem.scale);
  problem.element = (int32_t)stack[ELEMENT], problem.mask_element = (int32_t)stack[MASK_ELEMENT];
  problem.level = level, problem.threads = (int32_t)stack[THREADS];
  problem.parallel = (const void *)GOMP_parallel;
  return problem;
}

void finish(Value *stack, int end, int64_t status) {
  for (int at = 0; at < end; at++)
    if (at < FIRST_NUMBER || at >= FIRST_GRADIENT) aoti_torch_delete_tensor_object((Tensor)(uintptr_t)stack[at]);
  stack[0] = (Value)status;
}

void forward(Value *stack, uint64_t, uint64_t) {
  mlbackends_attention_problem problem = problem_of(stack);
  int64_t needed = mlbackends_attention_workspace(&problem), status = -2;
  problem.workspace = needed ? malloc((size_t)needed) : nullptr;
  if (!needed || problem.workspace) status = mlbackends_attention_forward(&problem, 0, 0);
  free(problem.workspace);
  finish(stack, FIRST_NUMBER, status);
}

void backward(Value *stack, uint64_t, uint64_t) {
  mlbackends_attention_gradients problem = {};
  problem.forward = problem_of(stack);
  read(stack[OF_OUT], problem.of_output, problem.of_output_strides, 3);
  read(stack[REFINED], problem.refined, nullptr, 0);
  read(stack[OF_QUERY], problem.query, problem.query_strides, 3);
  read(stack[OF_KEY], problem.key, problem.key_strides, 3);
  read(stack[OF_VALUE], problem.value, problem.value_strides, 3);
  problem.forward.workspace = malloc((size_t)mlbackends_attention_gradients_workspace(&problem) + 1);
  int64_t status = problem.forward.workspace ? -1 : -2;
  if (status == -1 && problem.refined) status = mlbackends_attention_refine(&problem, 0, 0);
  if (status == -1) status = mlbackends_attention_backward(&problem, 0, 0);
  free(problem.forward.workspace);
  finish(stack, END, status);
}

#define PROBLEM "Tensor query, Tensor key, Tensor value, Tensor mask, Tensor(a!) out, Tensor(b!) logsumexp,"
#define NUMBERS "int left, int right, bool lower_right, float scale, int element, int mask_element, int threads"
#define GRADIENTS ", Tensor of_out, Tensor(c!) refined, Tensor(d!) of_query, Tensor(e!) of_key, Tensor(f!) of_value"

/* Register the operators while the library is loaded. They stay until the process ends, as it does. */
__attribute__((constructor)) void add_operators() {
  Library defined, implemented;
  aoti_torch_library_init_def(MLBACKENDS_NAMESPACE, __FILE__, __LINE__, &defined);
  aoti_torch_library_def(defined, "forward(" PROBLEM NUMBERS ") -> int");
  aoti_torch_library_def(defined, "backward(" PROBLEM NUMBERS GRADIENTS ") -> int");
  aoti_torch_library_init_impl(MLBACKENDS_NAMESPACE, "CPU", __FILE__, __LINE__, &implemented);
  aoti_torch_library_impl(implemented, "forward", forward);
  aoti_torch_library_impl(implemented, "backward", backward);
}

} // namespace
