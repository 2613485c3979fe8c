/* What systems do differently: names in a library, threads, locks, memory and time. */
#pragma once
#include <stdint.h>
#include <stdlib.h>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <malloc.h>
#if defined(__x86_64__) && !defined(__clang__)
#error "GCC for Windows aligns vectors on the stack to 16 bytes alone (its bug 54412): compile with clang or zig"
#endif
#define EXPORTED extern "C" __declspec(dllexport)
#else
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#define EXPORTED extern "C" __attribute__((visibility("default")))
#endif

static_assert(sizeof(void *) == 8, "it is for 64-bit processors");

#if defined(_WIN32)

/* A lock, and a wait for a change under it. */
struct Monitor {
  SRWLOCK lock = SRWLOCK_INIT;
  CONDITION_VARIABLE changed = CONDITION_VARIABLE_INIT;

  void enter() { AcquireSRWLockExclusive(&lock); }
  void leave() { ReleaseSRWLockExclusive(&lock); }
  void wait() { SleepConditionVariableSRW(&changed, &lock, INFINITE, 0); }
  void wake_all() { WakeAllConditionVariable(&changed); }
};

/* Start a detached thread. Returns whether that succeeded. */
template <void (*run)(void *)>
bool start_thread(void *context) {
  HANDLE thread = CreateThread(
      nullptr, 0, [](void *given) -> DWORD { return run(given), 0; }, context, 0, nullptr);
  return thread && CloseHandle(thread);
}

inline void yield_processor() { SwitchToThread(); }
inline int64_t this_process() { return GetCurrentProcessId(); }
inline void *take_aligned(size_t bytes) { return _aligned_malloc(bytes, 64); }
inline void give_aligned(void *memory) { _aligned_free(memory); }

inline int64_t microseconds() {
  LARGE_INTEGER now, second;
  QueryPerformanceCounter(&now), QueryPerformanceFrequency(&second);
  return now.QuadPart / second.QuadPart * 1000000 +
         now.QuadPart % second.QuadPart * 1000000 / second.QuadPart;
}

#else

#if defined(__GLIBC__) && defined(__x86_64__)
/* The symbol version from before glibc 2.34, so that a build on a new system runs on an old
   one. */
__asm__(".symver pthread_create,pthread_create@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver pthread_create,pthread_create@GLIBC_2.17");
#endif

struct Monitor {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

  void enter() { pthread_mutex_lock(&lock); }
  void leave() { pthread_mutex_unlock(&lock); }
  void wait() { pthread_cond_wait(&changed, &lock); }
  void wake_all() { pthread_cond_broadcast(&changed); }
};

template <void (*run)(void *)>
bool start_thread(void *context) {
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, before;
  if (pthread_attr_init(&attributes)) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the caller's */
  const int refused = pthread_create(
      &thread, &attributes, [](void *given) -> void * { return run(given), nullptr; }, context);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return !refused;
}

inline void yield_processor() { sched_yield(); }
inline int64_t this_process() { return getpid(); }
inline void *take_aligned(size_t bytes) {
  void *memory = nullptr;
  return posix_memalign(&memory, 64, bytes) ? nullptr : memory;
}
inline void give_aligned(void *memory) { free(memory); }

inline int64_t microseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

#endif
