// The devices of the stand-in for libcuda.so.1: what a description has of each. See README.md.
#include <stdint.h>

#include "steering.h"

typedef unsigned u32;
typedef uint64_t u64;
typedef uintptr_t Address;
typedef int Result;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101 };
enum { INVALID_CONTEXT = 201, NOT_FOUND = 500, CAPTURE_ISOLATION = 905, CAPTURE_IMPLICIT = 906 };

static int gpus(void) { return (int)value("FAKE_CUDA_GPUS", value("FAKE_GPUS", 1)); }
// Which GPU of NVML's a device is: a lost one is left out.
static u32 gpu_of(int device) { return (u32)atoi(text_at((u32)device, "FAKE_CUDA_GPU", "-1")); }
static const char *said(int device, const char *name, const char *otherwise) {
    u32 gpu = gpu_of(device);
    return text_at(gpu == ~0u ? (u32)device : gpu, name, otherwise);
}
static u64 of(int device, const char *name, const char *otherwise) {
    return strtoull(said(device, name, otherwise), NULL, 0);
}
static int is_mig(int device) { return *said(device, "FAKE_MIG", "-") == '1'; }

// ---- the system

Result cuInit(u32 flags) {
    Result result = (Result)value("FAKE_INIT", OK);
    behave();
    if (flags) return INVALID_VALUE;
    return result ? result : value("FAKE_GPUS", 1) ? OK : NO_DEVICE;
}
Result cuDriverGetVersion(int *version) {
    *version = (int)value("FAKE_CUDA", 13000);
    return OK;
}
Result cuGetErrorName(Result error, const char **name) {
    switch (error) {
    case OK: *name = "CUDA_SUCCESS"; break;
    case INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
    case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case 3: *name = "CUDA_ERROR_NOT_INITIALIZED"; break;
    case 34: *name = "CUDA_ERROR_STUB_LIBRARY"; break;
    case 46: *name = "CUDA_ERROR_DEVICE_UNAVAILABLE"; break;
    case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
    case INVALID_DEVICE: *name = "CUDA_ERROR_INVALID_DEVICE"; break;
    case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; break;
    case NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; break;
    case 304: *name = "CUDA_ERROR_OPERATING_SYSTEM"; break;
    case 700: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case 802: *name = "CUDA_ERROR_SYSTEM_NOT_READY"; break;
    case 803: *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; break;
    case 804: *name = "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"; break;
    case 805: *name = "CUDA_ERROR_MPS_CONNECTION_FAILED"; break;
    case CAPTURE_ISOLATION: *name = "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"; break;
    case CAPTURE_IMPLICIT: *name = "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"; break;
    case 999: *name = "CUDA_ERROR_UNKNOWN"; break;
    default: *name = NULL; return INVALID_VALUE;
    }
    return OK;
}
Result cuGetErrorString(Result error, const char **text) { return cuGetErrorName(error, text); }
// ---- devices

Result cuDeviceGetCount(int *count) {
    *count = gpus();
    return OK;
}
Result cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal >= 0 && ordinal < gpus() ? OK : INVALID_DEVICE;
}
Result cuDeviceGetName(char *buffer, int size, int device) {
    const char *part = is_mig(device) ? said(device, "FAKE_PROFILE", "3g.40gb") : "";
    snprintf(buffer, (size_t)size, "%s%s%s", said(device, "FAKE_NAME", "NVIDIA Test"), *part ? " MIG " : "", part);
    return OK;
}
Result cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    u32 gpu = gpu_of(device) == ~0u ? (u32)device : gpu_of(device);
    memset(uuid, 0, 16);
    uuid[15] = (unsigned char)(is_mig(device) ? gpu << 4 : gpu);  // as NVML writes it, in decimal digits
    return OK;
}
Result cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = (size_t)(is_mig(device) ? of(device, "FAKE_PART_GIB", "40") : of(device, "FAKE_GIB", "80")) << 30;
    return OK;
}
Result cuDeviceGetPCIBusId(char *buffer, int size, int device) {
    u32 gpu = gpu_of(device) == ~0u ? (u32)device : gpu_of(device), bus = (u32)of(device, "FAKE_BUS", "0");
    snprintf(buffer, (size_t)size, "0000:%02X:00.0", bus ? bus : 0x17 + gpu);
    return OK;
}
Result cuDeviceGetAttribute(int *out, int attribute, int device) {
    int capability = (int)of(device, "FAKE_CAPABILITY", "90");
    switch (attribute) {
    case 1: case 2: case 3: *out = 1024; break;
    case 4: *out = 64; break;
    case 5: *out = 2147483647; break;
    case 6: case 7: *out = 65535; break;
    case 8: *out = 49152; break;
    case 10: *out = 32; break;
    case 12: *out = 65536; break;
    case 13: *out = (int)of(device, "FAKE_MAX_KILOHERTZ", "1980000"); break;
    case 16: *out = is_mig(device) ? 60 : (int)of(device, "FAKE_MULTIPROCESSORS", "132"); break;
    case 19: case 31: case 41: case 83: case 90: case 99: *out = 1; break;
    case 102: *out = 1; break;
    case 115: *out = (int)value("FAKE_POOLS", 1); break;
    case 36: *out = (int)of(device, "FAKE_MEMORY_KILOHERTZ", "2619000"); break;
    case 37: *out = (int)of(device, "FAKE_MEMORY_BITS", "5120"); break;
    case 38: *out = (int)of(device, "FAKE_CACHE", "52428800"); break;
    case 75: *out = capability / 10; break;
    case 76: *out = capability % 10; break;
    case 97: *out = capability >= 90 ? 232448 : capability == 80 ? 166912 : 101376; break;
    case 120: return INVALID_VALUE;  // newer than this driver
    default: *out = 0;
    }
    return OK;
}
Result cuDevicePrimaryCtxRetain(Address *context, int device) {
    *context = (Address)device + 1;
    return (Result)of(device, "FAKE_CONTEXT", "0");
}
