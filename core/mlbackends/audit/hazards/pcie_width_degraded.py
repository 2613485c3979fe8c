"""A GPU's PCIe link has fewer lanes than card and slot support.

Found by:  sysfs: the current width of the link, and the maximum of the card and of its port.
No alarm:  the speed, which is lower while a GPU idles; a slot that is narrower than the card; the link of a
           sleeping GPU; Radeons, which reduce lanes while idle.
"""

from mlbackends.audit.gpus import called
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
READS = ("nvidia", "rocm", "host")
WHY = (
    "Copies to and from the GPU, and between GPUs over PCIe, take at least twice as long; programs only "
    "become slower."
)
FIX = "Reseat the card and its riser, then check the slot's lanes in the firmware setup."
SOURCES = (
    "NVIDIA/NVSentinel#890",
    "Syllo/nvtop#6",
    "https://docs.kernel.org/admin-guide/abi-testing.html (sysfs-bus-pci)",
)
_OF_LAPTOPS = "It cannot be reseated in a laptop: update the firmware and check its power settings."
_KINDS = {"nvidia": "cuda", "rocm": "rocm"}


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each GPU whose link is narrower than both of its ends."""
    if report.fact("host.virtualisation", "none") != "none":
        raise DoesNotApply("a virtual machine does not report the real link")
    looked_at, is_laptop = 0, report.fact("host.is_laptop")
    for probe, kind in _KINDS.items():
        for gpu in report.devices(probe):
            now = gpu.volatile.get("pcie_width")
            # NVIDIA's GPUs and Instincts keep the width of their links while they are idle.
            is_steady = gpu.kind == "cuda" or gpu.capability.startswith("gfx9")
            if gpu.kind != kind or not isinstance(now, int) or not is_steady:
                continue
            looked_at += 1
            ends = (gpu.facts.get("max_pcie_width"), gpu.facts.get("max_pcie_slot_width"))
            most = min((width for width in ends if isinstance(width, int)), default=0)
            if 0 < now < most:
                names = ("max_pcie_width", "max_pcie_slot_width")
                evidence = {name: gpu.facts[name] for name in names if name in gpu.facts}
                evidence["pcie_width"] = now
                yield Symptom(
                    f"the PCIe link of {called(gpu)} has {now} lanes; card and slot support {most}",
                    hint=_OF_LAPTOPS if is_laptop or "Laptop" in gpu.name else "",
                    evidence={
                        f"{probe}.devices.{gpu.index}.{name}": value
                        for name, value in evidence.items()
                    },
                )
    if not looked_at:
        raise DoesNotApply("no GPU reports the width of its link")
