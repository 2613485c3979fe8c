/* Threads that wait for work. */
#pragma once

/* Call `work(context)` in this thread and in up to `helpers` others at once, and return when all of them have. Fewer
   help where another call has them, or where no more can be started: the work must not count on any. */
void with_helpers(int helpers, void (*work)(void *), void *context);
