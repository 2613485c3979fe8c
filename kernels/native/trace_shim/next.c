/* The functions that ours stand before: libc's, or those of another preloaded library.
 *
 * Found at the first use and kept; two threads that look at once find the same.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "shim.h"

void *shim_next(const char *name) { return dlsym(RTLD_NEXT, name); }

#define FIND(type, name)                                          \
    static type found;                                            \
    type next = __atomic_load_n(&found, __ATOMIC_RELAXED);        \
    if (!next) {                                                  \
        next = (type)shim_next(name);                             \
        __atomic_store_n(&found, next, __ATOMIC_RELAXED);         \
    }

typedef int (*vfprintf_type)(FILE *, const char *, va_list);
typedef int (*vfprintf_chk_type)(FILE *, int, const char *, va_list);
typedef int (*puts_type)(const char *);
typedef int (*fputs_type)(const char *, FILE *);
typedef size_t (*fwrite_type)(const void *, size_t, size_t, FILE *);
typedef int (*fputc_type)(int, FILE *);
typedef int (*overflow_type)(FILE *, int);
typedef int (*file_type)(FILE *);
typedef FILE *(*freopen_type)(const char *, const char *, FILE *);
typedef FILE *(*fopen_type)(const char *, const char *);

int shim_next_vfprintf(FILE *stream, const char *format, va_list arguments) {
    FIND(vfprintf_type, "vfprintf")
    return next ? next(stream, format, arguments) : -1;
}

/* Where libc has no checked form (musl), nothing but a shim like this calls for one. */
int shim_next_vfprintf_chk(FILE *stream, int flag, const char *format, va_list arguments) {
    FIND(vfprintf_chk_type, "__vfprintf_chk")
    if (!next) return shim_next_vfprintf(stream, format, arguments);
    return next(stream, flag, format, arguments);
}

int shim_next_puts(const char *text) {
    FIND(puts_type, "puts")
    return next ? next(text) : EOF;
}

int shim_next_fputs(const char *text, FILE *stream) {
    FIND(fputs_type, "fputs")
    return next ? next(text, stream) : EOF;
}

int shim_next_fputs_unlocked(const char *text, FILE *stream) {
    FIND(fputs_type, "fputs_unlocked")
    return next ? next(text, stream) : shim_next_fputs(text, stream);
}

size_t shim_next_fwrite(const void *items, size_t size, size_t count, FILE *stream) {
    FIND(fwrite_type, "fwrite")
    return next ? next(items, size, count, stream) : 0;
}

size_t shim_next_fwrite_unlocked(const void *items, size_t size, size_t count, FILE *stream) {
    FIND(fwrite_type, "fwrite_unlocked")
    return next ? next(items, size, count, stream) : shim_next_fwrite(items, size, count, stream);
}

int shim_next_fputc(int letter, FILE *stream) {
    FIND(fputc_type, "fputc")
    return next ? next(letter, stream) : EOF;
}

int shim_next_fputc_unlocked(int letter, FILE *stream) {
    FIND(fputc_type, "fputc_unlocked")
    return next ? next(letter, stream) : shim_next_fputc(letter, stream);
}

int shim_next_overflow(FILE *stream, int letter) {
    FIND(overflow_type, "__overflow")
    return next ? next(stream, letter) : shim_next_fputc_unlocked(letter, stream);
}

int shim_next_fflush(FILE *stream) {
    FIND(file_type, "fflush")
    return next ? next(stream) : EOF;
}

int shim_next_fclose(FILE *stream) {
    FIND(file_type, "fclose")
    return next ? next(stream) : EOF;
}

FILE *shim_next_freopen(const char *name, const char *path, const char *mode, FILE *stream) {
    freopen_type next = (freopen_type)shim_next(name);
    return next ? next(path, mode, stream) : NULL;
}

FILE *shim_next_fopen(const char *name, const char *path, const char *mode) {
    fopen_type next = (fopen_type)shim_next(name);
    return next ? next(path, mode) : NULL;
}
