/* puts, fputs and fwrite, single characters, and their forms without a lock: what compilers make of
 * a printf without arguments, and what C++ streams print with.
 */
#define _GNU_SOURCE
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

static int is_taken(const char *text, size_t length, FILE *stream) {
    return stream == stdout && shim_take(text, length);
}

/* What is held needs the line with its end. */
static int is_line_taken(const char *text, size_t length) {
    char *line = malloc(length + 1);
    if (!line) return 0;
    memcpy(line, text, length);
    line[length] = '\n';
    int taken = shim_take(line, length + 1);
    free(line);
    return taken;
}

EXPORTED int puts(const char *text) {
    size_t length = strlen(text);
    if (shim_holds_any()) {
        if (is_line_taken(text, length)) return 1;
    } else if (shim_is_trace(text, length) && shim_write_lines(text, length)) {
        return 1;
    }
    return shim_next_puts(text);
}

EXPORTED int fputs(const char *text, FILE *stream) {
    if (stream == stdout && shim_take(text, strlen(text))) return 1;
    return shim_next_fputs(text, stream);
}

EXPORTED int fputs_unlocked(const char *text, FILE *stream) {
    if (stream == stdout && shim_take(text, strlen(text))) return 1;
    return shim_next_fputs_unlocked(text, stream);
}

EXPORTED size_t fwrite(const void *items, size_t size, size_t count, FILE *stream) {
    if (is_taken(items, size * count, stream)) return count;
    return shim_next_fwrite(items, size, count, stream);
}

EXPORTED size_t fwrite_unlocked(const void *items, size_t size, size_t count, FILE *stream) {
    if (is_taken(items, size * count, stream)) return count;
    return shim_next_fwrite_unlocked(items, size, count, stream);
}

/* One character starts no line, so it matters only where something is held. */
static int is_letter_taken(int letter, FILE *stream) {
    char text = (char)letter;
    return stream == stdout && shim_holds_any() && shim_take(&text, 1);
}

EXPORTED int fputc(int letter, FILE *stream) {
    if (is_letter_taken(letter, stream)) return (unsigned char)letter;
    return shim_next_fputc(letter, stream);
}

EXPORTED int fputc_unlocked(int letter, FILE *stream) {
    if (is_letter_taken(letter, stream)) return (unsigned char)letter;
    return shim_next_fputc_unlocked(letter, stream);
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
    return shim_next_overflow(stream, letter);
}
