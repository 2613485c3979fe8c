// A stand-in for Metal and the Objective-C runtime that comes with it: a selector is its name, and
// objc_msgSend looks at that alone. FAKE_GPUS 0 gives no device; FAKE_RESULT 1 makes the fill wrong.
#include <stddef.h>
#include <stdint.h>

#include "steering.h"

typedef struct { unsigned long location, length; } Range;

static int device, object;
static char memory[65536];

void *MTLCreateSystemDefaultDevice(void) {
    behave();
    return value("FAKE_GPUS", 1) ? &device : NULL;
}
const char *sel_registerName(const char *name) { return strdup(name); }

// Every method here takes at most two whole numbers; the one with a structure stands apart, since
// the caller puts its arguments elsewhere.
static uint64_t send(void *to, const char *name, uint64_t first, uint64_t second) {
    if (!strcmp(name, "name")) return (uint64_t)&object;
    if (!strcmp(name, "UTF8String")) return (uint64_t)text_of("FAKE_NAME", "Apple M3 Max");
    if (!strcmp(name, "supportsFamily:")) return first == 1009 || first == 1008 || first == 5001;
    if (!strcmp(name, "hasUnifiedMemory")) return 1;
    if (!strcmp(name, "recommendedMaxWorkingSetSize")) return (uint64_t)48 << 30;
    if (!strcmp(name, "newBufferWithLength:options:")) return second ? 0 : (uint64_t)memory;
    if (!strcmp(name, "contents")) return (uint64_t)memory;
    if (!strcmp(name, "commit")) return 0;
    (void)to;
    return (uint64_t)&object;
}
#if defined(__x86_64__) || defined(__aarch64__)
// location and length travel in registers, as two whole numbers would.
uint64_t objc_msgSend(void *to, const char *name, uint64_t first, uint64_t second, uint64_t third,
                      unsigned char byte) {
    if (!strcmp(name, "fillBuffer:range:value:")) {
        if ((char *)first != memory) return 0;
        memset(memory + second, byte, third);
        if (value("FAKE_RESULT", 0)) memory[second] ^= 1;
        return 0;
    }
    return send(to, name, first, second);
}
#endif
