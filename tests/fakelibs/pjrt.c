// A stand-in for libtpu.so: the head of PJRT's table of functions. FAKE_SIZE is how long it says it is.
#include <stddef.h>

#include "steering.h"

static struct {
    size_t size;
    void *extension;
    size_t version_size;
    void *version_extension;
    int major, minor;
    void *functions[4];
} table = {sizeof table, NULL, 24, NULL, 0, 81, {NULL}};

void *GetPjrtApi(void) {
    behave();
    table.size = value("FAKE_SIZE", sizeof table);
    return value("FAKE_GPUS", 1) ? &table : NULL;
}
