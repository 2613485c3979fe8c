/* MKL's own output file. MKL opens it by name for every call, writes a line and closes it, so the
 * line can be stamped like the others: who opens the trace by name gets a stream that does it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

#define MOST (1 << 20)

/* What was printed since the last '\n'. */
struct unfinished {
    char *text;
    size_t length;
};

static ssize_t take_text(void *cookie, const char *text, size_t length) {
    struct unfinished *line = cookie;
    if (line->length + length > MOST) {
        shim_write_lines(line->text, line->length);
        line->length = 0;
    }
    char *longer = realloc(line->text, line->length + length);
    if (!longer) return 0;
    line->text = longer;
    memcpy(longer + line->length, text, length);
    line->length += length;
    const char *end = memrchr(longer, '\n', line->length);
    if (end) {
        size_t whole = (size_t)(end - longer) + 1;
        shim_write_lines(longer, whole);
        line->length -= whole;
        memmove(longer, longer + whole, line->length);
    }
    return (ssize_t)length;
}

static int finish(void *cookie) {
    struct unfinished *line = cookie;
    if (line->length) shim_write_lines(line->text, line->length);
    free(line->text);
    free(line);
    return 0;
}

static FILE *stamping_stream(void) {
    __typeof__(&fopencookie) make = SHIM_NEXT(fopencookie);
    struct unfinished *line = make ? calloc(1, sizeof *line) : NULL;
    if (!line) return NULL;
    cookie_io_functions_t functions = {.write = take_text, .close = finish};
    FILE *stream = make(line, "a", functions);
    if (!stream) free(line);
    return stream;
}

/* Return a stream for the trace, or NULL where another file is opened. */
static FILE *opened_trace(const char *path, const char *mode) {
    if (!*shim_mkl_path || !path || !mode || *mode != 'a' || strcmp(path, shim_mkl_path)) return NULL;
    int before = errno;
    FILE *stream = shim_trace_descriptor(getpid()) >= 0 ? stamping_stream() : NULL;
    errno = before;
    return stream;
}

EXPORTED FILE *fopen(const char *path, const char *mode) {
    FILE *trace = opened_trace(path, mode);
    return trace ? trace : SHIM_NEXT(fopen)(path, mode);
}

EXPORTED FILE *fopen64(const char *path, const char *mode) {
    FILE *trace = opened_trace(path, mode);
    return trace ? trace : SHIM_NEXT(fopen64)(path, mode);
}
