// A stand-in for libOpenCL.so.1 with one platform, unless FAKE_PLATFORMS says otherwise. FAKE_TYPE is
// the type of the devices (2 CPU, 4 GPU); FAKE_RESULT 1 makes a sum wrong; FAKE_BUILD is what
// compiling returns, FAKE_COMPILER 0 a device that cannot; FAKE_LOADER 1 a loader that does not tell its version.
#include <stddef.h>
#include <stdint.h>

#include "steering.h"

static int platform, devices[8], context;
static char memory[65536];

static int answer(const void *data, size_t length, size_t room, void *out, size_t *told) {
    if (told) *told = length;
    if (out && room < length) return -30;
    if (out) memcpy(out, data, length);
    return 0;
}
static int words(const char *text, size_t room, void *out, size_t *told) {
    return answer(text, strlen(text) + 1, room, out, told);
}
int clGetPlatformIDs(uint32_t room, void **out, uint32_t *count) {
    uint32_t known = value("FAKE_PLATFORMS", 1);
    behave();
    if (count) *count = known;
    if (out && room) out[0] = &platform;
    return known ? 0 : -1001;
}
int clGetPlatformInfo(void *of, uint32_t what, size_t room, void *out, size_t *told) {
    if (of != &platform) return -32;
    if (what == 0x0901) return words("OpenCL 3.0 fake", room, out, told);
    if (what == 0x0902) return words("Fake Platform", room, out, told);
    return words("Nobody", room, out, told);
}
int clGetDeviceIDs(void *of, uint64_t kind, uint32_t room, void **out, uint32_t *count) {
    uint32_t known = value("FAKE_GPUS", 1);
    if (of != &platform || kind != 0xFFFFFFFF) return -32;
    if (count) *count = known;
    for (uint32_t i = 0; out && i < room && i < known; i++) out[i] = &devices[i];
    return known ? 0 : -1;
}
int clGetDeviceInfo(void *of, uint32_t what, size_t room, void *out, size_t *told) {
    uint64_t kind = value("FAKE_TYPE", 4), size = (uint64_t)8 << 30, float64 = 63, limit = 4096;
    uint32_t units = 32, clock = 2000, available = value("FAKE_AVAILABLE", 1), compiler = value("FAKE_COMPILER", 1);
    uint32_t address[4] = {0, (uint32_t)((int *)of - devices) + 3, 0, 0};
    switch (what) {
    case 0x1000: return answer(&kind, 8, room, out, told);
    case 0x1002: return answer(&units, 4, room, out, told);
    case 0x100C: return answer(&clock, 4, room, out, told);
    case 0x101F: return answer(&size, 8, room, out, told);
    case 0x1004: case 0x1010: case 0x1023: return answer(&limit, 8, room, out, told);
    case 0x1028: return answer(&compiler, 4, room, out, told);
    case 0x1027: return answer(&available, 4, room, out, told);
    case 0x102B: return words("Fake Device", room, out, told);
    case 0x102D: return words("1.2.3", room, out, told);
    case 0x102F: return words("OpenCL 3.0", room, out, told);
    case 0x1032: return answer(&float64, 8, room, out, told);
    case 0x410F: return answer(address, sizeof address, room, out, told);
    default: return -30;
    }
}
void *clCreateContext(void *properties, uint32_t count, void **of, void *call, void *data, int *status) {
    *status = (int)value("FAKE_INIT", 0);
    return !properties && count == 1 && of && !call && !data && !*status ? &context : NULL;
}
void *clCreateCommandQueue(void *in, void *of, uint64_t properties, int *status) {
    *status = 0;
    return in == &context && of && !properties ? &context : NULL;
}
void *clCreateBuffer(void *in, uint64_t flags, size_t size, void *host, int *status) {
    *status = 0;
    if (!in || flags != 0x21 || size > sizeof memory || !host) return NULL;
    return memcpy(memory, host, size);
}
void *clCreateProgramWithSource(void *in, uint32_t count, const char **source, const size_t *lengths, int *status) {
    *status = 0;
    return in == &context && count == 1 && strstr(*source, "__kernel void add(") && !lengths ? &context : NULL;
}
int clBuildProgram(void *program, uint32_t count, void **of, const char *options, void *call, void *data) {
    return program && count == 1 && *of && !options && !call && !data ? (int)value("FAKE_BUILD", 0) : -30;
}
int clGetProgramBuildInfo(void *program, void *of, uint32_t what, size_t room, void *out, size_t *told) {
    return program && of && what == 0x1183 ? words("no clang to compile with\nmore", room, out, told) : -30;
}
void *clCreateKernel(void *program, const char *name, int *status) {
    *status = 0;
    return program && !strcmp(name, "add") ? &context : NULL;
}
int clSetKernelArg(void *kernel, uint32_t index, size_t size, void **what) {
    return kernel && !index && size == sizeof *what && *what == memory ? 0 : -30;
}
int clEnqueueNDRangeKernel(void *queue, void *kernel, uint32_t dimensions, const size_t *from, const size_t *count,
                           const size_t *groups, uint32_t events, void *waited, void *event) {
    uint32_t *numbers = (uint32_t *)memory;
    if (!queue || !kernel || dimensions != 1 || from || *count != 256 || groups || events || waited || event) return -30;
    for (size_t i = 0; i < *count; i++) numbers[512 + i] = numbers[256 + i] + numbers[i];
    if (value("FAKE_RESULT", 0)) numbers[512] ^= 1;
    return 0;
}
int clEnqueueReadBuffer(void *queue, void *buffer, uint32_t blocking, size_t offset, size_t size,
                        void *out, uint32_t count, void *events, void *event) {
    if (!queue || buffer != memory || blocking != 1 || count || events || event) return -30;
    memcpy(out, memory + offset, size);
    return 0;
}
static int loader(int what, size_t room, void *out, size_t *told) {
    return words(what == 2 ? "9.8.7" : "Fake Loader", room, out, told);
}
void *clGetExtensionFunctionAddress(const char *name) {
    return strcmp(name, "clGetICDLoaderInfoOCLICD") || value("FAKE_LOADER", 0) ? NULL : (void *)loader;
}
