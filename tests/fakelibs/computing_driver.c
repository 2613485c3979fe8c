// A stand-in for libcuda.so.1 on which cuda.core and cuda.bindings compute. See README.md.
//
// Host memory serves as device memory; a stream does at once what is asked of it. A kernel is the function
// run_NAME of the library FAKE_KERNELS, which is handed grid, block and arguments. Calls that a test may
// want to see are lines of the file FAKE_CUDA_LOG; a stream is written as its handle.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

#include "cuda_devices.h"

static void note(const char *what, long first, long second) {
    const char *path = getenv("FAKE_CUDA_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s %ld %ld\n", what, first, second);
    fclose(file);
}

// ---- contexts: that of device i is i + 1 ----

static __thread Address current;

Result cuDevicePrimaryCtxRelease_v2(int device) { return device < gpus() ? OK : INVALID_DEVICE; }
Result cuDevicePrimaryCtxGetState(int device, u32 *flags, int *active) { return *flags = 0, *active = device < gpus(), OK; }
Result cuCtxGetCurrent(Address *context) { return *context = current, OK; }
Result cuCtxSetCurrent(Address context) { return current = context, OK; }
Result cuCtxPushCurrent_v2(Address context) { return current = context, OK; }
Result cuCtxPopCurrent_v2(Address *context) { return context ? (*context = current, OK) : OK; }
Result cuCtxGetDevice(int *device) {
    if (!current) return INVALID_CONTEXT;
    return *device = (int)current - 1, OK;
}
Result cuCtxGetId(Address context, u64 *id) { return *id = context, OK; }
Result cuCtxSynchronize(void) { return note("cuCtxSynchronize", 0, 0), (Result)value("FAKE_SYNC", 0); }
Result cuCtxGetStreamPriorityRange(int *least, int *most) { return *least = 0, *most = -5, OK; }

// ---- streams and events ----

static long streams = 0x2000, capturing;
static int is_captured(Address stream) { return capturing && (long)stream == capturing; }

Result cuStreamCreateWithPriority(Address *stream, u32 flags, int priority) {
    (void)flags, (void)priority;
    return *stream = (Address)streams++, OK;
}
Result cuStreamDestroy_v2(Address stream) { return (void)stream, OK; }
Result cuStreamSynchronize(Address stream) { return note("cuStreamSynchronize", (long)stream, 0), OK; }
Result cuStreamQuery(Address stream) { return (void)stream, OK; }
Result cuStreamGetCtx(Address stream, Address *context) { return (void)stream, *context = current, OK; }
Result cuStreamGetFlags(Address stream, u32 *flags) { return (void)stream, *flags = 1, OK; }
Result cuStreamGetPriority(Address stream, int *priority) { return (void)stream, *priority = 0, OK; }
Result cuStreamGetDevice(Address stream, int *device) { return (void)stream, *device = (int)current - 1, OK; }
Result cuStreamGetId(Address stream, u64 *id) { return *id = stream, OK; }
Result cuStreamIsCapturing(Address stream, int *status) {
    if (!current && stream <= 2) return INVALID_CONTEXT;
    *status = is_captured(stream) || value("FAKE_CAPTURING", 0);
    return capturing && stream == 1 ? CAPTURE_IMPLICIT : OK;
}
static Address last_captured;  // an event of the graph; no other may be waited for in it
Result cuStreamWaitEvent(Address stream, Address event, u32 flags) {
    (void)flags;
    if (is_captured(stream) != (event == last_captured)) return CAPTURE_ISOLATION;
    return note("cuStreamWaitEvent", (long)stream, (long)event), OK;
}
enum { EVENTS = 0x3000, MOST_EVENTS = 4096 };
static double recorded[MOST_EVENTS];  // in milliseconds
Result cuEventCreate(Address *event, u32 flags) {
    static Address next = EVENTS;
    (void)flags;
    return *event = next++, OK;
}
Result cuEventRecord(Address event, Address stream) {
    if (capturing && stream == 1) return CAPTURE_IMPLICIT;
    if (is_captured(stream)) last_captured = event;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    recorded[(event - EVENTS) % MOST_EVENTS] = (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
    return note("cuEventRecord", (long)event, (long)stream), OK;
}
Result cuEventElapsedTime(float *milliseconds, Address first, Address last) {
    *milliseconds = (float)(recorded[(last - EVENTS) % MOST_EVENTS] - recorded[(first - EVENTS) % MOST_EVENTS]);
    return OK;
}
Result cuEventDestroy_v2(Address event) { return (void)event, OK; }
Result cuEventQuery(Address event) { return (void)event, OK; }
Result cuEventSynchronize(Address event) { return note("cuEventSynchronize", (long)event, 0), OK; }

// ---- memory: FAKE_MEMORY bytes in all, in pools that count what they gave ----

static _Atomic u64 used, most_used;
static _Atomic long live;

static Result take(Address *pointer, size_t size, Address stream, const char *how) {
    if (used + size > value("FAKE_MEMORY", 1u << 30)) return OUT_OF_MEMORY;
    void *memory = NULL;
    if (posix_memalign(&memory, 512, size + 512)) return OUT_OF_MEMORY;
    *(size_t *)memory = size;
    ((long *)memory)[1] = is_captured(stream);
    *pointer = (Address)memory + 512;
    memset((void *)*pointer, 0xA5, size);  // what is not written shows
    used += size;
    if (used > most_used) most_used = used;
    live++;
    return note(how, (long)size, (long)stream), OK;
}
static Result give_back(Address pointer, Address stream) {
    if (!pointer) return OK;
    // On a captured stream only what was allocated on one may be freed.
    if (capturing && stream == 1) return CAPTURE_IMPLICIT;
    if (is_captured(stream) && !((long *)(pointer - 512))[1]) return note("refused", (long)pointer, (long)stream), 1;
    used -= *(size_t *)(pointer - 512);
    free((void *)(pointer - 512));
    return note("cuMemFreeAsync", --live, (long)stream), OK;
}
Result cuMemAlloc_v2(Address *pointer, size_t size) { return take(pointer, size, 0, "cuMemAlloc"); }
Result cuMemAllocAsync(Address *pointer, size_t size, Address stream) { return take(pointer, size, stream, "cuMemAllocAsync"); }
Result cuMemAllocFromPoolAsync(Address *pointer, size_t size, Address pool, Address stream) {
    (void)pool;
    return take(pointer, size, stream, "cuMemAllocFromPoolAsync");
}
Result cuMemFree_v2(Address pointer) { return give_back(pointer, 0); }
Result cuMemFreeAsync(Address pointer, Address stream) { return give_back(pointer, stream); }
Result cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    *total = value("FAKE_MEMORY", 1u << 30);
    return *free_bytes = *total - used, OK;
}
Result cuDeviceGetDefaultMemPool(Address *pool, int device) { return *pool = 0x4000 + (Address)device, OK; }
Result cuDeviceGetMemPool(Address *pool, int device) { return cuDeviceGetDefaultMemPool(pool, device); }
Result cuMemGetMemPool(Address *pool, void *location, int type) { return (void)location, (void)type, *pool = 0x4000, OK; }
Result cuMemGetDefaultMemPool(Address *pool, void *location, int type) { return cuMemGetMemPool(pool, location, type); }
Result cuMemPoolCreate(Address *pool, const void *properties) { return (void)properties, *pool = 0x4100, OK; }
Result cuMemPoolDestroy(Address pool) { return (void)pool, OK; }
Result cuMemPoolTrimTo(Address pool, size_t kept) { return (void)pool, note("cuMemPoolTrimTo", (long)kept, 0), OK; }
Result cuMemPoolSetAttribute(Address pool, int attribute, u64 *number) {
    (void)pool;
    if (attribute == 6 || attribute == 8) most_used = used;
    return *number ? OK : OK;
}
Result cuMemPoolGetAttribute(Address pool, int attribute, u64 *number) {
    (void)pool;
    if (attribute < 4) return *(int *)number = 1, OK;
    *number = attribute == 5 || attribute == 7 ? used : attribute == 6 || attribute == 8 ? most_used : 0;
    return OK;
}
Result cuDeviceGetGraphMemAttribute(int device, int attribute, u64 *number) { return (void)device, (void)attribute, *number = 0, OK; }
Result cuDeviceGraphMemTrim(int device) { return (void)device, OK; }
Result cuMemPoolGetAccess(int *flags, Address pool, void *location) { return (void)pool, (void)location, *flags = 3, OK; }
Result cuMemPoolSetAccess(Address pool, void *access, size_t count) { return (void)pool, (void)access, (void)count, OK; }

// Memory that is not ours lies on FAKE_POINTER_DEVICE, of FAKE_POINTER_KIND (1 the host's, 2 a device's).
static Result attribute_of(u64 *out, int attribute, Address pointer) {
    switch (attribute) {
    case 2: *(u32 *)out = value("FAKE_POINTER_KIND", 2); break;
    case 3: *out = pointer; break;
    case 8: *(u32 *)out = 0; break;
    case 9: *(int *)out = (int)value("FAKE_POINTER_DEVICE", 0); break;
    default: *out = 0;
    }
    return OK;
}
Result cuPointerGetAttribute(u64 *out, int attribute, Address pointer) { return attribute_of(out, attribute, pointer); }
Result cuPointerGetAttributes(u32 count, int *attributes, u64 **out, Address pointer) {
    for (u32 i = 0; i < count; i++) attribute_of(out[i], attributes[i], pointer);
    return OK;
}

static Result copy(Address target, Address source, size_t size, Address stream) {
    memcpy((void *)target, (void *)source, size);
    return note("cuMemcpyAsync", (long)size, (long)stream), OK;
}
Result cuMemcpyAsync(Address target, Address source, size_t size, Address stream) { return copy(target, source, size, stream); }
Result cuMemcpyDtoHAsync_v2(Address target, Address source, size_t size, Address stream) { return copy(target, source, size, stream); }
Result cuMemcpyHtoDAsync_v2(Address target, Address source, size_t size, Address stream) { return copy(target, source, size, stream); }
Result cuMemcpyDtoDAsync_v2(Address target, Address source, size_t size, Address stream) { return copy(target, source, size, stream); }
// Without a stream, as probes call them; FAKE_RESULT 1 spoils what is copied back.
Result cuMemcpyDtoH_v2(Address target, Address source, size_t size) {
    copy(target, source, size, 0);
    if (value("FAKE_RESULT", 0)) ((char *)target)[size / 2] ^= 1;
    return OK;
}
Result cuMemcpyHtoD_v2(Address target, Address source, size_t size) { return copy(target, source, size, 0); }
Result cuMemsetD8_v2(Address target, unsigned char byte, size_t count) { return memset((void *)target, byte, count), OK; }
Result cuMemsetD32_v2(Address target, u32 word, size_t count) {
    for (size_t i = 0; i < count; i++) ((u32 *)target)[i] = word;
    return OK;
}
Result cuMemsetD8Async(Address target, unsigned char byte, size_t count, Address stream) {
    memset((void *)target, byte, count);
    return note("cuMemsetD8Async", (long)count, (long)stream), OK;
}
#define FILL(bits, Word)                                                                                              \
    Result cuMemsetD2D##bits##Async(Address target, size_t pitch, Word word, size_t width, size_t height, Address stream) { \
        for (size_t row = 0; row < height; row++)                                                                     \
            for (size_t i = 0; i < width; i++) ((Word *)(target + row * pitch))[i] = word;                            \
        return note("cuMemsetD2DAsync", (long)(width * height), (long)stream), OK;                                    \
    }
FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, u32)

// ---- kernels ----

Result cuLibraryLoadData(Address *library, const void *code, void *a, void *b, u32 na, void *c, void *d, u32 nb) {
    (void)code, (void)a, (void)b, (void)na, (void)c, (void)d, (void)nb;
    return *library = 0x5000, note("cuLibraryLoadData", 0, 0), OK;
}
Result cuLibraryUnload(Address library) { return (void)library, OK; }
Result cuLibraryGetKernel(char **kernel, Address library, const char *name) { return (void)library, *kernel = strdup(name), OK; }
Result cuKernelGetLibrary(Address *library, char *kernel) { return (void)kernel, *library = 0x5000, OK; }
Result cuKernelGetFunction(char **function, char *kernel) { return *function = kernel, OK; }
Result cuKernelGetAttribute(int *out, int attribute, char *kernel, int device) { return (void)kernel, (void)device, *out = attribute ? 128 : 1024, OK; }
Result cuKernelSetAttribute(int attribute, int number, char *kernel, int device) {
    (void)kernel, (void)device;
    return note("cuKernelSetAttribute", attribute, number), OK;
}
typedef struct { u32 grid[3], block[3], shared; Address stream; void *attributes; u32 count; } Launch;

// The arguments of a launch in hexadecimal digits, of the sizes in bytes that FAKE_PARAMETERS has: 8,8,4. What is
// longer than 8 bytes is several words.
static void note_arguments(void **arguments) {
    const char *sizes = getenv("FAKE_PARAMETERS");
    static __thread char line[1 << 14];
    size_t at = (size_t)snprintf(line, sizeof line, "arguments");
    for (size_t i = 0; sizes && *sizes; i++, sizes += *sizes == ',') {
        size_t size = strtoul(sizes, (char **)&sizes, 10);
        for (size_t from = 0; from < size && at < sizeof line - 20; from += 8) {
            u64 word = 0;
            memcpy(&word, (char *)arguments[i] + from, size - from < 8 ? size - from : 8);
            at += (size_t)snprintf(line + at, sizeof line - at, " %llx", (unsigned long long)word);
        }
    }
    if (sizes) note(line, 0, 0);
}
Result cuLaunchKernelEx(const Launch *launch, char *kernel, void **arguments, void **extra) {
    char line[200];
    static void *library;
    void (*run)(const u32 *, const u32 *, void **);
    (void)extra;
    if (value("FAKE_LAUNCH", 0)) return (Result)value("FAKE_LAUNCH", 0);
    snprintf(line, sizeof line, "launch %s grid=%u,%u,%u block=%u,%u,%u shared=%u stream", kernel, launch->grid[0],
             launch->grid[1], launch->grid[2], launch->block[0], launch->block[1], launch->block[2], launch->shared);
    if (getenv("FAKE_CUDA_LOG")) note(line, (long)launch->stream, (long)current - 1);
    note_arguments(arguments);
    if (!library && getenv("FAKE_KERNELS")) library = dlopen(getenv("FAKE_KERNELS"), RTLD_NOW);
    if (!library) return OK;
    snprintf(line, sizeof line, "run_%s", kernel);
    *(void **)&run = dlsym(library, line);
    if (!run) return NOT_FOUND;
    return run(launch->grid, launch->block, arguments), OK;
}
Result cuLaunchKernel(char *kernel, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 shared, Address stream,
                      void **arguments, void **extra) {
    Launch launch = {{gx, gy, gz}, {bx, by, bz}, shared, stream, NULL, 0};
    return cuLaunchKernelEx(&launch, kernel, arguments, extra);
}

// ---- graphs: what is captured runs at once, and a graph cannot be launched ----

Result cuStreamBeginCapture_v2(Address stream, int mode) { return (void)mode, capturing = (long)stream, note("cuStreamBeginCapture", (long)stream, 0), OK; }
Result cuStreamEndCapture(Address stream, Address *graph) { return *graph = 0x6000, capturing = 0, note("cuStreamEndCapture", (long)stream, 0), OK; }
Result cuStreamGetCaptureInfo_v3(Address stream, int *status, u64 *id, Address *graph, void **before, void **edges,
                                 size_t *count) {
    *status = capturing && (long)stream == capturing;
    if (id) *id = 1;
    if (graph) *graph = 0x6000;
    if (before) *before = NULL;
    if (edges) *edges = NULL;
    return count ? (*count = 0, OK) : OK;
}
Result cuGraphDestroy(Address graph) { return (void)graph, OK; }

// cuda.bindings asks for each function by its plain name; what is not here is not there.
Result cuGetProcAddress_v2(const char *name, void **function, int version, u64 flags, int *found) {
    static const char *const endings[] = {"_v3", "_v2", ""};
    char full[160];
    (void)version, (void)flags;
    *function = NULL;
    for (int i = 0; i < 3 && !*function; i++) {
        snprintf(full, sizeof full, "%s%s", name, endings[i]);
        *function = dlsym(RTLD_DEFAULT, full);
        if (!*function) *function = dlsym(dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY), full);
    }
    if (found) *found = !*function;
    return *function ? OK : NOT_FOUND;
}
Result cuGetProcAddress(const char *name, void **function, int version, u64 flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
Result cuGetExportTable(const void **table, const void *id) { return (void)id, *table = NULL, NOT_FOUND; }
