/* What the library offers: which instruction sets run here, how a problem is cut, and its computation. */
#include "levels.h"
#include "system.h"
#include "threads.h"

#include <string.h>

#include <atomic>

namespace {

int64_t divide_up(int64_t number, int64_t by) { return (number + by - 1) / by; }

int64_t common_divisor(int64_t a, int64_t b) {
  while (b) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Heads that share key and value are taken together where their queries are so short that they fill no
   block. */
constexpr int64_t short_query = 64, fewest_tasks = 32, split_tasks = 64, shortest_chunk = 512,
                  most_split_rows = 32;
/* Signals are handled between tasks: of keys that are one row in memory there may be 2^40. So many are split
   for blocks of few rows, whatever their number; the workspace has a place for each row and chunk. */
constexpr int64_t longest_chunk = 1 << 22, most_chunks = 1 << 17;

Partition partition_of(const Problem &p) {
  const Level &level = *level_of(p.level);
  const int64_t lanes = level.vector_bytes / (p.element == MLBACKENDS_ATTENTION_FLOAT64 ? 8 : 4);
  const int64_t shared = common_divisor(p.key_group, p.value_group);
  Partition partition;
  partition.problem = &p;
  partition.heads_together = p.query_length < short_query ? shared : 1;
  partition.units_per_batch = p.heads / partition.heads_together;
  partition.units = p.batch * partition.units_per_batch;
  partition.rows = partition.heads_together * p.query_length;
  partition.few_rows = partition.rows <= (lanes < 8 ? lanes : 8);
  /* 16-bit elements are widened once a block. */
  const bool widened =
      p.element == MLBACKENDS_ATTENTION_FLOAT16 || p.element == MLBACKENDS_ATTENTION_BFLOAT16;
  const int64_t width = p.head_dim > p.value_dim ? p.head_dim : p.value_dim;
  const bool is_endless = p.key_length >= 4 * longest_chunk;
  int64_t most = is_endless ? most_split_rows : widened ? 256 : 192;
  const int64_t shares = p.threads > 1 ? 4 * p.threads : 1;
  while (most > 2 * lanes &&
         (most * width * 4 > 131072 || partition.units * divide_up(partition.rows, most) < shares))
    most /= 2;
  partition.blocks = divide_up(partition.rows, most);
  partition.block_rows = divide_up(divide_up(partition.rows, partition.blocks), lanes) * lanes;
  if (partition.block_rows > partition.rows) partition.block_rows = partition.rows;
  partition.blocks = divide_up(partition.rows, partition.block_rows);
  partition.splits = 1;
  const int64_t tasks = partition.units * partition.blocks;
  int64_t keys = 0; /* the most that a sequence sees */
  for (int64_t batch = 0; batch < (p.key_offsets ? p.batch : 1); batch++) {
    const Range seen = keys_in_windows(p, sequence_of(p, batch));
    if (seen.end - seen.first > keys) keys = seen.end - seen.first;
  }
  const bool are_few = tasks < fewest_tasks && partition.block_rows <= most_split_rows;
  if (are_few && keys >= 2 * shortest_chunk) {
    const int64_t wanted = divide_up(split_tasks, tasks), most = keys / shortest_chunk;
    partition.splits = wanted < most ? wanted : most;
  }
  const int64_t chunks = keys / longest_chunk;
  if (is_endless && partition.splits < chunks) partition.splits = chunks < most_chunks ? chunks : most_chunks;
  partition.chunk = partition.splits > 1 ? divide_up(divide_up(keys, partition.splits), 128) * 128 : keys;
  partition.splits = partition.chunk ? divide_up(keys, partition.chunk) : 1;
  partition.tasks = tasks * partition.splits;
  return partition;
}

bool is_empty(const Problem &p) {
  return p.batch <= 0 || p.heads <= 0 || p.query_length <= 0 || p.value_dim <= 0;
}

int64_t counters_bytes(const Partition &partition) {
  return divide_up(partition.units * partition.blocks * 4, 64) * 64;
}

int64_t workspace_bytes(const Partition &partition) {
  if (partition.splits <= 1) return 0;
  const int64_t number = partition.problem->element == MLBACKENDS_ATTENTION_FLOAT64 ? 8 : 4;
  return counters_bytes(partition) +
         partition.tasks * partition.block_rows * partial_stride(*partition.problem) * number;
}

struct Job {
  const Partition *partition;
  const Level *level;
  std::atomic<int64_t> next;
  int64_t end; /* of the time, in microseconds; 0 for none */
  std::atomic<bool> lacks_memory;
};

void work(void *given) {
  Job *job = (Job *)given;
  if (job->next.load(std::memory_order_relaxed) >= job->partition->tasks) return;
  char *scratch = take_scratch(job->level->scratch_bytes(job->partition));
  if (!scratch) {
    job->lacks_memory.store(true, std::memory_order_relaxed);
    return;
  }
  for (;;) {
    if (job->end && microseconds() > job->end) break;
    const int64_t task = job->next.fetch_add(1, std::memory_order_relaxed);
    if (task >= job->partition->tasks) break;
    job->level->run(job->partition, task, scratch);
  }
  give_scratch(scratch);
}

} // namespace

EXPORTED int32_t mlbackends_attention_abi(void) { return MLBACKENDS_ATTENTION_ABI; }

EXPORTED const char *mlbackends_attention_level_name(int32_t level) {
  const Level *found = level_of(level);
  return found ? found->name : nullptr;
}

EXPORTED int32_t mlbackends_attention_level_runs(int32_t level) { return level_runs(level); }

EXPORTED const char *mlbackends_attention_missing_level(int32_t number) { return missing_level(number); }

EXPORTED int64_t mlbackends_attention_workspace(const Problem *problem) {
  return is_empty(*problem) ? 0 : workspace_bytes(partition_of(*problem));
}

EXPORTED int64_t mlbackends_attention_scratch(const Problem *problem) {
  if (is_empty(*problem)) return 0;
  const Partition partition = partition_of(*problem);
  return level_of(problem->level)->scratch_bytes(&partition);
}

EXPORTED int64_t mlbackends_attention_forward(const Problem *problem, int64_t first, int64_t milliseconds) {
  if (is_empty(*problem)) return -1;
  const Partition partition = partition_of(*problem);
  if (partition.splits > 1 && !problem->workspace) return -3;
  if (partition.splits > 1 && first == 0) memset(problem->workspace, 0, (size_t)counters_bytes(partition));
  const int64_t end = milliseconds ? microseconds() + 1000 * milliseconds : 0;
  Job job = {&partition, level_for(*problem), {first}, end, {false}};
  const int64_t left = partition.tasks - first;
  const int64_t threads = problem->threads < left ? problem->threads : left;
  with_helpers((int)threads - 1, work, &job, problem->parallel);
  const int64_t next = job.next.load();
  if (next >= partition.tasks) return -1;
  return job.lacks_memory.load() && next == first ? -2 : next;
}
