// QNNPACK, whose functions begin with PREFIX; its initialisation returns STATUS.
#define JOINED(prefix, name) prefix##_##name
#define EXPANDED(prefix, name) JOINED(prefix, name)
#define NAMED(name) EXPANDED(PREFIX, name)
#include <stddef.h>
#include <stdint.h>
static struct { size_t channels; uint8_t low, high; const uint8_t *from; uint8_t *into; } op;
int NAMED(initialize)(void) { return STATUS; }
int NAMED(create_clamp_nc_u8)(size_t channels, uint8_t low, uint8_t high, uint32_t flags,
                              void **made) {
    op.channels = channels; op.low = low; op.high = high;
    *made = &op;
    return flags ? 2 : 0;
}
int NAMED(setup_clamp_nc_u8)(void *made, size_t batch, const uint8_t *from, size_t from_stride,
                             uint8_t *into, size_t into_stride) {
    op.from = from; op.into = into;
    return made == &op && batch == 1 && from_stride == into_stride ? 0 : 2;
}
int NAMED(run_operator)(void *made, void *threads) {
    for (size_t i = 0; i < op.channels; i++) {
        uint8_t one = op.from[i];
        op.into[i] = one < op.low ? op.low : one > op.high ? op.high : one;
    }
    return made == &op && !threads ? 0 : 2;
}
