/* The machine at its best, which speeds are held to: multiply-adds in registers, and reading of memory. One
   thread each. */
#include "levels.h"
#include "system.h"

namespace {

typedef float Four __attribute__((vector_size(16)));
typedef float Eight __attribute__((vector_size(32)));
typedef float Sixteen __attribute__((vector_size(64)));
typedef uint64_t Line __attribute__((vector_size(64), aligned(8), may_alias));

volatile float kept;

/* Enough sums at once to hide the latency of a multiply-add, and few enough to stay in registers. */
#define MULTIPLY_ADDS(Vector, sums)                                                           \
  Vector sum[sums];                                                                           \
  for (int i = 0; i < sums; i++) sum[i] = Vector{} + (float)i;                                \
  const Vector factor = Vector{} + .999f, added = Vector{} + .001f;                           \
  for (int64_t round = 0; round < rounds; round++) {                                          \
    _Pragma("GCC unroll 16") for (int i = 0; i < sums; i++) sum[i] = sum[i] * factor + added; \
  }                                                                                           \
  for (int i = 1; i < sums; i++) sum[0] += sum[i];                                            \
  kept = sum[0][0];                                                                           \
  return 2 * sums * (int64_t)(sizeof(Vector) / sizeof(float))

#if defined(__x86_64__)
__attribute__((target("avx512f"))) int64_t with_avx512(int64_t rounds) { MULTIPLY_ADDS(Sixteen, 16); }
__attribute__((target("avx2,fma"))) int64_t with_avx2(int64_t rounds) { MULTIPLY_ADDS(Eight, 12); }
#endif
int64_t with_any(int64_t rounds) { MULTIPLY_ADDS(Four, 12); }

} // namespace

/* Compute for a number of rounds, and return the floating-point operations of one round. */
EXPORTED int64_t mlbackends_attention_multiply_adds(int64_t rounds) {
#if defined(__x86_64__)
  if (has_avx512()) return with_avx512(rounds);
  if (has_avx2()) return with_avx2(rounds);
#endif
  return with_any(rounds);
}

/* Read a number of bytes, a multiple of 256, and return their sum. */
EXPORTED uint64_t mlbackends_attention_read(const void *memory, int64_t bytes) {
  const Line *line = (const Line *)memory;
  Line sum[4] = {};
  for (int64_t i = 0; i < bytes / (int64_t)sizeof(Line); i += 4)
    for (int j = 0; j < 4; j++) sum[j] += line[i + j];
  uint64_t whole = 0;
  for (int j = 0; j < 4; j++)
    for (int k = 0; k < 8; k++) whole += sum[j][k];
  return whole;
}
