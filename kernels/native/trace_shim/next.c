#define _GNU_SOURCE
#include <dlfcn.h>

#include "shim.h"

void *shim_next(const char *name) { return dlsym(RTLD_NEXT, name); }

void *shim_next_kept(void **kept, const char *name) {
    void *next = __atomic_load_n(kept, __ATOMIC_RELAXED);
    if (!next) {
        next = shim_next(name);
        __atomic_store_n(kept, next, __ATOMIC_RELAXED);
    }
    return next;
}
