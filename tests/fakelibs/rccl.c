// A stand-in for librccl. FAKE_RUNTIME is the version.
#include "steering.h"

int ncclGetVersion(int *version) {
    behave();
    *version = (int)value("FAKE_RUNTIME", 22106);
    return (int)value("FAKE_INIT", 0);
}
const char *ncclGetErrorString(int status) { return status == 2 ? "unhandled system error" : NULL; }
