/* Lines that are printed in pieces: oneDNN 3.2 prints one of its first lines so.
 *
 * The start of a line, which has a marker and no '\n', is held until its thread prints the rest.
 * What turns out to be no such line is printed as it came: before text of another thread or another
 * line of this one, at a flush, when it gets too long, and at exit.
 *
 * What is held is guarded by the lock of stdout, which a thread has while it prints anyway. Where
 * nothing is held, which is nearly always, there is one look at a counter and no lock.
 *
 * Compilers put putc_unlocked into the program itself, straight into the buffer of stdout, where nobody
 * sees it: coreutils end their lines so. It belongs behind what is held, and is taken out again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim.h"

#define MOST (1 << 20)

struct piece {
    struct piece *next;
    uint64_t thread;
    size_t length;
    char *text;
};

static struct piece *oldest;
static int held;
static int is_over;
static size_t buffered; /* how much stood in the buffer of stdout when the last piece was held */

/* A number of our own, from 1: the system gives those of threads that ended to new ones. */
static uint64_t this_thread(void) {
    /* Other models of such variables need a function of the loader's: one more library. */
    static __thread uint64_t number __attribute__((tls_model("initial-exec")));
    static uint64_t last;
    if (!number) number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    return number;
}

int shim_holds_any(void) { return __atomic_load_n(&held, __ATOMIC_RELAXED); }

static struct piece **place_of(uint64_t thread) {
    struct piece **place = &oldest;
    while (*place && (*place)->thread != thread) place = &(*place)->next;
    return place;
}

static int append(struct piece *piece, const char *text, size_t length) {
    if (length > MOST - piece->length) return 0;
    char *longer = realloc(piece->text, piece->length + length);
    if (!longer) return 0;
    memcpy(longer + piece->length, text, length);
    piece->text = longer;
    piece->length += length;
    return 1;
}

static void drop(struct piece *piece) {
    free(piece->text);
    free(piece);
}

static struct piece *started(const char *text, size_t length) {
    if (is_over || !shim_may_go_on(text, length)) return NULL;
    struct piece *piece = calloc(1, sizeof *piece);
    if (!piece) return NULL;
    piece->thread = this_thread();
    if (append(piece, text, length)) return piece;
    drop(piece);
    return NULL;
}

static void hold(struct piece *piece) {
    struct piece **last = &oldest;
    while (*last) last = &(*last)->next;
    *last = piece;
    buffered = __fpending(stdout);
    __atomic_add_fetch(&held, 1, __ATOMIC_RELAXED);
}

static struct piece *let_go(struct piece **place) {
    struct piece *piece = *place;
    *place = piece->next;
    __atomic_sub_fetch(&held, 1, __ATOMIC_RELAXED);
    return piece;
}

static void print(struct piece **place) {
    struct piece *piece = let_go(place);
    SHIM_NEXT(fwrite)(piece->text, 1, piece->length, stdout);
    drop(piece);
}

/* Take text that starts a line. whole: how much of it has its end. */
static int take_start(const char *text, size_t length, size_t whole) {
    struct piece *piece = NULL;
    if (whole < length && !(piece = started(text + whole, length - whole))) return 0;
    if (whole && !shim_write_lines(text, whole)) {
        if (piece) drop(piece);
        return 0;
    }
    if (piece) hold(piece);
    return 1;
}

static size_t whole_lines(const char *text, size_t length) {
    const char *last = memrchr(text, '\n', length);
    return last ? (size_t)(last - text) + 1 : 0;
}

/* Take text that goes on with a line. */
static int take_rest(struct piece **place, const char *text, size_t length) {
    const char *end = memchr(text, '\n', length);
    size_t used = end ? (size_t)(end - text) + 1 : length;
    const char *next = text + used;
    size_t rest = length - used;
    /* What holds a line of the program's own as well is the program's. */
    if (rest && !shim_is_trace(next, rest)) return 0;
    struct piece *piece = *place;
    if (!append(piece, text, used)) return 0;
    if (!end) return 1;
    if (!shim_write_lines(piece->text, piece->length)) {
        piece->length -= used;
        return 0;
    }
    drop(let_go(place));
    if (rest && !take_start(next, rest, whole_lines(next, rest)))
        SHIM_NEXT(fwrite)(next, 1, rest, stdout);
    return 1;
}

static int take(const char *text, size_t length) {
    int is_start = shim_is_trace(text, length);
    struct piece **mine = place_of(this_thread());
    if (*mine && !is_start) return take_rest(mine, text, length);
    if (*mine) print(mine);
    return is_start && take_start(text, length, whole_lines(text, length));
}

static void print_all(void) {
    while (oldest) print(&oldest);
}

/* Whether there is one thread: another one's text may come into the buffer between a look and the lock. */
static int is_alone(void) {
    const char *is_single = shim_next("__libc_single_threaded"); /* glibc's, from 2.32 on */
    return !is_single || *is_single;
}

/* Take what came into the buffer unseen as the rest of the newest piece. */
static void take_unseen(void) {
#ifdef __GLIBC__
    size_t now = __fpending(stdout);
    if (!oldest || now <= buffered) return;
    if (!shim_next("gnu_get_libc_version")) return; /* other C libraries load us too */
    size_t length = now - buffered;
    char *text = malloc(length);
    if (!text) return;
    stdout->_IO_write_ptr -= length;
    memcpy(text, stdout->_IO_write_ptr, length);
    struct piece **newest = &oldest;
    while ((*newest)->next) newest = &(*newest)->next;
    if (!is_alone() || shim_is_trace(text, length) || !take_rest(newest, text, length)) {
        print_all();
        SHIM_NEXT(fwrite)(text, 1, length, stdout);
    }
    free(text);
#endif
}

int shim_take(const char *text, size_t length) {
    if (!length) return 0;
    int is_any_held = shim_holds_any();
    if (!is_any_held) {
        if (!shim_is_trace(text, length)) return 0;
        if (text[length - 1] == '\n') return shim_write_lines(text, length);
    }
    int before = errno;
    flockfile(stdout);
    take_unseen();
    int is_taken = take(text, length);
    if (!is_taken) print_all();
    funlockfile(stdout);
    errno = before;
    return is_taken;
}

void shim_let_go(int of_all_threads) {
    if (!shim_holds_any()) return;
    int before = errno;
    flockfile(stdout);
    take_unseen();
    struct piece **mine = place_of(this_thread());
    if (of_all_threads)
        print_all();
    else if (*mine)
        print(mine);
    funlockfile(stdout);
    errno = before;
}

/* A thread that is stuck in printing has the lock: the program must end nevertheless. */
static int get_lock_in_time(void) {
    struct timespec millisecond = {0, 1000000};
    for (int times = 0; times < 100; ++times) {
        if (!ftrylockfile(stdout)) return 1;
        nanosleep(&millisecond, NULL);
    }
    return 0;
}

/* Others may print after us: what they begin then is not held. */
__attribute__((destructor)) static void end(void) {
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    if (!shim_holds_any() || !get_lock_in_time()) return;
    take_unseen();
    print_all();
    funlockfile(stdout);
}
