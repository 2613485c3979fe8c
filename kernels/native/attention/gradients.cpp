/* How gradients are cut into tasks and computed by threads. */
#include "gradients_plan.h"
#include "levels.h"
#include "scratch_pool.h"
#include "threads.h"

#include <string.h>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

typedef mlbackends_attention_gradients Problem;

/* Sums of the query's gradient that are kept apart for one thread may take so much, and its other memory about as much. */
constexpr int64_t most_sums_bytes = 256 << 10, most_keys_bytes = 256 << 10, most_rows_bytes = 192 << 10;

int64_t divided(int64_t number, int64_t by) { return (number + by - 1) / by; }

int64_t common_multiple(int64_t a, int64_t b) {
  int64_t first = a, second = b;
  while (second) {
    const int64_t rest = first % second;
    first = second;
    second = rest;
  }
  return a / first * b;
}

GradientsPlan planned(const Problem &problem) {
  const mlbackends_attention_problem &p = problem.forward;
  const bool wide = p.element == MLBACKENDS_ATTENTION_FLOAT64;
  const int64_t number = wide ? 8 : 4, lanes = level_of(p.level)->vector_bytes / number;
  GradientsPlan plan = {};
  plan.problem = &problem;
  plan.heads_together = common_multiple(p.key_group, p.value_group);
  plan.units_per_batch = p.heads / plan.heads_together;
  plan.units = p.batch * plan.units_per_batch;
  plan.sums_apart = p.element == MLBACKENDS_ATTENTION_FLOAT16 || p.element == MLBACKENDS_ATTENTION_BFLOAT16;
  /* The blocks depend on the problem and its level alone: they are the order in which is summed. */
  const int64_t widths = p.head_dim + p.value_dim;
  plan.block_keys = 512, plan.block_rows = 96;
  const int64_t copies = plan.sums_apart ? 2 : 1; /* beside the sums of a block of keys, what they are widened to */
  while (plan.block_keys > 64 && plan.block_keys * widths * number * copies > most_keys_bytes) plan.block_keys /= 2;
  while (plan.block_rows > 4 * lanes && plan.block_rows * 2 * widths * number > most_rows_bytes) plan.block_rows /= 2;
  plan.key_blocks = divided(p.key_length, plan.block_keys);
  plan.row_blocks = divided(p.query_length, plan.block_rows);
  plan.sums_bytes = plan.sums_apart ? divided(plan.heads_together * p.query_length * p.head_dim * number, 64) * 64 : 0;
  const int64_t threads = p.threads > 1 ? p.threads : 1;
  const int64_t in_turn = divided(plan.units, threads) * threads; /* threads without a unit wait in the last turn */
  plan.one_pass = plan.sums_bytes <= most_sums_bytes && in_turn * 5 <= plan.units * 7;
  if (!plan.one_pass) {
    plan.key_tasks = plan.units * plan.key_blocks;
    plan.row_tasks = p.batch * p.heads * plan.row_blocks;
  }
  if (problem.mask) {
    plan.mask_batches = problem.mask_strides[0] ? p.batch : 1;
    plan.mask_heads = problem.mask_strides[1] ? p.heads : 1;
    plan.mask_row_blocks = problem.mask_strides[2] ? plan.row_blocks : 1;
    plan.mask_key_blocks = problem.mask_strides[3] ? plan.key_blocks : 1;
    plan.mask_tasks = plan.mask_batches * plan.mask_heads * plan.mask_row_blocks * plan.mask_key_blocks;
  }
  plan.tasks = plan.key_tasks + plan.row_tasks + plan.mask_tasks;
  return plan;
}

bool is_empty(const mlbackends_attention_problem &p) {
  return p.batch <= 0 || p.heads <= 0 || p.query_length <= 0 || p.key_length <= 0;
}

/* A unit that a thread has begun; it may be another thread that goes on with it after an interruption. */
struct Slot {
  int64_t unit, block; /* unit: -1 for none */
};

/* What is kept between calls, at the beginning of the workspace; then the slots, then their sums. */
struct State {
  int64_t next_unit, next_task;
};

struct Job {
  const GradientsPlan *plan;
  const GradientsLevel *level;
  State *state;
  Slot *slots;
  char *sums;
  int64_t next_slot, slot_count, end; /* end: of the time, in microseconds; 0 for none */
  int began;
};

bool is_over(const Job &job) { return job.end && microseconds() > job.end; }

/* Work at the units of one slot until none is left, or time is. */
void work_at(Job *job, int64_t number, char *scratch) {
  const GradientsPlan &plan = *job->plan;
  Slot &slot = job->slots[number];
  GradientsTask task = {START_UNIT, 0, 0, job->sums + number * plan.sums_bytes};
  for (;;) {
    if (is_over(*job)) return;
    if (slot.unit < 0) {
      const int64_t unit = __atomic_fetch_add(&job->state->next_unit, 1, __ATOMIC_RELAXED);
      if (unit >= plan.units) return;
      slot = {unit, 0};
      task.unit = unit, task.kind = START_UNIT;
      job->level->run(&plan, &task, scratch);
    }
    task.unit = slot.unit;
    for (; slot.block < plan.key_blocks; slot.block++) {
      if (is_over(*job)) return;
      task.kind = KEYS_OF_UNIT, task.block = slot.block;
      job->level->run(&plan, &task, scratch);
    }
    task.kind = END_UNIT;
    job->level->run(&plan, &task, scratch);
    slot.unit = -1;
  }
}

GradientsTask numbered(const GradientsPlan &plan, int64_t number) {
  if (plan.refine_tasks) return {REFINE, number / plan.row_blocks, number % plan.row_blocks, nullptr};
  if (number < plan.key_tasks) return {KEYS, number / plan.key_blocks, number % plan.key_blocks, nullptr};
  number -= plan.key_tasks;
  if (number < plan.row_tasks) return {ROWS, number / plan.row_blocks, plan.row_blocks - 1 - number % plan.row_blocks, nullptr};
  return {MASK, number - plan.row_tasks, 0, nullptr};
}

void work(void *given) {
  Job *job = (Job *)given;
  const GradientsPlan &plan = *job->plan;
  char *scratch = take_scratch(job->level->scratch_bytes(&plan));
  if (!scratch) return;
  __atomic_store_n(&job->began, 1, __ATOMIC_RELAXED);
  for (;;) {
    const int64_t slot = __atomic_fetch_add(&job->next_slot, 1, __ATOMIC_RELAXED);
    if (slot >= job->slot_count) break;
    work_at(job, slot, scratch);
  }
  while (!is_over(*job)) {
    const int64_t number = __atomic_fetch_add(&job->state->next_task, 1, __ATOMIC_RELAXED);
    if (number >= plan.tasks) break;
    const GradientsTask task = numbered(plan, number);
    job->level->run(&plan, &task, scratch);
  }
  give_scratch(scratch);
}

int64_t slots_of(const GradientsPlan &plan) {
  const int64_t threads = plan.problem->forward.threads;
  return !plan.one_pass ? 0 : threads > 1 ? threads : 1;
}

int64_t head_bytes(int64_t slots) { return divided(sizeof(State) + slots * sizeof(Slot), 64) * 64; }

}  // namespace

EXPORTED int64_t mlbackends_attention_gradients_workspace(const Problem *problem) {
  if (is_empty(problem->forward)) return 0;
  const GradientsPlan plan = planned(*problem);
  return head_bytes(slots_of(plan)) + slots_of(plan) * plan.sums_bytes;
}

EXPORTED int64_t mlbackends_attention_gradients_scratch(const Problem *problem) {
  if (is_empty(problem->forward)) return 0;
  const GradientsPlan plan = planned(*problem);
  return level_of(problem->forward.level)->gradients->scratch_bytes(&plan) + (plan.one_pass ? plan.sums_bytes : 0);
}

static int64_t advance(const GradientsPlan &plan, int64_t from, int64_t milliseconds) {
  const Problem *problem = plan.problem;
  Job job = {};
  job.plan = &plan;
  job.level = level_of(problem->forward.level)->gradients;
  job.state = (State *)problem->forward.workspace;
  job.slots = (Slot *)(job.state + 1);
  job.slot_count = slots_of(plan);
  job.sums = (char *)problem->forward.workspace + head_bytes(job.slot_count);
  job.end = milliseconds ? microseconds() + 1000 * milliseconds : 0;
  if (from == 0) {
    *job.state = {plan.one_pass ? 0 : plan.units, 0};
    for (int64_t i = 0; i < job.slot_count; i++) job.slots[i] = {-1, 0};
  }
  const int64_t most = plan.one_pass ? plan.units + plan.tasks : plan.tasks, threads = problem->forward.threads;
  with_helpers((int)(threads < most ? threads : most) - 1, work, &job);
  bool done = job.state->next_unit >= plan.units && job.state->next_task >= plan.tasks;
  for (int64_t i = 0; i < job.slot_count; i++) done &= job.slots[i].unit < 0;
  return done ? -1 : job.began ? 1 : -2;
}

EXPORTED int64_t mlbackends_attention_refine(const Problem *problem, int64_t from, int64_t milliseconds) {
  if (is_empty(problem->forward)) return -1;
  GradientsPlan plan = planned(*problem);
  plan.one_pass = false;
  plan.tasks = plan.refine_tasks = problem->forward.batch * problem->forward.heads * plan.row_blocks;
  return advance(plan, from, milliseconds);
}

EXPORTED int64_t mlbackends_attention_backward(const Problem *problem, int64_t from, int64_t milliseconds) {
  return is_empty(problem->forward) ? -1 : advance(planned(*problem), from, milliseconds);
}
