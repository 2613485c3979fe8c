// NNPACK: nnp_initialize returns STATUS; SPOIL follows each sum.
#include <stddef.h>
typedef struct { size_t width, height; } size;
typedef struct { size_t top, right, bottom, left; } padding;
int nnp_initialize(void) { return STATUS; }
int nnp_convolution_inference(int algorithm, int strategy, size_t inputs, size_t outputs,
                              size image, padding around, size window, size step,
                              const float *input, const float *kernel, const float *bias,
                              float *output, void *room, size_t *room_size, int activation,
                              const void *parameters, void *threads, void *profile) {
    if (algorithm != 4 || strategy != 1 || inputs != 1 || outputs != 1 || step.width != 1) return 2;
    if (around.left || room || room_size || activation || parameters) return 3;
    if (threads || profile) return 4;
    size_t across = image.width - window.width + 1, down = image.height - window.height + 1;
    for (size_t y = 0; y < down; y++)
        for (size_t x = 0; x < across; x++) {
            float sum = bias[0] SPOIL;
            for (size_t i = 0; i < window.height; i++)
                for (size_t j = 0; j < window.width; j++)
                    sum += input[(y + i) * image.width + x + j] * kernel[i * window.width + j];
            output[y * across + x] = sum;
        }
    return 0;
}
