/* One instruction set's way through every problem of gradients: compiled as kernel.cpp is. */
#include "gradients.h"

namespace {

template <class E>
void compute(const GradientsPartition &partition, const GradientsTask &task, char *memory) {
  Scratch scratch = {memory, 0};
  Gradients<E>(partition, scratch).run(task);
}

void run(const GradientsPartition *partition, const GradientsTask *task, char *memory) {
  switch (partition->problem->forward.element) {
    case MLBACKENDS_ATTENTION_FLOAT32: return compute<Float>(*partition, *task, memory);
    case MLBACKENDS_ATTENTION_FLOAT16: return compute<Half>(*partition, *task, memory);
    case MLBACKENDS_ATTENTION_BFLOAT16: return compute<Brain>(*partition, *task, memory);
    case MLBACKENDS_ATTENTION_FLOAT64: return compute<Wide>(*partition, *task, memory);
  }
}

int64_t scratch_bytes(const GradientsPartition *partition) {
  switch (partition->problem->forward.element) {
    case MLBACKENDS_ATTENTION_FLOAT32: return Gradients<Float>::scratch_bytes(*partition);
    case MLBACKENDS_ATTENTION_FLOAT16: return Gradients<Half>::scratch_bytes(*partition);
    case MLBACKENDS_ATTENTION_BFLOAT16: return Gradients<Brain>::scratch_bytes(*partition);
    case MLBACKENDS_ATTENTION_FLOAT64: return Gradients<Wide>::scratch_bytes(*partition);
  }
  return 0;
}

} // namespace

#define JOINED(first, second) first##second
#define NAMED(level) JOINED(mlbackends_attention_gradients_level_, level)

extern "C" const GradientsLevel NAMED(MLBACKENDS_LEVEL);
const GradientsLevel NAMED(MLBACKENDS_LEVEL) = {scratch_bytes, run};
