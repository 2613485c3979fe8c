/* Sessions in a process that is running already: no printing function is ours there, yet libraries
 * print to `stdout`, and glibc lets that be another stream (The GNU C Library, "Standard Streams").
 * Ours sorts out the lines, and hands on the rest to the stream that was there before.
 *
 * It is buffered by lines, so that what it is given was printed by the thread that gives it. Whoever
 * gives or changes anything here has the stream's lock.
 *
 * Behind a line, before its '\n', stands "SIGNpid P tid T end NS\001"; SIGN is the listener's, and no
 * program prints it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "shim.h"

#ifdef __GLIBC__ /* elsewhere there is no such function, and lines have no stamps */

#define LONGEST_STAMP 192 /* with the sign */
#define BUFFER 65536

/* Begin to listen, or change what for. sink: a descriptor that appends, ours until the end; its number
 * may come to be another file's. markers: what lines start with, separated by '\n'. Returns 0, or
 * -1 where that cannot be done. */
EXPORTED int mlbackends_listen(int sink, const char *markers, const char *sign);
EXPORTED void mlbackends_listen_no_more(void);

static FILE *ours, *theirs;
static struct {
    int sink; /* -1 when nobody listens */
    dev_t device;
    ino_t inode;
    char markers[1024];
    char sign[64];
} listener = {.sink = -1};

static int is_sink_there(void) {
    struct stat status;
    return listener.sink >= 0 && !fstat(listener.sink, &status) &&
           status.st_dev == listener.device && status.st_ino == listener.inode;
}

/* Return the first marker in the text, NULL where there is none. */
static const char *marker_in(const char *text, const char *end) {
    const char *first = NULL;
    for (const char *marker = listener.markers; *marker;) {
        size_t size = strcspn(marker, "\n");
        const char *found = size ? memmem(text, (size_t)(end - text), marker, size) : NULL;
        if (found && (!first || found < first)) first = found;
        marker += size + (marker[size] == '\n');
    }
    return first;
}

static void hand_on(const char *text, size_t length) {
    if (!length) return;
    SHIM_NEXT(fwrite)(text, 1, length, theirs);
    SHIM_NEXT(fflush)(theirs); /* ours may have been flushed: a prompt is to be seen */
}

static int write_line(const char *text, size_t length) {
    char *whole = malloc(length + LONGEST_STAMP);
    if (!whole) return 0;
    memcpy(whole, text, length);
    size_t size = length + (size_t)shim_stamp(whole + length, LONGEST_STAMP, listener.sign, "\001\n");
    int reason = shim_write_all(listener.sink, whole, &size);
    free(whole);
    return !reason;
}

/* Sort out what was printed: a line or several, and the start of one at a flush. */
static ssize_t take_text(void *cookie, const char *text, size_t length) {
    (void)cookie;
    int before = errno;
    const char *end = text + length, *begin = text; /* of what is to be handed on */
    for (const char *at = text; is_sink_there() && (at = memchr(at, '\n', (size_t)(end - at)));) {
        const char *line = memrchr(begin, '\n', (size_t)(at - begin));
        const char *marker = marker_in(line ? line + 1 : begin, at);
        const char *next = at + 1;
        if (marker) {
            hand_on(begin, (size_t)(marker - begin));
            begin = marker;
            if (!write_line(marker, (size_t)(at - marker))) break;
            begin = next;
        }
        at = next;
        if (at == end) break;
    }
    hand_on(begin, (size_t)(end - begin));
    errno = before;
    return (ssize_t)length;
}

/* The program closes its stdout. */
static int forget(void *cookie) {
    (void)cookie;
    if (stdout == ours) stdout = theirs;
    ours = NULL;
    listener.sink = -1;
    return 0;
}

static FILE *made(void) {
    static char buffer[BUFFER];
    cookie_io_functions_t functions = {.write = take_text, .close = forget};
    __typeof__(&fopencookie) make = SHIM_NEXT(fopencookie);
    FILE *stream = make && shim_next("gnu_get_libc_version") ? make(NULL, "a", functions) : NULL;
    if (stream) setvbuf(stream, buffer, _IOLBF, sizeof buffer);
    return stream;
}

int mlbackends_listen(int sink, const char *markers, const char *sign) {
    struct stat status;
    if (strlen(markers) >= sizeof listener.markers || strlen(sign) >= sizeof listener.sign) return -1;
    if (fstat(sink, &status) || (!ours && !(ours = made()))) return -1;
    flockfile(ours);
    SHIM_NEXT(fflush)(ours);
    listener.device = status.st_dev;
    listener.inode = status.st_ino;
    listener.sink = sink;
    strcpy(listener.markers, markers);
    strcpy(listener.sign, sign);
    funlockfile(ours);
    if (stdout != ours) {
        SHIM_NEXT(fflush)(stdout);
        theirs = stdout; /* before any thread can print to ours */
        __atomic_store_n(&stdout, ours, __ATOMIC_RELEASE);
    }
    return 0;
}

/* The stream stays: a thread may be about to print to it. */
void mlbackends_listen_no_more(void) {
    if (!ours) return;
    if (stdout == ours) __atomic_store_n(&stdout, theirs, __ATOMIC_RELEASE);
    flockfile(ours);
    SHIM_NEXT(fflush)(ours);
    listener.sink = -1;
    funlockfile(ours);
}

#endif
