/* What the capturing process says, by environment variables that are read once at the start: the
 * program may change its environment afterwards.
 *
 * MLBACKENDS_TRACE_FILE     the trace, an absolute path
 * MLBACKENDS_TRACE_MARKERS  what a trace line starts with, separated by '\n'
 * MLBACKENDS_TRACE_COUNTS   a file of counters to map, see counts.c
 * MLBACKENDS_TRACE_RANKS    names of variables, separated by ','; the first that is set names this
 *                           process's rank, and its trace is FILE with ".rankN" before the extension
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define LONGEST_MARKERS 1024
#define LONGEST_RANK 16

char shim_trace_path[PATH_MAX];
char shim_mkl_path[PATH_MAX];
char shim_markers[LONGEST_MARKERS];

static void copy_variable(char *target, size_t size, const char *name) {
    const char *value = getenv(name);
    size_t length = value ? strlen(value) : 0;
    if (length + 1 < size) memcpy(target, value ? value : "", length + 1);
}

/* Copy the rank's digits; a value with anything else in it is no rank. */
static size_t rank_of(const char *names, char *rank) {
    while (*names) {
        char name[128];
        size_t length = strcspn(names, ",");
        if (length && length < sizeof name) {
            memcpy(name, names, length);
            name[length] = 0;
            const char *value = getenv(name);
            size_t digits = value ? strspn(value, "0123456789") : 0;
            if (digits && digits < LONGEST_RANK && !value[digits]) {
                memcpy(rank, value, digits);
                return digits;
            }
        }
        names += length + (names[length] == ',');
    }
    return 0;
}

static void put_rank_into_path(const char *names) {
    char rank[LONGEST_RANK];
    size_t digits = rank_of(names, rank);
    size_t length = strlen(shim_trace_path);
    static const char word[] = ".rank";
    size_t added = sizeof word - 1 + digits;
    if (!digits || length + added >= PATH_MAX) return;
    char *name = strrchr(shim_trace_path, '/');
    name = name ? name + 1 : shim_trace_path;
    char *dot = strrchr(name, '.');
    if (!dot || dot == name) dot = shim_trace_path + length;
    memmove(dot + added, dot, strlen(dot) + 1);
    memcpy(dot, word, sizeof word - 1);
    memcpy(dot + sizeof word - 1, rank, digits);
}

__attribute__((constructor)) static void read_settings(void) {
    copy_variable(shim_markers, sizeof shim_markers - 1, "MLBACKENDS_TRACE_MARKERS");
    size_t length = strlen(shim_markers);
    if (!length) return;
    if (shim_markers[length - 1] != '\n') memcpy(shim_markers + length, "\n", 2);
    const char *counts = getenv("MLBACKENDS_TRACE_COUNTS");
    int before = errno; /* 0, which a program may count on */
    if (counts) shim_map_counts(counts);
    errno = before;
    copy_variable(shim_trace_path, PATH_MAX, "MLBACKENDS_TRACE_FILE");
    memcpy(shim_mkl_path, shim_trace_path, PATH_MAX);
    const char *names = getenv("MLBACKENDS_TRACE_RANKS");
    if (names && *shim_trace_path) put_rank_into_path(names);
}
