/* What the library offers: which instruction sets run here, how a problem is cut, and its computation. */
#include "levels.h"
#include "scratch_pool.h"
#include "threads.h"

#include <string.h>
#include <time.h>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

int64_t divided(int64_t number, int64_t by) { return (number + by - 1) / by; }

int64_t common_divisor(int64_t a, int64_t b) {
  while (b) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Heads that share key and value are taken together where their queries are so short that they fill no block. */
constexpr int64_t short_query = 64, fewest_tasks = 32, split_tasks = 64, shortest_chunk = 512, most_split_rows = 32;

Plan planned(const mlbackends_attention_problem &p) {
  const Level &level = *level_of(p.level);
  const int64_t lanes = level.vector_bytes / (p.element == MLBACKENDS_ATTENTION_FLOAT64 ? 8 : 4);
  const int64_t shared = common_divisor(p.key_group, p.value_group);
  Plan plan;
  plan.problem = &p;
  plan.heads_together = p.query_length < short_query ? shared : 1;
  plan.units_per_batch = p.heads / plan.heads_together;
  plan.units = p.batch * plan.units_per_batch;
  plan.rows = plan.heads_together * p.query_length;
  plan.few_rows = plan.rows <= (lanes < 8 ? lanes : 8);
  /* 16-bit elements are widened once a block. */
  const bool widened = p.element == MLBACKENDS_ATTENTION_FLOAT16 || p.element == MLBACKENDS_ATTENTION_BFLOAT16;
  const int64_t width = p.head_dim > p.value_dim ? p.head_dim : p.value_dim;
  int64_t most = widened ? 256 : 192;
  const int64_t shares = p.threads > 1 ? 4 * p.threads : 1;
  while (most > 2 * lanes && (most * width * 4 > 131072 || plan.units * divided(plan.rows, most) < shares)) most /= 2;
  plan.blocks = divided(plan.rows, most);
  plan.block_rows = divided(divided(plan.rows, plan.blocks), lanes) * lanes;
  if (plan.block_rows > plan.rows) plan.block_rows = plan.rows;
  plan.blocks = divided(plan.rows, plan.block_rows);
  plan.splits = 1;
  const int64_t tasks = plan.units * plan.blocks;
  if (tasks < fewest_tasks && plan.block_rows <= most_split_rows && p.key_length >= 2 * shortest_chunk) {
    const int64_t wanted = divided(split_tasks, tasks), most = p.key_length / shortest_chunk;
    plan.splits = wanted < most ? wanted : most;
  }
  plan.chunk = plan.splits > 1 ? divided(divided(p.key_length, plan.splits), 128) * 128 : p.key_length;
  plan.splits = plan.chunk ? divided(p.key_length, plan.chunk) : 1;
  plan.tasks = tasks * plan.splits;
  return plan;
}

bool is_empty(const mlbackends_attention_problem &p) {
  return p.batch <= 0 || p.heads <= 0 || p.query_length <= 0 || p.value_dim <= 0;
}

int64_t counters_bytes(const Plan &plan) { return divided(plan.units * plan.blocks * 4, 64) * 64; }

int64_t workspace_bytes(const Plan &plan) {
  if (plan.splits <= 1) return 0;
  const int64_t number = plan.problem->element == MLBACKENDS_ATTENTION_FLOAT64 ? 8 : 4;
  return counters_bytes(plan) + plan.tasks * plan.block_rows * partial_stride(*plan.problem) * number;
}

struct Job {
  const Plan *plan;
  const Level *level;
  int64_t next, end; /* end: of the time, in microseconds; 0 for none */
  int lacks_memory;
};

void work(void *given) {
  Job *job = (Job *)given;
  if (__atomic_load_n(&job->next, __ATOMIC_RELAXED) >= job->plan->tasks) return;
  char *scratch = take_scratch(job->level->scratch_bytes(job->plan));
  if (!scratch) {
    __atomic_store_n(&job->lacks_memory, 1, __ATOMIC_RELAXED);
    return;
  }
  for (;;) {
    if (job->end && microseconds() > job->end) break;
    const int64_t task = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
    if (task >= job->plan->tasks) break;
    job->level->run(job->plan, task, scratch);
  }
  give_scratch(scratch);
}

}  // namespace

int64_t microseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

EXPORTED int32_t mlbackends_attention_abi(void) { return MLBACKENDS_ATTENTION_ABI; }

EXPORTED const char *mlbackends_attention_level_name(int32_t level) {
  const Level *found = level_of(level);
  return found ? found->name : nullptr;
}

EXPORTED int32_t mlbackends_attention_level_runs(int32_t level) { return level_runs(level); }

EXPORTED int64_t mlbackends_attention_workspace(const mlbackends_attention_problem *problem) {
  return is_empty(*problem) ? 0 : workspace_bytes(planned(*problem));
}

EXPORTED int64_t mlbackends_attention_scratch(const mlbackends_attention_problem *problem) {
  if (is_empty(*problem)) return 0;
  const Plan plan = planned(*problem);
  return level_of(problem->level)->scratch_bytes(&plan);
}

EXPORTED int64_t mlbackends_attention_forward(const mlbackends_attention_problem *problem, int64_t first, int64_t milliseconds) {
  if (is_empty(*problem)) return -1;
  const Plan plan = planned(*problem);
  if (plan.splits > 1 && !problem->workspace) return -3;
  if (plan.splits > 1 && first == 0) memset(problem->workspace, 0, (size_t)counters_bytes(plan));
  Job job = {&plan, level_for(*problem), first, milliseconds ? microseconds() + 1000 * milliseconds : 0, 0};
  const int64_t left = plan.tasks - first;
  const int64_t threads = problem->threads < left ? problem->threads : left;
  with_helpers((int)threads - 1, work, &job);
  if (job.next >= plan.tasks) return -1;
  return job.lacks_memory && job.next == first ? -2 : job.next;
}
