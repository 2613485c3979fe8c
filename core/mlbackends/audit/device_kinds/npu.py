"""Huawei Ascend NPUs."""

from mlbackends.model.device_kinds import Concern, Feature, Limit, Shown

KIND = "npu"
DEVICES = ("ascend",)
PROBES = ("ascend", "limits")

_PLUGIN = "Ascend/pytorch, torch_npu.unsupported_dtype"
_LIST = "Ascend Extension for PyTorch 6.0, list of native APIs, torch"

LIMITS = (
    *(
        Limit(name, Concern.DTYPE, "torch_npu lists it as not supported.", _PLUGIN)
        for name in ("quint8", "quint4x2", "quint2x4", "qint32", "qint8")
    ),
    *(
        Limit(f"torch.sparse_{layout}_tensor", Concern.OPERATION, "It is not supported.", _LIST)
        for layout in ("csr", "csc", "bsr", "bsc")
    ),
    Limit("torch.from_dlpack", Concern.OPERATION, "It is not supported.", _LIST),
)

FEATURES: tuple[Feature, ...] = ()

SHOWN = (
    Shown("chip", "ascend.soc"),
    Shown("driver", "ascend.driver_version"),
    Shown("CANN", "ascend.toolkit_version"),
    Shown("torch-npu", "ascend.torch_npu"),
    Shown("variables", "ascend.environment"),
)
