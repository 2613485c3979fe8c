// A stand-in for libcuda.so.1: host memory serves as device memory. See README.md.
#include <stdint.h>

#include "steering.h"

typedef unsigned u32;
typedef int Result;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101 };

static int gpus(void) { return (int)value("FAKE_GPUS", 1); }

Result cuInit(u32 flags) {
    Result result = (Result)value("FAKE_INIT", OK);
    behave();
    if (flags) return INVALID_VALUE;
    return result ? result : gpus() ? OK : NO_DEVICE;
}
Result cuDriverGetVersion(int *version) {
    *version = (int)value("FAKE_CUDA", 13000);
    return OK;
}
Result cuGetErrorName(Result error, const char **name) {
    switch (error) {
    case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case 34: *name = "CUDA_ERROR_STUB_LIBRARY"; break;
    case 46: *name = "CUDA_ERROR_DEVICE_UNAVAILABLE"; break;
    case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
    case INVALID_DEVICE: *name = "CUDA_ERROR_INVALID_DEVICE"; break;
    case 802: *name = "CUDA_ERROR_SYSTEM_NOT_READY"; break;
    case 803: *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; break;
    case 804: *name = "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"; break;
    default: *name = NULL; return INVALID_VALUE;
    }
    return OK;
}

Result cuDeviceGetCount(int *count) {
    *count = gpus();
    return OK;
}
Result cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal >= 0 && ordinal < gpus() ? OK : INVALID_DEVICE;
}
Result cuDeviceGetName(char *buffer, int size, int device) {
    (void)device;
    snprintf(buffer, (size_t)size, "%s", text_of("FAKE_NAME", "NVIDIA Test"));
    return OK;
}
Result cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    memset(uuid, 0, 16);
    uuid[15] = (unsigned char)device;
    return OK;
}
Result cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = (size_t)80 << 30;
    return OK;
}
Result cuDeviceGetPCIBusId(char *buffer, int size, int device) {
    snprintf(buffer, (size_t)size, "0000:%02X:00.0", 0x17 + device);
    return OK;
}
Result cuDeviceGetAttribute(int *out, int attribute, int device) {
    int capability = (int)value("FAKE_CAPABILITY", 90);
    (void)device;
    switch (attribute) {
    case 8: *out = 49152; break;
    case 10: *out = 32; break;
    case 13: *out = 1980000; break;
    case 16: *out = 132; break;
    case 19: case 31: case 41: case 83: case 90: case 99: *out = 1; break;
    case 102: *out = 1; break;
    case 115: *out = (int)value("FAKE_POOLS", 1); break;
    case 36: *out = 2619000; break;
    case 37: *out = 5120; break;
    case 38: *out = 52428800; break;
    case 75: *out = capability / 10; break;
    case 76: *out = capability % 10; break;
    case 97: *out = 232448; break;
    case 120: return INVALID_VALUE;  // newer than this driver
    default: *out = 0;
    }
    return OK;
}

Result cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = (void *)(uintptr_t)(device + 1);
    return (Result)value("FAKE_CONTEXT", OK);
}
Result cuDevicePrimaryCtxRelease_v2(int device) { return device < gpus() ? OK : INVALID_DEVICE; }
Result cuCtxPushCurrent_v2(void *context) { return context ? OK : INVALID_VALUE; }
Result cuCtxPopCurrent_v2(void **context) {
    if (context) *context = NULL;
    return OK;
}
Result cuMemAlloc_v2(uintptr_t *pointer, size_t size) {
    *pointer = (uintptr_t)malloc(size);
    return *pointer ? OK : OUT_OF_MEMORY;
}
Result cuMemFree_v2(uintptr_t pointer) {
    free((void *)pointer);
    return OK;
}
Result cuMemsetD32_v2(uintptr_t pointer, u32 word, size_t count) {
    for (size_t i = 0; i < count; i++) ((u32 *)pointer)[i] = word;
    return OK;
}
Result cuMemcpyDtoH_v2(void *target, uintptr_t source, size_t size) {
    memcpy(target, (void *)source, size);
    if (value("FAKE_RESULT", 0)) ((char *)target)[size / 2] ^= 1;
    return OK;
}
