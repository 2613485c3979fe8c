// FBGEMM: STATUS says whether it supports the processor; SPOIL follows each result.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
bool _ZN6fbgemm18fbgemmSupportedCPUEv(void) { return STATUS; }
void _ZN6fbgemm20FloatToBfloat16_simdEPKfPtm(const float *from, uint16_t *into, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, 4);
        into[i] = (uint16_t)(bits >> 16) SPOIL;
    }
}
