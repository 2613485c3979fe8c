/* The instruction sets that were compiled, by their numbers: 0 is the least one. */
#pragma once
#include "partition.h"

/* Return a level, or null beyond the last one. */
const Level *level_of(int32_t number);

/* Return the level that computes a problem: its own, or the one below where the system refuses what the own
   one needs. Only here is something requested of the system. */
const Level *level_for(const Problem &problem);

/* Tell whether this CPU and this system can run a level. */
bool level_runs(int32_t number);

/* Return the name of a level that this CPU can run and that was not compiled; null beyond the last one. */
const char *missing_level(int32_t number);

#if defined(__x86_64__)
bool has_avx2();
bool has_avx512();
#endif
