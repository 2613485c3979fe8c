// A stand-in for libcuda.so.1: host memory serves as device memory, and launches are noted. See README.md.
// What of a function is the newest revision has its name; cuGetProcAddress finds it without.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

#include "steering.h"

typedef unsigned u32;
typedef unsigned long long u64;
typedef int Result;
typedef void *Pointer;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, NO_CONTEXT = 201 };
enum { NOT_FOUND = 500 };

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
    case NO_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; break;
    case NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; break;
    case 304: *name = "CUDA_ERROR_OPERATING_SYSTEM"; break;
    case 700: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case 802: *name = "CUDA_ERROR_SYSTEM_NOT_READY"; break;
    case 803: *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; break;
    case 804: *name = "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"; break;
    case 805: *name = "CUDA_ERROR_MPS_CONNECTION_FAILED"; break;
    case 999: *name = "CUDA_ERROR_UNKNOWN"; break;
    default: *name = NULL; return INVALID_VALUE;
    }
    return OK;
}
Result cuGetErrorString(Result error, const char **text) { return cuGetErrorName(error, text); }
Result cuGetProcAddress_v2(const char *name, Pointer *function, int version, u64 flags, int *status) {
    static const char *const revisions[] = {"_v2", "_v3", ""};
    Pointer own = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    char full[160];
    (void)version, (void)flags;
    *function = NULL;
    for (int i = 0; i < 3 && !*function; i++) {
        snprintf(full, sizeof full, "%s%s", name, revisions[i]);
        *function = dlsym(own ? own : RTLD_DEFAULT, full);
    }
    if (status) *status = !*function;
    return *function ? OK : NOT_FOUND;
}
Result cuGetProcAddress(const char *name, Pointer *function, int version, u64 flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

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

// ---- contexts, streams, events: a handle is a number

#define DOES_NOTHING(function) Result function(void) { return OK; }
DOES_NOTHING(cuStreamDestroy_v2)
DOES_NOTHING(cuStreamSynchronize)
DOES_NOTHING(cuStreamQuery)
DOES_NOTHING(cuStreamWaitEvent)
DOES_NOTHING(cuEventRecord)
DOES_NOTHING(cuEventSynchronize)
DOES_NOTHING(cuEventQuery)
DOES_NOTHING(cuEventDestroy_v2)
DOES_NOTHING(cuMemPoolSetAttribute)
DOES_NOTHING(cuLibraryUnload)
DOES_NOTHING(cuModuleUnload)
DOES_NOTHING(cuFuncSetCacheConfig)

Result cuCtxSynchronize(void) { return (Result)value("FAKE_SYNC", 0); }

static __thread Pointer current;
static Pointer handle(void) {
    static uintptr_t last = 0x1000;
    return (Pointer)(++last);
}
static Result made(Pointer *out) {
    *out = handle();
    return OK;
}

Result cuDevicePrimaryCtxRetain(Pointer *context, int device) {
    *context = (Pointer)(uintptr_t)(device + 1);
    return (Result)of(device, "FAKE_CONTEXT", "0");
}
Result cuDevicePrimaryCtxRelease_v2(int device) { return device < gpus() ? OK : INVALID_DEVICE; }
Result cuDevicePrimaryCtxGetState(int device, u32 *flags, int *active) {
    *flags = 0;
    *active = current == (Pointer)(uintptr_t)(device + 1);
    return OK;
}
Result cuCtxPushCurrent_v2(Pointer context) {
    current = context;
    return context ? OK : INVALID_VALUE;
}
Result cuCtxPopCurrent_v2(Pointer *context) {
    if (context) *context = current;
    current = NULL;
    return OK;
}
Result cuCtxSetCurrent(Pointer context) {
    current = context;
    return OK;
}
Result cuCtxGetCurrent(Pointer *context) {
    *context = current;
    return OK;
}
Result cuCtxGetDevice(int *device) {
    *device = (int)(uintptr_t)current - 1;
    return current ? OK : NO_CONTEXT;
}
Result cuCtxGetId(Pointer context, u64 *id) {
    *id = (u64)(uintptr_t)context;
    return OK;
}
Result cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return OK;
}
Result cuStreamCreateWithPriority(Pointer *stream, u32 flags, int priority) {
    (void)flags, (void)priority;
    return made(stream);
}
Result cuStreamCreate(Pointer *stream, u32 flags) { return cuStreamCreateWithPriority(stream, flags, 0); }
Result cuStreamGetCtx(Pointer stream, Pointer *context) {
    (void)stream;
    return cuCtxGetCurrent(context);
}
Result cuStreamGetId(Pointer stream, u64 *id) { return cuCtxGetId(stream, id); }
Result cuStreamGetFlags(Pointer stream, u32 *flags) {
    *flags = 1;
    return (void)stream, OK;
}
Result cuStreamGetPriority(Pointer stream, int *priority) {
    *priority = 0;
    return (void)stream, OK;
}
Result cuStreamGetDevice(Pointer stream, int *device) {
    (void)stream;
    return cuCtxGetDevice(device);
}
Result cuStreamIsCapturing(Pointer stream, int *status) {
    *status = 0;
    return (void)stream, OK;
}
Result cuEventCreate(Pointer *event, u32 flags) { return (void)flags, made(event); }
Result cuEventElapsedTime_v2(float *milliseconds, Pointer start, Pointer end) {
    *milliseconds = 1.0f;
    return (void)start, (void)end, OK;
}

// ---- memory

Result cuMemAlloc_v2(uintptr_t *pointer, size_t size) {
    *pointer = (uintptr_t)aligned_alloc(512, (size + 511) / 512 * 512 + 512 * !size);
    return *pointer ? OK : OUT_OF_MEMORY;
}
Result cuMemFree_v2(uintptr_t pointer) {
    free((void *)pointer);
    return OK;
}
Result cuMemAllocAsync(uintptr_t *pointer, size_t size, Pointer stream) {
    return (void)stream, cuMemAlloc_v2(pointer, size);
}
Result cuMemAllocFromPoolAsync(uintptr_t *pointer, size_t size, Pointer pool, Pointer stream) {
    return (void)pool, (void)stream, cuMemAlloc_v2(pointer, size);
}
Result cuMemFreeAsync(uintptr_t pointer, Pointer stream) { return (void)stream, cuMemFree_v2(pointer); }
Result cuMemHostAlloc(uintptr_t *pointer, size_t size, u32 flags) { return (void)flags, cuMemAlloc_v2(pointer, size); }
Result cuMemAllocHost_v2(uintptr_t *pointer, size_t size) { return cuMemAlloc_v2(pointer, size); }
Result cuMemFreeHost(Pointer pointer) { return cuMemFree_v2((uintptr_t)pointer); }
Result cuMemGetInfo_v2(size_t *unused, size_t *total) {
    cuDeviceTotalMem_v2(total, current ? (int)(uintptr_t)current - 1 : 0);
    *unused = *total - *total / 8;
    return OK;
}
Result cuMemsetD32_v2(uintptr_t pointer, u32 word, size_t count) {
    for (size_t i = 0; i < count; i++) ((u32 *)pointer)[i] = word;
    return OK;
}
Result cuMemsetD32Async(uintptr_t pointer, u32 word, size_t count, Pointer stream) {
    return (void)stream, cuMemsetD32_v2(pointer, word, count);
}
Result cuMemsetD8_v2(uintptr_t pointer, unsigned char byte, size_t count) {
    memset((void *)pointer, byte, count);
    return OK;
}
Result cuMemsetD8Async(uintptr_t pointer, unsigned char byte, size_t count, Pointer stream) {
    return (void)stream, cuMemsetD8_v2(pointer, byte, count);
}
Result cuMemcpyAsync(uintptr_t target, uintptr_t source, size_t size, Pointer stream) {
    (void)stream;
    memcpy((void *)target, (void *)source, size);
    return OK;
}
Result cuMemcpy(uintptr_t target, uintptr_t source, size_t size) { return cuMemcpyAsync(target, source, size, NULL); }
Result cuMemcpyDtoH_v2(void *target, uintptr_t source, size_t size) {
    memcpy(target, (void *)source, size);
    if (value("FAKE_RESULT", 0)) ((char *)target)[size / 2] ^= 1;
    return OK;
}
Result cuMemcpyHtoD_v2(uintptr_t target, const void *source, size_t size) {
    return cuMemcpyAsync(target, (uintptr_t)source, size, NULL);
}
Result cuMemcpyDtoHAsync_v2(void *target, uintptr_t source, size_t size, Pointer stream) {
    return (void)stream, cuMemcpyDtoH_v2(target, source, size);
}
Result cuMemcpyHtoDAsync_v2(uintptr_t target, const void *source, size_t size, Pointer stream) {
    return cuMemcpyAsync(target, (uintptr_t)source, size, stream);
}
Result cuMemcpyDtoDAsync_v2(uintptr_t target, uintptr_t source, size_t size, Pointer stream) {
    return cuMemcpyAsync(target, source, size, stream);
}
Result cuDeviceGetDefaultMemPool(Pointer *pool, int device) {
    *pool = (Pointer)(uintptr_t)(0x4000 + device);
    return OK;
}
Result cuDeviceGetMemPool(Pointer *pool, int device) { return cuDeviceGetDefaultMemPool(pool, device); }
Result cuMemGetMemPool(Pointer *pool, Pointer place, int kind) {
    return (void)place, (void)kind, cuDeviceGetDefaultMemPool(pool, 0);
}
Result cuMemGetDefaultMemPool(Pointer *pool, Pointer place, int kind) { return cuMemGetMemPool(pool, place, kind); }
Result cuMemPoolGetAttribute(Pointer pool, int attribute, u64 *out) {
    *out = 0;
    return (void)pool, (void)attribute, OK;
}
Result cuPointerGetAttributes(u32 count, int *attributes, Pointer *out, uintptr_t pointer) {
    for (u32 i = 0; i < count; i++) {
        if (attributes[i] == 2) *(u32 *)out[i] = 2;                                 // kind: a device's
        else if (attributes[i] == 8 || attributes[i] == 9) *(u32 *)out[i] = 0;      // managed, ordinal
        else *(u64 *)out[i] = attributes[i] == 3 ? pointer : 0;
    }
    return OK;
}

// ---- code: a kernel is its name, and FAKE_PARAMETERS has the sizes of its arguments in bytes: 8,8,4

static void note(const char *what, const char *name, const u32 *grid, const u32 *block, u32 shared, Pointer *arguments) {
    const char *path = getenv("FAKE_CUDA_LOG"), *sizes = text_of("FAKE_PARAMETERS", "");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (!log) return;
    fprintf(log, "%s %s", what, name);
    if (grid) fprintf(log, " grid=%u,%u,%u block=%u,%u,%u shared=%u", grid[0], grid[1], grid[2], block[0], block[1],
                      block[2], shared);
    for (int i = 0; grid && *sizes; i++, sizes += *sizes == ',') {
        u64 word = 0;
        size_t size = strtoul(sizes, (char **)&sizes, 10);
        memcpy(&word, arguments[i], size < 8 ? size : 8);
        fprintf(log, " %llx", word);
    }
    fprintf(log, "\n");
    fclose(log);
}
static Result loaded(Pointer *out, const unsigned char *code) {
    char what[32];
    snprintf(what, sizeof what, "%s", code[0] == 0x7f ? "cubin" : code[0] == 0x50 ? "fatbin" : "ptx");
    note("load", what, NULL, NULL, 0, NULL);
    return made(out);
}
Result cuLibraryLoadData(Pointer *library, const void *code, void *a, void *b, u32 c, void *d, void *e, u32 f) {
    return (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, loaded(library, code);
}
Result cuModuleLoadData(Pointer *module, const void *code) { return loaded(module, code); }
Result cuModuleLoadDataEx(Pointer *module, const void *code, u32 a, void *b, void *c) {
    return (void)a, (void)b, (void)c, loaded(module, code);
}
Result cuModuleGetLoadingMode(int *mode) {
    *mode = 2;
    return OK;
}
Result cuLibraryGetKernel(Pointer *kernel, Pointer library, const char *name) {
    *kernel = strdup(name);
    return (void)library, OK;
}
Result cuModuleGetFunction(Pointer *function, Pointer module, const char *name) {
    return cuLibraryGetKernel(function, module, name);
}
Result cuKernelGetFunction(Pointer *function, Pointer kernel) {
    *function = kernel;
    return OK;
}
Result cuKernelGetLibrary(Pointer *library, Pointer kernel) { return (void)kernel, made(library); }
Result cuFuncGetParamInfo(Pointer function, size_t index, size_t *offset, size_t *size) {
    const char *sizes = text_of("FAKE_PARAMETERS", "");
    (void)function;
    *offset = *size = 0;
    for (size_t i = 0; *sizes; i++, sizes += *sizes == ',') {
        *offset += *size;
        *size = strtoul(sizes, (char **)&sizes, 10);
        if (*size) *offset = (*offset + (*size < 8 ? *size : 8) - 1) / (*size < 8 ? *size : 8) * (*size < 8 ? *size : 8);
        if (i == index) return OK;
    }
    return INVALID_VALUE;
}
Result cuKernelGetParamInfo(Pointer kernel, size_t index, size_t *offset, size_t *size) {
    return cuFuncGetParamInfo(kernel, index, offset, size);
}
Result cuFuncGetAttribute(int *out, int attribute, Pointer function) {
    *out = attribute == 0 ? 1024 : attribute == 4 ? 128 : 0;
    return (void)function, OK;
}
Result cuKernelGetAttribute(int *out, int attribute, Pointer kernel, int device) {
    return (void)device, cuFuncGetAttribute(out, attribute, kernel);
}
static Result set(const char *name, int attribute, int number) {
    char text[64];
    snprintf(text, sizeof text, "%.40s %d=%d", name, attribute, number);
    note("set", text, NULL, NULL, 0, NULL);
    return OK;
}
Result cuFuncSetAttribute(Pointer function, int attribute, int number) { return set(function, attribute, number); }
Result cuKernelSetAttribute(int attribute, int number, Pointer kernel, int device) {
    return (void)device, set(kernel, attribute, number);
}
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Pointer function, int size, size_t shared) {
    *blocks = 1;
    return (void)function, (void)size, (void)shared, OK;
}
struct Configuration {
    u32 grid[3], block[3], shared;
    Pointer stream, attributes;
    u32 count;
};
Result cuLaunchKernelEx(const struct Configuration *how, Pointer function, Pointer *arguments, Pointer *extra) {
    note("launch", function, how->grid, how->block, how->shared, arguments);
    return (void)extra, OK;
}
Result cuLaunchKernel(Pointer function, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 shared, Pointer stream,
                      Pointer *arguments, Pointer *extra) {
    u32 grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    note("launch", function, grid, block, shared, arguments);
    return (void)stream, (void)extra, OK;
}
