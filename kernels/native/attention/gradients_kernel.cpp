/* One instruction set's way through every problem of gradients: compiled as kernel.cpp is. */
#include "gradients.h"

namespace {

template <class E>
void compute(const GradientsPlan &plan, const GradientsTask &task, char *memory) {
  Scratch scratch = {memory, 0};
  Gradients<E>(plan, scratch).run(task);
}

void run(const GradientsPlan *plan, const GradientsTask *task, char *memory) {
  switch (plan->problem->forward.element) {
    case MLBACKENDS_ATTENTION_FLOAT32: return compute<Float>(*plan, *task, memory);
    case MLBACKENDS_ATTENTION_FLOAT16: return compute<Half>(*plan, *task, memory);
    case MLBACKENDS_ATTENTION_BFLOAT16: return compute<Brain>(*plan, *task, memory);
    case MLBACKENDS_ATTENTION_FLOAT64: return compute<Wide>(*plan, *task, memory);
  }
}

int64_t scratch_bytes(const GradientsPlan *plan) {
  switch (plan->problem->forward.element) {
    case MLBACKENDS_ATTENTION_FLOAT32: return Gradients<Float>::scratch_bytes(*plan);
    case MLBACKENDS_ATTENTION_FLOAT16: return Gradients<Half>::scratch_bytes(*plan);
    case MLBACKENDS_ATTENTION_BFLOAT16: return Gradients<Brain>::scratch_bytes(*plan);
    case MLBACKENDS_ATTENTION_FLOAT64: return Gradients<Wide>::scratch_bytes(*plan);
  }
  return 0;
}

}  // namespace

#define JOINED(first, second) first##second
#define NAMED(level) JOINED(mlbackends_attention_gradients_level_, level)

extern "C" const GradientsLevel NAMED(MLBACKENDS_LEVEL);
const GradientsLevel NAMED(MLBACKENDS_LEVEL) = {scratch_bytes, run};
