/* What makes text seen that has no end yet: then nothing may be held back.
 *
 * oneDNN flushes after every line, so a flush is for what its own thread printed.
 */
#define _GNU_SOURCE
#include "shim.h"

EXPORTED int fflush(FILE *stream) {
    if (!stream || stream == stdout) shim_let_go(0);
    return shim_next_fflush(stream);
}

EXPORTED int fclose(FILE *stream) {
    if (stream == stdout) shim_let_go(1);
    return shim_next_fclose(stream);
}

static FILE *reopened(const char *name, const char *path, const char *mode, FILE *stream) {
    if (stream == stdout) shim_let_go(1);
    return shim_next_freopen(name, path, mode, stream);
}

EXPORTED FILE *freopen(const char *path, const char *mode, FILE *stream) {
    return reopened("freopen", path, mode, stream);
}

EXPORTED FILE *freopen64(const char *path, const char *mode, FILE *stream) {
    return reopened("freopen64", path, mode, stream);
}
