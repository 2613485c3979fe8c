// A stand-in for libascendcl.so: host memory serves as device memory. FAKE_INIT is what aclInit
// returns; FAKE_RESULT 1 spoils what is copied back.
#include <stddef.h>
#include <stdint.h>

#include "steering.h"

int aclInit(const char *configuration) {
    behave();
    return configuration ? 1 : (int)value("FAKE_INIT", 0);
}
int aclFinalize(void) { return 0; }
int aclrtGetDeviceCount(uint32_t *count) {
    *count = value("FAKE_GPUS", 1);
    return (int)value("FAKE_COUNT", 0);
}
const char *aclrtGetSocName(void) { return "Ascend910B2"; }
int aclrtSetDevice(int index) { return index; }
int aclrtResetDevice(int index) { return index; }
int aclrtMalloc(void **memory, size_t size, int policy) {
    *memory = malloc(size);
    return policy;
}
int aclrtMemset(void *memory, size_t room, int32_t byte, size_t size) {
    if (size > room) return 1;
    memset(memory, byte, size);
    return 0;
}
int aclrtMemcpy(void *to, size_t room, const void *from, size_t size, int kind) {
    if (size > room || kind != 2) return 1;
    memcpy(to, from, size);
    if (value("FAKE_RESULT", 0)) ((char *)to)[0] ^= 1;
    return 0;
}
int aclrtFree(void *memory) {
    free(memory);
    return 0;
}
