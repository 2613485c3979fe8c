#ifndef MLBACKENDS_TRACE_DESCRIPTOR_H
#define MLBACKENDS_TRACE_DESCRIPTOR_H

/* Return the trace's descriptor, or -1 where it cannot be opened. */
int shim_trace_descriptor(void);

#endif
