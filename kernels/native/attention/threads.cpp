/* The pool of threads: one job at a time, with tickets for threads that may join it.

   Workers are detached and never joined, so that the end of a process waits for nothing. A child process
   starts with a pool of its own, as its parent's workers are not in it; it never touches what they might have
   had locked. */
#include "threads.h"

#include "system.h"

#include <atomic>
#include <new>

namespace {

constexpr int most_workers = 255;
constexpr int spins = 2000; /* some tens of microseconds: longer would take the core from others */

struct Pool {
  int64_t owner;
  std::atomic<int> busy{0}; /* whether a job runs */
  int workers = 0;          /* how many were started */
  bool refused = false;     /* whether the system would start no more */
  void (*work)(void *) = nullptr;
  void *context = nullptr;
  std::atomic<int> tickets{0};  /* how many may still join the job */
  std::atomic<int> finished{0}; /* how many that joined have returned */
  std::atomic<unsigned> generation{0};
  int sleepers = 0;
  Monitor monitor;

  explicit Pool(int64_t process) : owner(process) {}
};

std::atomic<Pool *> shared{nullptr};

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

bool take_ticket(std::atomic<int> &tickets) {
  int left = tickets.load(std::memory_order_relaxed);
  while (left > 0)
    if (tickets.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                            std::memory_order_relaxed))
      return true;
  return false;
}

void wait_for_another(Pool *pool, unsigned seen) {
  for (int i = 0; i < spins; i++) {
    if (pool->generation.load(std::memory_order_acquire) != seen) return;
    pause_processor();
  }
  pool->monitor.enter();
  pool->sleepers++;
  while (pool->generation.load(std::memory_order_acquire) == seen) pool->monitor.wait();
  pool->sleepers--;
  pool->monitor.leave();
}

void run_worker(void *given) {
  Pool *pool = (Pool *)given;
  unsigned seen = 0; /* so that a job that began before this thread did is noticed */
  for (;;) {
    const unsigned now = pool->generation.load(std::memory_order_acquire);
    if (now == seen) {
      wait_for_another(pool, seen);
      continue;
    }
    seen = now;
    while (take_ticket(pool->tickets)) {
      pool->work(pool->context);
      pool->finished.fetch_add(1, std::memory_order_release);
    }
  }
}

/* Call `work(context)` in `threads` threads of the team that an OpenMP runtime has for this thread. It is
   entered whole, as an operation of its owner would: a team of another size is made of other threads. */
void with_team(const void *parallel, int threads, void (*work)(void *), void *context) {
  struct Shared {
    void (*work)(void *);
    void *context;
    std::atomic<int> tickets;
  } shared = {work, context, {threads}};
  void (*const join)(void *) = [](void *given) {
    Shared *shared = (Shared *)given;
    if (take_ticket(shared->tickets)) shared->work(shared->context);
  };
  ((void (*)(void (*)(void *), void *, unsigned, unsigned))parallel)(join, &shared, 0, 0);
}

/* This process's pool, null without memory. */
Pool *own_pool() {
  const int64_t here = this_process();
  Pool *found = shared.load(std::memory_order_acquire);
  if (found && found->owner == here) return found;
  void *memory = malloc(sizeof(Pool));
  if (!memory) return nullptr;
  Pool *made = new (memory) Pool(here);
  if (shared.compare_exchange_strong(found, made, std::memory_order_acq_rel, std::memory_order_acquire))
    return made;
  free(made); /* another thread was first */
  return found;
}

/* ---- memory: a few slots that are exchanged as a whole, without a lock that a fork could leave behind  */

constexpr int64_t slots = 64, head = 64, largest_kept = 4 << 20;
std::atomic<char *> kept[slots];

int64_t &size_of(char *piece) { return *(int64_t *)piece; }

} // namespace

void with_helpers(int helpers, void (*work)(void *), void *context, const void *parallel) {
  Pool *pool = helpers > 0 ? own_pool() : nullptr;
  if (!pool || pool->busy.exchange(1, std::memory_order_acquire)) return work(context);
  if (parallel) {
    with_team(parallel, helpers + 1, work, context);
    pool->busy.store(0, std::memory_order_release);
    return;
  }
  if (helpers > most_workers) helpers = most_workers;
  pool->refused = false;
  while (pool->workers < helpers && !pool->refused)
    if (start_thread<run_worker>(pool))
      pool->workers++;
    else
      pool->refused = true;
  if (helpers > pool->workers) helpers = pool->workers;
  pool->work = work;
  pool->context = context;
  pool->finished.store(0, std::memory_order_relaxed);
  pool->tickets.store(helpers, std::memory_order_release);
  pool->monitor.enter();
  pool->generation.fetch_add(1, std::memory_order_release);
  if (pool->sleepers) pool->monitor.wake_all();
  pool->monitor.leave();
  work(context);
  const int joined = helpers - pool->tickets.exchange(0, std::memory_order_acquire);
  for (int i = 0; pool->finished.load(std::memory_order_acquire) != joined; i++)
    if (i < spins)
      pause_processor();
    else
      yield_processor();
  pool->busy.store(0, std::memory_order_release);
}

char *take_scratch(int64_t bytes) {
  for (std::atomic<char *> &slot : kept) {
    if (!slot.load(std::memory_order_relaxed)) continue;
    char *piece = slot.exchange(nullptr, std::memory_order_acquire);
    if (!piece) continue;
    if (size_of(piece) >= bytes) return piece + head;
    give_aligned(piece);
  }
  char *piece = bytes < 0 ? nullptr : (char *)take_aligned((size_t)(bytes + head));
  if (!piece) return nullptr;
  size_of(piece) = bytes;
  return piece + head;
}

void give_scratch(char *memory) {
  if (!memory) return;
  char *piece = memory - head;
  if (size_of(piece) <= largest_kept)
    for (std::atomic<char *> &slot : kept) {
      char *empty = nullptr;
      if (slot.compare_exchange_strong(empty, piece, std::memory_order_release, std::memory_order_relaxed))
        return;
    }
  give_aligned(piece);
}
