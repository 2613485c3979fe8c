"""The dispatch keys of torch 2.13: the layers at which an operation can have a kernel.

Source: torch 2.13, the members of `torch._C.DispatchKey` that are no markers of a range.
"""

_DEVICES = (
    "CPU",
    "CUDA",
    "HIP",
    "XLA",
    "MPS",
    "IPU",
    "XPU",
    "HPU",
    "VE",
    "Lazy",
    "MTIA",
    "MAIA",
    "PrivateUse1",
    "PrivateUse2",
    "PrivateUse3",
    "Meta",
)
_LAYOUTS = ("", "Quantized", "Sparse", "SparseCsr", "NestedTensor", "Autograd")
_WITH_AUTOCAST = ("CPU", "CUDA", "HPU", "IPU", "MPS", "PrivateUse1", "XPU")
_WITHOUT_DEVICE = (
    "ADInplaceOrView",
    "Autograd",
    "AutogradNestedTensor",
    "AutogradOther",
    "BackendSelect",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
    "CompositeImplicitAutograd",
    "CompositeImplicitAutogradNestedTensor",
    "Conjugate",
    "FuncTorchBatched",
    "FuncTorchBatchedDecomposition",
    "FuncTorchDynamicLayerBackMode",
    "FuncTorchDynamicLayerFrontMode",
    "FuncTorchGradWrapper",
    "FuncTorchVmapMode",
    "Functionalize",
    "Negative",
    "PreDispatch",
    "Python",
    "PythonDispatcher",
    "PythonTLSSnapshot",
    "ZeroTensor",
)

DISPATCH_KEYS = (
    *(layout + device for layout in _LAYOUTS for device in _DEVICES),
    *(f"Autocast{device}" for device in _WITH_AUTOCAST),
    *_WITHOUT_DEVICE,
)
"""Every key that can be switched off, those of plain tensors first."""

_OF_PLATFORM = {
    "cpu": "CPU",
    "cuda": "CUDA",
    "hpu": "HPU",
    "mps": "MPS",
    "mtia": "MTIA",
    "rocm": "CUDA",  # torch for ROCm keeps the name
    "tpu": "XLA",
    "xpu": "XPU",
}

NOT_OVERRIDABLE = frozenset({"Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd"})
"""Keys that compute shapes or stand for every device: an override there would call itself."""


def of_platform(platform: str) -> str:
    """Return the key at which plain tensors of a device's kind have their kernels, as in torch.

    A kind that torch has no key for is a plug-in's: PrivateUse1.
    """
    return _OF_PLATFORM.get(platform, "PrivateUse1")
