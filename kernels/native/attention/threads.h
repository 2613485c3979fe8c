/* What is kept from call to call: threads that wait for work, and their memory. */
#pragma once
#include <stdint.h>

/* Call `work(context)` in this thread and in up to `helpers` others, and return when all of them
   have. Fewer help where another call has them, or where no more can be started: the work must not count on
   any. parallel: GOMP_parallel of an OpenMP runtime, whose team then does the work; null for our own threads. */
void with_helpers(int helpers, void (*work)(void *), void *context, const void *parallel);

/* Allocate at least `bytes` bytes, aligned to 64; null without memory. Release them with `give_scratch`. */
char *take_scratch(int64_t bytes);
void give_scratch(char *memory);
