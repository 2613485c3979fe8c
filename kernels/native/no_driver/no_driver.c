/* A CUDA driver that has nothing: each function returns CUDA_ERROR_NOT_SUPPORTED.
 *
 * cuDNN tells which attention it would take on a chip that is not here, and loads libcuda.so.1 for that, of
 * which it asks these functions by name, and needs none. Where a machine has no driver, the process that
 * asks cuDNN opens this file first; the loader then knows it by its name. No other process does.
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
