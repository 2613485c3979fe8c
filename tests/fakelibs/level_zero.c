// A stand-in for libze_loader.so.1 with one driver. FAKE_INIT is what zeInit returns; FAKE_KIND the
// type of the devices (1 GPU, 5 NPU); FAKE_RESULT 1 makes the fill wrong.
#include <stddef.h>
#include <stdint.h>

#include "steering.h"

typedef struct {
    uint32_t structure;
    void *next;
    uint32_t kind, vendor, device, flags, subdevice, clock;
    uint64_t largest;
    uint32_t rest[16];
    char name[256];
} DeviceProperties;
_Static_assert(sizeof(DeviceProperties) == 368, "layout");
_Static_assert(offsetof(DeviceProperties, name) == 112, "layout");

static int driver, devices[8];

unsigned zelLoaderGetVersions(size_t *count, char *versions) {
    *count = 1;
    if (versions) {
        int numbers[3] = {1, 20, 2};
        strcpy(versions, "loader");
        memcpy(versions + 68, numbers, sizeof numbers);
    }
    return 0;
}
unsigned zeInit(uint32_t flags) {
    behave();
    return flags ? 0x78000004 : value("FAKE_INIT", 0);
}
unsigned zeDriverGet(uint32_t *count, void **handles) {
    *count = 1;
    if (handles) handles[0] = &driver;
    return 0;
}
unsigned zeDriverGetProperties(void *handle, char *properties) {
    uint32_t version = 1u << 24 | 6 << 16 | 33578;
    if (handle != &driver || *(uint32_t *)properties != 1) return 0x78000004;
    memcpy(properties + 32, &version, 4);
    return 0;
}
unsigned zeDeviceGet(void *handle, uint32_t *count, void **handles) {
    if (handle != &driver) return 0x78000004;
    *count = value("FAKE_GPUS", 1);
    for (uint32_t i = 0; handles && i < *count; i++) handles[i] = &devices[i];
    return 0;
}
unsigned zeDeviceGetProperties(void *handle, DeviceProperties *properties) {
    if (properties->structure != 3) return 0x78000004;
    (void)handle;
    properties->kind = value("FAKE_KIND", 1);
    properties->vendor = 0x8086;
    properties->device = 0x56a0;
    properties->clock = 2400;
    properties->flags = 4;
    strcpy(properties->name, text_of("FAKE_NAME", "Intel(R) Arc(TM) A770 Graphics"));
    return 0;
}
// FAKE_MODULE: the flags of ze_device_module_flag_t, fp16 without fp64 unless said.
unsigned zeDeviceGetModuleProperties(void *handle, char *properties) {
    uint32_t flags = value("FAKE_MODULE", 0xd);
    (void)handle;
    if (*(uint32_t *)properties != 5) return 0x78000004;
    memcpy(properties + 20, &flags, 4);
    return value("FAKE_MODULE_STATUS", 0);
}
unsigned zeDeviceGetMemoryAccessProperties(void *handle, char *properties) {
    uint32_t access[5] = {3, 3, 3, 0, 0};
    (void)handle;
    if (*(uint32_t *)properties != 8) return 0x78000004;
    memcpy(properties + 16, access, sizeof access);
    return 0;
}
unsigned zeDevicePciGetPropertiesExt(void *handle, char *properties) {
    uint32_t address[4] = {0, (uint32_t)((int *)handle - devices) + 3, 0, 0};
    if (*(uint32_t *)properties != 0x10008) return 0x78000004;
    memcpy(properties + 16, address, sizeof address);
    return 0;
}
unsigned zeDeviceGetMemoryProperties(void *handle, uint32_t *count, char *properties) {
    uint64_t size = (uint64_t)16 << 30;
    (void)handle;
    *count = 1;
    if (properties) memcpy(properties + 32, &size, 8);
    return 0;
}
unsigned zeContextCreate(void *handle, char *wanted, void **context) {
    *context = handle;
    return *(uint32_t *)wanted == 0xd ? 0 : 0x78000004;
}
unsigned zeCommandListCreateImmediate(void *context, void *device, char *queue, void **commands) {
    (void)context;
    *commands = device;
    return *(uint32_t *)queue == 0xe && *(uint32_t *)(queue + 28) == 1 ? 0 : 0x78000004;
}
unsigned zeMemAllocHost(void *context, char *wanted, size_t size, size_t step, void **memory) {
    (void)context;
    *memory = aligned_alloc(step, size);
    return *(uint32_t *)wanted == 0x16 ? 0 : 0x78000004;
}
unsigned zeCommandListAppendMemoryFill(void *commands, char *memory, const char *pattern,
                                       size_t pattern_size, size_t size, void *signal,
                                       uint32_t count, void *events) {
    if (!commands || signal || count || events) return 0x78000004;
    for (size_t i = 0; i < size; i++) memory[i] = pattern[i % pattern_size];
    if (value("FAKE_RESULT", 0)) memory[size - 1] ^= 1;
    return 0;
}
unsigned zeMemFree(void *context, void *memory) {
    (void)context;
    free(memory);
    return 0;
}
unsigned zeCommandListDestroy(void *commands) { return commands ? 0 : 1; }
unsigned zeContextDestroy(void *context) { return context ? 0 : 1; }
