// Kernels of kernels/mlbackends_kernels/cuda, run on the CPU by the stand-in driver: one thread after another.
//
// run_NAME is handed grid, block and the addresses of the arguments, as cuLaunchKernelEx is. A block whose
// threads exchange values must be launched with one lane a row: LANES is 1 here.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

struct Size { unsigned x, y, z; };
static thread_local Size gridDim, blockDim, blockIdx, threadIdx;
#define __global__
#define __device__
#define ON_HOST 1

using std::exp;
using std::log;

#include "copies.cu"
#include "softmax.cu"

template <typename... ARGUMENTS, size_t... PLACES>
static void with(void (*kernel)(ARGUMENTS...), void **at, std::index_sequence<PLACES...>) {
    kernel(*static_cast<ARGUMENTS *>(at[PLACES])...);
}
template <typename... ARGUMENTS>
static void run(void (*kernel)(ARGUMENTS...), const unsigned *grid, const unsigned *block, void **at) {
    gridDim = {grid[0], grid[1], grid[2]}, blockDim = {block[0], block[1], block[2]};
    for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < block[0]; threadIdx.x++)
            with(kernel, at, std::index_sequence_for<ARGUMENTS...>{});
}
#define RUN(NAME) \
    extern "C" void run_##NAME(const unsigned *grid, const unsigned *block, void **at) { run(NAME, grid, block, at); }

RUN(copy_1)
RUN(copy_2)
RUN(copy_4)
RUN(copy_8)
RUN(copy_16)
RUN(softmax_float16)
RUN(softmax_bfloat16)
RUN(softmax_float32)
RUN(softmax_float64)
RUN(differentiate_float16)
RUN(differentiate_bfloat16)
RUN(differentiate_float32)
RUN(differentiate_float64)
RUN(sum_float16)
RUN(sum_bfloat16)
RUN(sum_float32)
RUN(sum_float64)
