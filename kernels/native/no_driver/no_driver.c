/* A stand-in for a CUDA driver: each function returns CUDA_ERROR_NOT_SUPPORTED.
 *
 * To answer whether it supports attention on a chip that is not present, cuDNN loads libcuda.so.1 and looks
 * these functions up, but needs none of them. On a machine without a driver, the process that asks cuDNN opens
 * this file first, and the loader then finds it by its soname. No other process opens it.
 */
#define FUNCTION(name) __attribute__((visibility("default"))) int name(void) { return 801; }

FUNCTION(cuCtxGetCurrent)
FUNCTION(cuCtxGetLimit)
FUNCTION(cuCtxPopCurrent)
FUNCTION(cuCtxPushCurrent)
FUNCTION(cuDeviceGet)
FUNCTION(cuDeviceGetCount)
FUNCTION(cuDriverGetVersion)
FUNCTION(cuGetErrorName)
FUNCTION(cuGetErrorString)
FUNCTION(cuInit)
FUNCTION(cuKernelGetAttribute)
FUNCTION(cuKernelGetFunction)
FUNCTION(cuKernelSetAttribute)
FUNCTION(cuLaunchCooperativeKernel)
FUNCTION(cuLaunchKernel)
FUNCTION(cuLaunchKernelEx)
FUNCTION(cuLibraryGetKernel)
FUNCTION(cuLibraryLoadData)
FUNCTION(cuLibraryLoadFromFile)
FUNCTION(cuLibraryUnload)
FUNCTION(cuLinkAddData)
FUNCTION(cuLinkComplete)
FUNCTION(cuLinkCreate)
FUNCTION(cuLinkDestroy)
FUNCTION(cuModuleGetFunction)
FUNCTION(cuModuleLoadData)
FUNCTION(cuModuleUnload)
FUNCTION(cuOccupancyMaxPotentialClusterSize)
FUNCTION(cuStreamGetCtx)
FUNCTION(cuStreamGetGreenCtx)
FUNCTION(cuTensorMapEncodeIm2col)
FUNCTION(cuTensorMapEncodeTiled)
FUNCTION(cuThreadExchangeStreamCaptureMode)
