/* How gradients are cut into tasks and computed by threads. */
#include "levels.h"
#include "system.h"
#include "threads.h"

#include <string.h>

#include <atomic>
#include <new>

namespace {

/* The largest separate sums of the query's gradient for one thread, and its largest other memory
   about as much. */
constexpr int64_t most_sums_bytes = 256 << 10, most_keys_bytes = 256 << 10, most_rows_bytes = 192 << 10;

int64_t divide_up(int64_t number, int64_t by) { return (number + by - 1) / by; }

int64_t common_multiple(int64_t a, int64_t b) {
  int64_t first = a, second = b;
  while (second) {
    const int64_t rest = first % second;
    first = second;
    second = rest;
  }
  return a / first * b;
}

GradientsPartition partition_of(const GradientsProblem &problem) {
  const Problem &p = problem.forward;
  const bool wide = p.element == MLBACKENDS_ATTENTION_FLOAT64;
  const int64_t number = wide ? 8 : 4, lanes = level_of(p.level)->vector_bytes / number;
  GradientsPartition partition = {};
  partition.problem = &problem;
  partition.heads_together = common_multiple(p.key_group, p.value_group);
  partition.units_per_batch = p.heads / partition.heads_together;
  partition.units = p.batch * partition.units_per_batch;
  partition.sums_apart =
      p.element == MLBACKENDS_ATTENTION_FLOAT16 || p.element == MLBACKENDS_ATTENTION_BFLOAT16;
  /* The blocks depend on the problem and its level alone: they are the order in which is summed. */
  const int64_t widths = p.head_dim + p.value_dim;
  partition.block_keys = 512, partition.block_rows = 96;
  const int64_t copies =
      partition.sums_apart ? 2 : 1; /* the sums of a block of keys, and their widened copy */
  while (partition.block_keys > 64 && partition.block_keys * widths * number * copies > most_keys_bytes)
    partition.block_keys /= 2;
  while (partition.block_rows > 4 * lanes && partition.block_rows * 2 * widths * number > most_rows_bytes)
    partition.block_rows /= 2;
  partition.key_blocks = divide_up(p.key_length, partition.block_keys);
  partition.row_blocks = divide_up(p.query_length, partition.block_rows);
  partition.sums_bytes =
      partition.sums_apart
          ? divide_up(partition.heads_together * p.query_length * p.head_dim * number, 64) * 64
          : 0;
  const int64_t threads = p.threads > 1 ? p.threads : 1;
  const int64_t in_turn =
      divide_up(partition.units, threads) * threads; /* threads without a unit wait in the last turn */
  partition.one_pass = partition.sums_bytes <= most_sums_bytes && in_turn * 5 <= partition.units * 7;
  if (!partition.one_pass) {
    partition.key_tasks = partition.units * partition.key_blocks;
    partition.row_tasks = p.batch * p.heads * partition.row_blocks;
  }
  if (problem.mask) {
    partition.mask_batches = problem.mask_strides[0] ? p.batch : 1;
    partition.mask_heads = problem.mask_strides[1] ? p.heads : 1;
    partition.mask_row_blocks = problem.mask_strides[2] ? partition.row_blocks : 1;
    partition.mask_key_blocks = problem.mask_strides[3] ? partition.key_blocks : 1;
    partition.mask_tasks =
        partition.mask_batches * partition.mask_heads * partition.mask_row_blocks * partition.mask_key_blocks;
  }
  partition.tasks = partition.key_tasks + partition.row_tasks + partition.mask_tasks;
  return partition;
}

bool is_empty(const Problem &p) {
  return p.batch <= 0 || p.heads <= 0 || p.query_length <= 0 || p.key_length <= 0;
}

/* A unit that a thread has started; another thread may continue it after an interruption. */
struct Slot {
  int64_t unit, block; /* unit: -1 for none */
};

/* What is kept between calls, at the beginning of the workspace; then the slots, then their sums. */
struct State {
  std::atomic<int64_t> next_unit, next_task;
};

struct Job {
  const GradientsPartition *partition;
  const GradientsLevel *level;
  State *state;
  Slot *slots;
  char *sums;
  int64_t slot_count, end; /* end: of the time, in microseconds; 0 for none */
  std::atomic<int64_t> next_slot;
  std::atomic<bool> began;
};

bool is_over(const Job &job) { return job.end && microseconds() > job.end; }

/* Work at the units of one slot until none is left, or time is. */
void work_at(Job *job, int64_t number, char *scratch) {
  const GradientsPartition &partition = *job->partition;
  Slot &slot = job->slots[number];
  GradientsTask task = {START_UNIT, 0, 0, job->sums + number * partition.sums_bytes};
  for (;;) {
    if (is_over(*job)) return;
    if (slot.unit < 0) {
      const int64_t unit = job->state->next_unit.fetch_add(1, std::memory_order_relaxed);
      if (unit >= partition.units) return;
      slot = {unit, 0};
      task.unit = unit, task.kind = START_UNIT;
      job->level->run(&partition, &task, scratch);
    }
    task.unit = slot.unit;
    for (; slot.block < partition.key_blocks; slot.block++) {
      if (is_over(*job)) return;
      task.kind = KEYS_OF_UNIT, task.block = slot.block;
      job->level->run(&partition, &task, scratch);
    }
    task.kind = END_UNIT;
    job->level->run(&partition, &task, scratch);
    slot.unit = -1;
  }
}

GradientsTask numbered(const GradientsPartition &partition, int64_t number) {
  if (partition.refine_tasks)
    return {REFINE, number / partition.row_blocks, number % partition.row_blocks, nullptr};
  if (number < partition.key_tasks)
    return {KEYS, number / partition.key_blocks, number % partition.key_blocks, nullptr};
  number -= partition.key_tasks;
  if (number < partition.row_tasks)
    return {ROWS, number / partition.row_blocks, partition.row_blocks - 1 - number % partition.row_blocks,
            nullptr};
  return {MASK, number - partition.row_tasks, 0, nullptr};
}

void work(void *given) {
  Job *job = (Job *)given;
  const GradientsPartition &partition = *job->partition;
  char *scratch = take_scratch(job->level->scratch_bytes(&partition));
  if (!scratch) return;
  job->began.store(true, std::memory_order_relaxed);
  for (;;) {
    const int64_t slot = job->next_slot.fetch_add(1, std::memory_order_relaxed);
    if (slot >= job->slot_count) break;
    work_at(job, slot, scratch);
  }
  while (!is_over(*job)) {
    const int64_t number = job->state->next_task.fetch_add(1, std::memory_order_relaxed);
    if (number >= partition.tasks) break;
    const GradientsTask task = numbered(partition, number);
    job->level->run(&partition, &task, scratch);
  }
  give_scratch(scratch);
}

int64_t slots_of(const GradientsPartition &partition) {
  const int64_t threads = partition.problem->forward.threads;
  return !partition.one_pass ? 0 : threads > 1 ? threads : 1;
}

int64_t head_bytes(int64_t slots) { return divide_up(sizeof(State) + slots * sizeof(Slot), 64) * 64; }

} // namespace

EXPORTED int64_t mlbackends_attention_gradients_workspace(const GradientsProblem *problem) {
  if (is_empty(problem->forward)) return 0;
  const GradientsPartition partition = partition_of(*problem);
  return head_bytes(slots_of(partition)) + slots_of(partition) * partition.sums_bytes;
}

EXPORTED int64_t mlbackends_attention_gradients_scratch(const GradientsProblem *problem) {
  if (is_empty(problem->forward)) return 0;
  const GradientsPartition partition = partition_of(*problem);
  return level_of(problem->forward.level)->gradients->scratch_bytes(&partition) +
         (partition.one_pass ? partition.sums_bytes : 0);
}

static int64_t advance(const GradientsPartition &partition, int64_t from, int64_t milliseconds) {
  const GradientsProblem *problem = partition.problem;
  Job job = {};
  job.partition = &partition;
  job.level = level_of(problem->forward.level)->gradients;
  job.state = (State *)problem->forward.workspace;
  job.slots = (Slot *)(job.state + 1);
  job.slot_count = slots_of(partition);
  job.sums = (char *)problem->forward.workspace + head_bytes(job.slot_count);
  job.end = milliseconds ? microseconds() + 1000 * milliseconds : 0;
  if (from == 0) {
    new (job.state) State{{partition.one_pass ? 0 : partition.units}, {0}};
    for (int64_t i = 0; i < job.slot_count; i++) job.slots[i] = {-1, 0};
  }
  const int64_t most = partition.one_pass ? partition.units + partition.tasks : partition.tasks,
                threads = problem->forward.threads;
  with_helpers((int)(threads < most ? threads : most) - 1, work, &job, problem->forward.parallel);
  bool done = job.state->next_unit >= partition.units && job.state->next_task >= partition.tasks;
  for (int64_t i = 0; i < job.slot_count; i++) done &= job.slots[i].unit < 0;
  return done ? -1 : job.began ? 1 : -2;
}

EXPORTED int64_t mlbackends_attention_refine(const GradientsProblem *problem, int64_t from,
                                             int64_t milliseconds) {
  if (is_empty(problem->forward)) return -1;
  GradientsPartition partition = partition_of(*problem);
  partition.one_pass = false;
  partition.tasks = partition.refine_tasks =
      problem->forward.batch * problem->forward.heads * partition.row_blocks;
  return advance(partition, from, milliseconds);
}

EXPORTED int64_t mlbackends_attention_backward(const GradientsProblem *problem, int64_t from,
                                               int64_t milliseconds) {
  return is_empty(problem->forward) ? -1 : advance(partition_of(*problem), from, milliseconds);
}
