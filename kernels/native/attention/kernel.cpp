/* One instruction set's way through every problem: compiled once for each, with its flags and MLBACKENDS_LEVEL. */
#include "block.h"
#include "rows.h"

namespace {

/* Find a task's share by its number: chunks of one block follow each other, and blocks of one unit, the longest first
   where causal. */
Task find(const Plan &plan, int64_t number) {
  const mlbackends_attention_problem &p = *plan.problem;
  const int64_t split = number % plan.splits, place = number / plan.splits;
  const int64_t unit = place / plan.blocks;
  const int64_t block = p.causal ? plan.blocks - 1 - place % plan.blocks : place % plan.blocks;
  Task task;
  task.p = &p;
  task.batch = unit / plan.units_per_batch;
  task.head = unit % plan.units_per_batch * plan.heads_together;
  task.many_heads = plan.heads_together > 1;
  task.first_row = block * plan.block_rows;
  task.last_row = task.first_row + plan.block_rows < plan.rows ? task.first_row + plan.block_rows : plan.rows;
  task.first_key = split * plan.chunk;
  task.last_key = task.first_key + plan.chunk < p.key_length ? task.first_key + plan.chunk : p.key_length;
  task.partial = nullptr;
  return task;
}

template <class E, class P>
void compute(const Plan &plan, int64_t number, char *memory) {
  Task task = find(plan, number);
  Scratch scratch = {memory, 0};
  const int64_t place = number / plan.splits, split = number % plan.splits;
  const int64_t stride = plan.block_rows * partial_stride(*plan.problem);
  typedef typename E::Inner::Real Real;
  int32_t *done = (int32_t *)plan.problem->workspace;
  Real *partials = plan.splits > 1 ? (Real *)((char *)done + (plan.units * plan.blocks * 4 + 63) / 64 * 64) + place * plan.splits * stride : nullptr;
  if (partials) task.partial = partials + split * stride;
  if (plan.few_rows)
    Rows<E, P>(plan, task, scratch).run();
  else
    Block<E, P>(plan, task, scratch).run();
  if (!partials || __atomic_add_fetch(&done[place], 1, __ATOMIC_ACQ_REL) != plan.splits) return;
  Scratch again = {memory, 0};
  join<E>(task, partials, plan.splits, stride, again.take<Real>(plan.problem->value_dim));
}

template <class E, class P>
int64_t bytes(const Plan &plan) {
  const int64_t needed = plan.few_rows ? Rows<E, P>::scratch_bytes(plan) : Block<E, P>::scratch_bytes(plan);
  const int64_t joining = plan.problem->value_dim * (int64_t)sizeof(typename E::Inner::Real);
  return needed > joining ? needed : joining;
}

#if defined(MLBACKENDS_TILES)
typedef Tiles BrainProduct;
#elif defined(MLBACKENDS_BFLOAT16_PAIRS)
typedef Pairs BrainProduct;
#else
typedef Plain<Single> BrainProduct;
#endif

#define JOINED(first, second) first##second
#define NAMED(level) JOINED(mlbackends_attention_level_, level)
#define GRADIENTS_NAMED(level) JOINED(mlbackends_attention_gradients_level_, level)
#define QUOTED(level) #level
#define TEXT(level) QUOTED(level)

}  // namespace

/* A level that differs from another one, of the same vectors, in its products of bfloat16 alone has the rest from it. */
#if defined(MLBACKENDS_REST)

extern "C" const Level NAMED(MLBACKENDS_REST);

namespace {

bool is_own(const Plan *plan) { return plan->problem->element == MLBACKENDS_ATTENTION_BFLOAT16; }

void run(const Plan *plan, int64_t number, char *memory) {
  if (!is_own(plan)) return NAMED(MLBACKENDS_REST).run(plan, number, memory);
  compute<Brain, BrainProduct>(*plan, number, memory);
}

int64_t scratch_bytes(const Plan *plan) {
  return is_own(plan) ? bytes<Brain, BrainProduct>(*plan) : NAMED(MLBACKENDS_REST).scratch_bytes(plan);
}

}  // namespace

#else
#define MLBACKENDS_REST MLBACKENDS_LEVEL

namespace {

void run(const Plan *plan, int64_t number, char *memory) {
  switch (plan->problem->element) {
    case MLBACKENDS_ATTENTION_FLOAT32: return compute<Float, Plain<Single>>(*plan, number, memory);
    case MLBACKENDS_ATTENTION_FLOAT16: return compute<Half, Plain<Single>>(*plan, number, memory);
    case MLBACKENDS_ATTENTION_BFLOAT16: return compute<Brain, BrainProduct>(*plan, number, memory);
    case MLBACKENDS_ATTENTION_FLOAT64: return compute<Wide, Plain<Double>>(*plan, number, memory);
  }
}

int64_t scratch_bytes(const Plan *plan) {
  switch (plan->problem->element) {
    case MLBACKENDS_ATTENTION_FLOAT32: return bytes<Float, Plain<Single>>(*plan);
    case MLBACKENDS_ATTENTION_FLOAT16: return bytes<Half, Plain<Single>>(*plan);
    case MLBACKENDS_ATTENTION_BFLOAT16: return bytes<Brain, BrainProduct>(*plan);
    case MLBACKENDS_ATTENTION_FLOAT64: return bytes<Wide, Plain<Double>>(*plan);
  }
  return 0;
}

}  // namespace

#endif

extern "C" const GradientsLevel GRADIENTS_NAMED(MLBACKENDS_REST);
extern "C" const Level NAMED(MLBACKENDS_LEVEL);
const Level NAMED(MLBACKENDS_LEVEL) = {TEXT(MLBACKENDS_LEVEL), VECTOR_BYTES, &GRADIENTS_NAMED(MLBACKENDS_REST), scratch_bytes, run};
