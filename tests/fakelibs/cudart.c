// A stand-in for libcudart.so.13, with no libcuda behind it. See README.md.
#include "steering.h"

typedef int Result;
enum { OK = 0, MEMORY_ALLOCATION = 2 };

Result cudaRuntimeGetVersion(int *version) {
    *version = (int)value("FAKE_RUNTIME", 13000);
    return OK;
}
Result cudaDriverGetVersion(int *version) {
    *version = (int)value("FAKE_CUDA", 13000);
    return OK;
}
const char *cudaGetErrorName(Result error) {
    switch (error) {
    case OK: return "cudaSuccess";
    case MEMORY_ALLOCATION: return "cudaErrorMemoryAllocation";
    case 35: return "cudaErrorInsufficientDriver";
    case 100: return "cudaErrorNoDevice";
    default: return NULL;
    }
}
Result cudaGetDeviceCount(int *count) {
    behave();
    *count = (int)value("FAKE_GPUS", 1);
    return (Result)value("FAKE_COUNT", OK);
}
Result cudaSetDevice(int device) { return device < (int)value("FAKE_GPUS", 1) ? OK : 101; }
Result cudaMalloc(void **pointer, size_t size) {
    *pointer = malloc(size);
    return *pointer ? OK : MEMORY_ALLOCATION;
}
Result cudaFree(void *pointer) {
    free(pointer);
    return OK;
}
Result cudaMemset(void *pointer, int byte, size_t size) {
    memset(pointer, byte, size);
    return OK;
}
Result cudaMemcpy(void *target, const void *source, size_t size, int kind) {
    if (kind != 2) return 21;
    memcpy(target, source, size);
    if (value("FAKE_RESULT", 0)) ((char *)target)[size / 2] ^= 1;
    return OK;
}
