/* The preloaded shim of `backends trace`: lines that start with a marker go from a program's
 * standard output to the trace file, each stamped with its process, thread and end time.
 *
 * Three rules hold everywhere. The program never fails because of it: what cannot be done is left
 * undone, and the line is printed as it would have been. errno stays as the program left it. There
 * is no lock of its own, and nothing is remembered but one descriptor that is checked before each
 * use and the start of a line that is not whole yet (pieces.c), so threads, fork and a program that
 * closes every descriptor need no care.
 */
#ifndef MLBACKENDS_TRACE_SHIM_H
#define MLBACKENDS_TRACE_SHIM_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#define EXPORTED __attribute__((visibility("default")))

/* settings.c: the environment when the program started. */
extern char shim_trace_path[];  /* "" where nothing is to be traced */
extern char shim_mkl_path[];    /* what MKL takes for the trace's name, before a rank is put in */
extern char shim_markers[];     /* each ends in '\n' */

/* markers.c */
int shim_is_trace(const char *text, size_t length);
int shim_may_be_trace(const char *format, va_list arguments);
int shim_may_go_on(const char *text, size_t length);

/* pieces.c: what a thread prints to stdout. shim_take returns 0 where the program's own printing has
 * to do it; shim_let_go prints what is held, as a flush would. */
int shim_holds_any(void);
int shim_take(const char *text, size_t length);
void shim_let_go(int of_all_threads);

/* sink.c: write whole lines, each with its stamp. Returns 0 where the trace cannot be reached: then
 * the caller prints as if there were no shim. Text behind the last '\n' counts as a line. */
int shim_write_lines(const char *text, size_t length);

/* Put a stamp between two texts, and return the length of the three. */
int shim_stamp(char *text, size_t size, const char *before, const char *behind);

/* Write until `rest`, the text's length, is 0. Returns 0, or why that could not be. */
int shim_write_all(int file, const char *text, size_t *rest);

/* descriptor.c: the trace's descriptor, or -1 where it cannot be opened. process: who calls. */
int shim_trace_descriptor(pid_t process);

/* counts.c: what the capturing process reads, even after this one was killed. The file of counters is
 * mapped at the start, before there are threads. */
enum shim_count {
    SHIM_LINES, SHIM_LOST, SHIM_LOSS_REASON, SHIM_PROCESSES, SHIM_UNREACHABLE,
    SHIM_WITH_MKL, SHIM_WITH_OPENBLAS, SHIM_WITH_BLIS, /* processes that had these loaded when they ended */
};
void shim_map_counts(const char *path);
void shim_count(enum shim_count which);
void shim_count_loss(int reason);

/* printing.c: the functions that ours stand before, of libc or another preloaded library; null where there is
 * none. SHIM_NEXT keeps what it found; two threads that look at once find the same. */
void *shim_next(const char *name);
void *shim_next_kept(void **kept, const char *name);
#define SHIM_NEXT(name) ({ static void *kept; (__typeof__(&name))shim_next_kept(&kept, #name); })

#endif
