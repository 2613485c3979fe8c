"""Meta's accelerators (MTIA)."""

from mlbackends.model.device_kinds import Concern, Feature, Limit, Shown

KIND = "mtia"
DEVICES = ("mtia",)
PROBES = ("mtia", "torch")

LIMITS = (
    Limit(
        "everything but torch.mtia",
        Concern.SYSTEM,
        "Driver and runtime are not public: no file and no library tells of it, and only a torch that"
        " Meta built for it computes on it.",
        "PyTorch documentation, torch.mtia",
    ),
)

FEATURES: tuple[Feature, ...] = ()

SHOWN = (Shown("torch", "torch.version"),)
