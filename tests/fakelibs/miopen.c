// A stand-in for libMIOpen. FAKE_INIT is what miopenCreate returns.
#include "steering.h"

int miopenGetVersion(size_t *major, size_t *minor, size_t *patch) {
    *major = 3, *minor = 2, *patch = 0;
    return 0;
}
int miopenCreate(void **handle) {
    static int made;
    behave();
    *handle = &made;
    return (int)value("FAKE_INIT", 0);
}
int miopenDestroy(void *handle) { return handle ? 0 : 1; }
const char *miopenGetErrorString(int status) {
    return status == 1 ? "miopenStatusNotInitialized" : "miopenStatusUnknownError";
}
