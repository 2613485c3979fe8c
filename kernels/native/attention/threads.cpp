/* The pool: one job at a time, tickets for those who may join it.

   Workers are detached and never joined, so that the end of a process waits for nothing. A child process starts with a
   pool of its own, as its parent's workers are not in it; it never touches what they might have had locked. */
#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#if defined(__GLIBC__) && defined(__x86_64__)
/* The name that it has had since long before 2.34, so that what is built on a new system runs on an old one. */
__asm__(".symver pthread_create,pthread_create@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver pthread_create,pthread_create@GLIBC_2.17");
#endif

namespace {

constexpr int most_workers = 255;
constexpr int spins = 2000; /* some tens of microseconds: longer would take the core from others */

struct Pool {
  pid_t owner;
  int busy;      /* whether a job is on */
  int workers;   /* how many were started */
  int refused;   /* whether the system would start no more */
  void (*work)(void *);
  void *context;
  int tickets;   /* how many may still join the job */
  int finished;  /* how many that joined are through */
  unsigned generation;
  int sleepers;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
};

Pool *shared;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

bool take_ticket(Pool *pool) {
  int left = __atomic_load_n(&pool->tickets, __ATOMIC_RELAXED);
  while (left > 0)
    if (__atomic_compare_exchange_n(&pool->tickets, &left, left - 1, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return true;
  return false;
}

void wait_for_another(Pool *pool, unsigned seen) {
  for (int i = 0; i < spins; i++) {
    if (__atomic_load_n(&pool->generation, __ATOMIC_ACQUIRE) != seen) return;
    relax();
  }
  pthread_mutex_lock(&pool->mutex);
  pool->sleepers++;
  while (__atomic_load_n(&pool->generation, __ATOMIC_ACQUIRE) == seen) pthread_cond_wait(&pool->wake, &pool->mutex);
  pool->sleepers--;
  pthread_mutex_unlock(&pool->mutex);
}

void *live(void *given) {
  Pool *pool = (Pool *)given;
  unsigned seen = 0; /* so that a job that began before this thread did is looked at */
  for (;;) {
    const unsigned now = __atomic_load_n(&pool->generation, __ATOMIC_ACQUIRE);
    if (now == seen) {
      wait_for_another(pool, seen);
      continue;
    }
    seen = now;
    while (take_ticket(pool)) {
      pool->work(pool->context);
      __atomic_add_fetch(&pool->finished, 1, __ATOMIC_RELEASE);
    }
  }
  return nullptr;
}

void start_worker(Pool *pool) {
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, before;
  if (pthread_attr_init(&attributes)) return;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before); /* signals are the caller's */
  if (pthread_create(&thread, &attributes, live, pool))
    pool->refused = 1;
  else
    pool->workers++;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
}

/* This process's pool, null without memory. */
Pool *own_pool() {
  const pid_t here = getpid();
  Pool *found = __atomic_load_n(&shared, __ATOMIC_ACQUIRE);
  if (found && found->owner == here) return found;
  Pool *made = (Pool *)calloc(1, sizeof *made);
  if (!made) return nullptr;
  made->owner = here;
  pthread_mutex_init(&made->mutex, nullptr);
  pthread_cond_init(&made->wake, nullptr);
  if (__atomic_compare_exchange_n(&shared, &found, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return made;
  free(made); /* another thread was first */
  return found;
}

}  // namespace

void with_helpers(int helpers, void (*work)(void *), void *context) {
  Pool *pool = helpers > 0 ? own_pool() : nullptr;
  if (!pool || __atomic_exchange_n(&pool->busy, 1, __ATOMIC_ACQUIRE)) return work(context);
  if (helpers > most_workers) helpers = most_workers;
  pool->refused = 0;
  while (pool->workers < helpers && !pool->refused) start_worker(pool);
  if (helpers > pool->workers) helpers = pool->workers;
  pool->work = work;
  pool->context = context;
  __atomic_store_n(&pool->finished, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&pool->tickets, helpers, __ATOMIC_RELEASE);
  pthread_mutex_lock(&pool->mutex);
  __atomic_add_fetch(&pool->generation, 1, __ATOMIC_RELEASE);
  if (pool->sleepers) pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->mutex);
  work(context);
  const int joined = helpers - __atomic_exchange_n(&pool->tickets, 0, __ATOMIC_ACQUIRE);
  for (int i = 0; __atomic_load_n(&pool->finished, __ATOMIC_ACQUIRE) != joined; i++)
    if (i < spins) relax();
    else sched_yield();
  __atomic_store_n(&pool->busy, 0, __ATOMIC_RELEASE);
}
