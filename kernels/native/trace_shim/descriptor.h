#ifndef MLBACKENDS_TRACE_DESCRIPTOR_H
#define MLBACKENDS_TRACE_DESCRIPTOR_H

#include <sys/types.h>

/* Return the trace's descriptor, or -1 where it cannot be opened. process: who asks. */
int shim_trace_descriptor(pid_t process);

#endif
