// A stand-in for libvulkan.so.1, which adds where the shader would. FAKE_INIT is what vkCreateInstance returns (FAKE_PORTABLE
// 1: -9 where portable devices are not asked for); FAKE_TYPE the type of the devices (2 discrete GPU, 4 CPU); FAKE_VENDOR their
// maker; FAKE_QUEUE what their queues do (1 draw, 2 compute); FAKE_MEMORY how their memory is seen (6 by the host, coherent);
// FAKE_PIPELINE what making a pipeline returns; FAKE_COMPUTE what computing does: hang, segfault, wrong.
#include <stdint.h>

#include "steering.h"

enum { COUNT = 256, BYTES = 3 * COUNT * 4 };
typedef uint64_t handle;
typedef struct {
    uint32_t type;
    const void *next;
} head;
typedef struct {
    head head;
    uint32_t portable;
    const uint32_t *program;
    uint32_t layers;
    const char **names;
    uint32_t count;
    const char **extensions;
} instance_wanted;
typedef struct {
    head head;
    uint64_t size;
    uint32_t kind;
} memory_wanted;
typedef struct {
    head head;
    uint32_t flags;
    size_t size;
    const uint32_t *words;
} shader_wanted;
typedef struct {
    head head;
    uint32_t flags;
    struct {
        head head;
        uint32_t flags, stage;
        handle shader;
        const char *entry;
        const void *none;
    } stage;
    handle layout;
} pipeline_wanted;
static int instance, devices[8];
static uint32_t memory[3 * COUNT];
static handle made;

#define CREATE(name, wanted_type)                                                          \
    int vkCreate##name(handle in, const head *wanted, const void *allocator, handle *out) { \
        *out = ++made;                                                                     \
        return in && wanted->type == wanted_type && !wanted->next && !allocator ? 0 : -3;  \
    }
CREATE(Device, 3)
CREATE(Buffer, 12)
CREATE(DescriptorSetLayout, 32)
CREATE(PipelineLayout, 30)
CREATE(DescriptorPool, 33)
CREATE(CommandPool, 39)

int vkEnumerateInstanceVersion(uint32_t *version) {
    *version = 1u << 22 | 3 << 12 | 296;
    return 0;
}
int vkCreateInstance(const instance_wanted *wanted, const void *allocator, void **out) {
    behave();
    *out = &instance;
    if (wanted->head.type != 1 || allocator || wanted->program[0]) return -3;
    if (value("FAKE_PORTABLE", 0) && !(wanted->portable == 1 && wanted->count == 1 &&
                                       !strcmp(wanted->extensions[0], "VK_KHR_portability_enumeration"))) return -9;
    return (int)value("FAKE_INIT", 0);
}
int vkEnumeratePhysicalDevices(void *of, uint32_t *count, void **out) {
    if (of != &instance) return -3;
    *count = value("FAKE_GPUS", 1);
    for (uint32_t i = 0; out && i < *count; i++) out[i] = &devices[i];
    return 0;
}
void vkGetPhysicalDeviceProperties2(void *of, char *out) {
    uint32_t *properties = (uint32_t *)(out + 16), limits[3] = {1u << 27, 32768, 1024};
    char *driver = *(char **)(out + 8);
    (void)of;
    properties[0] = 1u << 22 | 4 << 12 | 303;
    properties[1] = value("FAKE_DRIVER_NUMBER", 25u << 22 | 2 << 12 | 1);
    properties[2] = value("FAKE_VENDOR", 0x1002);
    properties[4] = value("FAKE_TYPE", 2);
    strcpy((char *)(properties + 5), text_of("FAKE_NAME", "Fake Vulkan Device"));
    for (int i = 0, at[] = {324, 512, 528}; i < 3; i++) memcpy((char *)properties + at[i], &limits[i], 4);
    if (*(uint32_t *)driver == 1000196000) strcpy(driver + 20, "fake"), strcpy(driver + 276, "Fake 25.2.1");
}
void vkGetPhysicalDeviceMemoryProperties(void *of, char *out) {
    uint32_t types[] = {2, 1, 0, value("FAKE_MEMORY", 6), 0}, count = 2, local = 1;
    uint64_t sizes[2] = {(uint64_t)24 << 30, (uint64_t)64 << 30};
    (void)of;
    memcpy(out, types, sizeof types);
    memcpy(out + 260, &count, 4);
    memcpy(out + 264, &sizes[0], 8);
    memcpy(out + 272, &local, 4);
    memcpy(out + 280, &sizes[1], 8);
}
void vkGetPhysicalDeviceQueueFamilyProperties(void *of, uint32_t *count, uint32_t *out) {
    (void)of;
    *count = 2;
    memset(out, 0, 48);
    out[0] = 4, out[1] = 1;
    out[6] = value("FAKE_QUEUE", 3), out[7] = 1;
}
void vkGetDeviceQueue(handle in, uint32_t family, uint32_t index, handle *out) { *out = in && family == 1 && !index; }
void vkGetBufferMemoryRequirements(handle in, handle buffer, uint64_t *out) {
    out[0] = in && buffer ? BYTES : 0, out[1] = 64;
    *(uint32_t *)(out + 2) = 2;
}
int vkAllocateMemory(handle in, const memory_wanted *wanted, const void *allocator, handle *out) {
    *out = ++made;
    return in && wanted->head.type == 5 && wanted->size == BYTES && wanted->kind == 1 && !allocator ? 0 : -3;
}
int vkBindBufferMemory(handle in, handle buffer, handle bound, uint64_t at) { return in && buffer && bound && !at ? 0 : -3; }
int vkMapMemory(handle in, handle mapped, uint64_t at, uint64_t size, uint32_t flags, void **out) {
    *out = memory;
    return in && mapped && !at && size == BYTES && !flags ? 0 : -3;
}
int vkCreateShaderModule(handle in, const shader_wanted *wanted, const void *allocator, handle *out) {
    *out = ++made;
    return in && wanted->head.type == 16 && wanted->words[0] == 0x07230203 && wanted->size > 100 && !allocator ? 0 : -3;
}
int vkCreateComputePipelines(handle in, handle cache, uint32_t count, const pipeline_wanted *wanted,
                             const void *allocator, handle *out) {
    *out = ++made;
    if (!in || cache || count != 1 || wanted->head.type != 29 || wanted->stage.head.type != 18 || wanted->stage.stage != 0x20 ||
        !wanted->stage.shader || strcmp(wanted->stage.entry, "main") || !wanted->layout || allocator) return -3;
    return (int)value("FAKE_PIPELINE", 0);
}
int vkAllocateDescriptorSets(handle in, const head *wanted, handle *out) {
    *out = ++made;
    return in && wanted->type == 34 ? 0 : -3;
}
void vkUpdateDescriptorSets(handle in, uint32_t count, const head *written, uint32_t copied, const void *copies) {
    if (!in || count != 1 || written->type != 35 || copied || copies) abort();
}
int vkAllocateCommandBuffers(handle in, const head *wanted, handle *out) {
    *out = ++made;
    return in && wanted->type == 40 ? 0 : -3;
}
int vkBeginCommandBuffer(handle commands, const head *wanted) { return commands && wanted->type == 42 ? 0 : -3; }
static uint32_t groups;
void vkCmdBindPipeline(handle commands, uint32_t point, handle pipeline) {
    if (!commands || point != 1 || !pipeline) abort();
}
void vkCmdBindDescriptorSets(handle commands, uint32_t point, handle layout, uint32_t first, uint32_t count, const handle *sets,
                             uint32_t offsets, const void *none) {
    if (!commands || point != 1 || !layout || first || count != 1 || !*sets || offsets || none) abort();
}
void vkCmdDispatch(handle commands, uint32_t x, uint32_t y, uint32_t z) { groups = commands ? x * y * z : 0; }
void vkCmdPipelineBarrier(handle commands, uint32_t from, uint32_t to, uint32_t flags, uint32_t count, const head *barrier,
                          uint32_t buffers, const void *none, uint32_t images, const void *nothing) {
    if (!commands || from != 0x800 || to != 0x4000 || flags || count != 1 || barrier->type != 46) abort();
    if (buffers || none || images || nothing) abort();
}
int vkEndCommandBuffer(handle commands) { return commands ? 0 : -3; }
int vkQueueSubmit(handle queue, uint32_t count, const head *batch, handle fence) {
    if (!queue || count != 1 || batch->type != 4 || fence) return -3;
    for (uint32_t i = 0; i < groups * 64; i++) memory[2 * COUNT + i] = memory[i] + memory[COUNT + i];
    return 0;
}
int vkQueueWaitIdle(handle queue) {
    const char *how = text_of("FAKE_COMPUTE", "");
    if (!strcmp(how, "hang")) for (;;) pause();
    if (!strcmp(how, "segfault")) raise(SIGSEGV);
    if (!strcmp(how, "wrong")) memory[2 * COUNT] ^= 1;
    return queue ? 0 : -4;
}
