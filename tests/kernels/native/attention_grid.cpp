/* Calls the attention library with problems of a small grid; see sanitize.py. Every tensor lies in memory of its own
   that ends where it ends, so that what is read beyond is seen. Results need only be finite: tests hold their value. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memory>
#include <vector>

#include "problem.h"

namespace {

typedef mlbackends_attention_problem Problem;

int bytes_of(int element) {
  switch (element) {
    case MLBACKENDS_ATTENTION_FLOAT32: return 4;
    case MLBACKENDS_ATTENTION_FLOAT64: return 8;
    case MLBACKENDS_ATTENTION_BOOL: return 1;
    default: return 2;
  }
}

struct Tensor {
  std::unique_ptr<char[]> memory;
  int64_t count;
  int element;

  Tensor(int64_t count_, int element_, unsigned seed) : memory(new char[count_ * bytes_of(element_)]), count(count_), element(element_) {
    for (int64_t i = 0; i < count; i++) {
      seed = seed * 1664525 + 1013904223;
      const float number = (float)(seed >> 8) / 8388608.0f - 1.0f;
      char *at = memory.get() + i * bytes_of(element);
      if (element == MLBACKENDS_ATTENTION_FLOAT32) memcpy(at, &number, 4);
      if (element == MLBACKENDS_ATTENTION_FLOAT64) { const double wide = number; memcpy(at, &wide, 8); }
      if (element == MLBACKENDS_ATTENTION_BFLOAT16) memcpy(at, (const char *)&number + 2, 2);
      if (element == MLBACKENDS_ATTENTION_FLOAT16) { const uint16_t half = (uint16_t)((seed & 0x8000) | 0x3000 | (seed >> 20 & 0x7ff)); memcpy(at, &half, 2); }
      if (element == MLBACKENDS_ATTENTION_BOOL) *at = (char)(seed >> 30 & 1);
    }
  }
  void *data() { return memory.get(); }
};

int compute(int level, int element, int length, int keys, int width, int value_width, int masking, int threads) {
  const int64_t batch = 2, heads = 4, key_heads = 2;
  Tensor query(batch * heads * length * width, element, 1), key(batch * key_heads * keys * width, element, 2);
  Tensor value(batch * key_heads * keys * value_width, element, 3), output(batch * heads * length * value_width, element, 4);
  const int wide = element == MLBACKENDS_ATTENTION_FLOAT64 ? 8 : 4;
  std::unique_ptr<char[]> logsumexp(new char[batch * heads * length * wide]);
  Problem p;
  memset(&p, 0, sizeof p);
  p.batch = batch, p.heads = heads, p.query_length = length, p.key_length = keys, p.head_dim = width, p.value_dim = value_width;
  p.key_group = p.value_group = heads / key_heads;
  const int64_t query_strides[] = {heads * length * width, (int64_t)length * width, width};
  const int64_t key_strides[] = {key_heads * keys * width, (int64_t)keys * width, width};
  const int64_t value_strides[] = {key_heads * keys * value_width, (int64_t)keys * value_width, value_width};
  const int64_t output_strides[] = {heads * length * value_width, (int64_t)length * value_width, value_width};
  memcpy(p.query_strides, query_strides, sizeof query_strides);
  memcpy(p.key_strides, key_strides, sizeof key_strides);
  memcpy(p.value_strides, value_strides, sizeof value_strides);
  memcpy(p.output_strides, output_strides, sizeof output_strides);
  p.query = query.data(), p.key = key.data(), p.value = value.data(), p.output = output.data();
  p.logsumexp = logsumexp.get();
  p.scale = 0.3, p.element = element, p.level = level, p.threads = threads;
  const int mask_element = masking == 2 ? (int)MLBACKENDS_ATTENTION_BOOL : element;
  Tensor mask(masking >= 2 ? (int64_t)length * keys : 0, mask_element, 5);
  if (masking == 1) p.causal = 1, p.diagonal = keys - length;
  if (masking >= 2) p.mask = mask.data(), p.mask_element = mask_element, p.mask_strides[2] = keys, p.mask_strides[3] = 1;
  const int64_t needed = mlbackends_attention_workspace(&p);
  std::unique_ptr<char[]> workspace(new char[needed]);
  p.workspace = workspace.get();
  int64_t next = 0;
  while (next >= 0) next = mlbackends_attention_forward(&p, next, 1);
  if (next != -1) return fprintf(stderr, "it returned %ld\n", (long)next), 1;
  for (int64_t row = 0; row < batch * heads * length; row++) {
    double sum;
    float narrow;
    memcpy(wide == 8 ? (void *)&sum : (void *)&narrow, logsumexp.get() + row * wide, wide);
    if (!isfinite(wide == 8 ? sum : (double)narrow)) return fprintf(stderr, "row %ld is not finite\n", (long)row), 1;
  }
  return 0;
}

struct Size {
  int length, keys, width, value_width;
};
const Size sizes[] = {{1, 1, 1, 1}, {1, 700, 33, 40}, {3, 1100, 64, 64}, {5, 17, 16, 3}, {20, 9, 8, 31}, {70, 300, 40, 33}, {130, 64, 64, 80}};

int grid(int threads) {
  for (int level = 0; mlbackends_attention_level_name(level); level++) {
    if (!mlbackends_attention_level_runs(level)) continue;
    for (int element = MLBACKENDS_ATTENTION_FLOAT32; element <= MLBACKENDS_ATTENTION_FLOAT64; element++)
      for (const Size &size : sizes)
        for (int masking = 0; masking < 4; masking++)
          if (compute(level, element, size.length, size.keys, size.width, size.value_width, masking, threads))
            return fprintf(stderr, "%s, element %d, %d rows, mask %d\n", mlbackends_attention_level_name(level), element, size.length, masking), 1;
  }
  return 0;
}

void *call(void *failed) {
  for (int round = 0; round < 20; round++)
    for (const Size &size : sizes)
      if (compute(0, MLBACKENDS_ATTENTION_FLOAT32, size.length, size.keys, size.width, size.value_width, round % 4, 1 + round % 4))
        __atomic_store_n((int *)failed, 1, __ATOMIC_RELAXED);
  return nullptr;
}

}  // namespace

int main(int count, char **words) {
  if (count > 1 && !strcmp(words[1], "address")) return grid(1);
  int failed = 0;
  std::vector<pthread_t> callers(4);
  for (pthread_t &caller : callers) pthread_create(&caller, nullptr, call, &failed);
  for (pthread_t &caller : callers) pthread_join(caller, nullptr);
  return failed;
}
