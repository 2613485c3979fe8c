// A stand-in for libOpenCL.so.1 with one platform, unless FAKE_PLATFORMS says otherwise. FAKE_TYPE is
// the type of the devices (2 CPU, 4 GPU); FAKE_RESULT 1 makes the fill wrong.
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
    uint64_t kind = value("FAKE_TYPE", 4), size = (uint64_t)8 << 30, float64 = 63;
    uint32_t units = 32, clock = 2000, available = value("FAKE_AVAILABLE", 1);
    uint32_t address[4] = {0, (uint32_t)((int *)of - devices) + 3, 0, 0};
    switch (what) {
    case 0x1000: return answer(&kind, 8, room, out, told);
    case 0x1002: return answer(&units, 4, room, out, told);
    case 0x100C: return answer(&clock, 4, room, out, told);
    case 0x101F: return answer(&size, 8, room, out, told);
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
    return in && flags == 1 && size <= sizeof memory && !host ? memory : NULL;
}
int clEnqueueFillBuffer(void *queue, void *buffer, const char *pattern, size_t step, size_t offset,
                        size_t size, uint32_t count, void *events, void *event) {
    if (!queue || buffer != memory || count || events || event) return -30;
    for (size_t i = 0; i < size; i++) memory[offset + i] = pattern[i % step];
    if (value("FAKE_RESULT", 0)) memory[0] ^= 1;
    return 0;
}
int clEnqueueReadBuffer(void *queue, void *buffer, uint32_t blocking, size_t offset, size_t size,
                        void *out, uint32_t count, void *events, void *event) {
    if (!queue || buffer != memory || blocking != 1 || count || events || event) return -30;
    memcpy(out, memory + offset, size);
    return 0;
}
int clReleaseMemObject(void *thing) { return thing ? 0 : -38; }
int clReleaseCommandQueue(void *thing) { return thing ? 0 : -36; }
int clReleaseContext(void *thing) { return thing ? 0 : -34; }
