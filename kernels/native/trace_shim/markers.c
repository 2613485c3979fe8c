/* Telling a trace line by how it starts, and telling soon that a format prints none. */
#include <string.h>

#include "shim.h"

/* Return the length of the marker that stands at the start, 0 where none does. */
static size_t marker_of(const char *text, size_t length) {
    for (const char *marker = shim_markers; *marker;) {
        size_t size = strcspn(marker, "\n");
        if (size && size <= length && !memcmp(text, marker, size)) return size;
        marker += size + 1;
    }
    return 0;
}

/* What holds a line of the program's own as well is the program's. */
int shim_is_trace(const char *text, size_t length) {
    if (!*shim_trace_path || !length) return 0;
    for (const char *end = text + length; text < end;) {
        if (!marker_of(text, (size_t)(end - text))) return 0;
        const char *last = memchr(text, '\n', (size_t)(end - text));
        text = last ? last + 1 : end;
    }
    return 1;
}

static int is_in_word(char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '_' || letter == '.';
}

/* A field of oneDNN follows its marker, or a function's name that of MKL. A question such as
 * "onednn_verbose, yes or no? " is not to be held: somebody is to answer it. */
int shim_may_go_on(const char *text, size_t length) {
    size_t at = marker_of(text, length);
    if (!at) return 0;
    const char *behind_word = text[at - 1] == ' ' ? "(" : ",:";
    while (at < length && is_in_word(text[at])) ++at;
    return at == length || (text[at] && strchr(behind_word, text[at]));
}

/* Whether a marker starts like this, as far as the first '%'. */
static int starts_like_a_marker(const char *text) {
    for (const char *marker = shim_markers; *marker; marker += strcspn(marker, "\n") + 1) {
        size_t same = 0;
        while (marker[same] != '\n' && text[same] == marker[same] && text[same] != '%') ++same;
        if (marker[same] == '\n' || (same && text[same] == '%')) return 1;
    }
    return 0;
}

/* oneDNN prints "marker,...", "marker%s,..." and "%s" with the line as its argument. A yes is
 * a guess, which is settled when the line has been formatted. */
int shim_may_be_trace(const char *format, va_list arguments) {
    if (!*shim_trace_path || !format) return 0;
    if (format[0] != '%' || format[1] != 's') return starts_like_a_marker(format);
    va_list copy;
    va_copy(copy, arguments);
    const char *first = va_arg(copy, const char *);
    va_end(copy);
    return first && starts_like_a_marker(first);
}
