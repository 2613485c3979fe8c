/* Which instruction sets there are, the least one first, and what each needs of the CPU and of the system. A
   level that the compiler did not know is not there: its symbol is null. */
#include "levels.h"

#include <atomic>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

#define DECLARED(level) extern "C" const Level mlbackends_attention_level_##level __attribute__((weak))

namespace {

/* granted: asks the system for what the level's own products need; null where that is nothing. */
struct Choice {
  const Level *level;
  bool (*runs)();
  bool (*granted)();
};

bool always() { return true; }

#if defined(__x86_64__)

#if defined(MLBACKENDS_EMULATED_PAIRS)
#define HAS_PAIRS true
#else
#define HAS_PAIRS __builtin_cpu_supports("avx512bf16")
#endif

bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool has_avx512_bf16() { return has_avx512() && HAS_PAIRS; }

#if defined(MLBACKENDS_EMULATED_PAIRS)

bool has_amx_bf16() { return has_avx512_bf16(); }
bool tiles_are_granted() { return true; }

#else

/* Linux's numbers, which headers of older systems do not name. */
constexpr long supported_states = 0x1021, request_permission = 0x1023, tile_data = 18;

/* Whether the system would give tiles; none are requested. */
bool has_amx_bf16() {
  constexpr unsigned tile_state = 3u << 17, amx_bf16 = 1u << 22, amx_tile = 1u << 24;
  unsigned a, b, c, d;
  if (!has_avx512_bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & amx_bf16) || !(d & amx_tile))
    return false;
  unsigned enabled, upper;
  __asm__("xgetbv" : "=a"(enabled), "=d"(upper) : "c"(0)); /* allowed where AVX-512 is */
  uint64_t states = 0;
  return (enabled & tile_state) == tile_state && syscall(SYS_arch_prctl, supported_states, &states) == 0 &&
         states >> tile_data & 1;
}

/* The system gives tiles to a process that requests them, unless a thread has an alternate stack too small
   for them; from then on each new one must be large enough. Its first answer holds, so that results do not
   change on the way. */
bool tiles_are_granted() {
  enum Answer { UNKNOWN, GRANTED, REFUSED };
  static std::atomic<Answer> answer{UNKNOWN};
  Answer found = answer.load(std::memory_order_acquire);
  if (found == UNKNOWN) {
    const Answer now = syscall(SYS_arch_prctl, request_permission, tile_data) == 0 ? GRANTED : REFUSED;
    if (answer.compare_exchange_strong(found, now)) found = now;
  }
  return found == GRANTED;
}

#endif

} // namespace

DECLARED(baseline);
DECLARED(avx2);
DECLARED(avx512);
DECLARED(avx512_bf16);
DECLARED(amx_bf16);

namespace {

const Choice choices[] = {
    {&mlbackends_attention_level_baseline, always, nullptr},
    {&mlbackends_attention_level_avx2, has_avx2, nullptr},
    {&mlbackends_attention_level_avx512, has_avx512, nullptr},
    {&mlbackends_attention_level_avx512_bf16, has_avx512_bf16, nullptr},
    {&mlbackends_attention_level_amx_bf16, has_amx_bf16, tiles_are_granted},
};

#elif defined(__aarch64__)

/* Linux's numbers, which headers of older systems do not name. */
constexpr unsigned long sve = 1ul << 22, sve_bf16 = 1ul << 12, bf16 = 1ul << 14;
constexpr int get_vector_length = 51, length_bits = 0xffff;

bool has_neon_bf16() { return (getauxval(AT_HWCAP2) & bf16) != 0; }

/* SVE's code is for vectors of one length, and a process may have been given others than the CPU's
   longest. */
bool has_sve_of(int bytes) {
  if (!(getauxval(AT_HWCAP) & sve)) return false;
  const int found = prctl(get_vector_length);
  return found > 0 && (found & length_bits) == bytes;
}

bool has_sve256() { return (getauxval(AT_HWCAP2) & sve_bf16) != 0 && has_sve_of(32); }

bool has_sve512() { return has_sve_of(64); }

} // namespace

DECLARED(neon);
DECLARED(neon_bf16);
DECLARED(sve256);
DECLARED(sve512);

namespace {

const Choice choices[] = {
    {&mlbackends_attention_level_neon, always, nullptr},
    {&mlbackends_attention_level_neon_bf16, has_neon_bf16, nullptr},
    {&mlbackends_attention_level_sve256, has_sve256, nullptr},
    {&mlbackends_attention_level_sve512, has_sve512, nullptr},
};

#else

} // namespace

DECLARED(baseline);

namespace {

const Choice choices[] = {{&mlbackends_attention_level_baseline, always, nullptr}};

#endif

const Choice *choice_of(int32_t number) {
  if (number < 0) return nullptr;
  for (const Choice &choice : choices)
    if (choice.level && number-- == 0) return &choice;
  return nullptr;
}

} // namespace

const Level *level_of(int32_t number) {
  const Choice *choice = choice_of(number);
  return choice ? choice->level : nullptr;
}

bool level_runs(int32_t number) {
  const Choice *choice = choice_of(number);
  return choice && choice->runs();
}

const Level *level_for(const Problem &problem) {
  const Choice *choice = choice_of(problem.level);
  const bool has_own = problem.element == MLBACKENDS_ATTENTION_BFLOAT16;
  if (has_own && choice->granted && !choice->granted()) return level_of(problem.level - 1);
  return choice->level;
}
