/* The instruction sets that were compiled, by their numbers: 0 is the least one. */
#pragma once
#include "plan.h"

/* Return a level, or null beyond the last one. */
const Level *level_of(int32_t number);

/* Tell whether this CPU and this system can run a level. */
bool level_runs(int32_t number);
