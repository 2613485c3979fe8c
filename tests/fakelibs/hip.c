// A stand-in for libamdhip64: host memory serves as device memory. FAKE_INIT is what
// hipGetDeviceCount returns; FAKE_RUNTIME the version; FAKE_RESULT 1 spoils what is copied back.
#include <stddef.h>

#include "steering.h"

int hipRuntimeGetVersion(int *version) {
    *version = (int)value("FAKE_RUNTIME", 60443483);
    return (int)value("FAKE_RUNTIME_STATUS", 0);
}
const char *hipGetErrorName(int status) {
    return status == 100 ? "hipErrorNoDevice" : status == 2 ? "hipErrorOutOfMemory" : NULL;
}
int hipGetDeviceCount(int *count) {
    behave();
    *count = (int)value("FAKE_GPUS", 1);
    return (int)value("FAKE_INIT", 0);
}
int hipSetDevice(int index) { return index; }
int hipDeviceGetName(char *name, int size, int index) {
    (void)index;
    snprintf(name, (size_t)size, "%s", text_of("FAKE_NAME", "AMD Test"));
    return 0;
}
int hipDeviceGetPCIBusId(char *address, int size, int index) {
    snprintf(address, (size_t)size, "0000:%02X:00.0", 5 + 0x10 * index);
    return 0;
}
int hipDeviceTotalMem(size_t *size, int index) {
    (void)index;
    *size = (size_t)192 << 30;
    return 0;
}
// As an older runtime does, it refuses what it does not know: everything behind memory pools.
int hipDeviceGetAttribute(int *out, int attribute, int index) {
    (void)index;
    *out = attribute == 24 || attribute == 88 || attribute == 10;
    return attribute > 88 && attribute < 10000;
}
int hipMalloc(void **memory, size_t size) {
    if (value("FAKE_MEMORY_STATUS", 0)) return (int)value("FAKE_MEMORY_STATUS", 0);
    *memory = malloc(size);
    return 0;
}
int hipMemset(void *memory, int byte, size_t size) {
    memset(memory, byte, size);
    return 0;
}
int hipMemcpy(void *to, const void *from, size_t size, int kind) {
    if (kind != 1 && kind != 2) return 1;
    memcpy(to, from, size);
    if (kind == 2 && value("FAKE_RESULT", 0)) ((char *)to)[size - 1] ^= 1;
    return 0;
}
int hipFree(void *memory) {
    free(memory);
    return 0;
}
