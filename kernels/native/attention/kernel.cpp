/* One instruction set's way through every problem: compiled once for each, with its flags and
   MLBACKENDS_LEVEL. */
#include "block.h"
#include "rows.h"

#include <atomic>

namespace {

/* Find a task's share by its number: chunks of one block follow each other, and blocks of one unit, the
   longest first where rows see no key behind them. */
Task find(const Partition &partition, int64_t number) {
  const Problem &p = *partition.problem;
  const int64_t split = number % partition.splits, place = number / partition.splits;
  const int64_t unit = place / partition.blocks;
  const int64_t from_first = place % partition.blocks;
  const int64_t block = p.window[1] < p.key_length ? partition.blocks - 1 - from_first : from_first;
  Task task;
  task.p = &p;
  task.batch = unit / partition.units_per_batch;
  task.head = unit % partition.units_per_batch * partition.heads_together;
  task.many_heads = partition.heads_together > 1;
  task.own = sequence_of(p, task.batch);
  task.first_row = block * partition.block_rows;
  task.last_row = clamp(task.first_row + partition.block_rows, partition.heads_together * task.own.rows);
  const Range seen = keys_in_windows(p, task.own);
  task.first_key = seen.first + split * partition.chunk;
  task.last_key = clamp(task.first_key + partition.chunk, seen.end);
  task.partial = nullptr;
  return task;
}

template <class E, class P>
void compute(const Partition &partition, int64_t number, char *memory) {
  Task task = find(partition, number);
  if (task.first_row >= task.last_row) return; /* others are longer */
  Scratch scratch = {memory, 0};
  const int64_t place = number / partition.splits, split = number % partition.splits;
  const int64_t stride = partition.block_rows * partial_stride(*partition.problem);
  typedef typename E::Inner::Real Real;
  /* How many tasks of each block are done: the workspace begins with zeros for them. */
  auto *done = (std::atomic<int32_t> *)partition.problem->workspace;
  Real *partials = partition.splits > 1
                       ? (Real *)((char *)done + (partition.units * partition.blocks * 4 + 63) / 64 * 64) +
                             place * partition.splits * stride
                       : nullptr;
  if (partials) task.partial = partials + split * stride;
  if (partition.few_rows)
    Rows<E, P>(partition, task, scratch).run();
  else
    Block<E, P>(partition, task, scratch).run();
  if (!partials || done[place].fetch_add(1, std::memory_order_acq_rel) + 1 != partition.splits) return;
  Scratch again = {memory, 0};
  join<E>(task, partials, partition.splits, stride, again.take<Real>(partition.problem->value_dim));
}

template <class E, class P>
int64_t bytes(const Partition &partition) {
  const int64_t needed =
      partition.few_rows ? Rows<E, P>::scratch_bytes(partition) : Block<E, P>::scratch_bytes(partition);
  const int64_t joining = partition.problem->value_dim * (int64_t)sizeof(typename E::Inner::Real);
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

} // namespace

/* A level that differs from another one, of the same vectors, in its products of bfloat16 alone has the rest
   from it. */
#if defined(MLBACKENDS_REST)

extern "C" const Level NAMED(MLBACKENDS_REST);

namespace {

bool is_own(const Partition *partition) {
  return partition->problem->element == MLBACKENDS_ATTENTION_BFLOAT16;
}

void run(const Partition *partition, int64_t number, char *memory) {
  if (!is_own(partition)) return NAMED(MLBACKENDS_REST).run(partition, number, memory);
  compute<Brain, BrainProduct>(*partition, number, memory);
}

int64_t scratch_bytes(const Partition *partition) {
  return is_own(partition) ? bytes<Brain, BrainProduct>(*partition)
                           : NAMED(MLBACKENDS_REST).scratch_bytes(partition);
}

} // namespace

#else
#define MLBACKENDS_REST MLBACKENDS_LEVEL

namespace {

void run(const Partition *partition, int64_t number, char *memory) {
  switch (partition->problem->element) {
    case MLBACKENDS_ATTENTION_FLOAT32: return compute<Float, Plain<Single> >(*partition, number, memory);
    case MLBACKENDS_ATTENTION_FLOAT16: return compute<Half, Plain<Single> >(*partition, number, memory);
    case MLBACKENDS_ATTENTION_BFLOAT16: return compute<Brain, BrainProduct>(*partition, number, memory);
    case MLBACKENDS_ATTENTION_FLOAT64: return compute<Wide, Plain<Double> >(*partition, number, memory);
  }
}

int64_t scratch_bytes(const Partition *partition) {
  switch (partition->problem->element) {
    case MLBACKENDS_ATTENTION_FLOAT32: return bytes<Float, Plain<Single> >(*partition);
    case MLBACKENDS_ATTENTION_FLOAT16: return bytes<Half, Plain<Single> >(*partition);
    case MLBACKENDS_ATTENTION_BFLOAT16: return bytes<Brain, BrainProduct>(*partition);
    case MLBACKENDS_ATTENTION_FLOAT64: return bytes<Wide, Plain<Double> >(*partition);
  }
  return 0;
}

} // namespace

#endif

extern "C" const GradientsLevel GRADIENTS_NAMED(MLBACKENDS_REST);
extern "C" const Level NAMED(MLBACKENDS_LEVEL);
const Level NAMED(MLBACKENDS_LEVEL) = {TEXT(MLBACKENDS_LEVEL), VECTOR_BYTES,
                                       &GRADIENTS_NAMED(MLBACKENDS_REST), scratch_bytes, run};
