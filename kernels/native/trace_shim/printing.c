/* printf and its like, of which oneDNN uses printf and __printf_chk.
 *
 * Text is formatted here if it may be a line of a trace, or goes on with one.
 */
#include <errno.h>
#include <stdlib.h>

#include "shim.h"

#define ON_STACK 2048

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
    return length >= 0 ? length : shim_next_vfprintf(stream, format, arguments);
}

EXPORTED int vprintf(const char *format, va_list arguments) {
    return vfprintf(stdout, format, arguments);
}

EXPORTED int fprintf(FILE *stream, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vfprintf(stream, format, arguments);
    va_end(arguments);
    return length;
}

EXPORTED int printf(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vfprintf(stdout, format, arguments);
    va_end(arguments);
    return length;
}

/* What glibc's headers make of the above in programs that are compiled with _FORTIFY_SOURCE. */

EXPORTED int __vfprintf_chk(FILE *stream, int flag, const char *format, va_list arguments) {
    int length = caught(stream, format, arguments);
    return length >= 0 ? length : shim_next_vfprintf_chk(stream, flag, format, arguments);
}

EXPORTED int __vprintf_chk(int flag, const char *format, va_list arguments) {
    return __vfprintf_chk(stdout, flag, format, arguments);
}

EXPORTED int __fprintf_chk(FILE *stream, int flag, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = __vfprintf_chk(stream, flag, format, arguments);
    va_end(arguments);
    return length;
}

EXPORTED int __printf_chk(int flag, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = __vfprintf_chk(stdout, flag, format, arguments);
    va_end(arguments);
    return length;
}
