// A stand-in for libvulkan.so.1. FAKE_INIT is what vkCreateInstance returns; FAKE_TYPE the type of
// the devices (2 discrete GPU, 4 CPU); FAKE_VENDOR their maker.
#include <stdint.h>

#include "steering.h"

static int instance, devices[8];

int vkEnumerateInstanceVersion(uint32_t *version) {
    *version = 1u << 22 | 3 << 12 | 296;
    return 0;
}
int vkCreateInstance(const uint32_t *wanted, const void *allocator, void **out) {
    behave();
    *out = &instance;
    return wanted[0] == 1 && !allocator ? (int)value("FAKE_INIT", 0) : -3;
}
int vkEnumeratePhysicalDevices(void *of, uint32_t *count, void **out) {
    if (of != &instance) return -3;
    *count = value("FAKE_GPUS", 1);
    for (uint32_t i = 0; out && i < *count; i++) out[i] = &devices[i];
    return 0;
}
void vkGetPhysicalDeviceProperties(void *of, uint32_t *out) {
    (void)of;
    out[0] = 1u << 22 | 4 << 12 | 303;
    out[1] = value("FAKE_DRIVER_NUMBER", 25u << 22 | 2 << 12 | 1);
    out[2] = value("FAKE_VENDOR", 0x1002);
    out[4] = value("FAKE_TYPE", 2);
    strcpy((char *)(out + 5), text_of("FAKE_NAME", "Fake Vulkan Device"));
}
void vkGetPhysicalDeviceMemoryProperties(void *of, char *out) {
    uint32_t count = 2, local = 1;
    uint64_t sizes[2] = {(uint64_t)24 << 30, (uint64_t)64 << 30};
    (void)of;
    memcpy(out + 260, &count, 4);
    memcpy(out + 264, &sizes[0], 8);
    memcpy(out + 272, &local, 4);
    memcpy(out + 280, &sizes[1], 8);
}
void vkDestroyInstance(void *of, const void *allocator) { (void)of, (void)allocator; }
