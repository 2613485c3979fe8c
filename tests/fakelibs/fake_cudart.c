// A stand-in for libcudart.so.13 that keeps device memory in the host's. See README.md.
#include "steering.h"

typedef int Result;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101 };

static __thread int current;
static long live, allocated;

static int gpus(void) { return (int)value("FAKE_GPUS", 1); }

// Each call that a test may want to see is a line of the file FAKE_CUDA_LOG.
static void note(const char *what, long first, long second) {
    const char *path = getenv("FAKE_CUDA_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s %ld %ld\n", what, first, second);
    fclose(file);
}

Result cudaRuntimeGetVersion(int *version) {
    *version = 13000;
    return OK;
}
Result cudaDriverGetVersion(int *version) {
    *version = 13000;
    return OK;
}
const char *cudaGetErrorName(Result error) {
    switch (error) {
    case OK: return "cudaSuccess";
    case INVALID_VALUE: return "cudaErrorInvalidValue";
    case OUT_OF_MEMORY: return "cudaErrorMemoryAllocation";
    case INVALID_DEVICE: return "cudaErrorInvalidDevice";
    default: return NULL;
    }
}
Result cudaGetDeviceCount(int *count) {
    behave();
    *count = gpus();
    return OK;
}
Result cudaGetDevice(int *device) {
    *device = current;
    return OK;
}
Result cudaSetDevice(int device) {
    if (device < 0 || device >= gpus()) return INVALID_DEVICE;
    current = device;
    return OK;
}
Result cudaDeviceGetAttribute(int *out, int attribute, int device) {
    int capability = (int)value("FAKE_CAPABILITY", 90);
    if (device < 0 || device >= gpus()) return INVALID_DEVICE;
    *out = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : 0;
    return OK;
}
// As in CUDA 13: kind, device, two pointers, eight words. Everything lies on FAKE_POINTER_DEVICE.
Result cudaPointerGetAttributes(int *out, const void *pointer) {
    memset(out, 0, 88);
    out[0] = (int)value("FAKE_POINTER_KIND", 2);
    out[1] = (int)value("FAKE_POINTER_DEVICE", 0);
    memcpy(out + 2, &pointer, sizeof pointer);
    return OK;
}

Result cudaMalloc(void **pointer, size_t size) {
    if (size >= (size_t)value("FAKE_MEMORY", 1u << 30)) return OUT_OF_MEMORY;
    *pointer = malloc(size);
    if (!*pointer) return OUT_OF_MEMORY;
    memset(*pointer, 0xA5, size);  // what is not written shows
    live++;
    allocated += (long)size;
    note("cudaMalloc", (long)size, current);
    return OK;
}
Result cudaFree(void *pointer) {
    if (pointer) live--;
    note("cudaFree", live, 0);
    free(pointer);
    return OK;
}
Result cudaMemset(void *pointer, int byte, size_t size) {
    memset(pointer, byte, size);
    return OK;
}
Result cudaMemcpy(void *target, const void *source, size_t size, int kind) {
    if (kind < 1 || kind > 3) return INVALID_VALUE;
    memcpy(target, source, size);
    return OK;
}
Result cudaMemcpy2D(void *target, size_t target_pitch, const void *source, size_t source_pitch,
                    size_t width, size_t height, int kind) {
    if (kind != 3 || target_pitch < width || source_pitch < width) return INVALID_VALUE;
    note("cudaMemcpy2D", (long)width, (long)height);
    for (size_t row = 0; row < height; row++)
        memcpy((char *)target + row * target_pitch, (const char *)source + row * source_pitch, width);
    return OK;
}
Result cudaStreamSynchronize(void *stream) {
    note("cudaStreamSynchronize", (long)stream, current);
    return OK;
}
