"""GPUs of different kinds are numbered otherwise by CUDA than by nvidia-smi.

Told by:   nvidia: GPUs of several models, CUDA_VISIBLE_DEVICES by index, and no CUDA_DEVICE_ORDER.
No alarm:  GPUs that are all alike; a list of UUIDs; one of the two orders chosen.
"""

from collections.abc import Iterator

from mlbackends.audit.hazard import Symptom
from mlbackends.audit.known import DoesNotApply, Known
from mlbackends.model.audit import Severity

SEVERITY = Severity.WARNING
READS = ("nvidia",)
WHY = (
    "CUDA counts the fastest GPU first, nvidia-smi in the order of the bus: an index that was read off"
    " one of them may be another card in the other."
)
MEND = "Let CUDA count as nvidia-smi does, or name GPUs by their UUIDs."
SOURCES = (
    "CUDA C++ Programming Guide, CUDA_DEVICE_ORDER",
    "gpustack/gpustack#1633",
    "ModelCloud/Device-SMI#40",
)


def symptoms(known: Known) -> Iterator[Symptom]:
    """Yield one where an index may mean another GPU."""
    kinds = {
        str(device.facts.get("pci_id", device.name)): device.name
        for device in known.devices("nvidia")
        if device.kind == "cuda"
    }
    if len(kinds) < 2:
        raise DoesNotApply("there are no GPUs of different kinds")
    told = known.fact("nvidia.environment", {})
    listed = str(told.get("CUDA_VISIBLE_DEVICES", ""))
    by_index = any(part.strip().isdecimal() for part in listed.split(","))
    if not by_index or told.get("CUDA_DEVICE_ORDER"):
        return
    names = " and ".join(name or identity for identity, name in kinds.items())
    yield Symptom(
        f'CUDA_VISIBLE_DEVICES is "{listed[:80]}" on a machine with unlike GPUs ({names}), and'
        " CUDA_DEVICE_ORDER is not set",
        command="export CUDA_DEVICE_ORDER=PCI_BUS_ID",
        evidence={
            "nvidia.environment.CUDA_VISIBLE_DEVICES": listed,
            "nvidia.devices": list(kinds),
        },
    )
