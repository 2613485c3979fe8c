// A stand-in for libhipblaslt. FAKE_INIT is what hipblasLtCreate returns.
#include "steering.h"

int hipblasLtCreate(void **handle) {
    static int made;
    behave();
    *handle = &made;
    return (int)value("FAKE_INIT", 0);
}
int hipblasLtGetVersion(void *handle, int *version) {
    *version = 1203;
    return handle ? 0 : 1;
}
int hipblasLtDestroy(void *handle) { return handle ? 0 : 1; }
