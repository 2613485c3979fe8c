/* Stamped lines into the trace file, one write each: with O_APPEND, whole lines of many threads and
 * processes stand one after the other.
 *
 * A stamp is "[pid P tid T end NS] "; NS is the time since the epoch when the line was printed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

#define LONGEST_STAMP 96
#define ON_STACK 3072

int shim_stamp(char *text, size_t size, const char *before, const char *behind) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long end = (unsigned long long)now.tv_sec * 1000000000ull;
    return snprintf(text, size, "%spid %ld tid %ld end %llu%s", before, (long)getpid(),
                    (long)syscall(SYS_gettid), end + (unsigned long long)now.tv_nsec, behind);
}

int shim_write_all(int file, const char *text, size_t *rest) {
    while (*rest) {
        ssize_t written = write(file, text, *rest);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return written ? errno : EIO;
        text += written;
        *rest -= (size_t)written;
    }
    return 0;
}

/* Whether our last line was cut off, the disk being full: if there is room again, the next line must
 * not stand behind it. */
static int is_torn;

/* Return 0, or why not all of it could be written. */
static int write_all(int file, const char *text, size_t length) {
    size_t rest = length;
    int reason = shim_write_all(file, text, &rest);
    if (reason && (rest < length || *text == '\n')) __atomic_store_n(&is_torn, 1, __ATOMIC_RELAXED);
    return reason;
}

/* Where files may not grow without limit, the write that goes too far would end the program. */
static int write_without_signal(int file, const char *text, size_t length) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return write_all(file, text, length);
    sigset_t one, before;
    sigemptyset(&one);
    sigaddset(&one, SIGXFSZ);
    sigprocmask(SIG_BLOCK, &one, &before);
    int reason = write_all(file, text, length);
    if (reason == EFBIG && !sigismember(&before, SIGXFSZ)) {
        struct timespec at_once = {0, 0};
        sigtimedwait(&one, NULL, &at_once);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return reason;
}

static int write_line(const char *text, size_t length) {
    pid_t process = getpid();
    int file = shim_trace_descriptor(process);
    if (file < 0) {
        shim_count(SHIM_UNREACHABLE);
        return 0;
    }
    char small[LONGEST_STAMP + ON_STACK];
    char *whole = length < ON_STACK ? small : malloc(LONGEST_STAMP + length + 1);
    if (!whole) return 0;
    char *at = whole;
    if (__atomic_exchange_n(&is_torn, 0, __ATOMIC_RELAXED)) *at++ = '\n';
    at += shim_stamp(at, LONGEST_STAMP, "[", "] ");
    memcpy(at, text, length);
    at += length;
    *at++ = '\n';
    int reason = write_without_signal(file, whole, (size_t)(at - whole));
    if (reason)
        shim_count_loss(reason);
    else
        shim_count(SHIM_LINES);
    if (whole != small) free(whole);
    return 1;
}

int shim_write_lines(const char *text, size_t length) {
    int before = errno;
    int reached = 1;
    while (length && reached) {
        const char *end = memchr(text, '\n', length);
        size_t line = end ? (size_t)(end - text) : length;
        reached = write_line(text, line);
        line += end != NULL;
        text += line;
        length -= line;
    }
    errno = before;
    return reached;
}
