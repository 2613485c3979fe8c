/* The printing functions: printf and its like, of which oneDNN uses printf and __printf_chk; puts, fputs and
 * fwrite, single characters, and their forms without a lock, which compilers make of a printf without
 * arguments and C++ streams print with; and what makes text visible that has no end yet.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#undef fputs_unlocked
#undef fwrite_unlocked
#undef fputc
#undef fputc_unlocked
#undef putc
#undef putc_unlocked
#undef putchar
#undef putchar_unlocked

#define ON_STACK 2048

void *shim_next(const char *name) { return dlsym(RTLD_NEXT, name); }

void *shim_next_kept(void **kept, const char *name) {
    void *next = __atomic_load_n(kept, __ATOMIC_RELAXED);
    if (!next) {
        next = shim_next(name);
        __atomic_store_n(kept, next, __ATOMIC_RELAXED);
    }
    return next;
}

/* ---- printf: text is formatted here if it may be a line of a trace, or goes on with one ---- */

/* Returns the length of what was taken, or -1 where the program's own printing has to do it. */
static int caught(FILE *stream, const char *format, va_list arguments) {
    if (stream != stdout) return -1;
    if (!shim_holds_any() && !shim_may_be_trace(format, arguments)) return -1;
    int before = errno;
    char small[ON_STACK];
    char *text = small;
    va_list copy;
    va_copy(copy, arguments);
    int length = vsnprintf(small, sizeof small, format, copy);
    va_end(copy);
    if (length >= ON_STACK) {
        text = malloc((size_t)length + 1);
        va_copy(copy, arguments);
        if (text) length = vsnprintf(text, (size_t)length + 1, format, copy);
        va_end(copy);
    }
    int is_taken = text && length > 0 && shim_take(text, (size_t)length);
    if (text != small) free(text);
    errno = before;
    return is_taken ? length : -1;
}

EXPORTED int vfprintf(FILE *stream, const char *format, va_list arguments) {
    int length = caught(stream, format, arguments);
    return length >= 0 ? length : SHIM_NEXT(vfprintf)(stream, format, arguments);
}

/* Call a function with the variable arguments behind `format`. */
#define WITH_ARGUMENTS(call) ({      \
    va_list arguments;               \
    va_start(arguments, format);     \
    int length_of_call = call;       \
    va_end(arguments);               \
    length_of_call;                  \
})

EXPORTED int vprintf(const char *format, va_list arguments) {
    return vfprintf(stdout, format, arguments);
}

EXPORTED int fprintf(FILE *stream, const char *format, ...) {
    return WITH_ARGUMENTS(vfprintf(stream, format, arguments));
}

EXPORTED int printf(const char *format, ...) {
    return WITH_ARGUMENTS(vfprintf(stdout, format, arguments));
}

/* What glibc's headers make of the above in programs that are compiled with _FORTIFY_SOURCE. */

EXPORTED int __vfprintf_chk(FILE *stream, int flag, const char *format, va_list arguments) {
    int length = caught(stream, format, arguments);
    if (length >= 0) return length;
    /* Where libc has no checked form (musl), nothing but a shim like this calls for one. */
    __typeof__(&__vfprintf_chk) next = SHIM_NEXT(__vfprintf_chk);
    return next ? next(stream, flag, format, arguments) : SHIM_NEXT(vfprintf)(stream, format, arguments);
}

EXPORTED int __vprintf_chk(int flag, const char *format, va_list arguments) {
    return __vfprintf_chk(stdout, flag, format, arguments);
}

EXPORTED int __fprintf_chk(FILE *stream, int flag, const char *format, ...) {
    return WITH_ARGUMENTS(__vfprintf_chk(stream, flag, format, arguments));
}

EXPORTED int __printf_chk(int flag, const char *format, ...) {
    return WITH_ARGUMENTS(__vfprintf_chk(stdout, flag, format, arguments));
}

/* ---- text that is printed as it is ---- */

static int is_taken(const char *text, size_t length, FILE *stream) {
    return stream == stdout && shim_take(text, length);
}

/* What is held, and what takes lines, needs the line with its end. */
EXPORTED int puts(const char *text) {
    size_t length = strlen(text);
    char *line = shim_holds_any() || shim_is_trace(text, length) ? malloc(length + 1) : NULL;
    if (line) {
        memcpy(line, text, length);
        line[length] = '\n';
        int is_line_taken = shim_take(line, length + 1);
        free(line);
        if (is_line_taken) return 1;
    }
    return SHIM_NEXT(puts)(text);
}

EXPORTED int fputs(const char *text, FILE *stream) {
    if (is_taken(text, strlen(text), stream)) return 1;
    return SHIM_NEXT(fputs)(text, stream);
}

EXPORTED int fputs_unlocked(const char *text, FILE *stream) {
    if (is_taken(text, strlen(text), stream)) return 1;
    return SHIM_NEXT(fputs_unlocked)(text, stream);
}

EXPORTED size_t fwrite(const void *items, size_t size, size_t count, FILE *stream) {
    if (is_taken(items, size * count, stream)) return count;
    return SHIM_NEXT(fwrite)(items, size, count, stream);
}

EXPORTED size_t fwrite_unlocked(const void *items, size_t size, size_t count, FILE *stream) {
    if (is_taken(items, size * count, stream)) return count;
    return SHIM_NEXT(fwrite_unlocked)(items, size, count, stream);
}

/* One character starts no line, so it matters only where something is held. */
static int is_letter_taken(int letter, FILE *stream) {
    char text = (char)letter;
    return stream == stdout && shim_holds_any() && shim_take(&text, 1);
}

EXPORTED int fputc(int letter, FILE *stream) {
    if (is_letter_taken(letter, stream)) return (unsigned char)letter;
    return SHIM_NEXT(fputc)(letter, stream);
}

EXPORTED int fputc_unlocked(int letter, FILE *stream) {
    if (is_letter_taken(letter, stream)) return (unsigned char)letter;
    return SHIM_NEXT(fputc_unlocked)(letter, stream);
}

EXPORTED int putc(int letter, FILE *stream) { return fputc(letter, stream); }

EXPORTED int putc_unlocked(int letter, FILE *stream) { return fputc_unlocked(letter, stream); }

EXPORTED int putchar(int letter) { return fputc(letter, stdout); }

EXPORTED int putchar_unlocked(int letter) { return fputc_unlocked(letter, stdout); }

/* The putc of older headers, and in libraries that were compiled with them. */
EXPORTED int _IO_putc(int letter, FILE *stream) { return fputc(letter, stream); }

/* What putc_unlocked calls, where it stands in the program itself and the buffer is full or none. */
EXPORTED int __overflow(FILE *stream, int letter) {
    if (is_letter_taken(letter, stream)) return (unsigned char)letter;
    return SHIM_NEXT(__overflow)(stream, letter);
}

/* ---- flushing: then nothing may be held back; oneDNN flushes after every line, so a flush is for what its
 * own thread printed ---- */

EXPORTED int fflush(FILE *stream) {
    if (!stream || stream == stdout) shim_let_go(0);
    return SHIM_NEXT(fflush)(stream);
}

EXPORTED int fclose(FILE *stream) {
    if (stream == stdout) shim_let_go(1);
    return SHIM_NEXT(fclose)(stream);
}

EXPORTED FILE *freopen(const char *path, const char *mode, FILE *stream) {
    if (stream == stdout) shim_let_go(1);
    return SHIM_NEXT(freopen)(path, mode, stream);
}

EXPORTED FILE *freopen64(const char *path, const char *mode, FILE *stream) {
    if (stream == stdout) shim_let_go(1);
    return SHIM_NEXT(freopen64)(path, mode, stream);
}
