/* Which instruction sets there are, the least one first, and what each needs of the CPU and of the system. A
   level that the compiler did not know is not there: its symbol is null. */
#include "levels.h"
#include "system.h"

#include <atomic>
#include <initializer_list>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#define DECLARED(level) extern "C" const Level mlbackends_attention_level_##level __attribute__((weak))
#define CHOICE(level, runs, granted) {&mlbackends_attention_level_##level, #level, runs, granted}

namespace {

/* level: null where it was not compiled. granted: asks the system for what the level's own products need; null
   where that is nothing. */
struct Choice {
  const Level *level;
  const char *name;
  bool (*runs)();
  bool (*granted)();
};

bool always() { return true; }

#if defined(__x86_64__)

/* What the CPU has and the system keeps for each thread, by cpuid and xgetbv: __builtin_cpu_supports reads a
   table that not every compiler's runtime fills in. Source: Intel, Software Developer's Manual, volume 1,
   chapters 14 and 15, and volume 2, CPUID. */
struct Cpu {
  bool avx2, avx512, avx512_bf16, amx_bf16;
};

constexpr bool has(unsigned given, std::initializer_list<int> bits) {
  for (int bit : bits)
    if (!(given >> bit & 1)) return false;
  return true;
}

Cpu read_cpu() {
  unsigned a, b, c, d, most, states, upper;
  Cpu cpu = {};
  if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, {12, 27, 28, 29})) return cpu; /* FMA, OSXSAVE, AVX, F16C */
  __asm__("xgetbv" : "=a"(states), "=d"(upper) : "c"(0));
  if (!has(states, {1, 2}) || !__get_cpuid_count(7, 0, &most, &b, &c, &d)) return cpu;
  cpu.avx2 = has(b, {5});
#if defined(__APPLE__)
  const bool keeps_avx512 = true; /* macOS begins to at a thread's first use */
#else
  const bool keeps_avx512 = has(states, {5, 6, 7});
#endif
  cpu.avx512 = cpu.avx2 && keeps_avx512 && has(b, {16, 17, 30, 31}); /* F, DQ, BW, VL */
  cpu.amx_bf16 = has(states, {17, 18}) && has(d, {22, 24});
  if (most && __get_cpuid_count(7, 1, &a, &b, &c, &d)) cpu.avx512_bf16 = cpu.avx512 && has(a, {5});
  cpu.amx_bf16 = cpu.amx_bf16 && cpu.avx512_bf16;
  return cpu;
}

const Cpu cpu = read_cpu();

} // namespace

bool has_avx2() { return cpu.avx2; }
bool has_avx512() { return cpu.avx512; }

namespace {

#if defined(MLBACKENDS_EMULATED_PAIRS)

bool has_avx512_bf16() { return cpu.avx512; }
bool has_amx_bf16() { return cpu.avx512; }
bool tiles_are_granted() { return true; }

#else

bool has_avx512_bf16() { return cpu.avx512_bf16; }

#if defined(__linux__) || defined(_WIN32)
constexpr long tile_data = 18; /* the state of AMX that is given on request */
#endif

#if defined(__linux__)

/* Numbers that headers of older systems do not name. */
constexpr long supported_states = 0x1021, request_permission = 0x1023;

bool gives_tiles() {
  uint64_t states = 0;
  return syscall(SYS_arch_prctl, supported_states, &states) == 0 && states >> tile_data & 1;
}

bool request_tiles() { return syscall(SYS_arch_prctl, request_permission, tile_data) == 0; }

#elif defined(_WIN32)

typedef BOOL (*Request)(DWORD64);

/* From Windows 11 and Server 2022 on. */
Request found_request() {
  return (Request)(void *)GetProcAddress(GetModuleHandleA("kernel32.dll"),
                                         "EnableProcessOptionalXStateFeatures");
}

bool gives_tiles() { return found_request() && GetEnabledXStateFeatures() >> tile_data & 1; }
bool request_tiles() { return found_request()((DWORD64)1 << tile_data) != 0; }

#else

bool gives_tiles() { return false; }
bool request_tiles() { return false; }

#endif

/* Whether the system would give tiles; none are requested. */
bool has_amx_bf16() { return cpu.amx_bf16 && gives_tiles(); }

/* The system gives tiles to a process that requests them, unless a thread has an alternate stack too small
   for them; from then on each new one must be large enough. Its first answer holds, so that results do not
   change on the way. */
bool tiles_are_granted() {
  enum Answer { UNKNOWN, GRANTED, REFUSED };
  static std::atomic<Answer> answer{UNKNOWN};
  Answer found = answer.load(std::memory_order_acquire);
  if (found == UNKNOWN) {
    const Answer now = request_tiles() ? GRANTED : REFUSED;
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
    CHOICE(baseline, always, nullptr),
    CHOICE(avx2, has_avx2, nullptr),
    CHOICE(avx512, has_avx512, nullptr),
    CHOICE(avx512_bf16, has_avx512_bf16, nullptr),
    CHOICE(amx_bf16, has_amx_bf16, tiles_are_granted),
};

#elif defined(__aarch64__)

#if defined(__APPLE__)

bool has_neon_bf16() {
  int found = 0;
  size_t size = sizeof found;
  return sysctlbyname("hw.optional.arm.FEAT_BF16", &found, &size, nullptr, 0) == 0 && found;
}

#elif defined(_WIN32)

bool has_neon_bf16() { return IsProcessorFeaturePresent(68) != 0; } /* PF_ARM_V86_BF16_INSTRUCTIONS_AVAILABLE */

#else

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

#endif

} // namespace

DECLARED(neon);
DECLARED(neon_bf16);
#if defined(__linux__)
DECLARED(sve256);
DECLARED(sve512);
#endif

namespace {

const Choice choices[] = {
    CHOICE(neon, always, nullptr),
    CHOICE(neon_bf16, has_neon_bf16, nullptr),
#if defined(__linux__)
    CHOICE(sve256, has_sve256, nullptr),
    CHOICE(sve512, has_sve512, nullptr),
#endif
};

#else

} // namespace

DECLARED(baseline);

namespace {

const Choice choices[] = {CHOICE(baseline, always, nullptr)};

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

const char *missing_level(int32_t number) {
  for (const Choice &choice : choices)
    if (!choice.level && choice.runs() && number-- == 0) return choice.name;
  return nullptr;
}

const Level *level_for(const Problem &problem) {
  const Choice *choice = choice_of(problem.level);
  const bool has_own = problem.element == MLBACKENDS_ATTENTION_BFLOAT16;
  if (has_own && choice->granted && !choice->granted()) return level_of(problem.level - 1);
  return choice->level;
}
